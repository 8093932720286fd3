/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/cases_priv.h"
#include "lib/unit.h"

/* Is the expected value contained in the reply? */

static bool object_holds(const json_t *have, const json_t *want, struct buf *where)
{
    const char *key;
    json_t *v;
    size_t n = where->n;
    json_object_foreach((json_t *)want, key, v)
    {
        buf_printf(where, ".%s", key);
        json_t *found = json_object_get(have, key);
        if (json_is_null(v) ? found && !json_is_null(found)
                            : !cases_contains(found, v, where))
            return false;
        where->n = n;
    }
    return json_is_object(have);
}

static bool array_holds(const json_t *have, const json_t *want, struct buf *where)
{
    size_t n = where->n;
    if (!json_is_array(have) || json_array_size(have) != json_array_size(want))
        return false;
    for (size_t i = 0; i < json_array_size(want); i++) {
        buf_printf(where, "[%zu]", i);
        if (!cases_contains(json_array_get(have, i), json_array_get(want, i), where))
            return false;
        where->n = n;
    }
    return true;
}

static bool some_holds(const json_t *have, const json_t *want)
{
    cleanup_buf struct buf where = {0};
    for (size_t i = 0; i < json_array_size(have); i++)
        if (cases_contains(json_array_get(have, i), want, &where))
            return true;
    return false;
}

static bool has_each(const json_t *have, const json_t *want, struct buf *where)
{
    size_t n = where->n;
    for (size_t i = 0; i < json_array_size(want); i++) {
        buf_printf(where, ".$has[%zu]", i);
        if (!some_holds(have, json_array_get(want, i)))
            return false;
        where->n = n;
    }
    return true;
}

static bool text_holds(const json_t *have, const char *want)
{
    const char *text = json_string_value(have);
    int64_t a, b;
    if (want[0] == '~')
        return text && strstr(text, want + 1);
    return text && span_i64(span_of(want + 2), &a) && span_i64(span_of(text), &b) &&
           a <= b;
}

bool cases_contains(const json_t *have, const json_t *want, struct buf *where)
{
    const json_t *some = json_object_get(want, "$has");
    const char *text = json_string_value(want);
    if (some)
        return has_each(have, some, where);
    if (json_is_object(want))
        return object_holds(have, want, where);
    if (json_is_array(want))
        return array_holds(have, want, where);
    if (text && (text[0] == '~' || strncmp(text, ">=", 2) == 0))
        return text_holds(have, text);
    return json_equal(have, want);
}

/* -- "$from" -- */

static void merge_elements(json_t *list, const json_t *patch);

void cases_merge(json_t *target, const json_t *patch)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)patch, key, v)
    {
        json_t *old = json_object_get(target, key);
        if (json_is_null(v))
            json_object_del(target, key);
        else if (json_is_object(v) && json_is_object(old))
            cases_merge(old, v);
        else if (json_is_object(v) && json_is_array(old))
            merge_elements(old, v);
        else if (strcmp(key, "$from") != 0)
            json_object_set(target, key, v);
    }
}

/* Merges into the elements of a list, which are named by index. */
static void merge_elements(json_t *list, const json_t *patch)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)patch, key, v)
    {
        int64_t i;
        json_t *at = span_i64(span_of(key), &i) ? json_array_get(list, (size_t)i) : NULL;
        ck_assert_msg(at != NULL, "there is no element %s", key);
        cases_merge(at, v);
    }
}
