/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/sim.h"

#include <stdarg.h>

#include "lib/network.h"

/* The extender's Lease without a holder, and SIM_BEARER for all views. */
void sim_start_secure(struct sim *s, const char *ca, const char *bearer,
                      const char *const *options)
{
    lib_program(&s->program, "kube-sim",
                ARGV("--tick", "20ms", "--listen", network_loopback()), options);
    unsigned port = program_port(&s->program, "listening on ");
    if (ca)
        peer_init_tls(&s->api, port, ca);
    else
        peer_init(&s->api, port);
    s->authorization = s->api.authorization = bearer;
    sim_load(s, "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\","
                "\"metadata\":{\"name\":\"gpushare-extender\","
                "\"namespace\":\"kube-system\"},\"spec\":{}}");
    peer_do(
        &s->api, "POST", "/kube-sim/access",
        "{\"tokens\":{\"test-token\":{\"username\":\"test\"}},\"rules\":["
        "{\"user\":\"test\",\"path\":\"*\"},{\"user\":\"test\",\"resource\":\"*\"}]}");
}

void sim_start(struct sim *s, const char *const *more)
{
    const char *options[PROGRAM_ARGS] = {"--port", "0"};
    program_args(options, 2, more);
    sim_start_secure(s, NULL, NULL, options);
}

void sim_stop(struct sim *s)
{
    peer_fini(&s->api);
    program_stop(&s->program);
}

static void postf(const struct sim *s, const char *path, const char *fmt, va_list ap)
{
    cleanup_buf struct buf body = {0};
    buf_vprintf(&body, fmt, ap);
    peer_do(&s->api, "POST", path, body.p);
}

void sim_load_quoted(const struct sim *s, const char *fmt, ...)
{
    va_list ap;
    cleanup_buf struct buf text = {0};
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    for (char *p = text.p; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    sim_load(s, "%s", text.p);
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
    peer_do(&s->api, "DELETE", lib_fmt("/api/v1/namespaces/default/pods/%s", name),
            "{\"gracePeriodSeconds\":0}");
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
    peer_do(&s->api, "DELETE", "/kube-sim/faults", NULL);
}

int sim_fired(const struct sim *s)
{
    int n = 0;
    json_t *rule;
    lib_each(rule, lib_at(peer_get(&s->api, "/kube-sim/faults"), "rules"))
        n += (int)lib_int(rule, "fired");
    return n;
}

void sim_watches(const struct sim *s, const char *action, const char *resource)
{
    peer_do(&s->api, "POST", "/kube-sim/watches",
            resource
                ? lib_fmt("{\"action\":\"%s\",\"resource\":\"%s\"}", action, resource)
                : lib_fmt("{\"action\":\"%s\"}", action));
}

int sim_count(const struct sim *s, const char *verb, const char *resource,
              const char *sub)
{
    int n = 0;
    json_t *c;
    lib_each(c, lib_at(peer_get(&s->api, "/kube-sim/counters"), "requests")) {
        if (strcmp(lib_str(c, "verb"), verb) == 0 &&
            strcmp(lib_str(c, "resource"), resource) == 0 &&
            strcmp(lib_str(c, "subresource"), sub) == 0)
            n += (int)lib_int(c, "count");
    }
    return n;
}

int sim_watching(const struct sim *s, const char *resource)
{
    return (int)lib_int(lib_at(peer_get(&s->api, "/kube-sim/state"), "watches"),
                        resource);
}

int sim_bound(const struct sim *s)
{
    int n = 0;
    json_t *pod;
    lib_each(pod, lib_at(peer_get(&s->api, "/api/v1/pods"), "items"))
        n += *lib_str(pod, "spec.nodeName") != '\0';
    return n;
}

int sim_events(const struct sim *s, const char *pod, const char *reason, const char *note)
{
    int n = 0;
    json_t *e;
    lib_each(e,
             lib_at(peer_get(&s->api, "/apis/events.k8s.io/v1/namespaces/default/events"),
                    "items"))
        n += (!pod || strcmp(lib_str(e, "regarding.name"), pod) == 0) &&
             strcmp(lib_str(e, "reason"), reason) == 0 &&
             strstr(lib_str(e, "note"), note);
    return n;
}

char *sim_kubeconfig(const struct sim *s)
{
    const char *name = lib_fmt("kubeconfig-%u", s->api.port);
    return lib_keep(
        lib_kubeconfig(name, s->authorization ? "https" : "http", s->api.port, "", ""),
        free);
}

void extender_begin(struct extender *e, const struct sim *s, const char *const *more)
{
    extender_start_at(e, sim_kubeconfig(s), more);
}

void extender_start(struct extender *e, const struct sim *s, const char *const *more)
{
    extender_begin(e, s, more);
    extender_wait_ready(e);
}
