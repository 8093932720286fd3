/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/sim.h"

#include <stdarg.h>
#include <string.h>

#include "base/mem.h"

static void post(const struct sim *s, const char *path, const char *body)
{
    cleanup_buf struct buf reply = {0};
    unsigned status = peer_call(&s->api, "POST", path, body, &reply);
    ck_assert_msg(status == 200, "%s: %u %s to %s", path, status, reply.p, body);
}

static void set_access(const struct sim *s)
{
    post(s, "/kube-sim/access",
         "{\"tokens\":{\"test-token\":{\"username\":\"test\"}},\"rules\":["
         "{\"user\":\"test\",\"path\":\"*\"},{\"user\":\"test\",\"resource\":\"*\"}]}");
}

/* The extender's Lease, without a holder. */
static void add_lease(const struct sim *s)
{
    sim_load(s, "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\","
                "\"metadata\":{\"name\":\"gpushare-extender\","
                "\"namespace\":\"kube-system\"},\"spec\":{}}");
}

void sim_start(struct sim *s, const char *const *more)
{
    lib_program(&s->program, "kube-sim", ARGV("--port", "0", "--tick", "20ms"), more);
    peer_init(&s->api, program_port(&s->program, "listening on "));
    s->authorization = NULL;
    add_lease(s);
    set_access(s);
}

void sim_start_secure(struct sim *s, const struct sim_security *how,
                      const char *const *more)
{
    char port[16];
    snprintf(port, sizeof port, "%u", how->port);
    cleanup_free char *ca = xasprintf("%s/%s.crt", lib_dir, how->ca);
    cleanup_free char *cert = xasprintf("%s/%s.crt", lib_dir, how->cert);
    cleanup_free char *key = xasprintf("%s/%s.key", lib_dir, how->cert);
    lib_program(&s->program, "kube-sim",
                ARGV("--port", port, "--tick", "20ms", "--cert", cert, "--key", key,
                     "--token", how->token),
                more);
    peer_init_tls(&s->api, program_port(&s->program, "listening on "), ca);
    s->authorization = xasprintf("Bearer %s", how->token);
    s->api.authorization = s->authorization;
    add_lease(s);
    set_access(s);
}

void sim_stop(struct sim *s)
{
    peer_fini(&s->api);
    free(s->authorization);
    program_stop(&s->program);
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

void sim_add_bound_pod(const struct sim *s, const char *name, int units, const char *node,
                       const char *annotations)
{
    cleanup_buf struct buf pod = {0};
    lib_pod(&pod, name, units, node, annotations);
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
    json_array_foreach(lib_at(j, "rules"), i, rule) n +=
        (int)json_integer_value(lib_at(rule, "fired"));
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
    json_array_foreach(lib_at(j, "requests"), i, c)
    {
        if (strcmp(lib_str(c, "verb"), verb) == 0 &&
            strcmp(lib_str(c, "resource"), resource) == 0 &&
            strcmp(lib_str(c, "subresource"), sub) == 0)
            n += (int)json_integer_value(lib_at(c, "count"));
    }
    return n;
}

int sim_watching(const struct sim *s, const char *resource)
{
    cleanup_json json_t *j = peer_json(&s->api, "GET", "/kube-sim/state", NULL);
    return (int)json_integer_value(json_object_get(lib_at(j, "watches"), resource));
}

int sim_bound(const struct sim *s)
{
    cleanup_json json_t *j = peer_json(&s->api, "GET", "/api/v1/pods", NULL);
    int n = 0;
    size_t i;
    json_t *pod;
    json_array_foreach(lib_at(j, "items"), i, pod) n +=
        *lib_str(pod, "spec.nodeName") != '\0';
    return n;
}

int sim_events(const struct sim *s, const char *pod, const char *reason, const char *note)
{
    cleanup_json json_t *all = peer_json(
        &s->api, "GET", "/apis/events.k8s.io/v1/namespaces/default/events", NULL);
    int n = 0;
    size_t i;
    json_t *e;
    json_array_foreach(lib_at(all, "items"), i, e) n +=
        (!pod || strcmp(lib_str(e, "regarding.name"), pod) == 0) &&
        strcmp(lib_str(e, "reason"), reason) == 0 && strstr(lib_str(e, "note"), note);
    return n;
}

void extender_start(struct extender *e, const struct sim *s, const char *const *more)
{
    cleanup_free char *name = xasprintf("kubeconfig-%u", s->api.port);
    cleanup_free char *path = lib_kubeconfig(name, "http", s->api.port, "", "");
    extender_start_at(e, path, more);
    extender_wait_ready(e);
}
