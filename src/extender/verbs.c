/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/verbs_priv.h"

#include <stdlib.h>

#include "base/mem.h"

/* Scratch memory that is kept after a call: that of one call, if no other is kept; else of all
 * together. */
enum { KEEP_BYTES = 4 << 20, KEEP_ALL_BYTES = 2 << 20 };

enum { REPORT_MS = 1000 }; /* to report a rejected pod to the leader */

struct verbs *verbs_new(const struct verbs_config *config)
{
    struct verbs *v = xcalloc(1, sizeof *v);
    v->config = *config;
    v->rules = ledger_rules(ledger_settings(core_ledger(store_read(config->store))));
    store_read_end(config->store);
    pthread_mutex_init(&v->lock, NULL);
    if (config->preempts && config->forward)
        v->report = verb_report_start(config->forward, config->budget, REPORT_MS);
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
    free(w->fitting);
    free(w);
}

void verbs_free(struct verbs *v)
{
    if (!v)
        return;
    verb_report_free(v->report);
    for (struct verbs_work *w = v->free, *next; w; w = next) {
        next = w->next;
        work_free(w);
    }
    pthread_mutex_destroy(&v->lock);
    free(v);
}

static size_t work_bytes(const struct verbs_work *w)
{
    return w->args.cap * sizeof *w->args.nodes + w->failed.cap + w->never.cap +
           w->nodes_cap * sizeof *w->nodes + w->points_cap * sizeof *w->points +
           w->fitting_cap * sizeof *w->fitting +
           w->scratch.cap * sizeof *w->scratch.values + arena_bytes(&w->arena);
}

struct verbs_work *verbs_work_take(struct verbs *v)
{
    pthread_mutex_lock(&v->lock);
    struct verbs_work *w = v->free;
    if (w) {
        v->free = w->next;
        v->kept_bytes -= work_bytes(w);
    }
    pthread_mutex_unlock(&v->lock);
    return w ? w : xcalloc(1, sizeof *w);
}

void verbs_work_release(struct verbs *v, struct verbs_work *w)
{
    size_t bytes = work_bytes(w);
    budget_give(v->config.budget, w->charged + w->charged_pod);
    w->charged = w->charged_pod = 0;
    arena_reset(&w->arena);
    buf_clear(&w->failed);
    buf_clear(&w->never);
    pthread_mutex_lock(&v->lock);
    bool keep =
        bytes <= KEEP_BYTES && (!v->free || v->kept_bytes + bytes <= KEEP_ALL_BYTES);
    if (keep) {
        v->kept_bytes += bytes;
        w->next = v->free;
        v->free = w;
    }
    pthread_mutex_unlock(&v->lock);
    if (!keep)
        work_free(w);
}

unsigned verbs_reply_error(struct buf *reply, unsigned status, const struct err *err)
{
    buf_clear(reply);
    buf_adds(reply, "{\"Error\":");
    buf_add_json(reply, span_of(err->msg));
    buf_addc(reply, '}');
    if (status)
        return status;
    return err->code == ERR_INVALID ? 400 : err_http_status(err->code);
}

int verbs_limits(struct verbs *v, struct verb_args_limits *limits, struct err *err)
{
    const struct core *core = store_read(v->config.store);
    int rc = core_ready(core, store_now(), err);
    size_t known = ledger_node_count(core_ledger(core));
    store_read_end(v->config.store);
    *limits = verb_args_limits_of(known, v->config.budget);
    return rc;
}

unsigned verbs_begin(struct verbs *v, struct verbs_work *w, struct span body,
                     struct buf *reply)
{
    struct err err, not_ready;
    struct verb_args_limits limits;
    bool ready = verbs_limits(v, &limits, &not_ready) == 0;
    bool read = verb_args_read(&w->args, body, &v->rules, &limits, &w->arena,
                               &w->charged_pod, &err) == 0;
    if (!read && (ready || err.code == ERR_INVALID))
        return verbs_reply_error(reply, 0, &err);
    if (!ready) /* also if there are more nodes than were listed so far */
        return verbs_reply_error(reply, 503, &not_ready);
    return verbs_charge(v, w, reply, 0);
}

unsigned verbs_charge(struct verbs *v, struct verbs_work *w, struct buf *reply,
                      size_t more)
{
    struct err err;
    if (budget_change(v->config.budget, &w->charged, work_bytes(w) + reply->cap + more))
        return 200;
    buf_fini(reply);
    err_set(&err, ERR_UNAVAILABLE, "too many bytes of requests and replies in memory");
    return verbs_reply_error(reply, 503, &err);
}

size_t verbs_find_nodes(const struct verb_args *args, size_t i, size_t end,
                        const struct ledger *l,
                        const struct ledger_node *nodes[MAP_BATCH])
{
    struct span names[MAP_BATCH];
    size_t n = end - i < MAP_BATCH ? end - i : MAP_BATCH;
    for (size_t k = 0; k < n; k++)
        names[k] = args->nodes[i + k].name;
    ledger_nodes_find(l, names, n, nodes);
    return n;
}
