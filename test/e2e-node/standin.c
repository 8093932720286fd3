/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e-node/standin.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "e2e-node/node.h"
#include "kube/deviceplugin.h"
#include "wire/grpcc.h"
#include "wire/grpcd.h"

enum { WAITING = 8, REGISTER_MS = 20 * 1000 };

#define RESOURCE "aliyun.com/gpu-mem"
#define ENDPOINT "standin.sock"

static struct {
    struct grpcd *server;
    json_t *ids;
    pthread_mutex_t lock; /* protects the members below */
    struct standin_call waiting[WAITING];
    size_t n;
} standin = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* -- calls of the kubelet, in the server's thread -- */

static void on_options(void *ctx, struct grpcd_call *call, struct span request)
{
    struct dp_options options = {.preferred_allocation = true};
    cleanup_buf struct buf out = {0};
    (void)ctx;
    (void)request;
    ck_assert_int_eq(dp_options_encode(&options, &out, NULL), 0);
    grpcd_reply(call, &out);
}

static void on_watch(void *ctx, struct grpcd_call *call, struct span request)
{
    size_t n = json_array_size(standin.ids), i;
    cleanup_free struct dp_device *items = xcalloc(n, sizeof *items);
    cleanup_buf struct buf out = {0};
    json_t *id;
    (void)ctx;
    (void)request;
    json_array_foreach(standin.ids, i, id)
    {
        items[i] =
            (struct dp_device){.id = span_of(json_string_value(id)), .is_healthy = true};
    }
    ck_assert_int_eq(dp_devices_encode(&(struct dp_devices){items, n}, &out, NULL), 0);
    grpcd_send(call, &out);
}

/* The stream ends with the kubelet or with us. */
static void on_watch_over(void *ctx, struct grpcd_call *call)
{
    (void)ctx;
    grpcd_end(call, GRPC_UNAVAILABLE, "over");
}

static json_t *strings(const struct dp_ids *ids)
{
    json_t *all = json_array();
    for (size_t i = 0; i < ids->n; i++)
        json_array_append_new(all, json_stringn(ids->items[i].p, ids->items[i].n));
    return all;
}

static void keep(struct standin_call c)
{
    pthread_mutex_lock(&standin.lock);
    ck_assert_uint_lt(standin.n, WAITING);
    standin.waiting[standin.n++] = c;
    pthread_mutex_unlock(&standin.lock);
}

static void on_prefer(void *ctx, struct grpcd_call *call, struct span request)
{
    cleanup_arena struct arena a = {0};
    struct dp_preferences all;
    (void)ctx;
    ck_assert_int_eq(dp_preferences_decode(request, &a, &all, NULL), 0);
    ck_assert_uint_eq(all.n, 1);
    keep((struct standin_call){STANDIN_PREFER, strings(&all.items->available),
                               all.items->size, call});
}

static void on_allocate(void *ctx, struct grpcd_call *call, struct span request)
{
    cleanup_arena struct arena a = {0};
    struct dp_groups all;
    (void)ctx;
    ck_assert_int_eq(dp_groups_decode(request, &a, &all, NULL), 0);
    ck_assert_uint_eq(all.n, 1);
    keep((struct standin_call){STANDIN_ALLOCATE, strings(all.items), 0, call});
}

static const struct grpcd_method methods[] = {
    {DP_OPTIONS, false, on_options, NULL},
    {DP_WATCH, true, on_watch, on_watch_over},
    {DP_PREFERRED, false, on_prefer, NULL},
    {DP_ALLOCATE, false, on_allocate, NULL},
    {0},
};

/* -- the test's side -- */

void standin_register(void)
{
    struct dp_register r = {.version = SPAN(DP_VERSION),
                            .endpoint = SPAN(ENDPOINT),
                            .resource = SPAN(RESOURCE),
                            .options = {.preferred_allocation = true}};
    cleanup_free char *socket = xasprintf("%s/" DP_KUBELET_SOCK, node_plugin_dir());
    cleanup_buf struct buf message = {0}, reply = {0};
    struct err err = {0};
    ck_assert_done(dp_register_encode(&r, &message, &err), err);
    struct grpcc_request request = {.socket = socket,
                                    .method = DP_REGISTER,
                                    .message = buf_span(&message),
                                    .timeout_ms = REGISTER_MS};
    ck_assert_done(grpcc_call(&request, &reply, NULL, &err), err);
}

void standin_start(json_t *ids)
{
    cleanup_free char *path = xasprintf("%s/" ENDPOINT, node_plugin_dir());
    struct grpcd_config config = {.path = path, .methods = methods};
    struct err err = {0};
    standin.ids = ids;
    standin.server = grpcd_start(&config, &err);
    ck_assert_msg(standin.server != NULL, "%s", err.msg);
    standin_register();
}

void standin_stop(void)
{
    struct standin_call c;
    while (standin_next(&c))
        standin_refuse(&c, GRPC_UNAVAILABLE, "stopping");
    grpcd_stop(standin.server, 1000);
    grpcd_free(standin.server);
    standin.server = NULL;
}

bool standin_next(struct standin_call *c)
{
    pthread_mutex_lock(&standin.lock);
    bool there = standin.n > 0;
    if (there) {
        *c = standin.waiting[0];
        memmove(standin.waiting, standin.waiting + 1,
                --standin.n * sizeof *standin.waiting);
    }
    pthread_mutex_unlock(&standin.lock);
    if (!there)
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    return there;
}

static void forget(struct standin_call *c)
{
    json_decref(c->ids);
    *c = (struct standin_call){0};
}

void standin_prefer(struct standin_call *c, json_t *ids)
{
    size_t n = json_array_size(ids), i;
    cleanup_free struct span *spans = xcalloc(n, sizeof *spans);
    struct dp_ids one = {spans, n};
    cleanup_buf struct buf out = {0};
    struct err err = {0};
    json_t *id;
    json_array_foreach(ids, i, id) spans[i] = span_of(json_string_value(id));
    ck_assert_done(dp_groups_encode(&(struct dp_groups){&one, 1}, &out, &err), err);
    grpcd_reply(c->call, &out);
    forget(c);
}

void standin_allocate(struct standin_call *c, json_t *env)
{
    cleanup_free struct dp_entry *envs = xcalloc(json_object_size(env) + 1, sizeof *envs);
    struct dp_allocation one = {.envs = envs};
    cleanup_buf struct buf out = {0};
    struct err err = {0};
    const char *name;
    json_t *value;
    json_object_foreach(env, name, value) envs[one.n_envs++] =
        (struct dp_entry){span_of(name), span_of(json_string_value(value))};
    ck_assert_done(dp_allocations_encode(&(struct dp_allocations){&one, 1}, &out, &err),
                   err);
    grpcd_reply(c->call, &out);
    forget(c);
}

void standin_refuse(struct standin_call *c, enum grpc_status status, const char *words)
{
    grpcd_end(c->call, status, "%s", words);
    forget(c);
}
