/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/str.h"

/* Checks with Prometheus' promtool; an error fails the test with promtool's output. */

/* Runs promtool check metrics. */
void promtool_check_metrics(struct span text);
/* Runs promtool "check rules" or "test rules" on a file of the repository. */
void promtool_rules(const char *what, const char *file);
