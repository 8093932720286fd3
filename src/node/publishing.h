/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "node/allocating.h"

/*
 * Publishing: the threads around the publisher (node/publisher.h), which write the Scv and
 * renew the Lease, ask the kubelet for the devices of containers, and measure their use.
 *
 * A sample is measured in a thread of publishing. While it measures, the newest sample waits,
 * and older ones are dropped.
 */

struct publishing;

/* New; can be asked for checks and metrics at once. Only the threads of calls run. All are
 * borrowed. `allocating` says when an admission is under way, what the node can enforce, and the
 * driver's limits; NULL: this process does not allocate. */
struct publishing *publishing_new(const struct node_options *options,
                                  struct kube_client *client,
                                  struct allocating *allocating);
void publishing_start(struct publishing *p);
/* Takes the allocations of this process, in the format of the state file. From any thread. */
void publishing_allocations(void *publishing, struct span state);

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
