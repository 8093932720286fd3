/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/rightsize.h"
#include "cli/session.h"

/*
 * Lists the Scvs into a rightsize, page by page: of the namespace that the options name, or
 * of all. The ledger of the session lacks the workloads, which nothing else needs.
 */

int rightsize_load(struct session *s, struct rightsize *r, struct err *err);
