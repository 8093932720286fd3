/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

/*
 * Two servers gave the same answers to a case (cases_run): the same status, and bodies
 * that are equal member by member. But
 *
 * - of UIDs, times, ages, resourceVersions and continue tokens only the form is compared,
 * and so are UIDs and numbers within messages;
 * - a member that is null is as good as none;
 * - what test/kube-sim/differences.json names may differ, and what the step's "differs" names.
 *
 * The file is an array of objects:
 *
 *   "at": "spec.dnsPolicy"   a path from the object's root, in which "*" is any member;
 *                            the elements of an array are members called "[]". With the
 *                            kind in front, "Pod:spec.x": in objects of that kind only
 *   "in": "kubernetes"       only this server may have it; "kube-sim": only that one;
 *                            "both": the values may differ, and all below them
 *   "why": "..."
 *
 * The object's root is the answer, an item of a list, the object of an event or of a row.
 * "differs" has such paths and reasons, of the last sort.
 */

#define SAME_RULES "test/kube-sim/differences.json"

/* Says all that is different on standard output; returns how much that is. `ours` is
 * kube-sim's. */
size_t same_check(const char *file, const json_t *theirs, const json_t *ours);
