/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "base/mem.h"
#include "cli/change.h"
#include "cli/explain_priv.h"
#include "cli/heartbeat.h"
#include "domain/quantity.h"
#include "placement/gang.h"
#include "placement/reason.h"

void explain_plain(struct explain_page *p, struct span text)
{
    table_plain(p->out, text);
}

void explain_request(struct explain_page *p)
{
    cleanup_buf struct buf text = {0};
    request_write(&text, p->pod->request, p->unit);
    explain_plain(p, buf_span(&text));
}

void explain_amount(struct buf *out, int64_t mib, int64_t unit)
{
    show_amount(out, mib, unit);
    buf_addc(out, ' ');
    quantity_write_unit(out, unit);
}

struct span explain_text_at(const json_t *o, const char *key)
{
    return span_of(json_string_value(json_object_get(o, key)));
}

static const json_t *at(const json_t *o, const char *a, const char *b)
{
    return json_object_get(json_object_get(o, a), b);
}

/* Does the pod tolerate the taint of cordoned nodes, which has no value? Pods of
 * DaemonSets do. */
static bool tolerates_cordon(const json_t *pod)
{
    const json_t *item;
    size_t i;
    json_array_foreach(at(pod, "spec", "tolerations"), i, item)
    {
        struct span key = explain_text_at(item, "key"),
                    effect = explain_text_at(item, "effect");
        bool any = span_eq(explain_text_at(item, "operator"), SPAN("Exists"));
        bool matches =
            key.n ? span_eq(key, SPAN("node.kubernetes.io/unschedulable")) : any;
        if (matches && (any || !explain_text_at(item, "value").n) &&
            (!effect.n || span_eq(effect, SPAN("NoSchedule"))))
            return true;
    }
    return false;
}

/* kube-scheduler's own reason, which also covers CPU, taints and volumes. */
static void add_condition(struct explain_page *p)
{
    const json_t *item;
    size_t i;
    json_array_foreach(at(p->facts->object, "status", "conditions"), i, item)
    {
        struct span message = explain_text_at(item, "message");
        if (!span_eq(explain_text_at(item, "type"), SPAN("PodScheduled")) ||
            !span_eq(explain_text_at(item, "status"), SPAN("False")) || !message.n)
            continue;
        buf_adds(p->out, "kube-scheduler: ");
        explain_plain(p, message);
        buf_addc(p->out, '\n');
    }
}

/* -- pending pods -- */

void explain_promises(struct buf *out, const struct ledger_node *node,
                      const struct card *card, int64_t unit, struct arena *a)
{
    const struct ledger_pod **pods;
    size_t n = show_pods_on(node, a, &pods);
    const char *before = "; promised: ";
    for (size_t i = 0; i < n; i++) {
        int64_t mib = ledger_pod_mib(pods[i], card);
        if (mib < 0)
            continue;
        buf_printf(out, "%s%.*s/%.*s ", before, SPAN_ARG(pods[i]->ns),
                   SPAN_ARG(pods[i]->name));
        explain_amount(out, mib, unit);
        before = ", ";
    }
}

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
    else if (r->kind == REQUEST_MEMORY && card->free_mib < r->mib_per_card) {
        buf_adds(out, "lacks ");
        explain_amount(out, r->mib_per_card - card->free_mib, p->unit);
    } else if (r->core > card_core_left(card)) {
        buf_printf(out, "lacks %u %% of its compute", r->core - card_core_left(card));
    } else if (r->kind == REQUEST_MEMORY || card_is_free(card))
        buf_adds(out, "fits");
    else
        buf_adds(out, "not entirely free");
    if (card->state == CARD_AVAILABLE && card_external_mib(card)) {
        buf_adds(out, "; used outside Kubernetes: ");
        explain_amount(out, card_external_mib(card), p->unit);
    }
    if (card->state == CARD_AVAILABLE && card->overuse_mib) {
        buf_adds(out, "; used by pods beyond their promises: ");
        explain_amount(out, card->overuse_mib, p->unit);
    }
    cleanup_arena struct arena a = {0};
    explain_promises(out, node, card, p->unit, &a);
    explain_reserved(p, out, node, card);
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
    bool space = !explain_space(&why, node, p->pod);
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
    bool crowded = fit == FIT_YES && explain_space(&lacks, node, pod);
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

/* The number that the pod names counts before that of the object. */
static uint32_t minimum_of(const struct explain_page *p)
{
    uint32_t own = p->pod->member ? p->pod->member->minimum : 0;
    return own ? own : p->facts->minimum;
}

bool explain_waits_for_gang(const struct explain_page *p)
{
    return p->pod->member && minimum_of(p) != 1;
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
    explain_plain(p, buf_span(&text));
    buf_adds(p->out, ".\n");
}

/* Heartbeats that make the table unreliable. */
static void add_heartbeats(struct explain_page *p, const struct ledger_node **nodes,
                           size_t n)
{
    for (size_t i = 0; i < n; i++) {
        cleanup_buf struct buf note = {0};
        heartbeat_note(&note, p->cs, nodes[i]);
        if (!note.n)
            continue;
        buf_adds(p->out, "! ");
        explain_plain(p, nodes[i]->name);
        buf_printf(p->out, ": %s\n", note.p);
    }
}

static void explain_pending(struct explain_page *p)
{
    cleanup_arena struct arena a = {0};
    const struct ledger_node **nodes;
    size_t n = show_nodes(p->l, (struct span){0}, &a, &nodes);
    buf_adds(p->out, " is pending");
    if (p->pod->invalid_reason) {
        buf_adds(p->out, "; request invalid: ");
        explain_plain(p, span_of(p->pod->invalid_reason));
        buf_addc(p->out, '\n');
        add_condition(p);
        return;
    }
    buf_adds(p->out, "; requests ");
    explain_request(p);
    buf_printf(p->out, " (priority %" PRId32 ")\n\n", p->pod->priority);
    if (n) {
        p->reservations = explain_reservations(p->facts->view);
        struct fits fits = add_nodes(p, nodes, n);
        json_decref(p->reservations);
        p->reservations = NULL;
        buf_addc(p->out, '\n');
        add_heartbeats(p, nodes, n);
        add_verdict(p, nodes, n, fits);
        explain_own_reservation(p);
        explain_preempt(p, nodes, n, !fits.open && !fits.crowded);
        if (explain_waits_for_gang(p))
            add_gang(p, nodes, n, &a);
    } else
        buf_adds(p->out, "no node of the cluster has a GPU managed by gpushare\n");
    add_condition(p);
}

static const struct cluster_state_pod *
find(const struct cluster_state *cs, struct span ns, struct span name, struct arena *a)
{
    const struct cluster_state_pod **pods;
    size_t n = cluster_state_pods(cs, a, &pods);
    for (size_t i = 0; i < n; i++)
        if (span_eq(pods[i]->ns, ns) && span_eq(pods[i]->name, name))
            return pods[i];
    return NULL;
}

int explain_pod(struct buf *out, const struct cluster_state *cs, struct span ns,
                struct span name, const struct explain_facts *facts, struct err *err)
{
    cleanup_arena struct arena a = {0};
    const struct cluster_state_pod *found = find(cs, ns, name, &a);
    struct explain_page p = {.out = out,
                             .cs = cs,
                             .l = cluster_state_ledger(cs),
                             .facts = facts,
                             .unit = ledger_settings(cluster_state_ledger(cs))->unit_mib,
                             .tolerates = tolerates_cordon(facts->object)};
    if (!found)
        return err_set(err, ERR_NOT_FOUND,
                       "pod %.*s/%.*s not found, or all its containers have ended",
                       SPAN_ARG(ns), SPAN_ARG(name));
    p.pod = ledger_pod_find(p.l, found->uid);
    buf_adds(out, "pod ");
    explain_plain(&p, ns);
    buf_addc(out, '/');
    explain_plain(&p, name);
    if (!p.pod) {
        buf_adds(out,
                 " requests no GPU memory; gpushare does not affect where it runs\n");
        add_condition(&p);
    } else if (p.pod->node) {
        explain_bound(&p, found);
    } else {
        explain_pending(&p);
    }
    return 0;
}
