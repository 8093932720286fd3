/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Scv of the node: observes it by list, watch and the answers of writes, compares it
 * with the last sample, and writes it.
 */
#include "agent/publisher_priv.h"

#include "base/hash.h"
#include "base/mem.h"

enum {
    OWNER_AGAIN_MS = 60 * 1000, /* when another client removes the reference */
    CONFLICTS = 3,              /* in a row that are not logged */
    /* A watch that lasted this long resets the back-off, and so does an event. */
    HEALTHY_MS = 30 * 1000,
    WATCH_APART_MS = 1000, /* a server may end each watch at once */
};

/* -- observed -- */

static uint64_t hash_of(const struct api_object *o)
{
    uint64_t h = hash_bytes(1, o->status.p, o->status.n);
    return hash_bytes(h, o->message.p, o->message.n);
}

/* With etcd, resource versions are increasing integers (guaranteed since Kubernetes
 * 1.35). Otherwise no version is older: that costs one conflict and one list at most. */
static bool is_older(struct span a, const struct buf *b)
{
    int64_t va, vb;
    return span_i64(a, &va) && span_i64(buf_span(b), &vb) && va < vb;
}

static void set(struct buf *b, struct span text)
{
    buf_clear(b);
    buf_add_span(b, text);
}

static void observe_interval(struct step *s, const struct api_object *o)
{
    struct publisher *p = s->p;
    int64_t ms = o->has_interval && o->interval_ms > 0 ? o->interval_ms : 0;
    bool fits =
        ms == 0 || (ms >= PUBLISHER_MIN_INTERVAL_MS && ms <= PUBLISHER_MAX_INTERVAL_MS);
    if (!fits && p->clamped_ms != ms)
        publisher_log(s, "scv", ERR_INVALID,
                      "spec.updateInterval: %lld is not within %d..%d; using the nearest",
                      (long long)ms, PUBLISHER_MIN_INTERVAL_MS,
                      PUBLISHER_MAX_INTERVAL_MS);
    p->clamped_ms = fits ? 0 : ms;
    int64_t before = publisher_interval(p);
    p->observed.interval_ms = ms;
    if (publisher_interval(p) != before)
        publisher_log(s, "cards", ERR_NONE, "sampling every %lld ms",
                      (long long)publisher_interval(p));
}

static void observe(struct step *s, const struct api_object *o)
{
    struct observed *observed = &s->p->observed;
    observe_interval(s, o);
    observed->exists = true;
    set(&observed->version, o->meta.version);
    observed->hash = hash_of(o);
    observed->has_message = o->message.p != NULL;
    observed->owned = o->owned;
}

static void observe_missing(struct publisher *p, int64_t since_ms)
{
    p->observed.exists = false;
    p->observed.interval_ms = 0;
    p->observed.missing_since_ms = since_ms;
}

/* -- the watch -- */

/* A watch starts at the resourceVersion of a list, or where the previous watch ended. */
static void start_watch(struct step *s)
{
    struct publisher *p = s->p;
    p->watching = true;
    p->alive_ms = p->watch_ms = s->now.mono_ms;
    struct publisher_output *o = step_add(s->out, sizeof *o);
    *o = (struct publisher_output){.type = PUBLISHER_WATCH,
                                   .run = ++p->run,
                                   .version = step_text(s->out,
                                                        buf_span(&p->watch_version))};
}

static void observe_watch_end(struct step *s)
{
    struct publisher *p = s->p;
    p->watching = false;
    if (s->now.mono_ms - p->watch_ms >= HEALTHY_MS)
        p->watch_failures = 0;
    if (publisher_error_code(s->in) == ERR_NONE) {
        p->watch_due_ms = p->watch_ms + WATCH_APART_MS; /* the requested timeout */
        return;
    }
    if (p->broken_since_ms < 0)
        p->broken_since_ms = s->now.mono_ms;
    if (p->watch_failures == 1)
        publisher_log(s, "scv", publisher_error_code(s->in),
                      "watch failed: %s; listing again", s->in->err->msg);
    p->watch_due_ms = s->now.mono_ms;
    if (p->watch_failures)
        p->watch_due_ms +=
            publisher_backoff(p, p->watch_failures + 1, s->in->retry_after_ms);
    p->watch_failures++;
    /* A list shows the events missed since. The watch's version may be compacted. Writes
     * do not wait for the list: the health of the cards is in them. */
    p->want_list = true;
    p->list_due_ms = p->watch_due_ms;
}

void publisher_scv_observe_watch(struct step *s)
{
    struct publisher *p = s->p;
    const struct api_object *o = s->in->object;
    if (!p->watching || s->in->run != p->run)
        return;
    if (s->in->type == PUBLISHER_WATCH_ENDED) {
        observe_watch_end(s);
        return;
    }
    p->alive_ms = s->now.mono_ms;
    p->broken_since_ms = -1;
    if (s->in->type == PUBLISHER_WATCH_ALIVE) {
        if (s->in->version.n)
            set(&p->watch_version, s->in->version);
        return;
    }
    p->watch_failures = 0; /* an event proves that the watch works */
    set(&p->watch_version, o->meta.version);
    if (is_older(o->meta.version, &p->observed.version))
        return; /* an answer was newer */
    if (!s->in->gone) {
        observe(s, o);
        return;
    }
    if (p->observed.exists)
        publisher_log(s, "scv", ERR_NONE, "Scv %s was deleted; creating it again",
                      p->settings.node);
    set(&p->observed.version, o->meta.version);
    observe_missing(p, s->now.mono_ms);
}

/* -- desired -- */

/* The content, with or without the slow fields and the time. */
static struct scv content(struct publisher *p, bool whole)
{
    struct scv scv = {.has_update_time = whole,
                      .update_time = p->taken_wall_ns / 1000000000};
    card_inventory_report(p->cards, &p->scratch, &scv);
    for (size_t i = 0; i < scv.n_cards && !whole; i++)
        scv.cards[i].has_utilization = scv.cards[i].has_temperature = false;
    if (p->pods)
        node_scv_add_pods(p->pods, &scv, &p->scratch);
    if (whole)
        node_scv_add_usage(&p->usage, &scv, &p->scratch);
    return scv;
}

void publisher_scv_render(struct publisher *p)
{
    struct scv scv = content(p, false);
    buf_clear(&p->want);
    buf_clear(&p->want_message);
    scv_write_status(&p->want, &scv);
    card_inventory_message(p->cards, &p->want_message);
}

static bool must_write(struct publisher *p, int64_t now_ms)
{
    const struct written *w = &p->written;
    if (!p->sampled || !p->observed.listed)
        return false;
    if (!p->observed.exists || !w->any)
        return true;
    if (!span_eq(buf_span(&w->status), buf_span(&p->want)) ||
        !span_eq(buf_span(&w->message), buf_span(&p->want_message)))
        return true;
    int64_t age = now_ms - w->at_ms;
    if (p->node_uid.n && !p->observed.owned &&
        now_ms - p->owner_tried_ms >= OWNER_AGAIN_MS)
        return true;
    if (w->hash_known && w->hash != p->observed.hash)
        return age >= publisher_interval(p); /* another client may write continuously */
    /* The sample of a newer use follows at once, successful or not: until then the use
     * does not belong to the memory of the cards. */
    if (p->settings.refresh_ms == 0 || p->usage.taken_ms > p->sampled_ms)
        return false;
    if (age < p->settings.refresh_ms)
        return false;
    struct scv scv = content(p, true);
    return node_scv_numbers_differ(&w->numbers, &scv);
}

static void record_write(struct publisher *p, const struct scv *scv, int64_t now_ms)
{
    struct written *w = &p->written;
    set(&w->status, buf_span(&p->want));
    set(&w->message, buf_span(&p->want_message));
    node_scv_numbers_read(&w->numbers, scv);
    w->at_ms = now_ms;
    w->any = true;
    w->hash_known = false;
}

/* Creates the Scv, or patches the one that exists. */
static void write_scv(struct step *s)
{
    struct publisher *p = s->p;
    bool create = !p->observed.exists;
    cleanup_buf struct buf body = {0}, status = {0};
    struct scv scv = content(p, true);
    struct jwrite w = {.out = &body};
    scv_write_status(&status, &scv);
    jwrite_object(&w, NULL);
    if (create) {
        jwrite_str(&w, "apiVersion", SPAN("core.run-linux.com/v1"));
        jwrite_str(&w, "kind", SPAN("Scv"));
    }
    jwrite_object(&w, "metadata");
    if (create)
        jwrite_str(&w, "name", span_of(p->settings.node));
    else
        jwrite_str(&w, "resourceVersion", buf_span(&p->observed.version));
    if (p->want_message.n || (!create && p->observed.has_message)) {
        jwrite_object(&w, "annotations");
        if (p->want_message.n)
            jwrite_str(&w, KEY_MESSAGE, buf_span(&p->want_message));
        else
            jwrite_raw(&w, KEY_MESSAGE, SPAN("null"));
        jwrite_object_end(&w);
    }
    if (create || (p->node_uid.n && !p->observed.owned)) {
        publisher_write_owner(p, &w);
        p->owner_tried_ms = create ? p->owner_tried_ms : s->now.mono_ms;
    }
    jwrite_object_end(&w);
    if (create) {
        jwrite_object(&w, "spec");
        jwrite_i64(&w, "updateInterval", p->settings.interval_ms);
        jwrite_object_end(&w);
        jwrite_raw(&w, "status", buf_span(&status));
    } else {
        cleanup_buf struct buf patch = {0};
        api_object_status_patch(&patch, buf_span(&status));
        jwrite_raw(&w, "status", buf_span(&patch));
    }
    jwrite_object_end(&w);
    record_write(p, &scv, s->now.mono_ms);
    publisher_call(s, create ? PUBLISHER_CREATE : PUBLISHER_PATCH, PUBLISHER_LANE_SCV,
                   &body);
}

/* -- answers -- */

/* A consistent list is the truth: when etcd was restored from a backup, all versions are
 * lower than before. The watch starts again at that version, because it may have passed
 * on events between the list and its answer. */
static void observe_list(struct step *s)
{
    struct publisher *p = s->p;
    const struct api_object *o = s->in->object;
    bool first = !p->observed.listed;
    struct span version = o ? o->meta.version : s->in->version;
    bool again = !p->watching || is_older(version, &p->observed.version);
    if (publisher_error_code(s->in) != ERR_NONE) {
        bool no_crd = publisher_error_code(s->in) == ERR_NOT_FOUND;
        publisher_call_failed(s, PUBLISHER_LANE_SCV, "cannot list: %s%s",
                              no_crd ? "the CRD scvs.core.run-linux.com is not installed "
                                       "(manifests/crd.yaml): "
                                     : "",
                              s->in->err->msg);
        return;
    }
    if (p->lanes[PUBLISHER_LANE_SCV].failed == PUBLISHER_LIST)
        publisher_call_succeeded(s, PUBLISHER_LANE_SCV, "list");
    p->want_list = false;
    if (o) {
        observe(s, o);
    } else {
        set(&p->observed.version, version);
        observe_missing(p, p->lanes[PUBLISHER_LANE_SCV].sent_ms);
    }
    p->observed.listed = true;
    if (first && o)
        publisher_adopt(s, &o->scv);
    if (again) {
        set(&p->watch_version, s->in->version);
        start_watch(s);
    }
}

static void observe_write(struct step *s, enum publisher_output_type type)
{
    struct publisher *p = s->p;
    const struct api_object *o = s->in->object;
    publisher_call_succeeded(s, PUBLISHER_LANE_SCV, "write");
    p->pending_since_ms = -1;
    p->published = true;
    if (type == PUBLISHER_CREATE)
        publisher_log(s, "scv", ERR_NONE, "created Scv %s", p->settings.node);
    if (!o)
        return;
    p->written.hash = hash_of(o);
    p->written.hash_known = true;
    if (!is_older(o->meta.version, &p->observed.version))
        observe(s, o);
}

static void observe_failed_write(struct step *s, enum publisher_output_type type)
{
    struct publisher *p = s->p;
    struct lane *lane = &p->lanes[PUBLISHER_LANE_SCV];
    enum err_code code = publisher_error_code(s->in);
    bool stale =
        code == ERR_CONFLICT || (code == ERR_NOT_FOUND && type == PUBLISHER_PATCH);
    p->written.any = false; /* the write may have taken effect: write again */
    /* The object is newer, exists already, or was deleted: read it and write again. */
    if (stale || code == ERR_NOT_FOUND) {
        p->want_list = true;
        p->list_due_ms = s->now.mono_ms;
    }
    if (stale && lane->conflicts < CONFLICTS) {
        lane->failed = type;
        lane->conflicts++;
        return;
    }
    publisher_call_failed(s, PUBLISHER_LANE_SCV, "cannot %s Scv %s: %s",
                          type == PUBLISHER_CREATE ? "create" : "patch",
                          s->p->settings.node, s->in->err->msg);
}

void publisher_scv_observe_answer(struct step *s)
{
    enum publisher_output_type type = s->p->lanes[PUBLISHER_LANE_SCV].type;
    if (type == PUBLISHER_LIST)
        observe_list(s);
    else if (publisher_error_code(s->in) == ERR_NONE)
        observe_write(s, type);
    else
        observe_failed_write(s, type);
}

/* -- time -- */

void publisher_scv_tick(struct step *s)
{
    struct publisher *p = s->p;
    struct lane *lane = &p->lanes[PUBLISHER_LANE_SCV];
    int64_t now_ms = s->now.mono_ms;
    if (!p->watching && !p->want_list && p->observed.listed && p->watch_due_ms <= now_ms)
        start_watch(s);
    bool changed = !lane->busy && must_write(p, now_ms);
    if (p->observed.listed && p->sampled && !lane->busy && !changed)
        p->pending_since_ms = -1;
    else if (p->pending_since_ms < 0)
        p->pending_since_ms = now_ms;
    if (lane->busy || lane->due_ms > now_ms)
        return;
    if (p->want_list && p->list_due_ms <= now_ms)
        publisher_call(s, PUBLISHER_LIST, PUBLISHER_LANE_SCV, NULL);
    else if (changed && (p->observed.exists ||
                         publisher_node_seen_since(p, p->observed.missing_since_ms)))
        write_scv(s);
}
