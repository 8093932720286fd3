/* SPDX-License-Identifier: Apache-2.0 */

/* explain pod, of a pending pod: why nodes and cards reject it, its gang, its reservations,
 * layout preemption, and the verdict. */

#include "cli/explain_priv.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/change.h"
#include "domain/quantity.h"
#include "placement/gang.h"
#include "placement/preempt.h"
#include "placement/reason.h"

/* Cores, with up to three decimals. */
static void add_cores(struct buf *out, int64_t milli)
{
    buf_add_i64(out, milli / 1000);
    if (milli % 1000 == 0)
        return;
    buf_printf(out, ".%03" PRId64, milli % 1000);
    while (out->p[out->n - 1] == '0')
        out->p[--out->n] = '\0';
}

static void add_mib(struct buf *out, int64_t bytes)
{
    buf_printf(out, "%" PRId64 " MiB", (bytes >> 20) + (bytes % (1 << 20) != 0));
}

static int64_t left(int64_t offered, int64_t requested)
{
    return offered > requested ? offered - requested : 0;
}

static bool add_lacks(struct buf *out, const struct ledger_node *node,
                      const struct ledger_pod *pod)
{
    struct resources has = ledger_node_allocatable(node);
    struct resources used = ledger_node_requested(node);
    struct resources wanted = ledger_pod_requests(pod);
    int64_t cpu = left(has.cpu_milli, used.cpu_milli);
    int64_t memory = left(has.memory, used.memory);
    size_t before = out->n;
    if (has.cpu_milli && wanted.cpu_milli > cpu) {
        buf_adds(out, "; lacks CPU: the pod requests ");
        add_cores(out, wanted.cpu_milli);
        buf_adds(out, ", free are ");
        add_cores(out, cpu);
    }
    if (has.memory && wanted.memory > memory) {
        buf_adds(out, "; lacks node memory: the pod requests ");
        add_mib(out, wanted.memory);
        buf_printf(out, ", free are %" PRId64 " MiB", memory >> 20);
    }
    if (has.pods && used.pods >= has.pods)
        buf_printf(out, "; no pod slot is free: %" PRId64 " of %" PRId64 " are taken",
                   used.pods, has.pods);
    return out->n > before;
}

/* Cards that the extender has reserved for pods from filter to bind. The API objects do not
 * show them: only the leader's view does. */

/* A node's name has no slash. */
static char *card_key(struct span node, int64_t card)
{
    return xasprintf("%.*s/%" PRId64, SPAN_ARG(node), card);
}

static json_t *reservations_of(const json_t *view)
{
    json_t *all = json_object();
    const json_t *node, *dev;
    size_t i, k;
    json_array_foreach(json_object_get(view, "nodes"), i, node)
    {
        json_array_foreach(json_object_get(node, "devs"), k, dev)
        {
            json_t *of_card = json_object_get(dev, "reservations");
            if (json_array_size(of_card) == 0)
                continue;
            cleanup_free char *key =
                card_key(explain_text_at(node, "name"),
                         json_integer_value(json_object_get(dev, "id")));
            json_object_set(all, key, of_card);
        }
    }
    return all;
}

static void add_reserved(struct explain_page *p, struct buf *out,
                         const struct ledger_node *node, const struct card *card)
{
    cleanup_free char *key = card_key(node->name, card->index);
    const json_t *item;
    size_t i;
    const char *before = "; reserved: ";
    json_array_foreach(json_object_get(p->reservations, key), i, item)
    {
        struct span ns = explain_text_at(item, "namespace");
        struct span name = explain_text_at(item, "name");
        int64_t mib = json_integer_value(json_object_get(item, "mib"));
        buf_printf(out, "%s%.*s/%.*s %s", before, SPAN_ARG(ns), SPAN_ARG(name),
                   show_units(mib, p->unit).s);
        before = ", ";
    }
}

static bool is_reserved_for(const json_t *reservations, struct span uid)
{
    const json_t *item;
    size_t i;
    json_array_foreach(reservations, i, item)
    {
        if (span_eq(explain_text_at(item, "uid"), uid))
            return true;
    }
    return false;
}

static void add_own_reservation(struct explain_page *p)
{
    const json_t *node, *dev;
    size_t i, k;
    json_array_foreach(json_object_get(p->facts->view, "nodes"), i, node)
    {
        const char *before = "Reserved for this pod until its bind: ";
        json_array_foreach(json_object_get(node, "devs"), k, dev)
        {
            if (!is_reserved_for(json_object_get(dev, "reservations"), p->pod->uid))
                continue;
            buf_printf(p->out, "%sGPU%" PRId64, before,
                       (int64_t)json_integer_value(json_object_get(dev, "id")));
            before = ", ";
        }
        if (*before != ',')
            continue;
        table_line(p->out, " of node %.*s.", SPAN_ARG(explain_text_at(node, "name")));
    }
}

/* The number that the pod names counts before that of the object. */
static uint32_t minimum_of(const struct explain_page *p)
{
    uint32_t own = p->pod->member ? p->pod->member->minimum : 0;
    return own ? own : p->facts->minimum;
}

static bool waits_for_gang(const struct explain_page *p)
{
    return p->pod->member && minimum_of(p) != 1;
}

/*
 * What layout preemption (--preempt-after of the extender) would do for a pending pod, and,
 * by the extender's view, what it does. kube-scheduler's own preemption does nothing where
 * the total of the node suffices.
 */

/* Of a PriorityClass that users create (HighestUserDefinablePriority). */
enum { HIGHEST_PRIORITY = 1000000000 };

/* The cheapest evictions on one node. */
struct evictions {
    const struct ledger_node *node; /* NULL: none helps */
    size_t n;
    int64_t priority; /* the highest of the victims */
};

static bool total_suffices(const struct ledger_node *node, const struct request *r)
{
    int64_t mib = 0;
    uint32_t cards = 0, core = 0;
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct card *card = &node->cards[i];
        if (card->state != CARD_AVAILABLE || card->whole)
            continue;
        mib += card->free_mib > 0 ? card->free_mib : 0;
        core += card_core_left(card);
        cards++;
    }
    return r->kind == REQUEST_CARDS ? cards >= r->cards
                                    : mib >= r->mib_per_card * r->cards &&
                                          core >= (uint32_t)r->core * r->cards;
}

/* Pods of DaemonSets and mirror pods are never evicted, terminating ones leave anyway. */
static bool select_on(const struct ledger_pod *pod, const struct ledger_node *node,
                      int64_t priority, struct arena *a, struct preempt_victims *set)
{
    size_t n = 0, n_leaving = 0, n_spared = 0;
    for (const struct ledger_pod *q = node->pods; q; q = q->next)
        n++;
    struct span *leaving = arena_alloc(a, n * sizeof *leaving);
    struct span *spared = arena_alloc(a, n * sizeof *spared);
    for (const struct ledger_pod *q = node->pods; q; q = q->next) {
        if (q->terminating)
            leaving[n_leaving++] = q->uid;
        else if (q->mirror || q->daemon)
            spared[n_spared++] = q->uid;
    }
    const struct preemptor who = {.pod = {pod->request, priority, pod->uid, NULL},
                                  .spared = spared,
                                  .n_spared = n_spared};
    return preempt_select(&who, node, leaving, n_leaving, a, set) && set->n > 0;
}

/* The extender hears only of nodes that kube-scheduler offers to the pod. */
static bool may_be_offered(const struct ledger_node *node, const struct ledger_pod *pod)
{
    cleanup_buf struct buf lacks = {0};
    return !node->cordoned && node->state == NODE_USABLE && !add_lacks(&lacks, node, pod);
}

static struct evictions cheapest(const struct explain_page *p,
                                 const struct ledger_node **nodes, size_t n,
                                 int64_t priority, struct arena *a)
{
    struct evictions best = {0};
    for (size_t i = 0; i < n; i++) {
        const struct ledger_node *node = nodes[i];
        struct preempt_victims set;
        if (!may_be_offered(node, p->pod) || !total_suffices(node, p->pod->request) ||
            !select_on(p->pod, node, priority, a, &set))
            continue;
        int64_t top = set.pods[0]->priority;
        if (!best.node || top < best.priority || (top == best.priority && set.n < best.n))
            best = (struct evictions){.node = node, .n = set.n, .priority = top};
    }
    return best;
}

/* What it would do on the nodes. False: nothing helps. */
static bool add_evictions(struct explain_page *p, const struct ledger_node **nodes,
                          size_t n)
{
    const struct ledger_pod *pod = p->pod;
    cleanup_arena struct arena a = {0};
    struct evictions now = cheapest(p, nodes, n, pod->priority, &a);
    struct evictions any = now.node ? now : cheapest(p, nodes, n, HIGHEST_PRIORITY, &a);
    if (!any.node)
        return false;
    cleanup_buf struct buf what = {0};
    if (now.node)
        buf_printf(&what,
                   "evict %zu pod%s of priority %" PRId64
                   "%s, if kube-scheduler offers this node.",
                   now.n, now.n == 1 ? "" : "s", now.priority,
                   now.n == 1 ? "" : " or lower");
    else
        buf_printf(&what, "do so for a pod of priority %" PRId64 " or higher.",
                   any.priority + 1);
    table_line(p->out,
               "Node %.*s has enough free memory in total, so kube-scheduler evicts no "
               "pods there. With --preempt-after, the extender would %s",
               SPAN_ARG(any.node->name), what.p);
    return true;
}

/* -- by the extender's view -- */

static int64_t number_at(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static const json_t *find_pending(const struct explain_page *p)
{
    const json_t *item;
    size_t i;
    json_array_foreach(json_object_get(p->facts->view, "pendingPods"), i, item)
    {
        if (span_eq(explain_text_at(item, "uid"), p->pod->uid))
            return item;
    }
    return NULL;
}

/* "2026-11-21T09:00:00Z (5 s ago)" */
static void add_time(struct explain_page *p, const json_t *o, const char *key)
{
    struct span text = explain_text_at(o, key);
    int64_t s;
    explain_plain(p, text);
    if (!clock_parse(text, &s))
        return;
    if (s > p->facts->now_s)
        buf_printf(p->out, " (in %" PRId64 " s)", s - p->facts->now_s);
    else
        buf_printf(p->out, " (%" PRId64 " s ago)", p->facts->now_s - s);
}

static void add_search(struct explain_page *p, const json_t *entry)
{
    struct span last = explain_text_at(entry, "lastSearch");
    int64_t nodes = number_at(entry, "candidateNodes");
    buf_printf(p->out, "  evictions could help on %" PRId64 " node%s, since ", nodes,
               nodes == 1 ? "" : "s");
    add_time(p, entry, "since");
    buf_adds(p->out, "\n  the leader searches for victims from ");
    add_time(p, entry, "searchAfter");
    buf_adds(p->out, " on, for one pod after the other\n");
    if (span_eq(last, SPAN("no-victims")))
        buf_adds(p->out, "  the last search found no victims: pods of lower priority do "
                         "not suffice, or may not be evicted\n");
    else if (span_eq(last, SPAN("not-needed")))
        buf_adds(p->out, "  the last search found that the pod fits when terminating "
                         "pods have left\n");
    if (p->pod->nomination)
        table_line(p->out, "  nothing is evicted while status.nominatedNodeName is %.*s",
                   SPAN_ARG(p->pod->nomination->node->name));
}

static void add_progress(struct explain_page *p, const json_t *entry)
{
    struct span node = explain_text_at(entry, "node");
    if (node.n)
        table_line(p->out,
                   "  the cards on node %.*s are kept for the pod; victims: %" PRId64
                   ", not evicted yet: %" PRId64,
                   SPAN_ARG(node), number_at(entry, "victims"),
                   number_at(entry, "victimsLeft"));
    if (explain_text_at(entry, "noEvictionBefore").n) {
        buf_adds(p->out, "  no further pod is evicted for it before ");
        add_time(p, entry, "noEvictionBefore");
        buf_addc(p->out, '\n');
    }
}

static void add_entry(struct explain_page *p, const json_t *entry)
{
    int64_t refused = number_at(entry, "refusedEvictions");
    if (span_eq(explain_text_at(entry, "state"), SPAN("waiting")))
        add_search(p, entry);
    else
        add_progress(p, entry);
    if (refused)
        buf_printf(p->out, "  refused evictions: %" PRId64 ", the last one %s\n", refused,
                   json_is_true(json_object_get(entry, "refusedByBudget"))
                       ? "by a PodDisruptionBudget"
                       : "by the API server");
}

/* Why layout preemption never considers the pod; NULL: it does. */
static const char *excluded(const struct explain_page *p)
{
    const struct ledger_pod *pod = p->pod;
    if (pod->never_preempts)
        return "preemptionPolicy is Never";
    if (waits_for_gang(p))
        return "it is a member of a gang, for which the other members need cards, too";
    if (pod->request->kind != REQUEST_MEMORY && pod->request->kind != REQUEST_CARDS)
        return "the kubelet chooses its cards";
    return NULL;
}

/* Layout preemption is on, and no node takes the pod or the leader acts for it. */
static void add_state(struct explain_page *p, const json_t *pending, const json_t *entry)
{
    const json_t *view = p->facts->view;
    const char *why = excluded(p);
    buf_printf(p->out, "Layout preemption is on (--preempt-after %" PRId64 "s)",
               number_at(view, "preemptAfterSeconds"));
    if (why) {
        buf_printf(p->out, ", but evicts no pod for this one: %s.\n", why);
    } else if (entry) {
        buf_adds(p->out, ":\n");
        add_entry(p, entry);
    } else if (!json_is_true(json_object_get(view, "leader"))) {
        table_line(p->out,
                   "; the replica that answered does not lead. The leader is %.*s.",
                   SPAN_ARG(explain_text_at(view, "holder")));
    } else if (!pending) {
        buf_adds(p->out, "; the extender does not show what it does for this pod.\n");
    } else {
        buf_adds(p->out, ", but does nothing for this pod: since the extender leads, "
                         "filter has not rejected it where evictions could help.\n");
    }
}

static void add_preemption(struct explain_page *p, const struct ledger_node **nodes,
                           size_t n, bool rejected)
{
    const json_t *view = p->facts->view;
    const json_t *after = json_object_get(view, "preemptAfterSeconds");
    const json_t *pending = find_pending(p);
    const json_t *entry = json_object_get(pending, "preemption");
    bool acts = entry && !span_eq(explain_text_at(entry, "state"), SPAN("waiting"));
    bool helps = rejected && !acts && !excluded(p) && add_evictions(p, nodes, n);
    if (json_integer_value(after) > 0 && (rejected || acts))
        add_state(p, pending, entry);
    else if (helps && after)
        buf_adds(
            p->out,
            "Layout preemption is off: the extender runs without --preempt-after.\n");
    else if (helps)
        buf_adds(p->out, "Whether it does is not known without --extender.\n");
}

/* -- nodes, cards and the verdict -- */

static void add_card_reason(struct explain_page *p, struct buf *out,
                            const struct ledger_node *node, const struct card *card)
{
    const struct request *r = p->pod->request;
    int64_t clock = card_clock_mhz(card);
    if (request_is_selective(r) && !request_accepts_card(r, card->model, clock))
        buf_adds(out, "model or clock does not match");
    else if (card->total_mib < r->mib_per_card)
        buf_adds(out, "too small");
    else if (card->state == CARD_UNHEALTHY)
        buf_adds(out, "unhealthy");
    else if (card->state == CARD_LISTED)
        buf_adds(out, "excluded by the ConfigMap");
    else if (card->state == CARD_HELD)
        buf_adds(out, "allocated through nvidia.com/gpu");
    else if (card->state == CARD_DUPLICATE)
        buf_adds(out, "has the same UUID as another card");
    else if (card->whole)
        buf_adds(out, "promised as a whole card");
    else if (r->kind == REQUEST_MEMORY && card->free_mib < r->mib_per_card)
        buf_printf(out, "lacks %s",
                   show_units(r->mib_per_card - card->free_mib, p->unit).s);
    else if (r->core > card_core_left(card))
        buf_printf(out, "lacks %u %% of its compute", r->core - card_core_left(card));
    else if (r->kind == REQUEST_MEMORY || card_is_free(card))
        buf_adds(out, "fits");
    else
        buf_adds(out, "not entirely free");
    if (card->state == CARD_AVAILABLE && card_external_mib(card))
        buf_printf(out, "; used outside Kubernetes: %s",
                   show_units(card_external_mib(card), p->unit).s);
    if (card->state == CARD_AVAILABLE && card->overuse_mib)
        buf_printf(out, "; used by pods beyond their promises: %s",
                   show_units(card->overuse_mib, p->unit).s);
    cleanup_arena struct arena a = {0};
    explain_promises(out, node, card, p->unit, &a);
    add_reserved(p, out, node, card);
}

static void add_node_row(struct explain_page *p, struct table *t,
                         const struct ledger_node *node, enum fit fit)
{
    cleanup_buf struct buf why = {0};
    const struct select_pod pod = select_pod_of(p->pod);
    const struct request *r = p->pod->request;
    struct select_view view;
    uint64_t chosen;
    if (fit != FIT_YES && p->tolerates)
        reason_add(&why, node, r, select_fit(node, r));
    else if (fit != FIT_YES)
        reason_add_schedulable(&why, node, &pod);
    else {
        select_view(&view, node, NULL, SELECT_AS_IS);
        select_cards(&view, r, SELECT_ALL_CARDS, &chosen);
        buf_adds(&why, chosen ? "fits:" : "fits");
        for (; chosen; chosen &= chosen - 1)
            buf_printf(&why, " GPU%" PRId32, node->cards[__builtin_ctzll(chosen)].index);
    }
    bool space = !add_lacks(&why, node, p->pod);
    table_span(t, BOLD, node->name);
    table_cell(t, PLAIN, "%s", "");
    table_cell(t, PLAIN, "%s", "");
    table_end(t,
              fit == FIT_YES && space ? GREEN
              : fit == FIT_NEVER      ? RED
                                      : YELLOW,
              "%s", why.n ? why.p : "");
}

static void add_card_row(struct explain_page *p, struct table *t,
                         const struct ledger_node *node, const struct card *card)
{
    cleanup_buf struct buf reason = {0}, free = {0};
    add_card_reason(p, &reason, node, card);
    show_amount(&free, card->free_mib, p->unit);
    buf_addc(&free, '/');
    show_amount(&free, card->total_mib, p->unit);
    table_cell(t, PLAIN, "%s", "");
    table_cell(t, PLAIN, "GPU%" PRId32, card->index);
    table_span(t, PLAIN, buf_span(&free));
    table_end(t, PLAIN, "%s", reason.n ? reason.p : "");
}

/* On how many nodes the request fits, and on how many only the cordon prevents it, or the
 * lack of CPU, memory or a pod slot. */
struct fits {
    size_t open, cordoned, crowded;
};

static enum fit fit_on(const struct explain_page *p, const struct ledger_node *node,
                       struct fits *fits)
{
    const struct ledger_pod *pod = p->pod;
    const struct select_pod asks = select_pod_of(pod);
    enum fit uncordoned = select_fit_pod(node, &asks);
    enum fit fit = p->tolerates ? uncordoned : select_fit_schedulable(node, &asks);
    cleanup_buf struct buf lacks = {0};
    bool crowded = fit == FIT_YES && add_lacks(&lacks, node, pod);
    fits->open += fit == FIT_YES && !crowded;
    fits->crowded += crowded;
    fits->cordoned += fit != FIT_YES && uncordoned == FIT_YES;
    return fit;
}

static struct fits add_nodes(struct explain_page *p, const struct ledger_node **nodes,
                             size_t n)
{
    cleanup_table struct table t = {.colors = p->facts->colors};
    cleanup_buf struct buf unit = {0};
    struct fits fits = {0};
    quantity_write_unit(&unit, p->unit);
    table_cell(&t, BOLD, "NODE");
    table_cell(&t, BOLD, "GPU");
    table_cell(&t, BOLD, "FREE/TOTAL(%s)", unit.p);
    table_end(&t, BOLD, "REASON");
    for (size_t i = 0; i < n; i++) {
        add_node_row(p, &t, nodes[i], fit_on(p, nodes[i], &fits));
        for (uint32_t k = 0; k < nodes[i]->n_cards; k++)
            add_card_row(p, &t, nodes[i], &nodes[i]->cards[k]);
    }
    table_write(&t, p->out);
    return fits;
}

static const char *plural(size_t n)
{
    return n == 1 ? "" : "s";
}

static void add_verdict(struct explain_page *p, const struct ledger_node **nodes,
                        size_t n, struct fits fits)
{
    if (fits.open) {
        buf_printf(
            p->out,
            "The request fits on %zu node%s. kube-scheduler decides the rest: taints, "
            "affinity, volumes.\n",
            fits.open, plural(fits.open));
        return;
    }
    if (fits.crowded) {
        buf_printf(
            p->out,
            "The request for GPUs fits on %zu node%s, but not the pod's CPU, memory "
            "or slot.\n",
            fits.crowded, plural(fits.crowded));
        return;
    }
    cleanup_buf struct buf changes = {0};
    size_t n_changes =
        change_list(&changes, p->l, (const struct ledger_node *const *)nodes, n, p->pod,
                    p->tolerates);
    bool any_cordoned = false;
    for (size_t i = 0; i < n && !p->tolerates; i++)
        any_cordoned |= nodes[i]->cordoned;
    if (fits.cordoned)
        buf_printf(p->out, "The request fits only on %zu cordoned node%s.\n",
                   fits.cordoned, plural(fits.cordoned));
    if (n_changes) {
        buf_adds(p->out, "Each of these changes alone would let the pod fit:\n");
        buf_add_span(p->out, buf_span(&changes));
        return;
    }
    buf_printf(
        p->out,
        "No single change would let the pod fit. The pod needs a node %swith more or "
        "larger cards.\n",
        any_cordoned ? "that is not cordoned, or one " : "");
}

/* Whether the members of the pod's gang fit together on the nodes that the pod may use. */
static void add_gang(struct explain_page *p, const struct ledger_node **nodes, size_t n,
                     struct arena *a)
{
    const struct ledger_member *m = p->pod->member;
    const struct ledger_node **open = arena_alloc(a, n * sizeof *open);
    cleanup_buf struct buf text = {0};
    struct gang_verdict v;
    size_t n_open = 0;
    for (size_t i = 0; i < n; i++)
        if (p->tolerates || !nodes[i]->cordoned)
            open[n_open++] = nodes[i];
    struct gang_asker asker = {.pod = select_pod_of(p->pod),
                               .name = m->gang->name,
                               .minimum = minimum_of(p),
                               .requests = ledger_pod_requests(p->pod)};
    asker.pod.gang = m->gang;
    gang_judge(p->l, &asker, open, n_open, p->pod->request->placement == PLACE_SPREAD, a,
               &v);
    if (v.fits)
        buf_printf(&text,
                   "gang %.*s: %" PRIu32 " of %" PRIu32 " members are bound; the "
                   "others fit together",
                   SPAN_ARG(m->gang->name), v.placed, v.total);
    else
        gang_judge_reason(&text, &asker, &v);
    table_line(p->out, "%s.", text.p);
}

/* Heartbeats that make the table unreliable. */
static void add_heartbeats(struct explain_page *p, const struct ledger_node **nodes,
                           size_t n)
{
    for (size_t i = 0; i < n; i++) {
        cleanup_buf struct buf note = {0};
        cluster_state_note_heartbeat(&note, p->cs, nodes[i]);
        if (note.n)
            table_line(p->out, "! %.*s: %s", SPAN_ARG(nodes[i]->name), note.p);
    }
}

void explain_pending(struct explain_page *p)
{
    cleanup_arena struct arena a = {0};
    const struct ledger_node **nodes;
    size_t n = show_nodes(p->l, (struct span){0}, &a, &nodes);
    if (p->pod->invalid_reason) {
        table_line(p->out, " is pending; request invalid: %s", p->pod->invalid_reason);
        return;
    }
    buf_adds(p->out, " is pending; requests ");
    explain_request(p);
    buf_printf(p->out, " (priority %" PRId32 ")\n\n", p->pod->priority);
    if (n) {
        p->reservations = reservations_of(p->facts->view);
        struct fits fits = add_nodes(p, nodes, n);
        json_decref(p->reservations);
        p->reservations = NULL;
        buf_addc(p->out, '\n');
        add_heartbeats(p, nodes, n);
        add_verdict(p, nodes, n, fits);
        add_own_reservation(p);
        add_preemption(p, nodes, n, !fits.open && !fits.crowded);
        if (waits_for_gang(p))
            add_gang(p, nodes, n, &a);
    } else
        buf_adds(p->out, "no node of the cluster has a GPU managed by gpushare\n");
}
