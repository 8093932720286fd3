/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include "domain/dialect.h"
#include "extender/tried.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * An extender process: the core, the real code that encodes its outputs as requests and
 * decodes answers to inputs, and a network between core and API server.
 *
 * The network may refuse to send a call, lose it, deliver it late or twice, delay the
 * server, lose the answer, or answer with an error before or after the call is applied. It
 * keeps two guarantees of the program (TCP_USER_TIMEOUT and a reset; ?timeout=3s): a
 * Binding arrives within CORE_DELIVERY_MS after it was sent or never, and the server
 * applies it within CORE_SERVER_MS of its arrival or never.
 */

static const struct apisync_sink sink;

struct step_time replica_time(const struct world *w, const struct replica *r)
{
    return (struct step_time){w->now_ms - r->behind_ms,
                              (wall_ms(w) + r->wall_off_ms) * 1000000};
}

static bool is_cut(const struct world *w, const struct replica *r)
{
    return w->now_ms < r->cut_until;
}

static void line_close(struct line *line)
{
    api_watch_free(line->watch);
    line->watch = NULL;
    buf_fini(&line->waiting);
    if (line->fed)
        apisync_fini(&line->feed);
    line->fed = line->pumping = false;
    line->conn++;
}

void replica_free(struct replica *r)
{
    for (int kind = 0; kind < CORE_KINDS; kind++)
        line_close(&r->lines[kind]);
    if (!filter_keeps(r->world, r->core)) {
        core_free(r->core);
        tried_free(r->tried);
    }
    r->core = NULL;
    r->tried = NULL;
    evictions_forget(r);
    free(r->reserved);
    r->reserved = NULL;
    r->n_reserved = 0;
}

bool replica_up(const struct world *w, const struct replica *r)
{
    return r->alive && r->paused_until <= w->now_ms;
}

bool replica_watches_all(const struct world *w, const struct replica *r)
{
    for (int kind = 0; kind < CORE_KINDS; kind++)
        if (!r->lines[kind].watch || r->lines[kind].last_ms > w->now_ms)
            return false;
    return replica_up(w, r) && !is_cut(w, r) && r->watches_stall_until <= w->now_ms;
}

const struct ledger_node *replica_node(const struct replica *r, int node)
{
    return ledger_node_find(core_ledger(r->core), span_of(node_names[node]));
}

const struct ledger_pod *replica_pod(const struct replica *r, const char *uid)
{
    return ledger_pod_find(core_ledger(r->core), span_of(uid));
}

bool replica_leads(const struct world *w, const struct replica *r)
{
    return core_check_may_bind(r->core, replica_time(w, r), NULL) == 0;
}

/* It knows as little as a new process. */
static void forget_all(struct world *w, struct replica *r)
{
    oracle_restarted(w, r);
    r->delivered = (struct delivered){0};
    r->before = 0;
    r->may_notice = false;
}

void replica_crash(struct world *w, struct replica *r)
{
    trace(w, "r%d crashes", r->id);
    replica_free(r);
    r->alive = false;
    r->epoch++;
    barrier_crashed(w, r);
    forget_all(w, r);
    w->stats.crashes++;
}

void replica_pause(struct world *w, struct replica *r, int64_t ms)
{
    trace(w, "r%d is paused for %lld ms", r->id, (long long)ms);
    r->paused_until = w->now_ms + ms;
    w->stats.pauses++;
}

void replica_freeze(struct world *w, struct replica *r, int64_t ms)
{
    replica_pause(w, r, ms);
    trace(w, "r%d: its monotonic clock stopped too", r->id);
    r->behind_ms += ms;
    w->stats.freezes++;
}

/* A message for one start of a replica. */
struct letter {
    struct replica *r;
    uint64_t epoch;
    /* Returns when it is to be opened again; NEVER: it is freed. */
    int64_t (*open)(struct world *w, struct replica *r, struct letter *l);
    struct line *line; /* of a stream, for one connection of it; or NULL */
    uint64_t conn;
    struct buf body;
    size_t pos;
    unsigned status;
    struct err why;
    struct sent_call *call;   /* or NULL */
    struct core_output *wish; /* a list or watch to begin */
};
enum { NEVER = -1 };
typedef int64_t (*open_fn)(struct world *w, struct replica *r, struct letter *l);

/* A call in flight, shared by both ends and every copy. */
struct sent_call {
    int refs;
    struct core_output *call;
    struct arena arena;
    struct kube_request request;
    struct replica *r;
    uint64_t epoch;
    uint64_t restores; /* of etcd, before it was sent */
    bool answered;     /* the replica has got its answer, or has timed out */
    bool late;         /* the answer takes as long as the replica waits for it */
    int64_t sent_ms;
};

static void call_drop(struct sent_call *call)
{
    if (!call || --call->refs)
        return;
    free(call->call);
    arena_fini(&call->arena);
    free(call);
}

static void letter_free(void *arg)
{
    struct letter *l = arg;
    call_drop(l->call);
    free(l->wish);
    buf_fini(&l->body);
    free(l);
}

static void letter_open(struct world *w, void *arg)
{
    struct letter *l = arg;
    struct replica *r = l->r;
    int64_t again = NEVER;
    if (r->alive && l->epoch == r->epoch) {
        if (r->paused_until > w->now_ms)
            again = r->paused_until; /* the queue keeps its order */
        else if (!l->line || l->conn == l->line->conn)
            again = l->open(w, r, l);
    }
    if (again == NEVER)
        letter_free(l);
    else
        at(w, again, letter_open, l, letter_free);
}

static struct letter *post(struct world *w, struct replica *r, int64_t when, open_fn open)
{
    struct letter *l = xcalloc(1, sizeof *l);
    l->r = r;
    l->epoch = r->epoch;
    l->open = open;
    at(w, when, letter_open, l, letter_free);
    return l;
}

static struct letter *post_on(struct world *w, struct replica *r, struct line *line,
                              int64_t when, open_fn open)
{
    struct letter *l = post(w, r, when, open);
    l->line = line;
    l->conn = line->conn;
    return l;
}

static int64_t network_delay(struct world *w)
{
    int64_t usual = w->weather.delay_ms;
    if (chance(w, w->weather.lag))
        return between(w, usual, usual * 40);
    return between(w, 0, usual);
}

/* Ticks */

static int64_t on_tick(struct world *w, struct replica *r, struct letter *l)
{
    (void)l;
    r->next_tick = INT64_MAX;
    replica_input(w, r, &(struct core_input){.type = CORE_TICK});
    return NEVER;
}

static void plan_tick(struct world *w, struct replica *r)
{
    int64_t due = core_due(r->core);
    if (due < INT64_MAX - r->behind_ms)
        due += r->behind_ms;
    if (due < w->now_ms)
        due = w->now_ms;
    if (due > w->now_ms + 1000)
        due = w->now_ms + 1000;
    if (due >= r->next_tick)
        return;
    r->next_tick = due;
    post(w, r, due, on_tick);
}

/* Streams */

static int64_t on_open(struct world *w, struct replica *r, struct letter *l);

static void open_page(struct world *w, struct replica *r, struct line *line)
{
    /* A server that is slow with lists is slow with the watches that follow them. */
    bool slow = line->feed.watch && chance(w, w->weather.slow_list / 2);
    int64_t delay = slow ? between(w, 0, 3000) : network_delay(w);
    post_on(w, r, line, w->now_ms + delay, on_open);
}

/* ERR_NONE: the answer is complete. */
static void close_feed(struct world *w, struct replica *r, struct line *line,
                       enum err_code code)
{
    api_watch_free(line->watch);
    line->watch = NULL;
    if (apisync_end(&line->feed,
                    code ? &(struct err){.code = code, .msg = "lost"} : NULL))
        open_page(w, r, line);
    else
        line_close(line);
}

static void deliver_bytes(struct world *w, struct replica *r, struct line *line,
                          const char *p, size_t n)
{
    size_t done = 0;
    while (done < n) {
        size_t piece = 1 + rng_below(&w->rng, n - done);
        if (!list_watch_data(&line->feed.in, p + done, piece)) {
            close_feed(w, r, line, ERR_INVALID);
            return;
        }
        done += piece;
    }
}

/* A part of a list arrives; the rest follows. */
static int64_t on_list_bytes(struct world *w, struct replica *r, struct letter *l)
{
    struct line *line = l->line;
    if (is_cut(w, r))
        return r->cut_until; /* sent again until it is acknowledged */
    if (l->pos == 0)
        list_watch_begin(&line->feed.in, l->status, -1);
    size_t left = l->body.n - l->pos;
    size_t n = left && chance(w, 500) ? 1 + rng_below(&w->rng, left) : left;
    deliver_bytes(w, r, line, l->body.p + l->pos, n);
    l->pos += n ? n : 1;
    if (line->conn != l->conn || !line->fed)
        return NEVER;
    bool cut = chance(w, w->weather.cut_list);
    if (!cut && l->pos < l->body.n)
        return w->now_ms + network_delay(w);
    close_feed(w, r, line, cut ? ERR_UNAVAILABLE : ERR_NONE);
    return NEVER;
}

static void pump_later(struct world *w, struct replica *r, struct line *line);

static int64_t on_pump(struct world *w, struct replica *r, struct letter *l)
{
    struct line *line = l->line;
    if (!line->watch)
        return NEVER;
    line->pumping = false;
    if (is_cut(w, r)) {
        pump_later(w, r, line);
        return NEVER;
    }
    if (chance(w, w->weather.cut_watch)) {
        trace(w, "r%d loses its watch of %s", r->id, core_kind_name(line->feed.kind));
        close_feed(w, r, line, chance(w, 500) ? ERR_NONE : ERR_UNAVAILABLE);
        return NEVER;
    }
    int rc;
    while ((rc = api_watch_next(line->watch, wall_ms(w), &line->waiting)) == 1)
        ;
    size_t n = line->waiting.n;
    if (n && chance(w, w->weather.lag))
        n = 1 + rng_below(&w->rng, n); /* the rest follows */
    cleanup_buf struct buf now = {0};
    buf_add(&now, line->waiting.p, n);
    if (n)
        memmove(line->waiting.p, line->waiting.p + n, line->waiting.n - n);
    line->waiting.n -= n;
    deliver_bytes(w, r, line, now.p, now.n);
    if (l->conn != line->conn || !line->fed)
        return NEVER;
    if (line->waiting.n)
        pump_later(w, r, line);
    else if (rc < 0)
        close_feed(w, r, line, ERR_NONE);
    return NEVER;
}

static void pump_later(struct world *w, struct replica *r, struct line *line)
{
    if (line->pumping)
        return;
    line->pumping = true;
    int64_t when = w->now_ms + network_delay(w);
    if (when < line->last_ms)
        when = line->last_ms;
    if (when < r->watches_stall_until)
        when = r->watches_stall_until;
    if (when < r->cut_until)
        when = r->cut_until;
    line->last_ms = when;
    post_on(w, r, line, when, on_pump);
}

void replica_api_changed(struct world *w, struct replica *r)
{
    for (int kind = 0; kind < CORE_KINDS; kind++)
        if (r->lines[kind].watch)
            pump_later(w, r, &r->lines[kind]);
}

static int64_t poll_watch(struct world *w, struct replica *r, struct letter *l)
{
    if (!l->line->watch)
        return NEVER;
    pump_later(w, r, l->line); /* bookmarks and the end of its time */
    return w->now_ms + 5000;
}

void replica_cut_watches(struct world *w, struct replica *r)
{
    for (int kind = 0; kind < CORE_KINDS; kind++)
        if (r->lines[kind].watch)
            close_feed(w, r, &r->lines[kind], ERR_UNAVAILABLE);
}

/* Silent Leases are listed only when a node is due. */
void replica_restored(struct world *w, struct replica *r)
{
    if (!r->alive)
        return;
    r->may_notice = true;
    r->before = ((1u << CORE_KINDS) - 1) & ~(1u << CORE_LEASES);
    for (int kind = 0; kind < CORE_KINDS; kind++)
        if (r->lines[kind].fed)
            close_feed(w, r, &r->lines[kind], ERR_UNAVAILABLE);
}

static int64_t on_unreachable(struct world *w, struct replica *r, struct letter *l)
{
    close_feed(w, r, l->line, ERR_UNAVAILABLE);
    return NEVER;
}

/* The request reaches the server, which answers with what it has at that moment. */
static int64_t on_open(struct world *w, struct replica *r, struct letter *l)
{
    struct line *line = l->line;
    struct kube_request request;
    struct api_reply reply = {0};
    cleanup_arena struct arena a = {0};
    if (is_cut(w, r)) { /* it fails at once, or by timeout */
        l->open = on_unreachable;
        return w->now_ms + (any(w, 2) ? between(w, 500, 3000) : 0);
    }
    if (chance(w, w->weather.refuse))
        return on_unreachable(w, r, l);
    apisync_request(&line->feed, false, &a, &request);
    struct span query = span_of(request.path), path = span_cut(&query, '?');
    struct api_request req = {.method = "GET",
                              .path = arena_copy(&a, path).p,
                              .query = query.p,
                              .body = {"", 0}};
    api_handle(w->api, wall_ms(w), &req, &reply);
    line->watch = steal(&reply.watch);
    l->status = reply.status;
    l->body = reply.body;
    if (line->watch) {
        list_watch_begin(&line->feed.in, reply.status, -1);
        l->open = poll_watch;
        pump_later(w, r, line);
        return w->now_ms + 5000;
    }
    l->open = on_list_bytes;
    bool slow = chance(w, w->weather.slow_list);
    return w->now_ms + (slow ? between(w, 0, 10000) : network_delay(w));
}

static int64_t on_wish(struct world *w, struct replica *r, struct letter *l)
{
    const struct core_output *o = l->wish;
    struct line *line = &r->lines[o->kind];
    bool watch = o->type == CORE_WATCH;
    line_close(line);
    line->fed = true;
    line->last_ms = w->now_ms;
    apisync_start(&line->feed, o->kind, watch, o->run, span_of(o->version), &sink, r);
    w->stats.relists += !watch;
    open_page(w, r, line);
    return NEVER;
}

/* Calls */

static struct letter *post_call(struct world *w, struct sent_call *call, int64_t when,
                                open_fn open)
{
    struct letter *l = post(w, call->r, when, open);
    l->epoch = call->epoch;
    l->call = call;
    call->refs++;
    return l;
}

static void answer_core(struct world *w, struct sent_call *c,
                        const struct apisync_result *result)
{
    struct apisync_answer answer;
    cleanup_arena struct arena a = {0};
    c->answered = true;
    apisync_answer(c->call, result, &a, &answer);
    bool bind = c->call->type == CORE_CALL_BIND;
    if (bind && answer.input.err)
        trace(w, "r%d: Binding of %s: %s", c->r->id, c->call->uid, answer.input.err->msg);
    if (bind && !answer.input.err)
        oracle_bind_answered(w, c->r, c->call->uid);
    evictions_answered(w, c->r, c->call, &answer.input);
    replica_input(w, c->r, &answer.input);
}

static int64_t on_reply(struct world *w, struct replica *r, struct letter *l)
{
    if (l->call->restores != w->restores)
        return NEVER; /* of a server that is no more */
    if (is_cut(w, r))
        return r->cut_until; /* if the replica still waits then */
    if (!l->call->answered)
        answer_core(w, l->call,
                    &(struct apisync_result){
                        .status = l->status, .body = buf_span(&l->body), .sent = true});
    return NEVER;
}

/* There is no answer in time, or the connection breaks; the request may still be applied. */
static int64_t on_lost(struct world *w, struct replica *r, struct letter *l)
{
    (void)r;
    if (!l->call->answered) {
        w->stats.lost++;
        answer_core(w, l->call, &(struct apisync_result){.why = &l->why, .sent = true});
    }
    return NEVER;
}

/* Takes the body. */
static void reply_later(struct world *w, struct sent_call *call, unsigned status,
                        struct buf body)
{
    if (chance(w, w->weather.lose_reply)) {
        buf_fini(&body);
        return;
    }
    struct letter *l = post_call(
        w, call, w->now_ms + (call->late ? between(w, 1500, 1980) : network_delay(w)),
        on_reply);
    l->status = status;
    l->body = body;
}

/* The server applies a copy of the request, even if the replica has crashed. */
struct copy {
    struct sent_call *call;
    enum {
        ANSWER_NORMAL,
        ANSWER_ERROR_UNAPPLIED,
        ANSWER_ERROR_APPLIED,
        ANSWER_FORBIDDEN
    } kind;
};

static void copy_free(void *arg)
{
    struct copy *c = arg;
    call_drop(c->call);
    free(c);
}

static void on_server(struct world *w, void *arg)
{
    static const unsigned codes[] = {429, 500, 503, 504, 403, 401};
    struct copy *c = arg;
    if (c->call->restores != w->restores) { /* its connection broke */
        copy_free(c);
        return;
    }
    const struct core_output *call = c->call->call;
    const struct kube_request *kube = &c->call->request;
    struct api_reply reply = {0};
    cleanup_arena struct arena a = {0};
    bool evicts = call->type == CORE_CALL_EVICT;
    bool by_budget = evicts && chance(w, 500);
    if (w->yard && call->type == CORE_CALL_BIND &&
        w->yard->nodes[oracle_index(call->node)].refuses)
        c->kind = ANSWER_FORBIDDEN;
    if (!by_budget && c->kind != ANSWER_ERROR_UNAPPLIED && c->kind != ANSWER_FORBIDDEN) {
        struct span query = span_of(kube->path), path = span_cut(&query, '?');
        struct api_request req = {.method = kube->method,
                                  .path = arena_copy(&a, path).p,
                                  .query = query.p ? query.p : "",
                                  .content_type = kube->content_type ? kube->content_type
                                                                     : "application/json",
                                  .body = kube->body};
        w->binding = call->type == CORE_CALL_BIND ? call->uid : NULL;
        api_handle(w->api, wall_ms(w), &req, &reply);
        if (w->binding || evicts)
            trace(w, "server: %s of %s by r%d: %u", evicts ? "eviction" : "Binding",
                  call->uid, c->call->r->id, reply.status);
        w->stats.applied += w->binding && reply.status == 201;
        w->stats.evicted += evicts && reply.status == 201;
        oracle_update(w);
        if (w->yard && call->type == CORE_CALL_WAKEUP && reply.status == 200)
            queue_woken(w);
        w->binding = NULL;
    }
    if (by_budget) { /* as kube-apiserver 1.37 does */
        w->stats.budgets++;
        reply.status = 429;
        buf_adds(&reply.body, "{\"kind\":\"Status\",\"status\":\"Failure\",\"message\":"
                              "\"Cannot evict pod\",\"reason\":\"TooManyRequests\","
                              "\"details\":{\"causes\":[{\"reason\":"
                              "\"DisruptionBudget\"}]},\"code\":429}");
    } else if (c->kind != ANSWER_NORMAL) {
        w->stats.refused++;
        reply.status = c->kind == ANSWER_FORBIDDEN ? 403 : ONE_OF(w, codes);
        if (evicts && c->kind == ANSWER_ERROR_APPLIED)
            reply.status = 504; /* no server denies a request that it has applied */
        buf_clear(&reply.body);
        buf_printf(&reply.body,
                   "{\"kind\":\"Status\",\"status\":\"Failure\",\"code\":%u,"
                   "\"message\":\"simulated error %u\"}",
                   reply.status, reply.status);
    }
    reply_later(w, c->call, reply.status, reply.body);
    copy_free(c);
}

static void send_copy(struct world *w, struct sent_call *call)
{
    bool bind = call->call->type == CORE_CALL_BIND;
    bool lease = call->call->type == CORE_CALL_LEASE_WRITE;
    struct replica *r = call->r;
    if (lease && w->now_ms < r->lease_trouble_until && !chance(w, 100))
        return;
    if (lease && chance(w, w->weather.last_gasp))
        r->last_gasp_ms = between(w, 5000, 12000);
    if (lease && r->last_gasp_ms) {
        call->late = true;
        r->lease_trouble_until = w->now_ms + r->last_gasp_ms;
        r->last_gasp_ms = 0;
    }
    if (r->cut_until > w->now_ms + CORE_DELIVERY_MS)
        return;
    int64_t from = is_cut(w, r) ? r->cut_until : w->now_ms;
    int64_t arrives = from + network_delay(w);
    int64_t works =
        chance(w, w->weather.slow) ? between(w, 0, bind ? 4000 : 2000) : between(w, 0, 3);
    if (chance(w, w->weather.lose_request))
        return;
    if (bind && arrives > call->sent_ms + CORE_DELIVERY_MS)
        return; /* the connection was reset before it arrived */
    struct copy *c = xcalloc(1, sizeof *c);
    c->call = call;
    call->refs++;
    if (chance(w, w->weather.refuse))
        c->kind = chance(w, 500) ? ANSWER_ERROR_APPLIED : ANSWER_ERROR_UNAPPLIED;
    if (bind && works > CORE_SERVER_MS) {
        c->kind = ANSWER_ERROR_UNAPPLIED;
        works = CORE_SERVER_MS;
    }
    at(w, arrives + works, on_server, c, copy_free);
}

/* Sends the request, or fails to. */
static int64_t on_send(struct world *w, struct replica *r, struct letter *l)
{
    struct sent_call *call = l->call;
    const struct core_output *o = call->call;
    struct step_time now = replica_time(w, r);
    bool late = clock_deadline_passed(&o->send_by, now.mono_ms, now.wall_ns);
    bool alone = is_cut(w, r) && any(w, 2); /* the connect fails */
    l->why = (struct err){ERR_UNAVAILABLE, "not sent"};
    if (late || alone || chance(w, w->weather.not_sent)) {
        answer_core(w, call, &(struct apisync_result){.why = &l->why});
        return NEVER;
    }
    call->sent_ms = w->now_ms;
    call->restores = w->restores;
    if (o->type == CORE_CALL_BIND && chance(w, 100))
        flaws_edit_soon(w, o->uid);
    if (o->type == CORE_CALL_BIND)
        trace(w, "r%d sends the Binding of %s to %s", r->id, o->uid, o->node);
    send_copy(w, call);
    if (chance(w, w->weather.duplicate)) {
        w->stats.duplicates++;
        send_copy(w, call);
    }
    if (chance(w, w->weather.cut_call))
        post_call(w, call, w->now_ms + between(w, 0, 300), on_lost)->why =
            (struct err){ERR_UNAVAILABLE, "connection reset"};
    l->why = (struct err){ERR_TIMEOUT, "no answer in time"};
    l->open = on_lost;
    return w->now_ms + call->request.timeout_ms;
}

static void start_call(struct world *w, struct replica *r, const struct core_output *o)
{
    struct sent_call *call = xcalloc(1, sizeof *call);
    call->r = r;
    call->epoch = r->epoch;
    call->call = core_output_dup(o);
    apisync_call(call->call, &call->arena, &call->request);
    w->stats.wakeups += o->type == CORE_CALL_WAKEUP;
    if (o->type == CORE_CALL_WAKEUP && w->samples) {
        w->woken_ms = w->now_ms + 100; /* by then it has arrived */
        w->last_news_ms = w->now_ms;
    }
    if (o->type == CORE_CALL_BIND && replica_up(w, r) && chance(w, w->weather.stall))
        /* between decision and write */
        (chance(w, 300) ? replica_freeze : replica_pause)(w, r, between(w, 500, 12000));
    post_call(w, call, w->now_ms + between(w, 0, 3), on_send);
}

/* Inputs and outputs */

void replica_input(struct world *w, struct replica *r, const struct core_input *in)
{
    struct step_outputs out = {0};
    bool taken = delivered_take(&r->delivered, in, replica_time(w, r).mono_ms);
    if (taken && in->type == CORE_OBJECT && in->kind == CORE_PODS && !in->deleted)
        oracle_delivered(w, r, in->pod);
    if (in->type == CORE_ANSWER && in->pod)
        oracle_answered(w, r, in->pod);
    evictions_before(w, r);
    barrier_before(w, r, in);
    core_step(r->core, replica_time(w, r), in, &out);
    if (taken && in->kind == CORE_SCVS)
        oracle_scvs_delivered(w, r);
    delivered_check_heartbeats(&r->delivered, in);
    w->bindings = 0;
    STEP_EACH(struct core_output, o, &out)
    w->bindings += o->type == CORE_CALL_BIND;
    STEP_EACH(struct core_output, o, &out)
    if (o->type == CORE_CALL_BIND)
        witness_bind(w, r, o);
    else if (o->type == CORE_CALL_NOMINATE || o->type == CORE_CALL_EVICT)
        evictions_sent(w, r, o);
    else if (o->type == CORE_REPLY && o->code != ERR_NONE)
        oracle_bind_failed(w, r, scheduler_uid(w, o->token));
    barrier_after(w, r, in, &out);
    if (w->decides)
        witness_reserve(w, r, in, &out);
    for (size_t i = 0; i < out.n_lines; i++) {
        trace(w, "r%d logs: %s", r->id, out.lines[i].text);
        if (!strstr(out.lines[i].text, "restore from a backup"))
            continue;
        if (!r->may_notice)
            violated(w, "r%d takes old news for a restore: %s", r->id, out.lines[i].text);
        w->stats.noticed++;
        forget_all(w, r);
    }
    STEP_EACH(struct core_output, o, &out)
    {
        if (o->type == CORE_REPLY || o->type == CORE_RESERVED) {
            scheduler_reply(w, o);
        } else if (apisync_is_call(o)) {
            start_call(w, r, o);
        } else { /* as in the watch thread: after the current read */
            delivered_asked(&r->delivered, o, replica_time(w, r).mono_ms);
            post(w, r, w->now_ms, on_wish)->wish = core_output_dup(o);
        }
    }
    step_outputs_fini(&out);
    bool leader = core_is_leader(r->core);
    if (leader && !r->was_leader) {
        w->stats.takeovers++;
        trace(w, "r%d leads", r->id);
    }
    r->was_leader = leader;
    agents_check(w, r);
    if (taken && in->type == CORE_LIST_ENDED)
        r->before &= ~(1u << in->kind);
    if (!r->before)
        witness_check(w, r);
    plan_tick(w, r);
}

static void on_input(void *ctx, const struct core_input *in)
{
    struct replica *r = ctx;
    replica_input(r->world, r, in);
}

static void on_fault(void *ctx, const struct err *err)
{
    struct replica *r = ctx;
    violated(r->world, "an object of the simulator is invalid: %s", err->msg);
}

static const struct apisync_sink sink = {.input = on_input, .fault = on_fault};

void replica_cut_off(struct world *w, struct replica *r, int64_t ms)
{
    trace(w, "r%d does not reach the API server for %lld ms", r->id, (long long)ms);
    if (r->cut_until < w->now_ms + ms)
        r->cut_until = w->now_ms + ms;
    w->stats.cut_off++;
    if (any(w, 2)) /* or it does not notice */
        replica_cut_watches(w, r);
}

static int64_t on_stopped(struct world *w, struct replica *r, struct letter *l)
{
    l->pos++; /* a bounded wait */
    if (!core_stopped(r->core) && l->pos < 80)
        return w->now_ms + 100;
    trace(w, "r%d has stopped%s", r->id,
          core_stopped(r->core) ? "" : " after the time limit");
    replica_crash(w, r);
    replica_boot(w, r);
    return NEVER;
}

void replica_restart(struct world *w, struct replica *r)
{
    if (r->stopping)
        return;
    trace(w, "r%d is asked to stop", r->id);
    r->stopping = true;
    w->stats.restarts++;
    replica_input(w, r, &(struct core_input){.type = CORE_STOP});
    post(w, r, w->now_ms, on_stopped);
}

bool replicas_differ(const struct world *w)
{
    return w->seed % 4 == 1;
}

void replica_boot(struct world *w, struct replica *r)
{
    /* Below the outage of a restore. */
    static const int64_t leases_ms[] = {5000, 8000, 6000};
    size_t which = replicas_differ(w) ? ((size_t)r->id + r->epoch) % 3 : w->seed % 5 == 2;
    char identity[32], address[32];
    snprintf(identity, sizeof identity, "r%d-%llu", r->id, (unsigned long long)r->epoch);
    snprintf(address, sizeof address, "r%d:12345", r->id);
    struct core_settings settings = {
        /* Only a yard has Node objects. */
        .ledger = {.unit_mib = 1024,
                   .external_tolerance_mib = 1024,
                   .require_node = w->yard != NULL,
                   .dialect = &dialect_hami},
        .identity = identity,
        .lease_namespace = "kube-system",
        .lease_name = "gpushare-extender",
        .lease_ms = leases_ms[which],
        .node_grace_ms = GRACE_MS,
        .gang_wait_ms = GANG_WAIT_MS,
        .preempt_after_ms = w->preempts ? PREEMPT_AFTER_MS : 0,
        .seed = rng_next(&w->rng),
    };
    trace(w, "r%d boots as %s", r->id, identity);
    r->core = core_new(&settings);
    core_advertise(r->core, address);
    r->tried = tried_new();
    r->alive = true;
    r->was_leader = r->stopping = false;
    r->paused_until = r->watches_stall_until = r->lease_trouble_until = 0;
    r->last_gasp_ms = 0;
    r->next_tick = INT64_MAX;
    replica_input(w, r, &(struct core_input){.type = CORE_TICK});
}
