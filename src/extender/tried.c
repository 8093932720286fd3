/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/tried.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/rng.h"

struct tried_pod {
    struct list link;
    struct span uid; /* in this block */
    struct tried_nodes nodes;
    int64_t at_ms[TRIED_NODES]; /* of each answer */
};

struct tried {
    pthread_mutex_t lock; /* protects the members below */
    struct map pods_by_uid;
    struct list pods; /* the one with the oldest last answer first */
};

struct tried *tried_new(void)
{
    struct tried *t = xcalloc(1, sizeof *t);
    pthread_mutex_init(&t->lock, NULL);
    map_init(&t->pods_by_uid, rng_entropy(), offsetof(struct tried_pod, uid));
    list_init(&t->pods);
    return t;
}

static void drop(struct tried *t, struct tried_pod *pod)
{
    list_remove(&pod->link);
    map_remove(&t->pods_by_uid, pod->uid);
    free(pod);
}

void tried_free(struct tried *t)
{
    if (!t)
        return;
    LIST_EACH(struct tried_pod, pod, &t->pods, link)
    drop(t, pod);
    map_fini(&t->pods_by_uid);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

static uint64_t name_hash(struct span node)
{
    return hash_bytes(0, node.p, node.n);
}

static void remove_at(struct tried_pod *pod, size_t i)
{
    size_t n = pod->nodes.n;
    ARRAY_REMOVE(pod->at_ms, n, i);
    ARRAY_REMOVE(pod->nodes.node, pod->nodes.n, i);
}

void tried_get(struct tried *t, struct span uid, int64_t now_ms, struct tried_nodes *out)
{
    out->n = 0;
    pthread_mutex_lock(&t->lock);
    struct tried_pod *pod = map_get(&t->pods_by_uid, uid);
    while (pod && pod->nodes.n && pod->at_ms[0] <= now_ms - TRIED_MS)
        remove_at(pod, 0);
    if (pod)
        *out = pod->nodes;
    pthread_mutex_unlock(&t->lock);
}

void tried_add(struct tried *t, struct span uid, struct span node, int64_t now_ms)
{
    if (!uid.n)
        return;
    pthread_mutex_lock(&t->lock);
    struct tried_pod *pod = map_get(&t->pods_by_uid, uid);
    if (pod) {
        list_remove(&pod->link);
    } else {
        if (t->pods_by_uid.n >= TRIED_PODS)
            drop(t, LIST_FIRST(&t->pods, struct tried_pod, link));
        pod = xcalloc(1, sizeof *pod + uid.n);
        pod->uid = (struct span){memcpy(pod + 1, uid.p, uid.n), uid.n};
        map_set(&t->pods_by_uid, pod);
    }
    list_append(&t->pods, &pod->link);
    size_t i = tried_find(&pod->nodes, node);
    if (i < pod->nodes.n || pod->nodes.n == TRIED_NODES)
        remove_at(pod, i < pod->nodes.n ? i : 0);
    pod->at_ms[pod->nodes.n] = now_ms;
    pod->nodes.node[pod->nodes.n++] = name_hash(node);
    pthread_mutex_unlock(&t->lock);
}

void tried_forget(struct tried *t, struct span uid)
{
    pthread_mutex_lock(&t->lock);
    struct tried_pod *pod = map_get(&t->pods_by_uid, uid);
    if (pod)
        drop(t, pod);
    pthread_mutex_unlock(&t->lock);
}

size_t tried_find(const struct tried_nodes *nodes, struct span node)
{
    uint64_t hash = nodes->n ? name_hash(node) : 0;
    size_t i = 0;
    while (i < nodes->n && nodes->node[i] != hash)
        i++;
    return i;
}
