/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/grpc_watch.h"

#include <poll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "lib/lib.h"
#include "wire/grpc_priv.h"

enum { WINDOW = 64 << 20, READS = 64, HEAD = 5 };

struct grpc_watch {
    struct grpc_socket socket; /* first */
    nghttp2_session *session;
    struct buf in, status;
    bool has_ended;
};

static int on_header(nghttp2_session *session, const nghttp2_frame *frame,
                     const uint8_t *name, size_t name_n, const uint8_t *value,
                     size_t value_n, uint8_t flags, void *ctx)
{
    struct grpc_watch *w = ctx;
    (void)session, (void)frame, (void)flags;
    if (span_starts((struct span){(const char *)name, name_n}, SPAN("grpc-")))
        buf_printf(&w->status, "%s%.*s", w->status.n ? " " : "", (int)value_n, value);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p,
                   size_t n, void *ctx)
{
    struct grpc_watch *w = ctx;
    (void)session, (void)flags, (void)id;
    buf_add(&w->in, p, n);
    return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *ctx)
{
    struct grpc_watch *w = ctx;
    (void)session, (void)id, (void)code;
    w->has_ended = true;
    return 0;
}

static ssize_t on_read(nghttp2_session *session, int32_t id, uint8_t *to, size_t room,
                       uint32_t *flags, nghttp2_data_source *source, void *ctx)
{
    (void)session, (void)id, (void)room, (void)source, (void)ctx;
    memset(to, 0, HEAD); /* an empty message */
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    return HEAD;
}

static void step(struct grpc_watch *w)
{
    int sent = nghttp2_session_send(w->session);
    w->socket.reads = READS;
    if (nghttp2_session_recv(w->session) || sent)
        w->has_ended = true;
}

struct grpc_watch *grpc_watch_open(const char *socket_path, const char *method)
{
    const nghttp2_settings_entry window = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW};
    const nghttp2_nv nva[] = {
        grpc_field(SPAN(":method"), SPAN("POST")),
        grpc_field(SPAN(":scheme"), SPAN("http")),
        grpc_field(SPAN(":path"), span_of(method)),
        grpc_field(SPAN("content-type"), SPAN("application/grpc")),
    };
    const nghttp2_data_provider message = {.read_callback = on_read};
    struct grpc_watch *w = xcalloc(1, sizeof *w);
    struct sockaddr_un addr;
    struct err err = {0};
    ck_assert_msg(grpc_address(socket_path, &addr, &err), "%s", err.msg);
    w->socket.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(w->socket.fd, (struct sockaddr *)&addr, sizeof addr), 0);
    nghttp2_session_callbacks *cb = grpc_callbacks();
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_close);
    ck_assert_int_eq(nghttp2_session_client_new(&w->session, cb, w), 0);
    nghttp2_session_callbacks_del(cb);
    nghttp2_submit_settings(w->session, NGHTTP2_FLAG_NONE, &window, 1);
    nghttp2_session_set_local_window_size(w->session, NGHTTP2_FLAG_NONE, 0, WINDOW);
    nghttp2_submit_request(w->session, NULL, nva, ARRAY_LEN(nva), &message, NULL);
    step(w);
    return w;
}

int grpc_watch_next(struct grpc_watch *w, int64_t wait_ms, struct buf *message)
{
    int64_t until_ms = clock_mono_ms() + wait_ms;
    buf_clear(message);
    for (;;) {
        const unsigned char *p = (const unsigned char *)w->in.p;
        size_t n = w->in.n < HEAD ? 0 : HEAD + (p[2] << 16 | p[3] << 8 | p[4]);
        if (n && w->in.n >= n) {
            buf_add(message, w->in.p + HEAD, n - HEAD);
            memmove(w->in.p, w->in.p + n, w->in.n - n);
            w->in.n -= n;
            return 1;
        }
        int64_t left_ms = until_ms - clock_mono_ms();
        if (w->has_ended || left_ms < 0)
            return w->has_ended ? -1 : 0;
        struct pollfd at = {.fd = w->socket.fd, .events = POLLIN};
        poll(&at, 1, (int)left_ms);
        step(w);
    }
}

const char *grpc_watch_status(const struct grpc_watch *w)
{
    return w->status.p ? w->status.p : "";
}

void grpc_watch_close(struct grpc_watch *w)
{
    if (!w)
        return;
    nghttp2_session_del(w->session);
    close(w->socket.fd);
    buf_fini(&w->in);
    buf_fini(&w->status);
    free(w);
}
