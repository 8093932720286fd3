/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/cluster.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "placement/defrag.h"
#include "placement/reason.h"

enum { PODS_OF_A_NODE = 1001 }; /* the maximum of openb's own simulator */

struct replay_node {
    const struct trace_node *is;
    const struct ledger_node *ledger;
    int64_t cpu, memory; /* free */
    uint32_t pods;
};

struct running_pod {
    const struct trace_pod *is;
    uint64_t uid;
    uint32_t node;
};

struct cluster {
    const struct trace *trace;
    enum score_policy policy;
    bool sees_cpu;
    struct cluster_rule rule;
    struct ledger *ledger;
    struct replay_node *nodes;
    struct running_pod *running;
    size_t n_running, running_cap;
    int64_t allocated, cpu; /* of all running pods */
    uint64_t last_uid;
    /* The nodes that fit the current pod, and their scores. */
    const struct ledger_node **candidates;
    uint32_t *candidate_nodes;
    int *points;
    struct score_scratch scratch;
};

static const struct ledger_node *add_node(struct ledger *l, const struct trace_node *n,
                                          bool sees_cpu)
{
    struct scv_card cards[TRACE_MAX_CARDS];
    struct scv scv = {.meta = {.name = n->name}, .cards = cards, .n_cards = n->cards};
    for (uint32_t i = 0; i < n->cards; i++)
        cards[i] = (struct scv_card){.id = (int32_t)i,
                                     .healthy = true,
                                     .total_mib = TRACE_CARD,
                                     .free_mib = TRACE_CARD,
                                     .model = n->model};
    for (uint32_t i = 0; n->links && i < n->cards; i++) {
        cards[i].links = n->links[i].row;
        cards[i].numa_node = n->links[i].numa;
        cards[i].has_numa_node = true;
    }
    ledger_scv_seen(l, &scv, 0);
    const struct node node = {
        .meta = {.name = n->name},
        .room = {n->cpu_milli, n->memory_mib << 20, PODS_OF_A_NODE}};
    if (sees_cpu)
        ledger_node_seen(l, &node, 0);
    return ledger_node_find(l, n->name);
}
_Static_assert((int)TRACE_MAX_CARDS <= (int)SCV_MAX_CARDS,
               "an Scv holds the cards of any node");

struct cluster *cluster_new(const struct trace *trace, enum score_policy policy,
                            bool sees_cpu)
{
    static const struct ledger_settings settings = {.unit_mib = 1};
    struct cluster *c = xcalloc(1, sizeof *c);
    c->trace = trace;
    c->policy = policy;
    c->sees_cpu = sees_cpu;
    c->ledger = ledger_new(&settings, 1);
    c->nodes = xcalloc(trace->n_nodes, sizeof *c->nodes);
    c->candidates = xcalloc(trace->n_nodes, sizeof *c->candidates);
    c->candidate_nodes = xcalloc(trace->n_nodes, sizeof *c->candidate_nodes);
    c->points = xcalloc(trace->n_nodes, sizeof *c->points);
    for (size_t i = 0; i < trace->n_nodes; i++) {
        const struct trace_node *n = &trace->nodes[i];
        c->nodes[i] = (struct replay_node){.is = n,
                                           .ledger = add_node(c->ledger, n, sees_cpu),
                                           .cpu = n->cpu_milli,
                                           .memory = n->memory_mib};
    }
    return c;
}

void cluster_set_rule(struct cluster *c, const struct cluster_rule *rule)
{
    c->rule = *rule;
}

void cluster_free(struct cluster *c)
{
    if (!c)
        return;
    ledger_free(c->ledger);
    score_scratch_fini(&c->scratch);
    free(c->nodes);
    free(c->running);
    free(c->candidates);
    free(c->candidate_nodes);
    free(c->points);
    free(c);
}

static struct request request_of_trace(const struct trace_pod *pod)
{
    struct request r = {.kind = REQUEST_NONE, .cards = pod->cards, .models = pod->models};
    if (pod->cards == 1 && pod->gpu_milli < TRACE_CARD) {
        r.kind = REQUEST_MEMORY;
        r.units = r.mib_per_card = pod->gpu_milli;
    } else if (pod->cards > 0) {
        r.kind = REQUEST_CARDS;
    }
    return r;
}

static size_t find_candidates(struct cluster *c, const struct trace_pod *pod,
                              const struct request *r)
{
    size_t n = 0;
    for (uint32_t i = 0; i < c->trace->n_nodes; i++) {
        const struct replay_node *node = &c->nodes[i];
        if (node->cpu < pod->cpu_milli || node->memory < pod->memory_mib ||
            node->pods == PODS_OF_A_NODE ||
            (r->kind != REQUEST_NONE && select_fit(node->ledger, r) != FIT_YES))
            continue;
        c->candidates[n] = node->ledger;
        c->candidate_nodes[n++] = i;
    }
    return n;
}

/* A random node of those with the highest score, as in kube-scheduler. */
static size_t pick(const int *points, size_t n, struct rng *rng)
{
    size_t best = 0, equals = 0;
    for (size_t i = 0; i < n; i++) {
        if (equals && points[i] < points[best])
            continue;
        if (!equals || points[i] > points[best])
            equals = 0;
        equals++;
        if (rng_below(rng, equals) == 0)
            best = i;
    }
    return best;
}

static struct span write_uid(char text[32], uint64_t uid)
{
    int n = snprintf(text, 32, "%llu", (unsigned long long)uid);
    return (struct span){text, (size_t)n};
}

/* Places a pod with GPU. */
static void promise(struct cluster *c, const struct replay_node *node,
                    const struct trace_pod *is, struct ledger_pod *pod)
{
    struct ledger_share shares[REQUEST_MAX_CARDS] = {0};
    struct select_view view;
    uint64_t chosen;
    uint32_t n = 0;
    select_view(&view, node->ledger, NULL, SELECT_AS_IS);
    if (c->rule.choose)
        chosen = c->rule.choose(node->ledger->links,
                                (uint32_t)select_mask(&view, pod->request), is->cards);
    else
        select_cards(&view, pod->request, SELECT_ALL_CARDS, &chosen);
    for (; chosen; chosen &= chosen - 1) {
        shares[n].card = node->ledger->cards[__builtin_ctzll(chosen)].index;
        shares[n++].mib = is->gpu_milli;
    }
    ledger_pod_place(c->ledger, pod, node->is->name, shares, n);
}

static void run(struct cluster *c, uint32_t at, const struct trace_pod *is, uint64_t uid)
{
    struct replay_node *node = &c->nodes[at];
    node->cpu -= is->cpu_milli;
    node->memory -= is->memory_mib;
    node->pods++;
    c->allocated += is->gpu_milli * is->cards;
    c->cpu += is->cpu_milli;
    MEM_GROW(c->running, c->running_cap, c->n_running + 1);
    c->running[c->n_running++] = (struct running_pod){is, uid, at};
}

static struct resources requests_of(const struct cluster *c, const struct trace_pod *is)
{
    return (struct resources){c->sees_cpu ? is->cpu_milli : 0, is->memory_mib << 20, 1};
}

/* Adds a pending pod with GPU. Its UID is c->last_uid. */
static struct ledger_pod *add_pending(struct cluster *c, const struct trace_pod *is,
                                      const struct request *r)
{
    char uid[32];
    struct pod pod = {.meta = {.uid = write_uid(uid, ++c->last_uid), .name = is->name},
                      .requests = requests_of(c, is)};
    return ledger_pod_add(c->ledger, &pod, r, NULL);
}

bool cluster_arrive(struct cluster *c, const struct trace_pod *is, struct rng *rng)
{
    struct request r = request_of_trace(is);
    r.ignores_links = c->rule.ignores_links;
    struct ledger_pod *pending = r.kind == REQUEST_NONE ? NULL : add_pending(c, is, &r);
    struct resources requests = requests_of(c, is);
    struct score_pod asks = {.pod.request = &r, .cpu_milli = requests.cpu_milli};
    char uid[32];
    size_t n = find_candidates(c, is, &r);
    if (n == 0) {
        if (pending)
            ledger_pod_remove(c->ledger, pending);
        return false;
    }
    score_nodes(c->policy, &asks, ledger_requests(c->ledger), c->candidates, n, &c->scratch,
                c->points);
    uint32_t at = c->candidate_nodes[pick(c->points, n, rng)];
    if (pending)
        promise(c, &c->nodes[at], is, pending);
    else
        ledger_nongpu_seen(c->ledger, write_uid(uid, ++c->last_uid),
                           c->nodes[at].is->name, &requests, 1);
    run(c, at, is, c->last_uid);
    return true;
}

static void leave(struct cluster *c, struct running_pod *t)
{
    struct replay_node *node = &c->nodes[t->node];
    char text[32];
    struct span uid = write_uid(text, t->uid);
    struct ledger_pod *pod = ledger_pod_find(c->ledger, uid);
    node->cpu += t->is->cpu_milli;
    node->memory += t->is->memory_mib;
    node->pods--;
    c->allocated -= t->is->gpu_milli * t->is->cards;
    c->cpu -= t->is->cpu_milli;
    if (pod)
        ledger_pod_remove(c->ledger, pod);
    else
        ledger_nongpu_deleted(c->ledger, uid);
    *t = c->running[--c->n_running];
}

void cluster_leave(struct cluster *c, struct rng *rng)
{
    leave(c, &c->running[rng_below(rng, c->n_running)]);
}

const struct ledger_pod *cluster_find(const struct cluster *c, uint64_t n)
{
    char uid[32];
    return ledger_pod_find(c->ledger, write_uid(uid, n));
}

void cluster_leave_nth(struct cluster *c, uint64_t n)
{
    size_t i = 0;
    while (i < c->n_running && c->running[i].uid != n)
        i++;
    if (i < c->n_running)
        leave(c, &c->running[i]);
}

size_t cluster_pods(const struct cluster *c)
{
    return c->n_running;
}

int64_t cluster_allocated(const struct cluster *c)
{
    return c->allocated;
}

bool cluster_would_exceed(const struct cluster *c, const struct trace_pod *pod,
                          int64_t percent)
{
    return c->allocated + pod->gpu_milli * pod->cards >
               c->trace->capacity / 100 * percent ||
           c->cpu + pod->cpu_milli > c->trace->cpu_milli / 100 * percent;
}

/* Defragmentation: nodes and pods of the cluster by those of its ledger. */
struct defrag_view {
    const struct cluster *c;
    const struct trace_pod *target;
    uint32_t *nodes;   /* index by ledger_node.id */
    uint32_t *running; /* index by UID, which is a number */
};

static uint64_t uid_of(const struct ledger_pod *pod)
{
    return strtoull(pod->uid.p, NULL, 10);
}

static bool defrag_may_move(void *ctx, const struct ledger_pod *pod)
{
    (void)ctx;
    return pod->request->kind != REQUEST_NONE;
}

/* The models are in the request. */
static bool defrag_may_run(void *ctx, const struct ledger_pod *pod,
                           const struct ledger_node *node)
{
    (void)ctx;
    (void)pod;
    (void)node;
    return true;
}

static struct resources defrag_node_room(void *ctx, const struct ledger_node *node)
{
    const struct defrag_view *v = ctx;
    const struct replay_node *n = &v->c->nodes[v->nodes[node->id]];
    return (struct resources){n->cpu, n->memory, PODS_OF_A_NODE - (int64_t)n->pods};
}

static struct resources defrag_room_of(const struct trace_pod *pod)
{
    return (struct resources){pod->cpu_milli, pod->memory_mib, 1};
}

static struct resources defrag_pod_room(void *ctx, const struct ledger_pod *pod)
{
    const struct defrag_view *v = ctx;
    return defrag_room_of(v->c->running[v->running[uid_of(pod)]].is);
}

static void move_pod(struct cluster *c, const struct defrag_view *v,
                     const struct defrag_move *move)
{
    struct running_pod *t = &c->running[v->running[uid_of(move->pod)]];
    struct replay_node *from = &c->nodes[t->node];
    struct replay_node *to = &c->nodes[v->nodes[move->to->id]];
    struct ledger_pod *pod = ledger_pod_find(c->ledger, move->pod->uid);
    promise(c, to, t->is, pod);
    from->cpu += t->is->cpu_milli;
    from->memory += t->is->memory_mib;
    from->pods--;
    to->cpu -= t->is->cpu_milli;
    to->memory -= t->is->memory_mib;
    to->pods++;
    t->node = v->nodes[move->to->id];
}

static void run_plan(struct cluster *c, const struct defrag_view *v,
                     const struct defrag_plan *plan)
{
    struct request r = request_of_trace(v->target);
    uint32_t at = v->nodes[plan->node->id];
    for (size_t i = 0; i < plan->n; i++)
        move_pod(c, v, &plan->moves[i]);
    promise(c, &c->nodes[at], v->target, add_pending(c, v->target, &r));
    run(c, at, v->target, c->last_uid);
}

bool cluster_defragment(struct cluster *c, const struct trace_pod *pod, size_t most,
                        size_t *moves)
{
    struct request r = request_of_trace(pod);
    cleanup_arena struct arena a = {0};
    struct defrag_view v = {.c = c,
                            .target = pod,
                            .nodes =
                                xcalloc(ledger_node_slots(c->ledger), sizeof *v.nodes),
                            .running = xcalloc(c->last_uid + 1, sizeof *v.running)};
    struct defrag_plan plan;
    for (uint32_t i = 0; i < c->trace->n_nodes; i++)
        v.nodes[c->nodes[i].ledger->id] = i;
    for (uint32_t i = 0; i < c->n_running; i++)
        v.running[c->running[i].uid] = i;
    const struct defrag_world world = {c->ledger,        &v,
                                       defrag_may_move,  defrag_may_run,
                                       defrag_node_room, defrag_pod_room};
    const struct defrag_target target = {.pod.request = &r, .room = defrag_room_of(pod)};
    bool found = r.kind != REQUEST_NONE && defrag_find(&world, &target, &a, &plan) &&
                 plan.n <= most;
    *moves = found ? plan.n : 0;
    if (found)
        run_plan(c, &v, &plan);
    free(v.nodes);
    free(v.running);
    return found;
}
