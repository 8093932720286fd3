/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "node/alloc_state.h"

/*
 * Comparison of what the kubelet shows with the allocations and the promises. The kubelet is
 * the authority on what a container holds, the annotations on what it may hold.
 *
 * What the kubelet shows beyond the allocations (the state file was lost) is adopted. A
 * container on a card that was not promised to it is reported, and nothing is changed: a
 * promise is never rewritten to fit what the kubelet did. Ids of the Go plugin name no card
 * and are skipped.
 */

/* The comparisons between requests. {0}: none yet. */
struct reconcile {
    uint64_t query;  /* outstanding podresources call; 0: none */
    uint64_t serial; /* of the last request when it was sent */
    bool all;        /* it is a List */
    int64_t next_ms;
    int64_t answered_ms; /* last answer of podresources, an error included */
};

/* Sends the next podresources call if it is due. `serial`: of the last request; there is no
 * request that waits. */
void reconcile_tick(struct reconcile *r, struct alloc_state *s, uint64_t serial);
void reconcile_answered(struct reconcile *r, struct alloc_state *s, uint64_t serial,
                        const struct alloc_kubelet_view *view);
/* Adopts and checks what the kubelet shows of some pods, or of `all`. */
void reconcile_view(struct alloc_state *s, const struct alloc_kubelet_view *view,
                    bool all);
