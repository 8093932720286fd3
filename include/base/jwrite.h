/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/*
 * A JSON writer that appends to a buf: it writes commas and escapes strings. (The prefix is
 * not json_*: jansson, which other modules link, exports such names.)
 *
 *     struct jwrite w = {.out = &out};
 *     jwrite_object(&w, NULL);
 *     jwrite_str(&w, "name", name);
 *     jwrite_array(&w, "cards");
 *     for (size_t i = 0; i < n; i++)
 *         jwrite_i64(&w, NULL, cards[i]);
 *     jwrite_array_end(&w);
 *     jwrite_object_end(&w);
 *
 * The caller closes what it opens. There is no white space in the output.
 */

struct jwrite {
    struct buf *out;
    bool comma; /* the next key or item follows another one */
};

/* Each writes one value: a member with a key that needs no escapes; with a NULL key an
 * item, or the value of jwrite_key. */
void jwrite_object(struct jwrite *w, const char *key);
void jwrite_object_end(struct jwrite *w);
void jwrite_array(struct jwrite *w, const char *key);
void jwrite_array_end(struct jwrite *w);
void jwrite_str(struct jwrite *w, const char *key, struct span value);
void jwrite_i64(struct jwrite *w, const char *key, int64_t value);
void jwrite_bool(struct jwrite *w, const char *key, bool value);
void jwrite_raw(struct jwrite *w, const char *key, struct span json); /* as it is */
/* Nothing if the value is empty. */
static inline void jwrite_str_set(struct jwrite *w, const char *key, struct span value)
{
    if (value.n)
        jwrite_str(w, key, value);
}
/* A key of any bytes. The next call writes its value. */
void jwrite_key(struct jwrite *w, struct span key);
