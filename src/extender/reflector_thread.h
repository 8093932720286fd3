/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/counters.h"
#include "extender/store.h"

/*
 * The thread that runs a reflector (apisync/reflector.h) for each kind of object. It
 * starts the lists and watches that the core asks for and feeds what they deliver to the
 * store.
 */

struct reflector_thread;

/* New; the thread runs at once. All pointers are borrowed; `counters` may be NULL.
 * `gzip`: request compressed lists. */
struct reflector_thread *reflector_thread_start(struct store *store,
                                                struct kube_client *client,
                                                struct counters *counters, bool gzip);
/* Queues a copy of a CORE_LIST or CORE_WATCH. Never blocks. */
void reflector_thread_add(struct reflector_thread *t, const struct core_output *output);
/* Cancels all streams and joins the thread; later additions are dropped. NULL is
 * accepted. */
void reflector_thread_stop(struct reflector_thread *t);
void reflector_thread_free(struct reflector_thread *t); /* NULL is accepted */
