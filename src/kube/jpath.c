/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/jpath.h"

const json_t *jpath(const json_t *j, const char *path)
{
    struct span rest = span_of(path);
    while (j && rest.n) {
        struct span part = span_cut(&rest, '.');
        int64_t i;
        if (json_is_array(j))
            j = span_i64(part, &i) && i >= 0 ? json_array_get(j, (size_t)i) : NULL;
        else
            j = json_object_getn(j, part.p, part.n);
    }
    return j;
}

struct span jpath_text(const json_t *j, const char *path)
{
    const json_t *text = jpath(j, path);
    return (struct span){json_string_value(text), json_string_length(text)};
}

const char *jpath_string(const json_t *j, const char *path)
{
    struct span text = jpath_text(j, path);
    return text.n && !memchr(text.p, '\0', text.n) ? text.p : "";
}

int64_t jpath_number(const json_t *j, const char *path)
{
    return json_integer_value(jpath(j, path));
}

json_t *jpath_read(struct span text, struct err *err)
{
    json_error_t bad;
    json_t *j = json_loadb(text.n ? text.p : "", text.n, JSON_ALLOW_NUL, &bad);
    if (!j)
        err_set(err, ERR_INVALID, "the response is not JSON: %s", bad.text);
    return j;
}
