/* SPDX-License-Identifier: Apache-2.0 */
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

static void on_options(void *ctx, struct grpcd_call *call, struct span request)
{
    const struct endpoint *e = ctx;
    struct dp_options options = {.preferred_allocation = e->resource != IDS_CORE};
    cleanup_buf struct buf out = {0};
    struct err err;
    (void)request;
    if (dp_options_encode(&options, &out, &err))
        grpcd_fail(call, &err);
    else
        grpcd_reply(call, &out);
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
    struct dp_allocation none = {0};
    struct dp_allocations one = {&none, 1};
    cleanup_buf struct buf out = {0};
    struct err err = {0};
    int rc = req->type == ALLOC_REQUEST_ALLOCATE
                 ? dp_allocations_encode(&one, &out, &err)
                 : err_set(&err, ERR_INVALID, "%s has no such call", KEY_GPU_CORE);
    if (rc)
        grpcd_fail(call, &err);
    else
        grpcd_reply(call, &out);
}

/* Takes the arena. */
static void forward(struct endpoint *e, struct grpcd_call *call,
                    struct alloc_request *req, struct arena *arena)
{
    if (e->resource == IDS_CORE) {
        answer_core(call, req);
        arena_fini(arena);
        return;
    }
    req->resource = e->resource;
    e->handlers.request(e->handlers.ctx, call, req, arena);
}

/* A kubelet sends one container per request and reads only one answer. */
static int only_one(size_t n, struct err *err)
{
    return n == 1 ? 0
                  : err_set(err, ERR_INVALID,
                            "%zu containers in one request; expected one", n);
}

static void on_preferred(void *ctx, struct grpcd_call *call, struct span request)
{
    struct dp_preferences all = {0};
    struct arena a = {0};
    struct err err;
    if (dp_preferences_decode(arena_copy(&a, request), &a, &all, &err) ||
        only_one(all.n, &err)) {
        grpcd_fail(call, &err);
        arena_fini(&a);
        return;
    }
    const struct dp_preference *one = all.items;
    forward(ctx, call,
            &(struct alloc_request){.type = ALLOC_REQUEST_PREFERRED,
                                    .ids = one->available.items,
                                    .n_ids = one->available.n,
                                    .must = one->must_include.items,
                                    .n_must = one->must_include.n,
                                    .size = one->size},
            &a);
}

static void on_allocate(void *ctx, struct grpcd_call *call, struct span request)
{
    struct dp_groups all = {0};
    struct arena a = {0};
    struct err err;
    if (dp_groups_decode(arena_copy(&a, request), &a, &all, &err) ||
        only_one(all.n, &err)) {
        grpcd_fail(call, &err);
        arena_fini(&a);
        return;
    }
    forward(ctx, call,
            &(struct alloc_request){.type = ALLOC_REQUEST_ALLOCATE,
                                    .ids = all.items->items,
                                    .n_ids = all.items->n},
            &a);
}

static void on_prestart(void *ctx, struct grpcd_call *call, struct span request)
{
    struct dp_ids ids = {0};
    struct arena a = {0};
    struct err err;
    if (dp_ids_decode(arena_copy(&a, request), &a, &ids, &err)) {
        grpcd_fail(call, &err);
        arena_fini(&a);
        return;
    }
    forward(ctx, call,
            &(struct alloc_request){
                .type = ALLOC_REQUEST_START, .ids = ids.items, .n_ids = ids.n},
            &a);
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
    {DP_PRESTART, false, on_prestart, on_call_closed},
    {0},
};

struct endpoint *endpoint_start(const char *socket, enum ids_resource r,
                                const struct endpoint_handlers *handlers, struct err *err)
{
    struct endpoint *e = xcalloc(1, sizeof *e);
    struct grpcd_config config = {
        .path = socket,
        .methods = methods,
        .ctx = e,
        .max_message = REQUEST_MAX};
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

/* They name no card and stay healthy with an unhealthy one: an id that is unhealthy while a
 * container of another card has it makes the kubelet reject the container's pod when the
 * kubelet restarts. */
static int list_core(const struct cards *cards, struct buf *out, struct err *err)
{
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf id = {0};
    struct dp_devices list = {.n = cards->most_in_use * REQUEST_CORE};
    struct dp_device *devices = arena_zalloc(&a, (list.n + 1) * sizeof *devices);
    for (size_t i = 0; i < list.n; i++) {
        buf_clear(&id);
        ids_write_core(&id, (int64_t)i);
        devices[i] =
            (struct dp_device){.id = arena_copy(&a, buf_span(&id)), .is_healthy = true};
    }
    list.items = devices;
    return dp_devices_encode(&list, out, err);
}

int endpoint_list(const struct cards *cards, enum ids_resource r, struct buf *out,
                  struct err *err)
{
    if (r == IDS_CORE)
        return list_core(cards, out, err);
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf id = {0};
    size_t n = 0;
    for (size_t i = 0; i < cards->n; i++)
        n += r == IDS_MEM ? (size_t)cards->items[i].most_units : 1;
    struct dp_device *devices = arena_zalloc(&a, (n + 1) * sizeof *devices);
    struct dp_devices list = {.items = devices};
    for (size_t i = 0; i < cards->n; i++) {
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
    cleanup_arena struct arena a = {0};
    struct dp_entry *envs = arena_zalloc(&a, (r->n_envs + 1) * sizeof *envs);
    struct dp_mount *mounts = arena_zalloc(&a, (r->n_mounts + 1) * sizeof *mounts);
    struct span *cdi = arena_zalloc(&a, (r->n_cdi + 1) * sizeof *cdi);
    struct dp_entry *annotations =
        arena_zalloc(&a, (r->n_annotations + 1) * sizeof *annotations);
    struct dp_spec *specs = arena_zalloc(&a, (r->n_nodes + 1) * sizeof *specs);
    for (size_t i = 0; i < r->n_envs; i++)
        envs[i] = (struct dp_entry){span_of(r->envs[i].key), span_of(r->envs[i].value)};
    for (size_t i = 0; i < r->n_mounts; i++)
        mounts[i] =
            (struct dp_mount){span_of(r->mounts[i].key), span_of(r->mounts[i].value),
                              r->mounts[i].read_only};
    for (size_t i = 0; i < r->n_cdi; i++)
        cdi[i] = span_of(r->cdi[i]);
    for (size_t i = 0; i < r->n_annotations; i++)
        annotations[i] = (struct dp_entry){span_of(r->annotations[i].key),
                                           span_of(r->annotations[i].value)};
    for (size_t i = 0; i < r->n_nodes; i++)
        specs[i] = (struct dp_spec){span_of(r->nodes[i].container),
                                    span_of(r->nodes[i].host), SPAN("rw")};
    struct dp_allocation one = {.envs = envs,
                                .n_envs = r->n_envs,
                                .annotations = annotations,
                                .n_annotations = r->n_annotations,
                                .specs = specs,
                                .n_specs = r->n_nodes,
                                .mounts = mounts,
                                .n_mounts = r->n_mounts,
                                .cdi = cdi,
                                .n_cdi = r->n_cdi};
    struct dp_allocations all = {&one, 1};
    return dp_allocations_encode(&all, out, err);
}
