/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/inspect.h"

/*
 *   inspect.c          nodes, cards, and the state of this process
 *   inspect_waiting.c  the pods that wait, and why
 *
 * The members of a JSON object or array, one after the other: each puts the comma that is
 * wanted before it.
 */

void inspect_comma(struct buf *out);
void inspect_key(struct buf *out, const char *name);
void inspect_number(struct buf *out, const char *name, int64_t value);
void inspect_truth(struct buf *out, const char *name, bool value);
void inspect_text(struct buf *out, const char *name, struct span value); /* "": none */

/* The member `waiting`. Takes the store's lock, for a while each time. */
void inspect_waiting(struct store *store, struct buf *out);
