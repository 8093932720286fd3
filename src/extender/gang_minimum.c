/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/gang_minimum.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"

enum { LOG_MS = 60 * 1000 };

struct answer {
    struct span key; /* gang_key; owned; empty: unused */
    uint32_t minimum;
    int64_t until_ms;
};

struct gang_minimum {
    struct pod_group_reader from;
    pthread_mutex_t lock; /* protects the members below */
    struct answer kept[GANG_MINIMUM_KEPT];
    int64_t read_ms[GANG_KINDS]; /* objects of that kind: not before */
    int64_t log_ms;              /* not before */
};

struct gang_minimum *gang_minimum_new(const struct pod_group_reader *from)
{
    struct gang_minimum *g = xcalloc(1, sizeof *g);
    g->from = *from;
    pthread_mutex_init(&g->lock, NULL);
    return g;
}

void gang_minimum_free(struct gang_minimum *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < GANG_MINIMUM_KEPT; i++)
        free((char *)g->kept[i].key.p);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

/* Requires the lock. */
static struct answer *find(struct gang_minimum *g, struct span key)
{
    for (size_t i = 0; i < GANG_MINIMUM_KEPT; i++)
        if (span_eq(g->kept[i].key, key))
            return &g->kept[i];
    return NULL;
}

/* Requires the lock. The answer that expired longest ago, or will expire first. */
static struct answer *oldest(struct gang_minimum *g)
{
    struct answer *a = &g->kept[0];
    for (size_t i = 1; i < GANG_MINIMUM_KEPT; i++)
        if (g->kept[i].until_ms < a->until_ms)
            a = &g->kept[i];
    return a;
}

/* *minimum gets the last answer, or stays. False: the object is to be read. */
static bool recall(struct gang_minimum *g, enum gang_kind kind, struct span key,
                   uint32_t *minimum)
{
    pthread_mutex_lock(&g->lock);
    int64_t now_ms = g->from.now_ms();
    const struct answer *a = find(g, key);
    bool enough = now_ms < g->read_ms[kind] || (a && a->until_ms > now_ms);
    if (a)
        *minimum = a->minimum;
    pthread_mutex_unlock(&g->lock);
    return enough;
}

static void keep(struct gang_minimum *g, struct span key, uint32_t minimum)
{
    pthread_mutex_lock(&g->lock);
    struct answer *a = find(g, key);
    if (!a) {
        a = oldest(g);
        free((char *)a->key.p);
        a->key = (struct span){xmemdup0(key.p, key.n), key.n};
    }
    a->minimum = minimum;
    a->until_ms = g->from.now_ms() + GANG_MINIMUM_KEEP_MS;
    pthread_mutex_unlock(&g->lock);
}

static void pause_reads(struct gang_minimum *g, enum gang_kind kind)
{
    pthread_mutex_lock(&g->lock);
    g->read_ms[kind] = g->from.now_ms() + GANG_MINIMUM_PAUSE_MS;
    pthread_mutex_unlock(&g->lock);
}

/* A missing permission fails every call. */
static bool may_log(struct gang_minimum *g)
{
    pthread_mutex_lock(&g->lock);
    int64_t now_ms = g->from.now_ms();
    bool may = now_ms >= g->log_ms;
    if (may)
        g->log_ms = now_ms + LOG_MS;
    pthread_mutex_unlock(&g->lock);
    return may;
}

/* An object that cannot be read leaves *minimum as it is. -1: the API server is not
 * available. */
static int read_object(struct gang_minimum *g, struct span ns, const struct gang *gang,
                       uint32_t *minimum)
{
    struct err err;
    if (pod_group_read(&g->from, ns, gang, GANG_MINIMUM_CALL_MS, minimum, &err) == 0)
        return 0;
    if (may_log(g))
        log_warn(
            "gang",
            "cannot read the minimum of a gang; all members need a place, or as many "
            "as before",
            LOG_ERR(&err));
    return err.code == ERR_TIMEOUT || err.code == ERR_UNAVAILABLE ? -1 : 0;
}

uint32_t gang_minimum_of(struct gang_minimum *g, struct span ns, const struct gang *gang)
{
    cleanup_buf struct buf key = {0};
    uint32_t minimum = 0;
    gang_key(&key, ns, gang);
    if (recall(g, gang->kind, buf_span(&key), &minimum))
        return minimum;
    if (read_object(g, ns, gang, &minimum) == 0)
        keep(g, buf_span(&key), minimum);
    else
        pause_reads(g, gang->kind);
    return minimum;
}
