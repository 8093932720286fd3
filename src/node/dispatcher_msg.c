/* SPDX-License-Identifier: Apache-2.0 */

#include "node/dispatcher_msg.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/thread.h"

struct dispatcher_msg *dispatcher_msg_new(enum dispatcher_msg_kind kind)
{
    struct dispatcher_msg *m = xcalloc(1, sizeof *m);
    m->kind = kind;
    return m;
}

struct dispatcher_msg *dispatcher_msg_input(enum alloc_input_type type)
{
    struct dispatcher_msg *m = dispatcher_msg_new(DISPATCHER_INPUT);
    m->in.type = type;
    return m;
}

/* A call must be ended even if the kubelet has closed it. */
void dispatcher_msg_free(struct dispatcher_msg *m)
{
    if (m->call)
        grpcd_end(m->call, GRPC_UNAVAILABLE, "the device plugin is stopping");
    pod_allocation_free(m->in.pod);
    driver_view_free(m->in.driver);
    arena_fini(&m->arena);
    free(m);
}

void dispatcher_msg_free_all(struct list *msgs)
{
    LIST_EACH(struct dispatcher_msg, m, msgs, link)
    {
        list_remove(&m->link);
        dispatcher_msg_free(m);
    }
}

void dispatcher_msg_queue_init(struct dispatcher_msg_queue *q)
{
    list_init(&q->msgs);
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->cond, NULL);
}

void dispatcher_msg_queue_fini(struct dispatcher_msg_queue *q)
{
    dispatcher_msg_free_all(&q->msgs);
    pthread_cond_destroy(&q->cond);
    pthread_mutex_destroy(&q->lock);
}

void dispatcher_msg_post(struct dispatcher_msg_queue *q, struct dispatcher_msg *m)
{
    pthread_mutex_lock(&q->lock);
    list_append(&q->msgs, &m->link);
    pthread_cond_signal(&q->cond);
    pthread_mutex_unlock(&q->lock);
}

void dispatcher_msg_unlimited(struct dispatcher_msg_queue *q, const char *uid,
                              const char *why)
{
    struct dispatcher_msg *m = dispatcher_msg_input(ALLOC_IN_UNLIMITED);
    m->in.uid = arena_copy(&m->arena, span_of(uid));
    m->in.text = arena_copy(&m->arena, span_of(why)).p;
    dispatcher_msg_post(q, m);
}

struct dispatcher_msg *dispatcher_msg_next(struct dispatcher_msg_queue *q,
                                           int64_t until_ms)
{
    pthread_mutex_lock(&q->lock);
    if (list_is_empty(&q->msgs))
        thread_wait_until(&q->cond, &q->lock, until_ms);
    struct dispatcher_msg *m = LIST_FIRST(&q->msgs, struct dispatcher_msg, link);
    if (m)
        list_remove(&m->link);
    pthread_mutex_unlock(&q->lock);
    return m;
}
