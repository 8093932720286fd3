/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The response of a server to the gRPC client. The first byte selects the largest message;
 * the rest is sent by the server, which then closes the connection. The call ends with a
 * valid status, which may be any that the server sends, and the message is no larger than the limit and the input.
 */

#include "fuzz/fuzz.h"

#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "wire/grpc_priv.h"
#include "wire/grpcc.h"

void fuzz_input(struct span in)
{
    enum { INPUT_MAX = 64 << 10, CALL_MS = 60 * 1000 };
    const struct grpcc_request req = {.method = "/v1.PodResourcesLister/Get",
                                      .message = SPAN("hi"),
                                      .max_message = 1 + (size_t)fuzz_take(&in) * 16};
    cleanup_buf struct buf reply = {0};
    enum grpc_status status = GRPC_OK;
    struct err err = {0};
    int fds[2];
    if (in.n > INPUT_MAX)
        return;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) ||
        send(fds[1], in.p, in.n, 0) != (ssize_t)in.n || shutdown(fds[1], SHUT_WR))
        abort();
    int64_t until_ms = clock_mono_ms() + CALL_MS;
    int rc = grpcc_exchange(fds[0], &req, until_ms, &reply, &status, &err);
    fuzz_fail_if(clock_mono_ms() >= until_ms, "a call that does not end");
    close(fds[0]);
    close(fds[1]);
    fuzz_fail_if((unsigned)status > GRPC_UNAUTHENTICATED ||
                     (rc == 0) != (status == GRPC_OK) ||
                     (rc == 0) != (err.code == ERR_NONE),
                 "an invalid status");
    fuzz_fail_if(reply.n > req.max_message || reply.n > in.n, "a message over the limit");
}
