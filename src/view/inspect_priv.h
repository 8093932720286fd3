/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "view/inspect.h"

/*
 * inspect.c          nodes, cards, and the state of this process
 * inspect_pending.c  the pending pods, with the reason of each
 *
 * Writers of JSON members. Each writes the comma before its member, if one is needed.
 */

void view_inspect_comma(struct buf *out);
void view_inspect_key(struct buf *out, const char *name);
void view_inspect_number(struct buf *out, const char *name, int64_t value);
void view_inspect_bool(struct buf *out, const char *name, bool value);
void view_inspect_string(struct buf *out, const char *name,
                         struct span value); /* omits an empty value */

/* Writes the member `pendingPods`. Takes the read lock several times, each for a bounded
 * number of nodes. */
void view_inspect_pending(const struct view_source *source,
                          const struct view_scope *scope, struct buf *out);
