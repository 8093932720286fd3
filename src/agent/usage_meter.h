/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/podresources.h"
#include "node/usage.h"

/*
 * Measures what each container uses (node/usage.h): reads /proc and the kubelet's names of
 * containers, and keeps the last answer of the podresources API for the promises.
 *
 * A promise is what the kubelet allocated: the units of aliyun.com/gpu-mem times the size
 * of a unit, or the whole card of aliyun.com/gpu-count and nvidia.com/gpu. The size of a
 * unit follows from the number of units that the kubelet has for the card. Replicas of
 * NVIDIA's plugin have no known amount. Those of plain init containers come from our device
 * plugin (agent/podresources.h).
 *
 * One thread reports pods, another one measures.
 */

struct usage_meter;

struct usage_meter_settings {
    const char *host_root; /* borrowed; see node/process.h */
    const char *limit_dir; /* borrowed; see node/limit_slots.h */
    int64_t pods_limit_ms; /* promises are unknown after this time without an answer */
};

struct usage_meter *
usage_meter_new(const struct usage_meter_settings *settings); /* new */
void usage_meter_free(struct usage_meter *m);                 /* NULL is accepted */

/* Takes a reference to an answer of the kubelet. */
void usage_meter_pods(struct usage_meter *m, int64_t now_ms,
                      struct podresources *devices);

/* Measures the processes of the sample, NULL when it failed, into *u. `err` has the reason
 * why processes or names are unknown; its code is ERR_NONE when there is none. */
void usage_meter_measure(struct usage_meter *m, int64_t now_ms,
                         const struct gpu_sample *sample, struct usage *u,
                         struct err *err);

/* The promises of the devices on the cards of the sample, in the arena. Pure. */
size_t usage_meter_promises(const struct podresources *devices,
                            const struct gpu_sample *sample, struct arena *a,
                            const struct usage_promise **promises);
