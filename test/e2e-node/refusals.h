/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/*
 * Counts pods that the kubelet refused, by the kubelet's and the plugin's reason, while the
 * API server still has them.
 */

/* Counts the refused pods of namespace default, each once. Deletes those without an owner and
 * calls `again` (may be NULL) with their names. Returns the number of new ones. */
size_t refusals_look(void (*again)(const char *name));
/* Prints the counts and returns their sum. */
size_t refusals_tell(void);
