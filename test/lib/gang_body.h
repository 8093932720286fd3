/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* A filter request for a member of a gang, with node n1; kept. There is one for each kind of
 * gang whose size an object says; no such object exists. NULL: `i` is beyond these. */
char *gang_body(size_t i);
