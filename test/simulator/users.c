/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Users and failures: pods of every form are created and deleted, kubelets run them, Scv
 * objects disappear and return, cards become unhealthy, administrators list them in
 * ConfigMaps, the history is compacted, replicas crash and stall, the Lease is deleted.
 */

enum {
    PODS_MAX = 30, /* pending at a time */
};

void put_scv(struct world *w, int node, bool create)
{
    bool published = kubelet_publishes(w, node);
    json_t *reply = NULL;
    cleanup_buf struct buf body = {0};
    char path[64];
    buf_printf(&body,
               "{\"apiVersion\":\"core.run-linux.com/v1\",\"kind\":\"Scv\",\"metadata\":{"
               "\"name\":\"n%d\"},\"spec\":{\"updateInterval\":1000},\"status\":{"
               "\"cardList\":[",
               node);
    for (int card = 0; card < oracle_cards(node); card++)
        buf_printf(&body,
                   "%s{\"id\":%d,\"health\":\"%s\",\"model\":\"%s\",\"clock\":%d,"
                   "\"uuid\":\"GPU-%d-%d\",\"totalMemory\":%lld,\"freeMemory\":%lld}",
                   card ? "," : "", card,
                   oracle_health(w->oracle, node, card) ? "Healthy" : "Unhealthy",
                   oracle_model(node, card), oracle_clock(node, card), node, card,
                   (long long)oracle_card_mib(w->oracle, node, card),
                   (long long)oracle_card_mib(w->oracle, node, card));
    buf_printf(&body, "],\"cardNumber\":%d,\"podList\":%s", oracle_cards(node),
               published ? "[" : "null");
    oracle_update_pod_list(w->oracle, node, published);
    if (published) {
        kubelet_add_list(w, &body, node);
        buf_addc(&body, ']');
    }
    buf_adds(&body, "}}");
    snprintf(path, sizeof path, "/apis/core.run-linux.com/v1/scvs%s%s",
             create ? "" : "/n", create ? "" : (const char[]){(char)('0' + node), 0});
    unsigned status =
        api_reply_of(w, create ? "POST" : "PATCH", path, body.p, &reply);
    if (!create && status == 404)
        put_scv(w, node, true);
    else if (status >= 300)
        violated(w, "cannot write the Scv of n%d: %u", node, status);
    else
        kubelet_published(w, node, published,
                          ask_text(reply, "metadata", "resourceVersion"));
    json_decref(reply);
}

static void add_container(struct buf *b, const char *name, bool first, bool sidecar,
                          const char *resource, int64_t n, int64_t core)
{
    cleanup_buf struct buf share = {0};
    if (core)
        buf_printf(&share, ",\"aliyun.com/gpu-core.percentage\":\"%lld\"",
                   (long long)core);
    buf_printf(b, "%s{\"name\":\"%s%d\",\"image\":\"i\"", first ? "" : ",", name,
               (int)b->n);
    if (sidecar)
        buf_adds(b, ",\"restartPolicy\":\"Always\"");
    if (n)
        buf_printf(b, ",\"resources\":{\"limits\":{\"%s\":\"%lld\"%s}}", resource,
                   (long long)n, share.n ? share.p : "");
    buf_addc(b, '}');
}

static bool dice(struct world *w, uint64_t sides)
{
    return rng_below(&w->rng, sides) == 0;
}

static void add_annotations(struct world *w, struct buf *body, const char *flaw)
{
    static const char *const models[] = {"Tesla T4", " tesla v100 ", "Tesla P4,Tesla T4",
                                         "Tesla V100, A100", "A100"};
    /* Copied from the manifest of a previous pod: its annotations are no promise. */
    static const char stale[] =
        ",\"ALIYUN_COM_GPU_MEM_IDX\":\"0\",\"ALIYUN_COM_GPU_MEM_DEV\":\"15\","
        "\"ALIYUN_COM_GPU_MEM_POD\":\"3\",\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"false\","
        "\"ALIYUN_COM_GPU_MEM_ASSUME_TIME\":\"1\"";
    buf_adds(body, ",\"annotations\":{\"a\":\"b\"");
    if (dice(w, 4))
        buf_adds(body, ",\"gpushare/placement\":\"spread\"");
    if (dice(w, 8))
        buf_adds(body, stale);
    if (dice(w, 4))
        buf_printf(body, ",\"nvidia-gpu-scheduler/gpu.model\":\"%s\"",
                   models[rng_below(&w->rng, ARRAY_LEN(models))]);
    if (flaw) /* the last value of a duplicate key counts */
        buf_printf(body, ",%s", flaw);
    buf_addc(body, '}');
}

/* `yoda`: the labels are the whole request. */
static void add_labels(struct world *w, struct buf *body, int64_t k, bool yoda,
                       const char *flaw, const char *gang)
{
    static const int clocks[] = {877, 3003, 5001, 9000};
    uint64_t form = rng_below(&w->rng, 3);
    buf_adds(body, ",\"labels\":{\"a\":\"b\"");
    if (k > 1)
        buf_printf(body, ",\"aliyun.com/gpu-count\":\"%lld\"", (long long)k);
    if (yoda && form < 2)
        buf_printf(body, ",\"scv/memory\":\"%lld\"", (long long)between(w, 1, 12000));
    if (yoda && form > 0)
        buf_printf(body, ",\"scv/number\":\"%lld\"", (long long)between(w, 1, 2));
    if (dice(w, 8))
        buf_printf(body, ",\"scv/clock\":\"%d\"",
                   clocks[rng_below(&w->rng, ARRAY_LEN(clocks))]);
    if (gang)
        buf_printf(body, ",\"scheduling.x-k8s.io/pod-group\":\"%s\"", gang);
    if (flaw)
        buf_printf(body, ",%s", flaw);
    buf_addc(body, '}');
}

/* Priorities, and pods that a preemption has to leave alone. */
static void add_owner(struct world *w, struct buf *body)
{
    if (w->preempts && dice(w, 8))
        buf_adds(body, ",\"ownerReferences\":[{\"apiVersion\":\"apps/v1\",\"kind\":"
                       "\"DaemonSet\",\"name\":\"d\",\"uid\":\"d\"}]");
}

static void add_priority(struct world *w, struct buf *body)
{
    if (!w->preempts)
        return;
    buf_printf(body, "\"priority\":%lld,", (long long)between(w, 0, 3) * 10);
    if (dice(w, 8))
        buf_adds(body, "\"preemptionPolicy\":\"Never\",");
}

/* `gang`: its name; NULL: none. */
static void create_pod(struct world *w, const char *gang)
{
    cleanup_buf struct buf body = {0}, apps = {0}, inits = {0};
    bool whole = rng_below(&w->rng, 6) == 0, devices = !whole && dice(w, 10);
    bool labels = !whole && !devices && dice(w, 6);
    bool shared = !whole && !devices && !labels;
    int64_t k = !whole && !devices && !labels && dice(w, 5) ? between(w, 2, 3) : 1;
    const char *resource = whole     ? "aliyun.com/gpu-count"
                           : devices ? "nvidia.com/gpu"
                                     : "aliyun.com/gpu-mem";
    int64_t most = labels ? 0 : whole || devices ? 2 : gang ? 3 : 10;
    int containers = (int)between(w, 1, 3);
    for (int i = 0; i < containers; i++)
        add_container(&apps, "c", i == 0, false, resource,
                      labels   ? 0
                      : i == 0 ? k * between(w, 1, most / k)
                               : (rng_below(&w->rng, 3) ? 0 : k * between(w, 1, 2)),
                      i == 0 && shared && dice(w, 3) ? k * 5 * between(w, 1, 20) : 0);
    if (k == 1 && !labels && rng_below(&w->rng, 4) == 0)
        add_container(&inits, "i", true, rng_below(&w->rng, 2), resource,
                      between(w, 1, most), shared && dice(w, 9) ? 30 : 0);
    if (!labels && dice(w, 30)) /* two resources in one pod */
        add_container(&apps, "x", false, false,
                      devices || whole ? "aliyun.com/gpu-mem" : "nvidia.com/gpu", 1, 0);
    bool in_labels = false;
    const char *flaw = dice(w, 15) ? flaw_pick(w, &in_labels) : NULL;
    buf_adds(&body, "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"");
    if (gang) /* gangs.c reads it */
        buf_printf(&body, "%s.", gang);
    buf_printf(&body, "p%llu\"", (unsigned long long)++w->stats.pods);
    add_annotations(w, &body, in_labels ? NULL : flaw);
    add_labels(w, &body, k, labels, in_labels ? flaw : NULL, gang);
    add_owner(w, &body);
    buf_adds(&body, "},\"spec\":{");
    add_priority(w, &body);
    buf_printf(&body, "\"containers\":[%s],\"initContainers\":[%s]", apps.p,
               inits.n ? inits.p : "");
    if (w->decides && !w->preempts && dice(w, 3))
        buf_printf(&body, ",\"priority\":%lld", (long long)between(w, -1, 2));
    buf_adds(&body, "}}");
    unsigned status = policy_create(w, body.p);
    if (status != 201 && !(w->policy && status == 403))
        violated(w, "cannot create the pod: %u %s", status, body.p);
}

/* The members are created one after the other, or one is missing for a while. In every
 * third gang they do not wait for each other. */
static void create_gang(struct world *w)
{
    uint64_t gang = dice(w, 5) && w->stats.gangs ? w->stats.gangs : ++w->stats.gangs;
    const struct oracle_pod *waits = dice(w, 3) ? permit_first(w) : NULL;
    char name[32];
    if (waits) { /* its members have reservations, and are judged again with a new one */
        snprintf(name, sizeof name, "%.*s", (int)strcspn(waits->name, "."), waits->name);
        create_pod(w, name);
        permit_restart(w);
        return;
    }
    snprintf(name, sizeof name, "%c%llu", gang % 3 ? 'g' : 'b', (unsigned long long)gang);
    for (int64_t n = between(w, 1, 4); n > 0; n--)
        create_pod(w, name);
}

static void create_some(struct world *w)
{
    if (w->gangs && dice(w, 4))
        create_gang(w);
    else
        create_pod(w, NULL);
}

static void delete_pod(struct world *w)
{
    struct oracle_pod *waits = w->gangs && dice(w, 4) ? permit_first(w) : NULL;
    struct oracle_pod *p = waits ? waits : oracle_pick(w, rng_below(&w->rng, 4) != 0);
    if (!p)
        return;
    bool at_once = rng_below(&w->rng, 2);
    trace(w, "users: delete %s%s", p->uid, at_once ? " at once" : "");
    api_call(w, "DELETE",
             at_once ? "{\"gracePeriodSeconds\":0}" : "{\"gracePeriodSeconds\":2}",
             POD_PATH "%s", p->name);
    w->stats.deleted++;
}

/* A kubelet sets the next phase of a pod. */
static void move_pod(struct world *w, const char *phase)
{
    struct oracle_pod *p = oracle_pick(w, true);
    char body[128];
    if (!p)
        return;
    if (!strcmp(phase, "Running") && !kubelet_starts(w, p)) {
        trace(w, "device plugin: rejects %s", p->uid);
        if (rng_below(&w->rng, 2))
            return;
        phase = "Failed";
    }
    snprintf(body, sizeof body, "{\"status\":{\"phase\":\"%s\"}}", phase);
    bool gives =
        p->devices && !p->held && !strcmp(phase, "Running") && oracle_allocate(w, p);
    int node = oracle_node(p);
    trace(w, "kubelet: %s is %s", p->uid, phase);
    api_call(w, "PATCH", body, POD_PATH "%s/status", p->name);
    if (gives)
        put_scv(w, node, false);
}

static void flip_health(struct world *w)
{
    int node = (int)rng_below(&w->rng, NODES);
    int card = (int)rng_below(&w->rng, (uint64_t)oracle_cards(node));
    oracle_set_health(w->oracle, node, card, !oracle_health(w->oracle, node, card));
    put_scv(w, node, false);
}

/* A card shrinks, as after MIG was enabled, and grows back. */
static void shrink_card(struct world *w)
{
    int node = (int)rng_below(&w->rng, NODES);
    int card = (int)rng_below(&w->rng, (uint64_t)oracle_cards(node));
    oracle_shrink(w->oracle, node, card, !oracle_is_shrunk(w->oracle, node, card));
    trace(w, "users: n%d GPU%d has %lld MiB now", node, card,
          (long long)oracle_card_mib(w->oracle, node, card));
    put_scv(w, node, false);
}

static void delete_scv(struct world *w)
{
    api_call(w, "DELETE", "", "/apis/core.run-linux.com/v1/scvs/n%d",
             (int)rng_below(&w->rng, NODES));
}

#define CONFIGMAPS "/api/v1/namespaces/kube-system/configmaps"

static void clear_unhealthy(struct world *w, int node)
{
    api_call(w, "DELETE", "", CONFIGMAPS "/unhealthy-gpu-n%d", node);
}

static void put_unhealthy(struct world *w, bool clear)
{
    char body[160];
    int node = (int)rng_below(&w->rng, NODES);
    if (clear) {
        clear_unhealthy(w, node);
        return;
    }
    snprintf(body, sizeof body,
             "{\"metadata\":{\"name\":\"unhealthy-gpu-n%d\"},\"data\":{\"gpus\":\"%d\"}}",
             node, (int)rng_below(&w->rng, 4));
    if (api_call(w, "PUT", body, CONFIGMAPS "/unhealthy-gpu-n%d", node) == 404)
        api_call(w, "POST", body, CONFIGMAPS);
}

/* Prefers the leader: its failures matter most. */
static struct replica *a_replica(struct world *w)
{
    for (int i = 0; i < w->n_replicas && rng_below(&w->rng, 2); i++)
        if (replica_up(w, w->replicas[i]) && core_is_leader(replica_core(w->replicas[i])))
            return w->replicas[i];
    return w->replicas[rng_below(&w->rng, (uint64_t)w->n_replicas)];
}

/* No forwarding between this replica and another one, in one direction or both. */
static void part(struct world *w, const struct replica *r)
{
    int a = replica_id(r), b = (int)rng_below(&w->rng, (uint64_t)w->n_replicas);
    int64_t until = w->now_ms + between(w, 1000, 20000);
    trace(w, "r%d and r%d do not reach each other", a, b);
    w->apart_until[a][b] = until;
    if (rng_below(&w->rng, 2))
        w->apart_until[b][a] = until;
}

/* The API server is unreachable for one replica; or for all replicas and nodes. */
static void cut_off(struct world *w, struct replica *r)
{
    bool outages = w->seed % 32 == 27; /* longer than the grace period of heartbeats */
    int64_t ms = between(w, outages ? GRACE_MS : 500, 20000);
    if (!outages && rng_below(&w->rng, 2)) {
        replica_cut_off(w, r, ms);
        return;
    }
    /* The replicas may reach the API server again before an agent renews its Lease. */
    int64_t agents_ms = ms + (outages ? 3000 : 0);
    if (w->agents_cut_until < w->now_ms + agents_ms)
        w->agents_cut_until = w->now_ms + agents_ms;
    for (int i = 0; i < w->n_replicas; i++)
        replica_cut_off(w, w->replicas[i], ms);
}

static void break_replica(struct world *w)
{
    struct replica *r = a_replica(w);
    if (!replica_alive(r)) {
        replica_boot(w, r);
        return;
    }
    if (!replica_up(w, r))
        return;
    switch (w->seed % 32 == 27 && dice(w, 3) ? 7 : rng_below(&w->rng, 10)) {
    case 0:
        replica_crash(w, r);
        break;
    case 1:
        replica_pause(w, r, between(w, 10, 12000));
        break;
    case 2:
        replica_restart(w, r);
        break;
    case 3:
        replica_fail_lease(w, r, between(w, 1000, 12000));
        break;
    case 4:
        replica_freeze(w, r, between(w, 10, 12000));
        break;
    case 5:
        replica_set_clock(w, r);
        break;
    case 6:
        part(w, r);
        break;
    case 7:
        cut_off(w, r);
        break;
    default:
        replica_stall_watches(w, r, between(w, 1000, 20000));
        break;
    }
}

static void delete_lease(struct world *w)
{
    trace(w, "users: delete the lease");
    api_call(
        w, "DELETE", "",
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/gpushare-extender");
}

static void act(struct world *w, void *arg);

static void one_thing(struct world *w)
{
    uint64_t dice = rng_below(&w->rng, w->tenants ? 1360 : 1060);
    if (dice < 400) {
        if (oracle_pending(w) < PODS_MAX)
            create_some(w);
    } else if (dice < 600) {
        delete_pod(w);
    } else if (dice < 700) {
        move_pod(w, "Running");
    } else if (dice < 780) {
        move_pod(w, rng_below(&w->rng, 2) ? "Succeeded" : "Failed");
    } else if (dice < 830) {
        flip_health(w);
    } else if (dice < 850) {
        delete_scv(w);
    } else if (dice < 900) {
        put_scv(w, (int)rng_below(&w->rng, NODES), false);
    } else if (dice < 920) {
        put_unhealthy(w, rng_below(&w->rng, 2));
    } else if (dice < 940) {
        api_compact(w->api);
        w->stats.compactions++;
        /* A restarted API server has no history, and breaks all connections.
         */
        for (int i = 0; i < w->n_replicas && rng_below(&w->rng, 2) == 0; i++)
            if (replica_alive(w->replicas[i]))
                replica_cut_watches(w, w->replicas[i]);
    } else if (dice < 965) {
        break_replica(w);
    } else if (dice < 976) {
        struct replica *r = a_replica(w);
        if (replica_alive(r))
            replica_cut_watches(w, r);
    } else if (dice < 980) {
        delete_lease(w);
    } else if (dice < 990) {
        shrink_card(w);
    } else if (dice < 1040) {
        flaws_edit(w);
    } else if (dice >= 1060) {
        tenants_act(w);
    } else if (w->outsiders) {
        outsiders_act(w);
    }
}

/* Before rest: undoes all failures, so that the oracle knows what fits. */
static void tidy(struct world *w)
{
    for (int node = 0; node < NODES; node++) {
        for (int card = 0; card < oracle_cards(node); card++)
            oracle_shrink(w->oracle, node, card, false);
        put_scv(w, node, false);
        clear_unhealthy(w, node);
    }
}

static void act(struct world *w, void *arg)
{
    (void)arg;
    if (w->quiet) {
        tidy(w);
        return;
    }
    one_thing(w);
    at(w, w->now_ms + between(w, 1, 100), act, NULL, NULL);
}

void users_start(struct world *w)
{
    if (w->stats.pods == 0) {
        for (int node = 0; node < NODES; node++)
            put_scv(w, node, true);
        api_call(w, "POST",
                 "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\","
                 "\"metadata\":{\"name\":\"gpushare-extender\"},\"spec\":{}}",
                 "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases");
    }
    act(w, NULL);
}
