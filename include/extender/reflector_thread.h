/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/counters.h"
#include "extender/store.h"

/*
 * The watch thread: all lists and watches, on one loop. It starts what the core asks for
 * and hands what comes back to the store, through feed/stream.
 */

struct reflector_thread;

/* New; the thread runs at once. `client` and `counters`
 * (where it counts) are borrowed. `gzip`: let lists be compressed. */
struct reflector_thread *reflector_thread_start(struct store *store,
                                                struct kube_client *client,
                                                struct counters *counters, bool gzip);
/* Copies the output (CORE_LIST or CORE_WATCH) into the queue. Never blocks. */
void reflector_thread_add(struct reflector_thread *sync,
                          const struct core_output *output);
/* Ends all streams and joins the thread; what is still added is dropped. NULL is
 * accepted. */
void reflector_thread_stop(struct reflector_thread *sync);
void reflector_thread_free(struct reflector_thread *sync);
