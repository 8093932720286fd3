/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/clock.h"
#include "lib/stub.h"
#include "wire/httpc.h"

/* A client of a stub server. Each test program of the client includes this. */

enum { MAX_BODY = 1 << 20, TIMEOUT_MS = 60000 };

static inline struct httpc *client_with(const struct httpc_config *config)
{
    struct err err = {0};
    struct httpc *c = httpc_new(config, &err);
    ck_assert_msg(c != NULL, "%s", err.msg);
    return c;
}

static inline struct httpc *client_of(const char *url)
{
    return client_with(&(struct httpc_config){
        .url = url, .user_agent = "test/1", .connect_ms = TIMEOUT_MS});
}

/* The body runs with a client `c` of the stub server `s`, which are freed. */
#define FOR_SERVER(start)                                                                \
    for (struct stub *s = (start), *s_ = s; s_; stub_stop(s), s_ = NULL)                 \
        for (struct httpc *c = client_of(stub_url(s)), *c_ = c; c_;                      \
             httpc_free(c), c_ = NULL)
#define FOR_CLIENT(serve, ctx) FOR_SERVER(stub_start(serve, ctx))
#define FOR_NARROW(serve, ctx) FOR_SERVER(stub_start_narrow(serve, ctx))
