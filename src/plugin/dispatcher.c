/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The dispatcher: its queue, the servers of the resources with the kubelet's open calls, the
 * outputs of the allocator, the sockets and registrations, and the thread that drives them.
 */

#include "plugin/dispatcher.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/thread.h"
#include "domain/keys.h"
#include "kube/deviceplugin.h"
#include "limit/state.h"
#include "plugin/registration.h"

enum {
    STOP_MS = 2000,
    SCAN_MS = 1000,         /* between two looks at the directory of the sockets */
    LIMITS_MS = 3 * 1000,   /* time between two checks of the files of the limits */
    REQUEST_MAX = 16 << 20, /* a kubelet lists all free ids in a request */
};

/* The device plugin server of one resource, and its registration. */
struct endpoint {
    struct dispatcher *dispatcher;
    enum ids_resource resource;
    struct grpcd *server; /* NULL: not served */
    struct registration registration;
    struct err err; /* of the last attempt, or why there are no devices; ERR_NONE: none */
};

struct dispatcher {
    const char *node, *state_file, *limit_dir; /* limit_dir NULL: no library */
    struct dispatcher_callbacks callbacks;
    struct alloc *alloc;
    const struct alloc_state *state; /* of `alloc` */
    struct step_outputs out;         /* of struct alloc_output */
    struct registration_dir dir;
    struct endpoint endpoints[IDS_RESOURCES];
    struct list pending;   /* messages with a call that is still open */
    int64_t scanned_ms;    /* when the directory was scanned last */
    int64_t limits_due_ms; /* when the files of the limits are checked next */
    int64_t stop_ms;       /* when requests in flight are given up; 0: not stopping */
    struct dispatcher_stats stats;
    pthread_t thread;
    bool running;

    pthread_mutex_t lock; /* protects the members below */
    pthread_cond_t cond;
    struct list queue; /* of messages */
    struct dispatcher_stats published;
};

static void step(struct dispatcher *d, struct alloc_input *in)
{
    alloc_step(d->alloc, step_now(), in, &d->out);
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

/* A call must be ended even if the kubelet has closed it. */
static void free_msg(struct dispatcher_msg *m)
{
    if (m->call)
        grpcd_end(m->call, GRPC_UNAVAILABLE, "the device plugin is stopping");
    pod_allocation_free(m->in.pod);
    driver_view_free(m->in.driver);
    arena_fini(&m->arena);
    free(m);
}

static void free_msgs(struct list *msgs)
{
    LIST_EACH(struct dispatcher_msg, m, msgs, link)
    {
        list_remove(&m->link);
        free_msg(m);
    }
}

void dispatcher_post(struct dispatcher *d, struct dispatcher_msg *m)
{
    pthread_mutex_lock(&d->lock);
    list_append(&d->queue, &m->link);
    pthread_cond_signal(&d->cond);
    pthread_mutex_unlock(&d->lock);
}

/* The kubelet's calls. The handlers run in the servers' threads. */

/* The address of a call is its token: it is not used again before the message of its end. */
static uint64_t token_of(const struct grpcd_call *call)
{
    return (uint64_t)(uintptr_t)call;
}

static struct dispatcher_msg *msg_of_call(enum dispatcher_msg_kind kind,
                                          const struct endpoint *e,
                                          struct grpcd_call *call)
{
    struct dispatcher_msg *m = dispatcher_msg_new(kind);
    m->resource = e->resource;
    m->call = call;
    m->token = token_of(call);
    return m;
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
    (void)request;
    dispatcher_post(e->dispatcher, msg_of_call(DISPATCHER_STREAM_OPENED, e, call));
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
    struct dispatcher_msg *m = msg_of_call(DISPATCHER_INPUT, e, call);
    struct alloc_request *req = &m->in.request;
    cleanup_buf struct buf out = {0};
    struct err err;
    m->in.type = ALLOC_IN_REQUEST;
    req->type = type;
    req->resource = e->resource;
    req->token = m->token;
    int rc = decode(arena_copy(&m->arena, bytes), &m->arena, req, &err);
    if (rc == 0 && e->resource != IDS_CORE) {
        dispatcher_post(e->dispatcher, m);
        return;
    }
    if (rc == 0 && type == ALLOC_REQUEST_PREFERRED)
        rc = err_set(&err, ERR_INVALID, "%s has no such call", KEY_GPU_CORE);
    else if (rc == 0)
        rc = proto_encode(&dp_allocations_type,
                          &(struct dp_allocations){&(struct dp_allocation){0}, 1},
                          DP_MESSAGE_MAX, &out, &err);
    answer(steal(&m->call), rc, &out, &err);
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

static void on_call_closed(void *ctx, struct grpcd_call *call)
{
    const struct endpoint *e = ctx;
    struct dispatcher_msg *m = dispatcher_msg_new(DISPATCHER_CALL_CLOSED);
    m->token = token_of(call);
    dispatcher_post(e->dispatcher, m);
}

static const struct grpcd_method methods[] = {
    {DP_OPTIONS, on_options, NULL},
    {DP_WATCH, on_list_and_watch, on_call_closed},
    {DP_PREFERRED, on_preferred, on_call_closed},
    {DP_ALLOCATE, on_allocate, on_call_closed},
    {0},
};

/* The message with the call of the token. NULL: the call was ended already. */
static struct dispatcher_msg *find_pending(struct dispatcher *d, uint64_t token)
{
    LIST_EACH(struct dispatcher_msg, m, &d->pending, link)
    if (m->token == token)
        return m;
    return NULL;
}

/* The call, for the caller to end. NULL: it was ended already. */
static struct grpcd_call *take_pending(struct dispatcher *d, uint64_t token)
{
    struct dispatcher_msg *m = find_pending(d, token);
    if (!m)
        return NULL;
    struct grpcd_call *call = steal(&m->call);
    list_remove(&m->link);
    free_msg(m);
    return call;
}

/* Outputs */

static void save(struct dispatcher *d)
{
    cleanup_buf struct buf text = {0};
    struct err err;
    allocation_set_write(&text, &d->state->allocations, span_of(d->node));
    if (file_write(d->state_file, buf_span(&text), &err) == 0)
        return;
    log_error("state", "cannot save the allocation state; it is kept in memory",
              LOG_ERR(&err));
    d->stats.save_failed++;
}

/* Adds the allocations of the state file. An invalid file is renamed; its content is
 * recovered from the kubelet's view. */
static void load(struct dispatcher *d)
{
    cleanup_buf struct buf text = {0};
    struct allocation_set found = {0};
    struct err err;
    int rc = file_read(d->state_file, ALLOCATION_SET_BYTES_MAX, &text, &err);
    if (rc && err.code == ERR_NOT_FOUND)
        return;
    if (rc == 0)
        rc = allocation_set_read(&found, buf_span(&text), span_of(d->node), &err);
    if (rc == 0) {
        step(d, &(struct alloc_input){.type = ALLOC_IN_RESTORE, .set = &found});
        return;
    }
    cleanup_free char *aside = xasprintf("%s.damaged", d->state_file);
    log_error("state",
              "cannot use the state file; recovering from the kubelet's podresources",
              LOG_S("file", d->state_file), LOG_S("to", aside), LOG_ERR(&err));
    if (rename(d->state_file, aside))
        log_warn("state", "cannot rename the state file", LOG_S("file", d->state_file));
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
    struct dispatcher_msg *m = dispatcher_input_new(ALLOC_IN_UNLIMITED);
    m->in.uid = arena_copy(&m->arena, span_of(o->uid));
    m->in.text = arena_copy(&m->arena, span_of(text)).p;
    dispatcher_post(d, m);
}

static void answer_allocated(struct dispatcher *d, const struct alloc_output *o)
{
    cleanup_buf struct buf message = {0};
    struct response r = *o->response;
    struct err err;
    if (r.limit) {
        int failed = limit_dir_write(d->limit_dir, r.limit, &err);
        if (failed)
            drop_limit(d, o, &r, &err);
        ++*(failed ? &d->stats.limit_failed : &d->stats.limited);
    }
    int rc = proto_encode(&dp_allocations_type, &(struct dp_allocations){&r.dp, 1},
                          DP_MESSAGE_MAX, &message, &err);
    answer(take_pending(d, o->token), rc, &message, &err);
}

static void answer_preferred(struct dispatcher *d, const struct alloc_output *o)
{
    cleanup_buf struct buf message = {0};
    struct err err;
    int rc = proto_encode(&dp_groups_type,
                          &(struct dp_groups){&(struct dp_ids){o->ids, o->n_ids}, 1},
                          DP_MESSAGE_MAX, &message, &err);
    answer(take_pending(d, o->token), rc, &message, &err);
}

static void change_limit(struct dispatcher *d, const struct alloc_output *o)
{
    struct err err;
    if (limit_dir_has(d->limit_dir, o->response->limit->uid) &&
        limit_dir_write(d->limit_dir, o->response->limit, &err))
        log_error("limit", "cannot change the limits of a pod", LOG_S("namespace", o->ns),
                  LOG_S("pod", o->name), LOG_ERR(&err));
}

/* Sends the device list to the open streams of the resource, which stay pending. */
static void send_list(struct dispatcher *d, enum ids_resource r)
{
    cleanup_buf struct buf list = {0};
    struct err err;
    if (response_list(&d->state->cards, r, &list, &err)) {
        log_error("endpoint", "cannot encode the device list", LOG_ERR(&err));
        return;
    }
    LIST_EACH(struct dispatcher_msg, m, &d->pending, link)
    {
        cleanup_buf struct buf copy = {0};
        if (m->kind != DISPATCHER_STREAM_OPENED || m->resource != r)
            continue;
        buf_add_span(&copy, buf_span(&list));
        grpcd_send(m->call, &copy);
    }
}

/* A resource whose device list exceeds a message is not registered. A registered one
 * stays registered: ids are never withdrawn. */
static void send_devices(struct dispatcher *d)
{
    ARRAY_EACH_ITEM(struct endpoint, e, d->endpoints, IDS_RESOURCES)
    {
        struct err why = {0};
        if (!e->registration.wanted && d->state->cards.n) {
            e->registration.wanted =
                e->resource != IDS_MEM || cards_fit(&d->state->cards, &why) == 0;
            if (why.code && strcmp(e->err.msg, why.msg) != 0)
                log_error("registration", "aliyun.com/gpu-mem is not registered",
                          LOG_ERR(&why));
            e->err = why;
        }
        if (e->registration.wanted)
            send_list(d, e->resource);
    }
}

static void carry_out(struct dispatcher *d, const struct alloc_output *o)
{
    struct grpcd_call *call;
    switch (o->type) {
    case ALLOC_QUERY:
    case ALLOC_PATCH:
    case ALLOC_EVENT:
    case ALLOC_RELIST:
    case ALLOC_READ_NODE:
        d->callbacks.carry_out(d->callbacks.ctx, o);
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
    case ALLOC_REJECTED:
        call = take_pending(d, o->token);
        if (call)
            grpcd_end(call, GRPC_FAILED_PRECONDITION, "gpushare (%s): %s",
                      alloc_rejection_name(o->rejection), o->text);
        break;
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
    step_write_logs(&d->out);
    STEP_EACH(struct alloc_output, o, &d->out)
    carry_out(d, o);
    step_outputs_reset(&d->out);
}

static bool is_known(void *ctx, const char *uid)
{
    const struct dispatcher *d = ctx;
    return alloc_has_pod(d->alloc, span_of(uid));
}

static void on_unlimited(void *ctx, const char *uid, uint32_t bits)
{
    static const char *const refused[] = {
        "no open file description locks", "no MADV_WIPEONFORK (Linux 4.14)",
        "memory cannot be mapped",        "a file of the limit is not one",
        "the state was changed or cut",   "a file cannot be opened",
        "the root was changed",           "more than 512 processes live",
        "a card that was not promised"};
    cleanup_buf struct buf why = {0};
    for (size_t i = 0; i < ARRAY_LEN(refused); i++)
        if (bits >> i & 1)
            buf_printf(
                &why, "%s%s",
                why.n
                    ? ", "
                    : "GPU memory was refused, because the limit could not be applied: ",
                refused[i]);
    if (bits & LIMIT_UNKNOWN)
        buf_printf(
            &why,
            "%sfunctions of CUDA in a version that the limit does not know are used: "
            "they are not limited",
            why.n ? "; " : "");
    if (!why.n) /* of another release of the library */
        buf_printf(&why, "GPU memory was refused for the unknown reason 0x%x", bits);
    step(ctx, &(struct alloc_input){
                  .type = ALLOC_IN_UNLIMITED, .uid = span_of(uid), .text = why.p});
}
_Static_assert(LIMIT_NO_CARD == 1 << 8 && LIMIT_UNKNOWN == 1 << 9,
               "the table of reasons");

static void check_limits(struct dispatcher *d)
{
    const struct limit_dir_sink sink = {is_known, on_unlimited, d};
    int64_t now = clock_mono_ms();
    if (!d->limit_dir || now < d->limits_due_ms || !d->state->listed)
        return;
    d->limits_due_ms = now + LIMITS_MS;
    limit_dir_check(d->limit_dir, &sink);
}

/* Sockets and registrations */

/* Looks for socket changes. */
static void scan(struct dispatcher *d)
{
    int64_t now = clock_mono_ms();
    uint64_t kubelet = registration_dir_kubelet_id(&d->dir);
    d->scanned_ms = now;
    if (kubelet && kubelet != d->endpoints[0].registration.kubelet) {
        log_info("kubelet", "found its registration socket",
                 LOG_S("socket", d->dir.kubelet));
        step(d, &(struct alloc_input){.type = ALLOC_IN_KUBELET_STARTED});
    }
    ARRAY_EACH_ITEM(struct endpoint, e, d->endpoints, IDS_RESOURCES)
    {
        if (e->server && e->registration.reachable)
            registration_serving(&e->registration, now, grpcd_is_reachable(e->server));
        registration_kubelet_socket(&e->registration, now, kubelet);
    }
}

static void serve(struct dispatcher *d, struct endpoint *e)
{
    cleanup_free char *path =
        xasprintf("%s/%s", d->dir.path, d->dir.endpoints[e->resource]);
    const struct grpcd_config config = {
        .path = path, .methods = methods, .ctx = e, .max_message = REQUEST_MAX};
    grpcd_free(e->server);
    e->server = grpcd_start(&config, &e->err);
    if (!e->server)
        log_error("endpoint", "cannot serve the device plugin socket; retrying",
                  LOG_S("resource", ids_resource_name(e->resource)), LOG_ERR(&e->err));
    registration_serving(&e->registration, clock_mono_ms(), e->server != NULL);
}

/* Does what is due. */
static void step_registrations(struct dispatcher *d)
{
    if (clock_mono_ms() - d->scanned_ms >= SCAN_MS)
        scan(d);
    for (int r = 0; r < IDS_RESOURCES; r++) {
        struct endpoint *e = &d->endpoints[r];
        struct registration *reg = &e->registration;
        bool yielding = reg->state == REGISTRATION_YIELDING;
        enum registration_action action;
        int64_t now = clock_mono_ms();
        while ((action = registration_next(reg, now)) != REGISTRATION_NOTHING) {
            if (action == REGISTRATION_SERVE) {
                serve(d, e);
            } else if (!registration_dir_has_newer(&d->dir, e->resource)) {
                d->callbacks.register_resource(d->callbacks.ctx, e->resource,
                                               d->dir.endpoints[r]);
            } else {
                registration_yield(reg, now);
                if (!yielding)
                    log_info("registration", "a newer plugin of this node serves it",
                             LOG_S("resource", ids_resource_name(e->resource)));
            }
        }
    }
}

/* -1 with the reason if the resource is not registered. */
static int check_registration(const struct dispatcher *d, const struct endpoint *e,
                              struct err *err)
{
    const struct registration *reg = &e->registration;
    const char *missing = registration_missing(reg);
    if (!reg->wanted) {
        *err = e->err;
        return err_wrap(err, "not registered");
    }
    if (!missing)
        return 0;
    if (!reg->kubelet)
        return err_set(err, ERR_UNAVAILABLE, "not registered: %s: no socket %s", missing,
                       d->dir.kubelet);
    return err_set(err, ERR_UNAVAILABLE, "not registered: %s%s%s", missing,
                   e->err.code ? ": " : "", e->err.code ? e->err.msg : "");
}

/* Another plugin of this node may have served meanwhile; its allocations are in the state
 * file. */
static void handle_stream_opened(struct dispatcher *d, enum ids_resource r)
{
    load(d);
    log_info("registration", "ListAndWatch stream opened",
             LOG_S("resource", ids_resource_name(r)));
    registration_stream(&d->endpoints[r].registration, clock_mono_ms(), true);
    send_list(d, r);
}

/* Ends a stream; a request is canceled. */
static void handle_call_closed(struct dispatcher *d, uint64_t token)
{
    const struct dispatcher_msg *m = find_pending(d, token);
    if (!m || m->kind == DISPATCHER_INPUT) {
        step(d, &(struct alloc_input){.type = ALLOC_IN_CANCEL, .request.token = token});
        return;
    }
    enum ids_resource r = m->resource;
    grpcd_end(take_pending(d, token), GRPC_CANCELLED, "ListAndWatch stream closed");
    log_info("registration", "ListAndWatch stream closed",
             LOG_S("resource", ids_resource_name(r)));
    registration_stream(&d->endpoints[r].registration, clock_mono_ms(), false);
}

/* The thread */

static void handle(struct dispatcher *d, struct dispatcher_msg *m)
{
    bool pending = m->call != NULL;
    if (pending)
        list_append(&d->pending, &m->link);
    switch (m->kind) {
    case DISPATCHER_INPUT:
        step(d, &m->in);
        break;
    case DISPATCHER_STREAM_OPENED:
        handle_stream_opened(d, m->resource);
        break;
    case DISPATCHER_CALL_CLOSED:
        handle_call_closed(d, m->token);
        break;
    case DISPATCHER_REGISTERED:
        d->endpoints[m->resource].err = m->err;
        registration_answered(&d->endpoints[m->resource].registration, clock_mono_ms(),
                              m->err.code == ERR_NONE);
        break;
    case DISPATCHER_STOP:
        d->stop_ms = clock_mono_ms() + STOP_MS;
        break;
    }
    if (!pending)
        free_msg(m);
}

static void publish(struct dispatcher *d)
{
    const struct cards *cards = &d->state->cards;
    struct dispatcher_stats *s = &d->stats;
    s->alloc = d->state->stats;
    s->allocations = d->state->allocations.n;
    s->listed = d->state->listed;
    s->podresources = d->state->podresources;
    s->node = d->state->node;
    s->cards = cards->n;
    s->healthy = 0;
    for (size_t i = 0; i < cards->n; i++)
        s->healthy += cards->items[i].health.healthy;
    s->alive_ms = clock_mono_ms();
    s->cards_err = (struct err){0};
    cards_check(cards, s->alive_ms, &s->cards_err);
    for (int r = 0; r < IDS_RESOURCES; r++) {
        const struct endpoint *e = &d->endpoints[r];
        s->resources[r] =
            (struct dispatcher_resource_stats){.wanted = e->registration.wanted};
        check_registration(d, e, &s->resources[r].err);
    }
    pthread_mutex_lock(&d->lock);
    d->published = *s;
    pthread_mutex_unlock(&d->lock);
}

void dispatcher_stats(struct dispatcher *d, struct dispatcher_stats *stats)
{
    pthread_mutex_lock(&d->lock);
    *stats = d->published;
    pthread_mutex_unlock(&d->lock);
}

/* The next message; NULL: something else is due. */
static struct dispatcher_msg *next_msg(struct dispatcher *d)
{
    int64_t due = d->state->due_ms;
    step_due(&due, d->scanned_ms + SCAN_MS);
    for (int r = 0; r < IDS_RESOURCES; r++)
        step_due(&due, registration_due(&d->endpoints[r].registration));
    pthread_mutex_lock(&d->lock);
    if (list_is_empty(&d->queue))
        thread_wait_until(&d->cond, &d->lock, due);
    struct dispatcher_msg *m = LIST_FIRST(&d->queue, struct dispatcher_msg, link);
    if (m)
        list_remove(&m->link);
    pthread_mutex_unlock(&d->lock);
    return m;
}

/* At a stop, requests in flight get STOP_MS to be answered. */
static bool shall_end(const struct dispatcher *d)
{
    bool busy = false;
    LIST_EACH(const struct dispatcher_msg, m, &d->pending, link)
    busy |= m->kind == DISPATCHER_INPUT;
    return d->stop_ms && (!busy || clock_mono_ms() >= d->stop_ms);
}

static void *run(void *arg)
{
    struct dispatcher *d = arg;
    scan(d);
    for (;;) {
        if (clock_mono_ms() >= d->state->due_ms)
            step(d, &(struct alloc_input){.type = ALLOC_IN_TICK});
        check_limits(d);
        carry_out_all(d);
        if (shall_end(d))
            break;
        step_registrations(d);
        publish(d);
        struct dispatcher_msg *m = next_msg(d);
        if (m)
            handle(d, m);
    }
    free_msgs(&d->pending);
    for (int r = 0; r < IDS_RESOURCES; r++)
        grpcd_free(steal(&d->endpoints[r].server));
    return NULL;
}

struct dispatcher *dispatcher_new(const struct alloc_settings *settings, const char *dir,
                                  const char *state_file, struct err *err)
{
    struct registration_dir sockets;
    if (registration_dir_open(&sockets, dir, err))
        return NULL;
    struct dispatcher *d = xcalloc(1, sizeof *d);
    d->node = settings->node;
    d->limit_dir = settings->response.limit_dir;
    d->state_file = state_file;
    d->dir = sockets;
    d->alloc = alloc_new(settings);
    d->state = alloc_state(d->alloc);
    list_init(&d->pending);
    list_init(&d->queue);
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->cond, NULL);
    for (int r = 0; r < IDS_RESOURCES; r++) {
        struct endpoint *e = &d->endpoints[r];
        *e = (struct endpoint){.dispatcher = d, .resource = (enum ids_resource)r};
        registration_init(&e->registration);
        err_set(&e->err, ERR_UNAVAILABLE, "no card found yet");
    }
    load(d);
    publish(d); /* nothing is registered until the kubelet says so */
    return d;
}

void dispatcher_start(struct dispatcher *d, const struct dispatcher_callbacks *callbacks)
{
    d->callbacks = *callbacks;
    if (pthread_create(&d->thread, NULL, run, d))
        abort();
    pthread_setname_np(d->thread, "dispatcher");
    d->running = true;
}

void dispatcher_stop(struct dispatcher *d)
{
    if (!d || !d->running)
        return;
    dispatcher_post(d, dispatcher_msg_new(DISPATCHER_STOP));
    pthread_join(d->thread, NULL);
    d->running = false;
}

void dispatcher_free(struct dispatcher *d)
{
    if (!d)
        return;
    free_msgs(&d->queue); /* also calls that arrived at a stop */
    alloc_free(d->alloc);
    step_outputs_fini(&d->out);
    pthread_cond_destroy(&d->cond);
    pthread_mutex_destroy(&d->lock);
    free(d);
}
