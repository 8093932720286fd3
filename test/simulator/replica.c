/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

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

/* The list or watch of one kind. */
struct line {
    struct apisync feed;
    bool fed;
    uint64_t conn; /* counts connections: messages of an old one are dropped */
    struct api_watch *watch;
    struct buf waiting; /* undelivered bytes of the watch */
    int64_t last_ms;    /* bytes of a connection keep their order */
    bool pumping;
};

struct replica {
    struct world *world;
    int id;
    bool alive;
    uint64_t epoch; /* counts starts: messages for an earlier start are dropped */
    struct delivered *delivered;
    int64_t paused_until, watches_stall_until, lease_trouble_until;
    int64_t cut_until; /* no connection between its machine and the API server */
    int64_t behind_ms; /* its monotonic clock stopped for so long */
    int64_t wall_off_ms;
    int64_t last_gasp_ms; /* the next write of the lease gets through, and then for so
                             long none; its answer comes late */
    bool stopping;
    int64_t next_tick;
    struct core *core;
    struct line lines[CORE_KINDS];
    bool was_leader;
    struct witness_reserved reserved;
};

static const struct apisync_sink sink;

struct step_time replica_time(const struct world *w, const struct replica *r)
{
    return (struct step_time){w->now_ms - r->behind_ms,
                              (wall_ms(w) + r->wall_off_ms) * 1000000};
}

struct replica *replica_new(struct world *w, int id)
{
    struct replica *r = xcalloc(1, sizeof *r);
    r->world = w;
    r->id = id;
    r->delivered = delivered_new();
    return r;
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
    core_free(r->core);
    delivered_free(r->delivered);
    witness_reserved_fini(&r->reserved);
    free(r);
}

bool replica_alive(const struct replica *r)
{
    return r->alive;
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

const struct witness_reserved *replica_reserved(const struct replica *r)
{
    return &r->reserved;
}

int replica_id(const struct replica *r)
{
    return r->id;
}

int replica_at(struct span address)
{
    bool good = address.n > 1 && address.p[0] == 'r' && address.p[1] >= '0' &&
                address.p[1] < '0' + REPLICAS;
    return good ? address.p[1] - '0' : -1;
}

const struct core *replica_core(const struct replica *r)
{
    return r->core;
}

const struct delivered *replica_delivered(const struct replica *r)
{
    return r->delivered;
}

void replica_crash(struct world *w, struct replica *r)
{
    trace(w, "r%d crashes", r->id);
    for (int kind = 0; kind < CORE_KINDS; kind++)
        line_close(&r->lines[kind]);
    core_free(r->core);
    r->core = NULL;
    r->alive = false;
    r->epoch++;
    oracle_restarted(w, r->id);
    evictions_forget(w, r->id);
    delivered_forget(r->delivered);
    r->reserved.n = 0;
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

void replica_set_clock(struct world *w, struct replica *r)
{
    static const int64_t most_ms[] = {1000, 10 * 1000, 3600 * 1000, 315360000000};
    int64_t most = most_ms[rng_below(&w->rng, ARRAY_LEN(most_ms))];
    r->wall_off_ms = between(w, -most, most);
    w->stats.clocks_set++;
    trace(w, "the wall clock of r%d is off by %lld ms", r->id, (long long)r->wall_off_ms);
}

/* A message for one start of a replica. */
struct letter {
    struct replica *r;
    uint64_t epoch;
    void (*open)(struct world *w, struct replica *r, struct letter *l);
    void (*drop)(struct letter *l); /* frees what it owns */

    struct line *line; /* streams */
    uint64_t conn;
    struct buf body;
    size_t pos;
    unsigned status;
    struct err cut; /* code not ERR_NONE: the stream breaks here */

    struct wire *wire;        /* calls */
    struct core_output *wish; /* a list or watch to begin */
};

static void letter_free(void *arg)
{
    struct letter *l = arg;
    if (l->drop)
        l->drop(l);
    buf_fini(&l->body);
    free(l);
}

static void letter_open(struct world *w, void *arg)
{
    struct letter *l = arg;
    struct replica *r = l->r;
    if (!r->alive || l->epoch != r->epoch) {
        letter_free(l);
    } else if (r->paused_until > w->now_ms) {
        at(w, r->paused_until, letter_open, l,
           letter_free); /* the queue keeps its order */
    } else {
        l->open(w, r, l); /* frees it or sends it on */
    }
}

static struct letter *letter_to(struct replica *r,
                                void (*open)(struct world *, struct replica *,
                                             struct letter *))
{
    struct letter *l = xcalloc(1, sizeof *l);
    l->r = r;
    l->epoch = r->epoch;
    l->open = open;
    return l;
}

static void post(struct world *w, int64_t when, struct letter *l)
{
    at(w, when, letter_open, l, letter_free);
}

static int64_t network_delay(struct world *w)
{
    int64_t usual = w->weather.delay_ms;
    if (chance(w, w->weather.lag))
        return between(w, usual, usual * 40);
    return between(w, 0, usual);
}

/* Ticks */

static void on_tick(struct world *w, struct replica *r, struct letter *l)
{
    letter_free(l);
    r->next_tick = INT64_MAX;
    replica_input(w, r, &(struct core_input){.type = CORE_TICK});
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
    post(w, due, letter_to(r, on_tick));
}

/* Streams */

static void close_feed(struct world *w, struct replica *r, struct line *line,
                       const struct err *why);

static void deliver_bytes(struct world *w, struct replica *r, struct line *line,
                          const char *p, size_t n)
{
    size_t done = 0;
    while (done < n) {
        size_t piece = 1 + rng_below(&w->rng, n - done);
        if (!list_watch_data(&line->feed.in, p + done, piece)) {
            close_feed(w, r, line, &(struct err){.code = ERR_INVALID, .msg = "stopped"});
            return;
        }
        done += piece;
    }
}

static void open_page(struct world *w, struct replica *r, struct line *line);

static void close_feed(struct world *w, struct replica *r, struct line *line,
                       const struct err *why)
{
    api_watch_free(line->watch);
    line->watch = NULL;
    if (apisync_end(&line->feed, why))
        open_page(w, r, line);
    else
        line_close(line);
}

/* A part of a list arrives; the rest follows. */
static void on_list_bytes(struct world *w, struct replica *r, struct letter *l)
{
    struct line *line = l->line;
    if (l->conn != line->conn) {
        letter_free(l);
        return;
    }
    if (is_cut(w, r)) {
        post(w, r->cut_until, l); /* sent again until it is acknowledged */
        return;
    }
    if (l->pos == 0)
        list_watch_begin(&line->feed.in, l->status, -1);
    size_t left = l->body.n - l->pos;
    size_t n = left && chance(w, 500) ? 1 + rng_below(&w->rng, left) : left;
    deliver_bytes(w, r, line, l->body.p + l->pos, n);
    l->pos += n ? n : 1;
    if (line->conn != l->conn || !line->fed) {
        letter_free(l);
    } else if (chance(w, w->weather.cut_list)) {
        letter_free(l);
        close_feed(w, r, line, &(struct err){.code = ERR_UNAVAILABLE, .msg = "cut"});
    } else if (l->pos < l->body.n) {
        post(w, w->now_ms + network_delay(w), l);
    } else {
        letter_free(l);
        close_feed(w, r, line, NULL);
    }
}

static void pump_later(struct world *w, struct replica *r, struct line *line);

static void on_pump(struct world *w, struct replica *r, struct letter *l)
{
    struct line *line = l->line;
    uint64_t conn = l->conn;
    letter_free(l);
    if (conn != line->conn || !line->watch)
        return;
    line->pumping = false;
    if (is_cut(w, r)) {
        pump_later(w, r, line);
        return;
    }
    if (chance(w, w->weather.cut_watch)) {
        trace(w, "r%d loses its watch of %s", r->id, core_kind_name(line->feed.kind));
        close_feed(w, r, line,
                   chance(w, 500) ? NULL
                                  : &(struct err){.code = ERR_UNAVAILABLE, .msg = "cut"});
        return;
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
    if (now.n)
        deliver_bytes(w, r, line, now.p, now.n);
    if (conn != line->conn || !line->fed)
        return;
    if (line->waiting.n)
        pump_later(w, r, line);
    else if (rc < 0)
        close_feed(w, r, line, NULL);
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
    struct letter *l = letter_to(r, on_pump);
    l->line = line;
    l->conn = line->conn;
    post(w, when, l);
}

void replica_api_changed(struct world *w, struct replica *r)
{
    for (int kind = 0; kind < CORE_KINDS; kind++)
        if (r->lines[kind].watch)
            pump_later(w, r, &r->lines[kind]);
}

static void poll_watch(struct world *w, struct replica *r, struct letter *l)
{
    struct line *line = l->line;
    if (l->conn != line->conn || !line->watch) {
        letter_free(l);
        return;
    }
    pump_later(w, r, line); /* bookmarks and the end of its time */
    post(w, w->now_ms + 5000, l);
}

void replica_cut_watches(struct world *w, struct replica *r)
{
    for (int kind = 0; kind < CORE_KINDS; kind++)
        if (r->lines[kind].watch)
            close_feed(w, r, &r->lines[kind],
                       &(struct err){.code = ERR_UNAVAILABLE, .msg = "all cut"});
}

static void on_unreachable(struct world *w, struct replica *r, struct letter *l)
{
    struct line *line = l->line;
    bool current = l->conn == line->conn;
    letter_free(l);
    if (current)
        close_feed(w, r, line,
                   &(struct err){.code = ERR_UNAVAILABLE, .msg = "unreachable"});
}

/* The request reaches the server, which answers with what it has at that moment. */
static void on_open(struct world *w, struct replica *r, struct letter *l)
{
    struct line *line = l->line;
    struct kube_request request;
    struct api_reply reply = {0};
    cleanup_arena struct arena a = {0};
    if (l->conn != line->conn) {
        letter_free(l);
        return;
    }
    if (is_cut(w, r)) { /* it fails at once, or by timeout */
        l->open = on_unreachable;
        post(w, w->now_ms + (rng_below(&w->rng, 2) ? between(w, 500, 3000) : 0), l);
        return;
    }
    if (chance(w, w->weather.refuse)) {
        letter_free(l);
        close_feed(w, r, line, &(struct err){.code = ERR_UNAVAILABLE, .msg = "refused"});
        return;
    }
    apisync_request(&line->feed, false, &a, &request);
    struct span query = span_of(request.path), path = span_cut(&query, '?');
    struct api_request req = {.method = "GET",
                              .path = arena_copy(&a, path).p,
                              .query = query.p,
                              .body = {"", 0}};
    api_handle(w->api, wall_ms(w), &req, &reply);
    if (reply.watch) {
        line->watch = steal(&reply.watch);
        list_watch_begin(&line->feed.in, reply.status, -1);
        l->open = poll_watch;
        post(w, w->now_ms + 5000, l);
        pump_later(w, r, line);
    } else {
        l->status = reply.status;
        l->body = reply.body;
        reply.body = (struct buf){0};
        l->open = on_list_bytes;
        bool slow = chance(w, w->weather.slow_list);
        post(w, w->now_ms + (slow ? between(w, 0, 10000) : network_delay(w)), l);
    }
    api_reply_fini(&reply);
}

static void open_page(struct world *w, struct replica *r, struct line *line)
{
    struct letter *l = letter_to(r, on_open);
    l->line = line;
    l->conn = line->conn;
    /* A server that is slow with lists is slow with the watches that follow them. */
    bool slow = line->feed.watch && chance(w, w->weather.slow_list / 2);
    post(w, w->now_ms + (slow ? between(w, 0, 3000) : network_delay(w)), l);
}

static void on_wish(struct world *w, struct replica *r, struct letter *l)
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
    letter_free(l);
}

static void drop_wish(struct letter *l)
{
    free(l->wish);
}

/* As in the watch thread: after the current read. */
static void start_stream(struct world *w, struct replica *r, const struct core_output *o)
{
    struct letter *l = letter_to(r, on_wish);
    delivered_asked(r->delivered, o, replica_time(w, r).mono_ms);
    l->wish = core_output_dup(o);
    l->drop = drop_wish;
    post(w, w->now_ms, l);
}

/* Calls */

enum answer_kind { ANSWER_NORMAL, ANSWER_ERROR_UNAPPLIED, ANSWER_ERROR_APPLIED };

/* A call in flight, shared by both ends and every copy. */
struct wire {
    int refs;
    struct core_output *call;
    struct arena arena;
    struct kube_request request;
    struct replica *r;
    uint64_t epoch;
    bool answered; /* the replica has got its answer, or has timed out */
    bool late;     /* the answer takes as long as the replica waits for it */
    int64_t sent_ms;
};

static void wire_drop(struct wire *wire)
{
    if (--wire->refs)
        return;
    free(wire->call);
    arena_fini(&wire->arena);
    free(wire);
}

static void letter_drop_wire(struct letter *l)
{
    wire_drop(l->wire);
}

static struct letter *wire_letter(struct wire *wire,
                                  void (*open)(struct world *, struct replica *,
                                               struct letter *))
{
    struct letter *l = letter_to(wire->r, open);
    l->epoch = wire->epoch;
    l->wire = wire;
    l->drop = letter_drop_wire;
    wire->refs++;
    return l;
}

static void answer_core(struct world *w, struct wire *wire,
                        const struct apisync_result *result)
{
    struct apisync_answer answer;
    cleanup_arena struct arena a = {0};
    wire->answered = true;
    apisync_answer(wire->call, result, &a, &answer);
    bool bind = wire->call->type == CORE_CALL_BIND;
    if (bind && answer.input.err)
        trace(w, "r%d: Binding of %s: %s", wire->r->id, wire->call->uid,
              answer.input.err->msg);
    if (bind && !answer.input.err)
        oracle_bind_answered(w, wire->r->id, wire->call->uid);
    evictions_answered(w, wire->r, wire->call, &answer.input);
    replica_input(w, wire->r, &answer.input);
}

static void on_reply(struct world *w, struct replica *r, struct letter *l)
{
    struct wire *wire = l->wire;
    if (is_cut(w, r)) {
        post(w, r->cut_until, l); /* if the replica still waits then */
        return;
    }
    if (!wire->answered) {
        struct apisync_result result = {
            .status = l->status, .body = buf_span(&l->body), .sent = true};
        answer_core(w, wire, &result);
    }
    letter_free(l);
}

static void on_timeout(struct world *w, struct replica *r, struct letter *l)
{
    (void)r;
    struct wire *wire = l->wire;
    if (!wire->answered) {
        struct err why = {.code = ERR_TIMEOUT, .msg = "no answer in time"};
        w->stats.lost++;
        answer_core(w, wire, &(struct apisync_result){.why = &why, .sent = true});
    }
    letter_free(l);
}

/* The connection breaks; the request may still be applied. */
static void on_cut(struct world *w, struct replica *r, struct letter *l)
{
    (void)r;
    struct wire *wire = l->wire;
    if (!wire->answered) {
        struct err why = {.code = ERR_UNAVAILABLE, .msg = "connection reset"};
        w->stats.lost++;
        answer_core(w, wire, &(struct apisync_result){.why = &why, .sent = true});
    }
    letter_free(l);
}

static void reply_later(struct world *w, struct wire *wire, unsigned status,
                        struct buf *body)
{
    struct letter *l = wire_letter(wire, on_reply);
    l->status = status;
    l->body = *body;
    *body = (struct buf){0};
    if (chance(w, w->weather.lose_reply))
        letter_free(l);
    else
        post(w, w->now_ms + (wire->late ? between(w, 1500, 1980) : network_delay(w)), l);
}

/* `applied`: no server denies a request that it has applied. */
static void reply_error(struct world *w, struct wire *wire, bool applied)
{
    static const unsigned codes[] = {429, 500, 503, 504, 403, 401};
    struct buf body = {0};
    unsigned status = codes[rng_below(&w->rng, ARRAY_LEN(codes))];
    if (wire->call->type == CORE_CALL_EVICT && applied)
        status = 504;
    buf_printf(&body,
               "{\"kind\":\"Status\",\"status\":\"Failure\",\"code\":%u,"
               "\"message\":\"simulated error %u\"}",
               status, status);
    w->stats.refused++;
    reply_later(w, wire, status, &body);
    buf_fini(&body);
}

/* As kube-apiserver 1.37 does. */
static void reply_budget(struct world *w, struct wire *wire)
{
    struct buf body = {0};
    buf_adds(&body,
             "{\"kind\":\"Status\",\"status\":\"Failure\",\"message\":\"Cannot evict "
             "pod\",\"reason\":\"TooManyRequests\",\"details\":{\"causes\":[{"
             "\"reason\":\"DisruptionBudget\"}]},\"code\":429}");
    w->stats.budgets++;
    reply_later(w, wire, 429, &body);
    buf_fini(&body);
}

/* The server applies a copy of the request, even if the replica has crashed. */
struct copy {
    struct wire *wire;
    enum answer_kind kind;
};

static void copy_free(void *arg)
{
    struct copy *c = arg;
    wire_drop(c->wire);
    free(c);
}

static void on_server(struct world *w, void *arg)
{
    struct copy *c = arg;
    struct wire *wire = c->wire;
    const struct kube_request *kube = &wire->request;
    struct api_reply reply = {0};
    cleanup_arena struct arena a = {0};
    bool by_budget = wire->call->type == CORE_CALL_EVICT && chance(w, 500);
    if (by_budget || c->kind == ANSWER_ERROR_UNAPPLIED) {
        if (by_budget)
            reply_budget(w, wire);
        else
            reply_error(w, wire, false);
        copy_free(c);
        return;
    }
    struct span query = span_of(kube->path), path = span_cut(&query, '?');
    struct api_request req = {.method = kube->method,
                              .path = arena_copy(&a, path).p,
                              .query = query.p ? query.p : "",
                              .content_type = kube->content_type ? kube->content_type
                                                                 : "application/json",
                              .body = kube->body};
    w->binding = wire->call->type == CORE_CALL_BIND ? wire->call->uid : NULL;
    api_handle(w->api, wall_ms(w), &req, &reply);
    if (w->binding) {
        trace(w, "server: Binding of %s to %s by r%d: %u", wire->call->uid,
              wire->call->node, wire->r->id, reply.status);
        w->stats.applied += reply.status == 201;
    }
    if (wire->call->type == CORE_CALL_EVICT) {
        trace(w, "server: eviction of %s by r%d: %u", wire->call->uid, wire->r->id,
              reply.status);
        w->stats.evicted += reply.status == 201;
    }
    oracle_update(w);
    w->binding = NULL;
    if (c->kind == ANSWER_ERROR_APPLIED)
        reply_error(w, wire, true);
    else
        reply_later(w, wire, reply.status, &reply.body);
    api_reply_fini(&reply);
    copy_free(c);
}

static void send_copy(struct world *w, struct wire *wire)
{
    bool bind = wire->call->type == CORE_CALL_BIND;
    bool lease = wire->call->type == CORE_CALL_LEASE_WRITE;
    struct replica *r = wire->r;
    if (lease && w->now_ms < r->lease_trouble_until && !chance(w, 100))
        return;
    if (lease && chance(w, w->weather.last_gasp))
        r->last_gasp_ms = between(w, 5000, 12000);
    if (lease && r->last_gasp_ms) {
        wire->late = true;
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
    if (bind && arrives > wire->sent_ms + CORE_DELIVERY_MS)
        return; /* the connection was reset before it arrived */
    struct copy *c = xcalloc(1, sizeof *c);
    c->wire = wire;
    wire->refs++;
    c->kind = chance(w, w->weather.refuse)
                  ? (chance(w, 500) ? ANSWER_ERROR_APPLIED : ANSWER_ERROR_UNAPPLIED)
                  : ANSWER_NORMAL;
    if (bind && works > CORE_SERVER_MS) {
        c->kind = ANSWER_ERROR_UNAPPLIED;
        works = CORE_SERVER_MS;
    }
    at(w, arrives + works, on_server, c, copy_free);
}

/* Sends the request, or fails to. */
static void on_send(struct world *w, struct replica *r, struct letter *l)
{
    struct wire *wire = l->wire;
    const struct core_output *call = wire->call;
    struct step_time now = replica_time(w, r);
    bool late = clock_deadline_passed(&call->send_by, now.mono_ms, now.wall_ns);
    bool alone = is_cut(w, r) && rng_below(&w->rng, 2); /* the connect fails */
    if (late || alone || chance(w, w->weather.not_sent)) {
        struct err why = {.code = ERR_UNAVAILABLE, .msg = "not sent"};
        answer_core(w, wire, &(struct apisync_result){.why = &why});
        letter_free(l);
        return;
    }
    wire->sent_ms = w->now_ms;
    if (call->type == CORE_CALL_BIND && chance(w, 100))
        flaws_edit_soon(w, call->uid);
    if (call->type == CORE_CALL_BIND)
        trace(w, "r%d sends the Binding of %s to %s", r->id, call->uid, call->node);
    send_copy(w, wire);
    if (chance(w, w->weather.duplicate)) {
        w->stats.duplicates++;
        send_copy(w, wire);
    }
    if (chance(w, w->weather.cut_call))
        post(w, w->now_ms + between(w, 0, 300), wire_letter(wire, on_cut));
    l->open = on_timeout;
    post(w, w->now_ms + wire->request.timeout_ms, l);
}

static void start_call(struct world *w, struct replica *r, const struct core_output *o)
{
    struct wire *wire = xcalloc(1, sizeof *wire);
    wire->r = r;
    wire->epoch = r->epoch;
    wire->call = core_output_dup(o);
    apisync_call(wire->call, &wire->arena, &wire->request);
    w->stats.wakeups += o->type == CORE_CALL_WAKEUP;
    if (o->type == CORE_CALL_BIND && replica_up(w, r) && chance(w, w->weather.stall))
        /* between decision and write */
        (chance(w, 300) ? replica_freeze : replica_pause)(w, r, between(w, 500, 12000));
    post(w, w->now_ms + between(w, 0, 3), wire_letter(wire, on_send));
}

/* Inputs and outputs */

static void carry_out(struct world *w, struct replica *r, const struct step_outputs *out)
{
    for (size_t i = 0; i < out->n_lines; i++)
        trace(w, "r%d logs: %s", r->id, out->lines[i].text);
    STEP_EACH(struct core_output, o, out)
    {
        if (o->type == CORE_REPLY)
            scheduler_reply(w, o->token, o->code, o->text);
        else if (o->type == CORE_RESERVED)
            decide_reserved(w, o->node);
        else if (apisync_is_call(o))
            start_call(w, r, o);
        else
            start_stream(w, r, o);
    }
}

void replica_input(struct world *w, struct replica *r, const struct core_input *in)
{
    struct step_outputs out = {0};
    bool taken = delivered_take(r->delivered, in, replica_time(w, r).mono_ms);
    if (taken && in->type == CORE_OBJECT && in->kind == CORE_PODS && !in->deleted)
        oracle_delivered(w, r->id, in->pod);
    if (in->type == CORE_ANSWER && in->pod)
        oracle_answered(w, r->id, in->pod);
    evictions_before(w, r);
    core_step(r->core, replica_time(w, r), in, &out);
    if (taken && in->kind == CORE_SCVS)
        oracle_scvs_delivered(w, r->id);
    delivered_check_heartbeats(r->delivered, in);
    STEP_EACH(struct core_output, o, &out)
    if (o->type == CORE_CALL_BIND)
        witness_bind(w, r, o);
    else if (o->type == CORE_CALL_NOMINATE || o->type == CORE_CALL_EVICT)
        evictions_sent(w, r, o);
    else if (o->type == CORE_REPLY && o->code != ERR_NONE)
        oracle_bind_failed(w, r, scheduler_uid(w, o->token));
    if (w->decides)
        witness_reserve(w, r, &r->reserved, in, &out);
    carry_out(w, r, &out);
    step_outputs_fini(&out);
    bool leader = core_is_leader(r->core);
    if (leader && !r->was_leader) {
        w->stats.takeovers++;
        trace(w, "r%d leads", r->id);
    }
    r->was_leader = leader;
    agents_check(w, r);
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

void replica_stall_watches(struct world *w, struct replica *r, int64_t ms)
{
    trace(w, "r%d gets no watch events for %lld ms", r->id, (long long)ms);
    r->watches_stall_until = w->now_ms + ms;
}

void replica_fail_lease(struct world *w, struct replica *r, int64_t ms)
{
    trace(w, "r%d cannot write the lease for %lld ms", r->id, (long long)ms);
    if (rng_below(&w->rng, 2))
        r->last_gasp_ms = ms;
    else
        r->lease_trouble_until = w->now_ms + ms;
}

void replica_cut_off(struct world *w, struct replica *r, int64_t ms)
{
    trace(w, "r%d does not reach the API server for %lld ms", r->id, (long long)ms);
    if (r->cut_until < w->now_ms + ms)
        r->cut_until = w->now_ms + ms;
    w->stats.cut_off++;
    if (rng_below(&w->rng, 2)) /* or it does not notice */
        replica_cut_watches(w, r);
}

static void on_stopped(struct world *w, struct replica *r, struct letter *l)
{
    l->pos++; /* a bounded wait */
    if (!core_stopped(r->core) && l->pos < 80) {
        post(w, w->now_ms + 100, l);
        return;
    }
    trace(w, "r%d has stopped%s", r->id,
          core_stopped(r->core) ? "" : " after the time limit");
    letter_free(l);
    replica_crash(w, r);
    replica_boot(w, r);
}

void replica_restart(struct world *w, struct replica *r)
{
    if (r->stopping)
        return;
    trace(w, "r%d is asked to stop", r->id);
    r->stopping = true;
    w->stats.restarts++;
    replica_input(w, r, &(struct core_input){.type = CORE_STOP});
    post(w, w->now_ms, letter_to(r, on_stopped));
}

void replica_boot(struct world *w, struct replica *r)
{
    char identity[32];
    snprintf(identity, sizeof identity, "r%d-%llu", r->id, (unsigned long long)r->epoch);
    struct core_settings settings = {
        .ledger = {.unit_mib = 1024, .external_tolerance_mib = 1024},
        .identity = identity,
        .lease_namespace = "kube-system",
        .lease_name = "gpushare-extender",
        .node_grace_ms = GRACE_MS,
        .preempt_after_ms = w->preempts ? PREEMPT_AFTER_MS : 0,
        .seed = rng_next(&w->rng),
    };
    char address[32];
    snprintf(address, sizeof address, "r%d:12345", r->id);
    trace(w, "r%d boots as %s", r->id, identity);
    r->core = core_new(&settings);
    core_advertise(r->core, address);
    r->alive = true;
    r->was_leader = r->stopping = false;
    r->paused_until = r->watches_stall_until = r->lease_trouble_until = 0;
    r->last_gasp_ms = 0;
    r->next_tick = INT64_MAX;
    replica_input(w, r, &(struct core_input){.type = CORE_TICK});
}
