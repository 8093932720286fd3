/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/cases_priv.h"
#include "lib/lib.h"

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

/* NULL: no JSON. */
static json_t *parse(struct span text)
{
    json_t *j = json_loadb(text.p ? text.p : "", text.n, JSON_DECODE_ANY, NULL);
    return j ? lib_own(j) : NULL;
}

/* Members left out of the printed objects. */
static void shorten(json_t *object)
{
    json_object_del(lib_at(object, "metadata"), "managedFields");
    json_object_del(lib_at(object, "object.metadata"), "managedFields");
}

static void fault(struct run *r, const char *why, struct span got)
{
    json_t *have = parse(got);
    shorten(have);
    printf("%s, step %zu, %s: %s\n  step: %s\n  got: %.2000s\n", r->file, r->step,
           r->server->name, why, lib_text(r->what, ""),
           have ? lib_text(have, "") : lib_fmt("%.*s", SPAN_ARG(got)));
    fflush(stdout); /* a later failure discards unflushed output */
    r->faults++;
}

static void give_up(struct run *r, const char *why)
{
    fault(r, why, (struct span){0});
    r->lost = true;
}

/* -- saved values -- */

/* The text with each ${name} replaced by the saved value. */
static char *expand(struct run *r, const char *text)
{
    char *out = lib_fmt("%s", text);
    const char *mark;
    while ((mark = strstr(out, "${"))) {
        const char *end = strchr(mark, '}');
        ck_assert_msg(end != NULL, "%s: no } in %s", r->file, text);
        const char *value =
            lib_in(r->saved, "", lib_fmt("%.*s", (int)(end - mark - 2), mark + 2));
        if (!*value) /* absent, or a tree */
            give_up(r, "nothing was saved under that name");
        out = lib_fmt("%.*s%s%s", (int)(mark - out), out, value, end + 1);
    }
    return out;
}

/* The body of a step, with "$from" resolved. */
static json_t *from_saved(struct run *r, json_t *object)
{
    json_t *saved = json_object_get(r->saved, lib_in(object, "", "$from"));
    if (!saved)
        return object;
    json_t *copy = lib_own(json_deep_copy(saved));
    cases_merge(copy, object);
    return copy;
}

static json_t *member(struct run *r, const char *key)
{
    if (!json_object_get(r->what, key))
        return NULL;
    const char *text = expand(r, lib_text(r->what, key));
    return from_saved(r, lib_parse(text, strlen(text)));
}

static const char *text_of(const struct run *r, const char *key)
{
    return json_string_value(json_object_get(r->what, key));
}

static void save(struct run *r, const json_t *have, struct span got)
{
    const char *name;
    json_t *path;
    json_object_foreach(json_object_get(r->what, "save"), name, path)
    {
        json_t *at = lib_at(have, json_string_value(path));
        if (!json_is_string(at) && !json_is_object(at)) {
            fault(r, "nothing to save", got);
            r->lost = true;
            return;
        }
        json_object_set(r->saved, name, at);
    }
}

/* -- replies -- */

static bool as_expected(struct run *r, const char *key, const json_t *have,
                        struct buf *why)
{
    cleanup_buf struct buf where = {0};
    const json_t *want = member(r, key);
    bool is = !want || cases_contains(have, want, &where);
    if (!is)
        buf_printf(why, "%s: unexpected value at \"%.*s\"", key, (int)where.n,
                   where.p ? where.p : "");
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
    return is;
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
    cleanup_buf struct buf why = {0};
    struct cases_reply reply = {0};
    char *path = expand(r, text_of(r, "do"));
    const char *method = strsep(&path, " "), *raw = lib_str(r->what, "raw"),
               *body = lib_text(member(r, "body"), "");
    struct cases_request req = {.method = method,
                                .path = path,
                                .type = text_of(r, "type"),
                                .accept = text_of(r, "accept"),
                                .headers = json_object_get(r->what, "ask"),
                                .body = span_of(*body ? body : raw)};
    send(r, &req, &reply);
    if (!check(r, &reply, &why)) {
        fault(r, why.p, buf_span(&reply.body));
        answered(r, reply.status, parse(buf_span(&reply.body)), buf_span(&reply.body));
    }
    json_decref(reply.headers);
    buf_fini(&reply.body);
}

static void *watch_of(struct run *r, const char *key)
{
    const json_t *at = json_object_get(r->watches, lib_str(r->what, key));
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
    const char *only = lib_str(step, "only");
    return !*only || strcmp(only, server->name) == 0 ||
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
    json_t *step;
    lib_each(step, steps) {
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
        const char *ns = lib_fmt("c-%s%s", id, i ? "-b" : "");
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
    size_t mark = lib_mark();
    const char *text = lib_file(file);
    const json_t *steps = lib_parse(text, strlen(text));
    struct run r = {.file = file,
                    .server = server,
                    .saved = lib_own(json_object()),
                    .watches = lib_own(json_object())};
    const char *why = cannot_run(steps, server);
    if (why) {
        printf("%s: skipped for %s: %s\n", file, server->name, why);
    } else {
        r.answers = json_array();
        names(&r, id);
        steps_run(&r, steps);
    }
    lib_release(mark);
    *faults += r.faults;
    return r.answers;
}

char *cases_name(const char *file)
{
    char *name = lib_fmt("%s", strrchr(file, '/') + 1);
    name[strlen(name) - strlen(".json")] = '\0';
    for (char *p = name; *p; p++)
        *p = *p == '_' ? '-' : *p;
    return name;
}
