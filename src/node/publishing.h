/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "node/allocating.h"
#include "node/limit_readback.h"

/*
 * Publishing: the threads around the publisher (node/publisher.h), which write the Scv and
 * renew the Lease, ask the kubelet for the devices of containers, and measure their use.
 *
 * A sample is measured in a thread of publishing. While it measures, the newest sample waits,
 * and older ones are dropped.
 */

struct publishing;

/* New; can be asked for checks and metrics at once. Only the threads of calls run. All are
 * borrowed. `limits` NULL: nothing is read back. */
struct publishing *publishing_new(const struct node_options *options,
                                  struct kube_client *client,
                                  struct limit_readback *limits);
/* `allocating`, which is borrowed, says when an admission is under way, and what the node can
 * enforce; NULL: neither. */
void publishing_start(struct publishing *p, struct allocating *allocating);
/* Takes the allocations of this process, in the format of the state file. From any thread. */
void publishing_allocations(struct publishing *p, struct span state);

/* Of the sampler's thread. Takes the sample, NULL if it failed with `err`. */
void publishing_sample(struct publishing *p, struct gpu_sample *sample,
                       const struct err *err);
void publishing_event(struct publishing *p, const struct gpu_event *event);
/* publisher_interval. Sets *reopen if publisher_any_lost. */
int64_t publishing_interval(struct publishing *p, bool *reopen);

/* From any thread. */
void publishing_checks(struct publishing *p, enum status_probe probe,
                       struct status_report *report);
void publishing_metrics(struct publishing *p, struct buf *out);

/* Joins the threads, if they were started. False: a call is still in flight at `until_ms`
 * (clock_mono_ms), and nothing may be freed. The sampler must have stopped. NULL is accepted. */
bool publishing_stop(struct publishing *p, int64_t until_ms);
void publishing_free(struct publishing *p); /* NULL is accepted */

/* Appends the Scv that the sample makes, as JSON. */
void publishing_write_once(const struct node_options *options,
                           const struct gpu_sample *sample, struct buf *out);
