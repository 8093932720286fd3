/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "plugin/brain_priv.h"

#include <stdio.h>

enum { STATE_MAX = 64 << 20 };

static void save(struct brain *b)
{
    cleanup_buf struct buf text = {0};
    struct err err;
    grants_write(&text, alloc_grants(b->alloc), span_of(b->node));
    if (file_write(b->settings.state, buf_span(&text), &err) == 0)
        return;
    log_error("state", "what was handed out could not be written down", LOG_ERR(&err));
    pthread_mutex_lock(&b->lock);
    b->stats.save_failed++;
    pthread_mutex_unlock(&b->lock);
}

/* What is damaged is put aside, and made up for by what the kubelet shows. */
void do_load(struct brain *b)
{
    cleanup_buf struct buf text = {0};
    struct grants found = {0};
    struct err err;
    int rc = file_read(b->settings.state, STATE_MAX, &text, &err);
    if (rc && err.code == ERR_NOT_FOUND)
        return;
    if (rc == 0)
        rc = grants_read(&found, buf_span(&text), span_of(b->node), &err);
    if (rc == 0) {
        alloc_adopt(b->alloc, &found);
        return;
    }
    cleanup_free char *aside = xasprintf("%s.damaged", b->settings.state);
    log_error("state", "the state file cannot be used; the kubelet is asked instead",
              LOG_S("file", b->settings.state), LOG_S("kept as", aside), LOG_ERR(&err));
    if (rename(b->settings.state, aside))
        log_warn("state", "it could not be put aside");
}

static void answer(struct brain *b, uint64_t token, struct buf *message,
                   const struct err *err)
{
    struct grpcd_call *call = calls_take(b, token);
    if (!call)
        return;
    if (err)
        grpcd_fail(call, err);
    else
        grpcd_reply(call, message);
}

static void answer_preferred(struct brain *b, const struct alloc_output *o)
{
    cleanup_buf struct buf message = {0};
    struct err err;
    int rc = endpoint_preferred(o->ids, o->n_ids, &message, &err);
    answer(b, o->token, &message, rc ? &err : NULL);
}

static void answer_granted(struct brain *b, const struct alloc_output *o)
{
    cleanup_buf struct buf message = {0};
    struct err err;
    int rc = endpoint_granted(o->response, &message, &err);
    answer(b, o->token, &message, rc ? &err : NULL);
}

static void answer_refused(struct brain *b, const struct alloc_output *o)
{
    struct grpcd_call *call = calls_take(b, o->token);
    if (call)
        grpcd_end(call, GRPC_FAILED_PRECONDITION, "gpushare (%s): %s",
                  alloc_refusal_name(o->refusal), o->text);
}

static void do_output(struct brain *b, const struct alloc_output *o)
{
    const struct brain_fns *fns = &b->settings.fns;
    cleanup_buf struct buf none = {0};
    switch (o->type) {
    case ALLOC_LIST:
        fns->look(fns->ctx, o->query, NULL, NULL);
        break;
    case ALLOC_GET:
        fns->look(fns->ctx, o->query, o->ns, o->name);
        break;
    case ALLOC_PREFERRED:
        answer_preferred(b, o);
        break;
    case ALLOC_GRANTED:
        answer_granted(b, o);
        break;
    case ALLOC_STARTED:
        answer(b, o->token, &none, NULL);
        break;
    case ALLOC_REFUSED:
        answer_refused(b, o);
        break;
    case ALLOC_SAVE:
        save(b);
        break;
    case ALLOC_PATCH:
        fns->patch(fns->ctx, o);
        break;
    case ALLOC_EVENT:
        fns->event(fns->ctx, o);
        break;
    case ALLOC_NEWS:
        fns->news(fns->ctx);
        break;
    case ALLOC_NOTE:
        LOG_AT(o->level, "alloc", o->text);
        break;
    }
}

void do_outputs(struct brain *b)
{
    for (size_t i = 0; i < b->out.n; i++)
        do_output(b, &b->out.items[i]);
    alloc_outputs_reset(&b->out);
}
