/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/*
 * Pods that the kubelet did not admit: counted by its reason and by that of the plugin,
 * for as long as the API still has them.
 */

/* Looks at the pods of namespace default; each is counted once. Those without an owner
 * are deleted and their names handed to `again` (may be NULL). Returns how many were
 * new. */
size_t refusals_look(void (*again)(const char *name));
/* Prints the counts as a figure, and returns their sum. */
size_t refusals_tell(void);
