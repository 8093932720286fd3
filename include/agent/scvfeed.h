/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/machine.h"
#include "kube/listwatch.h"

/*
 * From the bytes of the watch of our Scv to inputs of the machine. Pure.
 *
 * An event that cannot be understood ends the watch: it may have been a change. The list
 * that follows tells.
 */

struct scvfeed {
    struct listwatch in;
    uint64_t run;
    void (*input)(void *ctx, const struct machine_input *in);
    void *ctx;
};

void scvfeed_init(struct scvfeed *f,
                  void (*input)(void *ctx, const struct machine_input *in), void *ctx);
void scvfeed_fini(struct scvfeed *f);

void scvfeed_start(struct scvfeed *f, uint64_t run);
/* The answer begins; a piece of its body. False: the rest is not wanted. */
bool scvfeed_begin(struct scvfeed *f, unsigned status, int64_t retry_after_s);
bool scvfeed_data(struct scvfeed *f, const char *p, size_t n);
/* It has ended, or there was none; `why` is NULL if as announced. Tells the machine. */
void scvfeed_end(struct scvfeed *f, const struct err *why);
