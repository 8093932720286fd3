/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Checks the reservations of a replica after each step. Only the leader has any, each was
 * asked for by a filter, ends at its time limit, and has a pod that is not bound, deleted or
 * promised cards. A pod of higher priority is not rejected because of weaker reservations.
 * witness.c checks that no bind takes what is reserved for another pod.
 *
 * A list of reservations is taken after each step, so a bind is judged by those before it,
 * whatever the step did to them.
 */

void witness_reserved_fini(struct witness_reserved *list)
{
    free(list->items);
    *list = (struct witness_reserved){0};
}

static const struct reserved *find(const struct witness_reserved *seen, const char *uid)
{
    for (size_t i = 0; i < seen->n; i++)
        if (!strcmp(seen->items[i].uid, uid))
            return &seen->items[i];
    return NULL;
}

bool witness_reserved_has(const struct witness_reserved *seen, const char *uid, int node)
{
    const struct reserved *r = find(seen, uid);
    return r && r->node == node;
}

int64_t witness_reserved_mib(const struct witness_reserved *seen, const char *uid,
                             int64_t priority, int node, int card, int64_t size)
{
    int64_t sum = 0;
    for (size_t i = 0; i < seen->n; i++) {
        const struct reserved *r = &seen->items[i];
        if (r->node != node || r->priority < priority || !strcmp(r->uid, uid))
            continue;
        for (int k = 0; k < r->n; k++)
            if (r->card[k] == card)
                sum += r->mib[k] ? r->mib[k] : size;
    }
    return sum;
}

static struct reserved read_one(const struct ledger_reservation *from)
{
    struct reserved r = {.priority = from->priority};
    snprintf(r.uid, sizeof r.uid, "%s", from->uid.p);
    snprintf(r.name, sizeof r.name, "/%s has ended", from->name.p);
    r.in_gang = gangs_has(from->name.p);
    r.node = oracle_index(from->node->name.p);
    for (uint32_t i = 0; i < from->n_shares && i < ARRAY_LEN(r.card); i++) {
        r.card[r.n] = from->shares[i].card;
        r.mib[r.n++] = from->whole ? 0 : from->shares[i].mib;
    }
    return r;
}

/* Was it made in this step? */
static bool is_made(const struct core_input *in, const struct step_outputs *out,
                    const char *uid)
{
    if (in->type != CORE_RESERVE || (!in->gang && !span_eq(in->uid, span_of(uid))))
        return false; /* gangs_check: for members of the gang only */
    STEP_EACH(struct core_output, o, out)
    if (o->type == CORE_RESERVED && o->reserve == CORE_RESERVE_DONE)
        return true;
    return false;
}

static void check_one(struct world *w, const struct replica *r,
                      const struct reserved *now, const struct ledger_reservation *from,
                      const struct core_input *in)
{
    const struct core *core = replica_core(r);
    const struct ledger_pod *pod = ledger_pod_find(core_ledger(core), span_of(now->uid));
    int64_t age_ms = replica_time(w, r).mono_ms - now->made_ms;
    int id = replica_id(r);
    if (!core_is_leader(core))
        violated(w, "r%d reserves cards for %s and does not lead", id, now->uid);
    int64_t limit_ms = now->in_gang ? CORE_GANG_RESERVATION_MS : CORE_RESERVATION_MS;
    if (in->type == CORE_TICK && age_ms >= limit_ms)
        violated(w, "r%d has reserved cards for %s for %lld ms", id, now->uid,
                 (long long)age_ms);
    if (from->until_ms > now->made_ms + limit_ms)
        violated(w, "r%d: the reservation of %s ends %lld ms after its time limit", id,
                 now->uid, (long long)(from->until_ms - now->made_ms - limit_ms));
    if (pod && pod->node)
        violated(w, "r%d reserves cards for %s, which has a promise", id, now->uid);
}

/* The pod that was delivered is not pending any more. */
static bool has_ended(const struct core_input *in)
{
    return in->type == CORE_OBJECT && in->kind == CORE_PODS && !in->invalid &&
           (in->deleted || in->pod->node.n || pod_is_terminal(in->pod));
}

/* Is the card free enough for the request, but for weaker reservations? */
static bool has_room(const struct witness_reserved *seen, const char *uid,
                     const struct request *request, int64_t priority, int node,
                     const struct card *card)
{
    int64_t taken =
        witness_reserved_mib(seen, uid, priority, node, card->index, card->total_mib);
    return card->state == CARD_AVAILABLE && !card->whole &&
           card->total_mib - card->promised_mib - taken >= request->mib_per_card &&
           (!request->core ||
            card->compute_promised + card->compute_reserved + request->core <= 100) &&
           request_accepts_card(request, span_of(oracle_model(node, card->index)),
                                oracle_clock(node, card->index));
}

/* Memory on one card only: whether several cards suit is not judged here. */
static bool fits(const struct world *w, const struct replica *r,
                 const struct witness_reserved *seen, const char *uid,
                 const struct request *request, int64_t priority, struct span name)
{
    const struct ledger_node *node = ledger_node_find(core_ledger(replica_core(r)), name);
    if (!node || node->state != NODE_USABLE || request->kind != REQUEST_MEMORY ||
        request->cards != 1 || evictions_nominated(w, node))
        return false;
    for (uint32_t i = 0; i < node->n_cards; i++)
        if (has_room(seen, uid, request, priority, oracle_index(node->name.p),
                     &node->cards[i]))
            return true;
    return false;
}

/* A filter got no reservation, or a bind no card: not because of weaker reservations. */
static void check_rejected(struct world *w, const struct replica *r,
                           const struct witness_reserved *seen,
                           const struct core_input *in, const struct core_output *o)
{
    const struct core *core = replica_core(r);
    cleanup_free char *uid = xmemdup0(in->uid.p, in->uid.n);
    const struct ledger_pod *pod = ledger_pod_find(core_ledger(core), in->uid);
    bool binds = (pod && pod->node) || scheduler_binds(w, uid);
    bool has = ledger_reservation_find(core_ledger(core), in->uid) != NULL;
    if (o->type == CORE_RESERVED && in->request->kind != REQUEST_DEVICES &&
        has != (o->reserve == CORE_RESERVE_DONE))
        violated(w, "r%d: the outcome of the reservation of %s is %d, but it %s one",
                 replica_id(r), uid, (int)o->reserve, has ? "has" : "lacks");
    if (o->type == CORE_RESERVED && !o->node && !binds && !in->gang &&
        core_may_bind(core, replica_time(w, r), NULL) == 0)
        for (size_t i = 0; i < in->n_nodes; i++)
            if (fits(w, r, seen, uid, in->request, in->priority, in->nodes[i]))
                violated(w, "r%d: no cards are reserved for %s, which fits on %.*s",
                         replica_id(r), uid, SPAN_ARG(in->nodes[i]));
    if (in->type == CORE_BIND && o->type == CORE_REPLY && pod && !pod->node &&
        !strncmp(o->text, "no card of node", 15) &&
        fits(w, r, seen, uid, pod->request, pod->priority, in->node_name))
        violated(w, "r%d: the bind of %s fails, but it fits on %.*s", replica_id(r), uid,
                 SPAN_ARG(in->node_name));
}

/* A pod of that priority has got cards of the node: weaker reservations that lost theirs
 * have ended. */
static void check_weaker(struct world *w, const struct replica *r,
                         const struct witness_reserved *now, struct span name,
                         int64_t priority)
{
    const struct ledger_node *node = ledger_node_find(core_ledger(replica_core(r)), name);
    for (size_t i = 0; node && i < now->n; i++) {
        const struct reserved *weak = &now->items[i];
        if (weak->priority >= priority || weak->node != oracle_index(node->name.p))
            continue;
        for (uint32_t k = 0; k < node->n_cards; k++) {
            const struct card *card = &node->cards[k];
            int64_t all = witness_reserved_mib(now, "", INT64_MIN, weak->node,
                                               card->index, card->total_mib);
            int64_t without = witness_reserved_mib(now, weak->uid, INT64_MIN, weak->node,
                                                   card->index, card->total_mib);
            if (all > without && card->promised_mib + all > card->total_mib)
                violated(w, "r%d: %s keeps its reservation, but GPU%d of n%d is used up",
                         replica_id(r), weak->uid, card->index, weak->node);
        }
    }
}

static bool has_yielded(const struct step_line *line)
{
    return strstr(line->text, "the reservation of pod") != NULL;
}

/* Only a pod that is judged together with others can lose its reservation because of
 * theirs: that of a single pod ends for a reason of its own. */
static void check_ended(struct world *w, const struct replica *r,
                        const struct witness_reserved *seen,
                        const struct witness_reserved *now, const struct core_input *in,
                        const struct step_outputs *out)
{
    bool others = in->type == CORE_RESERVE || in->type == CORE_BIND;
    const struct core *core = replica_core(r);
    for (size_t i = 0; others && core_is_leader(core) && i < seen->n; i++) {
        const struct reserved *was = &seen->items[i];
        bool own = span_eq(in->uid, span_of(was->uid)), logged = false;
        int64_t age_ms = replica_time(w, r).mono_ms - was->made_ms;
        for (size_t k = 0; k < out->n_lines;
             k++) /* a pod of higher priority has its cards */
            logged |=
                has_yielded(&out->lines[k]) && strstr(out->lines[k].text, was->name);
        if (!was->in_gang && !own && !logged && age_ms < CORE_RESERVATION_MS &&
            !find(now, was->uid))
            violated(w, "r%d: %s has lost its reservation because of another pod",
                     replica_id(r), was->uid);
    }
}

static void count(struct world *w, const struct witness_reserved *seen,
                  const struct core_output *o)
{
    w->stats.reserved += o->type == CORE_RESERVED && o->reserve == CORE_RESERVE_DONE;
    if (o->type == CORE_CALL_BIND)
        w->stats.reserved_bound +=
            witness_reserved_has(seen, o->uid, oracle_index(o->node));
}

void witness_reserve(struct world *w, const struct replica *r,
                     struct witness_reserved *seen, const struct core_input *in,
                     const struct step_outputs *out)
{
    const struct ledger *l = core_ledger(replica_core(r));
    struct witness_reserved now = {0};
    for (size_t i = 0; i < out->n_lines; i++)
        w->stats.yielded += has_yielded(&out->lines[i]);
    STEP_EACH(struct core_output, o, out)
    {
        count(w, seen, o);
        gangs_check(w, r, in, o);
        if (in->type == CORE_RESERVE || in->type == CORE_BIND)
            check_rejected(w, r, seen, in, o);
    }
    for (const struct ledger_reservation *at = ledger_first_reservation(l); at;
         at = at->next) {
        MEM_GROW(now.items, now.cap, now.n + 1);
        struct reserved *one = &now.items[now.n++];
        *one = read_one(at);
        const struct reserved *old = find(seen, one->uid);
        bool made = is_made(in, out, one->uid);
        if (!old && !made)
            violated(w, "r%d reserves cards for %s without a filter", replica_id(r),
                     one->uid);
        made = made && !old; /* not renewed */
        one->made_ms = made || !old ? replica_time(w, r).mono_ms : old->made_ms;
        check_one(w, r, one, at, in);
        if (has_ended(in) && span_eq(in->pod->meta.uid, at->uid))
            violated(w, "r%d reserves cards for %s, which has ended or is bound",
                     replica_id(r), one->uid);
    }
    STEP_EACH(struct core_output, o, out)
    {
        const struct ledger_pod *pod =
            o->type == CORE_CALL_BIND ? ledger_pod_find(l, span_of(o->uid)) : NULL;
        if (o->type == CORE_RESERVED && o->reserve == CORE_RESERVE_DONE)
            check_weaker(w, r, &now, span_of(o->node), in->priority);
        else if (pod && pod->n_shares)
            check_weaker(w, r, &now, span_of(o->node), pod->priority);
    }
    check_ended(w, r, seen, &now, in, out);
    for (size_t i = 0; i < seen->n; i++)
        w->stats.expired +=
            replica_time(w, r).mono_ms - seen->items[i].made_ms >= CORE_RESERVATION_MS &&
            !find(&now, seen->items[i].uid);
    witness_reserved_fini(seen);
    *seen = now;
}
