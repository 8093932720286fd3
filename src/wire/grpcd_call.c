/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A call in the server: the request, the handle by which a handler responds from any
 * thread, and the response.
 *
 * The call has two owners: its HTTP/2 stream, on the server's thread, and the handler's
 * handle. The last one frees it.
 */

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "wire/grpc_priv.h"
#include "wire/grpcd.h"

enum { WHY_MAX = 512 }; /* bytes of grpc-message */

void grpcd_call_new(struct grpcd_conn *c, int32_t id)
{
    struct grpcd_call *call = xcalloc(1, sizeof *call);
    call->d = c->d;
    call->conn = c;
    call->id = id;
    call->request_until_ms = c->now_ms + c->d->request_ms;
    call->until_ms = INT64_MAX;
    call->has_stream = true;
    call->next = c->calls;
    call->link = &c->calls;
    if (call->next)
        call->next->link = &call->next;
    c->calls = call;
    nghttp2_session_set_stream_user_data(c->session, id, call);
}

static void free_call(struct grpcd_call *call)
{
    buf_fini(&call->in);
    buf_fini(&call->sending);
    buf_fini(&call->posted);
    buf_fini(&call->why);
    free(call);
}

/* -- The handler's side, from any thread -- */

static void post_locked(struct grpcd_call *call, struct buf *message)
{
    buf_clear(&call->posted);
    if (!call->is_cancelled)
        grpc_message_add(&call->posted, buf_span(message));
    buf_fini(message);
}

void grpcd_send(struct grpcd_call *call, struct buf *message)
{
    assert(call->method->stream);
    pthread_mutex_lock(&call->d->lock);
    post_locked(call, message);
    grpcd_wake(call->d);
    pthread_mutex_unlock(&call->d->lock);
}

/* Ends the call, unless it is cancelled, and gives the handle back. Takes *why and
 * releases the lock. */
static void end_locked(struct grpcd_call *call, enum grpc_status status, struct buf *why)
{
    struct grpcd *d = call->d;
    if (!call->is_cancelled) {
        call->is_ended = true;
        call->status = status;
        call->why = *why;
        *why = (struct buf){0};
    }
    buf_fini(why);
    call->has_handle = false;
    if (call->has_stream)
        grpcd_wake(d);
    else
        free_call(call);
    grpcd_unref_locked(d);
}

void grpcd_reply(struct grpcd_call *call, struct buf *message)
{
    struct buf why = {0};
    pthread_mutex_lock(&call->d->lock);
    post_locked(call, message);
    end_locked(call, GRPC_OK, &why);
}

void grpcd_end(struct grpcd_call *call, enum grpc_status status, const char *fmt, ...)
{
    struct buf why = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&why, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&call->d->lock);
    end_locked(call, status, &why);
}

void grpcd_fail(struct grpcd_call *call, const struct err *why)
{
    grpcd_end(call, grpc_status_of(why->code), "%s", why->msg);
}

/* -- The response, on the server's thread -- */

/* From now on the handler's output is dropped; tells the handler. */
static void cancel_handler(struct grpcd_call *call)
{
    pthread_mutex_lock(&call->d->lock);
    bool tell = call->has_handle && !call->is_cancelled && call->method->on_cancel;
    call->is_cancelled = true;
    pthread_mutex_unlock(&call->d->lock);
    if (tell)
        call->method->on_cancel(call->d->ctx, call);
}

void grpcd_call_closed(struct grpcd_call *call)
{
    cancel_handler(call);
    *call->link = call->next;
    if (call->next)
        call->next->link = call->link;
    pthread_mutex_lock(&call->d->lock);
    call->has_stream = false;
    bool is_last = !call->has_handle;
    pthread_mutex_unlock(&call->d->lock);
    if (is_last)
        free_call(call);
}

/* Submits grpc-status and grpc-message, after `n` fields in `nva`: as the trailers, or in
 * one frame with the headers. */
static void submit_status(struct grpcd_call *call, nghttp2_nv *nva, size_t n)
{
    char number[12];
    cleanup_buf struct buf text = {0};
    struct span why = buf_span(&call->why);
    nghttp2_session *session = call->conn->session;
    size_t first = n;
    snprintf(number, sizeof number, "%u", (unsigned)call->status);
    nva[n++] = grpc_field(SPAN("grpc-status"), span_of(number));
    if (why.n && call->status != GRPC_OK) {
        why.n = why.n < WHY_MAX ? why.n : WHY_MAX;
        grpc_percent_encode(&text, why);
        nva[n++] = grpc_field(SPAN("grpc-message"), buf_span(&text));
    }
    call->is_complete = true;
    if (first)
        nghttp2_submit_response(session, call->id, nva, n, NULL);
    else
        nghttp2_submit_trailer(session, call->id, nva, n);
}

/* Gives the session bytes of the message, and the trailers after the last one. */
static ssize_t on_read(nghttp2_session *session, int32_t id, uint8_t *to, size_t room,
                       uint32_t *flags, nghttp2_data_source *source, void *ctx)
{
    struct grpcd_call *call = source->ptr;
    (void)session, (void)id, (void)ctx;
    pthread_mutex_lock(&call->d->lock);
    if (call->sent == call->sending.n) {
        buf_fini(&call->sending);
        call->sending = call->posted;
        call->posted = (struct buf){0};
        call->sent = 0;
    }
    bool is_last = call->is_ended && !call->posted.n;
    pthread_mutex_unlock(&call->d->lock);

    size_t n = call->sending.n - call->sent;
    n = n < room ? n : room;
    if (n) {
        memcpy(to, call->sending.p + call->sent, n);
        call->conn->moved_ms = call->conn->now_ms;
    }
    call->sent += n;
    if (is_last && call->sent == call->sending.n) {
        nghttp2_nv nva[2];
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        submit_status(call, nva, 0);
    } else if (!n) {
        return NGHTTP2_ERR_DEFERRED;
    }
    return (ssize_t)n;
}

void grpcd_call_flush(struct grpcd_call *call)
{
    nghttp2_session *session = call->conn->session;
    nghttp2_nv nva[4] = {
        grpc_field(SPAN(":status"), SPAN("200")),
        grpc_field(SPAN("content-type"), SPAN("application/grpc")),
    };
    pthread_mutex_lock(&call->d->lock);
    bool has_message = call->posted.n, is_ended = call->is_ended;
    pthread_mutex_unlock(&call->d->lock);
    if (call->is_complete || (!has_message && !is_ended))
        return;
    if (call->is_open) {
        nghttp2_session_resume_data(session, call->id);
        return;
    }
    call->is_open = true;
    nghttp2_data_provider provider = {.source.ptr = call, .read_callback = on_read};
    if (has_message)
        nghttp2_submit_response(session, call->id, nva, 2, &provider);
    else
        submit_status(call, nva, 2);
}

/* Cancels the handler, and ends the call with a status instead of what it has posted. */
static void reject(struct grpcd_call *call, enum grpc_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void reject(struct grpcd_call *call, enum grpc_status status, const char *fmt, ...)
{
    cleanup_buf struct buf why = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&why, fmt, ap);
    va_end(ap);
    cancel_handler(call);
    buf_fini(&call->in);
    pthread_mutex_lock(&call->d->lock);
    buf_clear(&call->posted);
    buf_fini(&call->why);
    call->is_ended = true;
    call->status = status;
    call->why = why;
    why = (struct buf){0};
    pthread_mutex_unlock(&call->d->lock);
    if (call->sent == call->sending.n) {
        grpcd_call_flush(call);
        return;
    }
    call->is_complete = true; /* no status can be sent inside a message */
    nghttp2_submit_rst_stream(call->conn->session, NGHTTP2_FLAG_NONE, call->id,
                              NGHTTP2_CANCEL);
}

/* Whether the response is decided: further input is discarded. */
static bool is_answered(struct grpcd_call *call)
{
    pthread_mutex_lock(&call->d->lock);
    bool is_ended = call->is_ended;
    pthread_mutex_unlock(&call->d->lock);
    return is_ended;
}

/* -- The request -- */

/* nghttp2 checks no headers here (see grpcd.c), so any :authority is accepted. */
void grpcd_call_header(struct grpcd_call *call, struct span name, struct span value)
{
    int64_t ms;
    if (call->has_headers) /* a trailer */
        return;
    if (span_eq(name, SPAN(":path"))) {
        snprintf(call->path, sizeof call->path, "%.*s", SPAN_ARG(value));
    } else if (span_eq(name, SPAN("grpc-timeout"))) {
        call->has_bad_timeout = !grpc_timeout_parse(value, &ms);
        if (!call->has_bad_timeout)
            call->until_ms = call->conn->now_ms + ms;
    }
}

void grpcd_call_headers_end(struct grpcd_call *call)
{
    const struct grpcd_method *m = call->d->methods;
    if (call->has_headers)
        return;
    call->has_headers = true;
    while (m->path && strcmp(m->path, call->path) != 0)
        m++;
    call->method = m;
    if (!m->path)
        reject(call, GRPC_UNIMPLEMENTED, "unknown method %s", call->path);
    else if (call->has_bad_timeout)
        reject(call, GRPC_INTERNAL, "malformed grpc-timeout");
}

void grpcd_call_data(struct grpcd_call *call, struct span bytes)
{
    struct span message;
    struct err err;
    if (!call->has_headers || is_answered(call))
        return;
    buf_add_span(&call->in, bytes);
    enum grpc_read got =
        grpc_message_read(buf_span(&call->in), call->d->max_message, &message);
    if (got > GRPC_READ_MESSAGE) {
        grpc_message_error(got, message.n, call->d->max_message, &err);
        reject(call,
               got == GRPC_READ_COMPRESSED  ? GRPC_UNIMPLEMENTED
               : got == GRPC_READ_TOO_LARGE ? GRPC_RESOURCE_EXHAUSTED
                                            : GRPC_INTERNAL,
               "%s", err.msg);
    } else if (got == GRPC_READ_MESSAGE && call->in.n > GRPC_HEAD + message.n) {
        reject(call, GRPC_INTERNAL, "unexpected data after the request message");
    }
}

void grpcd_call_request_end(struct grpcd_call *call)
{
    struct span message;
    if (!call->has_headers || call->is_started || is_answered(call))
        return;
    if (grpc_message_read(buf_span(&call->in), call->d->max_message, &message) !=
        GRPC_READ_MESSAGE) {
        reject(call, GRPC_INTERNAL,
               call->in.n ? "truncated request message" : "request without a message");
        return;
    }
    call->is_started = true;
    pthread_mutex_lock(&call->d->lock);
    call->d->refs++;
    call->has_handle = true;
    pthread_mutex_unlock(&call->d->lock);
    call->method->start(call->d->ctx, call, message);
    buf_fini(&call->in);
}

int64_t grpcd_call_tick(struct grpcd_call *call)
{
    int64_t until = call->until_ms;
    if (!call->is_started && call->request_until_ms < until)
        until = call->request_until_ms;
    if (is_answered(call))
        return INT64_MAX;
    if (call->conn->now_ms < until)
        return until;
    reject(call, GRPC_DEADLINE_EXCEEDED,
           call->is_started ? "client deadline exceeded" : "request not complete in time");
    return INT64_MAX;
}

void grpcd_call_drain(struct grpcd_call *call)
{
    if (!is_answered(call) && (!call->is_started || call->method->stream))
        reject(call, GRPC_UNAVAILABLE, "server is stopping");
}

bool grpcd_call_has_output(struct grpcd_call *call)
{
    pthread_mutex_lock(&call->d->lock);
    bool is_waiting = call->sent < call->sending.n || call->posted.n || call->is_ended;
    pthread_mutex_unlock(&call->d->lock);
    return is_waiting && !call->is_complete;
}
