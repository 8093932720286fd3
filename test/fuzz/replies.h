/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/str.h"

/*
 * Checks all bytes that a server sent on one connection: consecutive replies, each with a
 * status line, headers, and a body of the announced length. Fails otherwise.
 *
 * The last reply may be a chunked body that ends between two chunks. `may_be_head`: a
 * request may have been a HEAD, so a reply may have no body.
 */
void replies_check(struct span bytes, bool may_be_head);
