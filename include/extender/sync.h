/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/store.h"
#include "extender/tally.h"

/*
 * The watch thread: all lists and watches, on one loop. It starts what the core asks for
 * and hands what comes back to the store, through feed/stream.
 */

struct sync;

/* New; the thread runs at once. `client` and `tally`
 * (where it counts) are borrowed. `gzip`: let lists be compressed. */
struct sync *sync_start_thread(struct store *store, struct kube_client *client,
                               struct tally *tally, bool gzip);
/* Copies the output (CORE_LIST or CORE_WATCH) into the queue. Never blocks. */
void sync_add(struct sync *sync, const struct core_output *output);
/* Ends all streams and joins the thread; what is still added is dropped. NULL is
 * accepted. */
void sync_stop(struct sync *sync);
void sync_free(struct sync *sync);
