/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/machine.h"

/*
 * The thread that reads the cards. It alone has the source, because a call into the
 * driver may never return; who waits for it, in vain, is told by the machine.
 */

struct sampler;

struct sampler_fns {
    void (*input)(void *ctx, const struct machine_input *in);
    /* How long from one sample to the next; asked again and again. *lost: a card is lost,
     * or there is none: the source is to begin anew now and then. */
    int64_t (*interval)(void *ctx, bool *lost);
    void *ctx;
};

/* New; the thread runs at once. `gpu` is borrowed, `fns` is copied. */
struct sampler *sampler_start(struct gpu *gpu, const struct sampler_fns *fns);
/* Joins the thread. False: it hangs in the driver; nothing that it uses may be freed. */
bool sampler_stop(struct sampler *s); /* NULL is accepted */
void sampler_free(struct sampler *s); /* NULL is accepted */
