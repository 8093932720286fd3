/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/counters.h"
#include "kube/event_recorder.h"
#include "extender/forward.h"
#include "extender/store.h"
#include "kube/client.h"

/*
 * The I/O of the store: executes the outputs of the core against the API server and feeds
 * the answers back as inputs. One thread runs the lists and watches, one each the calls
 * for the Lease, for pods and for Nodes, so that no kind waits for another; one is the
 * timer of the core.
 */

struct api_io;

/* New; starts no thread. Both are borrowed; `counters` may be NULL. */
struct api_io *api_io_new(struct kube_client *client, struct counters *counters);
/* The functions with which the store executes outputs: the argument of store_new. */
struct store_io api_io_functions(struct api_io *io);
/* Starts the threads of lists, watches and calls. `store` and `recorder` (or NULL) are
 * borrowed. `gzip`: request compressed lists. */
void api_io_start(struct api_io *io, struct store *store, struct event_recorder *recorder,
                  bool gzip);
/* Starts the timer, and so everything that the core does. It also closes the idle
 * connections of `forward` (borrowed). */
void api_io_start_timer(struct api_io *io, struct forward *forward);
/* Posts an event and waits for the answer. -1: not written. `ctx` is the api_io. */
int api_io_post_event(void *ctx, const struct kube_request *request, struct err *err);
void api_io_stop(struct api_io *io); /* joins all threads; NULL is accepted */
void api_io_free(struct api_io *io); /* NULL is accepted */
