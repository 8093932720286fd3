/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The response of a server to the gRPC client. The first byte is the size of the pieces;
 * the rest is sent by the server, which then closes the connection. The call ends with a
 * valid status; no message is larger than the limit, and all messages together are no
 * larger than the input.
 */

#include "fuzz/fuzz.h"

#include "base/mem.h"
#include "wire/grpc_priv.h"
#include "wire/grpcc.h"

enum { MESSAGE_MAX = 4096 };

static size_t take_messages(struct grpcc_response *a)
{
    size_t sum = 0;
    for (;;) {
        cleanup_buf struct buf message = {0};
        if (!grpcc_response_take(a, &message))
            return sum;
        if (message.n > MESSAGE_MAX)
            fuzz_fail("a message over the limit");
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
        fuzz_fail("a call that does not end, or an invalid status");
    if (a.status == GRPC_OK && a.taken != a.in.n)
        fuzz_fail("success within a message");
    if (messages > size)
        fuzz_fail("messages larger than the input");
    grpcc_response_fini(&a);
    return 0;
}
