/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Replies: errors, headers, whole bodies; a stream is in httpd_stream.c.
 */

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "wire/httpd_priv.h"

/* For the reply of a connection that must leave. */
enum { LEAVE_MS = 1000 };

void httpd_fail(struct httpd_reply *reply, unsigned status, const char *fmt, ...)
{
    cleanup_buf struct buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    reply->status = status;
    reply->content_type = "application/json";
    reply->gzip = false;
    buf_clear(&reply->body);
    buf_adds(&reply->body, "{\"error\":");
    buf_add_json(&reply->body, buf_span(&text));
    buf_adds(&reply->body, "}\n");
}

/* libmicrohttpd has sent the reply, or dropped it. */
static void on_sent(void *cls)
{
    struct httpd_conn *p = cls;
    buf_fini(&p->sent);
    budget_give(p->budget, p->budget_bytes);
    p->budget = NULL;
}

static struct MHD_Response *make_whole(struct httpd_conn *p, struct httpd_reply *reply)
{
    if (reply->fixed.n) {
        buf_fini(&reply->body);
        return MHD_create_response_from_buffer(reply->fixed.n, (void *)reply->fixed.p,
                                               MHD_RESPMEM_PERSISTENT);
    }
    p->sent = reply->body;
    p->budget = reply->budget;
    p->budget_bytes = reply->charged;
    reply->body = (struct buf){0};
    struct MHD_Response *r = MHD_create_response_from_buffer_with_free_callback_cls(
        p->sent.n, p->sent.p ? p->sent.p : (char *)"", on_sent, p);
    if (!r)
        on_sent(p);
    return r;
}

static void add_headers(const struct httpd_conn *p, struct MHD_Response *r,
                        const struct httpd_reply *reply)
{
    if (reply->content_type)
        MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, reply->content_type);
    if (reply->gzip)
        MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_ENCODING, "gzip");
    for (size_t i = 0; i < ARRAY_LEN(reply->header) && reply->header[i][0]; i++)
        if (MHD_add_response_header(r, reply->header[i][0], reply->header[i][1]) !=
            MHD_YES)
            log_warn("httpd", "reply header: rejected by libmicrohttpd; not sent",
                     LOG_S("header", reply->header[i][0]));
    if (atomic_load(&p->listener->d->state) != HTTPD_RUNNING || atomic_load(&p->leaving))
        MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
}

void httpd_reply_drop(struct httpd_reply *reply)
{
    buf_fini(&reply->body);
    if (reply->stream)
        reply->stream->close(reply->stream_ctx);
    budget_give(reply->budget, reply->charged);
}

enum MHD_Result httpd_reply_send(struct httpd_conn *p, struct httpd_reply *reply)
{
    int64_t now = clock_mono_ms();
    int64_t due = now + (atomic_load(&p->leaving) ? LEAVE_MS : p->listener->conf.idle_ms);
    if (reply->abort || !httpd_conn_enter(p, HTTPD_SEND, due)) {
        httpd_reply_drop(reply);
        return MHD_NO;
    }
    struct MHD_Response *r =
        reply->stream ? httpd_stream_new(p, reply) : make_whole(p, reply);
    if (!r)
        return MHD_NO;
    add_headers(p, r, reply);
    /* libmicrohttpd would send the last chunk also for a HEAD request, and the client
     * would take it for the next reply. Without chunks, the connection is closed instead.
     */
    if (reply->stream && !reply->stream_length && strcmp(p->method, "HEAD") == 0)
        MHD_set_response_options(r, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT, MHD_RO_END);
    enum MHD_Result queued = MHD_queue_response(p->mhd, reply->status, r);
    MHD_destroy_response(r);
    return queued;
}

const struct httpd_reply httpd_reply_new = {.status = MHD_HTTP_OK,
                                             .content_type = "application/json"};
