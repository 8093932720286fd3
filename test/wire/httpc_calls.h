/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/clock.h"
#include "lib/stub.h"
#include "wire/httpc.h"

/* Helpers for tests of failing calls. */

enum { MAX_BODY = 1 << 20, TIMEOUT_MS = 60000 };

static inline struct httpc *client_of(const char *url, int64_t connect_ms)
{
    struct httpc_config config = {.url = url, .connect_ms = connect_ms};
    struct err err = {0};
    struct httpc *c = httpc_new(&config, &err);
    ck_assert_msg(c != NULL, "%s", err.msg);
    return c;
}

static inline struct httpc_request request(const char *method, const char *body)
{
    return (struct httpc_request){
        .method = method, .path = "/", .body = span_of(body), .timeout_ms = TIMEOUT_MS};
}

/* The result of a call. */
struct outcome {
    int rc;
    enum err_code code;
    unsigned status;
    bool sent;
    size_t n;
    int64_t took_ms;
    struct err err;
};

static inline struct outcome call(struct httpc *c, const struct httpc_request *req)
{
    struct outcome o = {0};
    struct httpc_reply reply;
    int64_t start = clock_mono_ms();
    o.rc = httpc_call(c, req, MAX_BODY, &reply, &o.err);
    o.took_ms = clock_mono_ms() - start;
    o.code = o.err.code;
    o.status = reply.status;
    o.sent = reply.sent;
    o.n = reply.body.n;
    httpc_reply_fini(&reply);
    return o;
}
