/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "e2e-node/node.h"

/*
 * Compares what the sides report of the containers on the node: the environment that the
 * container printed, the kubelet's podresources, the pod's annotations, and the extender's
 * ledger. The tag of a device id names its card (domain/ids.h).
 */

/* podresources of namespace default: {"pod/container": [ids]}. Fails if two containers hold
 * the same id. Kept; NULL: no reply (the kubelet was killed). */
json_t *look_held(void);
/* The value of a variable in a container's output; "" if absent. Kept. */
char *look_variable(const char *log, const char *name);

/* Waits for the output of the pod's container. Fails unless it sees the card that the pod's
 * annotation promises. */
void look_card(const char *pod);

/* Waits until every pod that has not failed runs, and fails unless all sides agree on each
 * container. Returns the number of containers with cards. */
size_t look_check(void);
/* Prints how many containers were compared. */
void look_tell(void);

/* Ends a passed test: prints the numbers and the refusals, deletes the pods, and waits until
 * no promise remains. */
void look_finish(void);

/* Starts a thread that calls podresources List and Get continuously, and compares the result
 * with the output of the containers. */
void look_watch(void);
void look_watch_end(void); /* prints the number of calls */

/* Prints the pods of namespace default that the kubelet has refused, each once, with the reason.
 * Deletes those without an owner and calls `again` (may be NULL) with their names. Returns the
 * number of new ones. */
size_t look_refusals(void (*again)(const char *name));
void look_tell_refusals(void); /* prints how many there were */
