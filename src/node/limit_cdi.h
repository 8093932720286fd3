/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * The driver's limits of memory as CDI devices: a file for each pod in --cdi-dir, and in it a
 * device for each container, which holds nothing but the variables that NVIDIA's hook
 * (DRIVER_LIMIT_HOOK) reads:
 *
 *     gpushare.io-limit-UID.json     gpushare.io/limit=UID-CONTAINER
 *
 * The runtime applies a device's variables after the container's own, and reads the file again at
 * each start of the container. A container that was given a device starts only while it is defined.
 */

#define LIMIT_CDI_KIND "gpushare.io/limit"

struct limit_cdi_container {
    struct span name;
    int64_t mib; /* on each of its cards; 0: no limit */
};

/* Can the two name a file and a device? A static pod has no such UID. */
bool limit_cdi_is_name(struct span uid, struct span container);

/* Writes the file of a pod atomically, if it differs. The names are valid. No soft limit is set: it
 * would stay behind in the parents of a cgroup that ends. */
int limit_cdi_write(const char *dir, struct span uid,
                    const struct limit_cdi_container *containers, size_t n,
                    struct err *err);

/* Removes the files of pods that are not known. */
void limit_cdi_sweep(const char *dir, bool (*is_known)(void *ctx, const char *uid),
                     void *ctx);
