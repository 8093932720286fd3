/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/control_priv.h"

#include "base/mem.h"
#include "kube-sim/jsonx_priv.h"
#include "kube-sim/stream_priv.h"

/* Called with the lock held and the parsed body (NULL: empty). */
typedef int (*control_fn)(struct sim_server *s, const json_t *body, struct span raw,
                          struct buf *out, struct err *err);

#define CONTROL(fn)                                                                      \
    static int fn(struct sim_server *s, const json_t *body, struct span raw,             \
                  struct buf *out, struct err *err)
#define UNUSED (void)s, (void)body, (void)raw, (void)out, (void)err

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

CONTROL(get_faults)
{
    UNUSED;
    faults_write(s->faults, out);
    return 0;
}

CONTROL(add_faults)
{
    UNUSED;
    return faults_add(s->faults, raw, err);
}

CONTROL(clear_faults)
{
    UNUSED;
    faults_clear(s->faults);
    return 0;
}

CONTROL(get_counters)
{
    UNUSED;
    faults_write_counters(s->faults, out);
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

CONTROL(order_watches)
{
    UNUSED;
    const char *resource;
    if (read_resource(body, &resource, err))
        return -1;
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

CONTROL(compact)
{
    UNUSED;
    api_compact(s->api);
    return 0;
}

CONTROL(freeze)
{
    UNUSED;
    const char *resource;
    if (read_resource(body, &resource, err))
        return -1;
    bool frozen = !json_is_false(json_object_get(body, "frozen"));
    for (size_t i = 0; i < KINDS_N; i++)
        if (!resource || strcmp(resource, sim_kinds[i].plural) == 0)
            api_freeze(s->api, sim_kinds[i].plural, frozen);
    return 0;
}

CONTROL(load)
{
    UNUSED;
    return api_load(s->api, front_now_ms(), raw, err);
}

CONTROL(set_access)
{
    UNUSED;
    return api_set_access(s->api, raw, err);
}

CONTROL(get_state)
{
    UNUSED;
    buf_printf(out, "{\"resourceVersion\":\"%llu\",\"objects\":{",
               (unsigned long long)api_version(s->api));
    for (size_t i = 0; i < KINDS_N; i++)
        if (sim_kind_by_resource(span_of(sim_kinds[i].plural)) == &sim_kinds[i])
            buf_printf(out, "%s\"%s\":%zu", i ? "," : "", sim_kinds[i].plural,
                       api_count(s->api, sim_kinds[i].plural));
    buf_adds(out, "},\"watches\":{");
    for (size_t i = 0; i < KINDS_N; i++)
        if (sim_kind_by_resource(span_of(sim_kinds[i].plural)) == &sim_kinds[i])
            buf_printf(out, "%s\"%s\":%zu", i ? "," : "", sim_kinds[i].plural,
                       sim_stream_order(s, sim_kinds[i].plural, STREAM_COUNT));
    buf_printf(out, "},\"compressed\":%llu}\n", (unsigned long long)s->compressed);
    return 0;
}

static const struct control {
    const char *method, *path;
    control_fn fn;
} controls[] = {
    {"GET", "/kube-sim/faults", get_faults},
    {"POST", "/kube-sim/faults", add_faults},
    {"DELETE", "/kube-sim/faults", clear_faults},
    {"GET", "/kube-sim/counters", get_counters},
    {"POST", "/kube-sim/watches", order_watches},
    {"POST", "/kube-sim/compact", compact},
    {"POST", "/kube-sim/freeze", freeze},
    {"POST", "/kube-sim/load", load},
    {"POST", "/kube-sim/access", set_access},
    {"GET", "/kube-sim/state", get_state},
};

static void run(struct sim_server *s, const struct control *c,
                const struct httpd_request *req, struct httpd_reply *reply)
{
    struct err err;
    cleanup_json json_t *body = req->body.n ? sim_jsonx_parse(req->body, &err) : NULL;
    if (req->body.n && !body) {
        httpd_fail(reply, 400, "%s", err.msg);
        return;
    }
    cleanup_buf struct buf out = {0};
    pthread_mutex_lock(&s->lock);
    int rc = c->fn(s, body, req->body, &out, &err);
    pthread_mutex_unlock(&s->lock);
    if (rc)
        httpd_fail(reply, err.code == ERR_NOT_FOUND ? 404 : 400, "%s", err.msg);
    else if (out.n)
        buf_add_span(&reply->body, buf_span(&out));
    else
        buf_adds(&reply->body, "{}\n");
}

void sim_control_handle(struct sim_server *s, const struct httpd_request *req,
                        struct httpd_reply *reply)
{
    bool known = false;
    for (size_t i = 0; i < ARRAY_LEN(controls); i++) {
        if (strcmp(req->path, controls[i].path) != 0)
            continue;
        known = true;
        if (strcmp(req->method, controls[i].method) == 0) {
            run(s, &controls[i], req, reply);
            return;
        }
    }
    httpd_fail(reply, known ? 405 : 404, known ? "method not allowed" : "no such path");
}
