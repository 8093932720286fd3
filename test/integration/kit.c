/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/kit.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/mem.h"
#include "support/raw.h"

enum { ARGS = 24, CALL_MS = PROGRAM_WAIT_MS, BODY_MAX = 64 << 20 };

/* -- suites -- */

const char *kit_dir;

static char *base; /* of all tests of the program: it goes also when a test fails */

static void begin_all(void)
{
    json_object_seed(1); /* before there are threads */
    base = temp_dir();
    setenv("TMPDIR", base, 1);
}

static void end_all(void)
{
    temp_dir_remove(base);
    free(base);
    base = NULL;
}

static void begin(void)
{
    kit_dir = temp_dir();
}

static void end(void)
{
    temp_dir_remove(kit_dir);
    free((char *)kit_dir);
    kit_dir = NULL;
}

int kit_run(const char *name, const TTest *const *tests, size_t n, double seconds)
{
    static const struct unit_fixtures around = {begin_all, end_all, begin, end};
    return unit_run_with(name, tests, n, seconds * KIT_SLOWER, &around);
}

struct thread {
    void (*fn)(void *ctx, size_t i);
    void *ctx;
    size_t i;
    pthread_t id;
};

static void *thread_run(void *arg)
{
    struct thread *t = arg;
    t->fn(t->ctx, t->i);
    return NULL;
}

void kit_threads(size_t n, void (*fn)(void *ctx, size_t i), void *ctx)
{
    cleanup_free struct thread *threads = xcalloc(n, sizeof *threads);
    for (size_t i = 0; i < n; i++) {
        threads[i] = (struct thread){fn, ctx, i, 0};
        ck_assert_int_eq(pthread_create(&threads[i].id, NULL, thread_run, &threads[i]),
                         0);
    }
    for (size_t i = 0; i < n; i++)
        pthread_join(threads[i].id, NULL);
}

int64_t kit_now_ms(void)
{
    return raw_now_ms();
}

void kit_pause(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
}

/* -- requests -- */

static void init(struct peer *p, const char *scheme, unsigned port, struct span ca)
{
    char url[64];
    struct err err = {0};
    snprintf(url, sizeof url, "%s://127.0.0.1:%u", scheme, port);
    struct httpc_config config = {
        .url = url, .ca_pem = ca, .user_agent = "gpushare-test", .connect_ms = CALL_MS};
    *p = (struct peer){.port = port, .http = httpc_new(&config, &err)};
    ck_assert_msg(p->http != NULL, "%s", err.msg);
}

void peer_init(struct peer *p, unsigned port)
{
    init(p, "http", port, (struct span){0});
}

void peer_init_tls(struct peer *p, unsigned port, const char *ca)
{
    cleanup_buf struct buf pem = {0};
    struct err err = {0};
    ck_assert_done(file_read(ca, 1 << 20, &pem, &err), err);
    init(p, "https", port, buf_span(&pem));
}

void peer_fini(struct peer *p)
{
    httpc_free(p->http);
    *p = (struct peer){0};
}

unsigned peer_call(const struct peer *p, const char *method, const char *path,
                   const char *body, struct buf *reply)
{
    bool patch = strcmp(method, "PATCH") == 0;
    struct httpc_request req = {
        .method = method,
        .path = path,
        .authorization = p->authorization,
        .content_type = patch ? "application/merge-patch+json" : "application/json",
        .body = body ? span_of(body) : (struct span){0},
        .timeout_ms = CALL_MS,
    };
    struct httpc_reply r;
    struct err err = {0};
    int rc = httpc_call(p->http, &req, BODY_MAX, &r, &err);
    unsigned status = rc ? 0 : r.status;
    buf_clear(reply);
    buf_add_span(reply, rc ? span_of(err.msg) : buf_span(&r.body));
    buf_adds(reply, "");
    httpc_reply_fini(&r);
    return status;
}

json_t *peer_json(const struct peer *p, const char *method, const char *path,
                  const char *body)
{
    cleanup_buf struct buf reply = {0};
    json_error_t error;
    unsigned status = peer_call(p, method, path, body, &reply);
    ck_assert_msg(status >= 200 && status < 300, "%s %s: %u %s", method, path, status,
                  reply.p);
    json_t *j = json_loadb(reply.p, reply.n, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(j != NULL, "%s %s: %s in %s", method, path, error.text, reply.p);
    return j;
}

unsigned peer_status(const struct peer *p, const char *path)
{
    cleanup_buf struct buf reply = {0};
    return peer_call(p, "GET", path, NULL, &reply);
}

json_t *kit_at(const json_t *j, const char *path)
{
    struct span rest = span_of(path);
    while (j && rest.n) {
        struct span key = span_cut(&rest, '.');
        j = json_object_getn(j, key.p, key.n);
    }
    return (json_t *)j;
}

const char *kit_str(const json_t *j, const char *path)
{
    const char *s = json_string_value(kit_at(j, path));
    return s ? s : "";
}

/* -- kube-sim -- */

static void start(struct program *p, const char *name, const char *const *first,
                  const char *const *more)
{
    const char *argv[ARGS];
    size_t n = 0;
    cleanup_free char *path = program_path(name);
    argv[n++] = path;
    while (*first)
        argv[n++] = *first++;
    for (; *more; more++) {
        ck_assert_uint_lt(n, ARGS - 1);
        argv[n++] = *more;
    }
    argv[n] = NULL;
    program_start(p, kit_dir, argv);
}

void sim_start(struct sim *s, const char *const *more)
{
    start(&s->program, "kube-sim", ARGV("--port", "0", "--tick", "20ms"), more);
    peer_init(&s->api, program_port(&s->program, "listening on "));
    s->authorization = NULL;
    sim_add_lease(s);
}

void sim_start_secure(struct sim *s, const struct sim_security *how,
                      const char *const *more)
{
    char port[16];
    snprintf(port, sizeof port, "%u", how->port);
    cleanup_free char *ca = xasprintf("%s/%s.crt", kit_dir, how->ca);
    cleanup_free char *cert = xasprintf("%s/%s.crt", kit_dir, how->cert);
    cleanup_free char *key = xasprintf("%s/%s.key", kit_dir, how->cert);
    start(&s->program, "kube-sim",
          ARGV("--port", port, "--tick", "20ms", "--cert", cert, "--key", key, "--token",
               how->token),
          more);
    peer_init_tls(&s->api, program_port(&s->program, "listening on "), ca);
    s->authorization = xasprintf("Bearer %s", how->token);
    s->api.authorization = s->authorization;
    sim_add_lease(s);
}

void sim_stop(struct sim *s)
{
    peer_fini(&s->api);
    free(s->authorization);
    program_stop(&s->program);
}

static void post(const struct sim *s, const char *path, const char *body)
{
    cleanup_buf struct buf reply = {0};
    unsigned status = peer_call(&s->api, "POST", path, body, &reply);
    ck_assert_msg(status == 200, "%s: %u %s to %s", path, status, reply.p, body);
}

static void postf(const struct sim *s, const char *path, const char *fmt, va_list ap)
{
    cleanup_buf struct buf body = {0};
    buf_vprintf(&body, fmt, ap);
    post(s, path, body.p);
}

void sim_load(const struct sim *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    postf(s, "/kube-sim/load", fmt, ap);
    va_end(ap);
}

void sim_add_lease(const struct sim *s)
{
    sim_load(s, "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\","
                "\"metadata\":{\"name\":\"gpushare-extender\","
                "\"namespace\":\"kube-system\"},\"spec\":{}}");
}

void sim_add_scv(const struct sim *s, const char *name, int cards, int units,
                 int unhealthy)
{
    cleanup_buf struct buf list = {0};
    for (int i = 0; i < cards; i++)
        buf_printf(&list,
                   "%s{\"id\":%d,\"health\":\"%s\",\"model\":\"Tesla T4\","
                   "\"uuid\":\"GPU-%s-%d\",\"totalMemory\":%d,\"freeMemory\":%d}",
                   i ? "," : "", i, i == unhealthy ? "Unhealthy" : "Healthy", name, i,
                   units * 1024, units * 1024);
    sim_load(s,
             "{\"apiVersion\":\"core.run-linux.com/v1\",\"kind\":\"Scv\","
             "\"metadata\":{\"name\":\"%s\"},\"spec\":{\"updateInterval\":1000},"
             "\"status\":{\"cardList\":[%s],\"updateTime\":\"2026-11-21T09:00:00Z\"}}",
             name, list.p ? list.p : "");
}

void sim_add_node(const struct sim *s, const char *name, int cards, int units)
{
    sim_load(s,
             "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"%s\"},"
             "\"status\":{\"capacity\":{\"aliyun.com/gpu-mem\":\"%d\","
             "\"aliyun.com/gpu-count\":\"%d\"},\"allocatable\":{\"aliyun.com/"
             "gpu-mem\":\"%d\",\"aliyun.com/gpu-count\":\"%d\"}}}",
             name, cards * units, cards, cards * units, cards);
    sim_add_scv(s, name, cards, units, -1);
}

static void write_pod(struct buf *out, const char *name, int units, const char *node,
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

void sim_add_bound_pod(const struct sim *s, const char *name, int units, const char *node,
                       const char *annotations)
{
    cleanup_buf struct buf pod = {0};
    write_pod(&pod, name, units, node, annotations);
    sim_load(s, "%s", pod.p);
}

void sim_add_pod(const struct sim *s, const char *name, int units)
{
    sim_add_bound_pod(s, name, units, NULL, "{}");
}

void sim_delete_pod(const struct sim *s, const char *name)
{
    cleanup_free char *path = xasprintf("/api/v1/namespaces/default/pods/%s", name);
    json_decref(peer_json(&s->api, "DELETE", path, "{\"gracePeriodSeconds\":0}"));
}

void sim_fault(const struct sim *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    postf(s, "/kube-sim/faults", fmt, ap);
    va_end(ap);
}

void sim_no_faults(const struct sim *s)
{
    json_decref(peer_json(&s->api, "DELETE", "/kube-sim/faults", NULL));
}

int sim_fired(const struct sim *s)
{
    cleanup_json json_t *j = peer_json(&s->api, "GET", "/kube-sim/faults", NULL);
    int n = 0;
    size_t i;
    json_t *rule;
    json_array_foreach(kit_at(j, "rules"), i, rule) n +=
        (int)json_integer_value(kit_at(rule, "fired"));
    return n;
}

void sim_watches(const struct sim *s, const char *action, const char *resource)
{
    cleanup_free char *body = resource ? xasprintf("{\"action\":\"%s\",\"resource\":"
                                                   "\"%s\"}",
                                                   action, resource)
                                       : xasprintf("{\"action\":\"%s\"}", action);
    post(s, "/kube-sim/watches", body);
}

int sim_count(const struct sim *s, const char *verb, const char *resource,
              const char *sub)
{
    cleanup_json json_t *j = peer_json(&s->api, "GET", "/kube-sim/counters", NULL);
    int n = 0;
    size_t i;
    json_t *c;
    json_array_foreach(kit_at(j, "requests"), i, c)
    {
        if (strcmp(kit_str(c, "verb"), verb) == 0 &&
            strcmp(kit_str(c, "resource"), resource) == 0 &&
            strcmp(kit_str(c, "subresource"), sub) == 0)
            n += (int)json_integer_value(kit_at(c, "count"));
    }
    return n;
}

int sim_watching(const struct sim *s, const char *resource)
{
    cleanup_json json_t *j = peer_json(&s->api, "GET", "/kube-sim/state", NULL);
    return (int)json_integer_value(json_object_get(kit_at(j, "watches"), resource));
}

int sim_bound(const struct sim *s)
{
    cleanup_json json_t *j = peer_json(&s->api, "GET", "/api/v1/pods", NULL);
    int n = 0;
    size_t i;
    json_t *pod;
    json_array_foreach(kit_at(j, "items"), i, pod) n +=
        *kit_str(pod, "spec.nodeName") != '\0';
    return n;
}

/* -- extender -- */

char *kit_kubeconfig(const char *name, const char *scheme, unsigned port,
                     const char *cluster, const char *user)
{
    cleanup_free char *text =
        xasprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\n"
                  "contexts:\n- {name: c, context: {cluster: c, user: u}}\n"
                  "clusters:\n- {name: c, cluster: {server: \"%s://127.0.0.1:%u\"%s}}\n"
                  "users:\n- {name: u, user: {%s}}\n",
                  scheme, port, cluster, user);
    temp_write(kit_dir, name, text);
    return temp_path(kit_dir, name);
}

void extender_start_at(struct extender *e, const char *kubeconfig,
                       const char *const *more)
{
    start(&e->program, "gpushare-extender",
          ARGV("--listen", "127.0.0.1", "--port", "0", "--observe-port", "0",
               "--kubeconfig", kubeconfig),
          more);
    peer_init(&e->verbs, program_port(&e->program, "listening on "));
    peer_init(&e->observers, program_port(&e->program, "observing on "));
}

void extender_start(struct extender *e, const struct sim *s, const char *const *more)
{
    cleanup_free char *name = xasprintf("kubeconfig-%u", s->api.port);
    cleanup_free char *path = kit_kubeconfig(name, "http", s->api.port, "", "");
    extender_start_at(e, path, more);
    extender_wait_ready(e);
}

static void let_go(struct extender *e)
{
    peer_fini(&e->verbs);
    peer_fini(&e->observers);
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

static bool is_ready(void *ctx)
{
    struct extender *e = ctx;
    return extender_ready(e) || !program_runs(&e->program);
}

void extender_wait_ready(const struct extender *e)
{
    struct extender *mine = (struct extender *)e;
    program_until(is_ready, mine);
    ck_assert_msg(extender_ready(e), "never ready: %s", program_said(&mine->program));
}

void kit_filter_body(struct buf *out, const char *pod, int units,
                     const char *const *nodes)
{
    buf_adds(out, "{\"Pod\":");
    write_pod(out, pod, units, NULL, "{}");
    buf_adds(out, ",\"Nodes\":null,\"NodeNames\":[");
    for (size_t i = 0; nodes[i]; i++)
        buf_printf(out, "%s\"%s\"", i ? "," : "", nodes[i]);
    buf_adds(out, "]}");
}

void kit_bind_body(struct buf *out, const char *pod, const char *node)
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
    kit_bind_body(&body, pod, node);
    unsigned status =
        peer_call(&e->verbs, "POST", "/gpushare-scheduler/bind", body.p, &reply);
    cleanup_json json_t *j = json_loadb(reply.p, reply.n, 0, NULL);
    const char *error = kit_str(j, "Error");
    if (why) {
        buf_clear(why);
        buf_printf(why, "%u: %s", status, j ? error : reply.p);
    }
    return status == 200 && j && !*error;
}

enum fit extender_filter(const struct extender *e, int units, const char *node,
                         struct buf *why)
{
    cleanup_buf struct buf body = {0}, reply = {0};
    kit_filter_body(&body, "somebody", units, ARGV(node));
    unsigned status =
        peer_call(&e->verbs, "POST", "/gpushare-scheduler/filter", body.p, &reply);
    cleanup_json json_t *j = json_loadb(reply.p, reply.n, 0, NULL);
    json_t *failed = json_object_get(kit_at(j, "FailedNodes"), node);
    json_t *never = json_object_get(kit_at(j, "FailedAndUnresolvableNodes"), node);
    bool fits = json_array_size(kit_at(j, "NodeNames")) == 1;
    if (why) {
        const char *reason = json_string_value(failed ? failed : never);
        buf_clear(why);
        buf_adds(why, status != 200 ? reply.p : reason ? reason : "");
    }
    if (status != 200 || fits + !!failed + !!never != 1)
        return UNANSWERED;
    return fits ? FITS : failed ? NOT_NOW : NEVER;
}

json_t *extender_inspect(const struct extender *e, const char *node)
{
    cleanup_free char *path = xasprintf("/inspect/%s", node);
    cleanup_json json_t *j = peer_json(&e->observers, "GET", path, NULL);
    return json_incref(json_array_get(kit_at(j, "nodes"), 0));
}
