/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "node/alloc.h"
#include "node/limit_readback.h"
#include "node/podresources.h"
#include "node/usage.h"

/*
 * Measures what each container uses (node/usage.h): reads /proc and the kubelet's names of
 * containers, and keeps the last answer of the podresources API for the promises.
 *
 * A promise is what the kubelet allocated: the units of aliyun.com/gpu-mem, or the whole card
 * of aliyun.com/gpu-count and nvidia.com/gpu. Replicas of NVIDIA's plugin have no known amount.
 * The kubelet does not list plain init containers: what they may have follows from the allocations
 * of this process or, where another one allocates, from the annotations of pods. An init container
 * that neither shows has no known promise.
 *
 * All functions may run in different threads.
 */

struct usage_meter;

struct usage_meter_settings {
    const char *host_root; /* borrowed; see node/process.h */
    const char *limit_dir; /* borrowed; see node/limit_slots.h */
    int64_t unit_mib;      /* of aliyun.com/gpu-mem */
    int64_t pods_limit_ms; /* promises are unknown after this time without an answer */
    struct limit_readback *limits; /* borrowed; NULL: nothing is read back */
};

struct usage_meter *
usage_meter_new(const struct usage_meter_settings *settings); /* new */
void usage_meter_free(struct usage_meter *m);                 /* NULL is accepted */

/* Takes a reference to an answer of the kubelet. */
void usage_meter_pods(struct usage_meter *m, struct podresources *devices);

/* Takes an input of pods_informer_new (node/calls.h) with its pod. `meter` is a struct
 * usage_meter. */
void usage_meter_pod(void *meter, const struct alloc_input *in);

/* Measures the processes of the sample, NULL when it failed, into *u. `isolation`: what the node
 * can enforce, as in the Scv. `err` has the reason why processes or names are unknown; its code is
 * ERR_NONE when there is none. */
void usage_meter_measure(struct usage_meter *m, int64_t now_ms,
                         const struct gpu_sample *sample, uint8_t isolation,
                         struct usage *u, struct err *err);

/* The promises of the devices on the cards of the sample, in the arena. Pure, but for the pods of
 * the meter, which say what slots are that another process allocated. */
size_t usage_meter_promises(const struct usage_meter *m,
                            const struct podresources *devices,
                            const struct gpu_sample *sample, struct arena *a,
                            const struct usage_promise **promises);
