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
 */

enum {
    TRIES = 10, /* pods in one scheduling round */
};

struct ask {
    uint64_t token;
    char *uid;
    int64_t from_ms; /* when bind is called; until then the pod waits after its filter */
    struct ask *next;
};

struct scheduler {
    uint64_t last_token;
    struct ask *asks;     /* without an answer */
    int64_t last_news_ms; /* of the last bind or attempt */
};

struct scheduler *scheduler_new(void)
{
    return xcalloc(1, sizeof(struct scheduler));
}

static void ask_free(struct ask *a)
{
    free(a->uid);
    free(a);
}

void scheduler_free(struct scheduler *s)
{
    for (struct ask *a = s->asks, *next; a; a = next) {
        next = a->next;
        ask_free(a);
    }
    free(s);
}

static struct ask *ask_of(const struct scheduler *s, const char *uid)
{
    struct ask *a = s->asks;
    while (a && strcmp(a->uid, uid) != 0)
        a = a->next;
    return a;
}

bool scheduler_binds(const struct world *w, const char *uid)
{
    return ask_of(w->scheduler, uid) != NULL;
}

static bool take_ask(struct scheduler *s, uint64_t token)
{
    struct ask **at = &s->asks;
    while (*at && (*at)->token != token)
        at = &(*at)->next;
    if (!*at)
        return false;
    struct ask *a = *at;
    *at = a->next;
    ask_free(a);
    return true;
}

static struct replica *any_replica(struct world *w)
{
    struct replica *r = w->replicas[rng_below(&w->rng, (uint64_t)w->n_replicas)];
    return replica_up(w, r) ? r : NULL;
}

/* Nodes that pass the filter of the replica. */
static int filter(struct world *w, struct replica *r, const struct pod *pod,
                  int nodes[NODES])
{
    const struct core *core = replica_core(r);
    struct request request;
    struct request_rules rules = ledger_rules(ledger_settings(core_ledger(core)));
    cleanup_arena struct arena a = {0};
    int n = 0;
    if (core_ready(core, replica_time(w, r), NULL) ||
        request_of(pod, &rules, &a, &request, NULL) || request.kind == REQUEST_NONE)
        return 0; /* kube-scheduler calls no extender for a pod without our resources */
    for (int i = 0; i < NODES; i++) {
        char name[8];
        snprintf(name, sizeof name, "n%d", i);
        const struct ledger_node *node =
            ledger_node_find(core_ledger(core), span_of(name));
        if (node &&
            select_fit_pod(node, &(struct select_pod){&request, pod->priority,
                                                      pod->meta.uid, NULL}) == FIT_YES)
            nodes[n++] = i;
    }
    return n;
}

/* A bind on its route to the leader, as in extender/bind.c, with a network between the
 * replicas. */
struct bind_letter {
    uint64_t token;
    char uid[64], name[64], node[8];
    int asked; /* the replica that kube-scheduler called */
    int at;    /* where it is */
    int64_t until_ms;
};

enum {
    AGAIN_MS = 100,
    KEPT_MS = 15000,
    ATTEMPT_MS = 5100,
};

static void on_bind(struct world *w, void *arg);

static void try_again(struct world *w, struct bind_letter *l, int64_t ms)
{
    l->at = l->asked;
    at(w, w->now_ms + ms, on_bind, l, free);
}

static void hand_on(struct world *w, struct bind_letter *l, int to)
{
    int64_t away = w->apart_until[l->at][to];
    w->stats.forwarded++;
    bool lost = to == l->at || to >= w->n_replicas || away > w->now_ms ||
                chance(w, w->weather.lose_request);
    if (!lost) {
        struct bind_letter *copy = xmalloc(sizeof *copy);
        *copy = *l;
        copy->at = to;
        at(w, w->now_ms + between(w, 0, w->weather.delay_ms), on_bind, copy, free);
    }
    /* No answer, or the answer is lost: retries until kube-scheduler has a reply. The second
     * bind joins the first. */
    try_again(w, l, lost && chance(w, 500) ? AGAIN_MS : ATTEMPT_MS);
}

static void refused(struct world *w, struct bind_letter *l)
{
    struct replica *asked = w->replicas[l->asked];
    w->stats.misdirected++;
    if (replica_up(w, asked))
        replica_input(w, asked, &(struct core_input){.type = CORE_REFRESH_LEASE});
    free(l); /* the forwarding replica retries */
}

static void bind_here(struct world *w, struct replica *r, const struct bind_letter *l)
{
    struct core_input in = {.type = CORE_BIND,
                            .token = l->token,
                            .ns = SPAN("default"),
                            .name = span_of(l->name),
                            .uid = span_of(l->uid),
                            .node_name = span_of(l->node)};
    replica_input(w, r, &in);
}

static bool is_asked(const struct scheduler *s, uint64_t token)
{
    const struct ask *a = s->asks;
    while (a && a->token != token)
        a = a->next;
    return a;
}

static void on_bind(struct world *w, void *arg)
{
    struct bind_letter *l = arg;
    struct replica *r = w->replicas[l->at];
    bool forwarded = l->at != l->asked;
    if (!is_asked(w->scheduler, l->token) || !replica_alive(r) ||
        w->now_ms >= l->until_ms) {
        if (!forwarded && take_ask(w->scheduler, l->token))
            w->scheduler->last_news_ms = w->now_ms;
        free(l);
        return;
    }
    if (!replica_up(w, r)) { /* it stays there until the replica continues */
        at(w, w->now_ms + 1000, on_bind, l, free);
        return;
    }
    struct bind_route way =
        core_bind_route(replica_core(r), replica_time(w, r), forwarded, NULL);
    if (way.route == BIND_ROUTE_LOCAL ||
        chance(w, 30)) { /* sometimes also on a wrong replica */
        bind_here(w, r, l);
        free(l);
    } else if (way.route == BIND_ROUTE_REJECT) {
        refused(w, l);
    } else if (way.route == BIND_ROUTE_FORWARD) {
        hand_on(w, l, replica_at(way.address));
    } else {
        at(w, w->now_ms + AGAIN_MS, on_bind, l, free);
    }
}

static void on_give_up(struct world *w, void *arg)
{
    uint64_t *token = arg;
    if (take_ask(w->scheduler, *token))
        w->scheduler->last_news_ms = w->now_ms; /* it can be retried now */
    free(token);
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

/* The scheduler is busy with the pod: until `from_ms` it is not tried again, and until
 * `until_ms` a bind has no answer. */
static uint64_t ask_add(struct world *w, const struct oracle_pod *p, int64_t from_ms,
                        int64_t until_ms)
{
    struct scheduler *s = w->scheduler;
    struct ask *a = xcalloc(1, sizeof *a);
    uint64_t *token = xmalloc(sizeof *token);
    a->token = *token = ++s->last_token;
    a->uid = xstrdup(p->uid);
    a->from_ms = from_ms;
    a->next = s->asks;
    s->asks = a;
    s->last_news_ms = w->now_ms;
    at(w, until_ms, on_give_up, token, free);
    return a->token;
}

/* Does a replica reserve cards now? */
static bool anybody_reserves(const struct world *w)
{
    for (int i = 0; i < w->n_replicas; i++) {
        const struct replica *r = w->replicas[i];
        if (replica_up(w, r) &&
            core_may_bind(replica_core(r), replica_time(w, r), NULL) == 0)
            return true;
    }
    return false;
}

/* Some scheduling cycles end after filter. In some worlds many pods do not come back before
 * the time limit of a reservation; also when failures have just ended, because few leaders
 * last that long before. */
static bool forgets(struct world *w, const struct oracle_pod *p)
{
    bool often = w->seed % 10 == 6 || w->seed % 10 == 7;
    bool late = w->quiet && w->now_ms < w->quiet_since_ms + 15000;
    if (often && late && anybody_reserves(w)
            ? rng_below(&w->rng, 3) > 0
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
    if (forgets(w, p))
        return;
    struct bind_letter *l = xcalloc(1, sizeof *l);
    l->asked = l->at = (int)rng_below(&w->rng, (uint64_t)w->n_replicas);
    l->until_ms = from_ms + KEPT_MS;
    snprintf(l->uid, sizeof l->uid, "%s", p->uid);
    snprintf(l->name, sizeof l->name, "%s", p->name);
    snprintf(l->node, sizeof l->node, "n%d", node);
    w->stats.binds++;
    trace(w, "scheduler: bind %s to %s", l->uid, l->node);
    at(w, from_ms + between(w, 0, 20), on_bind, l, free);
    l->token = ask_add(w, p, from_ms, from_ms + 30000);
}

/* kube-scheduler's own preemption finds no victims, and clears the nomination. */
static void reject(struct world *w, struct replica *r, const struct pod *pod)
{
    evictions_rejected(w, r, pod);
    if (!pod->nominated_node.n || chance(w, 300))
        return;
    api_call(w, "PATCH", "{\"status\":{\"nominatedNodeName\":null}}",
             POD_PATH "%.*s/status", SPAN_ARG(pod->meta.name));
}

void scheduler_bind(struct world *w, const struct oracle_pod *p, int node)
{
    bind(w, p, node);
}

/* One scheduling cycle of one pod. */
static void cycle(struct world *w, void *arg);

static void try_pod(struct world *w, const struct oracle_pod *p)
{
    struct replica *r = any_replica(w);
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf path = {0};
    struct api_reply reply = {0};
    struct jread j;
    struct pod pod;
    int nodes[NODES];
    const struct ask *ask = ask_of(w->scheduler, p->uid);
    bool waits = ask && w->now_ms < ask->from_ms;
    if (!r || waits || (ask && !chance(w, 30)) || permit_waits(w, p->uid))
        return;
    buf_printf(&path, "/api/v1/namespaces/default/pods/%s", p->name);
    struct api_request req = {
        .method = "GET", .path = path.p, .query = "", .body = {"", 0}};
    api_handle(w->api, wall_ms(w), &req, &reply);
    jread_init(&j, reply.body.p, reply.body.n);
    pod_read(&j, &a, &pod);
    int n = reply.status == 200 && !w->decides ? filter(w, r, &pod, nodes) : 0;
    if (reply.status == 200 && w->decides) {
        nodes[0] = decide_node(w, r, &pod);
        n = nodes[0] >= 0;
    }
    if (ask_of(w->scheduler, p->uid))
        w->stats.joined++;
    if (n && gangs_has(p->name))
        permit_add(w, p, nodes[0]);
    else if (n)
        bind(w, p, nodes[rng_below(&w->rng, (uint64_t)n)]);
    else if (chance(w, 5)) /* an old filter result */
        bind(w, p, (int)rng_below(&w->rng, NODES));
    else if (reply.status == 200 && w->preempts)
        reject(w, r, &pod);
    api_reply_fini(&reply);
}

void scheduler_try(struct world *w, const struct oracle_pod *p)
{
    if (!p->node && !p->over && !p->deleting)
        try_pod(w, p);
}

/* At rest no pod may be skipped by chance. */
static void try_all(struct world *w)
{
    struct oracle_pod *next;
    for (struct oracle_pod *p = oracle_first(w); p; p = next) {
        next = p->next;
        scheduler_try(w, p);
    }
    at(w, w->now_ms + 1000, cycle, NULL, NULL);
}

static void cycle(struct world *w, void *arg)
{
    (void)arg;
    if (w->quiet) {
        try_all(w);
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
    cycle(w, NULL);
}

void scheduler_reply(struct world *w, uint64_t token, enum err_code code,
                     const char *text)
{
    trace(w, "scheduler: answer of %llu: %s %s", (unsigned long long)token,
          err_code_name(code), text);
    if (take_ask(w->scheduler, token))
        w->scheduler->last_news_ms = w->now_ms;
}

void scheduler_forget_backoff(struct world *w)
{
    w->scheduler->last_news_ms = w->now_ms;
}

const char *scheduler_uid(const struct world *w, uint64_t token)
{
    const struct ask *a = w->scheduler->asks;
    while (a && a->token != token)
        a = a->next;
    return a ? a->uid : NULL;
}

/* No call in flight, and no attempt for a while although every pod was tried. */
bool scheduler_idle(const struct world *w)
{
    return !w->scheduler->asks && w->now_ms - w->scheduler->last_news_ms > 10000;
}
