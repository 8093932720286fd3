/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/err.h"

/*
 * When the process ends because its container has lost the driver. Pure.
 *
 * The container runtime puts device nodes and libraries of the driver into a container when it
 * creates it. After `systemctl daemon-reload` the devices can be inaccessible, and after an
 * update of the driver the libraries are the former ones: NVML then answers every process of
 * this container 999 or 18 (ERR_GONE of gpu_sample) for ever, and only a new container helps.
 * The kubelet creates one when the process ends.
 *
 * On a node whose driver is broken for every container, a new one helps nothing. So a process
 * that never sampled the cards waits longer, and the kubelet's back-off does not grow.
 */

enum {
    DRIVER_LOSS_MS = 3 * 60 * 1000,        /* after a sample of this process */
    DRIVER_LOSS_FIRST_MS = 10 * 60 * 1000, /* without one */
};

/* {0}: no sample yet. */
struct driver_loss {
    bool sampled; /* once at least */
    bool lost;    /* since: */
    int64_t since_ms;
};

/* Takes the outcome of a sample. True: the process must end. */
bool driver_loss_step(struct driver_loss *l, int64_t now_ms, enum err_code outcome);
