/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What a server says to the gRPC client. The first byte says how large the pieces are in
 * which it comes; then come the bytes, and then connection closed. The call ends
 * with a status that there is and with printable words; no message is larger than it may
 * be, and all of them together have no more bytes than came.
 */

#include "fuzz/fuzz.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "wire/grpcc_priv.h"

enum { MESSAGE_MAX = 4096 };

static void check_words(struct span s)
{
    for (size_t i = 0, n; i < s.n; i += n) {
        n = utf8_len((const unsigned char *)s.p + i, s.n - i);
        if (!n || (unsigned char)s.p[i] < ' ' || s.p[i] == 0x7f)
            fuzz_fail("words that cannot be printed");
    }
}

static size_t take_messages(struct grpcc_response *a)
{
    size_t sum = 0;
    for (;;) {
        cleanup_buf struct buf message = {0};
        if (!grpcc_response_take(a, &message))
            return sum;
        if (message.n > MESSAGE_MAX)
            fuzz_fail("a message that is too large");
        sum += message.n;
    }
}

static void send_all(struct grpcc_response *a)
{
    const uint8_t *p;
    while (nghttp2_session_mem_send(a->session, &p) > 0)
        ;
    grpcc_response_check(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct grpcc_request req = {.method = "/v1.PodResourcesLister/Get",
                                      .message = SPAN("hi"),
                                      .max_message = MESSAGE_MAX};
    struct grpcc_response a;
    size_t messages = 0, piece = size ? 1 + (size_t)data[0] * 4 : 1;
    grpcc_response_init(&a, &req);
    send_all(&a);
    for (size_t at = 1; at < size && !a.is_done; at += piece) {
        grpcc_response_feed(&a, data + at, size - at < piece ? size - at : piece);
        messages += take_messages(&a);
        send_all(&a);
    }
    grpcc_response_fail(&a, GRPC_UNAVAILABLE, "connection closed");
    messages += take_messages(&a);
    if (!a.is_done || (unsigned)a.status > GRPC_UNAUTHENTICATED)
        fuzz_fail("a call without an end, or with a status that is none");
    if (a.status == GRPC_OK && !grpc_reader_is_empty(&a.in))
        fuzz_fail("success in the middle of a message");
    if (messages > size)
        fuzz_fail("more bytes of messages than came");
    check_words(buf_span(&a.text));
    grpcc_response_fini(&a);
    return 0;
}
