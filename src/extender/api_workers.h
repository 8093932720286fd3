/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/core_driver.h"
#include "extender/counters.h"
#include "extender/forward.h"
#include "kube/client.h"
#include "kube/event_recorder.h"

/*
 * The I/O of the core driver: executes the outputs of the core against the API server and feeds
 * the answers back as inputs. One thread runs the lists and watches, one each the calls
 * for the Lease, for pods and for Nodes, so that no kind waits for another; one is the
 * timer of the core.
 */

struct api_workers;

/* New; starts no thread. Both are borrowed; `counters` may be NULL. */
struct api_workers *api_workers_new(struct kube_client *client,
                                    struct counters *counters);
/* The functions with which the driver executes outputs: the argument of core_driver_new. */
struct core_driver_io api_workers_io(struct api_workers *workers);
/* Starts the threads of lists, watches and calls. `driver` and `recorder` (or NULL) are
 * borrowed. `gzip`: request compressed lists. */
void api_workers_start(struct api_workers *workers, struct core_driver *driver,
                       struct event_recorder *recorder, bool gzip);
/* Starts the timer, and so everything that the core does. It also closes the idle
 * connections of `forward` (borrowed). */
void api_workers_start_timer(struct api_workers *workers, struct forward *forward);
/* Posts an event and waits for the answer. -1: not written. `ctx` is the api_workers. */
int api_workers_post_event(void *ctx, const struct kube_request *request,
                           struct err *err);
void api_workers_stop(
    struct api_workers *workers); /* joins all threads; NULL is accepted */
void api_workers_free(struct api_workers *workers); /* NULL is accepted */
