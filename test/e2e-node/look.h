/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "e2e-node/node.h"

/*
 * What each side says of the containers on the node, and whether they agree: what the
 * container printed, what the kubelet's podresources shows, the pod's annotations, and
 * the extender's ledger. The tags of device ids are taken for what they are seen to be:
 * one that meant a card once means it always, and no two mean the same one.
 */

/* What the kubelet shows of namespace default: {"pod/container": [ids]}. Fails when two
 * containers hold one id. New; NULL: it does not answer (it was killed). */
json_t *look_held(void);
/* The same of one pod, by Get: an empty object when it is not there. */
json_t *look_held_by(const char *pod);
/* The value of a variable in what a container printed; "" if it is not there. New. */
char *look_variable(const char *log, const char *name);
/* The container holds these ids and printed this: are the cards the same? If not, it is
 * counted by look_wrong. From any thread. */
void look_at_container(const char *name, const json_t *ids, const char *log);

/* Every pod of the namespace that has not failed runs, and every side says the same of
 * each container. Returns the number of containers with cards. */
size_t look_check(void);
/* How many containers have been compared by this process, of any of the two ways. */
size_t look_count(void);
/* How many of them were on another card than they should be. look_check fails if there
 * are any. */
size_t look_wrong(void);
/* Prints both as figures, and fails if any was wrong. */
void look_tell(void);

/* Ends a test that has passed: tells that, and who was refused; then the pods are deleted
 * and nothing is promised any more. */
void look_finish(void);

/* A thread that asks podresources all the time, for List and for Get, and compares what
 * it shows with what the containers have printed. */
void look_watch(void);
void look_watch_end(void); /* and tells how often it has asked */
