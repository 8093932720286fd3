/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdio.h>
#include <string.h>

#include "domain/pod.h"
#include "placement/reason.h"

/*
 * Filters that answer with one node, as in extender/filter.c: the replica that
 * kube-scheduler calls forwards the call to the leader that it knows. There, the nodes are
 * judged, and cards are reserved on one of them. The answer may get lost, and a replica
 * without a leader answers by itself.
 */

static struct request request_of_pod(const struct core *core, const struct pod *pod,
                                     struct arena *a)
{
    struct request request;
    struct request_rules rules = ledger_rules(ledger_settings(core_ledger(core)));
    if (request_of(pod, &rules, a, &request, NULL))
        request.kind = REQUEST_NONE;
    return request;
}

/* The nodes that fit, in random order: scores are not modeled. */
static size_t judge(struct world *w, const struct core *core, const struct pod *pod,
                    const struct request *request, char names[NODES][8])
{
    size_t n = 0;
    for (int i = 0; i < NODES; i++) {
        char name[8];
        snprintf(name, sizeof name, "n%d", i);
        const struct ledger_node *node =
            ledger_node_find(core_ledger(core), span_of(name));
        if (!node ||
            select_fit_pod(node, &(struct select_pod){request, pod->priority,
                                                      pod->meta.uid, NULL}) != FIT_YES)
            continue;
        size_t at = rng_below(&w->rng, n + 1);
        memcpy(names[n++], names[at], sizeof name);
        memcpy(names[at], name, sizeof name);
    }
    return n;
}

/* Other members of the pod's gang may fit where it does not. */
static size_t add_others(char names[NODES][8], size_t n)
{
    for (int i = 0; i < NODES; i++) {
        char name[8];
        bool has = false;
        snprintf(name, sizeof name, "n%d", i);
        for (size_t k = 0; k < n; k++)
            has |= !strcmp(names[k], name);
        if (!has)
            memcpy(names[n++], name, sizeof name);
    }
    return n;
}

void decide_reserved(struct world *w, const char *node)
{
    w->reserved_node = node ? oracle_index(node) : -1;
}

/* The leader, as the replica sees it, if it can be reached; else the replica itself. */
static struct replica *leader_of(struct world *w, struct replica *asked)
{
    struct step_time now = replica_time(w, asked);
    struct bind_route way = core_bind_route(replica_core(asked), now, false, NULL);
    int to = way.route == BIND_ROUTE_FORWARD ? replica_at(way.address) : -1;
    if (to < 0 || to >= w->n_replicas || to == replica_id(asked) ||
        w->apart_until[replica_id(asked)][to] > w->now_ms ||
        !replica_up(w, w->replicas[to]))
        return asked;
    return w->replicas[to];
}

int decide_node(struct world *w, struct replica *asked, const struct pod *pod)
{
    struct replica *r = leader_of(w, asked);
    const struct core *core = replica_core(r);
    cleanup_arena struct arena a = {0};
    char names[NODES][8];
    struct span nodes[NODES];
    if (core_ready(core, replica_time(w, r), NULL))
        return -1;
    struct request request = request_of_pod(core, pod, &a);
    size_t n = judge(w, core, pod, &request, names);
    struct gang gang;
    cleanup_free char *name = xmemdup0(pod->meta.name.p, pod->meta.name.n);
    bool in_gang = !request_fits_anywhere(&request) && gang_of(pod, &gang) &&
                   gangs_has(name); /* filter has read the PodGroup */
    bool reserves =
        in_gang || request.kind == REQUEST_MEMORY || request.kind == REQUEST_CARDS;
    if (in_gang)
        n = add_others(names, n);
    for (size_t i = 0; i < n; i++)
        nodes[i] = span_of(names[i]);
    if (request.kind == REQUEST_NONE || (!n && !chance(w, 100)))
        return -1;
    if (!reserves || core_may_bind(core, replica_time(w, r), NULL))
        return n ? oracle_index(names[0]) : -1;
    struct core_input in = {.type = CORE_RESERVE,
                            .ns = pod->meta.ns,
                            .name = pod->meta.name,
                            .uid = pod->meta.uid,
                            .request = &request,
                            .priority = pod->priority,
                            .gang = in_gang ? &gang : NULL,
                            .nodes = nodes,
                            .n_nodes = n};
    replica_input(w, r, &in);
    bool lost = r != asked && chance(w, w->weather.lose_reply);
    if (lost) /* the replica answers by itself */
        return n ? oracle_index(names[0]) : -1;
    return w->reserved_node;
}
