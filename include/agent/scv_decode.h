/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/publisher.h"
#include "kube/listwatch.h"

/*
 * Decodes the watch of the Scv into inputs of the publisher. Pure.
 *
 * An event that cannot be decoded ends the watch, because it may be a change. The list
 * that follows returns the object.
 */

struct scv_decode {
    struct listwatch in;
    uint64_t run; /* number of the watch, in every input */
    void (*input)(void *ctx, const struct publisher_input *in);
    void *ctx;
};

void scv_decode_init(struct scv_decode *f,
                     void (*input)(void *ctx, const struct publisher_input *in),
                     void *ctx);
void scv_decode_fini(struct scv_decode *f);

void scv_decode_start(struct scv_decode *f, uint64_t run);
/* The headers of the response, then pieces of its body. False: cancel the stream. */
bool scv_decode_begin(struct scv_decode *f, unsigned status, int64_t retry_after_s);
bool scv_decode_data(struct scv_decode *f, const char *p, size_t n);
/* The response ended, or there was none: passes PUBLISHER_WATCH_ENDED on. `why` is NULL
 * when the server ended the watch regularly. */
void scv_decode_end(struct scv_decode *f, const struct err *why);
