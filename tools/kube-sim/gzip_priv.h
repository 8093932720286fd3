/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/str.h"

/*
 * Compressed replies, by the rules of a real API server: replies of more than 128 KiB,
 * except watches, at level 1, if the client accepts gzip.
 */

enum { SIM_GZIP_ABOVE = 128 * 1024 };

/* Does the header (NULL: absent) name gzip? As in a real server, an entry with a weight
 * ("gzip;q=1") does not count. */
bool sim_gzip_wanted(const char *accept_encoding);

struct gzip;

struct gzip *sim_gzip_new(void);
/* Compresses more bytes and appends the output, which may be empty. `last` flushes all of
 * it. */
void sim_gzip_add(struct gzip *z, struct span bytes, bool last, struct buf *out);
void sim_gzip_free(struct gzip *z); /* NULL is accepted */
