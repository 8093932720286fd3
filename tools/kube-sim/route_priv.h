/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/str.h"
#include "kube-sim/kinds_priv.h"

/* The resource, object or subresource of a path. */
struct route {
    const struct kind *kind; /* NULL: not a served resource */
    struct span ns;          /* {NULL, 0}: cluster scope or all namespaces */
    struct span name;        /* {NULL, 0}: the collection */
    struct span sub;         /* {NULL, 0}: the object itself */
};

struct route sim_route_parse(const char *path);
