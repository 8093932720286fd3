/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/store.h"

/*
 * A store that is ready: it knows a few nodes and no pod, and holds the lease. Its API
 * server answers immediately, on any thread; the pod of a bind does not exist. Nothing
 * renews the lease: after VERBS_STORE_MS a bind could block, and the test needs a new
 * store.
 */

enum { VERBS_STORE_MS = 500 };

struct store *verbs_store_new(void); /* store_free */
