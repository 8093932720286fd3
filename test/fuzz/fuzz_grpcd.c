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

/* Checks the server's output. */
struct checker {
    nghttp2_hd_inflater *inflater;
    struct buf bytes; /* of an incomplete frame */
    uint8_t ended[IDS / 8];
    unsigned n_ok; /* replies with grpc-status 0 */
};

struct world {
    struct grpcd *d;
    struct grpcd_call *parked[PARKED_MAX];
    size_t n_parked;
    unsigned n_started, n_ended;
};

static void echo(void *ctx, struct grpcd_call *call, struct span request)
{
    struct world *w = ctx;
    struct buf reply = {0};
    buf_add_span(&reply, request);
    w->n_started++;
    w->n_ended++;
    grpcd_reply(call, &reply);
}

static void refuse(void *ctx, struct grpcd_call *call, struct span request)
{
    struct world *w = ctx;
    w->n_started++;
    w->n_ended++;
    grpcd_end(call, GRPC_INTERNAL, "%.*s", SPAN_ARG(request));
}

static void park(void *ctx, struct grpcd_call *call, struct span request)
{
    struct world *w = ctx;
    (void)request;
    w->n_started++;
    if (w->n_parked == PARKED_MAX)
        fuzz_fail("more concurrent calls than the limit");
    w->parked[w->n_parked++] = call;
}

static void on_cancel(void *ctx, struct grpcd_call *call)
{
    struct world *w = ctx;
    size_t i = 0;
    while (i < w->n_parked && w->parked[i] != call)
        i++;
    if (i == w->n_parked)
        fuzz_fail("the end of an unknown call, or a second end");
    w->parked[i] = w->parked[--w->n_parked];
    w->n_ended++;
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

static void check_field(struct checker *j, const nghttp2_nv *nv)
{
    for (size_t i = 0; i < nv->valuelen; i++)
        if (nv->value[i] < ' ' || nv->value[i] > '~')
            fuzz_fail("a header that is not printable");
    struct span name = {(const char *)nv->name, nv->namelen},
                value = {(const char *)nv->value, nv->valuelen};
    if (span_eq(name, SPAN("grpc-status")) && span_eq(value, SPAN("0")))
        j->n_ok++;
}

static void check_headers(struct checker *j, const uint8_t *p, size_t n)
{
    int flags = 0;
    while (!(flags & NGHTTP2_HD_INFLATE_FINAL)) {
        nghttp2_nv nv;
        ssize_t used = nghttp2_hd_inflate_hd2(j->inflater, &nv, &flags, p, n, 1);
        if (used < 0)
            fuzz_fail("headers that cannot be decompressed");
        p += used;
        n -= (size_t)used;
        if (flags & NGHTTP2_HD_INFLATE_EMIT)
            check_field(j, &nv);
    }
    nghttp2_hd_inflate_end_headers(j->inflater);
}

static void check_frame(struct checker *j, const uint8_t *p, size_t n)
{
    unsigned type = p[3], flags = p[4];
    uint32_t id = number_at((const char *)p + 5);
    bool is_output = type == NGHTTP2_DATA || type == NGHTTP2_HEADERS;
    if (type == NGHTTP2_HEADERS)
        check_headers(j, p + FRAME_HEAD, n - FRAME_HEAD);
    if (!id || id >= IDS)
        return;
    if (is_output && j->ended[id / 8] & 1 << id % 8)
        fuzz_fail("a frame for a call after its end");
    if ((is_output && flags & NGHTTP2_FLAG_END_STREAM) || type == NGHTTP2_RST_STREAM)
        j->ended[id / 8] |= (uint8_t)(1 << id % 8);
}

/* Returns whether the connection is open. */
static bool read_output(struct checker *j, int fd)
{
    char piece[4096];
    ssize_t n;
    while ((n = recv(fd, piece, sizeof piece, MSG_DONTWAIT)) > 0)
        buf_add(&j->bytes, piece, (size_t)n);
    size_t at = 0, left;
    for (; (left = j->bytes.n - at) >= FRAME_HEAD;) {
        size_t size = FRAME_HEAD + (number_at(j->bytes.p + at) >> 8);
        if (left < size)
            break;
        check_frame(j, (const uint8_t *)j->bytes.p + at, size);
        at += size;
    }
    if (at < j->bytes.n)
        fuzz_fail("an incomplete frame");
    buf_clear(&j->bytes);
    return n < 0 && errno == EAGAIN;
}

static void answer_parked(struct world *w)
{
    while (w->n_parked) {
        struct buf reply = {0};
        buf_adds(&reply, "the answer");
        w->n_ended++;
        grpcd_reply(w->parked[--w->n_parked], &reply);
    }
}

/* Returns the number of replies with grpc-status 0. */
static unsigned run_connection(struct world *w, unsigned flags, size_t piece,
                               struct span bytes)
{
    struct checker j = {0};
    int64_t now = 1000;
    int fds[2];
    if (nghttp2_hd_inflate_new(&j.inflater) ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds))
        abort();
    grpcd_add(w->d, fds[1], now);
    for (bool open = true, more = true; open && more;) {
        size_t n = piece < bytes.n ? piece : bytes.n;
        more = n;
        if (n && send(fds[0], bytes.p, n, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)n)
            break;
        bytes.p += n;
        bytes.n -= n;
        if (flags & ANSWERS)
            answer_parked(w);
        if (grpcd_turn(w->d, now) <= now)
            fuzz_fail("a deadline that has passed");
        open = read_output(&j, fds[0]);
        now += flags & MINUTES ? 7000 : 1;
    }
    close(fds[0]);
    grpcd_turn(w->d, now);
    nghttp2_hd_inflate_del(j.inflater);
    buf_fini(&j.bytes);
    return j.n_ok;
}

static void add_preface(struct buf *out)
{
    buf_adds(out, NGHTTP2_CLIENT_MAGIC);
    frame(out, NGHTTP2_SETTINGS, 0, 0, SPAN(""));
}

/* A call without a gRPC library, on a new connection. */
static void check_new_connection(struct world *w)
{
    cleanup_buf struct buf all = {0};
    add_preface(&all);
    headers(&all, 0, 1,
            ":method: POST\n:scheme: http\n:path: /v1beta1.DevicePlugin/Allocate\n"
            "content-type: application/grpc\n");
    message(&all, NGHTTP2_FLAG_END_STREAM, 1, SPAN("hi"));
    if (run_connection(w, 0, SIZE_MAX, buf_span(&all)) != 1)
        fuzz_fail("a new connection gets no reply");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct world w = {0};
    cleanup_buf struct buf bytes = {0};
    if (size < 2)
        return 0;
    log_set_level(LOG_ERROR);
    w.d = grpcd_new(&(struct grpcd_config){
        .path = "none", .methods = methods, .ctx = &w, .max_message = 4096});
    if (data[0] & PREFACE)
        add_preface(&bytes);
    buf_add(&bytes, data + 2, size - 2);
    run_connection(&w, data[0], 1 + (size_t)data[1] * 4, buf_span(&bytes));
    check_new_connection(&w);
    grpcd_free(w.d);
    if (w.n_parked || w.n_started != w.n_ended)
        fuzz_fail("a call that does not end");
    return 0;
}
