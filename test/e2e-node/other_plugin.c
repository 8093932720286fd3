/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e-node/other_plugin.h"

#include <stdatomic.h>

#include "e2e-node/node.h"
#include "wire/grpcc.h"
#include "wire/grpcd.h"

enum { REGISTER_MS = 20 * 1000, ENVS = 8 };

static struct {
    const struct other_plugin *of;
    struct grpcd *server;
    const char *pod; /* set before it is created */
    atomic_bool allocated;
} other;

static void reply(struct grpcd_call *call, const struct proto_type *type, const void *of)
{
    cleanup_buf struct buf out = {0};
    ck_assert_int_eq(proto_encode(type, of, DP_MESSAGE_MAX, &out, NULL), 0);
    grpcd_reply(call, &out);
}

static void on_options(void *ctx, struct grpcd_call *call, struct span request)
{
    (void)ctx;
    (void)request;
    reply(call, &dp_options_type, &(struct dp_options){.preferred_allocation = true});
}

static void on_watch(void *ctx, struct grpcd_call *call, struct span request)
{
    size_t n = json_array_size(other.of->ids), i;
    cleanup_free struct dp_device *items = xcalloc(n, sizeof *items);
    cleanup_buf struct buf out = {0};
    json_t *id;
    (void)ctx;
    (void)request;
    json_array_foreach(other.of->ids, i, id) items[i] = (struct dp_device){
        .id = span_of(json_string_value(id)), .health = SPAN("Healthy")};
    ck_assert_int_eq(proto_encode(&dp_devices_type, &(struct dp_devices){items, n},
                                  DP_MESSAGE_MAX, &out, NULL),
                     0);
    grpcd_send(call, &out);
}

/* The stream ends with the kubelet or with us. */
static void on_watch_ended(void *ctx, struct grpcd_call *call)
{
    (void)ctx;
    grpcd_end(call, GRPC_UNAVAILABLE, "ended");
}

/* Prefers the first ids that are available. */
static void on_prefer(void *ctx, struct grpcd_call *call, struct span request)
{
    cleanup_arena struct arena a = {0};
    struct dp_preferences all;
    struct dp_ids one = {0};
    json_t *id;
    (void)ctx;
    ck_assert_int_eq(proto_decode(&dp_preferences_type, request, &a, &all, NULL), 0);
    ck_assert_uint_eq(all.n, 1);
    const struct dp_ids *available = &all.items->available;
    struct span *ids = arena_zalloc(&a, (size_t)all.items->size * sizeof *ids);
    lib_each(id, other.of->ids) {
        struct span text = span_of(json_string_value(id));
        for (size_t k = 0; k < available->n && one.n < (size_t)all.items->size; k++)
            if (span_eq(available->items[k], text))
                ids[one.n++] = text;
    }
    one.items = ids;
    reply(call, &dp_groups_type, &(struct dp_groups){&one, 1});
}

static void on_allocate(void *ctx, struct grpcd_call *call, struct span request)
{
    struct dp_entry envs[ENVS];
    struct dp_allocation one = {.envs = envs};
    (void)ctx;
    (void)request;
    one.n_envs = other.of->give(other.pod, envs);
    other.allocated = true;
    reply(call, &dp_allocations_type, &(struct dp_allocations){&one, 1});
}

static const struct grpcd_method methods[] = {
    {DP_OPTIONS, on_options, NULL},
    {DP_WATCH, on_watch, on_watch_ended},
    {DP_PREFERRED, on_prefer, NULL},
    {DP_ALLOCATE, on_allocate, NULL},
    {0},
};

int other_plugin_offers(const char *resource)
{
    return atoi(lib_in(peer_get(&cluster.api, "/api/v1/nodes/" NODE),
                       "status.allocatable", resource));
}

void other_plugin_start(const struct other_plugin *of)
{
    struct dp_register r = {.version = SPAN(DP_VERSION),
                            .endpoint = span_of(of->socket),
                            .resource = span_of(of->resource),
                            .options = {.preferred_allocation = true}};
    cleanup_buf struct buf message = {0}, out = {0};
    struct grpcd_config config = {.path = lib_fmt(NODE_PLUGINS "/%s", of->socket),
                                  .methods = methods};
    struct err err = {0};
    other.of = of;
    other.server = grpcd_start(&config, &err);
    ck_assert_msg(other.server != NULL, "%s", err.msg);
    ck_assert_done(proto_encode(&dp_register_type, &r, DP_MESSAGE_MAX, &message, &err),
                   err);
    struct grpcc_request request = {.socket = NODE_PLUGINS "/" DP_KUBELET_SOCK,
                                    .method = DP_REGISTER,
                                    .message = buf_span(&message),
                                    .timeout_ms = REGISTER_MS};
    ck_assert_done(grpcc_call(&request, &out, NULL, &err), err);
    lib_wait(other_plugin_offers(of->resource) == (int)json_array_size(of->ids));
}

void other_plugin_stop(void)
{
    grpcd_free(steal(&other.server));
}

void other_plugin_run(const char *pod, const char *text)
{
    other.pod = pod;
    other.allocated = false;
    peer_do(&cluster.api, "POST", CLUSTER_PODS, text);
    lib_wait(other.allocated);
    cluster_wait_running(pod);
}
