/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/recorder.h"
#include "extender/store.h"

/*
 * The thread that looks at all nodes once a second, if anything has changed or is left to
 * tell, and lets extender/nodewatch.h tell of it. Of several replicas, only the holder of
 * the lease tells; the others look, and what comes too late for it to have told they tell
 * when they get the lease.
 */

struct nodenews;

/* New; the thread runs at once. What is handed over is borrowed. */
struct nodenews *nodenews_start(struct store *store, struct recorder *recorder,
                                uint64_t seed);
void nodenews_stop(struct nodenews *n); /* joins the thread; NULL is accepted */
void nodenews_free(struct nodenews *n); /* NULL is accepted */
