/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/file.h"
#include "base/mem.h"
#include "node/checkpoint.h"
#include "plugin/dispatcher_priv.h"

enum {
    STATE_MAX = 64 << 20,
    LIMITS_MS = 3 * 1000, /* time between two checks of the files of the limits */
};

static void save(struct dispatcher *d)
{
    cleanup_buf struct buf text = {0};
    struct err err;
    checkpoint_write(&text, alloc_allocations(d->alloc), span_of(d->node));
    if (file_write(d->settings.state, buf_span(&text), &err) == 0)
        return;
    log_error("state", "cannot save the allocation state; it is kept in memory",
              LOG_ERR(&err));
    pthread_mutex_lock(&d->lock);
    d->stats.save_failed++;
    pthread_mutex_unlock(&d->lock);
}

/* An invalid file is renamed; its content is recovered from the kubelet's view. */
void dispatcher_output_load(struct dispatcher *d)
{
    cleanup_buf struct buf text = {0};
    struct allocation_set found = {0};
    struct err err;
    int rc = file_read(d->settings.state, STATE_MAX, &text, &err);
    if (rc && err.code == ERR_NOT_FOUND)
        return;
    if (rc == 0)
        rc = checkpoint_read(&found, buf_span(&text), span_of(d->node), &err);
    if (rc == 0) {
        alloc_restore(d->alloc, &found);
        return;
    }
    cleanup_free char *aside = xasprintf("%s.damaged", d->settings.state);
    log_error("state",
              "cannot use the state file; recovering from the kubelet's podresources",
              LOG_S("file", d->settings.state), LOG_S("to", aside), LOG_ERR(&err));
    if (rename(d->settings.state, aside))
        log_warn("state", "cannot rename the state file",
                 LOG_S("file", d->settings.state));
}

static void answer(struct dispatcher *d, uint64_t token, struct buf *message,
                   const struct err *err)
{
    struct grpcd_call *call = dispatcher_calls_take(d, token);
    if (!call)
        return;
    if (err)
        grpcd_fail(call, err);
    else
        grpcd_reply(call, message);
}

static void answer_preferred(struct dispatcher *d, const struct alloc_output *o)
{
    cleanup_buf struct buf message = {0};
    struct err err;
    int rc = endpoint_preferred(o->ids, o->n_ids, &message, &err);
    answer(d, o->token, &message, rc ? &err : NULL);
}

/* Without its files the library does not limit, and a container starts nevertheless. */
static void drop_limit(struct dispatcher *d, const struct alloc_output *o,
                       struct response *r, const struct err *err)
{
    r->n_envs -= r->n_limit_envs;
    r->n_mounts -= r->n_limit_mounts;
    log_error("limit", "cannot write the limits of a pod; it starts without them",
              LOG_S("namespace", o->ns), LOG_S("pod", o->name), LOG_ERR(err));
    cleanup_free char *text =
        xasprintf("its containers have no limit on this node: %s", err->msg);
    const struct alloc_output event = {.type = ALLOC_EVENT,
                                       .ns = o->ns,
                                       .name = o->name,
                                       .uid = o->uid,
                                       .reason = "GPUIsolationFailed",
                                       .text = text};
    d->settings.callbacks.event(d->settings.callbacks.ctx, &event);
}

static void count_limit(struct dispatcher *d, bool failed)
{
    pthread_mutex_lock(&d->lock);
    ++*(failed ? &d->stats.limit_failed : &d->stats.limited);
    pthread_mutex_unlock(&d->lock);
}

static void answer_allocated(struct dispatcher *d, const struct alloc_output *o)
{
    cleanup_buf struct buf message = {0};
    struct response r = *o->response;
    struct err err;
    if (r.limit) {
        int failed = limit_dir_write(d->settings.alloc.response.limit_dir, r.limit, &err);
        if (failed)
            drop_limit(d, o, &r, &err);
        count_limit(d, failed);
    }
    int rc = endpoint_allocated(&r, &message, &err);
    answer(d, o->token, &message, rc ? &err : NULL);
}

static void change_limit(struct dispatcher *d, const struct alloc_output *o)
{
    const char *dir = d->settings.alloc.response.limit_dir;
    struct err err;
    if (limit_dir_has(dir, o->response->limit->uid) &&
        limit_dir_write(dir, o->response->limit, &err))
        log_error("limit", "cannot change the limits of a pod", LOG_S("namespace", o->ns),
                  LOG_S("pod", o->name), LOG_ERR(&err));
}

static void answer_rejected(struct dispatcher *d, const struct alloc_output *o)
{
    struct grpcd_call *call = dispatcher_calls_take(d, o->token);
    if (call)
        grpcd_end(call, GRPC_FAILED_PRECONDITION, "gpushare (%s): %s",
                  alloc_rejection_name(o->rejection), o->text);
}

static void do_output(struct dispatcher *d, const struct alloc_output *o)
{
    const struct dispatcher_callbacks *callbacks = &d->settings.callbacks;
    cleanup_buf struct buf none = {0};
    switch (o->type) {
    case ALLOC_LIST:
        callbacks->query_pods(callbacks->ctx, o->query, NULL, NULL);
        break;
    case ALLOC_GET:
        callbacks->query_pods(callbacks->ctx, o->query, o->ns, o->name);
        break;
    case ALLOC_PREFERRED:
        answer_preferred(d, o);
        break;
    case ALLOC_ALLOCATED:
        answer_allocated(d, o);
        break;
    case ALLOC_LIMIT:
        change_limit(d, o);
        break;
    case ALLOC_START:
        answer(d, o->token, &none, NULL);
        break;
    case ALLOC_REJECTED:
        answer_rejected(d, o);
        break;
    case ALLOC_SAVE:
        save(d);
        break;
    case ALLOC_PATCH:
        callbacks->patch(callbacks->ctx, o);
        break;
    case ALLOC_EVENT:
        callbacks->event(callbacks->ctx, o);
        break;
    case ALLOC_RELIST:
        callbacks->relist(callbacks->ctx);
        break;
    case ALLOC_LOG:
        LOG_AT(o->level, "allocator", o->text);
        break;
    }
}

static bool is_known(void *ctx, const char *uid)
{
    const struct dispatcher *d = ctx;
    return alloc_has_pod(d->alloc, span_of(uid));
}

static void on_unlimited(void *ctx, const char *uid, uint32_t bits)
{
    struct dispatcher *d = ctx;
    cleanup_free char *why =
        xasprintf("a program of the pod ran without the limit of its GPU memory (reason "
                  "0x%x, include/limit/state.h)",
                  bits);
    alloc_isolation_failed(d->alloc, span_of(uid), why, &d->out);
}

void dispatcher_output_check_limits(struct dispatcher *d, int64_t now_ms)
{
    const struct limit_dir_sink sink = {is_known, on_unlimited, d};
    const char *dir = d->settings.alloc.response.limit_dir;
    if (!dir || now_ms < d->limits_due_ms || !alloc_pods_listed(d->alloc))
        return;
    d->limits_due_ms = now_ms + LIMITS_MS;
    limit_dir_check(dir, &sink);
}

void dispatcher_output_run(struct dispatcher *d)
{
    for (size_t i = 0; i < d->out.n; i++)
        do_output(d, &d->out.items[i]);
    alloc_outputs_reset(&d->out);
}
