/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/str.h"

/* Checks with Prometheus' promtool; an error fails the test with promtool's output. */

/* Runs promtool with these arguments, which a shell reads. */
void promtool_run(const char *arguments);
/* Runs promtool check metrics. */
void promtool_check_metrics(struct span text);
