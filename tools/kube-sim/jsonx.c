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

static int append(const char *p, size_t n, void *out)
{
    buf_add(out, p, n);
    return 0;
}

void sim_jsonx_dump(struct buf *out, const json_t *j)
{
    json_dump_callback(j, append, out, JSON_COMPACT | JSON_ENCODE_ANY);
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
