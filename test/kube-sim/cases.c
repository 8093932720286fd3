/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "kube-sim/cases_priv.h"
#include "lib/unit.h"

enum { WATCHES = 16 };

struct run {
    const char *file;
    const struct cases_server *server;
    size_t step;
    const json_t *what; /* the step */
    json_t *saved;      /* name -> string */
    json_t *watches;    /* name -> index in open */
    json_t *answers;    /* one per step; null: no reply */
    void *open[WATCHES];
    size_t n_open;
    size_t faults; /* number of unexpected results */
    bool lost;     /* the case cannot continue */
};

/* Members left out of the printed objects. */
static void shorten(json_t *object)
{
    json_object_del(json_object_get(object, "metadata"), "managedFields");
    if (json_object_get(object, "object"))
        shorten(json_object_get(object, "object"));
}

static void fault(struct run *r, const char *why, struct span got)
{
    cleanup_free char *step = json_dumps(r->what, JSON_COMPACT);
    json_t *have = json_loadb(got.p ? got.p : "", got.n, 0, NULL);
    shorten(have);
    cleanup_free char *text = have ? json_dumps(have, JSON_COMPACT) : NULL;
    printf("%s, step %zu, %s: %s\n  step: %s\n  got: %.*s\n", r->file, r->step,
           r->server->name, why, step, text ? 2000 : (int)got.n,
           text    ? text
           : got.p ? got.p
                   : "");
    fflush(stdout); /* a later failure discards unflushed output */
    json_decref(have);
    r->faults++;
}

static void give_up(struct run *r, const char *why)
{
    fault(r, why, (struct span){0});
    r->lost = true;
}

/* -- saved values -- */

/* The text with each ${name} replaced by the saved value. */
static void expand(struct run *r, const char *text, struct buf *out)
{
    const char *mark;
    buf_reserve(out, 0);
    while ((mark = strstr(text, "${"))) {
        const char *end = strchr(mark, '}');
        char name[64];
        ck_assert_msg(end != NULL, "%s: no } in %s", r->file, text);
        snprintf(name, sizeof name, "%.*s", (int)(end - mark - 2), mark + 2);
        const char *value = json_string_value(json_object_get(r->saved, name));
        if (!value) /* absent, or a tree */
            give_up(r, "nothing was saved under that name");
        buf_add(out, text, (size_t)(mark - text));
        buf_adds(out, value ? value : "");
        text = end + 1;
    }
    buf_adds(out, text);
}

/* The body of a step, with "$from" resolved. */
static json_t *from_saved(struct run *r, json_t *object)
{
    const char *name = json_string_value(json_object_get(object, "$from"));
    json_t *saved = name ? json_object_get(r->saved, name) : NULL;
    if (!saved)
        return object;
    json_t *copy = json_deep_copy(saved);
    cases_merge(copy, object);
    json_decref(object);
    return copy;
}

static json_t *member(struct run *r, const char *key)
{
    json_t *v = json_object_get(r->what, key);
    if (!v)
        return NULL;
    cleanup_free char *text = json_dumps(v, JSON_ENCODE_ANY);
    cleanup_buf struct buf full = {0};
    expand(r, text, &full);
    json_t *expanded = json_loads(full.p, JSON_DECODE_ANY, NULL);
    ck_assert_ptr_nonnull(expanded);
    return from_saved(r, expanded);
}

static const char *text_of(const struct run *r, const char *key)
{
    return json_string_value(json_object_get(r->what, key));
}

static const json_t *at_path(const json_t *at, const char *path)
{
    struct span rest = span_of(path);
    while (rest.n) {
        struct span key = span_cut(&rest, '.');
        int64_t index;
        char text[64];
        snprintf(text, sizeof text, "%.*s", SPAN_ARG(key));
        at = span_i64(key, &index) ? json_array_get(at, (size_t)index)
                                   : json_object_get(at, text);
    }
    return at;
}

static void save(struct run *r, const json_t *have, struct span got)
{
    const char *name;
    json_t *path;
    json_object_foreach(json_object_get(r->what, "save"), name, path)
    {
        const json_t *at = at_path(have, json_string_value(path));
        if (!json_is_string(at) && !json_is_object(at)) {
            fault(r, "nothing to save", got);
            r->lost = true;
            return;
        }
        json_object_set(r->saved, name, (json_t *)at);
    }
}

/* -- replies -- */

static bool as_expected(struct run *r, const char *key, const json_t *have,
                        struct buf *why)
{
    cleanup_buf struct buf where = {0};
    json_t *want = member(r, key);
    bool is = !want || cases_contains(have, want, &where);
    if (!is)
        buf_printf(why, "%s: unexpected value at \"%.*s\"", key, (int)where.n,
                   where.p ? where.p : "");
    json_decref(want);
    return is;
}

/* Stores the reply, and the values of "save". */
static void answered(struct run *r, unsigned status, json_t *have, struct span got)
{
    json_t *answer = json_object();
    if (status)
        json_object_set_new(answer, "status", json_integer(status));
    json_object_set(answer, "body", have ? have : json_null());
    json_array_set_new(r->answers, r->step, answer);
    save(r, have, got);
}

static json_t *parse(struct span text)
{
    return json_loadb(text.p ? text.p : "", text.n, JSON_DECODE_ANY, NULL);
}

/* False: unexpected. */
static bool check(struct run *r, const struct cases_reply *reply, struct buf *why)
{
    const json_t *status = json_object_get(r->what, "status");
    struct span got = buf_span(&reply->body);
    json_t *have = parse(got);
    bool is = !status || json_integer_value(status) == reply->status;
    if (!is)
        buf_printf(why, "status %u", reply->status);
    is = is && as_expected(r, "expect", have, why) &&
         (!reply->headers || as_expected(r, "headers", reply->headers, why));
    if (is)
        answered(r, reply->status, have, got);
    json_decref(have);
    return is;
}

static void reply_clear(struct cases_reply *reply)
{
    json_decref(reply->headers);
    buf_fini(&reply->body);
    *reply = (struct cases_reply){0};
}

/* -- steps -- */

static void send(struct run *r, const struct cases_request *req,
                 struct cases_reply *reply)
{
    const struct cases_server *s = r->server;
    const char *name = text_of(r, "watch");
    if (!name) {
        s->call(s->ctx, req, reply);
        return;
    }
    ck_assert_uint_lt(r->n_open, WATCHES);
    void **slot = &r->open[r->n_open];
    *slot = NULL;
    s->watch(s->ctx, req, slot, reply);
    if (*slot)
        json_object_set_new(r->watches, name, json_integer((json_int_t)r->n_open++));
}

static void do_request(struct run *r)
{
    cleanup_buf struct buf line = {0}, body = {0}, why = {0};
    struct cases_reply reply = {0};
    expand(r, text_of(r, "do"), &line);
    char *path = strchr(line.p, ' ');
    *path++ = '\0';
    json_t *j = member(r, "body");
    const char *raw = text_of(r, "raw");
    cleanup_free char *text = j ? json_dumps(j, JSON_ENCODE_ANY) : NULL;
    buf_adds(&body, text ? text : raw ? raw : "");
    struct cases_request req = {.method = line.p,
                                .path = path,
                                .type = text_of(r, "type"),
                                .accept = text_of(r, "accept"),
                                .headers = json_object_get(r->what, "ask"),
                                .body = buf_span(&body)};
    send(r, &req, &reply);
    if (!check(r, &reply, &why)) {
        fault(r, why.p, buf_span(&reply.body));
        json_t *have = parse(buf_span(&reply.body));
        answered(r, reply.status, have, buf_span(&reply.body));
        json_decref(have);
    }
    reply_clear(&reply);
    json_decref(j);
}

static void *watch_of(struct run *r, const char *key)
{
    const char *name = text_of(r, key);
    json_t *at = name ? json_object_get(r->watches, name) : NULL;
    if (!at)
        give_up(r, "no such watch");
    return at ? r->open[json_integer_value(at)] : NULL;
}

static void event(struct run *r, struct span got)
{
    cleanup_buf struct buf why = {0};
    json_t *have = parse(got);
    if (!as_expected(r, "expect", have, &why))
        fault(r, why.p, got);
    answered(r, 0, have, got);
    json_decref(have);
}

static void do_next(struct run *r, const char *key, int want)
{
    cleanup_buf struct buf got = {0};
    const struct cases_server *s = r->server;
    void *w = watch_of(r, key);
    if (!w)
        return;
    if (want == 0 && s->quiet) {
        if (!s->quiet(s->ctx, w))
            fault(r, "the watch is not quiet", (struct span){0});
        return;
    }
    int rc = s->next(s->ctx, w, &got);
    while (want < 0 && rc == 1 && got.n && strstr(got.p, "\"type\":\"BOOKMARK\"")) {
        buf_clear(&got);
        rc = s->next(s->ctx, w, &got);
    }
    if (rc != want)
        fault(r,
              rc == 1 ? "an event"
              : rc    ? "the watch has ended"
                      : "no event",
              buf_span(&got));
    else if (want == 1)
        event(r, buf_span(&got));
}

static bool is_for(const json_t *step, const struct cases_server *server)
{
    const char *only = json_string_value(json_object_get(step, "only"));
    return !only || strcmp(only, server->name) == 0 ||
           (strcmp(only, "kube-sim") == 0 && strcmp(server->name, "pure") == 0);
}

static void do_step(struct run *r)
{
    const struct cases_server *s = r->server;
    const json_t *ms = json_object_get(r->what, "wait_ms");
    if (json_object_get(r->what, "do"))
        do_request(r);
    else if (json_object_get(r->what, "next"))
        do_next(r, "next", 1);
    else if (json_object_get(r->what, "quiet"))
        do_next(r, "quiet", 0);
    else if (json_object_get(r->what, "over"))
        do_next(r, "over", -1);
    else if (ms)
        s->wait(s->ctx, json_integer_value(ms));
    else if (json_object_get(r->what, "compact"))
        s->compact(s->ctx);
    else if (json_object_get(r->what, "forget"))
        s->forget(s->ctx);
    else if (!json_object_get(r->what, "only"))
        give_up(r, "a step that is none");
}

/* -- a case -- */

/* The reason why the case cannot run; NULL: it can. */
static const char *cannot_run(const json_t *steps, const struct cases_server *server)
{
    size_t i;
    json_t *step;
    json_array_foreach(steps, i, step)
    {
        bool here = is_for(step, server);
        const json_t *ms = json_object_get(step, "wait_ms");
        if (json_object_get(step, "only") && !json_object_get(step, "why"))
            return "\"only\" without \"why\"";
        if (!here && json_object_size(step) == 2)
            return json_string_value(json_object_get(step, "why"));
        if (here && ms && strcmp(server->name, "pure") != 0 &&
            json_integer_value(ms) > CASES_WAIT_MS)
            return "it waits for too long";
        if (here && ((json_object_get(step, "compact") && !server->compact) ||
                     (json_object_get(step, "forget") && !server->forget)))
            return "the server's history cannot be controlled";
    }
    return NULL;
}

static void names(struct run *r, const char *id)
{
    const char *const keys[] = {"ns", "ns2"};
    json_object_set_new(r->saved, "id", json_string(id));
    for (size_t i = 0; i < 2; i++) {
        cleanup_free char *ns = xasprintf("c-%s%s", id, i ? "-b" : "");
        json_object_set_new(r->saved, keys[i], json_string(ns));
        r->server->space(r->server->ctx, ns);
    }
}

static void steps_run(struct run *r, const json_t *steps)
{
    for (; !r->lost && r->step < json_array_size(steps); r->step++) {
        r->what = json_array_get(steps, r->step);
        json_array_append_new(r->answers, json_null());
        if (is_for(r->what, r->server))
            do_step(r);
    }
    while (r->n_open)
        r->server->close(r->server->ctx, r->open[--r->n_open]);
}

json_t *cases_run(const char *file, const char *id, const struct cases_server *server,
                  size_t *faults)
{
    json_error_t error;
    json_t *steps = json_load_file(file, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(json_is_array(steps), "%s: line %d: %s", file, error.line, error.text);
    struct run r = {.file = file, .server = server};
    const char *why = cannot_run(steps, server);
    r.saved = json_object();
    r.watches = json_object();
    if (why) {
        printf("%s: skipped for %s: %s\n", file, server->name, why);
    } else {
        r.answers = json_array();
        names(&r, id);
        steps_run(&r, steps);
    }
    json_decref(r.saved);
    json_decref(r.watches);
    json_decref(steps);
    *faults += r.faults;
    return r.answers;
}
