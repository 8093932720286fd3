/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/view_inspect.h"

/*
 *   inspect.c          nodes, cards, and the state of this process
 *   view_inspect_pending.c  the pods that wait, and why
 *
 * The members of a JSON object or array, one after the other: each puts the comma that is
 * wanted before it.
 */

void view_inspect_comma(struct buf *out);
void view_inspect_key(struct buf *out, const char *name);
void view_inspect_number(struct buf *out, const char *name, int64_t value);
void view_inspect_bool(struct buf *out, const char *name, bool value);
void view_inspect_string(struct buf *out, const char *name,
                         struct span value); /* "": none */

/* The member `waiting`. Takes the store's lock, for a while each time. */
void view_inspect_pending(struct store *store, struct buf *out);
