/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The response of a server to the gRPC client. The first byte selects the largest message;
 * the rest is sent by the server, which then closes the connection. The call ends with a
 * valid status, and the message is no larger than the limit and the input.
 */

#include "fuzz/fuzz.h"

#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "wire/grpc_priv.h"
#include "wire/grpcc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { INPUT_MAX = 64 << 10, CALL_MS = 60 * 1000 };
    if (size < 1 || size > INPUT_MAX)
        return 0;
    const struct grpcc_request req = {.method = "/v1.PodResourcesLister/Get",
                                      .message = SPAN("hi"),
                                      .max_message = 1 + (size_t)data[0] * 16};
    cleanup_buf struct buf reply = {0};
    enum grpc_status status = GRPC_OK;
    struct err err = {0};
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) ||
        send(fds[1], data + 1, size - 1, 0) != (ssize_t)size - 1 ||
        shutdown(fds[1], SHUT_WR))
        abort();
    int rc =
        grpcc_exchange(fds[0], &req, clock_mono_ms() + CALL_MS, &reply, &status, &err);
    close(fds[0]);
    close(fds[1]);
    if ((unsigned)status > GRPC_UNAUTHENTICATED || (rc == 0) != (status == GRPC_OK) ||
        (rc == 0) != (err.code == ERR_NONE) || status == GRPC_DEADLINE_EXCEEDED)
        fuzz_fail("an invalid status, or a call that does not end");
    if (reply.n > req.max_message || reply.n > size)
        fuzz_fail("a message over the limit");
    return 0;
}
