/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/cases.h"
#include "kube-sim/sim.h"

/* Runs conformance cases against the pure API, with a clock that the cases advance. */

struct cases_pure {
    struct api *api;
    int64_t now_ms;
};

void cases_pure_init(struct cases_pure *p);
void cases_pure_fini(struct cases_pure *p);
/* Sets all members of `server`. */
void cases_pure_server(struct cases_pure *p, struct cases_server *server);
