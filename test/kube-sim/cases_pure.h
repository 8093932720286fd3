/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/api.h"
#include "kube-sim/cases.h"

/* What conformance cases need of the pure API, with a clock that they move. */

struct cases_pure {
    struct api *api;
    int64_t now_ms;
};

void cases_pure_init(struct cases_pure *p);
void cases_pure_fini(struct cases_pure *p);
/* Fills in all of it. */
void cases_pure_server(struct cases_pure *p, struct cases_server *server);
