/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e-node/between.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "e2e-node/node.h"
#include "e2e-node/played.h"
#include "e2e-node/standin.h"

static struct {
    struct kubelet kubelet;
    pthread_t thread;
    atomic_bool stopped;
    _Atomic(between_fn) fn;
    json_t *ids;    /* ids that the plugin has listed */
    json_t *forced; /* ids to allocate instead; NULL: those of the kubelet */
} between;

/* -- with a real kubelet -- */

static void prefer(struct standin_call *c)
{
    cleanup_answer struct kubelet_answer a = {0};
    between_fn fn = between.fn;
    json_decref(between.forced);
    between.forced = NULL;
    kubelet_prefer(&between.kubelet, MEM, c->size, &a);
    if (a.status != GRPC_OK) {
        standin_refuse(c, a.status, a.words);
        return;
    }
    if (fn)
        between.forced = fn(&between.kubelet, a.ids);
    standin_prefer(c, fn ? between.forced : a.ids);
}

static void allocate(struct standin_call *c)
{
    cleanup_answer struct kubelet_answer a = {0};
    kubelet_allocate(&between.kubelet, MEM, between.forced ? between.forced : c->ids, &a);
    if (a.status == GRPC_OK)
        standin_allocate(c, a.env);
    else
        standin_refuse(c, a.status, a.words);
}

static void *carry(void *arg)
{
    while (!between.stopped) {
        struct standin_call c;
        kubelet_serve(&between.kubelet);
        if (!standin_next(&c))
            continue;
        if (c.what == STANDIN_PREFER)
            prefer(&c);
        else
            allocate(&c);
    }
    return arg;
}

static json_t *listed(void)
{
    json_t *ids = json_array(), *healthy;
    const char *id;
    json_object_foreach(between.kubelet.plugins[MEM].devices, id, healthy)
        json_array_append_new(ids, json_string(id));
    return ids;
}

static void start(void)
{
    cleanup_free char *dir = temp_path(lib_dir, "plugins");
    node_stop_plugin();
    kubelet_start(&between.kubelet);
    node_start_plugin(ARGV("--plugin-dir", dir));
    kubelet_wait_registered(&between.kubelet, -1);
    between.ids = listed();
    standin_start(between.ids);
    lib_wait(node_allocatable() == NODE_UNITS);
    between.stopped = false;
    ck_assert_int_eq(pthread_create(&between.thread, NULL, carry, NULL), 0);
}

void between_start(void)
{
    if (node_is_real())
        start();
}

void between_meddle(between_fn fn)
{
    between.fn = fn;
    if (!node_is_real())
        played_meddle(fn);
}

void between_end(void)
{
    between_meddle(NULL);
    if (!node_is_real())
        return;
    between.stopped = true;
    pthread_join(between.thread, NULL);
    standin_stop();
    kubelet_fini(&between.kubelet);
    json_decref(between.ids);
    json_decref(between.forced);
}
