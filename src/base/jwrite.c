/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON writer: commas, keys and values. Strings are escaped by buf_add_json. */
#include "base/jwrite.h"

/* The comma and the key that precede a value. */
static void begin_value(struct jwrite *w, const char *key)
{
    if (w->comma)
        buf_addc(w->out, ',');
    if (key) {
        buf_addc(w->out, '"');
        buf_adds(w->out, key);
        buf_adds(w->out, "\":");
    }
    w->comma = true;
}

void jwrite_key(struct jwrite *w, struct span key)
{
    jwrite_str(w, NULL, key);
    buf_addc(w->out, ':');
    w->comma = false;
}

void jwrite_object(struct jwrite *w, const char *key)
{
    begin_value(w, key);
    buf_addc(w->out, '{');
    w->comma = false;
}

void jwrite_object_end(struct jwrite *w)
{
    buf_addc(w->out, '}');
    w->comma = true;
}

void jwrite_array(struct jwrite *w, const char *key)
{
    begin_value(w, key);
    buf_addc(w->out, '[');
    w->comma = false;
}

void jwrite_array_end(struct jwrite *w)
{
    buf_addc(w->out, ']');
    w->comma = true;
}

void jwrite_str(struct jwrite *w, const char *key, struct span value)
{
    begin_value(w, key);
    buf_add_json(w->out, value);
}

void jwrite_i64(struct jwrite *w, const char *key, int64_t value)
{
    begin_value(w, key);
    buf_add_i64(w->out, value);
}

void jwrite_bool(struct jwrite *w, const char *key, bool value)
{
    begin_value(w, key);
    buf_adds(w->out, value ? "true" : "false");
}

void jwrite_raw(struct jwrite *w, const char *key, struct span json)
{
    begin_value(w, key);
    buf_add_span(w->out, json);
}
