/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/extender.h"

#include "kube/secret.h"
#include "lib/network.h"

char *lib_kubeconfig(const char *name, const char *scheme, unsigned port,
                     const char *cluster, const char *user)
{
    cleanup_free char *text = xasprintf(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "contexts:\n- {name: c, context: {cluster: c, user: u}}\n"
        "clusters:\n- {name: c, cluster: {server: \"%s://" STR_HOST ":%u\"%s}}\n"
        "users:\n- {name: u, user: {%s}}\n",
        scheme, STR_HOST_ARG(network_loopback()), port, cluster, user);
    temp_write(lib_dir, name, text);
    return temp_path(lib_dir, name);
}

void extender_start_at(struct extender *e, const char *kubeconfig,
                       const char *const *more)
{
    lib_program(&e->program, "gpushare-extender",
                ARGV("--listen", network_loopback(), "--port", "0", "--observe-port", "0",
                     "--kubeconfig", kubeconfig),
                more);
    peer_init(&e->verbs, program_port(&e->program, "listening on "));
    peer_init(&e->observers, program_port(&e->program, "observing on "));
}

static void let_go(struct extender *e)
{
    peer_fini(&e->verbs);
    peer_fini(&e->observers);
}

/* `views`: the certificate is for the observers, too. */
static void connect_with(struct extender *e, const char *ca, const char *cert,
                         const char *key, bool views)
{
    unsigned verbs = e->verbs.port, observers = e->observers.port;
    let_go(e);
    peer_init_cert(&e->verbs, verbs, ca, cert, key);
    peer_init_cert(&e->observers, observers, ca, views ? cert : NULL, views ? key : NULL);
}

void extender_connect(struct extender *e, const char *ca, const char *cert,
                      const char *key)
{
    connect_with(e, ca, cert, key, false);
}

void extender_connect_secret(struct extender *e, const struct peer *api, const char *ns,
                             bool client)
{
    static const char *const files[] = {"scheduler.crt", "scheduler.key",
                                        "scheduler-ca.crt"};
    const char *path =
        lib_fmt("/api/v1/namespaces/%s/secrets/gpushare-scheduler-tls", ns);
    cleanup_buf struct buf json = {0};
    struct secret secret = {0};
    struct err err = {0};
    ck_assert_uint_eq(peer_call(api, "GET", path, NULL, &json), 200);
    ck_assert_done(secret_decode(buf_span(&json), &secret, &err), err);
    for (int i = 0; i < SECRET_KEYS; i++)
        temp_write_bytes(lib_dir, files[i], buf_span(&secret.data[i]));
    secret_fini(&secret);
    connect_with(e, lib_path(files[SECRET_CA]),
                 client ? lib_path(files[SECRET_CERT]) : NULL,
                 client ? lib_path(files[SECRET_KEY]) : NULL, client);
}

void extender_stop(struct extender *e)
{
    let_go(e);
    program_stop(&e->program);
}

void extender_kill(struct extender *e)
{
    let_go(e);
    program_kill(&e->program);
}

bool extender_ready(const struct extender *e)
{
    return peer_status(&e->observers, "/readyz") == 200;
}

void extender_wait_ready(const struct extender *e)
{
    struct program *p = &((struct extender *)e)->program;
    bool ready = false;
    lib_wait((ready = extender_ready(e)) || !program_runs(p));
    ck_assert_msg(ready, "not ready: %s", program_output(p));
}

void extender_wait_answers(const struct extender *e)
{
    lib_wait(extender_ready(e));
}

void lib_pod(struct buf *out, const char *name, int units, const char *node,
             const char *annotations)
{
    buf_printf(out,
               "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\","
               "\"namespace\":\"default\",\"uid\":\"uid-%s\",\"annotations\":%s},"
               "\"spec\":{%s%s%s\"containers\":[{\"name\":\"c\",\"image\":\"i\","
               "\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":\"%d\"}}}]},"
               "\"status\":{\"phase\":\"Pending\"}}",
               name, name, annotations, node ? "\"nodeName\":\"" : "", node ? node : "",
               node ? "\"," : "", units);
}

void lib_filter_body(struct buf *out, const char *pod, int units,
                     const char *const *nodes)
{
    buf_adds(out, "{\"Pod\":");
    lib_pod(out, pod, units, NULL, "{}");
    buf_adds(out, ",\"Nodes\":null,\"NodeNames\":[");
    for (size_t i = 0; nodes[i]; i++)
        buf_printf(out, "%s\"%s\"", i ? "," : "", nodes[i]);
    buf_adds(out, "]}");
}

void lib_bind_body(struct buf *out, const char *pod, const char *node)
{
    buf_printf(out,
               "{\"PodName\":\"%s\",\"PodNamespace\":\"default\","
               "\"PodUID\":\"uid-%s\",\"Node\":\"%s\"}",
               pod, pod, node);
}

bool extender_bind(const struct extender *e, const char *pod, const char *node,
                   struct buf *why)
{
    cleanup_buf struct buf body = {0}, reply = {0};
    lib_bind_body(&body, pod, node);
    unsigned status =
        peer_call(&e->verbs, "POST", "/gpushare-scheduler/bind", body.p, &reply);
    cleanup_json json_t *j = json_loadb(reply.p, reply.n, 0, NULL);
    const char *error = lib_str(j, "Error");
    if (why) {
        buf_clear(why);
        buf_printf(why, "%u: %s", status, j ? error : reply.p);
    }
    return status == 200 && j && !*error;
}

enum filter_result extender_filter(const struct extender *e, int units, const char *node,
                                   struct buf *why)
{
    cleanup_buf struct buf body = {0}, reply = {0};
    buf_printf(&body,
               "{\"Pod\":{\"metadata\":{\"name\":\"somebody\",\"namespace\":\"default\"},"
               "\"spec\":{\"containers\":[{\"name\":\"c\",\"resources\":{\"limits\":{"
               "\"aliyun.com/gpu-mem\":\"%d\"}}}]}},\"NodeNames\":[\"%s\"]}",
               units, node);
    unsigned status =
        peer_call(&e->verbs, "POST", "/gpushare-scheduler/filter", body.p, &reply);
    cleanup_json json_t *j = json_loadb(reply.p, reply.n, 0, NULL);
    json_t *failed = json_object_get(lib_at(j, "FailedNodes"), node);
    json_t *never = json_object_get(lib_at(j, "FailedAndUnresolvableNodes"), node);
    bool fits = json_array_size(lib_at(j, "NodeNames")) == 1;
    if (why) {
        const char *reason = json_string_value(failed ? failed : never);
        buf_clear(why);
        buf_adds(why, status != 200 ? reply.p : reason ? reason : "");
    }
    if (status != 200 || fits + !!failed + !!never != 1)
        return UNANSWERED;
    return fits ? FITS : failed ? NOT_NOW : NEVER;
}

json_t *extender_node(const struct extender *e, const char *node)
{
    return lib_at(peer_get(&e->observers, lib_fmt("/inspect/%s", node)), "nodes.0");
}

json_t *extender_inspect(const struct extender *e, const char *node)
{
    return json_incref(extender_node(e, node));
}

json_int_t extender_promised(const struct extender *e, const char *node)
{
    return lib_int(extender_node(e, node), "usedGPU");
}

bool extender_leads(const struct extender *e)
{
    cleanup_buf struct buf reply = {0};
    if (peer_call(&e->observers, "GET", "/inspect", NULL, &reply) != 200)
        return false;
    cleanup_json json_t *j = json_loadb(reply.p, reply.n, 0, NULL);
    return json_is_true(json_object_get(j, "leader"));
}

int64_t extender_metric(const struct extender *e, const char *sample)
{
    return (int64_t)peer_metric(&e->observers, sample);
}
