/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "domain/pod.h"
#include "placement/reason.h"

/*
 * A model of kube-scheduler, as an extender sees it: for a pending pod it calls filter of
 * one replica, chooses a node, and calls bind of a replica. After an error it retries
 * later. Sometimes it restarts and calls bind a second time.
 *
 * In worlds where filter decides, it is extender/filter.c (filter.c). In some of them it is
 * offered two of the nodes, from a random one on, beside nodes without cards; and at rest a rejected pod
 * is tried again only after an event of a pod, or a wakeup.
 *
 * Gangs: a model of kube-scheduler's Permit plugins, and the checks of gangs. The gang of a
 * pod is the part of its name before the dot, so the checks do not depend on the code that
 * reads labels. It begins with g; in a gang whose name begins with b the members do not wait
 * for each other (policy basic), and are single pods here. A member that filter gave a node
 * waits at Permit until every live member waits or is bound; then all are bound. After a
 * timeout those that wait give up together. They are also tried again when kube-scheduler
 * restarts. No plugin holds the members of a gang with a minimum: each is bound by itself.
 */

enum {
    TRIES = 10, /* pods in one scheduling round */
    AGAIN_MS = 100,
    KEPT_MS = 15000,
    HELD_MS = 14000, /* an attempt: the leader may hold the bind */
};

/* A pod that kube-scheduler is busy with. */
struct ask {
    uint64_t token;
    char uid[64];
    int64_t from_ms; /* when bind is called; until then the pod waits after its filter */
    struct ask *next;
};

static struct ask *ask_of(const struct world *w, const char *uid)
{
    struct ask *a = w->asks;
    while (a && strcmp(a->uid, uid) != 0)
        a = a->next;
    return a;
}

bool scheduler_binds(const struct world *w, const char *uid)
{
    return ask_of(w, uid);
}

const char *scheduler_uid(const struct world *w, uint64_t token)
{
    struct ask *a = w->asks;
    while (a && a->token != token)
        a = a->next;
    return a ? a->uid : NULL;
}

/* It can be retried now. */
static void take_ask(struct world *w, uint64_t token, bool bound)
{
    if (w->yard)
        queue_answered(w, token, bound);
    for (struct ask **at = &w->asks, *a; (a = *at);) {
        if (a->token != token) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        free(a);
        w->last_news_ms = w->now_ms;
    }
}

void scheduler_lost(struct world *w, uint64_t token)
{
    take_ask(w, token, false);
}

static void on_give_up(struct world *w, void *arg)
{
    take_ask(w, *(uint64_t *)arg, false);
    free(arg);
}

/* The scheduler is busy with the pod: until `from_ms` it is not tried again, and until
 * `until_ms` a bind has no answer. */
static uint64_t ask_add(struct world *w, const struct oracle_pod *p, int64_t from_ms,
                        int64_t until_ms)
{
    struct ask *a = xcalloc(1, sizeof *a);
    uint64_t *token = xmalloc(sizeof *token);
    a->token = *token = ++w->last_token;
    snprintf(a->uid, sizeof a->uid, "%s", p->uid);
    a->from_ms = from_ms;
    a->next = w->asks;
    w->asks = a;
    w->last_news_ms = w->now_ms;
    at(w, until_ms, on_give_up, token, free);
    return a->token;
}

/* No call in flight, and no attempt for a while although every pod was tried. */
bool scheduler_idle(const struct world *w)
{
    return !w->asks && w->now_ms - w->last_news_ms > 10000;
}

void scheduler_reply(struct world *w, const struct core_output *o)
{
    if (o->type == CORE_RESERVED) {
        free(w->reserved);
        w->reserved = core_output_dup(o);
        return;
    }
    trace(w, "scheduler: answer of %llu: %s %s", (unsigned long long)o->token,
          err_code_name(o->code), o->text);
    take_ask(w, o->token, o->code == ERR_NONE);
}

/* -- bind -- */

/* A bind on its route to the leader, as in extender/bind.c, with a network between the
 * replicas. */
struct bind_letter {
    uint64_t token;
    char uid[64], name[64];
    int node;
    int asked; /* the replica that kube-scheduler called */
    int at;    /* where it is */
    int64_t until_ms;
};

int replica_at(struct span address)
{
    return address.n > 1 ? address.p[1] - '0' : REPLICAS;
}

static void on_bind(struct world *w, void *arg)
{
    struct bind_letter *l = arg;
    struct replica *r = &w->replicas[l->at], *asked = &w->replicas[l->asked];
    bool forwarded = r != asked;
    if (!scheduler_uid(w, l->token) || !r->alive || w->now_ms >= l->until_ms) {
        if (!forwarded)
            take_ask(w, l->token, false);
        free(l);
        return;
    }
    if (!replica_up(w, r)) { /* it stays there until the replica continues */
        at(w, w->now_ms + 1000, on_bind, l, free);
        return;
    }
    struct bind_route way = core_bind_route(r->core, replica_time(w, r), forwarded, NULL);
    if (way.route == BIND_ROUTE_LOCAL ||
        chance(w, 30)) { /* sometimes also on a wrong replica */
        replica_input(w, r,
                      &(struct core_input){
                          .type = CORE_BIND,
                          .token = l->token,
                          .ns = SPAN("default"),
                          .name = span_of(l->name),
                          .uid = span_of(l->uid),
                          .gang_minimum = *l->name == 'b' ? 1 : gangs_minimum(w, l->name),
                          .node_name = span_of(node_names[l->node])});
        free(l);
    } else if (way.route == BIND_ROUTE_REJECT) {
        w->stats.misdirected++;
        if (replica_up(w, asked))
            replica_input(w, asked, &(struct core_input){.type = CORE_REFRESH_LEASE});
        free(l); /* the forwarding replica retries */
    } else if (way.route == BIND_ROUTE_FORWARD) {
        int to = replica_at(way.address);
        w->stats.forwarded++;
        bool lost = to == l->at || to >= w->n_replicas ||
                    w->apart_until[l->at][to] > w->now_ms ||
                    chance(w, w->weather.lose_request);
        if (!lost) {
            struct bind_letter *copy = xmalloc(sizeof *copy);
            *copy = *l;
            copy->at = to;
            at(w, w->now_ms + between(w, 0, w->weather.delay_ms), on_bind, copy, free);
        }
        /* No answer, or the answer is lost: retries until kube-scheduler has a reply. The
         * second bind joins the first. */
        l->at = l->asked;
        at(w, w->now_ms + (lost && chance(w, 500) ? AGAIN_MS : HELD_MS), on_bind, l,
           free);
    } else {
        at(w, w->now_ms + AGAIN_MS, on_bind, l, free);
    }
}

/* With reservations: binds wait for Permit plugins and volumes, some too long, and some
 * scheduling cycles end after filter. */
static int64_t wait_before_bind(struct world *w)
{
    bool slow = w->seed % 10 == 8; /* most binds come after the time limit */
    if (!w->decides || !chance(w, slow ? 500 : 150))
        return 0;
    return slow || chance(w, 200) ? between(w, 20000, 40000) : between(w, 0, 3000);
}

/* Some scheduling cycles end after filter. In some worlds many pods do not come back before
 * the time limit of a reservation; also when failures have just ended, because few leaders
 * last that long before. */
static bool forgets(struct world *w, const struct oracle_pod *p)
{
    bool often = w->seed % 10 == 6 || w->seed % 10 == 7, leader = false;
    bool late = w->quiet && w->now_ms < w->quiet_since_ms + 15000;
    EACH_REPLICA(w, r)
    leader |= replica_up(w, r) && replica_leads(w, r);
    if (often && late && leader ? any(w, 3) > 0
                                : !w->decides || !chance(w, often ? 200 : 20))
        return false;
    int64_t until_ms = w->now_ms + (often ? between(w, 30000, 40000) : 0);
    trace(w, "scheduler: %s is not bound after its filter", p->uid);
    if (often)
        ask_add(w, p, until_ms, until_ms);
    return true;
}

static void bind(struct world *w, const struct oracle_pod *p, int node)
{
    int64_t from_ms = w->now_ms + wait_before_bind(w);
    if (!forgets(w, p))
        scheduler_send_bind(w, p, node, from_ms);
}

uint64_t scheduler_send_bind(struct world *w, const struct oracle_pod *p, int node,
                             int64_t from_ms)
{
    struct bind_letter *l = xcalloc(1, sizeof *l);
    l->asked = l->at = any(w, (uint64_t)w->n_replicas);
    l->until_ms = from_ms + KEPT_MS;
    l->node = node;
    snprintf(l->uid, sizeof l->uid, "%s", p->uid);
    snprintf(l->name, sizeof l->name, "%s", p->name);
    w->stats.binds++;
    trace(w, "scheduler: bind %s to n%d", l->uid, node);
    at(w, from_ms + between(w, 0, 20), on_bind, l, free);
    return l->token = ask_add(w, p, from_ms, from_ms + 30000);
}

/* -- Permit -- */

struct waiting {
    char uid[64];
    int node;
    struct waiting *next;
};

/* The length of the gang's name; 0: the pod is in no gang. */
static size_t gang_n(const char *name)
{
    return name[0] == 'g' && strchr(name, '.') ? strcspn(name, ".") : 0;
}

bool gangs_has(const char *name)
{
    return gang_n(name) > 0;
}

bool gangs_same(const char *a, const char *b)
{
    size_t n = gang_n(a);
    return n && n == gang_n(b) && !strncmp(a, b, n);
}

uint32_t gangs_minimum(const struct world *w, const char *name)
{
    const struct yard_gang *g = yard_gang(w, name);
    if (g)
        return (uint32_t)g->minimum;
    uint64_t gang = strtoull(name + 1, NULL, 10);
    return *name == 'g' && gang % 3 == 2 ? 2 + (uint32_t)(gang / 3 % 3) : 0;
}

static bool waits(const struct world *w, const char *uid)
{
    struct waiting *x = w->permit;
    while (x && strcmp(x->uid, uid) != 0)
        x = x->next;
    return x;
}

struct oracle_pod *permit_first(struct world *w)
{
    return w->permit ? oracle_find(w, w->permit->uid) : NULL;
}

/* Returns the node for which the pod waited; -1: it did not. */
static int stop_waiting(struct world *w, const char *uid)
{
    struct waiting **at = &w->permit, *x;
    while ((x = *at) && strcmp(x->uid, uid) != 0)
        at = &x->next;
    int node = x ? x->node : -1;
    if (x)
        *at = x->next;
    free(x);
    return node;
}

static void on_timeout(struct world *w, void *arg)
{
    const struct oracle_pod *late = oracle_find(w, arg);
    int gave_up = 0;
    EACH_POD(w, p)
    if (late && gangs_same(p->name, late->name))
        gave_up += stop_waiting(w, p->uid) >= 0;
    stop_waiting(w, arg); /* its pod was deleted */
    trace(w, "scheduler: %d members wait no longer with %s", gave_up, (char *)arg);
    if (gave_up)
        w->last_news_ms = w->now_ms; /* they are tried again */
    free(arg);
}

static void try_pod(struct world *w, const struct oracle_pod *p);

static void on_restart(struct world *w, void *arg)
{
    (void)arg;
    struct oracle_pod *first = permit_first(w);
    trace(w, "scheduler: restarts; no member waits any more");
    while (w->permit)
        stop_waiting(w, w->permit->uid);
    w->last_news_ms = w->now_ms;
    if (first && oracle_pending(first)) /* its queue can have any order */
        try_pod(w, first);
}

void permit_restart(struct world *w)
{
    at(w, w->now_ms + between(w, 0, 100), on_restart, NULL, NULL);
}

/* Filter gave the member a node. */
static void permit_add(struct world *w, const struct oracle_pod *p, int node)
{
    struct waiting *x = xcalloc(1, sizeof *x);
    snprintf(x->uid, sizeof x->uid, "%s", p->uid);
    x->node = node;
    x->next = w->permit;
    w->permit = x;
    EACH_POD(w, q)
    if (oracle_pending(q) && gangs_same(q->name, p->name) && !waits(w, q->uid)) {
        at(w, w->now_ms + between(w, 5000, 70000), on_timeout, xstrdup(p->uid), free);
        return;
    }
    w->stats.gangs_bound++;
    for (const struct oracle_pod *q = w->pods, *next; q; q = next) {
        next = q->next;
        int where = gangs_same(q->name, p->name) ? stop_waiting(w, q->uid) : -1;
        if (where >= 0 && !q->over && !q->deleting)
            bind(w, q, where);
    }
}

void gangs_check(struct world *w, const struct replica *r, const struct core_input *in,
                 const struct core_output *o)
{
    const struct ledger *l = core_ledger(r->core);
    cleanup_free char *name = xmemdup0(in->name.p, in->name.n);
    cleanup_free char *uid = xmemdup0(in->uid.p, in->uid.n);
    const struct ledger_pod *asker = replica_pod(r, uid);
    uint32_t with = 0, without = 0, others = 0;
    /* The cards of the asker may be promised, also while the outcome of its Binding is
     * unknown. */
    if (in->type != CORE_RESERVE || o->type != CORE_RESERVED || !in->gang ||
        !replica_leads(w, r) || scheduler_binds(w, uid) || (asker && asker->node))
        return;
    const struct gang_count gang = gang_count(w, r, name, uid);
    others += gang.foreign; /* their scheduler finds them places */
    for (const struct ledger_pod *pod = ledger_first_pod(l); pod;
         pod = ledger_next_pod(l, pod)) {
        if (!gangs_same(name, pod->name.p) || pod->terminating || pod->node)
            continue;
        if (!pod->invalid_reason &&
            (pod->request->kind == REQUEST_MEMORY || pod->request->kind == REQUEST_CARDS))
            ++*(ledger_reservation_find(l, pod->uid) ? &with : &without);
        else
            others += !pod->invalid_reason; /* they get a node and no reservation */
    }
    with += !asker && ledger_reservation_find(l, in->uid);
    w->stats.gangs_rejected += !o->node;
    w->stats.gangs_reserved += with > 1;
    if (with &&
        (gang.needed ? with + gang.bound + others < gang.needed : without || !o->node))
        violated(
            w,
            "r%d reserves cards for %u members of the gang of %s and none for %u; %u "
            "are bound, %u exist, and %u must start",
            r->id, with, name, without, gang.bound, gang.total, gang.needed);
}

bool gangs_may_wait(const struct world *w, const struct oracle_pod *p)
{
    EACH_POD(w, q)
    if (q != p && gangs_same(q->name, p->name) && oracle_pending(q))
        return true;
    return waits(w, p->uid);
}

/* -- filter -- */

/* The nodes that pass the filter of the replica. */
static size_t judge(const struct world *w, const struct replica *r, const struct pod *pod,
                    const struct request *request, int nodes[ALL_NODES])
{
    size_t n = 0;
    EACH_NODE(w, i)
    {
        const struct ledger_node *node = replica_node(r, i);
        if (node &&
            select_fit_pod(node, &(struct select_pod){request, pod->priority,
                                                      pod->meta.uid, NULL}) == FIT_YES)
            nodes[n++] = i;
    }
    return n;
}

/* -- scheduling cycles -- */

static void try_pod(struct world *w, const struct oracle_pod *p)
{
    struct replica *r = &w->replicas[any(w, (uint64_t)w->n_replicas)];
    cleanup_arena struct arena a = {0};
    cleanup_free char *path = xasprintf(POD_PATH "%s", p->name);
    struct api_reply reply = {0};
    struct jread j;
    struct pod pod;
    struct request request;
    int nodes[ALL_NODES];
    size_t n = 0;
    const struct ask *ask = ask_of(w, p->uid);
    if (w->filter || !replica_up(w, r) ||
        (ask && (w->now_ms < ask->from_ms || !chance(w, 30))) || waits(w, p->uid))
        return;
    struct api_request req = {
        .method = "GET", .path = path, .query = "", .body = {"", 0}};
    api_handle(w->api, wall_ms(w), &req, &reply);
    bool found = reply.status == 200;
    jread_init(&j, reply.body.p, reply.body.n);
    pod_read(&j, &a, &pod);
    struct request_rules rules = ledger_rules(ledger_settings(core_ledger(r->core)));
    if (request_of(&pod, &rules, &a, &request, NULL))
        request.kind = REQUEST_NONE;
    if (found && w->decides && request.kind != REQUEST_NONE) {
        cleanup_free char *uid = xstrdup(p->uid);
        nodes[0] =
            filter_call(w, r, uid, buf_span(&reply.body),
                        request.kind == REQUEST_MEMORY || request.kind == REQUEST_CARDS);
        n = nodes[0] >= 0;
        struct oracle_pod *now = oracle_find(w, uid);
        if (now)
            now->rejected_ms = nodes[0] == -1 ? w->now_ms : 0;
        p = now;
        if (!p || !oracle_pending(p))
            n = found = false;
    } else if (found && request.kind != REQUEST_NONE &&
               core_ready(r->core, replica_time(w, r), NULL) == 0) {
        n = judge(w, r, &pod, &request, nodes);
    }
    w->stats.joined += p && scheduler_binds(w, p->uid);
    if (!p) {
        /* deleted while filter waited */
    } else if (n && gangs_has(p->name) && !gangs_minimum(w, p->name)) {
        permit_add(w, p, nodes[0]);
    } else if (n) {
        bind(w, p, nodes[any(w, n)]);
    } else if (chance(w, 5)) { /* an old filter result */
        bind(w, p, any(w, NODES));
    } else if (found && w->preempts) {
        evictions_rejected(w, r, &pod);
        /* kube-scheduler's own preemption finds no victims, and clears the nomination. */
        if (pod.nominated_node.n && !chance(w, 300))
            api_call(w, "PATCH", "{\"status\":{\"nominatedNodeName\":null}}",
                     POD_PATH "%s/status", p->name);
    }
    api_reply_fini(&reply);
}

static void cycle(struct world *w, void *arg)
{
    (void)arg;
    if (w->filter) {
        at(w, w->now_ms + 100, cycle, NULL, NULL);
        return;
    }
    if (w->quiet) { /* no pod may be skipped by chance */
        for (struct oracle_pod *p = w->pods, *next; p; p = next) {
            next = p->next;
            bool asleep = w->samples && p->rejected_ms > w->quiet_since_ms &&
                          p->rejected_ms > w->woken_ms;
            w->stats.asleep += asleep && oracle_pending(p);
            if (oracle_pending(p) && !asleep)
                try_pod(w, p);
        }
        at(w, w->now_ms + 1000, cycle, NULL, NULL);
        return;
    }
    for (int i = 0; i < TRIES; i++) {
        struct oracle_pod *p = oracle_pick(w, false);
        if (p)
            try_pod(w, p);
    }
    at(w, w->now_ms + between(w, 5, 100), cycle, NULL, NULL);
}

void scheduler_start(struct world *w)
{
    if (!w->yard)
        cycle(w, NULL);
}

void scheduler_free(struct world *w)
{
    while (w->asks)
        take_ask(w, w->asks->token, false);
    while (w->permit)
        stop_waiting(w, w->permit->uid);
}
