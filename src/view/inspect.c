/* SPDX-License-Identifier: Apache-2.0 */
#include "view/inspect.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/jwrite.h"
#include "base/mem.h"
#include "domain/quantity.h"
#include "placement/reason.h"

/* The ledger as JSON: nodes and cards, pending pods with the reason of each, and the state of
 * this process. */

static int compare_pods(const void *a, const void *b)
{
    const struct ledger_pod *x = *(const struct ledger_pod *const *)a;
    const struct ledger_pod *y = *(const struct ledger_pod *const *)b;
    return span_cmp(x->ns, y->ns)
               ?: span_cmp(x->name, y->name)
               ?: span_cmp(x->uid, y->uid);
}

size_t view_sort_pods(const struct ledger_pod *first, struct arena *a,
                      const struct ledger_pod ***out)
{
    size_t n = 0, i = 0;
    for (const struct ledger_pod *pod = first; pod; pod = pod->next)
        n++;
    *out = arena_alloc(a, n * sizeof **out);
    for (const struct ledger_pod *pod = first; pod; pod = pod->next)
        (*out)[i++] = pod;
    if (n)
        qsort(*out, n, sizeof **out, compare_pods);
    return n;
}

/* Nothing for 0. */
static void write_set(struct jwrite *w, const char *key, int64_t value)
{
    if (value)
        jwrite_i64(w, key, value);
}

/* Nothing for false. */
static void write_true(struct jwrite *w, const char *key, bool value)
{
    if (value)
        jwrite_bool(w, key, true);
}

/* `use`: what it uses of the card; NULL: unknown. `core`: percent of the compute. */
static void write_pod(struct jwrite *w, const struct ledger_pod *pod, int64_t mib,
                      int64_t unit, const struct ledger_use *use, uint32_t core)
{
    jwrite_object(w, NULL);
    jwrite_str_set(w, "name", pod->name);
    jwrite_str_set(w, "namespace", pod->ns);
    jwrite_i64(w, "usedGPU", mib / unit);
    jwrite_str_set(w, "uid", pod->uid);
    jwrite_i64(w, "mib", mib);
    write_true(w, "wholeCard", pod->request->kind == REQUEST_CARDS);
    write_set(w, "computePercent", core);
    if (use && use->used_mib >= 0)
        jwrite_i64(w, "usedMiB", use->used_mib);
    if (use && use->sm_percent >= 0)
        jwrite_i64(w, "utilizationPercent", use->sm_percent);
    if (use)
        scv_write_isolation(w, "enforcedBy", use->enforced_by);
    jwrite_object_end(w);
}

const char *view_health(enum card_state state)
{
    static const char *const names[] = {[CARD_AVAILABLE] = "Healthy",
                                        [CARD_UNHEALTHY] = "Unhealthy",
                                        [CARD_EXCLUDED] = "Excluded",
                                        [CARD_HELD] = "OtherPlugin",
                                        [CARD_DUPLICATE] = "DuplicateUUID"};
    _Static_assert(ARRAY_LEN(names) == CARD_STATES, "a state without a name");
    return names[state];
}

/* What of the node's reservations is on the card. */
static void write_reservations(struct jwrite *w, const struct ledger_node *node,
                               const struct card *card)
{
    jwrite_i64(w, "reservedMiB", card->reserved_mib);
    write_set(w, "reservedComputePercent", card->compute_reserved);
    jwrite_array(w, "reservations");
    for (const struct ledger_reservation *r = node->reserved; r; r = r->next_here) {
        uint32_t i = 0;
        while (i < r->n_shares && &node->cards[r->shares[i].on] != card)
            i++;
        if (i == r->n_shares)
            continue;
        jwrite_object(w, NULL);
        jwrite_str_set(w, "name", r->name);
        jwrite_str_set(w, "namespace", r->ns);
        jwrite_str_set(w, "uid", r->uid);
        bool whole = r->request->kind == REQUEST_CARDS;
        jwrite_i64(w, "mib", whole ? card->total_mib : r->shares[i].mib);
        write_true(w, "wholeCard", whole);
        write_set(w, "computePercent", r->request->compute_percent);
        jwrite_object_end(w);
    }
    jwrite_array_end(w);
}

/* What connects the card to each card of the node; nothing where that is unknown. */
static void write_links(struct jwrite *w, const struct links *links, unsigned card)
{
    cleanup_buf struct buf row = {0};
    char word[8];
    if (!links)
        return;
    for (unsigned i = 0; i < links_cards(links); i++)
        buf_printf(&row, "%s%s", i ? " " : "",
                   link_word(links_pair(links, card, i), word));
    jwrite_str(w, "links", buf_span(&row));
    if (links_numa(links, card) >= 0)
        jwrite_i64(w, "numaNode", links_numa(links, card));
}

static void write_card(struct jwrite *w, const struct ledger_node *node,
                       const struct card *card, const struct ledger_pod **pods, size_t n,
                       int64_t unit)
{
    jwrite_object(w, NULL);
    jwrite_i64(w, "id", card->index);
    jwrite_i64(w, "totalGPU", card->total_mib / unit);
    jwrite_i64(w, "usedGPU", card->promised_mib / unit);
    jwrite_array(w, "pods");
    for (size_t i = 0; i < n; i++) {
        int64_t mib = ledger_pod_mib(pods[i], card);
        struct ledger_use use;
        bool used = ledger_pod_use(node, pods[i], card, &use);
        if (mib >= 0)
            write_pod(w, pods[i], mib, unit, used ? &use : NULL,
                      ledger_pod_core(pods[i], card));
    }
    jwrite_array_end(w);
    jwrite_str_set(w, "uuid", card->uuid);
    jwrite_str_set(w, "model", card->kind->model);
    jwrite_str_set(w, "migProfile", card->kind->profile);
    jwrite_str_set(w, "health", span_of(view_health(card->state)));
    jwrite_i64(w, "totalMiB", card->total_mib);
    jwrite_i64(w, "promisedMiB", card->promised_mib);
    write_set(w, "promisedComputePercent", card->compute_promised);
    if (card->used_mib >= 0)
        jwrite_i64(w, "usedMiB", card->used_mib);
    write_set(w, "withheldMiB", card->withheld_mib);
    write_set(w, "overuseMiB", card->overuse_mib);
    write_true(w, "usageComplete", card->use_known);
    if (card->reserved_mib)
        write_reservations(w, node, card);
    jwrite_i64(w, "freeMiB", card->free_mib);
    write_true(w, "overcommitted", card->overcommitted);
    write_links(w, node->links, (unsigned)(card - node->cards));
    jwrite_object_end(w);
}

/* Promises on cards that the node does not have, and pods whose card is unknown. */
static void write_unplaced(struct jwrite *w, const struct ledger_pod **pods, size_t n,
                           int64_t unit)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        const struct ledger_pod *pod = pods[i];
        const struct request *r = pod->request;
        int64_t mib = r->kind == REQUEST_MEMORY ? r->cards * r->mib_per_card : 0;
        if (pod->n_shares || r->kind == REQUEST_DEVICES || r->kind == REQUEST_NONE)
            mib = -1;
        for (uint32_t k = 0; k < pod->n_shares; k++)
            if (pod->shares[k].on < 0)
                mib = (mib < 0 ? 0 : mib) + pod->shares[k].mib;
        if (mib < 0)
            continue;
        if (!any)
            jwrite_array(w, "unplaced");
        any = true;
        write_pod(w, pod, mib, unit, NULL, 0);
    }
    if (any)
        jwrite_array_end(w);
}

/* CPU, memory and pod slots; nothing for a node that does not state them. */
static void write_space(struct jwrite *w, const struct ledger_node *node)
{
    struct resources has = ledger_node_allocatable(node);
    struct resources used = ledger_node_requested(node);
    const struct {
        const char *has, *used;
        int64_t all, taken;
    } rows[] = {{"cpuMilli", "cpuRequestedMilli", has.cpu_milli, used.cpu_milli},
                {"memoryBytes", "memoryRequestedBytes", has.memory, used.memory},
                {"podSlots", "podSlotsTaken", has.pods, used.pods}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].all) {
            jwrite_i64(w, rows[i].has, rows[i].all);
            jwrite_i64(w, rows[i].used, rows[i].taken);
        }
}

void view_inspect_write_node(void *ctx, const struct ledger *l,
                             const struct ledger_node *node)
{
    static const char *const sources[] = {
        [SOURCE_NONE] = "none", [SOURCE_SCV] = "scv", [SOURCE_CAPACITY] = "capacity"};
    struct jwrite *w = ctx;
    int64_t unit = ledger_settings(l)->unit_mib, total = 0, used = 0;
    cleanup_arena struct arena a = {0};
    const struct ledger_pod **pods;
    size_t n = view_sort_pods(node->pods, &a, &pods);
    for (uint32_t i = 0; i < node->n_cards; i++) {
        total += node->cards[i].total_mib / unit;
        used += node->cards[i].promised_mib / unit;
    }
    jwrite_object(w, NULL);
    jwrite_str_set(w, "name", node->name);
    jwrite_i64(w, "totalGPU", total);
    jwrite_i64(w, "usedGPU", used);
    jwrite_array(w, "devs");
    for (uint32_t i = 0; i < node->n_cards; i++)
        write_card(w, node, &node->cards[i], pods, n, unit);
    jwrite_array_end(w);
    jwrite_str_set(w, "source", span_of(sources[node->source]));
    scv_write_isolation(w, "isolation", node->isolation);
    write_unplaced(w, pods, n, unit);
    if (node->n_cards)
        write_space(w, node);
    if (node->mode == NODE_MEMORY || node->mode == NODE_CARDS)
        jwrite_str_set(w, "mode",
                       node->mode == NODE_CARDS ? SPAN("card") : SPAN("memory"));
    write_true(w, "schedulingDisabled", node->cordoned);
    if (node->unknown_listed_card >= 0)
        jwrite_i64(w, "unknownCard", node->unknown_listed_card);
    write_set(w, "claimedCards", node->claimed);
    cleanup_buf struct buf why = {0};
    reason_add_unusable(&why, node);
    jwrite_str_set(w, "reason", buf_span(&why));
    if (node->state == NODE_STALE)
        jwrite_i64(w, "heartbeatAgeSeconds", node->stale_s);
    write_true(w, "noGPU", node->state == NODE_NO_GPU);
    jwrite_object_end(w);
}

static void write_time(struct jwrite *w, const char *name, int64_t ns)
{
    cleanup_buf struct buf text = {0};
    clock_format_s(&text, ns / 1000000000);
    jwrite_str_set(w, name, buf_span(&text));
}

/* Since when and why the ledger is not current; nothing if it is. */
static void write_stale(struct jwrite *w, const struct core *core)
{
    struct err why;
    int64_t since_ns;
    if (core_current(core, step_now(), &since_ns, &why) == 0)
        return;
    if (since_ns)
        write_time(w, "staleSince", since_ns);
    jwrite_str_set(w, "staleReason", span_of(why.msg));
}

bool view_inspect_node(const struct view_source *source, struct span name,
                       struct buf *out)
{
    struct jwrite w = {.out = out};
    const struct core *core = source->read(source->ctx);
    const struct ledger *l = core_ledger(core);
    const struct ledger_node *node = ledger_node_find(l, name);
    jwrite_object(&w, NULL);
    jwrite_array(&w, "nodes");
    if (node)
        view_inspect_write_node(&w, l, node);
    jwrite_array_end(&w);
    if (!node)
        jwrite_str(&w, "error", SPAN("unknown node"));
    write_stale(&w, core);
    source->read_end(source->ctx);
    jwrite_object_end(&w);
    return node != NULL;
}

/* The members of the cluster but for pendingPods. */
static void write_core(const struct view_source *source, const struct core *core,
                       struct jwrite *w)
{
    enum { MINUTE_MS = 60 * 1000, SHOWN_FROM = 5 };
    struct err err = {0};
    struct step_time now = step_now();
    const struct ledger *l = core_ledger(core);
    cleanup_buf struct buf unit = {0};
    quantity_write_unit(&unit, ledger_settings(l)->unit_mib);
    jwrite_str_set(w, "unit", buf_span(&unit));
    jwrite_str_set(w, "hamiValues", span_of(source->hami_values));
    if (source->observer) {
        jwrite_bool(w, "observer", true);
    } else {
        const struct core_stats stats = core_stats(core);
        jwrite_bool(w, "leader", core_is_leader(core));
        jwrite_str_set(w, "holder", core_lease_holder(core));
        jwrite_i64(w, "overcommits", (int64_t)stats.overcommits);
        jwrite_i64(w, "bindsInFlight", (int64_t)stats.binds_in_flight);
        jwrite_i64(w, "preemptAfterSeconds", (stats.preempt_after_ms + 999) / 1000);
        int64_t idle =
            source->filter_ms ? (now.mono_ms - *source->filter_ms) / MINUTE_MS : 0;
        if (idle >= SHOWN_FROM)
            jwrite_i64(w, "filterIdleMinutes", idle);
    }
    if (!source->observer && core_ready(core, now, &err))
        jwrite_str_set(w, "error", span_of(err.msg));
    write_stale(w, core);
}

/* -- pending pods --
 *
 * Why a pod is pending: the closest node, with the reason that filter gives. Pods of the
 * same request and priority share one answer.
 */

enum { SLOTS_MAX = 1024 }; /* nodes scanned under one lock */

struct answer {
    struct request request; /* without parts */
    int64_t priority;
    bool nominated; /* a nomination of the pod, which does not count against it */
    const struct terms *terms;
    uint32_t seen, fits, excluded;
    bool never; /* no node can take it, even when empty */
    struct span node, reason, obstacles;
};

struct pending {
    const struct view_source *source;
    struct arena arena;
    struct core_preempt_status *preemptions; /* by UID */
    size_t n_preemptions;
    struct answer answers[VIEW_INSPECT_REASONS];
    size_t n_answers;
};

struct span view_nearest_node(const struct view_source *source, struct nearest_node *n,
                              const struct span *names, size_t count, bool usable,
                              struct arena *a)
{
    struct span nearest = {0};
    size_t i = 0, all = count;
    do {
        const struct ledger *l = core_ledger(source->read(source->ctx));
        /* Kept by name, because it may be deleted between two locks. */
        n->node = ledger_node_find(l, nearest);
        const struct ledger_node *before = n->node;
        all = names ? count : ledger_node_slots(l);
        for (size_t end = i + SLOTS_MAX; i < all && i < end; i++) {
            const struct ledger_node *node =
                names ? ledger_node_find(l, names[i]) : ledger_node_at(l, (uint32_t)i);
            if (node && (!usable || node->state == NODE_USABLE))
                nearest_node_visit(n, node);
        }
        if (n->node != before)
            nearest = arena_copy(a, n->node->name);
        else if (!n->node)
            nearest = (struct span){0};
        source->read_end(source->ctx);
    } while (i < all);
    return nearest;
}

/* The answer for the pod, which is to be computed if it is new. NULL: there are too many
 * different requests. */
static struct answer *answer_for(struct pending *p, const struct ledger_pod *pod,
                                 bool *is_new)
{
    ARRAY_EACH_ITEM(struct answer, a, p->answers, p->n_answers)
    {
        if (!a->nominated && !pod->nomination && a->priority == pod->priority &&
            terms_equal(a->terms, pod->terms) && request_equal(&a->request, pod->request))
            return a;
    }
    if (p->n_answers == ARRAY_LEN(p->answers))
        return NULL;
    struct answer *a = &p->answers[p->n_answers++];
    const size_t size = terms_size(pod->terms);
    *a = (struct answer){
        .request = request_copy_without_parts(pod->request, &p->arena),
        .priority = pod->priority,
        .terms = size ? memcpy(arena_alloc(&p->arena, size), pod->terms, size) : NULL,
        .nominated = pod->nomination != NULL};
    *is_new = true;
    return a;
}

static void write_obstacles(struct buf *out, const struct obstacle *list, size_t n)
{
    struct jwrite w = {.out = out};
    jwrite_array(&w, NULL);
    for (const struct obstacle *o = list; o < list + n; o++) {
        jwrite_object(&w, NULL);
        if (o->card)
            jwrite_i64(&w, "card", o->card->index);
        jwrite_str(&w, "obstacle", span_of(obstacle_words[o->kind].word));
        jwrite_i64(&w, "needed", o->needed);
        jwrite_i64(&w, "there", o->there);
        jwrite_object_end(&w);
    }
    jwrite_array_end(&w);
}

static void compute_answer(struct pending *p, struct answer *a, struct span uid)
{
    const struct view_source *source = p->source;
    struct nearest_node n;
    nearest_node_init(&n, &(struct select_pod){&a->request, a->priority, uid, NULL});
    n.own_terms = true;
    n.terms = a->terms;
    a->node = view_nearest_node(source, &n, NULL, 0, false, &p->arena);
    a->seen = n.seen;
    a->fits = n.fits;
    a->excluded = n.excluded;
    a->never = a->node.n && n.fit == FIT_NEVER;
    if (!a->node.n || n.fit == FIT_YES)
        return;
    cleanup_buf struct buf why = {0}, obstacles = {0};
    const struct ledger_node *node =
        ledger_node_find(core_ledger(source->read(source->ctx)), a->node);
    if (node) {
        struct obstacle list[OBSTACLES_MAX];
        size_t count = reason_list(node, &(struct reason_ask){.pod = n.pod}, list);
        reason_write(&why, node, n.pod.request, list, count);
        write_obstacles(&obstacles, list, count);
    }
    source->read_end(source->ctx);
    a->reason = arena_copy(&p->arena, buf_span(&why));
    a->obstacles = arena_copy(&p->arena, buf_span(&obstacles));
}

static void write_why(struct jwrite *w, const struct answer *answer)
{
    jwrite_i64(w, "fittingNodes", answer->fits);
    write_true(w, "neverFits", answer->never);
    jwrite_str_set(w, "closestNode", answer->node);
    if (!answer->seen)
        jwrite_str_set(w, "reason",
                       answer->excluded ? SPAN("the pod's own terms exclude every node")
                                        : SPAN("no nodes are known"));
    else
        jwrite_str_set(w, "reason", answer->reason);
    if (answer->obstacles.n)
        jwrite_raw(w, "obstacles", answer->obstacles);
}

static int compare_uid(const void *uid, const void *status)
{
    const struct core_preempt_status *s = status;
    return span_cmp(*(const struct span *)uid, s->uid);
}

/* What layout preemption does for the pod. */
static void write_preemption(struct jwrite *w, const struct core_preempt_status *s)
{
    static const char *const states[] = {[CORE_PREEMPT_WAITING] = "waiting",
                                         [CORE_PREEMPT_NOMINATING] = "nominating",
                                         [CORE_PREEMPT_EVICTING] = "evicting",
                                         [CORE_PREEMPT_DONE] = "limited"};
    static const char *const found[] = {[CORE_PREEMPT_UNSEARCHED] = "",
                                        [CORE_PREEMPT_NO_VICTIMS] = "no-victims",
                                        [CORE_PREEMPT_NOT_NEEDED] = "not-needed",
                                        [CORE_PREEMPT_VICTIMS] = "victims"};
    jwrite_object(w, "preemption");
    jwrite_str_set(w, "state", span_of(states[s->state]));
    write_time(w, "since", s->since_ns);
    if (s->state == CORE_PREEMPT_WAITING)
        write_time(w, "searchAfter", s->search_ns);
    jwrite_str_set(w, "lastSearch", span_of(found[s->found]));
    jwrite_i64(w, "candidateNodes", (int64_t)s->candidates);
    jwrite_str_set(w, "node", s->node);
    if (s->node.n) {
        jwrite_i64(w, "victims", (int64_t)s->victims);
        jwrite_i64(w, "victimsLeft", (int64_t)s->left);
    }
    if (s->refused) {
        jwrite_i64(w, "refusedEvictions", s->refused);
        jwrite_bool(w, "refusedByBudget", s->by_budget);
    }
    if (s->state == CORE_PREEMPT_DONE)
        write_time(w, "noEvictionBefore", s->until_ns);
    jwrite_object_end(w);
}

static void write_pending_pod(struct pending *p, struct span uid, struct jwrite *w)
{
    const struct view_source *source = p->source;
    const struct core *core = source->read(source->ctx);
    const struct ledger *l = core_ledger(core);
    const struct ledger_pod *pod = ledger_pod_find(l, uid);
    struct answer *answer = NULL;
    struct err quota = {0};
    bool is_new = false;
    if (!pod || pod->node) {
        source->read_end(source->ctx);
        return;
    }
    jwrite_object(w, NULL);
    jwrite_str_set(w, "name", pod->name);
    jwrite_str_set(w, "namespace", pod->ns);
    jwrite_str_set(w, "uid", uid);
    if (pod->invalid_reason) {
        jwrite_str_set(w, "error", span_of(pod->invalid_reason));
    } else {
        cleanup_buf struct buf request = {0};
        request_write(&request, pod->request, ledger_settings(l)->unit_mib);
        jwrite_str_set(w, "request", buf_span(&request));
        answer = answer_for(p, pod, &is_new);
        core_quota_check(core, step_now(), pod->ns, uid, pod->request, NULL, 0, &quota);
        jwrite_str_set(w, "quota",
                       quota.code == ERR_UNAVAILABLE
                           ? SPAN("not ready: resourcequotas are unknown") /* no age */
                           : span_of(quota.msg));
    }
    if (pod->member && core_is_leader(core)) {
        cleanup_buf struct buf gang = {0};
        buf_printf(&gang, "gang %.*s: ", SPAN_ARG(pod->member->gang->name));
        core_gang_members(core, pod->member->gang, &gang);
        jwrite_str_set(w, "gang", buf_span(&gang));
        write_true(w, "held", core_is_held(core, uid));
    }
    source->read_end(source->ctx);
    if (is_new)
        compute_answer(p, answer, uid);
    if (answer)
        write_why(w, answer);
    const struct core_preempt_status *preemption =
        p->n_preemptions ? bsearch(&uid, p->preemptions, p->n_preemptions,
                                   sizeof *p->preemptions, compare_uid)
                         : NULL;
    if (preemption)
        write_preemption(w, preemption);
    jwrite_object_end(w);
}

/* The member `pendingPods`. Takes the lock several times, each for a bounded number of
 * nodes. */
static void write_pending(const struct view_source *source, struct jwrite *w)
{
    struct pending p = {.source = source};
    const struct core *core = source->read(source->ctx);
    const struct ledger_pod **pods;
    size_t n = view_sort_pods(ledger_first_pending(core_ledger(core)), &p.arena, &pods);
    struct span *uids = arena_alloc(&p.arena, n * sizeof *uids);
    for (size_t i = 0; i < n; i++)
        uids[i] = arena_copy(&p.arena, pods[i]->uid);
    p.n_preemptions = core_preempt_list(core, &p.arena, &p.preemptions);
    source->read_end(source->ctx);
    jwrite_array(w, "pendingPods");
    for (size_t i = 0; i < n; i++)
        write_pending_pod(&p, uids[i], w);
    jwrite_array_end(w);
    arena_fini(&p.arena);
}

/* -- all of it -- */

void view_source_each_node(const struct view_source *source, view_source_node_fn fn,
                           void *ctx)
{
    cleanup_arena struct arena a = {0};
    const struct ledger *l = core_ledger(source->read(source->ctx));
    uint32_t slots = ledger_node_slots(l);
    struct span *names = arena_alloc(&a, slots * sizeof *names);
    size_t n = 0;
    for (uint32_t i = 0; i < slots; i++)
        if (ledger_node_at(l, i))
            names[n++] = arena_copy(&a, ledger_node_at(l, i)->name);
    source->read_end(source->ctx);
    if (n)
        qsort(names, n, sizeof *names, span_compare);
    for (size_t i = 0; i < n; i++) {
        l = core_ledger(source->read(source->ctx));
        const struct ledger_node *node = ledger_node_find(l, names[i]);
        if (node)
            fn(ctx, l, node);
        source->read_end(source->ctx);
    }
}

static void write_cluster(const struct view_source *source, struct jwrite *w)
{
    write_core(source, source->read(source->ctx), w);
    source->read_end(source->ctx);
    write_pending(source, w);
}

void view_inspect_write_cluster(const struct view_source *source, struct buf *out)
{
    write_cluster(source, &(struct jwrite){.out = out});
}

void view_inspect_state(const struct view_source *source, struct buf *out)
{
    const struct core *core = source->read(source->ctx);
    const struct ledger *l = core_ledger(core);
    const struct quotas *quotas = core_quotas(core);
    buf_printf(out, "%llu %llu %llu %llu %d ", (unsigned long long)ledger_generation(l),
               (unsigned long long)ledger_pending_generation(l),
               (unsigned long long)core_preempt_generation(core),
               (unsigned long long)(quotas ? quotas->generation : 0),
               core_quotas_ready(core, step_now(), NULL));
    write_core(source, core, &(struct jwrite){.out = out});
    source->read_end(source->ctx);
}

void view_inspect_all(const struct view_source *source, struct buf *out)
{
    struct jwrite w = {.out = out};
    jwrite_object(&w, NULL);
    jwrite_array(&w, "nodes");
    view_source_each_node(source, view_inspect_write_node, &w);
    jwrite_array_end(&w);
    write_cluster(source, &w);
    jwrite_object_end(&w);
}
