/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

/*
 * Compares the replies of two servers to a case (cases_run): the same status, and bodies
 * that are equal member by member, except that
 *
 * - only the form of UIDs, times, ages, resourceVersions and continue tokens is compared,
 *   also of UIDs and numbers within messages;
 * - null equals absent;
 * - members in test/kube-sim/differences.json, or in the step's "differs", may differ.
 *
 * The file is an array of objects:
 *
 *   "at": "spec.dnsPolicy"   a path from the object's root, in which "*" is any member;
 *                            the elements of an array are members called "[]". With the
 *                            kind in front, "Pod:spec.x": in objects of that kind only
 *   "in": "kubernetes"       only this server may have the member; "kube-sim": only
 *                            kube-sim;
 *                            "both": the values may differ, with all their members
 *   "why": "..."
 *
 * The root is the reply, an item of a list, the object of an event or of a table row.
 * "differs" maps such paths to reasons, as "both".
 */

#define SAME_RULES "test/kube-sim/differences.json"

/* Prints all differences to standard output and returns their number. `ours`: the replies
 * of kube-sim. */
size_t same_check(const char *file, const json_t *theirs, const json_t *ours);
