/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "plugin/health_checks.h"

/* Appends the device plugin's metrics; docs/metrics.md describes each. */
void plugin_metrics_write(struct buf *out, const struct health_checks *checks);
