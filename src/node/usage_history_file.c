/* SPDX-License-Identifier: Apache-2.0 */
#include "base/jread.h"
#include "domain/object.h"
#include "node/checkpoint.h"
#include "node/usage_history_priv.h"
#include "node/workload.h"

/*
 *     {"version": 1, "node": "n1", "workloads": [
 *     {"namespace": "team", "kind": "Deployment", "name": "web", "container": "c",
 *      "promised": 4096, "hour": 490896, "marks": [3000, -1, 2800]}
 *     ]}
 *
 * `hour` is that of the first mark, and each further mark is of the hour before; -1: the
 * workload did not run.
 */

enum { VERSION = 1 };

/* How many hours the wall clock is ahead of the history. The difference of the clocks is
 * rounded, not each of them, because their hours begin at different minutes: the result is
 * the same at any minute, so that an hour stays the same in each text and over a restart. */
static int64_t hours_ahead(int64_t now_ms, int64_t wall_ms)
{
    const int64_t hour = USAGE_HISTORY_HOUR_MS;
    int64_t ms = wall_ms - (now_ms + USAGE_HISTORY_BASE_MS) + hour / 2;
    return ms / hour - (ms % hour < 0);
}

/* -- writing -- */

static void add_text(struct buf *out, const char *key, struct span value)
{
    buf_adds(out, key);
    buf_add_json(out, value);
}

static void add_number(struct buf *out, const char *key, int64_t value)
{
    buf_adds(out, key);
    buf_add_i64(out, value);
}

static void add_marks(struct buf *out, const struct usage_history_entry *e)
{
    int64_t n = USAGE_HISTORY_HOURS;
    while (n > 0 &&
           (e->hour - n + 1 < 0 || e->marks[(e->hour - n + 1) % USAGE_HISTORY_HOURS] < 0))
        n--;
    buf_adds(out, ", \"marks\": [");
    for (int64_t i = 0; i < n; i++)
        add_number(out, i ? ", " : "", e->marks[(e->hour - i) % USAGE_HISTORY_HOURS]);
    buf_adds(out, "]}");
}

void usage_history_write(const struct usage_history *h, struct span node, int64_t now_ms,
                         int64_t wall_ms, struct buf *out)
{
    int64_t ahead = hours_ahead(now_ms, wall_ms);
    add_number(out, "{\"version\": ", VERSION);
    add_text(out, ", \"node\": ", node);
    buf_adds(out, ", \"workloads\": [");
    for (size_t i = 0; i < h->n; i++) {
        const struct usage_history_entry *e = h->entries[i];
        buf_adds(out, i ? ",\n" : "\n");
        add_text(out, "{\"namespace\": ", e->ns);
        add_text(out, ", \"kind\": ", span_of(e->kind));
        add_text(out, ", \"name\": ", e->name);
        add_text(out, ", \"container\": ", e->container);
        add_number(out, ", \"promised\": ", e->promised_mib);
        add_number(out, ", \"hour\": ", e->hour + ahead);
        add_marks(out, e);
    }
    buf_adds(out, "\n]}\n");
}

/* -- reading -- */

struct reading {
    struct usage_history *h;
    struct arena *a;
    struct jread j;
    int64_t now;  /* this hour, in the numbers of the history */
    int64_t wall; /* the same hour, in the numbers of the file */
};

/* A workload of the file; its marks are newest first. */
struct workload_read {
    struct usage_history_entry key;
    int64_t hour, marks[USAGE_HISTORY_HOURS];
    size_t n;
};

static void read_marks(struct jread *j, struct workload_read *w)
{
    jread_array(j, "marks");
    while (jread_item(j)) {
        int64_t mark = USAGE_HISTORY_NO_MARK;
        jread_i64(j, "marks", &mark);
        if (w->n < USAGE_HISTORY_HOURS)
            w->marks[w->n++] = mark >= 0 && mark <= USAGE_HISTORY_MARK_MAX
                                   ? mark
                                   : USAGE_HISTORY_NO_MARK;
    }
}

static void read_workload(struct reading *r, struct workload_read *w)
{
    struct jread *j = &r->j;
    struct jread_str key;
    struct span kind = {0};
    jread_object(j, "workload");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "namespace"))
            jread_text(j, "namespace", r->a, &w->key.ns);
        else if (jread_key_is(key, "kind"))
            jread_text(j, "kind", r->a, &kind);
        else if (jread_key_is(key, "name"))
            jread_text(j, "name", r->a, &w->key.name);
        else if (jread_key_is(key, "container"))
            jread_text(j, "container", r->a, &w->key.container);
        else if (jread_key_is(key, "promised"))
            jread_i64(j, "promised", &w->key.promised_mib);
        else if (jread_key_is(key, "hour"))
            jread_i64(j, "hour", &w->hour);
        else if (jread_key_is(key, "marks"))
            read_marks(j, w);
        else
            jread_skip(j);
    }
    w->key.kind = workload_kind(kind);
}

/* Is the workload one that could have been written, and new? */
static bool is_good(const struct usage_history *h, const struct workload_read *w)
{
    return w->key.kind && object_is_name(w->key.ns) && object_is_name(w->key.name) &&
           object_is_name(w->key.container) && w->hour >= 0 &&
           w->key.promised_mib >= -1 && w->key.promised_mib <= USAGE_HISTORY_MARK_MAX &&
           h->n < USAGE_HISTORY_MAX && !usage_history_find(h, &w->key);
}

static void keep_workload(struct reading *r, const struct workload_read *w)
{
    struct usage_history_entry *e = NULL;
    if (!is_good(r->h, w))
        return;
    int64_t age = w->hour < r->wall ? r->wall - w->hour : 0;
    for (size_t i = 0; i < w->n && age + (int64_t)i < USAGE_HISTORY_HOURS; i++) {
        if (w->marks[i] < 0)
            continue;
        if (!e)
            e = usage_history_add(r->h, &w->key);
        usage_history_mark(e, r->now - age - (int64_t)i, w->marks[i]);
    }
    if (!e)
        return;
    e->promised_mib = w->key.promised_mib;
    e->seen_ms = e->hour * USAGE_HISTORY_HOUR_MS;
}

static void read_workloads(struct reading *r)
{
    jread_array(&r->j, "workloads");
    while (jread_item(&r->j)) {
        struct workload_read w = {.hour = -1};
        read_workload(r, &w);
        if (jread_fault(&r->j, NULL) == 0 && jread_check(&r->j, NULL) == 0)
            keep_workload(r, &w);
    }
}

static int read_all(struct reading *r, struct span text, struct span node,
                    struct err *err)
{
    struct jread_str key;
    struct span of = {0};
    int64_t version = 0;
    jread_init(&r->j, text.p, text.n);
    jread_object(&r->j, "usage");
    while (jread_member(&r->j, &key)) {
        if (jread_key_is(key, "version"))
            jread_i64(&r->j, "version", &version);
        else if (jread_key_is(key, "node"))
            jread_text(&r->j, "node", r->a, &of);
        else if (jread_key_is(key, "workloads"))
            read_workloads(r);
        else
            jread_skip(&r->j);
    }
    if (jread_finish(&r->j, err))
        return -1;
    return checkpoint_check_head(version, VERSION, of, node, err);
}

int usage_history_read(struct usage_history *h, struct span text, struct span node,
                       int64_t now_ms, int64_t wall_ms, struct err *err)
{
    cleanup_arena struct arena a = {0};
    struct usage_history *found = usage_history_new(), swap;
    int64_t base_ms = now_ms + USAGE_HISTORY_BASE_MS;
    struct reading r = {.h = found, .a = &a, .now = base_ms / USAGE_HISTORY_HOUR_MS};
    r.wall = r.now + hours_ahead(now_ms, wall_ms);
    int rc = read_all(&r, text, node, err);
    if (rc == 0) {
        swap = *h;
        *h = *found;
        *found = swap;
        h->now_ms = base_ms;
    }
    usage_history_free(found);
    return rc;
}
