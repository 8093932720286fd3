/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "plugin/alloc.h"
#include "wire/entry.h"

/*
 * The program gpushare-device-plugin: its options, and the start and stop order of its
 * parts.
 */

struct plugin_config {
    struct entry_options entry;
    char *gpu_source;
    int64_t unified_bytes;
    int64_t interval_ms, sampler_limit_ms, late_ms, port;
    char *plugin_dir, *podresources, *state, *limit_library;
    int by_index;
    /* Without by_index and silent_ms, and response without strategy. */
    struct alloc_settings alloc;
    struct driver_view_settings driver; /* without by_index */
};

extern const struct opt_program plugin_program;

struct plugin;

/* New; registers as soon as there are cards and a kubelet. The caller must have blocked
 * the signals that end the program, so that all threads block them. */
struct plugin *plugin_start(const struct plugin_config *config, struct err *err);
/* False: a thread hangs in the driver, and nothing was freed; the process must exit. */
bool plugin_stop(struct plugin *p);
