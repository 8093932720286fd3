/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/store.h"

/*
 * The namespaces of the pods that views name, each once: of pods with a promise, pending
 * pods, and pods that hold cards of another device plugin. For view_auth_config.
 */

/* `ctx` is a struct store. At most `max`, in the arena. */
size_t view_namespaces_list(void *ctx, struct arena *a, struct span *out, size_t max);
