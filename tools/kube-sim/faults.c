/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include <stdlib.h>

#include "base/jwrite.h"
#include "base/mem.h"

/* Fault injection: the rules, and the requests under /kube-sim/ that set them and count
 * requests. */

enum { RULES_MAX = 1000, COUNTERS_MAX = 1000 };

struct rule {
    json_t *json;
    int64_t nth, times; /* times 0: unlimited */
    struct fault fault;
    int64_t matched, fired;
};

struct faults {
    struct rule *rules;
    size_t n, cap;
    json_t
        *counters; /* what was requested, as the text of an object's members -> count */
};

struct faults *faults_new(void)
{
    struct faults *f = xcalloc(1, sizeof *f);
    f->counters = json_object();
    return f;
}

static void drop_rules(struct faults *f, size_t keep)
{
    while (f->n > keep)
        json_decref(f->rules[--f->n].json);
}

void faults_clear(struct faults *f)
{
    drop_rules(f, 0);
}

void faults_free(struct faults *f)
{
    if (!f)
        return;
    faults_clear(f);
    free(f->rules);
    json_decref(f->counters);
    free(f);
}

/* -- rules -- */

static const char *const actions[] = {
    [FAULT_ANSWER] = "answer", [FAULT_APPLY_ANSWER] = "apply-answer",
    [FAULT_CUT] = "cut",       [FAULT_APPLY_CUT] = "apply-cut",
    [FAULT_HANG] = "hang",     [FAULT_HANG_CUT] = "hang-cut",
};

static int read_action(struct rule *r, struct err *err)
{
    struct span name = sim_jsonx_span(r->json, "action");
    for (int i = FAULT_ANSWER; i <= FAULT_HANG_CUT; i++) {
        if (span_eq(name, span_of(actions[i]))) {
            r->fault.action = (enum fault_action)i;
            return 0;
        }
    }
    return err_set(err, ERR_INVALID, "unknown action \"%.*s\"", SPAN_ARG(name));
}

struct member {
    const char *name;
    int64_t min, max; /* both 0: a string */
};

static const struct member members[] = {
    {"method", 0, 0},
    {"verb", 0, 0},
    {"resource", 0, 0},
    {"namespace", 0, 0},
    {"subresource", 0, 0},
    {"name", 0, 0},
    {"group", 0, 0},
    {"action", 0, 0},
    {"nth", 1, INT32_MAX},
    {"times", 1, INT32_MAX},
    {"status", 200, 599},
    {"retryAfter", 1, 60},
    {"hangMs", 0, 24 * 3600 * 1000},
};

static int check_member(const char *key, const json_t *v, struct err *err)
{
    const struct member *m = NULL;
    for (size_t i = 0; i < ARRAY_LEN(members); i++)
        if (strcmp(members[i].name, key) == 0)
            m = &members[i];
    if (!m)
        return err_set(err, ERR_INVALID, "unknown member \"%.60s\"", key);
    if (!m->max)
        return json_is_string(v)
                   ? 0
                   : err_set(err, ERR_INVALID, "%s: expected a string", key);
    json_int_t n = json_integer_value(v);
    if (!json_is_integer(v) || n < m->min || n > m->max)
        return err_set(err, ERR_INVALID, "%s: expected a number from %lld to %lld", key,
                       (long long)m->min, (long long)m->max);
    return 0;
}

/* Takes json. */
static int read_rule(struct rule *r, json_t *json, struct err *err)
{
    const char *key;
    json_t *v;
    *r = (struct rule){.json = json};
    if (!json_is_object(json))
        return err_set(err, ERR_INVALID, "a rule must be a JSON object");
    json_object_foreach(json, key, v) if (check_member(key, v, err)) return -1;
    r->nth = sim_jsonx_int(json, "nth", 1);
    r->times = sim_jsonx_int(json, "times", json_object_get(json, "nth") ? 1 : 0);
    r->fault.status = (unsigned)sim_jsonx_int(json, "status", 500);
    r->fault.retry_after_s = sim_jsonx_int(json, "retryAfter", 0);
    r->fault.hang_ms = sim_jsonx_int(json, "hangMs", INT64_MAX);
    return read_action(r, err);
}

static int add_rule(struct faults *f, json_t *json, struct err *err)
{
    struct rule r;
    if (f->n == RULES_MAX)
        return err_set(err, ERR_TOO_LARGE, "limit of %d rules reached", RULES_MAX);
    if (read_rule(&r, json_incref(json), err)) {
        json_decref(r.json);
        return -1;
    }
    MEM_GROW(f->rules, f->cap, f->n + 1);
    f->rules[f->n++] = r;
    return 0;
}

int faults_add(struct faults *f, struct span text, struct err *err)
{
    cleanup_json_value json_t *j = sim_jsonx_parse(text, err);
    if (!j)
        return -1;
    if (!json_is_array(j))
        return add_rule(f, j, err);
    size_t before = f->n, i;
    json_t *item;
    json_array_foreach(j, i, item)
    {
        if (add_rule(f, item, err)) {
            drop_rules(f, before);
            return -1;
        }
    }
    return 0;
}

static bool matches(const struct rule *r, const char *method, const struct api_target *t)
{
    const struct {
        const char *member;
        struct span have;
    } exact[] = {{"method", span_of(method)},
                 {"verb", span_of(t->verb)},
                 {"resource", span_of(t->resource)},
                 {"group", span_of(t->group)},
                 {"subresource", t->sub},
                 {"namespace", t->ns}};
    for (size_t i = 0; i < ARRAY_LEN(exact); i++) {
        struct span wanted = sim_jsonx_span(r->json, exact[i].member);
        if (wanted.p && !span_eq(wanted, exact[i].have))
            return false;
    }
    struct span name = sim_jsonx_span(r->json, "name");
    return !name.p || (t->name.p && span_starts(t->name, name));
}

static bool is_due(const struct rule *r)
{
    return r->matched >= r->nth && (!r->times || r->matched < r->nth + r->times);
}

static void count(struct faults *f, const char *method, const struct api_target *t)
{
    cleanup_buf struct buf key = {0};
    struct jwrite w = {.out = &key};
    jwrite_str(&w, "method", span_of(method));
    jwrite_str(&w, "verb", span_of(t->verb));
    jwrite_str(&w, "resource", span_of(t->resource));
    jwrite_str(&w, "group", span_of(t->group));
    jwrite_str(&w, "subresource", t->sub);
    json_t *counter = json_object_get(f->counters, key.p);
    if (counter)
        json_integer_set(counter, json_integer_value(counter) + 1);
    else if (json_object_size(f->counters) <
             COUNTERS_MAX) /* bounds the memory for unknown
                                                              methods and subresources */
        json_object_set_new(f->counters, key.p, json_integer(1));
}

struct fault faults_check(struct faults *f, const char *method,
                          const struct api_target *target)
{
    struct fault decided = {0};
    count(f, method, target);
    for (size_t i = 0; i < f->n; i++) {
        struct rule *r = &f->rules[i];
        if (!matches(r, method, target))
            continue;
        r->matched++;
        if (!decided.action && is_due(r)) {
            r->fired++;
            decided = r->fault;
        }
    }
    return decided;
}

/* -- output -- */

void faults_write(const struct faults *f, struct buf *out)
{
    buf_adds(out, "{\"rules\":[");
    for (size_t i = 0; i < f->n; i++) {
        cleanup_json_value json_t *j = json_copy(f->rules[i].json);
        sim_jsonx_set_int(j, "matched", f->rules[i].matched);
        sim_jsonx_set_int(j, "fired", f->rules[i].fired);
        if (i)
            buf_addc(out, ',');
        sim_jsonx_dump(out, j);
    }
    buf_adds(out, "]}\n");
}

void faults_write_counters(const struct faults *f, struct buf *out)
{
    const char *key, *sep = "";
    json_t *counter;
    buf_adds(out, "{\"requests\":[");
    json_object_foreach(f->counters, key, counter)
    {
        buf_printf(out, "%s{%s,\"count\":%lld}", sep, key,
                   (long long)json_integer_value(counter));
        sep = ",";
    }
    buf_adds(out, "]}\n");
}

void faults_status(const struct fault *fault, struct buf *out)
{
    struct status_about about = {.retry_s = fault->retry_after_s};
    sim_status_write(out, fault->status, sim_status_reason(fault->status),
                     "a fault that was asked for", &about);
}

/* Sets *resource to the resource that the body names, NULL for all. */
static int read_resource(const json_t *body, const char **resource, struct err *err)
{
    struct span name = sim_jsonx_span(body, "resource");
    *resource = NULL;
    if (!name.p)
        return 0;
    const struct kind *kind = sim_kind_by_resource(name);
    if (!kind)
        return err_set(err, ERR_NOT_FOUND, "unknown resource \"%.*s\"", SPAN_ARG(name));
    *resource = kind->plural;
    return 0;
}

/* A stalled watch delivers no events until it is released. */
static void stall(struct sim_server *s, const char *resource, bool stalled)
{
    for (size_t i = 0; i < KINDS_N; i++)
        if (!resource || strcmp(sim_kinds[i].plural, resource) == 0)
            s->stalled[i] = stalled;
    sim_stream_order(s, resource, STREAM_WAKE);
}

static int order_watches(struct sim_server *s, const json_t *body, const char *resource,
                         struct buf *out, struct err *err)
{
    struct span action = sim_jsonx_span(body, "action");
    size_t n = sim_stream_order(s, resource, STREAM_COUNT);
    if (span_eq(action, SPAN("cut")))
        sim_stream_order(s, resource, STREAM_CUT);
    else if (span_eq(action, SPAN("end")))
        sim_stream_order(s, resource, STREAM_END);
    else if (span_eq(action, SPAN("stall")))
        stall(s, resource, true);
    else if (span_eq(action, SPAN("release")))
        stall(s, resource, false);
    else
        return err_set(err, ERR_INVALID, "action: expected cut, end, stall or release");
    buf_printf(out, "{\"watches\":%zu}\n", n);
    return 0;
}

static void write_state(struct sim_server *s, struct buf *out)
{
    buf_printf(out, "{\"resourceVersion\":\"%llu\"",
               (unsigned long long)api_version(s->api));
    for (int watches = 0; watches < 2; watches++) {
        buf_adds(out, watches ? "},\"watches\":{" : ",\"objects\":{");
        for (size_t i = 0; i < KINDS_N; i++) {
            const char *name = sim_kinds[i].plural;
            if (sim_kind_by_resource(span_of(name)) == &sim_kinds[i])
                buf_printf(out, "%s\"%s\":%zu", i ? "," : "", name,
                           watches ? sim_stream_order(s, name, STREAM_COUNT)
                                   : api_count(s->api, name));
        }
    }
    buf_printf(out, "},\"compressed\":%llu}\n", (unsigned long long)s->compressed);
}

enum control {
    GET_FAULTS,
    ADD_FAULTS,
    CLEAR_FAULTS,
    GET_COUNTERS,
    ORDER_WATCHES,
    COMPACT,
    FREEZE,
    LOAD,
    SET_ACCESS,
    GET_STATE,
    CONTROLS
};
static const char *const controls[CONTROLS][2] = {
    [GET_FAULTS] = {"GET", "/kube-sim/faults"},
    [ADD_FAULTS] = {"POST", "/kube-sim/faults"},
    [CLEAR_FAULTS] = {"DELETE", "/kube-sim/faults"},
    [GET_COUNTERS] = {"GET", "/kube-sim/counters"},
    [ORDER_WATCHES] = {"POST", "/kube-sim/watches"},
    [COMPACT] = {"POST", "/kube-sim/compact"},
    [FREEZE] = {"POST", "/kube-sim/freeze"},
    [LOAD] = {"POST", "/kube-sim/load"},
    [SET_ACCESS] = {"POST", "/kube-sim/access"},
    [GET_STATE] = {"GET", "/kube-sim/state"},
};

/* Called with the lock held. `body`: parsed; NULL: empty. */
static int carry_out(struct sim_server *s, enum control c, struct span raw,
                     const json_t *body, struct buf *out, struct err *err)
{
    const char *resource = NULL;
    /* A fault may name a resource that has no objects: subjectaccessreviews. */
    if ((c == ORDER_WATCHES || c == FREEZE) && read_resource(body, &resource, err))
        return -1;
    switch (c) {
    case GET_FAULTS:
        faults_write(s->faults, out);
        return 0;
    case ADD_FAULTS:
        return faults_add(s->faults, raw, err);
    case CLEAR_FAULTS:
        faults_clear(s->faults);
        return 0;
    case GET_COUNTERS:
        faults_write_counters(s->faults, out);
        return 0;
    case ORDER_WATCHES:
        return order_watches(s, body, resource, out, err);
    case COMPACT:
        api_compact(s->api);
        return 0;
    case FREEZE:
        for (size_t i = 0; i < KINDS_N; i++)
            if (!resource || strcmp(resource, sim_kinds[i].plural) == 0)
                api_freeze(s->api, sim_kinds[i].plural,
                           !json_is_false(json_object_get(body, "frozen")));
        return 0;
    case LOAD:
        return api_load(s->api, front_now_ms(), raw, err);
    case SET_ACCESS:
        return api_set_access(s->api, raw, err);
    default:
        write_state(s, out);
        return 0;
    }
}

void sim_control_handle(struct sim_server *s, const struct httpd_request *req,
                        struct httpd_reply *reply)
{
    bool known = false;
    size_t c = 0;
    for (; c < CONTROLS && (strcmp(req->path, controls[c][1]) != 0 ||
                            strcmp(req->method, controls[c][0]) != 0);
         c++)
        known |= strcmp(req->path, controls[c][1]) == 0;
    if (c == CONTROLS) {
        httpd_fail(reply, known ? 405 : 404,
                   known ? "method not allowed" : "no such path");
        return;
    }
    struct err err;
    cleanup_json_value json_t *body =
        req->body.n ? sim_jsonx_parse(req->body, &err) : NULL;
    if (req->body.n && !body) {
        httpd_fail(reply, 400, "%s", err.msg);
        return;
    }
    cleanup_buf struct buf out = {0};
    pthread_mutex_lock(&s->lock);
    int rc = carry_out(s, (enum control)c, req->body, body, &out, &err);
    pthread_mutex_unlock(&s->lock);
    if (rc)
        httpd_fail(reply, err.code == ERR_NOT_FOUND ? 404 : 400, "%s", err.msg);
    else if (out.n)
        buf_add_span(&reply->body, buf_span(&out));
    else
        buf_adds(&reply->body, "{}\n");
}
