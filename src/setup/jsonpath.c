/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/jsonpath.h"

#include "base/str.h"

const json_t *jsonpath_at(const json_t *j, const char *path)
{
    struct span rest = span_of(path);
    while (j && rest.n) {
        struct span key = span_cut(&rest, '.');
        j = json_object_getn(j, key.p, key.n);
    }
    return j;
}

const char *jsonpath_str(const json_t *j, const char *path)
{
    const char *s = json_string_value(jsonpath_at(j, path));
    return s ? s : "";
}
