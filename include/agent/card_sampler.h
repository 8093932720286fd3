/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/publisher.h"

/*
 * The thread that reads the cards. It alone has the source, because a call into the
 * driver may never return; who waits for it, in vain, is told by the publisher.
 */

struct sampler;

struct card_sampler_fns {
    void (*input)(void *ctx, const struct publisher_input *in);
    /* How long from one sample to the next; asked again and again. *lost: a card is lost,
     * or there is none: the source is to begin anew now and then. */
    int64_t (*interval)(void *ctx, bool *lost);
    void *ctx;
};

/* New; the thread runs at once. `gpu` is borrowed, `fns` is copied. */
struct card_sampler *card_sampler_start(struct gpu *gpu, const struct card_sampler_fns *fns);
/* Joins the thread. False: it hangs in the driver; nothing that it uses may be freed. */
bool card_sampler_stop(struct card_sampler *s); /* NULL is accepted */
void card_sampler_free(struct card_sampler *s); /* NULL is accepted */
