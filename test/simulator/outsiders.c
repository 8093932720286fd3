/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Programs that bind pods without the extender: another scheduler without knowledge of
 * cards, users who set nodeName (sometimes with the annotations of a previous pod), and an
 * older extender without leader election, which decides from old state and writes
 * annotations and Binding in one call or in two.
 *
 * They may overcommit a card, which cannot be prevented. But their pods count for every
 * promise of a replica after their delivery.
 *
 * HAMi, which still runs, is one of them: its promise is an annotation, sometimes a damaged one.
 */

const char old_promise[] =
    "\"ALIYUN_COM_GPU_MEM_IDX\":\"0\",\"ALIYUN_COM_GPU_MEM_DEV\":\"15\","
    "\"ALIYUN_COM_GPU_MEM_POD\":\"3\",\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"false\","
    "\"ALIYUN_COM_GPU_MEM_ASSUME_TIME\":\"1\"";

void outsiders_bind(struct world *w, const char *name, int node, const char *annotations)
{
    cleanup_free char *body =
        xasprintf("{\"metadata\":{\"name\":\"%s\"%s%s},\"target\":{\"kind\":\"Node\","
                  "\"name\":\"n%d\"}}",
                  name, annotations ? ",\"annotations\":" : "",
                  annotations ? annotations : "", node);
    unsigned status = api_call(w, "POST", body, POD_PATH "%s/binding", name);
    trace(w, "another program binds %s: %u", name, status);
}

/* Number 1 is the last of its list. */
static void add_container(struct buf *b, const char *name, int number, bool sidecar,
                          const char *resource, int64_t n)
{
    buf_printf(b,
               "{\"name\":\"%s%d\",\"image\":\"i\",\"resources\":{\"limits\":{\"%s\":"
               "\"%lld\"}}%s}%s",
               name, number, resource, (long long)n,
               sidecar ? ",\"restartPolicy\":\"Always\"" : "", number > 1 ? "," : "");
}

static void by_hand(struct world *w)
{
    cleanup_buf struct buf body = {0};
    bool whole = any(w, 4) == 0, in_labels = false, stale = any(w, 2);
    const char *flaw = any(w, 2) ? flaw_pick(w, &in_labels) : NULL;
    const char *resource = whole ? "aliyun.com/gpu-count" : "aliyun.com/gpu-mem";
    int node = any(w, NODES);
    bool of_daemon_set = any(w, 2);
    buf_printf(
        &body,
        "{\"metadata\":{\"name\":\"h%llu\",\"labels\":{%s},\"annotations\":{%s%s%s}%s},"
        "\"spec\":{\"nodeName\":\"n%d\",\"initContainers\":[",
        (unsigned long long)++w->stats.pods, in_labels ? flaw : "",
        stale ? old_promise : "", stale && flaw && !in_labels ? "," : "",
        flaw && !in_labels ? flaw : "",
        of_daemon_set ? ",\"ownerReferences\":[{\"apiVersion\":\"apps/v1\",\"kind\":"
                        "\"DaemonSet\",\"name\":\"d\",\"uid\":\"d\"}]"
                      : "",
        node);
    for (int i = any(w, 3); i > 0; i--) {
        int64_t n = between(w, 1, whole ? 2 : 8);
        add_container(&body, "i", i, any(w, 2), resource, n);
    }
    buf_adds(&body, "],\"containers\":[");
    add_container(&body, "c", 1, false, resource, between(w, 1, whole ? 2 : 8));
    buf_adds(&body, "]}}");
    trace(w, "by hand on a node: %u", policy_create(w, body.p));
}

/* The older extender, between its decision and its write. */
struct elder {
    char name[64], version[32], annotations[256];
    int node;
    bool two_writes, annotated;
};

static void on_elder(struct world *w, void *arg)
{
    struct elder *e = arg;
    if (e->two_writes && !e->annotated) {
        cleanup_free char *body =
            xasprintf("{\"metadata\":{\"resourceVersion\":\"%s\",\"annotations\":%s}}",
                      e->version, e->annotations);
        e->annotated = api_call(w, "PATCH", body, POD_PATH "%s", e->name) == 200;
        trace(w, "the older extender annotates %s: %d", e->name, e->annotated);
        if (e->annotated) {
            at(w, w->now_ms + between(w, 0, 500), on_elder, e, free);
            return;
        }
    } else {
        outsiders_bind(w, e->name, e->node, e->annotated ? NULL : e->annotations);
    }
    free(e);
}

static void older_extender(struct world *w)
{
    const struct oracle_pod *p = oracle_pick(w, false);
    int node = any(w, NODES), card = 0;
    /* A card on which the pod fits now. */
    while (p && card < oracle_cards(node) &&
           (!oracle_available(w, node, card) || !oracle_fits(w, p, node, card)))
        card++;
    if (!p || card == oracle_cards(node) || p->ask.cards != 1 || p->raw_slots)
        return;
    struct elder *e = xcalloc(1, sizeof *e);
    snprintf(e->name, sizeof e->name, "%s", p->name);
    snprintf(e->annotations, sizeof e->annotations,
             "{\"ALIYUN_COM_GPU_MEM_IDX\":\"%d\",\"ALIYUN_COM_GPU_MEM_POD\":\"%lld\","
             "\"ALIYUN_COM_GPU_MEM_DEV\":\"%lld\",\"ALIYUN_COM_GPU_MEM_ASSIGNED\":"
             "\"false\",\"ALIYUN_COM_GPU_MEM_ASSUME_TIME\":\"%lld\"}",
             oracle_id(node, card), (long long)p->ask.units,
             (long long)oracle_card_mib(w, node, card) / 1024,
             (long long)wall_ms(w) * 1000000);
    e->node = node;
    e->two_writes = any(w, 2);
    cleanup_json_value json_t *pod = api_get(w, POD_PATH "%s", p->name);
    snprintf(e->version, sizeof e->version, "%s",
             sim_jsonx_str(pod, "metadata.resourceVersion"));
    at(w, w->now_ms + between(w, 1, 3000), on_elder, e, free);
}

/* -- pods without GPU --
 *
 * They are in a namespace of their own, which the oracle does not read: they are created on
 * nodes, resized, end and are deleted. At rest, what each replica counts of CPU and pod slots
 * of a node is compared with the pods of the API server.
 */

enum { PLAIN_PODS = 16 };
#define PLAIN_PATH "/api/v1/namespaces/kube-system/pods"

bool plain_is(json_t *pod)
{
    return !strcmp(sim_jsonx_str(pod, "metadata.namespace"), "kube-system");
}

static void plain_act(struct world *w)
{
    struct rng *rng = &w->plain_rng;
    cleanup_buf struct buf body = {0};
    uint64_t dice = rng_below(rng, 8);
    int i = (int)rng_below(rng, PLAIN_PODS);
    if (dice == 0) {
        api_call(w, "DELETE", "{\"gracePeriodSeconds\":0}", PLAIN_PATH "/w%d", i);
    } else if (dice == 1) {
        api_call(w, "PATCH", "{\"status\":{\"phase\":\"Succeeded\"}}",
                 PLAIN_PATH "/w%d/status", i);
    } else if (dice == 2) { /* a resize, as the kubelet reports it */
        buf_printf(&body,
                   "{\"status\":{\"containerStatuses\":[{\"name\":\"c\","
                   "\"allocatedResources\":{\"cpu\":\"%dm\"}}]}}",
                   (int)rng_below(rng, 8) * 250);
        api_call(w, "PATCH", body.p, PLAIN_PATH "/w%d/status", i);
    } else {
        int other = (int)rng_below(rng, 8) * 100;
        bool sidecar = rng_below(rng, 2);
        int cpu = (int)rng_below(rng, 8) * 125, node = (int)rng_below(rng, NODES);
        buf_printf(
            &body,
            "{\"metadata\":{\"name\":\"w%d\"},\"spec\":{\"nodeName\":\"n%d\","
            "\"containers\":[{\"name\":\"c\",\"image\":\"i\",\"resources\":{\"requests\":"
            "{"
            "\"cpu\":\"%dm\"}}}],\"initContainers\":[{\"name\":\"s\",\"image\":\"i\","
            "%s\"resources\":{\"requests\":{\"cpu\":\"%dm\"}}}]}}",
            i, node, cpu, sidecar ? "\"restartPolicy\":\"Always\"," : "", other);
        unsigned status = api_call(w, "POST", body.p, PLAIN_PATH);
        if (status != 201 && status != 409)
            violated(w, "cannot create a pod without GPU: %u", status);
    }
}

/* Always with the suffix m. */
static int64_t cpu_of(json_t *object, const char *path)
{
    return strtoll(sim_jsonx_str(object, path), NULL, 10);
}

/* Of one app container, and one init container or sidecar. */
static int64_t requested(json_t *pod)
{
    json_t *app = json_array_get(sim_jsonx_at(pod, "spec.containers"), 0);
    json_t *init = json_array_get(sim_jsonx_at(pod, "spec.initContainers"), 0);
    json_t *status = json_array_get(sim_jsonx_at(pod, "status.containerStatuses"), 0);
    int64_t cpu = cpu_of(app, "resources.requests.cpu");
    int64_t allocated = cpu_of(status, "allocatedResources.cpu");
    int64_t other = cpu_of(init, "resources.requests.cpu");
    cpu = cpu > allocated ? cpu : allocated;
    if (json_object_get(init, "restartPolicy"))
        return cpu + other;
    return cpu > other ? cpu : other;
}

void plain_settled(struct world *w)
{
    struct resources sums[NODES] = {0};
    cleanup_json_value json_t *list = api_get(w, "/api/v1/pods");
    json_t *pod;
    size_t i;
    json_array_foreach(json_object_get(list, "items"), i, pod)
    {
        int node = oracle_index(sim_jsonx_str(pod, "spec.nodeName"));
        const char *phase = sim_jsonx_str(pod, "status.phase");
        if (node < 0 || !strcmp(phase, "Succeeded") || !strcmp(phase, "Failed"))
            continue;
        sums[node].pods++;
        sums[node].cpu_milli += plain_is(pod) ? requested(pod) : 0;
    }
    EACH_REPLICA(w, r)
    for (int k = 0; k < NODES; k++) {
        const struct ledger_node *node = replica_node(r, k);
        struct resources has = {0};
        if (node)
            has = ledger_node_requested(node);
        if (!resources_equal(&has, &sums[k]))
            violated(w,
                     "r%d counts %lld m of CPU and %lld pods on n%d; they are %lld, "
                     "%lld",
                     r->id, (long long)has.cpu_milli, (long long)has.pods, k,
                     (long long)sums[k].cpu_milli, (long long)sums[k].pods);
    }
}

/* HAMi binds a pod to the first cards of a node that have room now. */
static void hami_binds(struct world *w)
{
    cleanup_buf struct buf cards = {0};
    int node = any(w, NODES), wanted = 1 + any(w, 2), n = 0;
    int64_t mib = between(
        w, 500, 4000);    /* no card shrinks below: the ledger counts no more than it */
    if (node == MIG_NODE) /* a UUID that is gone counts on every card */
        return;
    for (int card = 0; card < oracle_cards(node) && n < wanted; card++) {
        struct oracle_sum sum = oracle_sum(w, node, card);
        char uuid[32];
        if (!oracle_available(w, node, card) || sum.whole ||
            oracle_card_mib(w, node, card) - sum.mib < mib)
            continue;
        buf_printf(&cards, "%s,NVIDIA,%lld,0:", oracle_uuid(node, card, uuid),
                   (long long)mib);
        n++;
    }
    if (n < wanted)
        return;
    bool damaged = any(w, 6) == 0;
    cleanup_free char *body = xasprintf(
        "{\"metadata\":{\"name\":\"hami%llu\",\"annotations\":{\"hami.io/"
        "vgpu-node\":\"n%d\","
        "\"hami.io/vgpu-devices-allocated\":\"%s%s;\"}},\"spec\":{\"nodeName\":\"n%d\","
        "\"containers\":[{\"name\":\"c\",\"image\":\"i\",\"resources\":{\"limits\":{"
        "\"nvidia.com/gpu\":\"%d\",\"nvidia.com/gpumem\":\"%lld\"}}}]}}",
        (unsigned long long)++w->stats.pods, node, cards.p, damaged ? "GPU" : "", node,
        wanted, (long long)mib);
    trace(w, "HAMi binds a pod: %u", policy_create(w, body));
}

void outsiders_act(struct world *w)
{
    if (!w->outsiders)
        return;
    int kind = any(w, 5);
    plain_act(w);
    if (kind == 4) {
        hami_binds(w);
    } else if (kind > 1) {
        older_extender(w);
    } else if (kind == 1) {
        by_hand(w);
    } else { /* another scheduler */
        struct oracle_pod *p = oracle_pick(w, false);
        cleanup_free char *name = p ? xstrdup(p->name) : NULL;
        if (p && !p->raw_slots) /* it would count on all cards of the node */
            outsiders_bind(w, name, any(w, NODES), NULL);
    }
}
