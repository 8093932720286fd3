/* SPDX-License-Identifier: Apache-2.0 */

/* explain pod, of a pending pod: why nodes and cards reject it, the changes that would let it
 * fit, its gang, and its reservations. */

#include "cli/explain_priv.h"

#include <inttypes.h>

#include "base/array.h"
#include "base/mem.h"
#include "domain/keys.h"
#include "domain/quantity.h"
#include "placement/gang.h"

uint32_t explain_obstacles(struct explain_page *p, const struct ledger_node *node)
{
    const struct resources requests = ledger_pod_requests(p->pod);
    static const enum obstacle_kind terms[] = {
        OBSTACLE_NONE,
        [TERMS_SELECTOR] = OBSTACLE_SELECTOR,
        [TERMS_TAINTS] = OBSTACLE_TAINTS,
    };
    const struct reason_ask ask = {select_pod_of(p->pod),
                                   terms[ledger_node_judge(node, p->pod->terms)],
                                   terms_tolerate_cordon(p->pod->terms), &requests};
    uint32_t kinds = 0;
    p->n_list = reason_list(node, &ask, p->list);
    for (size_t i = 0; i < p->n_list && !p->list[i].card; i++)
        kinds |= UINT32_C(1) << p->list[i].kind;
    return kinds;
}

/* Cards that the extender has reserved for pods from filter to bind. The API objects do not
 * show them: only the leader's view does. */
static void add_reserved(struct explain_page *p, struct buf *out,
                         const struct ledger_node *node, const struct card *card)
{
    const json_t *viewed = json_object_getn(p->viewed, node->name.p, node->name.n);
    const json_t *dev, *item;
    const char *before = "; reserved: ";
    size_t i, k;
    json_array_foreach(json_object_get(viewed, "devs"), k, dev)
    {
        if (jpath_number(dev, "id") != card->index)
            continue;
        json_array_foreach(json_object_get(dev, "reservations"), i, item)
        {
            int64_t mib = jpath_number(item, "mib");
            buf_printf(out, "%s%.*s/%.*s %s", before,
                       SPAN_ARG(jpath_text(item, "namespace")),
                       SPAN_ARG(jpath_text(item, "name")), show_units(mib, p->unit).s);
            before = ", ";
            if (!span_eq(jpath_text(item, "uid"), p->pod->uid))
                continue;
            buf_printf(&p->own, "%sGPU%" PRId32, p->own.n ? ", " : "", card->index);
            p->own_node = node->name;
        }
    }
}

/* -- nodes, cards and the verdict -- */

static void add_card_row(struct explain_page *p, struct table *t,
                         const struct ledger_node *node, const struct card *card,
                         const struct obstacle *o)
{
    bool available = card->state == CARD_AVAILABLE;
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf why = {0};
    if (o->kind == OBSTACLE_MODEL && card->kind->profile.n && !request_is_selective(p->r))
        buf_adds(&why, "an instance, which is taken by its profile");
    else
        buf_adds(&why, obstacle_words[o->kind].text);
    if (o->kind == OBSTACLE_MEMORY)
        buf_adds(&why, show_units(o->needed - o->there, p->unit).s);
    if (o->kind == OBSTACLE_COMPUTE)
        buf_printf(&why, "%" PRId64 " %% of its compute", o->needed - o->there);
    /* Names a pod that has the card through nvidia.com/...; a claim has no certain
     * card. */
    struct ledger_node_info info = ledger_node_info(node);
    const struct scv_held *held = info.held, *end = held + info.n_held;
    while (o->kind == OBSTACLE_HELD && held < end &&
           !(ledger_held_cards(node, held) >> (card - node->cards) & 1))
        held++;
    if (o->kind == OBSTACLE_HELD && held < end)
        buf_printf(&why, " (pod %.*s/%.*s)", SPAN_ARG(held->ns), SPAN_ARG(held->pod));
    if (available && card_external_mib(card))
        buf_printf(&why, "; used outside Kubernetes: %s",
                   show_units(card_external_mib(card), p->unit).s);
    if (available && card->overuse_mib)
        buf_printf(&why, "; used by pods beyond their promises: %s",
                   show_units(card->overuse_mib, p->unit).s);
    explain_promises(&why, node, card, p->unit, &a);
    add_reserved(p, &why, node, card);
    table_span(t, PLAIN, SPAN(""));
    table_cell(t, PLAIN, "GPU%" PRId32, card->index);
    table_cell(t, PLAIN, "%s/%s", show_amount(card->free_mib, p->unit).s,
               show_amount(card->total_mib, p->unit).s);
    table_span(t, PLAIN, buf_span(&why));
    table_end(t);
}

/* Do the quotas of its namespace allow the pod these cards? */
static bool is_allowed(struct explain_page *p, const struct ledger_node *node,
                       uint64_t cards)
{
    const struct view_source source = cluster_state_source(p->cs);
    bool ok = core_quota_check(source.read(source.ctx), step_now(), p->pod->ns,
                               p->pod->uid, p->pod->request, node, cards, &p->quota) == 0;
    source.read_end(source.ctx);
    return ok;
}

/* A row of the node and one of each card; returns the kinds of the node's obstacles. */
static uint32_t add_rows(struct explain_page *p, struct table *t,
                         const struct ledger_node *node)
{
    cleanup_buf struct buf why = {0};
    uint32_t kinds = explain_obstacles(p, node);
    const struct obstacle *o = p->list, *end = o + p->n_list;
    if (!(kinds & ~EXPLAIN_LACKS)) {
        struct select_view view;
        uint64_t chosen;
        select_view(&view, node, NULL, SELECT_AS_IS);
        select_cards(&view, p->r, SELECT_ALL_CARDS, &chosen);
        if (!is_allowed(p, node, chosen))
            kinds |= EXPLAIN_LIMITED;
        buf_adds(&why, chosen ? "fits:" : "fits");
        for (; chosen; chosen &= chosen - 1)
            buf_printf(&why, " GPU%" PRId32, node->cards[__builtin_ctzll(chosen)].index);
        if (kinds & EXPLAIN_LIMITED)
            table_text(&why, "; %s", p->quota.msg);
        buf_adds(&why, kinds & EXPLAIN_LACKS ? "; " : "");
    }
    reason_write(&why, node, p->r, p->list, p->n_list);
    table_span(t, BOLD, node->name);
    table_span(t, PLAIN, SPAN(""));
    table_span(t, PLAIN, SPAN(""));
    table_span(t,
               !kinds                                ? GREEN
               : select_fit(node, p->r) == FIT_NEVER ? RED
                                                     : YELLOW,
               buf_span(&why));
    table_end(t);
    while (o < end && !o->card)
        o++;
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const bool any = o < end && o->card == &node->cards[i];
        add_card_row(p, t, node, &node->cards[i], any ? o++ : &(struct obstacle){0});
    }
    return kinds;
}

/* The nodes that the pod's own terms exclude are no candidates for what follows, and cordoned ones
 * are the last. */
static void add_nodes(struct explain_page *p, struct arena *a)
{
    const struct ledger_node **cordoned = arena_alloc(a, p->n * sizeof *cordoned);
    size_t n_cordoned = 0;
    cleanup_table struct table t = {.colors = p->facts->colors};
    cleanup_buf struct buf header = {0};
    buf_adds(&header, "NODE\tGPU\tFREE/TOTAL(");
    quantity_write_unit(&header, p->unit);
    buf_adds(&header, ")\tREASON");
    table_header(&t, header.p);
    for (size_t i = 0; i < p->n; i++) {
        const uint32_t kinds = add_rows(p, &t, p->nodes[i]);
        if (kinds & (1 << OBSTACLE_SELECTOR | 1 << OBSTACLE_TAINTS))
            continue;
        p->kinds |= kinds;
        p->fits += !kinds;
        p->crowded += kinds && !(kinds & ~(EXPLAIN_LACKS | EXPLAIN_LIMITED));
        if ((kinds & ~EXPLAIN_LACKS) == 1 << OBSTACLE_CORDON && !p->fits_cordoned++)
            p->cordoned = p->nodes[i]->name;
        if (kinds & 1 << OBSTACLE_CORDON)
            cordoned[n_cordoned++] = p->nodes[i];
        else
            p->nodes[p->n_open++] = p->nodes[i];
    }
    p->n = p->n_open;
    for (size_t i = 0; i < n_cordoned; i++)
        p->nodes[p->n++] = cordoned[i];
    table_write(&t, p->out);
}

/* -- single changes that would let the pod fit -- */

/* Would the request fit on the node without this obstacle, and with nothing of its card
 * withheld? */
static bool would_fit(const struct explain_page *p, const struct ledger_node *node,
                      const struct obstacle *o)
{
    struct ledger_node changed = *node;
    struct card cards[SCV_MAX_CARDS];
    struct select_view view;
    for (uint32_t i = 0; i < node->n_cards; i++) {
        cards[i] = node->cards[i];
        if (o->kind == OBSTACLE_NO_SLOTS)
            cards[i].slots_left = (int32_t)p->r->slots;
        if (&node->cards[i] == o->card) {
            cards[i].withheld_mib =
                o->card->state == CARD_AVAILABLE ? 0 : o->card->withheld_mib;
            cards[i].state = CARD_AVAILABLE;
        }
        cards[i].free_mib = card_left_mib(&cards[i]);
    }
    if (o->kind == OBSTACLE_MODE)
        changed.mode = NODE_ANY;
    if (o->kind == OBSTACLE_NODE)
        changed.state = NODE_USABLE;
    select_view_cards(&view, &changed, cards, node->claimed);
    return select_cards(&view, p->r, SELECT_ALL_CARDS, NULL) == FIT_YES;
}

/* Appends a change as one line. */
__attribute__((format(printf, 2, 3))) static void add_change(struct explain_page *p,
                                                             const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    buf_adds(&p->changes, "  - ");
    table_vtext(&p->changes, fmt, ap);
    buf_addc(&p->changes, '\n');
    va_end(ap);
}

/* -- smaller or other requests -- */

static const struct ledger_node *find_fit(const struct explain_page *p,
                                          const struct request *r)
{
    const struct select_pod pod = {r, p->pod->priority, p->pod->uid, NULL};
    for (size_t i = 0; i < p->n_open; i++)
        if (select_fit_pod(p->nodes[i], &pod) == FIT_YES)
            return p->nodes[i];
    return NULL;
}

/* Appends the models of the cluster. Does a card have a model and a clock that the request
 * accepts? */
static bool list_models(const struct explain_page *p, struct buf *out)
{
    json_auto_t *models = json_object();
    json_t *value;
    const char *name;
    bool any = false;
    for (size_t i = 0; i < p->n; i++)
        ARRAY_EACH_ITEM(const struct card, card, p->nodes[i]->cards, p->nodes[i]->n_cards)
        {
            struct span model = card->kind->model;
            any |= request_accepts_card(p->r, card->kind);
            if (model.n)
                json_object_setn_new(models, model.p, model.n, json_null());
        }
    json_object_foreach(models, name, value)
        buf_printf(out, "%s%s", out->n ? ", " : "", name);
    return any;
}

/* What can be asked less of, in steps. With each step the request fits wherever it did before. */
enum less { LESS_MEMORY, LESS_COMPUTE, LESS_CARDS, LESS_LINKS, LESS_ISOLATION, ANY_CARD };

static struct show_text amount_of(const struct explain_page *p, const struct request *r)
{
    struct show_text text = show_units(r->mib_per_card, r->slots ? 1 : p->unit);
    if (r->percent)
        snprintf(text.s, sizeof text.s, "%" PRIu32 " %%", r->percent);
    return text;
}

/* Takes so many steps, in words, too, and returns how many there are. 0: there is nothing of it in
 * the request. */
static int64_t lessen(const struct explain_page *p, enum less what, int64_t steps,
                      struct request *less, struct buf *words)
{
    const struct request *r = p->r;
    /* A limit is a whole number of units per card. */
    const int64_t unit = r->slots ? 1 : p->unit, least = r->slots ? r->slots : unit;
    const char *without = NULL;
    char weaker[8], demanded[8];
    int64_t most = 0;
    *less = *r;
    if (r->dialect &&
        !r->units) /* so that these count, and not the parts of containers */
        less->units = what == LESS_MEMORY;
    buf_clear(words);
    switch (what) {
    case LESS_MEMORY:
        most = r->percent                  ? r->percent - 1
               : r->kind == REQUEST_MEMORY ? (r->mib_per_card - least + unit - 1) / unit
                                           : 0;
        less->percent -= r->percent ? (uint32_t)steps : 0;
        less->mib_per_card = r->percent ? 0 : least + (most - steps) * unit;
        buf_printf(words, "request %s%s instead of %s: ", amount_of(p, less).s,
                   r->cards > 1 ? " per card" : "", amount_of(p, r).s);
        break;
    case LESS_COMPUTE:
        most = r->compute_percent > 0;
        less->compute_percent = 0;
        without = "limit " KEY_GPU_CORE;
        break;
    case LESS_CARDS:
        most = r->cards - 1;
        less->cards -= (uint32_t)steps;
        buf_printf(words,
                   "request %" PRIu32 " card%s instead of %" PRIu32 "%s: ", less->cards,
                   show_plural(less->cards), r->cards,
                   r->kind == REQUEST_MEMORY ? " (with the same memory per card)" : "");
        break;
    case LESS_LINKS:
        most = r->min_link ? r->min_link - LINK_NODE + 1 : 0;
        less->min_link = steps < most ? r->min_link - (uint8_t)steps : LINK_UNKNOWN;
        if (less->min_link)
            buf_printf(words, "annotation " KEY_MIN_LINK " %s instead of %s: ",
                       link_word(less->min_link, weaker),
                       link_word(r->min_link, demanded));
        else
            without = "annotation " KEY_MIN_LINK;
        break;
    case LESS_ISOLATION:
        most = p->kinds >> OBSTACLE_ISOLATION & 1;
        less->isolation = 0;
        without = "annotation " KEY_ISOLATION;
        break;
    case ANY_CARD:
        most = request_is_selective(r);
        *less = request_of_any_card(r);
        buf_adds(words, obstacle_words[OBSTACLE_MODEL].change);
    }
    if (without)
        buf_printf(words, "without %s, ", without);
    return most;
}

/* The fewest steps after which the request fits. */
static void try_less(struct explain_page *p, enum less what)
{
    const struct request *r = p->r;
    cleanup_buf struct buf words = {0}, models = {0}, card = {0}, text = {0};
    struct request less;
    int64_t low = 1, high = lessen(p, what, 0, &less, &words);
    if (high <= 0)
        return;
    while (low < high) { /* fewer than `low` do not suffice; `high` do, or none do */
        int64_t middle = low + (high - low) / 2;
        lessen(p, what, middle, &less, &words);
        if (find_fit(p, &less))
            high = middle;
        else
            low = middle + 1;
    }
    lessen(p, what, low, &less, &words);
    const struct ledger_node *node = find_fit(p, &less);
    if (r->models.n || !r->rules.n) /* else the clock need not be why */
        request_write_card(&card, r);
    if (what == ANY_CARD && !list_models(p, &models))
        buf_printf(&text, "no node has %s%s; models in the cluster: %s%s",
                   r->models.n ? ""
                   : card.n    ? "cards with "
                               : "cards that the annotations accept",
                   card.n ? card.p + 2 : "", models.n ? models.p : "none known",
                   node ? "; " : "");
    else if (what == LESS_ISOLATION && r->isolation & SCV_ISOLATION_DRIVER)
        add_change(p, "a node whose driver is 615 or newer");
    if (node)
        buf_printf(&text, "%sthe pod fits on node %.*s", words.p, SPAN_ARG(node->name));
    if (text.n)
        add_change(p, "%s", text.p);
}

/* -- nodes and cards back in service -- */

/* The end of each of the node's obstacles. */
static void try_node(struct explain_page *p, const struct ledger_node *node)
{
    explain_obstacles(p, node);
    for (const struct obstacle *o = p->list; o < p->list + p->n_list; o++) {
        const struct card *card = o->card;
        const char *end = obstacle_words[o->kind].change;
        const int64_t external = card && !end ? card_external_mib(card) : 0;
        const int64_t overuse = card && !end ? card->overuse_mib : 0;
        cleanup_buf struct buf how = {0}, pods = {0};
        if (o->kind == OBSTACLE_MODEL) /* tried as ANY_CARD */
            continue;
        const struct ledger_nomination *m =
            o->kind == OBSTACLE_NOMINATED ? node->nominated : NULL;
        for (; m; m = m->next)
            if (m->pod->priority >= p->pod->priority &&
                !span_eq(m->pod->uid, p->pod->uid))
                buf_printf(&pods, " pod %.*s/%.*s", SHOW_POD(m->pod));
        if (o->kind == OBSTACLE_NOMINATED)
            add_change(p,
                       "node %.*s has enough free memory%s, but reserves it for%s, "
                       "nominated to this node",
                       SPAN_ARG(node->name), p->r->compute_percent ? " and compute" : "",
                       pods.n ? pods.p : "");
        if (card && end)
            buf_printf(&how, " if GPU%" PRId32, card->index);
        buf_adds(&how, end ? end : "");
        if (o->kind == OBSTACLE_NODE)
            reason_add(&how, node, p->r, FIT_LATER);
        if (external)
            buf_printf(&how, " if processes outside Kubernetes free %s of GPU%" PRId32,
                       show_units(external, p->unit).s, card->index);
        if (overuse)
            buf_printf(
                &how, " %s pods that use more than their promises free %s of GPU%" PRId32,
                external ? "and" : "if", show_units(overuse, p->unit).s, card->index);
        if (how.n && would_fit(p, node, o))
            add_change(p, "the pod fits on node %.*s%s", SPAN_ARG(node->name), how.p);
    }
}

static void add_verdict(struct explain_page *p)
{
    if (!p->n) {
        buf_adds(p->out, "The pod's own terms exclude every node that has cards.\n");
        return;
    }
    if (p->facts->no_quotas && quota_counts(request_on(p->r, SCV_DIALECT_HAMI)))
        table_line(p->out, "! namespace %.*s: quotas cannot be read: %s",
                   SPAN_ARG(p->pod->ns), p->facts->no_quotas);
    if (p->fits) {
        buf_printf(p->out,
                   "The request fits on %zu node%s. kube-scheduler decides the rest: pod "
                   "affinity, topology spread, volumes.\n",
                   p->fits, show_plural(p->fits));
        return;
    }
    if (p->quota.code != ERR_NONE || !is_allowed(p, NULL, 0))
        table_line(p->out, "! namespace %.*s: %s", SPAN_ARG(p->pod->ns), p->quota.msg);
    if (p->crowded) {
        buf_printf(p->out,
                   "The request for GPUs fits on %zu node%s, but not what the pod needs "
                   "besides.\n",
                   p->crowded, show_plural(p->crowded));
        return;
    }
    if (p->fits_cordoned > 1)
        add_change(p,
                   "kubectl uncordon %.*s: the pod fits there and on %zu more cordoned "
                   "node%s",
                   SPAN_ARG(p->cordoned), p->fits_cordoned - 1,
                   show_plural(p->fits_cordoned - 1));
    else if (p->fits_cordoned)
        add_change(p, "kubectl uncordon %.*s: the pod fits there", SPAN_ARG(p->cordoned));
    cleanup_arena struct arena a = {0};
    struct explain_removal best = explain_removal(p, false, INT64_MAX, &a);
    cleanup_buf struct buf victims = {0};
    for (size_t i = 0; best.node && i < best.set.n; i++) {
        const struct ledger_pod *pod = best.set.pods[i];
        buf_printf(&victims, "%spod %.*s/%.*s (",
                   i == 0                ? ""
                   : i + 1 == best.set.n ? " and "
                                         : ", ",
                   SHOW_POD(pod));
        if (pod->request->kind == REQUEST_DEVICES)
            buf_printf(&victims, "%" PRIu32 " " KEY_NVIDIA_GPU, pod->request->cards);
        for (uint32_t k = 0; k < pod->n_shares; k++) {
            const struct ledger_share *share = &pod->shares[k];
            const struct card *card = ledger_share_card(pod->node, share);
            int64_t mib = card ? ledger_pod_mib(pod, card) : share->mib;
            buf_printf(&victims, "%s%s on GPU%" PRId32, k ? ", " : "",
                       show_units(mib, p->unit).s, card ? card->index : share->card);
        }
        buf_adds(&victims, pod->terminating ? ", terminating)" : ")");
    }
    if (best.node)
        add_change(p, "the pod fits on node %.*s without %s", SPAN_ARG(best.node->name),
                   victims.p);
    for (enum less what = LESS_MEMORY; what <= ANY_CARD; what++)
        try_less(p, what);
    for (size_t i = 0; i < p->n_open; i++)
        try_node(p, p->nodes[i]);
    if (p->fits_cordoned)
        buf_printf(p->out, "The request fits only on %zu cordoned node%s.\n",
                   p->fits_cordoned, show_plural(p->fits_cordoned));
    if (p->changes.n)
        buf_printf(p->out, "Each of these changes alone would let the pod fit:\n%s",
                   p->changes.p);
    else
        buf_printf(p->out,
                   "No single change would let the pod fit. The pod needs a node %swith "
                   "more or larger cards.\n",
                   p->n > p->n_open ? "that is not cordoned, or one " : "");
}

/* Whether the members of the pod's gang fit together on the nodes that the pod may use. */
static void add_gang(struct explain_page *p, struct arena *a)
{
    const struct ledger_member *m = p->pod->member;
    cleanup_buf struct buf text = {0};
    struct gang_verdict v;
    struct gang_asker asker = {.pod = select_pod_of(p->pod),
                               .name = m->gang->name,
                               .minimum = p->minimum,
                               .scheduler = p->pod->scheduler,
                               .requests = ledger_pod_requests(p->pod)};
    asker.pod.gang = m->gang;
    gang_judge(p->l, &asker, p->nodes, p->n_open, p->r->placement == PLACE_SPREAD, a, &v);
    if (v.fits)
        buf_printf(&text, "gang %.*s: %" PRIu32 " of %" PRIu32 " members are bound; %s",
                   SPAN_ARG(m->gang->name), v.placed, v.total,
                   v.placed ? "the others fit together" : "all fit together");
    else
        gang_judge_reason(&text, &asker, &v);
    if (v.placed && v.placed < v.needed)
        buf_printf(&text,
                   "; %" PRIu32 " of %" PRIu32 " that must start are bound, so a part of "
                   "the gang runs",
                   v.placed, v.needed);
    for (m = m->gang->members; m; m = m->next) {
        const struct ledger_pod *pod = m->pod;
        bool other = pod->scheduler != p->pod->scheduler;
        if (pod->node || pod == p->pod ||
            (!pod->gated && !other && !(v.placed && v.placed < v.needed)))
            continue;
        buf_printf(&text, "; pod %.*s %s", SPAN_ARG(pod->name),
                   pod->gated ? "has schedulingGates"
                   : other    ? "has another schedulerName"
                              : "waits, too");
        /* Why kube-scheduler does not bind the member, if that is known. */
        const json_t *object;
        size_t i;
        json_array_foreach(p->facts->members, i, object)
        {
            struct span message = explain_unscheduled(object, NULL);
            if (message.n && span_eq(jpath_text(object, "metadata.uid"), pod->uid))
                buf_printf(&text, " (kube-scheduler: %.*s)", SPAN_ARG(message));
        }
    }
    if (v.absent)
        buf_printf(&text,
                   "; %" PRIu32
                   " more do not exist; the extender waits for them for --gang-wait "
                   "after the first",
                   v.absent);
    table_line(p->out, "%s.", text.p);
}

void explain_pending(struct explain_page *p)
{
    cleanup_arena struct arena a = {0};
    const char *invalid = p->pod->invalid_reason ?: p->facts->invalid;
    if (invalid) {
        table_line(p->out, " is pending; request invalid: %s", invalid);
        return;
    }
    p->r = p->pod->request;
    p->minimum = p->pod->member ? p->pod->member->minimum ?: p->facts->minimum : 1;
    size_t n = show_nodes(p->l, (struct span){0}, &a, &p->nodes);
    for (size_t i = 0; i < n; i++) /* pods can name nodes that do not exist */
        if (p->nodes[i]->state != NODE_UNKNOWN)
            p->nodes[p->n++] = p->nodes[i];
    buf_adds(p->out, " is pending; requests ");
    explain_request(p);
    buf_printf(p->out, " (priority %" PRId32 ")\n\n", p->pod->priority);
    if (!p->n) {
        buf_adds(p->out, "no node of the cluster has a GPU managed by gpushare\n");
        return;
    }
    const json_t *item;
    size_t k;
    p->viewed = json_object();
    json_array_foreach(json_object_get(p->facts->view, "nodes"), k, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name)
            json_object_set(p->viewed, name, (json_t *)item);
    }
    add_nodes(p, &a);
    buf_addc(p->out, '\n');
    for (size_t i = 0; i < p->n; i++) { /* heartbeats that make the table unreliable */
        cleanup_buf struct buf note = {0};
        cluster_state_note_heartbeat(&note, p->cs, p->nodes[i]);
        if (note.n)
            table_line(p->out, "! %.*s: %s", SPAN_ARG(p->nodes[i]->name), note.p);
    }
    add_verdict(p);
    if (p->own.n)
        table_line(p->out, "Reserved for this pod until its bind: %s of node %.*s.",
                   p->own.p, SPAN_ARG(p->own_node));
    explain_preemption(p);
    if (p->minimum != 1)
        add_gang(p, &a);
    json_decref(p->viewed);
    buf_fini(&p->changes);
    buf_fini(&p->own);
}
