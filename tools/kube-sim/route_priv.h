/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/str.h"
#include "kube-sim/kinds_priv.h"

/* What a path stands for. */
struct route {
    const struct kind *kind; /* NULL: no resource that is served */
    struct span ns;          /* {NULL, 0}: none in the path */
    struct span name;        /* {NULL, 0}: the collection */
    struct span sub;         /* {NULL, 0}: the object itself */
};

struct route sim_route_parse(const char *path);
