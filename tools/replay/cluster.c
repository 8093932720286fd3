/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/cluster.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "placement/defrag.h"
#include "placement/placement.h"

enum { PODS_OF_A_NODE = 1001 }; /* the maximum of openb's own simulator */

struct replay_node {
    const struct trace_node *is;
    const struct ledger_node *ledger;
    int64_t cpu, memory; /* free */
    uint32_t pods;
};

struct running_pod {
    const struct trace_pod *is;
    struct ledger_pod *pod; /* owned by the ledger */
    uint32_t node;
};

struct cluster {
    const struct trace *trace;
    enum score_policy policy;
    bool sees_cpu;
    struct ledger *ledger;
    struct mix mix; /* the ledger's, with CPU */
    struct replay_node *nodes;
    struct running_pod *running;
    size_t n_running, running_cap;
    int64_t allocated, cpu; /* of all running pods */
    uint64_t last_uid;
    /* The nodes that fit the current pod, and their scores. */
    struct score_node *candidates;
    uint32_t *candidate_nodes;
    int *points;
    struct score_scratch scratch;
};

static const struct ledger_node *add_node(struct ledger *l, const struct trace_node *n)
{
    struct scv_card cards[TRACE_MAX_CARDS];
    struct scv scv = {.meta = {.name = n->name}, .cards = cards, .n_cards = n->cards};
    for (uint32_t i = 0; i < n->cards; i++)
        cards[i] = (struct scv_card){.id = (int32_t)i,
                                     .healthy = true,
                                     .total_mib = TRACE_CARD,
                                     .free_mib = TRACE_CARD,
                                     .model = n->model};
    ledger_scv_seen(l, &scv, 0);
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
                                           .ledger = add_node(c->ledger, n),
                                           .cpu = n->cpu_milli,
                                           .memory = n->memory_mib};
    }
    return c;
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

static bool node_fits(const struct replay_node *node, const struct trace_pod *pod,
                      const struct request *r)
{
    return node->cpu >= pod->cpu_milli && node->memory >= pod->memory_mib &&
           node->pods < PODS_OF_A_NODE &&
           (r->kind == REQUEST_NONE || placement_fit(node->ledger, r) == FIT_YES);
}

static size_t find_candidates(struct cluster *c, const struct trace_pod *pod,
                              const struct request *r)
{
    size_t n = 0;
    for (uint32_t i = 0; i < c->trace->n_nodes; i++) {
        const struct replay_node *node = &c->nodes[i];
        if (!node_fits(node, pod, r))
            continue;
        c->candidates[n] = (struct score_node){.node = node->ledger};
        if (c->sees_cpu) {
            c->candidates[n].cpu_milli = node->is->cpu_milli;
            c->candidates[n].cpu_free = node->cpu;
        }
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

static void place(struct cluster *c, uint32_t at, const struct trace_pod *is,
                  struct ledger_pod *pod, const struct request *r)
{
    struct replay_node *node = &c->nodes[at];
    struct ledger_share shares[REQUEST_MAX_CARDS] = {0};
    uint32_t picks[REQUEST_MAX_CARDS], n = 0;
    if (r->kind != REQUEST_NONE && placement_choose(node->ledger, r, picks))
        for (; n < r->cards; n++) {
            shares[n].card = node->ledger->cards[picks[n]].index;
            shares[n].mib = is->gpu_milli;
        }
    ledger_pod_place(c->ledger, pod, node->is->name, shares, n);
    node->cpu -= is->cpu_milli;
    node->memory -= is->memory_mib;
    node->pods++;
    c->allocated += is->gpu_milli * is->cards;
    c->cpu += is->cpu_milli;
    MEM_GROW(c->running, c->running_cap, c->n_running + 1);
    c->running[c->n_running++] = (struct running_pod){is, pod, at};
}

/* The kinds of cards are the ledger's. */
static void add_to_mix(struct cluster *c, const struct request *r, int64_t cpu)
{
    const struct mix *ledger = ledger_mix(c->ledger);
    memcpy(c->mix.kinds, ledger->kinds, sizeof c->mix.kinds);
    c->mix.n_kinds = ledger->n_kinds;
    mix_add(&c->mix, r, cpu);
}

static struct ledger_pod *add_pending(struct cluster *c, const struct trace_pod *is,
                                      const struct request *r)
{
    char uid[32];
    int uid_n = snprintf(uid, sizeof uid, "%llu", (unsigned long long)++c->last_uid);
    struct pod pod = {.meta = {.uid = {uid, (size_t)uid_n}, .name = is->name}};
    return ledger_pod_add(c->ledger, &pod, r, NULL);
}

bool cluster_arrive(struct cluster *c, const struct trace_pod *is, struct rng *rng)
{
    struct request r = request_of_trace(is);
    struct ledger_pod *pending = add_pending(c, is, &r);
    int64_t cpu = c->sees_cpu ? is->cpu_milli : 0;
    struct score_pod asks = {.request = &r, .cpu_milli = cpu};
    add_to_mix(c, &r, cpu);

    size_t n = find_candidates(c, is, &r);
    if (n == 0) {
        ledger_pod_remove(c->ledger, pending);
        return false;
    }
    score_nodes(c->policy, &asks, &c->mix, c->candidates, n, &c->scratch, c->points);
    place(c, c->candidate_nodes[pick(c->points, n, rng)], is, pending, &r);
    return true;
}

static void remove_running(struct cluster *c, size_t i)
{
    struct running_pod *t = &c->running[i];
    struct replay_node *node = &c->nodes[t->node];
    node->cpu += t->is->cpu_milli;
    node->memory += t->is->memory_mib;
    node->pods--;
    c->allocated -= t->is->gpu_milli * t->is->cards;
    c->cpu -= t->is->cpu_milli;
    ledger_pod_remove(c->ledger, t->pod);
    *t = c->running[--c->n_running];
}

void cluster_leave(struct cluster *c, struct rng *rng)
{
    remove_running(c, rng_below(rng, c->n_running));
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

static void defrag_view_init(struct defrag_view *v, const struct cluster *c,
                             const struct trace_pod *target)
{
    *v = (struct defrag_view){.c = c, .target = target};
    v->nodes = xcalloc(ledger_node_slots(c->ledger), sizeof *v->nodes);
    v->running = xcalloc(c->last_uid + 1, sizeof *v->running);
    for (uint32_t i = 0; i < c->trace->n_nodes; i++)
        v->nodes[c->nodes[i].ledger->id] = i;
    for (uint32_t i = 0; i < c->n_running; i++)
        v->running[uid_of(c->running[i].pod)] = i;
}

static const struct trace_pod *trace_pod_of(const struct defrag_view *v,
                                            const struct ledger_pod *pod)
{
    return v->c->running[v->running[uid_of(pod)]].is;
}

static bool defrag_may_move(void *ctx, const struct ledger_pod *pod)
{
    (void)ctx;
    return pod->request.kind != REQUEST_NONE;
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
    return defrag_room_of(trace_pod_of(ctx, pod));
}

/* Removes the running pod, and schedules a pod like it to the node. */
static void move_pod(struct cluster *c, uint32_t running, uint32_t to)
{
    struct running_pod *t = &c->running[running];
    const struct trace_pod *is = t->is;
    struct request r = request_of_trace(is);
    remove_running(c, running);
    place(c, to, is, add_pending(c, is, &r), &r);
}

static void run_plan(struct cluster *c, const struct defrag_view *v,
                     const struct defrag_plan *plan)
{
    struct request r = request_of_trace(v->target);
    cleanup_free uint64_t *uids = xcalloc(plan->n + 1, sizeof *uids);
    for (size_t i = 0; i < plan->n; i++)
        uids[i] = uid_of(plan->moves[i].pod);
    for (size_t i = 0; i < plan->n; i++)
        for (uint32_t k = 0; k < c->n_running; k++)
            if (uid_of(c->running[k].pod) == uids[i]) {
                move_pod(c, k, v->nodes[plan->moves[i].to->id]);
                break;
            }
    place(c, v->nodes[plan->node->id], v->target, add_pending(c, v->target, &r), &r);
}

bool cluster_defragment(struct cluster *c, const struct trace_pod *pod, size_t most,
                        size_t *moves)
{
    struct request r = request_of_trace(pod);
    cleanup_arena struct arena a = {0};
    struct defrag_view v;
    struct defrag_plan plan;
    defrag_view_init(&v, c, pod);
    const struct defrag_world world = {c->ledger,        &v,
                                       defrag_may_move,  defrag_may_run,
                                       defrag_node_room, defrag_pod_room};
    const struct defrag_target target = {.request = &r, .room = defrag_room_of(pod)};
    bool found = r.kind != REQUEST_NONE && defrag_find(&world, &target, &a, &plan) &&
                 plan.n <= most;
    *moves = found ? plan.n : 0;
    if (found)
        run_plan(c, &v, &plan);
    free(v.nodes);
    free(v.running);
    return found;
}
