/* SPDX-License-Identifier: Apache-2.0 */

#include "node/endpoints.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/mem.h"
#include "domain/keys.h"
#include "kube/deviceplugin.h"
#include "node/registration.h"

enum {
    SCAN_MS = 1000,         /* between two looks at the directory of the sockets */
    LOOK_MS = 30 * 1000,    /* ... for another plugin, while ours is registered */
    REQUEST_MAX = 16 << 20, /* a kubelet lists all free ids in a request */
};

struct endpoint {
    struct dispatcher_msg_queue *queue;
    enum ids_resource resource;
    struct grpcd *server; /* NULL: not served */
    struct registration registration;
    /* Of the last attempt, or why there are no devices. ERR_NONE: none; ERR_CONFLICT: another
     * plugin serves it. */
    struct err err;
};

struct endpoints {
    struct registration_dir dir;
    int64_t scanned_ms; /* when the directory was scanned last */
    int64_t looked_ms;
    struct endpoint items[IDS_RESOURCES];
    struct list calls; /* messages with a call that is still open */
};

/* The kubelet's calls. The handlers run in the servers' threads. */

/* The address of a call is its token: it is not used again before the message of its end. */
static struct dispatcher_msg *msg_of_call(enum dispatcher_msg_kind kind,
                                          const struct endpoint *e,
                                          struct grpcd_call *call)
{
    struct dispatcher_msg *m = dispatcher_msg_new(kind);
    m->resource = e->resource;
    m->in.request.token = (uint64_t)(uintptr_t)call;
    m->call = call;
    return m;
}

/* Encodes the message and ends the call. NULL: it has ended. */
static void answer_call(struct grpcd_call *call, const struct proto_type *type,
                        const void *message)
{
    cleanup_buf struct buf out = {0};
    struct err err;
    if (call && proto_encode(type, message, DP_MESSAGE_MAX, &out, &err))
        grpcd_end(call, GRPC_INVALID_ARGUMENT, "%s", err.msg);
    else if (call)
        grpcd_reply(call, &out);
}

static void on_options(void *ctx, struct grpcd_call *call, struct span request)
{
    const struct endpoint *e = ctx;
    (void)request;
    answer_call(call, &dp_options_type,
                &(struct dp_options){.preferred_allocation = e->resource != IDS_CORE});
}

static void on_list_and_watch(void *ctx, struct grpcd_call *call, struct span request)
{
    const struct endpoint *e = ctx;
    (void)request;
    dispatcher_msg_post(e->queue, msg_of_call(DISPATCHER_STREAM_OPENED, e, call));
}

/* A kubelet sends one container per request and reads only one answer. A share of compute has no
 * card of its own: Allocate of the container's memory gives it, and its variables. */
static void on_request(const struct endpoint *e, struct grpcd_call *call,
                       struct span request, enum alloc_request_type type)
{
    struct dispatcher_msg *m = msg_of_call(DISPATCHER_INPUT, e, call);
    struct alloc_request *req = &m->in.request;
    const struct span bytes = arena_copy(&m->arena, request);
    struct dp_preferences preferences = {0};
    struct dp_groups groups = {0};
    struct err err;
    int rc =
        type == ALLOC_REQUEST_PREFERRED
            ? proto_decode(&dp_preferences_type, bytes, &m->arena, &preferences, &err)
            : proto_decode(&dp_groups_type, bytes, &m->arena, &groups, &err);
    const size_t n = preferences.n + groups.n;
    if (rc == 0 && n != 1)
        rc = err_set(&err, ERR_INVALID, "%zu containers in one request; expected one", n);
    else if (rc == 0 && e->resource == IDS_CORE && preferences.n)
        rc = err_set(&err, ERR_INVALID, "%s has no such call", KEY_GPU_CORE);
    if (rc == 0 && e->resource != IDS_CORE) {
        const struct dp_ids *ids =
            preferences.n ? &preferences.items->available : groups.items;
        m->in.type = ALLOC_IN_REQUEST;
        req->type = type;
        req->resource = e->resource;
        req->ids = ids->items;
        req->n_ids = ids->n;
        if (preferences.n) {
            req->must = preferences.items->must_include.items;
            req->n_must = preferences.items->must_include.n;
            req->size = preferences.items->size;
        }
        dispatcher_msg_post(e->queue, m);
        return;
    }
    if (rc)
        grpcd_end(steal(&m->call), GRPC_INVALID_ARGUMENT, "%s", err.msg);
    else
        answer_call(steal(&m->call), &dp_allocations_type,
                    &(struct dp_allocations){&(struct dp_allocation){0}, 1});
    dispatcher_msg_free(m);
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
    struct dispatcher_msg *m = msg_of_call(DISPATCHER_CALL_CLOSED, e, call);
    m->call = NULL; /* that message has it */
    m->in.type = ALLOC_IN_CANCEL;
    dispatcher_msg_post(e->queue, m);
}

static const struct grpcd_method methods[] = {
    {DP_OPTIONS, on_options, NULL},
    {DP_WATCH, on_list_and_watch, on_call_closed},
    {DP_PREFERRED, on_preferred, on_call_closed},
    {DP_ALLOCATE, on_allocate, on_call_closed},
    {0},
};

/* Requests */

void endpoints_request(struct endpoints *es, struct dispatcher_msg *m)
{
    list_append(&es->calls, &m->link);
}

static struct dispatcher_msg *find_msg(struct endpoints *es, uint64_t token)
{
    LIST_EACH(struct dispatcher_msg, m, &es->calls, link)
    if (m->in.request.token == token)
        return m;
    return NULL;
}

/* The call, for the caller to end. NULL: it was ended already. */
static struct grpcd_call *take_call(struct endpoints *es, uint64_t token)
{
    struct dispatcher_msg *m = find_msg(es, token);
    if (!m)
        return NULL;
    struct grpcd_call *call = steal(&m->call);
    list_remove(&m->link);
    dispatcher_msg_free(m);
    return call;
}

void endpoints_answer(struct endpoints *es, const struct alloc_output *o,
                      const struct dp_allocation *given)
{
    struct grpcd_call *call = take_call(es, o->token);
    if (o->type == ALLOC_PREFERRED)
        answer_call(call, &dp_groups_type,
                    &(struct dp_groups){&(struct dp_ids){o->ids, o->n_ids}, 1});
    else if (o->type == ALLOC_ALLOCATED)
        answer_call(call, &dp_allocations_type, &(struct dp_allocations){given, 1});
    else if (call)
        grpcd_end(call, GRPC_FAILED_PRECONDITION, "gpushare (%s): %s",
                  rejection_name(o->rejection), o->text);
}

bool endpoints_are_busy(const struct endpoints *es)
{
    LIST_EACH(const struct dispatcher_msg, m, &es->calls, link)
    if (m->kind == DISPATCHER_INPUT)
        return true;
    return false;
}

/* Streams */

/* Sends the devices to the open streams of the resource. */
static void send_list(struct endpoints *es, enum ids_resource r,
                      const struct alloc_state *s)
{
    cleanup_buf struct buf list = {0};
    struct err err;
    if (response_list(&s->cards, &s->allocations, r, &list, &err)) {
        log_error("endpoint", "cannot encode the device list", LOG_ERR(&err));
        return;
    }
    LIST_EACH(struct dispatcher_msg, m, &es->calls, link)
    {
        cleanup_buf struct buf copy = {0};
        if (m->kind != DISPATCHER_STREAM_OPENED || m->resource != r)
            continue;
        buf_add_span(&copy, buf_span(&list));
        grpcd_send(m->call, &copy);
    }
}

/* A registered resource stays registered: ids are not withdrawn, but for the Node's label. */
void endpoints_send_devices(struct endpoints *es, const struct alloc_state *s)
{
    ARRAY_EACH_ITEM(struct endpoint, e, es->items, IDS_RESOURCES)
    {
        struct err why = {0};
        if (e->resource == IDS_DIALECT && !s->cards.settings.dialect) {
            /* The kubelet takes the ids away, which another plugin may serve next. */
            if (e->registration.wanted) {
                e->registration.wanted = false;
                grpcd_free(steal(&e->server));
                registration_serving(&e->registration, clock_mono_ms(), false);
                log_info("registration", "no longer served",
                         LOG_S("resource", ids_resource_name(e->resource)));
            }
            err_set(&e->err, ERR_NOT_FOUND,
                    "neither --requests-of nor the Node's label " KEY_DIALECT " is hami");
            continue;
        }
        if (!e->registration.wanted && s->cards.n) {
            if (e->resource == IDS_MEM)
                cards_fit(&s->cards, &why);
            else if (ids_are_slots(e->resource) && !s->cards.settings.slots)
                err_set(&why, ERR_NOT_FOUND, "--slots is 0");
            else if (ids_are_slots(e->resource) && !s->surveyed)
                err_set(&why, ERR_UNAVAILABLE,
                        "the kubelet has not yet listed what containers hold");
            e->registration.wanted = !why.code;
            if (why.code == ERR_TOO_LARGE && strcmp(e->err.msg, why.msg) != 0)
                log_error("registration", "aliyun.com/gpu-mem is not registered",
                          LOG_ERR(&why));
            e->err = why;
        }
        if (e->registration.wanted)
            send_list(es, e->resource, s);
    }
}

void endpoints_stream_opened(struct endpoints *es, struct dispatcher_msg *m,
                             const struct alloc_state *s)
{
    list_append(&es->calls, &m->link);
    log_info("registration", "ListAndWatch stream opened",
             LOG_S("resource", ids_resource_name(m->resource)));
    registration_stream(&es->items[m->resource].registration, clock_mono_ms(), true);
    send_list(es, m->resource, s);
}

bool endpoints_stream_closed(struct endpoints *es, uint64_t token)
{
    const struct dispatcher_msg *m = find_msg(es, token);
    if (!m || m->kind == DISPATCHER_INPUT)
        return false;
    enum ids_resource r = m->resource;
    grpcd_end(take_call(es, token), GRPC_CANCELLED, "ListAndWatch stream closed");
    log_info("registration", "ListAndWatch stream closed",
             LOG_S("resource", ids_resource_name(r)));
    registration_stream(&es->items[r].registration, clock_mono_ms(), false);
    return true;
}

/* Sockets and registrations */

bool endpoints_step(struct endpoints *es, struct calls *calls)
{
    const int64_t scan_ms = clock_mono_ms();
    bool started = false;
    if (scan_ms - es->scanned_ms >= SCAN_MS) {
        uint64_t kubelet = registration_dir_kubelet_id(&es->dir);
        started = kubelet && kubelet != es->items[0].registration.kubelet;
        es->scanned_ms = scan_ms;
        if (started)
            log_info("kubelet", "found its registration socket",
                     LOG_S("socket", es->dir.kubelet));
        ARRAY_EACH_ITEM(struct endpoint, e, es->items, IDS_RESOURCES)
        registration_kubelet_socket(&e->registration, scan_ms, kubelet);
    }
    const bool looks = es->scanned_ms - es->looked_ms >= LOOK_MS;
    if (looks)
        es->looked_ms = es->scanned_ms;
    ARRAY_EACH_ITEM(struct endpoint, e, es->items, IDS_RESOURCES)
    {
        struct registration *reg = &e->registration;
        bool yielding = reg->state == REGISTRATION_YIELDING;
        enum registration_action action;
        if (looks && ids_are_slots(e->resource) && reg->state == REGISTRATION_REGISTERED)
            calls_register(calls, e->resource, NULL);
        int64_t now = clock_mono_ms();
        /* A kubelet that starts removes the sockets, and takes 10 s to refuse a missing one. */
        if (e->server && reg->reachable)
            registration_serving(reg, now, grpcd_is_reachable(e->server));
        while ((action = registration_next(reg, now)) != REGISTRATION_NOTHING) {
            if (action == REGISTRATION_SERVE) {
                cleanup_free char *path =
                    xasprintf("%s/%s", es->dir.path, es->dir.endpoints[e->resource]);
                const struct grpcd_config config = {.path = path,
                                                    .methods = methods,
                                                    .ctx = e,
                                                    .max_message = REQUEST_MAX};
                grpcd_free(e->server);
                e->server = grpcd_start(&config, &e->err);
                if (!e->server) {
                    e->err.code = ERR_UNAVAILABLE; /* also of a file that is in the way */
                    log_error("endpoint",
                              "cannot serve the device plugin socket; retrying",
                              LOG_S("resource", ids_resource_name(e->resource)),
                              LOG_ERR(&e->err));
                }
                registration_serving(reg, clock_mono_ms(), e->server != NULL);
            } else if (!registration_dir_has_newer(&es->dir, e->resource)) {
                calls_register(calls, e->resource, es->dir.endpoints[e->resource]);
            } else {
                registration_yield(reg, now);
                e->err = (struct err){0};
                if (!yielding)
                    log_info("registration", "a newer plugin of this node serves it",
                             LOG_S("resource", ids_resource_name(e->resource)));
            }
        }
    }
    return started;
}

int64_t endpoints_due(const struct endpoints *es)
{
    int64_t due = es->scanned_ms + SCAN_MS;
    for (int r = 0; r < IDS_RESOURCES; r++)
        step_due(&due, registration_due(&es->items[r].registration));
    return due;
}

void endpoints_registered(struct endpoints *es, const struct dispatcher_msg *m)
{
    struct endpoint *e = &es->items[m->resource];
    struct registration *reg = &e->registration;
    if (m->err.code != ERR_CONFLICT) {
        if (reg->state == REGISTRATION_REGISTERING)
            e->err = m->err;
        registration_answered(reg, clock_mono_ms(), m->err.code == ERR_NONE);
        return;
    }
    if (e->err.code != ERR_CONFLICT)
        log_warn("registration", "another plugin of this node serves it",
                 LOG_S("resource", ids_resource_name(m->resource)), LOG_ERR(&m->err));
    /* It has registered after this one: the kubelet takes the last list, and asks the other. */
    LIST_EACH(struct dispatcher_msg, call, &es->calls, link)
    if (call->kind == DISPATCHER_STREAM_OPENED && call->resource == m->resource)
        endpoints_stream_closed(es, call->in.request.token);
    e->err = m->err;
    registration_yield(reg, clock_mono_ms());
}

int endpoints_check(const struct endpoints *es, enum ids_resource r, bool *wanted,
                    struct err *err)
{
    const struct endpoint *e = &es->items[r];
    const struct registration *reg = &e->registration;
    const char *missing = registration_missing(reg);
    *wanted = reg->wanted;
    if (!reg->wanted) {
        *err = e->err;
        return err_wrap(err, "not registered");
    }
    if (!missing)
        return 0;
    if (!reg->kubelet)
        return err_set(err, ERR_UNAVAILABLE, "not registered: %s: no socket %s", missing,
                       es->dir.kubelet);
    if (e->err.code == ERR_CONFLICT)
        missing = "another plugin of this node serves it";
    return err_set(err, e->err.code == ERR_CONFLICT ? ERR_CONFLICT : ERR_UNAVAILABLE,
                   "not registered: %s%s%s", missing, e->err.code ? ": " : "",
                   e->err.code ? e->err.msg : "");
}

struct endpoints *endpoints_new(const char *dir, struct dispatcher_msg_queue *queue,
                                struct err *err)
{
    struct endpoints *es = xcalloc(1, sizeof *es);
    if (registration_dir_open(&es->dir, dir, err)) {
        free(es);
        return NULL;
    }
    es->scanned_ms = -SCAN_MS;
    list_init(&es->calls);
    for (int r = 0; r < IDS_RESOURCES; r++) {
        struct endpoint *e = &es->items[r];
        e->queue = queue;
        e->resource = (enum ids_resource)r;
        registration_init(&e->registration);
        err_set(&e->err, ERR_UNAVAILABLE, "no card found yet");
    }
    return es;
}

void endpoints_free(struct endpoints *es)
{
    if (!es)
        return;
    dispatcher_msg_free_all(&es->calls);
    for (int r = 0; r < IDS_RESOURCES; r++)
        grpcd_free(es->items[r].server);
    free(es);
}
