/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/program.h"

/* Starts a script of this folder under node, with the arguments (which end with NULL). */
void peers_node(struct program *p, const char *dir, const char *script,
                const char *const *args);
