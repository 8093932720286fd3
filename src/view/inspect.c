/* SPDX-License-Identifier: Apache-2.0 */
#include "view/inspect.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "domain/quantity.h"
#include "placement/reason.h"

/* The ledger as JSON: nodes and cards, pending pods with the reason of each, and the state of
 * this process. */

/* Writers of members. Each writes the comma before its member, if one is needed. */

static void add_comma(struct buf *out)
{
    char last = out->n ? out->p[out->n - 1] : '{';
    if (last != '{' && last != '[')
        buf_addc(out, ',');
}

static void add_key(struct buf *out, const char *name)
{
    add_comma(out);
    buf_addc(out, '"');
    buf_adds(out, name);
    buf_adds(out, "\":");
}

static void add_number(struct buf *out, const char *name, int64_t value)
{
    add_key(out, name);
    buf_add_i64(out, value);
}

/* Omits an empty value. */
static void add_string(struct buf *out, const char *name, struct span value)
{
    if (!value.n)
        return;
    add_key(out, name);
    buf_add_json(out, value);
}

static void add_bool(struct buf *out, const char *name, bool value)
{
    add_key(out, name);
    buf_adds(out, value ? "true" : "false");
}

static int compare_ledger_pods(const void *a, const void *b)
{
    const struct ledger_pod *x = *(const struct ledger_pod *const *)a;
    const struct ledger_pod *y = *(const struct ledger_pod *const *)b;
    int c = span_cmp(x->ns, y->ns);
    c = c ? c : span_cmp(x->name, y->name);
    return c ? c : span_cmp(x->uid, y->uid);
}

struct pods {
    const struct ledger_pod **items;
    size_t n, cap;
};

static void pods_add(struct pods *pods, const struct ledger_pod *pod)
{
    MEM_GROW(pods->items, pods->cap, pods->n + 1);
    pods->items[pods->n++] = pod;
}

static void pods_sort(struct pods *pods)
{
    if (pods->n)
        qsort(pods->items, pods->n, sizeof *pods->items, compare_ledger_pods);
}

/* `use`: what it uses of the card; NULL: unknown. `core`: percent of the compute. */
static void write_pod(struct buf *out, const struct ledger_pod *pod, int64_t mib,
                      int64_t unit, const struct ledger_use *use, uint32_t core)
{
    add_comma(out);
    buf_addc(out, '{');
    add_string(out, "name", pod->name);
    add_string(out, "namespace", pod->ns);
    add_number(out, "usedGPU", mib / unit);
    add_string(out, "uid", pod->uid);
    add_number(out, "mib", mib);
    if (pod->request->kind == REQUEST_CARDS)
        add_bool(out, "wholeCard", true);
    if (core)
        add_number(out, "computePercent", core);
    if (use && use->used_mib >= 0)
        add_number(out, "usedMiB", use->used_mib);
    if (use && use->sm_percent >= 0)
        add_number(out, "utilizationPercent", use->sm_percent);
    buf_addc(out, '}');
}

static const char *health(enum card_state out)
{
    static const char *const names[] = {[CARD_AVAILABLE] = "Healthy",
                                        [CARD_UNHEALTHY] = "Unhealthy",
                                        [CARD_LISTED] = "Excluded",
                                        [CARD_HELD] = "OtherPlugin",
                                        [CARD_DUPLICATE] = "DuplicateUUID"};
    return names[out];
}

/* What of the node's reservations is on the card. */
static void write_reservations(struct buf *out, const struct ledger_node *node,
                               const struct card *card)
{
    add_number(out, "reservedMiB", card->reserved_mib);
    if (card->core_reserved)
        add_number(out, "reservedComputePercent", card->core_reserved);
    add_key(out, "reservations");
    buf_addc(out, '[');
    for (const struct ledger_reservation *r = node->reserved; r; r = r->next_here) {
        uint32_t i = 0;
        while (i < r->n_shares && r->shares[i].on != card)
            i++;
        if (i == r->n_shares)
            continue;
        add_comma(out);
        buf_addc(out, '{');
        add_string(out, "name", r->name);
        add_string(out, "namespace", r->ns);
        add_string(out, "uid", r->uid);
        add_number(out, "mib", r->whole ? card->total_mib : r->shares[i].mib);
        if (r->whole)
            add_bool(out, "wholeCard", true);
        if (r->core)
            add_number(out, "computePercent", r->core);
        buf_addc(out, '}');
    }
    buf_addc(out, ']');
}

static void write_card(struct buf *out, const struct ledger_node *node,
                       const struct card *card, const struct pods *pods, int64_t unit)
{
    add_comma(out);
    buf_addc(out, '{');
    add_number(out, "id", card->index);
    add_number(out, "totalGPU", card->total_mib / unit);
    add_number(out, "usedGPU", card->promised_mib / unit);
    add_key(out, "pods");
    buf_addc(out, '[');
    for (size_t i = 0; i < pods->n; i++) {
        int64_t mib = ledger_pod_mib(pods->items[i], card);
        struct ledger_use use;
        bool used = ledger_pod_use(node, pods->items[i], card, &use);
        if (mib >= 0)
            write_pod(out, pods->items[i], mib, unit, used ? &use : NULL,
                      ledger_pod_core(pods->items[i], card));
    }
    buf_addc(out, ']');
    add_string(out, "uuid", card->uuid);
    add_string(out, "model", card->model);
    add_string(out, "health", span_of(health(card->state)));
    add_number(out, "totalMiB", card->total_mib);
    add_number(out, "promisedMiB", card->promised_mib);
    if (card->core_promised)
        add_number(out, "promisedComputePercent", card->core_promised);
    if (card->used_mib >= 0)
        add_number(out, "usedMiB", card->used_mib);
    if (card->withheld_mib)
        add_number(out, "withheldMiB", card->withheld_mib);
    if (card->overuse_mib)
        add_number(out, "overuseMiB", card->overuse_mib);
    if (card->use_known)
        add_bool(out, "usageComplete", true);
    if (card->reserved_mib)
        write_reservations(out, node, card);
    add_number(out, "freeMiB", card->free_mib);
    if (card->overcommitted)
        add_bool(out, "overcommitted", true);
    buf_addc(out, '}');
}

/* Promises on cards that the node does not have, and pods whose card is unknown. */
static void write_unplaced(struct buf *out, const struct pods *pods, int64_t unit)
{
    bool any = false;
    for (size_t i = 0; i < pods->n; i++) {
        const struct ledger_pod *pod = pods->items[i];
        const struct request *r = pod->request;
        int64_t mib = r->kind == REQUEST_MEMORY ? r->cards * r->mib_per_card : 0;
        if (pod->n_shares || r->kind == REQUEST_DEVICES || r->kind == REQUEST_NONE)
            mib = -1;
        for (uint32_t k = 0; k < pod->n_shares; k++)
            if (!pod->shares[k].on)
                mib = (mib < 0 ? 0 : mib) + pod->shares[k].mib;
        if (mib < 0)
            continue;
        if (!any) {
            add_key(out, "unplaced");
            buf_addc(out, '[');
        }
        any = true;
        write_pod(out, pod, mib, unit, NULL, 0);
    }
    if (any)
        buf_addc(out, ']');
}

static const char *source(enum node_source source)
{
    return source == SOURCE_SCV ? "scv" : source == SOURCE_CAPACITY ? "capacity" : "none";
}

/* CPU, memory and pod slots; nothing for a node that does not state them. */
static void write_space(struct buf *out, const struct ledger_node *node)
{
    struct resources has = ledger_node_allocatable(node);
    struct resources used = ledger_node_requested(node);
    if (has.cpu_milli) {
        add_number(out, "cpuMilli", has.cpu_milli);
        add_number(out, "cpuRequestedMilli", used.cpu_milli);
    }
    if (has.memory) {
        add_number(out, "memoryBytes", has.memory);
        add_number(out, "memoryRequestedBytes", used.memory);
    }
    if (has.pods) {
        add_number(out, "podSlots", has.pods);
        add_number(out, "podSlotsTaken", used.pods);
    }
}

void view_inspect_write_node(const struct ledger *l, const struct ledger_node *node,
                             struct buf *out)
{
    int64_t unit = ledger_settings(l)->unit_mib, total = 0, used = 0;
    cleanup_free const struct ledger_pod **items = NULL;
    struct pods pods = {0};
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next)
        pods_add(&pods, pod);
    items = pods.items;
    pods_sort(&pods);
    for (uint32_t i = 0; i < node->n_cards; i++) {
        total += node->cards[i].total_mib / unit;
        used += node->cards[i].promised_mib / unit;
    }
    buf_addc(out, '{');
    add_string(out, "name", node->name);
    add_number(out, "totalGPU", total);
    add_number(out, "usedGPU", used);
    add_key(out, "devs");
    buf_addc(out, '[');
    for (uint32_t i = 0; i < node->n_cards; i++)
        write_card(out, node, &node->cards[i], &pods, unit);
    buf_addc(out, ']');
    add_string(out, "source", span_of(source(node->source)));
    write_unplaced(out, &pods, unit);
    if (node->n_cards)
        write_space(out, node);
    if (node->mode == NODE_MEMORY || node->mode == NODE_CARDS)
        add_string(out, "mode",
                            node->mode == NODE_CARDS ? SPAN("card") : SPAN("memory"));
    if (node->cordoned)
        add_bool(out, "schedulingDisabled", true);
    if (node->unknown_listed_card >= 0)
        add_number(out, "unknownCard", node->unknown_listed_card);
    if (node->claimed)
        add_number(out, "claimedCards", node->claimed);
    if (node->state != NODE_USABLE || node->mode == NODE_MODE_WRONG) {
        cleanup_buf struct buf why = {0};
        struct request any = {.kind = REQUEST_MEMORY, .cards = 1};
        reason_add(&why, node, &any, select_fit(node, &any));
        add_string(out, "reason", buf_span(&why));
    }
    if (node->state == NODE_STALE)
        add_number(out, "heartbeatAgeSeconds", node->stale_s);
    if (node->state == NODE_NO_GPU)
        add_bool(out, "noGPU", true);
    buf_addc(out, '}');
}

static void write_node(void *ctx, const struct ledger *l, const struct ledger_node *node)
{
    add_comma(ctx);
    view_inspect_write_node(l, node, ctx);
}

bool view_inspect_node(const struct view_source *source, struct span name,
                       struct buf *out)
{
    const struct ledger *l = core_ledger(source->read(source->ctx));
    const struct ledger_node *node = ledger_node_find(l, name);
    buf_adds(out, "{\"nodes\":[");
    if (node)
        view_inspect_write_node(l, node, out);
    buf_addc(out, ']');
    if (!node)
        add_string(out, "error", SPAN("unknown node"));
    source->read_end(source->ctx);
    buf_addc(out, '}');
    return node != NULL;
}

/* The members of the cluster but for pendingPods. */
static void write_core(const struct core *core, bool observer, struct buf *out)
{
    struct err err = {0};
    struct core_time now = {clock_mono_ms(), clock_wall_ns()};
    const struct ledger *l = core_ledger(core);
    cleanup_buf struct buf unit = {0};
    quantity_write_unit(&unit, ledger_settings(l)->unit_mib);
    add_string(out, "unit", buf_span(&unit));
    if (observer) {
        add_bool(out, "observer", true);
    } else {
        add_bool(out, "leader", core_is_leader(core));
        add_string(out, "holder", core_lease_holder(core));
        add_number(out, "overcommits", (int64_t)core_overcommits(core));
        add_number(out, "bindsInFlight", (int64_t)core_binds_in_flight(core));
        add_number(out, "preemptAfterSeconds",
                            (core_preempt_after_ms(core) + 999) / 1000);
    }
    if (core_ready(core, now, &err))
        add_string(out, "error", span_of(err.msg));
}

/* -- pending pods --
 *
 * Why a pod is pending: the closest node, with the reason that filter gives. Pods of the
 * same request and priority share one answer.
 */

enum { SLOTS_MAX = 1024 }; /* nodes scanned under one lock */

/* A pending pod; copied from the ledger. */
struct pending_pod {
    struct span ns, name, uid, invalid_reason;
    struct request request; /* without parts */
    int64_t priority;
    bool nominated; /* its own nomination does not count against it */
};

struct answer {
    const struct pending_pod *pod; /* the first one with this answer */
    uint32_t seen, fits;
    bool never; /* no node can take it, even when empty */
    struct span node, reason;
};

struct pending_pods {
    struct arena arena;
    struct pending_pod *pods;
    size_t n;
    struct core_preempt_status *preemptions; /* by UID */
    size_t n_preemptions;
    int64_t unit_mib;
    struct answer answers[VIEW_INSPECT_REASONS];
    size_t n_answers;
};

static int compare_pending(const void *a, const void *b)
{
    const struct pending_pod *x = a, *y = b;
    int c = span_cmp(x->ns, y->ns);
    c = c ? c : span_cmp(x->name, y->name);
    return c ? c : span_cmp(x->uid, y->uid);
}

static void copy_pending(struct pending_pods *all, const struct view_source *source)
{
    struct arena *a = &all->arena;
    const struct core *core = source->read(source->ctx);
    const struct ledger *l = core_ledger(core);
    all->unit_mib = ledger_settings(l)->unit_mib;
    all->n_preemptions = core_preempt_list(core, a, &all->preemptions);
    all->pods = arena_zalloc(a, ledger_pending(l) * sizeof *all->pods);
    for (const struct ledger_pod *pod = ledger_first_pending(l); pod; pod = pod->next) {
        struct pending_pod *p = &all->pods[all->n++];
        *p = (struct pending_pod){.ns = arena_copy(a, pod->ns),
                                  .name = arena_copy(a, pod->name),
                                  .uid = arena_copy(a, pod->uid),
                                  .invalid_reason =
                                      arena_copy(a, span_of(pod->invalid_reason)),
                                  .request = *pod->request,
                                  .priority = pod->priority,
                                  .nominated = pod->nomination != NULL};
        p->request.models = arena_copy(a, pod->request->models);
        p->request.parts = NULL;
        p->request.n_parts = 0;
    }
    source->read_end(source->ctx);
    if (all->n)
        qsort(all->pods, all->n, sizeof *all->pods, compare_pending);
}

/* Scans nodes from *slot on. The closest node so far is kept by name, because it may be
 * deleted between two calls. False: *slot is at the end. */
static bool scan_closest(const struct view_source *source, struct arena *a, uint32_t *slot,
                 struct nearest_node *n, struct answer *answer)
{
    const struct ledger *l = core_ledger(source->read(source->ctx));
    uint32_t slots = ledger_node_slots(l), end = slots;
    if (slots - *slot > SLOTS_MAX)
        end = *slot + SLOTS_MAX;
    n->node = answer->node.n ? ledger_node_find(l, answer->node) : NULL;
    const struct ledger_node *before = n->node;
    for (; *slot < end; ++*slot)
        if (ledger_node_at(l, *slot))
            nearest_node_visit(n, ledger_node_at(l, *slot));
    if (n->node && n->node != before)
        answer->node = arena_copy(a, n->node->name);
    else if (!n->node)
        answer->node = SPAN("");
    bool more = *slot < slots;
    if (!more && n->node && n->fit != FIT_YES) {
        cleanup_buf struct buf why = {0};
        reason_add_schedulable(&why, n->node, &n->pod);
        answer->reason = arena_copy(a, buf_span(&why));
    }
    source->read_end(source->ctx);
    return more;
}

static void compute_answer(struct pending_pods *all, const struct view_source *source,
                           struct answer *answer)
{
    const struct pending_pod *pod = answer->pod;
    struct nearest_node n;
    uint32_t slot = 0;
    nearest_node_init(&n,
                      &(struct select_pod){&pod->request, pod->priority, pod->uid, NULL});
    while (scan_closest(source, &all->arena, &slot, &n, answer))
        ;
    answer->seen = n.seen;
    answer->fits = n.fits;
    answer->never = n.node && n.fit == FIT_NEVER;
}

/* NULL: there are too many different requests. */
static const struct answer *answer_for(struct pending_pods *all,
                                       const struct view_source *source,
                                       const struct pending_pod *pod)
{
    for (size_t i = 0; i < all->n_answers; i++) {
        const struct pending_pod *other = all->answers[i].pod;
        if (!pod->nominated && !other->nominated && pod->priority == other->priority &&
            request_equal(&pod->request, &other->request))
            return &all->answers[i];
    }
    if (all->n_answers == ARRAY_LEN(all->answers))
        return NULL;
    struct answer *answer = &all->answers[all->n_answers++];
    *answer = (struct answer){.pod = pod};
    compute_answer(all, source, answer);
    return answer;
}

static void write_why(struct buf *out, const struct answer *answer)
{
    add_number(out, "fittingNodes", answer->fits);
    if (answer->never)
        add_bool(out, "neverFits", true);
    add_string(out, "closestNode", answer->node);
    if (!answer->seen)
        add_string(out, "reason", SPAN("no nodes are known"));
    else
        add_string(out, "reason", answer->reason);
}

static int compare_uid(const void *uid, const void *status)
{
    const struct core_preempt_status *s = status;
    return span_cmp(*(const struct span *)uid, s->uid);
}

static void write_time(struct buf *out, const char *name, int64_t ns)
{
    cleanup_buf struct buf text = {0};
    clock_format_s(&text, ns / 1000000000);
    add_string(out, name, buf_span(&text));
}

/* What layout preemption does for the pod. */
static void write_preemption(struct buf *out, const struct core_preempt_status *s)
{
    static const char *const states[] = {[CORE_PREEMPT_WAITING] = "waiting",
                                         [CORE_PREEMPT_NOMINATING] = "nominating",
                                         [CORE_PREEMPT_EVICTING] = "evicting",
                                         [CORE_PREEMPT_DONE] = "limited"};
    static const char *const found[] = {[CORE_PREEMPT_UNSEARCHED] = "",
                                        [CORE_PREEMPT_NO_VICTIMS] = "no-victims",
                                        [CORE_PREEMPT_NOT_NEEDED] = "not-needed",
                                        [CORE_PREEMPT_VICTIMS] = "victims"};
    add_key(out, "preemption");
    buf_addc(out, '{');
    add_string(out, "state", span_of(states[s->state]));
    write_time(out, "since", s->since_ns);
    if (s->state == CORE_PREEMPT_WAITING)
        write_time(out, "searchAfter", s->search_ns);
    add_string(out, "lastSearch", span_of(found[s->found]));
    add_number(out, "candidateNodes", (int64_t)s->candidates);
    add_string(out, "node", s->node);
    if (s->node.n) {
        add_number(out, "victims", (int64_t)s->victims);
        add_number(out, "victimsLeft", (int64_t)s->left);
    }
    if (s->refused) {
        add_number(out, "refusedEvictions", s->refused);
        add_bool(out, "refusedByBudget", s->by_budget);
    }
    if (s->state == CORE_PREEMPT_DONE)
        write_time(out, "noEvictionBefore", s->until_ns);
    buf_addc(out, '}');
}

static void write_pending_pod(struct pending_pods *all, const struct view_source *source,
                      const struct pending_pod *pod, struct buf *out)
{
    add_comma(out);
    buf_addc(out, '{');
    add_string(out, "name", pod->name);
    add_string(out, "namespace", pod->ns);
    add_string(out, "uid", pod->uid);
    if (pod->invalid_reason.n) {
        add_string(out, "error", pod->invalid_reason);
    } else {
        cleanup_buf struct buf request = {0};
        request_write(&request, &pod->request, all->unit_mib);
        add_string(out, "request", buf_span(&request));
        const struct answer *answer = answer_for(all, source, pod);
        if (answer)
            write_why(out, answer);
    }
    const struct core_preempt_status *preemption =
        all->n_preemptions ? bsearch(&pod->uid, all->preemptions, all->n_preemptions,
                                     sizeof *all->preemptions, compare_uid)
                           : NULL;
    if (preemption)
        write_preemption(out, preemption);
    buf_addc(out, '}');
}

/* The member `pendingPods`. Takes the lock several times, each for a bounded number of
 * nodes. */
static void write_pending(const struct view_source *source, struct buf *out)
{
    struct pending_pods all = {0};
    copy_pending(&all, source);
    add_key(out, "pendingPods");
    buf_addc(out, '[');
    for (size_t i = 0; i < all.n; i++)
        write_pending_pod(&all, source, &all.pods[i], out);
    buf_addc(out, ']');
    arena_fini(&all.arena);
}

/* -- all of it -- */

static int compare_names(const void *a, const void *b)
{
    return span_cmp(*(const struct span *)a, *(const struct span *)b);
}

/* The names of all nodes, copied, sorted. */
static size_t node_names(const struct view_source *source, struct arena *a,
                         struct span **names)
{
    const struct ledger *l = core_ledger(source->read(source->ctx));
    uint32_t slots = ledger_node_slots(l);
    size_t n = 0;
    *names = arena_alloc(a, slots * sizeof **names);
    for (uint32_t i = 0; i < slots; i++)
        if (ledger_node_at(l, i))
            (*names)[n++] = arena_copy(a, ledger_node_at(l, i)->name);
    source->read_end(source->ctx);
    if (n)
        qsort(*names, n, sizeof **names, compare_names);
    return n;
}

void view_source_each_node(const struct view_source *source, view_source_node_fn fn,
                           void *ctx)
{
    cleanup_arena struct arena a = {0};
    struct span *names;
    size_t n = node_names(source, &a, &names);
    for (size_t i = 0; i < n; i++) {
        const struct ledger *l = core_ledger(source->read(source->ctx));
        const struct ledger_node *node = ledger_node_find(l, names[i]);
        if (node)
            fn(ctx, l, node);
        source->read_end(source->ctx);
    }
}

void view_inspect_write_cluster(const struct view_source *source, struct buf *out)
{
    write_core(source->read(source->ctx), source->observer, out);
    source->read_end(source->ctx);
    write_pending(source, out);
}

void view_inspect_state(const struct view_source *source, struct buf *out)
{
    const struct core *core = source->read(source->ctx);
    const struct ledger *l = core_ledger(core);
    buf_printf(out, "%llu %llu %llu ", (unsigned long long)ledger_generation(l),
               (unsigned long long)ledger_pending_generation(l),
               (unsigned long long)core_preempt_generation(core));
    write_core(core, source->observer, out);
    source->read_end(source->ctx);
}

void view_inspect_all(const struct view_source *source, struct buf *out)
{
    buf_adds(out, "{\"nodes\":[");
    view_source_each_node(source, write_node, out);
    buf_addc(out, ']');
    view_inspect_write_cluster(source, out);
    buf_addc(out, '}');
}

