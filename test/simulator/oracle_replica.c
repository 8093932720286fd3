/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/reason.h"

/*
 * What a replica must count for a bound pod, although its annotations may have been edited.
 * It knows the promise as it was made if it sent the Binding, or if the first version of
 * the bound pod that it got since its start had the annotations of the Binding. Of other
 * pods it knows what the podList of the node shows, as delivered to it. A pod with limits
 * that names no card must count on every card of a node without a podList.
 *
 * And the oracle at rest: every ledger must match the API objects, and no pending pod fits.
 */

/* The annotations of a promise as a text. New. */
static char *text_of(json_t *pod)
{
    cleanup_buf struct buf text = {0};
    for (int i = 0; i < PROMISE_KEYS; i++) {
        const char *value = oracle_note(pod, i);
        buf_printf(&text, "%s%s\n", value ? "=" : "",
                   value && i != KEY_ASSIGNED ? value : "");
    }
    return buf_take(&text);
}

/* Does it carry the record of a bind for this very pod? */
static bool is_recorded(const struct oracle_pod *p, json_t *pod)
{
    const char *record = oracle_note(pod, KEY_MEMORY);
    const char *blank = record ? strchr(record, ' ') : NULL;
    return blank && !strcmp(blank + 1, p->uid);
}

/* Does a pod as delivered have the annotations of its promise? */
static bool is_intact(const struct oracle_pod *p, const struct pod *pod)
{
    cleanup_buf struct buf text = {0};
    const struct span values[PROMISE_KEYS] = {
        pod->idx,        pod->allocation, pod->card_uuid, pod->card_memory,
        pod->card_units, pod->units,      pod->assigned,  pod->assume_time};
    for (int i = 0; i < PROMISE_KEYS; i++)
        buf_printf(&text, "%s%.*s\n", values[i].p ? "=" : "",
                   i == KEY_ASSIGNED ? 0 : (int)values[i].n, values[i].p);
    return p->promise && !strcmp(text.p, p->promise);
}

static struct oracle_pod *pod_of(const struct world *w, const struct pod *pod)
{
    cleanup_free char *uid = xmemdup0(pod->meta.uid.p, pod->meta.uid.n);
    return oracle_find(w, uid);
}

/* A podList stays until the next one, while the agent has none. It does not outlive its
 * Scv. */
static void keep_listed(const struct world *w, struct oracle_pod *p,
                        const struct replica *r)
{
    int64_t mib;
    int node = oracle_index(p->node);
    struct oracle_view *v = &p->of[r->id];
    const char *version = node < 0 ? NULL : delivered_scv(&r->delivered.nodes[node]);
    enum kubelet_view view = kubelet_shows(w, version, node, p, 0, &mib);
    if (!version || view == KUBELET_LACKS || !v->known)
        v->kept = 0;
    else if (view != KUBELET_SILENT)
        v->kept = p->given;
}

void oracle_scvs_delivered(struct world *w, const struct replica *r)
{
    EACH_POD(w, p)
    keep_listed(w, p, r);
}

void oracle_delivered(struct world *w, const struct replica *r, const struct pod *pod)
{
    struct oracle_pod *p = pod_of(w, pod);
    if (p && span_eq(span_of(p->resource_version), pod->meta.version))
        p->of[r->id].delivered = p->version;
    if (!p || !p->node || !pod->node.n)
        return;
    struct oracle_view *v = &p->of[r->id];
    bool intact = is_intact(p, pod);
    /* The first cards that a replica sees are the promise, for it. */
    v->carded |= pod->idx.p || pod->allocation.p;
    if (p->n_cards == 0) /* nothing is final yet */
        v->sure = intact && !v->doubted && !v->carded;
    else
        v->sure |= intact && !v->known && !v->doubted;
    v->known = true;
    keep_listed(w, p, r);
}

void oracle_answered(struct world *w, const struct replica *r, const struct pod *pod)
{
    struct oracle_pod *p = pod_of(w, pod);
    if (!p || !p->node || !pod->node.n)
        return;
    struct oracle_view *v = &p->of[r->id];
    v->carded |= pod->idx.p || pod->allocation.p;
    v->doubted |= !v->sure && !is_intact(p, pod);
}

void oracle_bind_answered(struct world *w, const struct replica *r, const char *uid)
{
    struct oracle_pod *p = oracle_find(w, uid);
    if (p && p->node && !p->foreign && !p->of[r->id].carded)
        p->of[r->id].sure = true;
}

void oracle_restarted(struct world *w, const struct replica *r)
{
    EACH_POD(w, p)
    p->of[r->id] = (struct oracle_view){0};
}

/* The larger amount; 0 is the whole card. */
static int64_t larger(const struct oracle_pod *p, int64_t a, int64_t b)
{
    return p->ask.whole && (a >= 0 || b >= 0) ? 0 : a > b ? a : b;
}

bool oracle_has_no_card(const struct world *w, const char *uid)
{
    const struct oracle_pod *p = oracle_find(w, uid);
    return p && p->labeled && p->foreign && !p->n_cards && !p->tampered && !p->odd;
}

int64_t oracle_must_count(const struct world *w, const struct oracle_pod *p,
                          const struct replica *r, int node, int card)
{
    const struct oracle_view *v = &p->of[r->id];
    const struct node_copy *delivered = &r->delivered.nodes[node];
    int64_t mib = -1, listed = 0;
    if (oracle_index(p->node) != node || p->over)
        return -1;
    enum kubelet_view view =
        kubelet_shows(w, delivered_scv(delivered), node, p, card, &listed);
    /* A promise without a card ends where the kubelet gave one. */
    bool elsewhere = p->n_cards == 0 && view == KUBELET_GIVES_OTHERS;
    if (v->sure && !p->odd && !elsewhere)
        mib = oracle_holds(p, node, card);
    if (!v->known)
        return mib;
    if (view == KUBELET_GIVES)
        mib = larger(p, mib, listed);
    if (view == KUBELET_SILENT && v->kept & 1u << card)
        mib = larger(p, mib, p->given_mib[card]);
    /* Without any card it counts on each card. Labels alone get no card. */
    bool nowhere = p->labeled || (!p->ask.whole && p->ask.mib == 0);
    if (!(v->sure && p->n_cards) && !v->carded && view == KUBELET_SILENT && !v->kept)
        mib = larger(p, mib, nowhere ? -1 : p->ask.mib);
    /* Labels may ask for less by now; then the annotations count, as far as the card goes. */
    int64_t size = delivered_mib(delivered, card);
    return p->labeled && size > 0 && mib > size ? size : mib;
}

struct oracle_sum oracle_known_sum(const struct world *w, const struct replica *r,
                                   int node, int card)
{
    struct oracle_sum sum = {0};
    EACH_POD(w, p)
    if (p->of[r->id].known)
        oracle_add(&sum, p, oracle_must_count(w, p, r, node, card));
    return sum;
}

/* -- the promise as it was made, and edits of it -- */

/* Do all keys name the same cards of the node, each once? */
static bool is_clear(const struct oracle_pod *p, json_t *pod, int node)
{
    const char *uuids = oracle_note(pod, KEY_UUID);
    struct oracle_notes notes = oracle_notes(pod, node);
    cleanup_buf struct buf expected = {0};
    unsigned bits = 0;
    if (!oracle_note(pod, KEY_IDX))
        return !notes.allocated;
    if (!notes.exact || notes.n != p->n_cards)
        return false;
    for (int i = 0; i < notes.n; i++) {
        char uuid[32];
        buf_printf(&expected, "%s%s", i ? "," : "",
                   oracle_uuid(node, notes.card[i], uuid));
        bits |= 1u << notes.card[i];
    }
    if (uuids && *uuids && strcmp(uuids, expected.p) != 0)
        return false;
    return notes.valid && (!notes.allocated || notes.bits == bits);
}

/* Does a UUID belong to no card of the node? */
static bool names_strange_card(json_t *pod, int node)
{
    struct span rest = span_of(oracle_note(pod, KEY_UUID));
    bool strange = false;
    while (rest.n) {
        struct span uuid = span_cut(&rest, ',');
        bool here = !uuid.n;
        for (int card = 0; card < oracle_cards(node); card++) {
            char name[32];
            here |= span_eq(uuid, span_of(oracle_uuid(node, card, name)));
        }
        strange |= !here;
    }
    return strange;
}

void truth_bound(struct oracle_pod *p, json_t *pod)
{
    int node = oracle_index(p->node);
    p->promise = text_of(pod);
    p->recorded = is_recorded(p, pod);
    p->strange = names_strange_card(pod, node);
    /* A forged record of a bind in a dialect, which a replica counts. */
    p->odd = (p->foreign && !is_clear(p, pod, node)) ||
             (p->devices && oracle_note(pod, KEY_MEMORY));
}

void truth_changed(struct world *w, struct oracle_pod *p, json_t *pod)
{
    cleanup_free char *text = text_of(pod);
    bool changed = strcmp(text, p->promise) != 0;
    if (changed && !p->foreign && w->policy)
        violated(w, "the promise of %s has changed although the policy is on", p->uid);
    p->tampered |= changed;
    p->recorded |= is_recorded(p, pod);
    p->strange |= names_strange_card(pod, oracle_index(p->node));
}

/* Is one of its cards an instance that is gone, or in MIG mode? */
static bool lost_a_card(const struct world *w, const struct oracle_pod *p)
{
    for (int i = 0; i < p->n_cards; i++)
        if (!oracle_exists(w, oracle_index(p->node), p->card[i]))
            return true;
    return false;
}

/* May replicas disagree about the cards of the pod? */
static bool is_unclear(const struct world *w, const struct oracle_pod *p)
{
    bool others = p->foreign && p->n_cards && p->n_cards != p->ask.cards;
    return p->tampered || others || p->odd || (p->foreign && lost_a_card(w, p));
}

/* The amount that a ledger counts: never more than the request, never less. */
static void compare_amount(struct world *w, const struct replica *r,
                           const struct oracle_pod *p, const struct ledger_pod *mine)
{
    int node = oracle_index(p->node);
    int64_t most = 0, sum = 0, smallest = INT64_MAX, listed;
    for (uint32_t i = 0; i < mine->node->n_cards; i++) {
        int64_t size = mine->node->cards[i].total_mib;
        smallest = size < smallest ? size : smallest;
        int64_t mib = ledger_pod_mib(mine, &mine->node->cards[i]);
        sum += mib > 0 ? mib : 0;
        most = mib > most ? mib : most;
    }
    enum kubelet_view view =
        kubelet_shows(w, delivered_scv(&r->delivered.nodes[node]), node, p, 0, &listed);
    if (p->labeled && !p->ask.whole && !p->edited && !p->recorded &&
        most > p->ask.mib * p->ask.cards)
        violated(w,
                 "r%d counts %lld MiB of one card for pod %s, whose labels request %lld",
                 r->id, (long long)most, p->uid, (long long)p->ask.mib * p->ask.cards);
    int64_t least = p->ask.whole || p->raw_hami > smallest ? smallest : p->raw_hami;
    if (p->ask.in_words && !p->foreign && most > 0 && most < least)
        violated(w, "r%d counts %lld MiB of one card for pod %s, whose limits say %lld",
                 r->id, (long long)most, p->uid, (long long)least);
    if (!p->raw_mem || p->raw_cards || p->devices)
        return;
    if (most > p->raw_mem * 1024)
        violated(w, "r%d counts %lld MiB of one card for pod %s, which requests %lld",
                 r->id, (long long)most, p->uid, (long long)p->raw_mem * 1024);
    if (view != KUBELET_LACKS && !p->strange && !lost_a_card(w, p) &&
        sum < p->raw_mem * 1024)
        violated(w, "r%d counts %lld MiB for pod %s, which requests %lld", r->id,
                 (long long)sum, p->uid, (long long)p->raw_mem * 1024);
}

/* -- at rest -- */

/* Cards of other device plugins. */
struct away {
    unsigned bits;  /* in the podList, or needed by the kubelet in any case */
    unsigned empty; /* of the others: full cards without a promise */
    int claimed;    /* cards for pods that have none yet */
    bool unclear;   /* it depends on unclear promises */
};

/* If the kubelet needs all cards that are left, or all without a promise, these are away. */
static struct away away(const struct world *w, int node)
{
    struct away a = {.bits = w->listed[node]};
    unsigned left = 0, promised = 0;
    for (int card = 0; card < oracle_cards(node); card++)
        if (oracle_available(w, node, card) && !(a.bits & 1u << card) &&
            !*oracle_profile(node, card))
            left |= 1u << card;
    EACH_POD(w, p)
    {
        if (oracle_index(p->node) != node || p->over)
            continue;
        a.claimed += p->shown ? 0 : p->devices;
        a.unclear |= oracle_is_vague(p) || is_unclear(w, p);
        for (int card = 0; card < oracle_cards(node); card++)
            promised |= oracle_holds(p, node, card) >= 0 ? 1u << card : 0;
    }
    a.empty = left & ~promised;
    if (a.claimed && a.claimed >= __builtin_popcount(a.empty)) {
        a.bits |= a.claimed >= __builtin_popcount(left) ? left : a.empty;
        a.empty = 0;
    }
    a.unclear &= a.claimed && a.claimed < __builtin_popcount(left);
    return a;
}

/* A percentage in HAMi's words of a card that has grown can count for more than it got. */
static bool has_grown(const struct world *w, const struct oracle_pod *p, int node)
{
    for (int i = 0; i < p->n_cards && p->ask.in_words && !p->ask.whole; i++) {
        struct oracle_ask now = p->ask;
        now.mib = p->raw_hami;
        if (oracle_ask_mib(&now, oracle_card_mib(w, node, p->card[i] % CARDS)) >
            p->ask.mib + 1)
            return true;
    }
    return false;
}

static bool fits(const struct world *w, const struct oracle_pod *p, int node)
{
    unsigned bits = 0;
    if (p->ask.invalid || p->ask.nothing)
        return false;
    if (p->devices && !p->ask.models[0] && !p->ask.clock && !p->ask.least)
        return true;
    EACH_POD(w, q)
    if (!q->over && oracle_index(q->node) == node &&
        (is_unclear(w, q) || has_grown(w, q, node) ||
         (q->labeled && (oracle_is_vague(q) || q->edited))))
        return false; /* its amount depends on when a replica first saw it */
    if (p->devices)
        return oracle_devices_left(w, p, node, NULL) >= p->devices;
    if (p->ask.isolation && !(p->ask.isolation & oracle_enforces(w->isolation[node])))
        return false;
    if (p->ask.in_words && (!w->in_words || node != HAMI_NODE))
        return false;
    struct away a = away(w, node);
    for (int card = 0; card < oracle_cards(node); card++)
        if (oracle_available(w, node, card) && !(a.bits & 1u << card) &&
            oracle_card_matches(p, node, card) && oracle_fits(w, p, node, card) &&
            (!p->raw_core ||
             oracle_sum(w, node, card).core + p->raw_core / p->ask.cards <= 100))
            bits |= 1u << card;
    if ((p->ask.percent || p->ask.parts[0] || p->ask.parts[1] || p->ask.parts[2]) &&
        p->ask.cards > 1)
        return false; /* which of them have one size is not judged */
    int spare = __builtin_popcount(a.empty) - a.claimed;
    int beyond =
        a.claimed ? __builtin_popcount(bits & a.empty) - (spare > 0 ? spare : 0) : 0;
    if (beyond > 0 && __builtin_popcount(bits) - beyond < p->ask.cards)
        return false;
    if (beyond > 0 && spare < p->ask.cards && p->ask.min_link)
        return false; /* which of them are left is not judged */
    return oracle_connects(&w->links[node], bits, p->ask.cards, p->ask.min_link);
}

/* May a replica ignore the pod? It has no request, unless the extender bound it. */
static bool is_optional(const struct oracle_pod *p)
{
    return p->node ? oracle_is_vague(p) || (p->labeled && p->tampered) : p->ask.nothing;
}

/* A pending pod has its newest request, also if it was edited during a bind that failed. */
static void compare_request(struct world *w, const struct replica *r,
                            const struct oracle_pod *p, const struct ledger_pod *mine)
{
    const struct oracle_ask *ask = &p->ask;
    enum request_kind want = ask->invalid ? REQUEST_NONE
                             : p->devices ? REQUEST_DEVICES
                             : ask->whole ? REQUEST_CARDS
                                          : REQUEST_MEMORY;
    const struct request *has = mine->request;
    bool same = has->kind == want && ask->invalid == (mine->invalid_reason != NULL);
    if (want == REQUEST_MEMORY && ask->in_words)
        same = same && has->dialect == SCV_DIALECT_HAMI &&
               oracle_part(has, 12196) == oracle_ask_mib(ask, 12196) &&
               (int32_t)has->slots == ask->slots && has->isolation == ask->isolation &&
               has->compute_percent * (int64_t)has->cards == p->raw_core;
    else if (want == REQUEST_MEMORY)
        same =
            same && has->mib_per_card == ask->mib && (int32_t)has->slots == ask->slots &&
            (int32_t)has->percent == ask->percent && has->isolation == ask->isolation &&
            has->compute_percent * (int64_t)has->cards == p->raw_core;
    if (want == REQUEST_MEMORY || want == REQUEST_CARDS)
        same = same && (int32_t)has->cards == ask->cards &&
               has->min_link == (ask->min_link ? ask->min_link + 1 : 0);
    if (!same)
        violated(w, "r%d has an old request of the pending pod %s", r->id, p->uid);
}

void oracle_bind_failed(struct world *w, const struct replica *r, const char *uid)
{
    const struct oracle_pod *p = uid ? oracle_find(w, uid) : NULL;
    const struct ledger_pod *mine = p ? replica_pod(r, uid) : NULL;
    if (mine && !mine->node && !p->node && !is_optional(p) &&
        p->of[r->id].delivered == p->version)
        compare_request(w, r, p, mine);
}

static void compare_pod(struct world *w, const struct replica *r,
                        const struct oracle_pod *p)
{
    const struct ledger_pod *mine = replica_pod(r, p->uid);
    if (p->over && mine)
        violated(w, "r%d still has pod %s, which is terminal", r->id, p->uid);
    if (!p->over && !mine && !is_optional(p))
        violated(w, "r%d lacks pod %s", r->id, p->uid);
    if (p->over || !mine)
        return;
    const char *node = mine->node ? mine->node->name.p : "nothing";
    if (strcmp(node, p->node ? p->node : "nothing") != 0) {
        violated(w, "r%d has pod %s on %s, it is on %s", r->id, p->uid, node,
                 p->node ? p->node : "nothing");
        return;
    }
    if (!mine->node) {
        if (!is_optional(p))
            compare_request(w, r, p, mine);
        return;
    }
    compare_amount(w, r, p, mine);
    if (oracle_is_vague(p) || is_unclear(w, p))
        return;
    if ((int)mine->n_shares != p->n_cards)
        violated(w, "r%d has %u shares of pod %s (%s), it has %d cards, by %s", r->id,
                 mine->n_shares, p->uid, p->name, p->n_cards, p->promise);
    int64_t mib = oracle_pod_mib(p);
    bool more = p->labeled && p->edited; /* labels may request more now */
    for (uint32_t i = 0; i < mine->n_shares; i++) {
        bool same = false;
        int64_t has = mine->shares[i].mib;
        const struct card *on = ledger_share_card(mine->node, &mine->shares[i]);
        /* Of HAMi, it has no index; the node may have no cards now. */
        int index = p->raw_hami && on ? on->index : mine->shares[i].card;
        for (int k = 0; k < p->n_cards; k++)
            same |= ((p->raw_hami && !on) ||
                     oracle_card(oracle_index(p->node), index) == p->card[k]) &&
                    (p->ask.whole || has == mib || (more && has > mib));
        if (!same)
            violated(w, "r%d has another share of pod %s", r->id, p->uid);
    }
}

static void compare(struct world *w, const struct replica *r)
{
    struct err err = {0};
    size_t here = 0, there = 0;
    if (core_ready(r->core, replica_time(w, r), &err))
        violated(w, "r%d is not ready at rest: %s", r->id, err.msg);
    if (core_stats(r->core).binds_in_flight)
        violated(w, "r%d still has a bind in flight", r->id);
    EACH_NODE(w, node)
    {
        const struct ledger_node *n = replica_node(r, node);
        if (n && n->state == NODE_STALE)
            violated(w, "at rest r%d still has a stale heartbeat of n%d", r->id, node);
        struct away a = away(w, node);
        for (int i = 0, card; n && !a.unclear && i < (int)n->n_cards; i++)
            if (oracle_available(w, node, card = oracle_card(node, n->cards[i].index)) &&
                (n->cards[i].state == CARD_HELD) != (bool)(a.bits & 1u << card))
                violated(w,
                         "r%d is wrong about GPU%d of n%d being held through "
                         "nvidia.com/gpu",
                         r->id, card, node);
    }
    EACH_POD(w, p)
    {
        compare_pod(w, r, p);
        there += !p->over && !is_optional(p);
    }
    const struct ledger *l = core_ledger(r->core);
    for (const struct ledger_pod *p = ledger_first_pod(l); p; p = ledger_next_pod(l, p)) {
        const struct oracle_pod *q = oracle_find(w, p->uid.p);
        here += !q || !is_optional(q);
    }
    if (here != there)
        violated(w, "r%d has %zu pods, the API has %zu", r->id, here, there);
}

/* The opinion of the first replica. */
static void explain(struct world *w, const struct oracle_pod *p, int node)
{
    cleanup_buf struct buf why = {0};
    const struct replica *r = w->replicas;
    const struct ledger_pod *pod = replica_pod(r, p->uid);
    const struct ledger_node *n = replica_node(r, node);
    if (pod && n)
        reason_add(&why, n, pod->request, select_fit(n, pod->request));
    cleanup_json_value json_t *scv =
        api_get(w, "/apis/core.run-linux.com/v1/scvs/n%d", node);
    cleanup_free char *text = json_dumps(scv, JSON_COMPACT);
    trace(w, "the Scv is %s", text ? text : "absent");
    trace(w, "r0: pod %s on n%d: %s %s", p->uid, node, why.n ? why.p : "?",
          pod && pod->invalid_reason ? pod->invalid_reason : "");
}

void oracle_settled(struct world *w)
{
    trace(w, "at rest");
    EACH_REPLICA(w, r)
    compare(w, r);
    plain_settled(w);
    EACH_POD(w, p)
    for (int node = w->first_node; oracle_pending(p) && node < w->end_node; node++)
        if (fits(w, p, node) && !gangs_may_wait(w, p)) {
            explain(w, p, node);
            violated(w,
                     "pod %s (%lld MiB on each of %d cards%s, %d devices, %s, %d MHz) "
                     "fits on n%d and is not bound",
                     p->uid, (long long)p->ask.mib, p->ask.cards,
                     p->ask.whole ? ", whole" : "", p->devices, p->ask.models,
                     p->ask.clock, node);
        }
}
