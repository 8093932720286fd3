/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "setup/facts.h"
#include "setup/findings.h"

/*
 * Evaluates the facts; pure. Each function adds problems, what could not be checked, and
 * a line for what is correct.
 */

/* The static pod, its configuration file, its process. False: the configuration cannot be
 * checked. */
bool checks_scheduler(const struct facts *f, struct findings *out);
/* The configuration file and our entry in it. False: there is no usable entry. */
bool checks_config(const struct facts *f, struct findings *out);
/* The extender's answer at the configured address. */
void checks_reach(const struct facts *f, struct findings *out);
/* The API server's objects: other control planes, the extender's objects, admission
 * policies, nodes, pending pods. */
void checks_cluster(const struct facts *f, struct findings *out);

/* All of them; those of the cluster only if `with_cluster`. */
void checks_run(const struct facts *f, bool with_cluster, struct findings *out);
