/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_priv.h"

#include "base/mem.h"
#include "base/mutant.h"
#include "domain/promise.h"

/*
 * The state of a pod, as a list, watch or GET shows it. It may be old: the answer of a
 * call can overtake a list or an event. But for one UID three states are final: bound to
 * a node, terminal, deleted. They are always applied. "Not bound" is ignored for a pod
 * that is or may be bound.
 */

static void forget(struct step *s, struct ledger_pod *pod)
{
    struct wakeup_fits before =
        wakeup_before(s, pod->node ? pod->node->name : (struct span){0});
    ledger_pod_remove(s->core->ledger, pod);
    wakeup_after(s, &before);
}

void core_pod_deleted(struct step *s, struct span uid)
{
    struct bind_op *op = bind_op_find(s->core, uid);
    struct ledger_pod *pod = ledger_pod_find(s->core->ledger, uid);
    if (pod)
        forget(s, pod);
    wakeup_gangs(s, ledger_plain_deleted(s->core->ledger, uid));
    if (!MUTANT(reservation_outlives_pod))
        reserve_end(s, uid);
    if (op)
        bind_deleted(s, op);
}

/* Has another replica bound the pod, with other labels than those of the reservation
 * here? Limits cannot be edited. */
static bool is_promised_otherwise(const struct ledger_pod *entry,
                                  const struct promise *promise)
{
    const struct request *r = entry->request;
    bool whole = r->kind == REQUEST_CARDS;
    if (!entry->node || entry->final || !r->by_label || !promise->n)
        return false;
    return promise->whole != whole || (!whole && promise->card_mib != r->mib_per_card);
}

static bool asks_for_cards(const struct request *r)
{
    return r->kind == REQUEST_MEMORY || r->kind == REQUEST_CARDS;
}

/* Does the promise name other cards than the pod has? */
static bool is_edited(const struct ledger_pod *entry, const struct promise *promise)
{
    if (promise->n != entry->n_shares)
        return true;
    for (size_t i = 0; i < promise->n; i++) {
        const struct promise_share *share = &promise->shares[i];
        bool found = false;
        for (uint32_t k = 0; k < entry->n_shares; k++) {
            char text[CARD_UUID_TEXT];
            struct span uuid = card_uuid_text(&entry->shares[k].uuid, text);
            found |= entry->shares[k].card == share->card &&
                     (!share->uuid.n || !uuid.n || span_eq(share->uuid, uuid));
        }
        if (!found)
            return true;
    }
    return false;
}

/* Records how the annotations differ from the request, and from the promise of the bind.
 * `request`: what the pod asks for now. */
static void note_differences(struct step *s, struct ledger_pod *entry,
                             const struct pod *pod, const struct promise *promise,
                             const struct request *request, bool invalid)
{
    struct core *core = s->core;
    cleanup_buf struct buf text = {0};
    bound_differences(&text, pod, promise, request, invalid,
                      core->settings.ledger.unit_mib);
    if (entry->final && asks_for_cards(entry->request) && is_edited(entry, promise)) {
        buf_adds(&text, text.n ? "; " : "");
        buf_adds(&text, "the annotations were edited after the bind; the cards of the "
                        "bind count until the extender restarts");
    }
    ledger_pod_set_differences(core->ledger, entry, buf_span(&text));
}

static void place(struct step *s, struct ledger_pod *entry, const struct pod *pod,
                  const struct promise *promise)
{
    struct core *core = s->core;
    int64_t unit = core->settings.ledger.unit_mib;
    /* The kubelet chooses the cards of nvidia.com/gpu. */
    size_t n = asks_for_cards(entry->request) ? promise->n : 0;
    struct ledger_share *shares = arena_zalloc(&core->scratch, n * sizeof *shares);
    for (size_t i = 0; i < n; i++)
        shares[i] = (struct ledger_share){
            .card = promise->shares[i].card,
            .mib = promise_share_mib(promise, i, entry->request, unit),
            .uuid = promise->shares[i].uuid,
        };
    struct wakeup_fits before =
        wakeup_before(s, entry->node ? entry->node->name : pod->node);
    /* Edits of the annotations do not change a promise. */
    bool known = entry->final && entry->node && span_eq(entry->node->name, pod->node);
    if (!known || (MUTANT(edits_of_bound_trusted) && n))
        ledger_pod_place(core->ledger, entry, pod->node, shares, (uint32_t)n);
    entry->final = entry->n_shares > 0;
    if (pod->phase != POD_PENDING)
        ledger_pod_running(core->ledger, entry, !core->cursors[CORE_PODS].synced);
    wakeup_after(s, &before);
}

/* What the state shows the pod to request and to have. */
struct observed {
    struct request request;
    struct promise promise; /* annotations of an unbound pod are no promise */
    bool invalid;           /* the request; `why` says why */
    bool asks;              /* for cards, or it has a promise, which is reported */
    struct err why;
};

static void read_request(struct step *s, const struct pod *pod, struct observed *o)
{
    struct core *core = s->core;
    struct request_rules rules = ledger_rules(&core->settings.ledger);
    bool bound = pod->node.n > 0;
    *o = (struct observed){0};
    if (bound) {
        promise_of(pod, &core->scratch, &o->promise);
        o->invalid = bound_request(pod, &o->promise, &rules, &core->scratch, &o->request,
                                   &o->why) != 0;
    } else {
        o->invalid = request_of(pod, &rules, &core->scratch, &o->request, &o->why) != 0;
    }
    o->asks = o->invalid || o->request.kind != REQUEST_NONE ||
              (bound && (pod->idx.p || pod->allocation.p));
}

/* A pod that counts for cards. */
static void observe(struct step *s, const struct pod *pod, const struct observed *o,
                    enum core_pod_source from)
{
    struct ledger *l = s->core->ledger;
    const char *why = o->invalid ? o->why.msg : NULL;
    ledger_plain_deleted(l, pod->meta.uid);
    struct ledger_pod *entry = ledger_pod_add(l, pod, &o->request, why);
    if (is_promised_otherwise(entry, &o->promise))
        ledger_pod_set_request(l, entry, &o->request, why);
    entry->unconfirmed = false;
    if (from == CORE_POD_FROM_WATCH)
        entry->seen = s->in->run;
    else
        entry->confirmed_ms = s->now.mono_ms;
    if (MUTANT(annotation_without_node) && !pod->node.n && !entry->node) {
        struct promise noted = {0};
        promise_of(pod, &s->core->scratch, &noted);
        if (noted.n)
            ledger_pod_place(
                l, entry, SPAN("n0"),
                &(struct ledger_share){.card = noted.shares[0].card, .mib = 1024}, 1);
    }
    if (pod->node.n) {
        place(s, entry, pod, &o->promise);
        note_differences(s, entry, pod, &o->promise, &o->request, o->invalid);
    } else if (MUTANT(old_event_frees) && entry->node &&
               !bind_op_find(s->core, pod->meta.uid)) {
        ledger_pod_unplace(l, entry);
    }
}

void core_pod_observed(struct step *s, const struct pod *pod, bool deleted,
                       enum core_pod_source from)
{
    struct ledger *l = s->core->ledger;
    struct span uid = pod->meta.uid;
    bool bound = pod->node.n > 0;
    struct observed o;

    if (deleted || pod_is_terminal(pod)) {
        core_pod_deleted(s, uid);
        return;
    }
    read_request(s, pod, &o);
    struct bind_op *op = bind_op_find(s->core, uid);
    if (bound)
        reserve_end_at(s, uid, pod->node);
    /* A pending pod whose labels were removed requests nothing, and no bind ends its
     * reservation. A bound pod keeps its promise. */
    struct ledger_pod *known = ledger_pod_find(l, uid);
    if (known && !known->node && !o.asks) {
        forget(s, known);
        reserve_end(s, uid);
        known = NULL;
    }
    if (known || o.asks)
        observe(s, pod, &o, from);
    else if (bound && from == CORE_POD_FROM_WATCH)
        /* Only what the watch shows: it also shows the end of the pod. */
        ledger_plain_seen(l, uid, pod->node, &pod->requests, s->in->run);
    if (op && bound)
        bind_bound(s, op, pod->node);
}

/* The last decoded state of the pod stays: an invalid object frees nothing. */
void core_pod_exists(struct step *s, struct span uid)
{
    struct ledger_pod *entry = ledger_pod_find(s->core->ledger, uid);
    ledger_plain_exists(s->core->ledger, uid, s->in->run);
    if (!entry)
        return;
    entry->seen = s->in->run;
    entry->unconfirmed = false;
}

/* Wakes up for each node once: thousands of pods can have left it. */
static void sweep_plain(struct step *s, uint64_t list)
{
    struct ledger *l = s->core->ledger;
    uint8_t *seen = arena_zalloc(&s->core->scratch, ledger_node_slots(l) + 1);
    const struct ledger_node *left;
    for (size_t at = 0; ledger_plain_sweep(l, list, &at, &left);) {
        if (!left || seen[left->id])
            continue;
        seen[left->id] = 1;
        wakeup_gangs(s, left);
    }
}

/* A pod that a complete list lacks is deleted if the list was requested after the pod was
 * last known to exist. Otherwise a GET decides, because the watch that follows never
 * shows a pod that was deleted before it: at once, or when the bind in flight ends. */
void core_pods_sweep(struct step *s, uint64_t list, int64_t requested_ms)
{
    struct core *core = s->core;
    bind_listed(s, list);
    if (!MUTANT(plain_pod_survives_list))
        sweep_plain(s, list);
    const struct ledger *l = core->ledger;
    for (struct ledger_pod *pod = ledger_first_pod(l), *next; pod; pod = next) {
        next = ledger_next_pod(l, pod);
        bool in_flight = bind_op_find(core, pod->uid) != NULL;
        if (pod->seen == list)
            continue;
        if (!in_flight && (!pod->node || pod->confirmed_ms < requested_ms ||
                           MUTANT(absent_in_older_list)))
            core_pod_deleted(s, arena_copy(&core->scratch, pod->uid));
        else if (!in_flight)
            bind_check(s, pod);
        else
            pod->unconfirmed = true;
    }
}
