/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A connection of the gRPC server. The bits of the first byte say whether the input
 * follows the client preface, and how much time passes between the pieces; the second byte
 * is the size of the pieces; the rest is the content.
 *
 * The server's output is well-formed: whole frames, headers that can be decompressed and
 * are printable, no frame for a call after its end. Every call that was started ends
 * exactly once, and a new connection works as usual.
 */

#include "fuzz/fuzz.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "lib/http2.h"
#include "wire/grpcd.h"

enum {
    PREFACE = 1,
    ANSWERS = 4,      /* parked calls are answered between pieces */
    MINUTES = 8,      /* pass between pieces; else milliseconds */
    PARKED_MAX = 256, /* calls that are answered later */
    IDS = 1 << 16,    /* streams whose end is tracked */
    FRAME_HEAD = 9,
};

static struct {
    struct grpcd *d;
    struct grpcd_call *parked[PARKED_MAX];
    size_t n_parked;
    int64_t now;
    /* Of the connection's output. */
    nghttp2_hd_inflater *inflater;
    bool ended[IDS];
    unsigned n_ok; /* replies with grpc-status 0 */
} w;

static void echo(void *ctx, struct grpcd_call *call, struct span request)
{
    struct buf reply = {0};
    (void)ctx;
    buf_add_span(&reply, request);
    grpcd_reply(call, &reply);
}

static void refuse(void *ctx, struct grpcd_call *call, struct span request)
{
    (void)ctx;
    grpcd_end(call, GRPC_INTERNAL, "%.*s", SPAN_ARG(request));
}

static void park(void *ctx, struct grpcd_call *call, struct span request)
{
    (void)ctx, (void)request;
    fuzz_fail_if(w.n_parked == PARKED_MAX, "more concurrent calls than the limit");
    w.parked[w.n_parked++] = call;
}

static void on_cancel(void *ctx, struct grpcd_call *call)
{
    (void)ctx;
    size_t i = 0;
    while (i < w.n_parked && w.parked[i] != call)
        i++;
    fuzz_fail_if(i == w.n_parked, "the end of an unknown call, or a second end");
    w.parked[i] = w.parked[--w.n_parked];
    grpcd_end(call, GRPC_CANCELLED, "%s", "");
}

static const struct grpcd_method methods[] = {
    {.path = "/v1beta1.DevicePlugin/Allocate", .start = echo},
    {.path = "/v1beta1.DevicePlugin/PreStartContainer", .start = refuse},
    {.path = "/v1beta1.DevicePlugin/GetDevicePluginOptions",
     .start = park,
     .on_cancel = on_cancel},
    {.path = "/v1beta1.DevicePlugin/ListAndWatch", .start = park, .on_cancel = on_cancel},
    {0},
};

static void check_field(const nghttp2_nv *nv)
{
    struct span name = {(const char *)nv->name, nv->namelen},
                value = {(const char *)nv->value, nv->valuelen};
    fuzz_fail_if(!fuzz_is_plain(value, ' '), "a header that is not printable");
    if (span_eq(name, SPAN("grpc-status")) && span_eq(value, SPAN("0")))
        w.n_ok++;
}

static void check_headers(const uint8_t *p, size_t n)
{
    int flags = 0;
    while (!(flags & NGHTTP2_HD_INFLATE_FINAL)) {
        nghttp2_nv nv;
        ssize_t used = nghttp2_hd_inflate_hd2(w.inflater, &nv, &flags, p, n, 1);
        fuzz_fail_if(used < 0, "headers that cannot be decompressed");
        p += used;
        n -= (size_t)used;
        if (flags & NGHTTP2_HD_INFLATE_EMIT)
            check_field(&nv);
    }
    nghttp2_hd_inflate_end_headers(w.inflater);
}

static void check_frame(const uint8_t *p, size_t n)
{
    unsigned type = p[3], flags = p[4];
    uint32_t id = number_at((const char *)p + 5);
    bool is_output = type == NGHTTP2_DATA || type == NGHTTP2_HEADERS;
    if (type == NGHTTP2_HEADERS)
        check_headers(p + FRAME_HEAD, n - FRAME_HEAD);
    if (!id || id >= IDS)
        return;
    fuzz_fail_if(is_output && w.ended[id], "a frame for a call after its end");
    if ((is_output && flags & NGHTTP2_FLAG_END_STREAM) || type == NGHTTP2_RST_STREAM)
        w.ended[id] = true;
}

/* Returns whether the connection is open. */
static bool step(int fd, unsigned flags)
{
    cleanup_buf struct buf out = {0};
    char part[4096];
    ssize_t n;
    while (flags & ANSWERS && w.n_parked)
        echo(NULL, w.parked[--w.n_parked], SPAN("the answer"));
    fuzz_fail_if(grpcd_turn(w.d, w.now) <= w.now, "a deadline that has passed");
    while ((n = recv(fd, part, sizeof part, MSG_DONTWAIT)) > 0)
        buf_add(&out, part, (size_t)n);
    bool open = n < 0 && errno == EAGAIN;
    struct span rest = buf_span(&out);
    while (rest.n) {
        size_t size =
            rest.n < FRAME_HEAD ? SIZE_MAX : FRAME_HEAD + (number_at(rest.p) >> 8);
        fuzz_fail_if(rest.n < size, "an incomplete frame");
        check_frame((const uint8_t *)fuzz_cut(&rest, size).p, size);
    }
    w.now += flags & MINUTES ? 7000 : 1;
    return open;
}

/* Returns the number of replies with grpc-status 0. */
static unsigned run_connection(unsigned flags, size_t piece, struct span bytes)
{
    w.n_ok = 0;
    w.now = 1000;
    memset(w.ended, 0, sizeof w.ended);
    int fds[2];
    if (nghttp2_hd_inflate_new(&w.inflater) ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds))
        abort();
    grpcd_add(w.d, fds[1], w.now);
    for (bool open = true, more = true; open && more;) {
        struct span part = fuzz_cut(&bytes, piece);
        more = part.n;
        if (more &&
            send(fds[0], part.p, part.n, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)part.n)
            break;
        open = step(fds[0], flags);
    }
    close(fds[0]);
    grpcd_turn(w.d, w.now);
    nghttp2_hd_inflate_del(w.inflater);
    return w.n_ok;
}

static void add_preface(struct buf *out)
{
    buf_adds(out, NGHTTP2_CLIENT_MAGIC);
    frame(out, NGHTTP2_SETTINGS, 0, 0, SPAN(""));
}

void fuzz_input(struct span in)
{
    cleanup_buf struct buf bytes = {0}, call = {0};
    unsigned flags = fuzz_take(&in);
    size_t piece = 1 + (size_t)fuzz_take(&in) * 4;
    log_set_level(LOG_ERROR);
    w.n_parked = 0;
    w.d = grpcd_new(
        &(struct grpcd_config){.path = "none", .methods = methods, .max_message = 4096});
    if (flags & PREFACE)
        add_preface(&bytes);
    buf_add_span(&bytes, in);
    run_connection(flags, piece, buf_span(&bytes));
    /* A call without a gRPC library, on a new connection. */
    add_preface(&call);
    headers(&call, 0, 1,
            ":method: POST\n:scheme: http\n:path: /v1beta1.DevicePlugin/Allocate\n"
            "content-type: application/grpc\n");
    message(&call, NGHTTP2_FLAG_END_STREAM, 1, SPAN("hi"));
    fuzz_fail_if(run_connection(0, call.n, buf_span(&call)) != 1,
                 "a new connection gets no reply");
    grpcd_free(w.d);
    fuzz_fail_if(w.n_parked, "a call that does not end");
}
