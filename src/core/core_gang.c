/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_priv.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/mutant.h"

/*
 * The bind of a gang's member is the barrier: no member is bound before as many as must start
 * can be (core.h, "Gangs").
 *
 * Filter's plan (core_reserve.c) is a forecast: node selectors, affinity, host ports and other
 * resources of the members are not known here. kube-scheduler knows them. When it asks for the
 * bind of a member, it has assumed the member on that node beside all others. So the bind is
 * held, without promise and without Binding, until bound and held members are as many as must
 * start. Then one step judges all of them again, and sends all Bindings or fails all.
 *
 * kube-scheduler never cancels a bind. So a held one is answered after CORE_HOLD_MS at the
 * latest, and at once when the gang loses a member or a card. All members get the same text,
 * because kube-scheduler PATCHes a pod whose text has changed, inside its loop.
 *
 * Two gangs can assume nodes that both need, and expire together again and again. So gangs
 * whose binds were held in vain take turns: one of them at a time is planned or held. Filter
 * finds no node for members of the others, which are woken when their turn comes. (An error
 * would keep them in kube-scheduler's back-off, which ignores wakeups.) A turn that leads to no
 * Binding puts the gang last, and it is passed over for a while. Other gangs need no turn.
 */

enum {
    CAME_MS = 3000, /* a wakeup and the back-off of kube-scheduler before a filter */
    /* So often a gang is looked at whose binds are held: the missing members are woken once, and
     * which members count changes with time. */
    LOOK_MS = 1000,
    PASS_FIRST_MS = 1000, /* doubled with each turn in vain */
    PASS_LAST_MS = 60 * 1000,
    LISTED = 5, /* members that a log line names */
};

static struct core_gang *gang_find(const struct core *core, const struct ledger_gang *of)
{
    return of ? map_get(&core->gangs.by_key, of->key) : NULL;
}

static void gang_free(struct core *core, struct core_gang *g)
{
    if (core->gangs.turn == g)
        core->gangs.turn = NULL;
    list_remove(&g->link);
    map_remove(&core->gangs.by_key, g->key);
    core_disown(&g->key);
    free(g);
}

void core_gang_fini(struct core *core)
{
    LIST_EACH(struct core_gang, g, &core->gangs.list, link)
    gang_free(core, g);
    map_fini(&core->gangs.by_key);
}

void core_gang_reason(struct buf *out, struct span name)
{
    buf_printf(out, "gang %.*s: waits until enough of its members can start together",
               SPAN_ARG(name));
}

bool core_gang_awaits(const struct step *s, const struct ledger_gang *gang)
{
    int64_t now_ms = s->now.mono_ms, since_ms = now_ms;
    for (const struct ledger_member *m = gang ? gang->members : NULL; m; m = m->next)
        if (!m->pod->terminating)
            step_due(&since_ms, m->since_ms);
    if (gang && gang->left_ms > since_ms) /* it is created again */
        since_ms = gang->left_ms;
    return now_ms - s->core->settings.gang_wait_ms < since_ms;
}

/* -- members -- */

bool core_is_held(const struct core *core, struct span uid)
{
    const struct bind_op *op = core_bind_find(core, uid);
    return op && op->state == BIND_OP_HELD;
}

/* How many members are bound or being bound, beside the held ones, and how many must be. */
static uint32_t count_bound(struct step *s, const struct ledger_pod *pod,
                            uint32_t minimum, uint32_t *needed)
{
    const struct ledger_gang *gang = pod->member->gang;
    const struct gang_asker asker = {.pod = {pod->request, pod->priority, pod->uid, gang},
                                     .minimum = minimum,
                                     .waits = core_gang_awaits(s, gang),
                                     .scheduler = pod->scheduler};
    struct gang_verdict v;
    uint32_t bound = 0;
    gang_judge(s->core->ledger, &asker, NULL, 0, false, &s->core->scratch, &v);
    for (const struct ledger_member *m = gang->members; m; m = m->next)
        bound += m->pod->node && !m->pod->terminating && m->pod != pod;
    *needed = MUTANT(barrier_of_one) ? 1 : v.needed;
    return bound;
}

void core_gang_members(const struct core *core, const struct ledger_gang *gang,
                       struct buf *out)
{
    cleanup_buf struct buf missing = {0};
    unsigned there = 0, total = 0;
    for (const struct ledger_member *m = gang ? gang->members : NULL; m; m = m->next) {
        const struct ledger_pod *pod = m->pod;
        bool is_there = pod->node || core_is_held(core, pod->uid);
        if (pod->terminating)
            continue;
        total++;
        there += is_there;
        unsigned n = total - there;
        if (is_there || n > LISTED + 1)
            continue;
        buf_adds(&missing, n == 1 ? "; not here yet: " : ", ");
        if (n > LISTED)
            buf_adds(&missing, "...");
        else
            buf_add_span(&missing, pod->name);
        if (n <= LISTED && pod->gated)
            buf_adds(&missing, " (scheduling gates)");
    }
    buf_printf(out, "%u of %u members are bound or held", there, total);
    buf_add_span(out, buf_span(&missing));
}

/* -- the end of a hold, and turns -- */

static bool has_held(const struct core *core, const struct core_gang *g)
{
    LIST_EACH(struct bind_op, op, &core->bind_ops, link)
    if (op->gang == g)
        return true;
    return false;
}

/* All held binds fail, with the same text; the reservations of the gang end; the gang takes
 * turns from now on. */
static void gang_fail(struct step *s, struct core_gang *g, const char *why)
{
    struct core *core = s->core;
    const struct ledger_gang *gang = ledger_gang_at(core->ledger, g->key);
    cleanup_buf struct buf members = {0}, text = {0};
    struct span ns;
    struct gang named;
    struct err err;
    gang_of_key(g->key, &ns, &named);
    core_gang_members(core, gang, &members);
    core_log(s, ERR_CONFLICT, "gang %.*s/%.*s: no member is bound: %s; %s", SPAN_ARG(ns),
             SPAN_ARG(named.name), why, members.p);
    core_gang_reason(&text, named.name);
    err_set(&err, ERR_CONFLICT, "%s%s", text.p,
            MUTANT(text_of_a_gang_changes) ? why : "");
    LIST_EACH(struct bind_op, op, &core->bind_ops, link)
    {
        if (op->gang == g)
            core_bind_fail(s, op, &err);
    }
    g->held_until_ms = g->look_ms = INT64_MAX;
    core->gangs.failed++;
    /* Ends its turn, if it has the turn. It goes last. */
    g->not_before_ms = s->now.mono_ms;
    if (core->gangs.turn == g) {
        if (!MUTANT(hopeless_gang_stays_first))
            g->not_before_ms +=
                g->in_vain < 6 ? PASS_FIRST_MS << g->in_vain : PASS_LAST_MS;
        g->in_vain++;
        core->gangs.turn = NULL;
    }
    g->expired = true;
    if (!MUTANT(hopeless_gang_stays_first)) {
        list_remove(&g->link);
        list_append(&core->gangs.list, &g->link);
    }
    core_reserve_end_gang(s, gang);
}

void core_gang_lost(struct step *s, const struct ledger_gang *gang, const char *why)
{
    struct core_gang *g = gang_find(s->core, gang);
    if (g && (g->held_until_ms < INT64_MAX || s->core->gangs.turn == g))
        gang_fail(s, g, why);
    else
        core_reserve_end_gang(s, gang);
}

void core_gang_release(struct step *s, const struct ledger_gang *gang)
{
    struct ledger_reservation *r;
    for (const struct ledger_member *m = gang ? gang->members : NULL; m; m = m->next)
        if (!core_is_held(s->core, m->pod->uid) &&
            (r = ledger_reservation_find(s->core->ledger, m->pod->uid)))
            core_reserve_end(s, r->uid, (struct span){0});
}

void core_gang_member_left(struct step *s, const struct ledger_pod *pod)
{
    struct core_gang *g = gang_find(s->core, pod->member->gang);
    pod->member->gang->left_ms = s->now.mono_ms;
    if (g && g->held_until_ms < INT64_MAX && !MUTANT(deleted_member_stays_held))
        gang_fail(s, g,
                  step_printf(s->out, "pod %.*s ends or has ended", SPAN_ARG(pod->name)));
}

/* Labels, annotations and a request can be edited while the bind is held. */
void core_gang_member_seen(struct step *s, struct span uid)
{
    struct bind_op *op = core_bind_find(s->core, uid);
    const struct ledger_pod *pod = ledger_pod_find(s->core->ledger, uid);
    if (!op || op->state != BIND_OP_HELD)
        return;
    if (!pod || !pod->member || pod->invalid_reason || pod->gated ||
        !span_eq(pod->member->gang->key, op->gang->key)) {
        core_reserve_end(s, uid, (struct span){0}); /* not found by the gang any more */
        gang_fail(
            s, op->gang,
            step_printf(s->out, "pod %.*s is no member any more", SPAN_ARG(op->name)));
    }
}

void core_gang_drop_all(struct step *s)
{
    const struct err err = {ERR_UNAVAILABLE, "this process stopped leading"};
    LIST_EACH(struct bind_op, op, &s->core->bind_ops, link)
    {
        if (op->state == BIND_OP_HELD)
            core_bind_end(s, op, CORE_BIND_NOT_NOW, &err);
    }
    LIST_EACH(struct core_gang, g, &s->core->gangs.list, link)
    gang_free(s->core, g);
}

/* Gives the turn to the first gang that waits for it, and wakes its members. */
static void begin_turn(struct step *s)
{
    struct core_gangs *gangs = &s->core->gangs;
    if (gangs->turn)
        return;
    LIST_EACH(struct core_gang, g, &gangs->list, link)
    {
        const struct ledger_gang *gang = ledger_gang_at(s->core->ledger, g->key);
        if (!g->expired || g->held_until_ms < INT64_MAX ||
            (gang && g->not_before_ms > s->now.mono_ms))
            continue;
        if (!gang) {
            gang_free(s->core, g);
            continue;
        }
        gangs->turn = g;
        gangs->turn_until_ms = s->now.mono_ms + CAME_MS;
        gangs->came = false;
        core_wakeup_gang(s, gang);
        break;
    }
}

bool core_gang_may_try(struct step *s, const struct ledger_gang *gang)
{
    struct core_gangs *gangs = &s->core->gangs;
    struct core_gang *g = gang_find(s->core, gang);
    if (!g || !g->expired)
        return true;
    begin_turn(s);
    if (gangs->turn != g)
        return false;
    if (!gangs->came)
        gangs->turn_until_ms = s->now.mono_ms + CORE_HOLD_MS;
    gangs->came = true;
    return true;
}

/* -- held binds -- */

/* Promises for all held members, and sends their Bindings; or fails all. */
static void start_gang(struct step *s, struct core_gang *g, size_t held)
{
    struct core *core = s->core;
    struct bind_op **ops = arena_alloc(&core->scratch, held * sizeof *ops);
    struct buf *annotations = arena_zalloc(&core->scratch, held * sizeof *annotations);
    struct err err = {0};
    size_t n = 0, done = 0;
    int64_t held_until_ms = g->held_until_ms;
    bool has_turn = core->gangs.turn == g;
    /* A promise can end what is reserved for weaker members: that is no failure of the gang. */
    g->held_until_ms = INT64_MAX;
    core->gangs.turn = has_turn ? NULL : core->gangs.turn;
    LIST_EACH(struct bind_op, op, &core->bind_ops, link)
    {
        if (op->gang == g)
            ops[n++] = op;
    }
    while (done < n && core_bind_promise(s, ledger_pod_find(core->ledger, ops[done]->uid),
                                         ops[done]->node, &annotations[done], &err))
        done++;
    bool all = done == n;
    while (!all && done > 0)
        core_bind_retract(s, ops[--done]);
    for (size_t i = 0; i < n; i++) {
        if (all)
            core_bind_send(s, ops[i], &annotations[i]);
        buf_fini(&annotations[i]);
    }
    if (all) {
        gang_free(core, g);
        return;
    }
    g->held_until_ms = held_until_ms;
    core->gangs.turn = has_turn ? g : core->gangs.turn;
    gang_fail(s, g, err.msg);
}

void core_gang_review(struct step *s, const struct ledger_gang *gang)
{
    struct core_gang *g = gang_find(s->core, gang);
    const struct ledger_pod *any = NULL;
    uint32_t held = 0, needed, minimum = 0;
    if (!g || g->held_until_ms == INT64_MAX || core_check_may_bind(s->core, s->now, NULL))
        return;
    LIST_EACH(struct bind_op, op, &s->core->bind_ops, link)
    {
        if (op->gang != g)
            continue;
        any = ledger_pod_find(s->core->ledger, op->uid);
        minimum = minimum < op->minimum ? op->minimum : minimum;
        held++;
    }
    uint32_t bound = count_bound(s, any ? any : gang->members->pod, minimum, &needed);
    if (held && held + bound >= needed)
        start_gang(s, g, held);
    else if (!held && bound + (gang->members->pod->node != NULL) >= needed)
        gang_free(s->core, g); /* others have bound them */
}

bool core_gang_holds(struct step *s, struct bind_op *op, struct ledger_pod *pod)
{
    struct core *core = s->core;
    const struct ledger_gang *gang = pod->member->gang;
    struct core_gang *g = gang_find(core, gang);
    struct err err = {0};
    uint32_t needed;
    if (op->minimum == 1) /* its members do not wait for each other */
        return false;
    if (count_bound(s, pod, op->minimum, &needed) + 1 >= needed) {
        if (g && !has_held(core, g))
            gang_free(core, g);
        return false;
    }
    if (!core_gang_may_try(s, gang)) {
        cleanup_buf struct buf why = {0};
        core_gang_reason(&why, gang->name);
        err_set(&err, ERR_CONFLICT, "%s", why.p);
        core_bind_fail(s, op, &err);
        return true;
    }
    if (!g) {
        g = xcalloc(1, sizeof *g);
        g->key = core_own(gang->key);
        g->held_until_ms = g->look_ms = INT64_MAX;
        list_append(&core->gangs.list, &g->link);
        map_set(&core->gangs.by_key, g);
    }
    if (g->held_until_ms == INT64_MAX) {
        g->woken = false;
        g->held_until_ms = s->now.mono_ms + CORE_HOLD_MS;
        g->look_ms = s->now.mono_ms + LOOK_MS;
    }
    op->state = BIND_OP_HELD;
    op->gang = g;
    /* Has its node the cards for the pod, with which nothing is reserved for pods of lower
     * priority any more? They stay reserved while the bind is held. */
    const int64_t until_ms = g->held_until_ms + 1;
    struct gang_plan_member m = {.request = pod->request,
                                 .requests = ledger_pod_requests(pod),
                                 .uid = pod->uid,
                                 .pod = pod};
    if (!core_bind_judge(s, pod, op->node, &m.node, &m.cards, &err)) {
        gang_fail(s, g, err.msg);
        return true;
    }
    core_reserve_end(s, pod->uid, op->node); /* elsewhere, it makes room */
    if (m.cards)
        core_reserve_for(s, &m, until_ms, true);
    core_gang_review(s, gang);
    return true;
}

void core_gang_tick(struct step *s)
{
    struct core_gangs *gangs = &s->core->gangs;
    LIST_EACH(struct core_gang, g, &gangs->list, link)
    {
        const struct ledger_gang *gang = ledger_gang_at(s->core->ledger, g->key);
        bool looks = g->look_ms <= s->now.mono_ms;
        if (looks && !g->woken)
            core_wakeup_gang(s, gang);
        if (looks) {
            g->woken = true;
            g->look_ms = s->now.mono_ms + LOOK_MS;
        }
        if (g->held_until_ms <= s->now.mono_ms && !MUTANT(held_for_ever))
            gang_fail(s, g, "too few were held within 10 s");
        else if (gangs->turn == g && g->held_until_ms == INT64_MAX &&
                 gangs->turn_until_ms <= s->now.mono_ms)
            gang_fail(s, g,
                      gangs->came ? "too few came in its turn" : "none came in its turn");
        else if (looks) /* members that do not exist may have stopped counting */
            core_gang_review(s, gang);
    }
    begin_turn(s);
}

int64_t core_gang_due(const struct core *core)
{
    const struct core_gangs *gangs = &core->gangs;
    int64_t due = INT64_MAX;
    LIST_EACH(struct core_gang, g, &gangs->list, link)
    {
        step_due(&due, g->look_ms);
        step_due(&due, g->held_until_ms);
        if (gangs->turn == g && g->held_until_ms == INT64_MAX)
            step_due(&due, gangs->turn_until_ms);
        if (!gangs->turn && g->expired)
            step_due(&due, g->not_before_ms);
    }
    return due;
}
