/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/str.h"

/* Prometheus' own judgement: fails the test, with what promtool says, unless it finds
 * nothing to complain of. */

/* promtool check metrics. */
void promtool_check_metrics(struct span text);
/* "check rules" or "test rules" of a file of the repository. */
void promtool_rules(const char *what, const char *file);
