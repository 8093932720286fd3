/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The kubelet's calls to one resource, decoded; answers, encoded.
 */

#include "plugin/endpoint.h"

#include <stdlib.h>

#include "base/mem.h"
#include "domain/keys.h"
#include "kube/deviceplugin.h"

enum {
    REQUEST_MAX = 16 << 20, /* a kubelet lists all free ids in a request */
    STOP_MS = 2000,
};

struct endpoint {
    enum ids_resource resource;
    struct endpoint_handlers handlers;
    struct grpcd *server;
};

/* Ends the call with the message, or with the error if `rc` is not 0. */
static void answer(struct grpcd_call *call, int rc, struct buf *message,
                   const struct err *err)
{
    if (rc)
        grpcd_fail(call, err);
    else
        grpcd_reply(call, message);
}

static void on_options(void *ctx, struct grpcd_call *call, struct span request)
{
    const struct endpoint *e = ctx;
    struct dp_options options = {.preferred_allocation = e->resource != IDS_CORE};
    cleanup_buf struct buf out = {0};
    struct err err;
    (void)request;
    answer(call, dp_options_encode(&options, &out, &err), &out, &err);
}

static void on_list_and_watch(void *ctx, struct grpcd_call *call, struct span request)
{
    struct endpoint *e = ctx;
    (void)request;
    e->handlers.stream_opened(e->handlers.ctx, e->resource, call);
}

/* A share of compute has no card of its own: Allocate of the container's memory gives it,
 * and its variables. */
static void answer_core(struct grpcd_call *call, const struct alloc_request *req)
{
    const struct response none = {0};
    cleanup_buf struct buf out = {0};
    struct err err = {0};
    int rc = req->type == ALLOC_REQUEST_ALLOCATE
                 ? endpoint_allocated(&none, &out, &err)
                 : err_set(&err, ERR_INVALID, "%s has no such call", KEY_GPU_CORE);
    answer(call, rc, &out, &err);
}

/* A kubelet sends one container per request and reads only one answer. */
static int decode(struct span bytes, struct arena *a, struct alloc_request *req,
                  struct err *err)
{
    struct dp_preferences preferences = {0};
    struct dp_groups groups = {0};
    int rc = req->type == ALLOC_REQUEST_PREFERRED
                 ? dp_preferences_decode(bytes, a, &preferences, err)
                 : dp_groups_decode(bytes, a, &groups, err);
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

static void on_request(struct endpoint *e, struct grpcd_call *call, struct span bytes,
                       enum alloc_request_type type)
{
    struct arena a = {0};
    struct alloc_request req = {.type = type, .resource = e->resource};
    struct err err;
    int rc = decode(arena_copy(&a, bytes), &a, &req, &err);
    if (rc == 0 && e->resource != IDS_CORE) {
        e->handlers.request(e->handlers.ctx, call, &req, &a);
        return;
    }
    if (rc)
        grpcd_fail(call, &err);
    else
        answer_core(call, &req);
    arena_fini(&a);
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
    struct endpoint *e = ctx;
    e->handlers.call_closed(e->handlers.ctx, call);
}

static const struct grpcd_method methods[] = {
    {DP_OPTIONS, false, on_options, NULL},
    {DP_WATCH, true, on_list_and_watch, on_call_closed},
    {DP_PREFERRED, false, on_preferred, on_call_closed},
    {DP_ALLOCATE, false, on_allocate, on_call_closed},
    {DP_PRESTART, false, on_prestart, NULL},
    {0},
};

struct endpoint *endpoint_start(const char *socket, enum ids_resource r,
                                const struct endpoint_handlers *handlers, struct err *err)
{
    struct endpoint *e = xcalloc(1, sizeof *e);
    struct grpcd_config config = {
        .path = socket, .methods = methods, .ctx = e, .max_message = REQUEST_MAX};
    e->resource = r;
    e->handlers = *handlers;
    e->server = grpcd_start(&config, err);
    if (e->server)
        return e;
    free(e);
    return NULL;
}

bool endpoint_is_reachable(const struct endpoint *e)
{
    return grpcd_is_reachable(e->server);
}

void endpoint_stop(struct endpoint *e)
{
    grpcd_stop(e->server, STOP_MS);
}

void endpoint_free(struct endpoint *e)
{
    if (!e)
        return;
    grpcd_free(e->server);
    free(e);
}

int endpoint_list(const struct cards *cards, enum ids_resource r, struct buf *out,
                  struct err *err)
{
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf id = {0};
    size_t n = r == IDS_CORE ? cards->most_in_use * REQUEST_CORE : 0;
    for (size_t i = 0; i < cards->n && r != IDS_CORE; i++)
        n += r == IDS_MEM ? (size_t)cards->items[i].most_units : 1;
    struct dp_device *devices = arena_zalloc(&a, (n + 1) * sizeof *devices);
    struct dp_devices list = {.items = devices};
    /* Ids of compute name no card and stay healthy with an unhealthy one: an id that is
     * unhealthy while a container of another card has it makes the kubelet reject the
     * container's pod when the kubelet restarts. */
    for (; r == IDS_CORE && list.n < n; list.n++) {
        buf_clear(&id);
        ids_write_core(&id, (int64_t)list.n);
        devices[list.n] =
            (struct dp_device){.id = arena_copy(&a, buf_span(&id)), .is_healthy = true};
    }
    for (size_t i = 0; i < cards->n && list.n < n; i++) {
        const struct plugin_card *c = &cards->items[i];
        int64_t units = r == IDS_MEM ? c->most_units : 1;
        for (int64_t u = 0; u < units; u++) {
            struct ids_id one = {c->tag, r == IDS_MEM ? u : -1};
            buf_clear(&id);
            ids_write(&id, &one);
            devices[list.n++] = (struct dp_device){
                .id = arena_copy(&a, buf_span(&id)),
                .is_healthy = c->health.healthy && (r == IDS_COUNT || u < c->units)};
        }
    }
    return dp_devices_encode(&list, out, err);
}

int endpoint_preferred(const char *const *ids, size_t n, struct buf *out, struct err *err)
{
    cleanup_arena struct arena a = {0};
    struct span *items = arena_zalloc(&a, (n + 1) * sizeof *items);
    for (size_t i = 0; i < n; i++)
        items[i] = span_of(ids[i]);
    struct dp_ids one = {items, n};
    struct dp_groups all = {&one, 1};
    return dp_groups_encode(&all, out, err);
}

int endpoint_allocated(const struct response *r, struct buf *out, struct err *err)
{
    struct dp_allocations all = {&r->dp, 1};
    return dp_allocations_encode(&all, out, err);
}
