/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/str.h"

/*
 * All that a server sent on one connection: replies one behind the other, each with a
 * status line, headers, and a body of the length that they say. Fails otherwise.
 *
 * A body in chunks may break off between two chunks, as the last thing. `may_be_head`:
 * perhaps one of the requests was HEAD; a reply may then be without its body.
 */
void replies_check(struct span bytes, bool may_be_head);
