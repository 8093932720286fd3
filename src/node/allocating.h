/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "gpu/gpu.h"
#include "kube/client.h"
#include "node/options.h"
#include "node/status_server.h"

/*
 * Allocating: the dispatcher (node/dispatcher.h), the calls that it asks for (node/calls.h),
 * samples of the cards as its inputs, and the driver's limits (node/limit_readback.h).
 */

struct allocating;

/* New, without threads; reads the state file. `options` and `client` are borrowed.
 * `interval_ms`: between two samples. `gpu` is borrowed for the sampler's thread. */
struct allocating *allocating_new(const struct node_options *options,
                                  struct kube_client *client, struct gpu *gpu,
                                  int64_t interval_ms, struct err *err);
/* Registers as soon as there are cards and a kubelet. `saved` gets the text of the state
 * file at the start and after each change, in the thread that answers the kubelet. NULL: nobody
 * asks. */
void allocating_start(struct allocating *a, void (*saved)(void *ctx, struct span state),
                      void *ctx);

/* Of the sampler's thread. `sample` is NULL if it failed with `err`; both are borrowed. It took
 * `took_ms`. */
void allocating_sample(struct allocating *a, const struct gpu_sample *sample,
                       const struct err *err, int64_t took_ms);
void allocating_event(struct allocating *a, const struct gpu_event *event);
/* Whether the source must be reopened to find a card that came back. */
bool allocating_any_lost(const struct allocating *a);

/* From any thread. */
/* Sets what a sample says of this node beside its cards: its isolation, and its dialect. */
void allocating_describe(struct allocating *a, struct arena *arena,
                         struct publisher_input *in);
bool allocating_admits(struct allocating *a); /* an admission is under way */
struct limit_readback *allocating_limits(struct allocating *a); /* borrowed */
void allocating_checks(struct allocating *a, enum status_probe probe,
                       struct status_report *report);
void allocating_metrics(struct allocating *a, struct buf *out);

/* Waits briefly for the kubelet's calls in flight, stops serving, and joins the threads. False: a
 * call is still in flight at `until_ms` (clock_mono_ms), and nothing may be freed. NULL is
 * accepted. */
bool allocating_stop(struct allocating *a, int64_t until_ms);
void allocating_free(struct allocating *a); /* NULL is accepted */
