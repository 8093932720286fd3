/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The dispatcher: its queue, the servers of the resources with the kubelet's open calls, the
 * outputs of the allocator, the sockets and registrations, and the thread that drives them.
 */

#include "plugin/dispatcher.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "domain/keys.h"
#include "kube/deviceplugin.h"
#include "node/allocation.h"
#include "plugin/registration.h"
#include "wire/grpcd.h"

enum {
    POLL_MAX_MS = 1000,
    STOP_MS = 2000,
    SCAN_MS = 30 * 1000, /* inotify events can get lost */
    STATE_MAX = 64 << 20,
    LIMITS_MS = 3 * 1000,   /* time between two checks of the files of the limits */
    REQUEST_MAX = 16 << 20, /* a kubelet lists all free ids in a request */
};

/* A call of the kubelet that is still open. */
struct pending_call {
    struct grpcd_call *call;
    uint64_t token;
    bool stream;                  /* ListAndWatch, and the thread knows it */
    enum alloc_request_type type; /* ALLOC_REQUEST_TYPES: ListAndWatch */
    enum ids_resource resource;
    int64_t began_us;
};

/* The device plugin server of one resource. */
struct endpoint {
    struct dispatcher *dispatcher;
    enum ids_resource resource;
    struct grpcd *server; /* NULL: not served */
};

struct dispatcher {
    struct dispatcher_settings settings;
    char *node;
    struct alloc *alloc;
    const struct alloc_state *state; /* of `alloc` */
    struct step_outputs out;         /* of struct alloc_output */
    struct registration_dir *dir;
    struct endpoint endpoints[IDS_RESOURCES];
    struct registration registration[IDS_RESOURCES];
    struct err register_err[IDS_RESOURCES]; /* of the last attempt; ERR_NONE: none */
    bool size_reported;
    int64_t scanned_ms;    /* when the directory was scanned last */
    int64_t limits_due_ms; /* when the files of the limits are checked next */
    int wake;              /* eventfd */
    pthread_t thread;
    bool running;

    pthread_mutex_t lock; /* protects the members below */
    struct dispatcher_msg *first, **end;
    struct pending_call *pending;
    size_t n_pending, cap_pending;
    uint64_t tokens;
    struct dispatcher_stats stats;
    bool stop;
};

static void step(struct dispatcher *d, struct alloc_input *in)
{
    struct step_time now = {clock_mono_ms(), clock_wall_ns()};
    alloc_step(d->alloc, now, in, &d->out);
}

static void count(struct dispatcher *d, uint64_t *counter)
{
    pthread_mutex_lock(&d->lock);
    ++*counter;
    pthread_mutex_unlock(&d->lock);
}

/* The queue */

struct dispatcher_msg *dispatcher_msg_new(enum dispatcher_msg_kind kind)
{
    struct dispatcher_msg *m = xcalloc(1, sizeof *m);
    m->kind = kind;
    return m;
}

struct dispatcher_msg *dispatcher_input_new(enum alloc_input_type type)
{
    struct dispatcher_msg *m = dispatcher_msg_new(DISPATCHER_INPUT);
    m->in.type = type;
    return m;
}

static void free_msg(struct dispatcher_msg *m)
{
    pod_allocation_free(m->in.pod);
    driver_view_free(m->in.driver);
    arena_fini(&m->arena);
    free(m);
}

static void wake(struct dispatcher *d)
{
    uint64_t one = 1;
    if (write(d->wake, &one, sizeof one) < 0 && errno != EAGAIN)
        abort();
}

void dispatcher_post(struct dispatcher *d, struct dispatcher_msg *m)
{
    pthread_mutex_lock(&d->lock);
    *d->end = m;
    d->end = &m->next;
    pthread_mutex_unlock(&d->lock);
    wake(d);
}

/* The kubelet's calls. The handlers run in the servers' threads. */

/* Returns the call's token. `type` is ALLOC_REQUEST_TYPES for a stream. */
static uint64_t add_pending(struct dispatcher *d, struct grpcd_call *call,
                            enum alloc_request_type type)
{
    pthread_mutex_lock(&d->lock);
    MEM_GROW(d->pending, d->cap_pending, d->n_pending + 1);
    uint64_t token = ++d->tokens;
    d->pending[d->n_pending++] = (struct pending_call){
        .call = call, .token = token, .type = type, .began_us = clock_mono_us()};
    pthread_mutex_unlock(&d->lock);
    return token;
}

/* Ends the call with the message, or with the error if `rc` is not 0. NULL: it has ended. */
static void answer(struct grpcd_call *call, int rc, struct buf *message,
                   const struct err *err)
{
    if (call && rc)
        grpcd_end(call, GRPC_INVALID_ARGUMENT, "%s", err->msg);
    else if (call)
        grpcd_reply(call, message);
}

static void on_options(void *ctx, struct grpcd_call *call, struct span request)
{
    const struct endpoint *e = ctx;
    struct dp_options options = {.preferred_allocation = e->resource != IDS_CORE};
    cleanup_buf struct buf out = {0};
    struct err err;
    (void)request;
    answer(call, proto_encode(&dp_options_type, &options, DP_MESSAGE_MAX, &out, &err),
           &out, &err);
}

static void on_list_and_watch(void *ctx, struct grpcd_call *call, struct span request)
{
    const struct endpoint *e = ctx;
    struct dispatcher_msg *m = dispatcher_msg_new(DISPATCHER_STREAM_OPENED);
    (void)request;
    m->resource = e->resource;
    m->token = add_pending(e->dispatcher, call, ALLOC_REQUEST_TYPES);
    dispatcher_post(e->dispatcher, m);
}

/* A kubelet sends one container per request and reads only one answer. */
static int decode(struct span bytes, struct arena *a, struct alloc_request *req,
                  struct err *err)
{
    struct dp_preferences preferences = {0};
    struct dp_groups groups = {0};
    int rc = req->type == ALLOC_REQUEST_PREFERRED
                 ? proto_decode(&dp_preferences_type, bytes, a, &preferences, err)
                 : proto_decode(&dp_groups_type, bytes, a, &groups, err);
    size_t n = preferences.n + groups.n;
    if (rc)
        return -1;
    if (n != 1)
        return err_set(err, ERR_INVALID, "%zu containers in one request; expected one",
                       n);
    const struct dp_ids *ids =
        preferences.n ? &preferences.items->available : groups.items;
    req->ids = ids->items;
    req->n_ids = ids->n;
    if (preferences.n) {
        req->must = preferences.items->must_include.items;
        req->n_must = preferences.items->must_include.n;
        req->size = preferences.items->size;
    }
    return 0;
}

/* A share of compute has no card of its own: Allocate of the container's memory gives it,
 * and its variables. */
static void on_request(const struct endpoint *e, struct grpcd_call *call,
                       struct span bytes, enum alloc_request_type type)
{
    struct dispatcher_msg *m = dispatcher_input_new(ALLOC_IN_REQUEST);
    struct alloc_request *req = &m->in.request;
    cleanup_buf struct buf out = {0};
    struct err err;
    req->type = type;
    req->resource = e->resource;
    int rc = decode(arena_copy(&m->arena, bytes), &m->arena, req, &err);
    if (rc == 0 && e->resource != IDS_CORE) {
        req->token = add_pending(e->dispatcher, call, type);
        dispatcher_post(e->dispatcher, m);
        return;
    }
    if (rc == 0 && type == ALLOC_REQUEST_PREFERRED)
        rc = err_set(&err, ERR_INVALID, "%s has no such call", KEY_GPU_CORE);
    else if (rc == 0)
        rc = proto_encode(&dp_allocations_type,
                          &(struct dp_allocations){&(struct dp_allocation){0}, 1},
                          DP_MESSAGE_MAX, &out, &err);
    answer(call, rc, &out, &err);
    free_msg(m);
}

static void on_preferred(void *ctx, struct grpcd_call *call, struct span bytes)
{
    on_request(ctx, call, bytes, ALLOC_REQUEST_PREFERRED);
}

static void on_allocate(void *ctx, struct grpcd_call *call, struct span bytes)
{
    on_request(ctx, call, bytes, ALLOC_REQUEST_ALLOCATE);
}

/* A kubelet calls it only for a plugin that asks for it (DevicePluginOptions). */
static void on_prestart(void *ctx, struct grpcd_call *call, struct span bytes)
{
    cleanup_buf struct buf empty = {0};
    (void)ctx;
    (void)bytes;
    grpcd_reply(call, &empty);
}

static void on_call_closed(void *ctx, struct grpcd_call *call)
{
    struct dispatcher *d = ((const struct endpoint *)ctx)->dispatcher;
    uint64_t token = 0;
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->n_pending; i++)
        if (d->pending[i].call == call)
            token = d->pending[i].token;
    pthread_mutex_unlock(&d->lock);
    if (!token)
        return;
    struct dispatcher_msg *m = dispatcher_msg_new(DISPATCHER_CALL_CLOSED);
    m->token = token;
    dispatcher_post(d, m);
}

static const struct grpcd_method methods[] = {
    {DP_OPTIONS, on_options, NULL},
    {DP_WATCH, on_list_and_watch, on_call_closed},
    {DP_PREFERRED, on_preferred, on_call_closed},
    {DP_ALLOCATE, on_allocate, on_call_closed},
    {DP_PRESTART, on_prestart, NULL},
    {0},
};

/* Removes the call from `pending`; the caller ends it. NULL: it was ended already. */
static struct grpcd_call *take_pending(struct dispatcher *d, uint64_t token)
{
    struct grpcd_call *call = NULL;
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->n_pending && !call; i++) {
        struct pending_call *p = &d->pending[i];
        if (p->token != token)
            continue;
        call = p->call;
        int64_t us = clock_mono_us() - p->began_us;
        if (p->type < ALLOC_REQUEST_TYPES && us >= 0) {
            struct dispatcher_call_stats *calls = &d->stats.calls[p->type];
            calls->n++;
            calls->sum_us += (uint64_t)us;
            if ((uint64_t)us > calls->max_us)
                calls->max_us = (uint64_t)us;
        }
        *p = d->pending[--d->n_pending];
    }
    pthread_mutex_unlock(&d->lock);
    return call;
}

/* A call's handle must be ended even if the kubelet has closed the call. */
static void end_calls(struct dispatcher *d)
{
    for (;;) {
        pthread_mutex_lock(&d->lock);
        uint64_t token = d->n_pending ? d->pending[0].token : 0;
        pthread_mutex_unlock(&d->lock);
        if (!token)
            return;
        grpcd_end(take_pending(d, token), GRPC_UNAVAILABLE,
                  "the device plugin is stopping");
    }
}

/* Outputs */

static void save(struct dispatcher *d)
{
    cleanup_buf struct buf text = {0};
    struct err err;
    allocation_set_write(&text, &d->state->allocations, span_of(d->node));
    if (file_write(d->settings.state, buf_span(&text), &err) == 0)
        return;
    log_error("state", "cannot save the allocation state; it is kept in memory",
              LOG_ERR(&err));
    count(d, &d->stats.save_failed);
}

/* Adds the allocations of the state file. An invalid file is renamed; its content is
 * recovered from the kubelet's view. */
static void load(struct dispatcher *d)
{
    cleanup_buf struct buf text = {0};
    struct allocation_set found = {0};
    struct err err;
    int rc = file_read(d->settings.state, STATE_MAX, &text, &err);
    if (rc && err.code == ERR_NOT_FOUND)
        return;
    if (rc == 0)
        rc = allocation_set_read(&found, buf_span(&text), span_of(d->node), &err);
    if (rc == 0) {
        step(d, &(struct alloc_input){.type = ALLOC_IN_RESTORE, .set = &found});
        return;
    }
    cleanup_free char *aside = xasprintf("%s.damaged", d->settings.state);
    log_error("state",
              "cannot use the state file; recovering from the kubelet's podresources",
              LOG_S("file", d->settings.state), LOG_S("to", aside), LOG_ERR(&err));
    if (rename(d->settings.state, aside))
        log_warn("state", "cannot rename the state file",
                 LOG_S("file", d->settings.state));
}

/* Without its files the library does not limit, and a container starts nevertheless. */
static void drop_limit(struct dispatcher *d, const struct alloc_output *o,
                       struct response *r, const struct err *err)
{
    r->dp.n_envs -= r->n_limit_envs;
    r->dp.n_mounts -= r->n_limit_mounts;
    log_error("limit", "cannot write the limits of a pod; it starts without them",
              LOG_S("namespace", o->ns), LOG_S("pod", o->name), LOG_ERR(err));
    cleanup_free char *text =
        xasprintf("its containers have no limit on this node: %s", err->msg);
    const struct alloc_output event = {.type = ALLOC_EVENT,
                                       .ns = o->ns,
                                       .name = o->name,
                                       .uid = o->uid,
                                       .reason = "GPUIsolationFailed",
                                       .text = text};
    d->settings.callbacks.carry_out(d->settings.callbacks.ctx, &event);
}

static void answer_allocated(struct dispatcher *d, const struct alloc_output *o)
{
    cleanup_buf struct buf message = {0};
    struct response r = *o->response;
    struct err err;
    if (r.limit) {
        int failed = limit_dir_write(d->settings.alloc.response.limit_dir, r.limit, &err);
        if (failed)
            drop_limit(d, o, &r, &err);
        count(d, failed ? &d->stats.limit_failed : &d->stats.limited);
    }
    int rc = proto_encode(&dp_allocations_type, &(struct dp_allocations){&r.dp, 1},
                          DP_MESSAGE_MAX, &message, &err);
    answer(take_pending(d, o->token), rc, &message, &err);
}

static void answer_preferred(struct dispatcher *d, const struct alloc_output *o)
{
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf message = {0};
    struct err err;
    struct span *ids = arena_zalloc(&a, (o->n_ids + 1) * sizeof *ids);
    for (size_t i = 0; i < o->n_ids; i++)
        ids[i] = span_of(o->ids[i]);
    int rc = proto_encode(&dp_groups_type,
                          &(struct dp_groups){&(struct dp_ids){ids, o->n_ids}, 1},
                          DP_MESSAGE_MAX, &message, &err);
    answer(take_pending(d, o->token), rc, &message, &err);
}

static void change_limit(struct dispatcher *d, const struct alloc_output *o)
{
    const char *dir = d->settings.alloc.response.limit_dir;
    struct err err;
    if (limit_dir_has(dir, o->response->limit->uid) &&
        limit_dir_write(dir, o->response->limit, &err))
        log_error("limit", "cannot change the limits of a pod", LOG_S("namespace", o->ns),
                  LOG_S("pod", o->name), LOG_ERR(&err));
}

static void send_list(struct dispatcher *d, enum ids_resource r,
                      struct grpcd_call *const *calls, size_t n)
{
    cleanup_buf struct buf list = {0};
    struct err err;
    if (response_list(&d->state->cards, r, &list, &err)) {
        log_error("endpoint", "cannot encode the device list", LOG_ERR(&err));
        return;
    }
    for (size_t i = 0; i < n; i++) {
        struct buf copy = {0};
        buf_add_span(&copy, buf_span(&list));
        grpcd_send(calls[i], &copy);
        buf_fini(&copy);
    }
}

/* A resource whose device list exceeds a message is not registered. A registered one
 * stays registered: ids are never withdrawn. */
static bool is_wanted(struct dispatcher *d, enum ids_resource r)
{
    struct err err;
    if (d->registration[r].wanted || !d->state->cards.n)
        return d->registration[r].wanted;
    if (r != IDS_MEM || cards_fit(&d->state->cards, &err) == 0)
        return true;
    if (!d->size_reported)
        log_error("registration", "aliyun.com/gpu-mem is not registered", LOG_ERR(&err));
    d->size_reported = true;
    return false;
}

/* Sends the device list to the open streams of each resource, which stay pending. */
static void send_devices(struct dispatcher *d)
{
    for (int r = 0; r < IDS_RESOURCES; r++) {
        cleanup_arena struct arena a = {0};
        size_t n = 0;
        d->registration[r].wanted = is_wanted(d, (enum ids_resource)r);
        pthread_mutex_lock(&d->lock);
        struct grpcd_call **calls = arena_alloc(&a, (d->n_pending + 1) * sizeof *calls);
        for (size_t i = 0; i < d->n_pending; i++)
            if (d->pending[i].stream && d->pending[i].resource == (enum ids_resource)r)
                calls[n++] = d->pending[i].call;
        pthread_mutex_unlock(&d->lock);
        if (n)
            send_list(d, (enum ids_resource)r, calls, n);
    }
}

static void carry_out(struct dispatcher *d, const struct alloc_output *o)
{
    switch (o->type) {
    case ALLOC_LIST:
    case ALLOC_GET:
    case ALLOC_PATCH:
    case ALLOC_EVENT:
    case ALLOC_RELIST:
        d->settings.callbacks.carry_out(d->settings.callbacks.ctx, o);
        break;
    case ALLOC_PREFERRED:
        answer_preferred(d, o);
        break;
    case ALLOC_ALLOCATED:
        answer_allocated(d, o);
        break;
    case ALLOC_LIMIT:
        change_limit(d, o);
        break;
    case ALLOC_REJECTED: {
        struct grpcd_call *call = take_pending(d, o->token);
        if (call)
            grpcd_end(call, GRPC_FAILED_PRECONDITION, "gpushare (%s): %s",
                      alloc_rejection_name(o->rejection), o->text);
        break;
    }
    case ALLOC_SAVE:
        save(d);
        break;
    case ALLOC_DEVICES:
        send_devices(d);
        break;
    }
}

/* Carries out and empties d->out. */
static void carry_out_all(struct dispatcher *d)
{
    const struct alloc_output *items = d->out.items;
    step_write_logs(&d->out);
    for (size_t i = 0; i < d->out.n; i++)
        carry_out(d, &items[i]);
    step_outputs_reset(&d->out);
}

static bool is_known(void *ctx, const char *uid)
{
    const struct dispatcher *d = ctx;
    return alloc_has_pod(d->alloc, span_of(uid));
}

static void on_unlimited(void *ctx, const char *uid, uint32_t bits)
{
    cleanup_free char *why =
        xasprintf("a program of the pod ran without the limit of its GPU memory (reason "
                  "0x%x, include/limit/state.h)",
                  bits);
    step(ctx, &(struct alloc_input){
                  .type = ALLOC_IN_UNLIMITED, .uid = span_of(uid), .text = why});
}

static void check_limits(struct dispatcher *d)
{
    const struct limit_dir_sink sink = {is_known, on_unlimited, d};
    const char *dir = d->settings.alloc.response.limit_dir;
    int64_t now = clock_mono_ms();
    if (!dir || now < d->limits_due_ms || !d->state->listed)
        return;
    d->limits_due_ms = now + LIMITS_MS;
    limit_dir_check(dir, &sink);
}

/* Sockets and registrations */

/* Looks for socket changes. */
static void scan(struct dispatcher *d)
{
    int64_t now = clock_mono_ms();
    registration_dir_drain(d->dir);
    uint64_t kubelet = registration_dir_kubelet_id(d->dir);
    d->scanned_ms = now;
    if (kubelet && kubelet != d->registration[0].kubelet) {
        log_info("kubelet", "found its registration socket",
                 LOG_S("socket", d->dir->kubelet));
        step(d, &(struct alloc_input){.type = ALLOC_IN_KUBELET_STARTED});
    }
    for (int r = 0; r < IDS_RESOURCES; r++) {
        if (d->endpoints[r].server && d->registration[r].reachable)
            registration_serving(&d->registration[r], now,
                                 grpcd_is_reachable(d->endpoints[r].server));
        registration_kubelet_socket(&d->registration[r], now, kubelet);
    }
}

static void serve(struct dispatcher *d, enum ids_resource r)
{
    struct endpoint *e = &d->endpoints[r];
    const struct grpcd_config config = {.path = d->dir->sockets[r],
                                        .methods = methods,
                                        .ctx = e,
                                        .max_message = REQUEST_MAX};
    grpcd_free(e->server);
    *e = (struct endpoint){d, r, NULL};
    e->server = grpcd_start(&config, &d->register_err[r]);
    if (!e->server)
        log_error("endpoint", "cannot serve the device plugin socket; retrying",
                  LOG_S("resource", ids_resource_name(r)), LOG_ERR(&d->register_err[r]));
    registration_serving(&d->registration[r], clock_mono_ms(), e->server != NULL);
}

/* Does what is due. */
static void step_registrations(struct dispatcher *d)
{
    const struct dispatcher_callbacks *callbacks = &d->settings.callbacks;
    if (clock_mono_ms() - d->scanned_ms >= SCAN_MS)
        scan(d);
    for (int i = 0; i < IDS_RESOURCES; i++) {
        enum ids_resource r = (enum ids_resource)i;
        enum registration_action action;
        struct registration *reg = &d->registration[r];
        int64_t now = clock_mono_ms();
        while ((action = registration_next(reg, now)) != REGISTRATION_NOTHING) {
            if (action == REGISTRATION_SERVE)
                serve(d, r);
            else if (action == REGISTRATION_CHECK)
                registration_newer_plugin(reg, now,
                                          registration_dir_has_newer(d->dir, r));
            else
                callbacks->register_resource(callbacks->ctx, r, d->dir->endpoints[r]);
        }
    }
}

/* -1 with the reason if the resource is not registered. */
static int check_registration(const struct dispatcher *d, enum ids_resource r,
                              struct err *err)
{
    const struct registration *reg = &d->registration[r];
    const struct err *last = &d->register_err[r];
    const char *missing = registration_missing(reg);
    if (!reg->wanted && d->state->cards.n && cards_fit(&d->state->cards, err))
        return err_wrap(err, "not registered");
    if (!reg->wanted)
        return err_set(err, ERR_UNAVAILABLE, "not registered: no card found yet");
    if (!missing)
        return 0;
    if (!reg->kubelet)
        return err_set(err, ERR_UNAVAILABLE, "not registered: %s: no socket %s", missing,
                       d->dir->kubelet);
    return err_set(err, ERR_UNAVAILABLE, "not registered: %s%s%s", missing,
                   last->code ? ": " : "", last->code ? last->msg : "");
}

/* Another plugin of this node may have served meanwhile; its allocations are in the state
 * file. */
static void handle_stream_opened(struct dispatcher *d, enum ids_resource r,
                                 uint64_t token)
{
    struct grpcd_call *call = NULL;
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->n_pending; i++)
        if (d->pending[i].token == token) {
            call = d->pending[i].call;
            d->pending[i].stream = true;
            d->pending[i].resource = r;
        }
    pthread_mutex_unlock(&d->lock);
    load(d);
    log_info("registration", "ListAndWatch stream opened",
             LOG_S("resource", ids_resource_name(r)));
    registration_stream(&d->registration[r], clock_mono_ms(), true, false);
    send_list(d, r, &call, 1);
}

/* Ends a stream; a request is canceled. */
static void handle_call_closed(struct dispatcher *d, uint64_t token)
{
    bool stream = false;
    enum ids_resource r = IDS_MEM;
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->n_pending; i++)
        if (d->pending[i].token == token) {
            stream = d->pending[i].stream;
            r = d->pending[i].resource;
        }
    pthread_mutex_unlock(&d->lock);
    if (!stream) {
        step(d, &(struct alloc_input){.type = ALLOC_IN_CANCEL, .request.token = token});
        return;
    }
    grpcd_end(take_pending(d, token), GRPC_CANCELLED, "ListAndWatch stream closed");
    bool newer = registration_dir_has_newer(d->dir, r);
    log_info("registration",
             newer ? "ListAndWatch stream closed; a newer plugin of this node serves it"
                   : "ListAndWatch stream closed; registering again",
             LOG_S("resource", ids_resource_name(r)));
    registration_stream(&d->registration[r], clock_mono_ms(), false, newer);
}

/* The thread */

static void handle(struct dispatcher *d, struct dispatcher_msg *m)
{
    switch (m->kind) {
    case DISPATCHER_INPUT:
        step(d, &m->in);
        break;
    case DISPATCHER_STREAM_OPENED:
        handle_stream_opened(d, m->resource, m->token);
        break;
    case DISPATCHER_CALL_CLOSED:
        handle_call_closed(d, m->token);
        break;
    case DISPATCHER_REGISTERED:
        d->register_err[m->resource] = m->err;
        registration_answered(&d->registration[m->resource], clock_mono_ms(), m->flag);
        break;
    }
    carry_out_all(d);
    free_msg(m);
}

/* Handles all queued messages. False: the thread shall stop. */
static bool handle_all(struct dispatcher *d)
{
    uint64_t woken;
    if (read(d->wake, &woken, sizeof woken) < 0 && errno != EAGAIN)
        abort();
    pthread_mutex_lock(&d->lock);
    struct dispatcher_msg *m = d->first, *next;
    d->first = NULL;
    d->end = &d->first;
    bool stop = d->stop;
    pthread_mutex_unlock(&d->lock);
    for (; m; m = next) {
        next = m->next;
        handle(d, m);
    }
    return !stop;
}

static void publish(struct dispatcher *d)
{
    const struct cards *cards = &d->state->cards;
    pthread_mutex_lock(&d->lock);
    struct dispatcher_stats *s = &d->stats;
    s->alloc = d->state->stats;
    s->allocations = d->state->allocations.n;
    s->listed = d->state->listed;
    s->podresources = d->state->podresources;
    s->cards = cards->n;
    s->healthy = s->units = 0;
    for (size_t i = 0; i < cards->n; i++) {
        s->healthy += cards->items[i].health.healthy;
        s->units += cards->items[i].health.healthy ? (size_t)cards->items[i].units : 0;
    }
    s->alive_ms = clock_mono_ms();
    s->cards_err = (struct err){0};
    cards_check(cards, s->alive_ms, &s->cards_err);
    for (int r = 0; r < IDS_RESOURCES; r++) {
        s->registered_err[r] = (struct err){0};
        check_registration(d, (enum ids_resource)r, &s->registered_err[r]);
        s->wanted[r] = d->registration[r].wanted;
        s->up[r] = d->registration[r].state == REGISTRATION_REGISTERED;
        s->registered[r] = d->registration[r].registered;
    }
    pthread_mutex_unlock(&d->lock);
}

void dispatcher_stats(struct dispatcher *d, struct dispatcher_stats *stats)
{
    pthread_mutex_lock(&d->lock);
    *stats = d->stats;
    pthread_mutex_unlock(&d->lock);
}

static void wait_for_event(struct dispatcher *d)
{
    struct pollfd fds[] = {{d->wake, POLLIN, 0}, {d->dir->fd, POLLIN, 0}};
    int64_t due = d->state->due_ms;
    if (d->scanned_ms + SCAN_MS < due)
        due = d->scanned_ms + SCAN_MS;
    for (int r = 0; r < IDS_RESOURCES; r++)
        if (registration_due(&d->registration[r]) < due)
            due = registration_due(&d->registration[r]);
    int64_t ms = due - clock_mono_ms();
    poll(fds, ARRAY_LEN(fds), ms < 0 ? 0 : ms > POLL_MAX_MS ? POLL_MAX_MS : (int)ms);
    if (fds[1].revents)
        scan(d);
}

/* At a stop, requests in flight get STOP_MS to be answered. */
static bool is_busy(struct dispatcher *d, int64_t *until_ms)
{
    bool busy = false;
    int64_t now = clock_mono_ms();
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->n_pending; i++)
        busy |= !d->pending[i].stream;
    pthread_mutex_unlock(&d->lock);
    if (!*until_ms)
        *until_ms = now + STOP_MS;
    return busy && now < *until_ms;
}

static void *run(void *arg)
{
    struct dispatcher *d = arg;
    int64_t until_ms = 0;
    scan(d);
    while (handle_all(d) || is_busy(d, &until_ms)) {
        if (clock_mono_ms() >= d->state->due_ms)
            step(d, &(struct alloc_input){.type = ALLOC_IN_TICK});
        check_limits(d);
        carry_out_all(d);
        step_registrations(d);
        publish(d);
        wait_for_event(d);
    }
    end_calls(d);
    for (int r = 0; r < IDS_RESOURCES; r++)
        grpcd_free(steal(&d->endpoints[r].server));
    end_calls(d); /* calls that arrived meanwhile */
    return NULL;
}

struct dispatcher *dispatcher_new(const struct dispatcher_settings *settings,
                                  struct err *err)
{
    struct registration_dir *dir = registration_dir_open(settings->dir, err);
    if (!dir)
        return NULL;
    struct dispatcher *d = xcalloc(1, sizeof *d);
    d->settings = *settings;
    d->node = xstrdup(settings->alloc.node);
    d->dir = dir;
    d->alloc = alloc_new(&settings->alloc);
    d->state = alloc_state(d->alloc);
    d->end = &d->first;
    d->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    d->stats.alive_ms = clock_mono_ms();
    pthread_mutex_init(&d->lock, NULL);
    for (int r = 0; r < IDS_RESOURCES; r++)
        registration_init(&d->registration[r]);
    load(d);
    return d;
}

void dispatcher_start(struct dispatcher *d)
{
    if (pthread_create(&d->thread, NULL, run, d))
        abort();
    pthread_setname_np(d->thread, "dispatcher");
    d->running = true;
}

void dispatcher_stop(struct dispatcher *d)
{
    if (!d || !d->running)
        return;
    pthread_mutex_lock(&d->lock);
    d->stop = true;
    pthread_mutex_unlock(&d->lock);
    wake(d);
    pthread_join(d->thread, NULL);
    d->running = false;
}

void dispatcher_free(struct dispatcher *d)
{
    if (!d)
        return;
    for (struct dispatcher_msg *m = d->first, *next; m; m = next) {
        next = m->next;
        free_msg(m);
    }
    for (int r = 0; r < IDS_RESOURCES; r++)
        grpcd_free(d->endpoints[r].server);
    alloc_free(d->alloc);
    step_outputs_fini(&d->out);
    registration_dir_close(d->dir);
    close(d->wake);
    pthread_mutex_destroy(&d->lock);
    free(d->pending);
    free(d->node);
    free(d);
}
