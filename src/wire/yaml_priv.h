/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "wire/yaml.h"

enum {
    YAML_MAX_DEPTH = 64,
    YAML_MAX_BYTES = 10 << 20,
    YAML_MAX_NODES =
        1 << 20, /* a node takes about 100 bytes, in a file it may take two */
};

struct yaml {
    char *name;
    struct arena arena; /* nodes and texts */
    struct yaml_node **documents;
    size_t n, cap;
};
