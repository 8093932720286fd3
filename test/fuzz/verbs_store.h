/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/store.h"

/*
 * A store that is ready: it knows a few nodes and no pod, and holds the lease. Its API
 * server answers at once and from any thread, and what a bind asks for does not exist.
 * Nobody renews the lease: after VERBS_STORE_MS a bind may come to wait, and it takes a
 * new store.
 */

enum { VERBS_STORE_MS = 500 };

struct store *verbs_store_new(void); /* store_free */
