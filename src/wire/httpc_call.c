/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "wire/httpc_priv.h"

/*
 * Blocking calls. A call takes a handle from the pool and puts it back only if there is a
 * response; otherwise it frees the handle, which closes its connection. The pool is a
 * stack, so that unused handles sink to the bottom and expire there.
 *
 * Before a connection is reused, poll checks it: if there is anything to read (end of
 * file, an error, unexpected bytes), the handle is freed. libcurl checks, too, but takes
 * the close_notify of a TLS server for data, writes the request, and would send it again.
 * As that is disabled, the first request on each connection after a server restart would
 * fail.
 */

struct call {
    struct httpc_exchange x; /* first */
    struct buf *body;        /* of the reply; borrowed during a call */
    size_t max_body;
    bool is_too_large;
    int64_t idle_since_ms;
};

static void call_free(struct call *call)
{
    if (!call)
        return;
    httpc_exchange_fini(&call->x);
    free(call);
}

static size_t on_data(char *p, size_t size, size_t n, void *ctx)
{
    struct call *call = ctx;
    size_t room = call->max_body - call->body->n, got = size * n;
    call->x.last_byte_ms = clock_mono_ms();
    if (got > room) {
        call->is_too_large = true;
        buf_add(call->body, p, room);
        return 0;
    }
    buf_add(call->body, p, got);
    return got;
}

static struct call *call_new(struct httpc *c)
{
    struct call *call = xcalloc(1, sizeof *call);
    httpc_exchange_init(&call->x, c);
    HTTPC_SET(call->x.easy, CURLOPT_MAXCONNECTS, 1L);
    HTTPC_SET(call->x.easy, CURLOPT_WRITEFUNCTION, on_data);
    HTTPC_SET(call->x.easy, CURLOPT_WRITEDATA, call);
    return call;
}

/* Removes the i-th idle handle. The lock is held. */
static struct call *idle_remove(struct httpc *c, size_t i)
{
    struct call *call = c->idle[i];
    c->n_idle--;
    memmove(c->idle + i, c->idle + i + 1, (c->n_idle - i) * sizeof *c->idle);
    return call;
}

/* The most recently used idle handle with the same TCP_USER_TIMEOUT. NULL: none. */
static struct call *idle_take(struct httpc *c, int64_t tcp_user_timeout_ms)
{
    struct call *call = NULL;
    pthread_mutex_lock(&c->lock);
    for (size_t i = c->n_idle; i-- > 0 && !call;)
        if (c->idle[i]->x.tcp_user_timeout_ms == tcp_user_timeout_ms)
            call = idle_remove(c, i);
    pthread_mutex_unlock(&c->lock);
    return call;
}

/* Whether the handle's connection, if any, has nothing to read. */
static bool is_quiet(const struct call *call)
{
    curl_socket_t fd = CURL_SOCKET_BAD;
    curl_easy_getinfo(call->x.easy, CURLINFO_ACTIVESOCKET, &fd);
    struct pollfd p = {.fd = fd, .events = POLLIN | POLLRDHUP};
    return fd == CURL_SOCKET_BAD || poll(&p, 1, 0) == 0;
}

static struct call *pool_take(struct httpc *c, int64_t tcp_user_timeout_ms)
{
    struct call *call = idle_take(c, tcp_user_timeout_ms);
    while (call && !is_quiet(call)) {
        call_free(call);
        call = idle_take(c, tcp_user_timeout_ms);
    }
    return call ? call : call_new(c);
}

/* The least recently used idle handle, if there are too many or it has expired. NULL:
 * none. */
static struct call *idle_expire(struct httpc *c, int64_t now_ms)
{
    struct call *old = NULL;
    pthread_mutex_lock(&c->lock);
    if (c->n_idle > c->idle_max ||
        (c->n_idle && now_ms - c->idle[0]->idle_since_ms > c->idle_ms))
        old = idle_remove(c, 0);
    pthread_mutex_unlock(&c->lock);
    return old;
}

void httpc_close_idle(struct httpc *c)
{
    int64_t now_ms = clock_mono_ms();
    struct call *old;
    while ((old = idle_expire(c, now_ms)) != NULL)
        call_free(old);
}

static void pool_put(struct httpc *c, struct call *call)
{
    call->body = NULL;
    call->idle_since_ms = clock_mono_ms();
    pthread_mutex_lock(&c->lock);
    MEM_GROW(c->idle, c->idle_cap, c->n_idle + 1);
    c->idle[c->n_idle++] = call;
    pthread_mutex_unlock(&c->lock);
    httpc_close_idle(c);
}

void httpc_pool_drain(struct httpc *c)
{
    while (c->n_idle)
        call_free(c->idle[--c->n_idle]);
    free(c->idle);
    c->idle = NULL;
    c->idle_cap = 0;
}

static int finish(struct call *call, CURLcode rc, struct httpc_reply *reply,
                  struct err *err)
{
    struct httpc_exchange *x = &call->x;
    reply->sent = x->attempts > 0;
    reply->retry_after_s = x->retry_after_s;
    if (call->is_too_large) {
        reply->status = x->status;
        return err_set(err, ERR_TOO_LARGE, "response is larger than %zu bytes",
                       call->max_body);
    }
    if (httpc_exchange_result(x, rc, err)) {
        buf_fini(&reply->body);
        return -1;
    }
    reply->status = x->status;
    return 0;
}

int httpc_call(struct httpc *c, const struct httpc_request *req, size_t max_body,
               struct httpc_reply *reply, struct err *err)
{
    *reply = (struct httpc_reply){.retry_after_s = -1};
    struct call *call =
        pool_take(c, req->tcp_user_timeout_ms > 0 ? req->tcp_user_timeout_ms : 0);
    call->body = &reply->body;
    call->max_body = max_body;
    call->is_too_large = false;
    bool bad = httpc_exchange_prepare(&call->x, req, err);
    if (!bad && finish(call, curl_easy_perform(call->x.easy), reply, err)) {
        httpc_exchange_wrap(&call->x, req, err);
        call_free(call);
        return -1;
    }
    pool_put(c, call);
    return bad ? httpc_exchange_wrap(&call->x, req, err) : 0;
}

void httpc_reply_fini(struct httpc_reply *r)
{
    buf_fini(&r->body);
}
