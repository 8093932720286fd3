/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/verbs_priv.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/mem.h"

enum {
    KEEP_CANDIDATES = 1 << 16, /* a larger list is given back after the call */
    KEEP_BYTES = 4 << 20,
};

struct verbs {
    struct store *store;
    struct request_rules rules;
    enum score_policy policy;
    struct forward *forward;
    struct tally *tally;
    struct recorder *recorder;
    pthread_mutex_t lock; /* protects free */
    struct work *free;
};

struct verbs *verbs_new(struct store *store, enum score_policy policy)
{
    struct verbs *v = xcalloc(1, sizeof *v);
    v->store = store;
    v->rules = ledger_rules(ledger_settings(core_ledger(store_read(store))));
    v->policy = policy;
    store_read_end(store);
    pthread_mutex_init(&v->lock, NULL);
    return v;
}

static void work_free(struct work *w)
{
    arena_fini(&w->arena);
    extender_args_fini(&w->args);
    buf_fini(&w->failed);
    buf_fini(&w->never);
    score_scratch_fini(&w->room);
    free(w->nodes);
    free(w->points);
    free(w);
}

void verbs_free(struct verbs *v)
{
    if (!v)
        return;
    for (struct work *w = v->free, *next; w; w = next) {
        next = w->next;
        work_free(w);
    }
    pthread_mutex_destroy(&v->lock);
    free(v);
}

void verbs_forward_by(struct verbs *v, struct forward *forward)
{
    v->forward = forward;
}

struct forward *verbs_forward(const struct verbs *v)
{
    return v->forward;
}

void verbs_tell(struct verbs *v, struct tally *tally, struct recorder *recorder)
{
    v->tally = tally;
    v->recorder = recorder;
}

struct tally *verbs_tally(const struct verbs *v)
{
    return v->tally;
}

struct recorder *verbs_recorder(const struct verbs *v)
{
    return v->recorder;
}

struct store *verbs_store(struct verbs *v)
{
    return v->store;
}

const struct request_rules *verbs_rules(const struct verbs *v)
{
    return &v->rules;
}

enum score_policy verbs_policy(const struct verbs *v)
{
    return v->policy;
}

struct work *work_take(struct verbs *v)
{
    pthread_mutex_lock(&v->lock);
    struct work *w = v->free;
    if (w)
        v->free = w->next;
    pthread_mutex_unlock(&v->lock);
    return w ? w : xcalloc(1, sizeof *w);
}

void work_give(struct verbs *v, struct work *w)
{
    if (w->args.cap > KEEP_CANDIDATES || w->failed.cap > KEEP_BYTES ||
        w->never.cap > KEEP_BYTES || arena_bytes(&w->arena) > KEEP_BYTES) {
        work_free(w);
        return;
    }
    arena_reset(&w->arena);
    buf_clear(&w->failed);
    buf_clear(&w->never);
    pthread_mutex_lock(&v->lock);
    w->next = v->free;
    v->free = w;
    pthread_mutex_unlock(&v->lock);
}

unsigned reply_error(struct buf *reply, unsigned status, const struct err *err)
{
    buf_clear(reply);
    buf_adds(reply, "{\"Error\":");
    buf_add_json(reply, span_of(err->msg));
    buf_addc(reply, '}');
    return status;
}

unsigned verb_begin(struct verbs *v, struct work *w, struct span body, struct buf *reply,
                    const struct core **core)
{
    struct err err;
    if (extender_args_read(&w->args, body, &v->rules, &w->arena, &err))
        return reply_error(reply, 400, &err);
    *core = store_read(v->store);
    if (core_ready(*core, store_now(), &err)) {
        store_read_end(v->store);
        return reply_error(reply, 503, &err);
    }
    return 200;
}

size_t candidates_find(const struct extender_args *args, size_t i, const struct ledger *l,
                       const struct ledger_node *nodes[MAP_BATCH])
{
    struct span names[MAP_BATCH];
    size_t n = args->n - i < MAP_BATCH ? args->n - i : MAP_BATCH;
    for (size_t k = 0; k < n; k++)
        names[k] = args->nodes[i + k].name;
    ledger_nodes_find(l, names, n, nodes);
    return n;
}
