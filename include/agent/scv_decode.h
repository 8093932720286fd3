/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/publisher.h"
#include "kube/watchfeed.h"

/*
 * From the bytes of the watch of our Scv to inputs of the publisher. Pure.
 *
 * An event that cannot be understood ends the watch: it may have been a change. The list
 * that follows tells.
 */

struct scv_decode {
    struct watchfeed in;
    uint64_t run;
    void (*input)(void *ctx, const struct publisher_input *in);
    void *ctx;
};

void scv_decode_init(struct scv_decode *f,
                     void (*input)(void *ctx, const struct publisher_input *in),
                     void *ctx);
void scv_decode_fini(struct scv_decode *f);

void scv_decode_start(struct scv_decode *f, uint64_t run);
/* The answer begins; a piece of its body. False: the rest is not wanted. */
bool scv_decode_begin(struct scv_decode *f, unsigned status, int64_t retry_after_s);
bool scv_decode_data(struct scv_decode *f, const char *p, size_t n);
/* It has ended, or there was none; `why` is NULL if as announced. Tells the publisher. */
void scv_decode_end(struct scv_decode *f, const struct err *why);
