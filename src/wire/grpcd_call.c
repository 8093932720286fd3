/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>

#include "base/mem.h"
#include "wire/grpcd_priv.h"

struct grpcd_call *grpcd_call_new(struct grpcd_stream *s)
{
    struct grpcd *d = s->conn->d;
    struct grpcd_call *call = xcalloc(1, sizeof *call);
    call->d = d;
    call->stream = s;
    call->method = s->method;
    call->refs = 2;
    call->deadline_ms = s->deadline_ms;
    pthread_mutex_lock(&d->lock);
    d->refs++;
    d->stats.started++;
    pthread_mutex_unlock(&d->lock);
    return call;
}

/* Releases a reference, and the lock. */
static void unref_locked(struct grpcd_call *call)
{
    struct grpcd *d = call->d;
    if (--call->refs) {
        pthread_mutex_unlock(&d->lock);
        return;
    }
    buf_fini(&call->next);
    buf_fini(&call->why);
    free(call);
    grpcd_unref_locked(d);
}

/* Queues the call for the server's thread, unless its stream is gone. The lock is held.
 */
static void enqueue(struct grpcd_call *call)
{
    struct grpcd *d = call->d;
    if (call->is_cancelled || call->is_dirty)
        return;
    call->is_dirty = true;
    call->refs++;
    call->next_dirty = d->dirty;
    d->dirty = call;
    grpcd_wake_locked(d);
}

static void put_message(struct grpcd_call *call, struct buf *message)
{
    buf_fini(&call->next);
    call->next = *message;
    call->has_next = true;
    *message = (struct buf){0};
    enqueue(call);
}

void grpcd_send(struct grpcd_call *call, struct buf *message)
{
    assert(call->method->stream);
    pthread_mutex_lock(&call->d->lock);
    put_message(call, message);
    pthread_mutex_unlock(&call->d->lock);
}

static void end_locked(struct grpcd_call *call, enum grpc_status status)
{
    call->is_ended = true;
    call->status = status;
    enqueue(call);
    unref_locked(call);
}

void grpcd_reply(struct grpcd_call *call, struct buf *message)
{
    pthread_mutex_lock(&call->d->lock);
    put_message(call, message);
    end_locked(call, GRPC_OK);
}

void grpcd_end(struct grpcd_call *call, enum grpc_status status, const char *fmt, ...)
{
    struct buf why = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&why, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&call->d->lock);
    call->why = why;
    end_locked(call, status);
}

void grpcd_fail(struct grpcd_call *call, const struct err *why)
{
    grpcd_end(call, grpc_status_of(why->code), "%s", why->msg);
}

bool grpcd_is_cancelled(struct grpcd_call *call)
{
    pthread_mutex_lock(&call->d->lock);
    bool is_cancelled = call->is_cancelled;
    pthread_mutex_unlock(&call->d->lock);
    return is_cancelled;
}

int64_t grpcd_deadline_ms(const struct grpcd_call *call)
{
    return call->deadline_ms;
}

void grpcd_call_detach(struct grpcd_call *call, bool cancel)
{
    struct grpcd *d = call->d;
    call->stream = NULL;
    pthread_mutex_lock(&d->lock);
    call->is_cancelled = true;
    cancel = cancel && !call->is_ended && call->method->on_cancel;
    pthread_mutex_unlock(&d->lock);
    if (cancel)
        call->method->on_cancel(d->ctx, call);
    pthread_mutex_lock(&d->lock);
    unref_locked(call);
}

/* Moves the output of one call to its stream. The lock is held on entry and return, but
 * released in between. */
static void flush_call(struct grpcd_call *call, int64_t now_ms)
{
    struct buf message = call->next, why = call->why;
    bool has_message = call->has_next, is_ended = call->is_ended;
    enum grpc_status status = call->status;
    call->next = call->why = (struct buf){0};
    call->has_next = call->is_dirty = false;
    pthread_mutex_unlock(&call->d->lock);

    struct grpcd_stream *s = call->stream;
    if (s)
        s->conn->now_ms = now_ms;
    if (s && has_message)
        grpcd_stream_message(s, &message);
    if (s && is_ended) {
        s->call = NULL;
        grpcd_call_detach(call, false);
        grpcd_stream_end(s, status, &why);
    }
    buf_fini(&message);
    buf_fini(&why);
    pthread_mutex_lock(&call->d->lock);
}

void grpcd_call_flush(struct grpcd *d, int64_t now_ms)
{
    pthread_mutex_lock(&d->lock);
    struct grpcd_call *next = d->dirty;
    d->dirty = NULL;
    while (next) {
        struct grpcd_call *call = next;
        next = call->next_dirty;
        flush_call(call, now_ms);
        unref_locked(call);
        pthread_mutex_lock(&d->lock);
    }
    pthread_mutex_unlock(&d->lock);
}
