/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/verbs_priv.h"

#include <stdlib.h>

#include "base/mem.h"

enum {
    KEEP_CANDIDATES = 1 << 16, /* the memory of larger lists is freed after the call */
    KEEP_BYTES = 4 << 20,
};

struct verbs *verbs_new(const struct verbs_config *config)
{
    struct verbs *v = xcalloc(1, sizeof *v);
    v->config = *config;
    v->rules = ledger_rules(ledger_settings(core_ledger(store_read(config->store))));
    store_read_end(config->store);
    pthread_mutex_init(&v->lock, NULL);
    return v;
}

static void work_free(struct verbs_work *w)
{
    arena_fini(&w->arena);
    verb_args_fini(&w->args);
    buf_fini(&w->failed);
    buf_fini(&w->never);
    score_scratch_fini(&w->scratch);
    free(w->nodes);
    free(w->points);
    free(w);
}

void verbs_free(struct verbs *v)
{
    if (!v)
        return;
    for (struct verbs_work *w = v->free, *next; w; w = next) {
        next = w->next;
        work_free(w);
    }
    pthread_mutex_destroy(&v->lock);
    free(v);
}

struct verbs_work *verbs_work_take(struct verbs *v)
{
    pthread_mutex_lock(&v->lock);
    struct verbs_work *w = v->free;
    if (w)
        v->free = w->next;
    pthread_mutex_unlock(&v->lock);
    return w ? w : xcalloc(1, sizeof *w);
}

void verbs_work_release(struct verbs *v, struct verbs_work *w)
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

unsigned verbs_reply_error(struct buf *reply, unsigned status, const struct err *err)
{
    buf_clear(reply);
    buf_adds(reply, "{\"Error\":");
    buf_add_json(reply, span_of(err->msg));
    buf_addc(reply, '}');
    return status;
}

unsigned verbs_begin(struct verbs *v, struct verbs_work *w, struct span body,
                     struct buf *reply, const struct core **core)
{
    struct err err;
    if (verb_args_read(&w->args, body, &v->rules, &w->arena, &err))
        return verbs_reply_error(reply, 400, &err);
    *core = store_read(v->config.store);
    if (core_ready(*core, store_now(), &err)) {
        store_read_end(v->config.store);
        return verbs_reply_error(reply, 503, &err);
    }
    return 200;
}

size_t verbs_find_nodes(const struct verb_args *args, size_t i, const struct ledger *l,
                        const struct ledger_node *nodes[MAP_BATCH])
{
    struct span names[MAP_BATCH];
    size_t n = args->n - i < MAP_BATCH ? args->n - i : MAP_BATCH;
    for (size_t k = 0; k < n; k++)
        names[k] = args->nodes[i + k].name;
    ledger_nodes_find(l, names, n, nodes);
    return n;
}
