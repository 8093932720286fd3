/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "e2e-node/node.h"

/*
 * Compares what the sides report of the containers on the node: the environment that the
 * container printed, the kubelet's podresources, the pod's annotations, and the extender's
 * ledger. The card of a device id's tag is learned: a tag always means the same card, and
 * no two tags mean one card.
 */

/* podresources of namespace default: {"pod/container": [ids]}. Fails if two containers hold
 * the same id. New; NULL: no reply (the kubelet was killed). */
json_t *look_held(void);
/* podresources Get of one pod; an empty object if it does not exist. New. */
json_t *look_held_by(const char *pod);
/* The value of a variable in a container's output; "" if absent. New. */
char *look_variable(const char *log, const char *name);
/* Compares the cards of a container's ids and of its output; a difference counts in
 * look_wrong. Thread-safe. */
void look_at_container(const char *name, const json_t *ids, const char *log);

/* Waits until every pod that has not failed runs, and fails unless all sides agree on each
 * container. Returns the number of containers with cards. */
size_t look_check(void);
/* Number of containers compared by either function in this process. */
size_t look_count(void);
/* Number of compared containers on a wrong card. look_check fails unless it is 0. */
size_t look_wrong(void);
/* Prints both numbers, and fails unless look_wrong is 0. */
void look_tell(void);

/* Ends a passed test: prints the numbers and the refusals, deletes the pods, and waits until
 * no promise remains. */
void look_finish(void);

/* Starts a thread that calls podresources List and Get continuously, and compares the result
 * with the output of the containers. */
void look_watch(void);
void look_watch_end(void); /* prints the number of calls */
