/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_priv.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/mutant.h"

/*
 * Lists and watches of pods leave out those that have ended, so a pod that Succeeded looks like one
 * that was deleted by force, whose container may still use its card. Kubelets show both in the
 * podList; up to 1.33 they show the former as long as the pod exists. So a pod of the podList that
 * the ledger does not know is asked for by GET. Once it has ended, its containers have no cards.
 * Any other answer, or none, frees nothing.
 *
 * One GET is in flight at a time, and nodes take turns: a podList can name thousands of pods. A
 * node is asked about when its podList or its pods change, and every five minutes.
 */

enum {
    INTERVAL_MS = 100,
    AGAIN_MS = 5 * 60 * 1000,
    RETRY_MIN_MS = 1000,
    RETRY_MAX_MS = 60 * 1000,
};

static void check_end(struct core *core, struct holder_check *check)
{
    list_remove(&check->link);
    map_remove(&core->holders.by_node, check->node);
    core_disown(&check->node);
    free(check);
}

void core_holder_fini(struct core *core)
{
    LIST_EACH(struct holder_check, check, &core->holders.now, link)
    check_end(core, check);
    LIST_EACH(struct holder_check, check, &core->holders.later, link)
    check_end(core, check);
    map_fini(&core->holders.by_node);
    core_disown(&core->holders.ns);
    core_disown(&core->holders.name);
    core_disown(&core->holders.node);
}

/* Of the pods of the podList that the ledger does not know; 0: there are none. */
static uint64_t hash_of(const struct ledger_node *node)
{
    const struct scv_held *held;
    uint64_t hash = 0;
    for (size_t at = 0; node && (held = ledger_unknown_holder(node, &at));) {
        uint64_t pod = scv_pod_hash(held->ns, held->pod);
        hash = hash_bytes(hash, &pod, sizeof pod) | 1;
    }
    return hash;
}

static void move(struct list *to, struct holder_check *check)
{
    list_remove(&check->link);
    list_append(to, &check->link);
}

void core_holder_review(struct step *s, struct span node, bool again)
{
    struct core *core = s->core;
    struct holders *h = &core->holders;
    uint64_t hash = core->settings.observer || !node.n
                        ? 0
                        : hash_of(ledger_node_find(core->ledger, node));
    struct holder_check *check = map_get(&h->by_node, node);
    if (!hash && check)
        check_end(core, check);
    if (!hash || (check && check->hash == hash && !again))
        return;
    if (!check) {
        check = xcalloc(1, sizeof *check);
        check->node = core_own(node);
        list_init(&check->link);
        map_set(&h->by_node, check);
    }
    check->hash = hash;
    check->at = 0;
    move(&h->now, check);
}

void core_holder_pod(struct step *s, const struct pod *pod, bool there)
{
    struct holders *h = &s->core->holders;
    h->overtaken |= span_eq(pod->meta.name, h->name) && span_eq(pod->meta.ns, h->ns);
    if (there)
        ledger_pod_is_there(s->core->ledger, pod->node, pod->meta.ns, pod->meta.name,
                            pod->meta.uid);
}

/* The pod of the GET in flight has ended: its containers have no cards. */
static void ended(struct step *s, struct span uid)
{
    struct holders *h = &s->core->holders;
    struct wakeup_fits before = core_wakeup_before(s, h->node);
    ledger_pod_ended(s->core->ledger, h->node, h->ns, h->name, uid);
    core_wakeup_after(s, &before);
}

bool core_holder_answered(struct step *s)
{
    struct core *core = s->core;
    struct holders *h = &core->holders;
    const struct pod *pod = s->in->pod;
    if (h->call != s->in->call || !h->call)
        return false;
    bool lost = s->code == ERR_UNAVAILABLE || s->code == ERR_TIMEOUT;
    struct holder_check *check = map_get(&h->by_node, h->node);
    h->call = 0;
    h->retry_ms = !lost ? 0 : h->retry_ms ? 2 * h->retry_ms : RETRY_MIN_MS;
    if (h->retry_ms > RETRY_MAX_MS)
        h->retry_ms = RETRY_MAX_MS;
    h->not_before_ms = s->now.mono_ms + (lost ? h->retry_ms : INTERVAL_MS);
    if (s->code == ERR_NONE && !h->overtaken && pod_is_terminal(pod) &&
        span_eq(pod->node, h->node))
        ended(s, pod->meta.uid);
    else if (s->code == ERR_NOT_FOUND && MUTANT(deleted_pod_has_no_card))
        ended(s, SPAN("deleted"));
    if (!check)
        return true;
    check->at -= check->at && (lost || h->overtaken);
    check->hash = hash_of(ledger_node_find(core->ledger, h->node));
    move(&h->now, check); /* behind the other nodes */
    return true;
}

/* Can it be a part of a path? The podList is foreign text. */
static bool is_path_part(struct span name)
{
    return object_is_name(name) && span_has_only(name, "-.") && name.p[0] != '.';
}

/* Sends a GET of the next pod of the node; false: all have been asked for. */
static bool ask(struct step *s, struct holder_check *check)
{
    struct holders *h = &s->core->holders;
    const struct ledger_node *node = ledger_node_find(s->core->ledger, check->node);
    const struct scv_held *held;
    do
        held = node ? ledger_unknown_holder(node, &check->at) : NULL;
    while (held && (!is_path_part(held->ns) || !is_path_part(held->pod)));
    if (!held)
        return false;
    core_disown(&h->ns);
    core_disown(&h->name);
    core_disown(&h->node);
    h->ns = core_own(held->ns);
    h->name = core_own(held->pod);
    h->node = core_own(check->node);
    h->overtaken = false;
    core_call(s, CORE_CALL_GET_POD, &h->call, h->ns, h->name, (struct span){0});
    return true;
}

void core_holder_tick(struct step *s)
{
    struct holders *h = &s->core->holders;
    if (core_holder_due(s->core) > s->now.mono_ms)
        return;
    LIST_EACH(struct holder_check, check, &h->later, link)
    {
        if (check->due_ms > s->now.mono_ms)
            break;
        check->at = 0;
        move(&h->now, check);
    }
    LIST_EACH(struct holder_check, check, &h->now, link)
    {
        if (ask(s, check))
            return;
        check->due_ms = s->now.mono_ms + AGAIN_MS;
        move(&h->later, check);
        if (!hash_of(ledger_node_find(s->core->ledger, check->node)))
            check_end(s->core, check);
    }
}

int64_t core_holder_due(const struct core *core)
{
    const struct holders *h = &core->holders;
    int64_t due = INT64_MAX;
    if (h->call || !core->reflectors[CORE_PODS].synced)
        return due;
    if (!list_is_empty(&h->now))
        due = h->not_before_ms;
    LIST_EACH(struct holder_check, check, &h->later, link)
    {
        step_due(&due,
                 check->due_ms > h->not_before_ms ? check->due_ms : h->not_before_ms);
        break;
    }
    return due;
}
