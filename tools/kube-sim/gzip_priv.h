/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/str.h"

/*
 * Compressed answers, by the rules of a real API server: whatever is larger than 128 KiB
 * and no watch, for a client that says so, at level 1.
 */

enum { SIM_GZIP_ABOVE = 128 * 1024 };

/* Does the header (NULL: there is none) name gzip? As in a real server, an entry with a
 * weight ("gzip;q=1") does not count. */
bool sim_gzip_wanted(const char *accept_encoding);

struct gzip;

struct gzip *sim_gzip_new(void);
/* Takes more bytes and appends what comes of them, which may be nothing yet. `last`: no
 * more will follow, and all is appended. */
void sim_gzip_add(struct gzip *z, struct span bytes, bool last, struct buf *out);
void sim_gzip_free(struct gzip *z); /* NULL is accepted */
