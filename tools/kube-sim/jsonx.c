/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include <string.h>

/* Helpers for jansson: paths, amounts, merge and comparison. */

void sim_jsonx_cleanup(json_t **j)
{
    json_decref(*j);
    *j = NULL;
}

json_t *sim_jsonx_parse(struct span text, struct err *err)
{
    json_error_t why;
    json_t *j = json_loadb(text.p ? text.p : "", text.n, JSON_DECODE_ANY, &why);
    if (!j)
        err_set(err, ERR_INVALID, "line %d column %d: %s", why.line, why.column,
                why.text);
    return j;
}

/* Writes a decimal point or an exponent, so that the value stays a real number. */
static void dump_real(struct buf *out, double v)
{
    size_t start = out->n;
    buf_printf(out, "%.17g", v);
    if (strcspn(out->p + start, ".e") == out->n - start)
        buf_adds(out, ".0");
}

static void dump_members(struct buf *out, const json_t *j)
{
    const char *key, *sep = "";
    json_t *v;
    buf_addc(out, '{');
    json_object_foreach((json_t *)j, key, v)
    {
        buf_adds(out, sep);
        sep = ",";
        buf_add_json(out, span_of(key));
        buf_addc(out, ':');
        sim_jsonx_dump(out, v);
    }
    buf_addc(out, '}');
}

static void dump_elements(struct buf *out, const json_t *j)
{
    size_t i;
    json_t *v;
    buf_addc(out, '[');
    json_array_foreach(j, i, v)
    {
        if (i)
            buf_addc(out, ',');
        sim_jsonx_dump(out, v);
    }
    buf_addc(out, ']');
}

/* Twice as fast as json_dumps, which handles each character separately. */
void sim_jsonx_dump(struct buf *out, const json_t *j)
{
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        dump_members(out, j);
        break;
    case JSON_ARRAY:
        dump_elements(out, j);
        break;
    case JSON_STRING:
        buf_add_json(out, sim_jsonx_text(j));
        break;
    case JSON_INTEGER:
        buf_add_i64(out, json_integer_value(j));
        break;
    case JSON_REAL:
        dump_real(out, json_real_value(j));
        break;
    case JSON_NULL:
        buf_adds(out, "null");
        break;
    default:
        buf_adds(out, json_is_true(j) ? "true" : "false");
    }
}

json_t *sim_jsonx_at(const json_t *j, const char *path)
{
    const json_t *at = j;
    char key[64];
    while (*path) {
        size_t n = strcspn(path, ".");
        if (n >= sizeof key || !json_is_object(at))
            return NULL;
        memcpy(key, path, n);
        key[n] = '\0';
        at = json_object_get(at, key);
        path += n + (path[n] == '.');
    }
    return json_is_null(at) ? NULL : (json_t *)at;
}

struct span sim_jsonx_text(const json_t *string)
{
    if (!json_is_string(string))
        return (struct span){NULL, 0};
    return (struct span){json_string_value(string), json_string_length(string)};
}

struct span sim_jsonx_span(const json_t *j, const char *path)
{
    return sim_jsonx_text(sim_jsonx_at(j, path));
}

const char *sim_jsonx_str(const json_t *j, const char *path)
{
    struct span s = sim_jsonx_span(j, path);
    return s.p ? s.p : "";
}

int64_t sim_jsonx_int(const json_t *j, const char *path, int64_t otherwise)
{
    const json_t *v = sim_jsonx_at(j, path);
    return json_is_integer(v) ? json_integer_value(v) : otherwise;
}

json_t *sim_jsonx_make(json_t *j, const char *key)
{
    json_t *v = json_object_get(j, key);
    if (!json_is_object(v)) {
        v = json_object();
        json_object_set_new(j, key, v);
    }
    return v;
}

void sim_jsonx_set_str(json_t *object, const char *key, const char *value)
{
    json_object_set_new(object, key, json_string(value));
}

void sim_jsonx_set_int(json_t *object, const char *key, int64_t value)
{
    json_object_set_new(object, key, json_integer(value));
}

void sim_jsonx_default_str(json_t *object, const char *key, const char *value)
{
    if (!json_object_get(object, key))
        sim_jsonx_set_str(object, key, value);
}

void sim_jsonx_strip_nulls(json_t *j)
{
    if (json_is_object(j)) {
        void *next;
        const char *key;
        json_t *v;
        json_object_foreach_safe(j, next, key, v)
        {
            if (json_is_null(v))
                json_object_del(j, key);
            else
                sim_jsonx_strip_nulls(v);
        }
    } else if (json_is_array(j)) {
        size_t i;
        json_t *v;
        json_array_foreach(j, i, v) sim_jsonx_strip_nulls(v);
    }
}

const char *sim_jsonx_type(const json_t *j)
{
    if (!j)
        return "nothing";
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        return "object";
    case JSON_ARRAY:
        return "array";
    case JSON_STRING:
        return "string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "number";
    case JSON_NULL:
        return "null";
    default:
        return "bool";
    }
}
