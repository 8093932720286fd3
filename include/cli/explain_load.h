/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/explain.h"
#include "cli/session.h"

/*
 * Reads what `explain pod` needs beside the snapshot: the Pod, the extender's view if
 * --extender names one, and the PodGroup or Workload of the pod's gang. What cannot be read
 * is left out.
 */

struct explain_load {
    struct explain_facts facts;
    json_t *pod;
};

/* facts.colors is false. Release it with explain_load_fini. */
void explain_load(struct session *s, struct span ns, struct span name,
                  struct explain_load *loaded);
void explain_load_fini(struct explain_load *loaded);
