/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "domain/pod.h"

/*
 * kube-scheduler with its queue, in yards. It tries one pod after the other, of the highest
 * priority and of those the one that has waited longest. Its own filters come first: node
 * selector, host ports, anti-affinity, another extended resource. The extender is asked about the
 * nodes that are left, in a large cluster about a sample of them.
 *
 * It assumes the pod on the node that filter names, and goes on while the bind is in flight, as
 * many of them at once as there are pods. An assumed pod takes its port there until the bind is
 * answered, also when it was deleted meanwhile; no bind is ever cancelled. After an error, of
 * filter or of bind, a pod is tried again after its back-off: 1 s, then twice as long, 10 s
 * at most. A pod for which there is no node sleeps: until the extender changes the annotation of
 * a node, if the extender rejected it; until a pod leaves, if kube-scheduler's own filters did;
 * and for 5 minutes at most. Since 1.33 it need not wait for the end of its back-off then
 * (SchedulerPopFromBackoffQ).
 *
 * A pod with gates is tried by nobody, and one of another schedulerName only by that scheduler,
 * which shares nothing with this one but the API.
 */

enum {
    BACKOFF_MIN_MS = 1000,
    BACKOFF_MAX_MS = 10000,
    SLEEP_MS = 5 * 60 * 1000,
    BUSY_MS = 10, /* a scheduling cycle */
    IDLE_MS = 100,
};

struct queued {
    char uid[64], name[64];
    enum { ACTIVE, BACKOFF, ASLEEP, BINDING } state;
    int scheduler, attempts;
    int64_t priority;
    int64_t since_ms; /* in this state */
    int64_t until_ms; /* of its back-off */
    bool by_own;      /* ASLEEP: its own filters have excluded a node, */
    bool by_extender; /* ... or the extender has */
    int node;         /* BINDING: it is assumed there */
    uint8_t once;     /* what it takes there */
    uint64_t token;
    struct queued *next; /* in the order of their arrival */
};

struct pod_terms terms_read(json_t *pod)
{
    struct pod_terms t = {.pool = -1};
    const char *scheduler = sim_jsonx_str(pod, "spec.schedulerName");
    const char *pool = sim_jsonx_str(pod, "spec.nodeSelector.pool");
    json_t *c = json_array_get(sim_jsonx_at(pod, "spec.containers"), 0);
    int64_t port =
        sim_jsonx_int(json_array_get(json_object_get(c, "ports"), 0), "hostPort", 0);
    t.gated = json_array_size(sim_jsonx_at(pod, "spec.schedulingGates")) > 0;
    if (!strcmp(scheduler, "second-scheduler"))
        t.scheduler = 1;
    else if (*scheduler && strcmp(scheduler, "default-scheduler") != 0)
        t.scheduler = SCHEDULERS;
    t.once |= port == 2222 ? ONCE_PORT : port ? ONCE_PORT_2 : 0;
    t.once |= sim_jsonx_at(pod, "spec.affinity.podAntiAffinity") ? ONCE_ANTI : 0;
    t.once |=
        json_object_get(sim_jsonx_at(c, "resources.limits"), "rdma/hca") ? ONCE_HCA : 0;
    if (*pool)
        t.pool = (int8_t)(*pool - 'a');
    return t;
}

static struct queued *find(const struct world *w, const char *uid)
{
    struct queued *q = w->queued;
    while (q && strcmp(q->uid, uid) != 0)
        q = q->next;
    return q;
}

static void move(const struct world *w, struct queued *q, int state)
{
    q->state = state;
    q->since_ms = w->now_ms;
}

static void take(struct world *w, struct queued *q)
{
    struct queued **at = &w->queued;
    while (*at != q)
        at = &(*at)->next;
    *at = q->next;
    free(q);
}

void queue_free(struct world *w)
{
    while (w->queued)
        take(w, w->queued);
}

void queue_restart(struct world *w)
{
    trace(w, "kube-scheduler restarts");
    queue_free(w);
}

/* New pods, pods that lost their last gate, and those that need no node any more. An assumed
 * pod stays until its bind is answered. */
static void update(struct world *w)
{
    for (struct queued *q = w->queued, *next; q; q = next) {
        const struct oracle_pod *p = oracle_find(w, q->uid);
        next = q->next;
        if (q->state != BINDING && (!p || !oracle_pending(p)))
            take(w, q);
    }
    struct queued **end = &w->queued;
    while (*end)
        end = &(*end)->next;
    EACH_POD(w, p)
    {
        bool ours =
            p->terms.scheduler == 0 || (p->terms.scheduler == 1 && w->yard->second);
        if (!oracle_pending(p) || p->terms.gated || !ours || find(w, p->uid))
            continue;
        struct queued *q = *end = xcalloc(1, sizeof *q);
        end = &q->next;
        snprintf(q->uid, sizeof q->uid, "%s", p->uid);
        snprintf(q->name, sizeof q->name, "%s", p->name);
        q->scheduler = p->terms.scheduler;
        q->priority = p->priority;
        q->once = p->terms.once;
        move(w, q, ACTIVE);
    }
}

static void back_off(const struct world *w, struct queued *q)
{
    int64_t ms = BACKOFF_MIN_MS;
    for (int i = 1; i < q->attempts && ms < BACKOFF_MAX_MS; i++)
        ms *= 2;
    q->until_ms = w->now_ms + (ms < BACKOFF_MAX_MS ? ms : BACKOFF_MAX_MS);
}

static void wake(struct world *w, bool by_extender)
{
    for (struct queued *q = w->queued; q; q = q->next)
        if (q->state == ASLEEP && (by_extender ? q->by_extender : q->by_own))
            move(w, q, w->yard->pops || q->until_ms <= w->now_ms ? ACTIVE : BACKOFF);
}

void queue_woken(struct world *w)
{
    wake(w, true);
}

void queue_freed(struct world *w)
{
    wake(w, false);
}

void queue_answered(struct world *w, uint64_t token, bool bound)
{
    for (struct queued *q = w->queued; q; q = q->next) {
        if (q->state != BINDING || q->token != token)
            continue;
        const struct oracle_pod *p = oracle_find(w, q->uid);
        if (bound && p && p->node)
            take(w, q);
        else if (!p || !oracle_pending(p))
            take(w, q);
        else {
            move(w, q, BACKOFF);
            back_off(w, q);
        }
        if (!bound)
            queue_freed(w);
        return;
    }
}

static bool may_use(const struct world *w, const struct queued *q, int node)
{
    const struct oracle_pod *pod = oracle_find(w, q->uid);
    const struct yard_node *n = &w->yard->nodes[node];
    if (n->gone || n->cordoned || (pod->terms.pool >= 0 && pod->terms.pool != n->pool))
        return false;
    EACH_POD(w, p)
    if (!p->over && oracle_index(p->node) == node && p->terms.once & q->once)
        return false;
    for (const struct queued *o = w->queued; o; o = o->next)
        if (o != q && o->state == BINDING && o->node == node && o->once & q->once &&
            o->scheduler == q->scheduler)
            return false;
    return true;
}

/* The nodes that pass its own filters, as many as it offers. */
static size_t offer(struct world *w, struct queued *q, int nodes[ALL_NODES])
{
    int all = w->end_node - w->first_node;
    size_t n = 0, most = w->yard->samples ? (size_t)(all + 1) / 2 : (size_t)all;
    q->by_own = false;
    int i = 0;
    for (; i < all && n < most; i++) {
        int node = w->first_node + (w->yard->next + i) % all;
        if (may_use(w, q, node))
            nodes[n++] = node;
        else
            q->by_own = true;
    }
    w->yard->next = w->yard->samples ? (w->yard->next + i) % all : 0;
    return n;
}

static void try(struct world *w, struct queued *q)
{
    int nodes[ALL_NODES], node = -1;
    size_t n = offer(w, q, nodes);
    cleanup_free char *uid = xstrdup(q->uid);
    cleanup_free char *path = xasprintf(POD_PATH "%s", q->name);
    q->attempts++;
    if (n) {
        struct replica *r = &w->replicas[any(w, (uint64_t)w->n_replicas)];
        struct api_request req = {
            .method = "GET", .path = path, .query = "", .body = {"", 0}};
        struct api_reply reply = {0};
        api_handle(w->api, wall_ms(w), &req, &reply);
        node = replica_up(w, r)
                   ? filter_call_on(w, r, uid, buf_span(&reply.body), true, nodes, n)
                   : -2;
        api_reply_fini(&reply);
        q = find(w, uid); /* time may have passed */
    }
    const struct oracle_pod *p = oracle_find(w, uid);
    if (!q || !p || !oracle_pending(p))
        return;
    back_off(w, q);
    trace(w, "scheduler: filter of %s [%zu nodes]: %s%s", q->name, n,
          node >= 0    ? node_names[node]
          : node == -2 ? "error"
          : n          ? w->refusal
                       : "no node passes its own filters",
          q->by_own && n ? " (others are excluded by its own filters)" : "");
    if (node < 0) {
        q->by_extender = n > 0;
        move(w, q, node == -2 ? BACKOFF : ASLEEP);
        return;
    }
    q->node = node;
    move(w, q, BINDING);
    w->stats.binds++;
    q->token = scheduler_send_bind(w, p, node, w->now_ms);
}

static void cycle(struct world *w, void *arg)
{
    struct queued *best = NULL;
    (void)arg;
    if (w->filter || w->yard->stopped) {
        at(w, w->now_ms + IDLE_MS, cycle, NULL, NULL);
        return;
    }
    update(w);
    for (struct queued *q = w->queued; q; q = q->next) {
        if ((q->state == BACKOFF && q->until_ms <= w->now_ms) ||
            (q->state == ASLEEP && q->since_ms + SLEEP_MS <= w->now_ms))
            move(w, q, ACTIVE);
        if (q->state == ACTIVE &&
            (!best || q->priority > best->priority ||
             (q->priority == best->priority && q->since_ms < best->since_ms)))
            best = q;
    }
    if (best)
        try(w, best);
    at(w, w->now_ms + (best ? BUSY_MS : IDLE_MS), cycle, NULL, NULL);
}

void queue_start(struct world *w)
{
    cycle(w, NULL);
}
