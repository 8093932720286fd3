/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/mem.h"
#include "plugin/brain_priv.h"

/* Returns the token by which the call is known from now on. (What a stream asks for is of
 * no interest.) */
static uint64_t keep(struct brain *b, struct grpcd_call *call, enum alloc_ask_type type)
{
    pthread_mutex_lock(&b->lock);
    MEM_GROW(b->kept, b->cap_kept, b->n_kept + 1);
    uint64_t token = ++b->tokens;
    b->kept[b->n_kept++] = (struct kept){
        .call = call, .token = token, .type = type, .began_us = clock_mono_us()};
    pthread_mutex_unlock(&b->lock);
    return token;
}

static void on_stream(void *ctx, enum ids_resource r, struct grpcd_call *call)
{
    struct brain *b = ctx;
    struct brain_msg *m = brain_msg_new(BRAIN_STREAM);
    m->resource = r;
    m->token = keep(b, call, ALLOC_ASKS);
    brain_tell(b, m);
}

static void on_ask(void *ctx, struct grpcd_call *call, const struct alloc_ask *ask,
                   struct arena *arena)
{
    struct brain *b = ctx;
    struct brain_msg *m = brain_msg_new(BRAIN_ASK);
    m->arena = *arena;
    m->ask = *ask;
    m->ask.token = m->token = keep(b, call, ask->type);
    brain_tell(b, m);
}

static void on_over(void *ctx, struct grpcd_call *call)
{
    struct brain *b = ctx;
    uint64_t token = 0;
    pthread_mutex_lock(&b->lock);
    for (size_t i = 0; i < b->n_kept; i++)
        if (b->kept[i].call == call)
            token = b->kept[i].token;
    pthread_mutex_unlock(&b->lock);
    if (!token)
        return;
    struct brain_msg *m = brain_msg_new(BRAIN_CANCEL);
    m->token = token;
    brain_tell(b, m);
}

struct endpoint_fns calls_fns(struct brain *b)
{
    return (struct endpoint_fns){on_stream, on_ask, on_over, b};
}

struct grpcd_call *calls_take(struct brain *b, uint64_t token)
{
    struct grpcd_call *call = NULL;
    pthread_mutex_lock(&b->lock);
    for (size_t i = 0; i < b->n_kept && !call; i++) {
        if (b->kept[i].token != token)
            continue;
        call = b->kept[i].call;
        int64_t us = clock_mono_us() - b->kept[i].began_us;
        if (!b->kept[i].stream && us >= 0) {
            struct brain_calls *calls = &b->stats.calls[b->kept[i].type];
            calls->n++;
            calls->sum_us += (uint64_t)us;
            if ((uint64_t)us > calls->max_us)
                calls->max_us = (uint64_t)us;
        }
        b->kept[i] = b->kept[--b->n_kept];
    }
    pthread_mutex_unlock(&b->lock);
    return call;
}
