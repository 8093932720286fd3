/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/str.h"

/* Appends a filter request for a member of a gang, with node n1. There is one for each kind
 * of gang whose size an object says; no such object exists. False: `i` is beyond these. */
bool gang_body(struct buf *out, size_t i);
