/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/core_driver.h"

/*
 * A driver that is ready: it knows a few nodes and no pod, and holds the lease. Its API
 * server answers immediately, on any thread; the pod of a bind does not exist. Nothing
 * renews the lease: after VERBS_DRIVER_MS a bind could block, and the test needs a new
 * driver.
 */

enum { VERBS_DRIVER_MS = 500 };

struct core_driver *verbs_driver_new(void); /* core_driver_free */
