/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/file.h"
#include "base/mem.h"
#include "plugin/checkpoint.h"
#include "plugin/dispatcher_priv.h"

enum { STATE_MAX = 64 << 20 };

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

static void answer_allocated(struct dispatcher *d, const struct alloc_output *o)
{
    cleanup_buf struct buf message = {0};
    struct err err;
    int rc = endpoint_allocated(o->response, &message, &err);
    answer(d, o->token, &message, rc ? &err : NULL);
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

void dispatcher_output_run(struct dispatcher *d)
{
    for (size_t i = 0; i < d->out.n; i++)
        do_output(d, &d->out.items[i]);
    alloc_outputs_reset(&d->out);
}
