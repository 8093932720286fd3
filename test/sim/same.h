/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

/*
 * Two servers gave the same answers to a case (cases_run): the same status, and bodies
 * that are equal member by member, in which
 *
 * - of UIDs, times, resourceVersions, continue tokens and IP addresses only the form is
 *   compared, and so are UIDs and numbers within messages;
 * - what test/sim/differences.json names may differ. It is an array of objects:
 *     "at": "spec.dnsPolicy"    a path from the object's root, where "*" is any one
 * member; elements of arrays are members called "[]". With the kind in front
 * ("Pod:spec.x") for objects of that kind only "in": "kubernetes"        only this server
 * may have it; "kube-sim": only that one; "both": the values may differ "why": "..." The
 * object's root is the answer, an item of a list, the object of an event or row.
 */

#define SAME_RULES "test/sim/differences.json"

/* Says all that is different on standard output; returns how much that is. `ours` is
 * kube-sim's. Steps that say "differs" are left out. */
size_t same_check(const char *file, const json_t *theirs, const json_t *ours);
