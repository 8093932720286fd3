/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "setup/facts.h"

/*
 * Evaluates the facts; pure. The findings are in the order of a pod's way: from
 * kube-scheduler to the extender. There is a finding for each problem, for what could not
 * be checked, and for what is correct: the fact, its effect, and a command that repairs it
 * or shows more. Both functions append them as text, and return 1: there is a problem; 2: no
 * problem is known, but something could not be checked; 0: neither. Control characters,
 * which objects of the cluster may contain, become '?'.
 */

/* All checks; that of the API server only if `with_cluster`. */
int checks_run(const struct facts *f, bool with_cluster, struct buf *out);
/* The extender's answer alone. */
int checks_reach(const struct facts *f, struct buf *out);
