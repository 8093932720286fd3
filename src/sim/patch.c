/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/patch_priv.h"

#include <string.h>

#include "base/mem.h"

void sim_patch_merge(json_t *target, const json_t *patch)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)patch, key, v)
    {
        if (json_is_null(v))
            json_object_del(target, key);
        else if (json_is_object(v))
            sim_patch_merge(sim_jsonx_make(target, key), v);
        else
            json_object_set_new(target, key, json_deep_copy(v));
    }
}

/* -- strategic -- */

/* Which member of its elements is the key of a list; "" for lists of plain values that
 * are sets; NULL for lists that are replaced. The lists of the kinds that we serve
 * have different names where they have different keys. */
static const char *merge_key(const char *list)
{
    static const char *const keys[][2] = {
        {"containers", "name"},
        {"initContainers", "name"},
        {"ephemeralContainers", "name"},
        {"env", "name"},
        {"volumes", "name"},
        {"imagePullSecrets", "name"},
        {"schedulingGates", "name"},
        {"resourceClaims", "name"},
        {"ports", "containerPort"},
        {"volumeMounts", "mountPath"},
        {"volumeDevices", "devicePath"},
        {"conditions", "type"},
        {"addresses", "type"},
        {"podIPs", "ip"},
        {"hostIPs", "ip"},
        {"hostAliases", "ip"},
        {"ownerReferences", "uid"},
        {"topologySpreadConstraints", "topologyKey"},
        {"finalizers", ""},
        {"podCIDRs", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (strcmp(list, keys[i][0]) == 0)
            return keys[i][1];
    return NULL;
}

static const char *directive(const json_t *patch)
{
    const json_t *v = json_object_get(patch, "$patch");
    return json_is_string(v) ? json_string_value(v) : "";
}

static size_t find_plain(const json_t *list, const json_t *v)
{
    size_t i = 0;
    while (i < json_array_size(list) && !json_equal(json_array_get(list, i), v))
        i++;
    return i;
}

static size_t find_keyed(const json_t *list, const char *key, const json_t *value)
{
    size_t i = 0;
    while (i < json_array_size(list) &&
           !json_equal(json_object_get(json_array_get(list, i), key), value))
        i++;
    return i;
}

/* A copy of what a patch adds, without its directives. */
static json_t *plain_copy(const json_t *patch)
{
    if (json_is_array(patch)) {
        json_t *copy = json_array(), *v;
        size_t i;
        json_array_foreach((json_t *)patch, i, v) if (!json_object_get(v, "$patch"))
            json_array_append_new(copy, plain_copy(v));
        return copy;
    }
    if (!json_is_object(patch))
        return json_deep_copy(patch);
    json_t *copy = json_object(), *v;
    const char *key;
    json_object_foreach((json_t *)patch, key, v) if (key[0] != '$' && !json_is_null(v))
        json_object_set_new(copy, key, plain_copy(v));
    return copy;
}

static int merge_keyed_item(json_t *list, const char *key, json_t *item, struct err *err)
{
    json_t *value = json_object_get(item, key);
    if (!value)
        return err_set(err, ERR_INVALID,
                       "map: %s does not contain declared merge key: %s",
                       sim_jsonx_type(item), key);
    size_t at = find_keyed(list, key, value);
    bool found = at < json_array_size(list);
    if (strcmp(directive(item), "delete") == 0)
        return found ? json_array_remove(list, at) : 0;
    if (found && strcmp(directive(item), "replace") != 0)
        return sim_patch_strategic(json_array_get(list, at), item, err);
    if (found)
        json_array_remove(list, at);
    return json_array_append_new(list, plain_copy(item));
}

static int merge_list(json_t *target, const char *name, json_t *patch, struct err *err)
{
    const char *key = merge_key(name);
    json_t *list = json_object_get(target, name), *item;
    size_t i;
    bool replace = !key || !json_is_array(list);
    json_array_foreach(patch, i, item) replace |=
        strcmp(directive(item), "replace") == 0 && json_object_size(item) == 1;
    if (replace) {
        json_object_set_new(target, name, plain_copy(patch));
        return 0;
    }
    json_array_foreach(patch, i, item)
    {
        if (key[0]) {
            if (merge_keyed_item(list, key, item, err))
                return -1;
        } else if (find_plain(list, item) == json_array_size(list)) {
            json_array_append(list, item);
        }
    }
    return 0;
}

/* Puts the elements of target's list into the order of the directive; the others follow.
 */
static void set_order(json_t *target, const char *name, const json_t *order)
{
    const char *key = merge_key(name);
    json_t *list = json_object_get(target, name), *wanted;
    if (!key || !json_is_array(list))
        return;
    json_t *sorted = json_array();
    size_t i;
    json_array_foreach((json_t *)order, i, wanted)
    {
        size_t at = key[0] ? find_keyed(list, key, json_object_get(wanted, key))
                           : find_plain(list, wanted);
        if (at < json_array_size(list)) {
            json_array_append(sorted, json_array_get(list, at));
            json_array_remove(list, at);
        }
    }
    json_array_extend(sorted, list);
    json_object_set_new(target, name, sorted);
}

static void delete_plain(json_t *target, const char *name, const json_t *gone)
{
    json_t *list = json_object_get(target, name), *v;
    size_t i;
    json_array_foreach((json_t *)gone, i, v)
    {
        size_t at = find_plain(list, v);
        if (at < json_array_size(list))
            json_array_remove(list, at);
    }
}

static void retain_keys(json_t *target, const json_t *kept)
{
    void *next;
    const char *key;
    json_t *v;
    json_object_foreach_safe(target, next, key, v)
    {
        cleanup_json json_t *name = json_string(key);
        if (find_plain(kept, name) == json_array_size(kept))
            json_object_del(target, key);
    }
}

/* What the text behind a prefix is; NULL when it has another one. */
static const char *behind(const char *key, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(key, prefix, n) == 0 ? key + n : NULL;
}

static int merge_member(json_t *target, const char *key, json_t *v, struct err *err)
{
    if (json_is_null(v)) {
        json_object_del(target, key);
        return 0;
    }
    if (json_is_object(v))
        return sim_patch_strategic(sim_jsonx_make(target, key), v, err);
    if (json_is_array(v))
        return merge_list(target, key, v, err);
    json_object_set_new(target, key, json_deep_copy(v));
    return 0;
}

/* The directives that act behind the members. */
static void apply_directives(json_t *target, const json_t *patch)
{
    const char *key, *name;
    json_t *v;
    json_object_foreach((json_t *)patch, key, v)
    {
        name = behind(key, "$deleteFromPrimitiveList/");
        if (name)
            delete_plain(target, name, v);
        name = behind(key, "$setElementOrder/");
        if (name)
            set_order(target, name, v);
        if (strcmp(key, "$retainKeys") == 0)
            retain_keys(target, v);
    }
}

int sim_patch_strategic(json_t *target, const json_t *patch, struct err *err)
{
    const char *what = directive(patch), *key;
    json_t *v;
    if (strcmp(what, "replace") == 0 || strcmp(what, "delete") == 0)
        json_object_clear(target);
    if (strcmp(what, "delete") == 0)
        return 0;
    json_object_foreach((json_t *)patch, key,
                        v) if (key[0] != '$' &&
                               merge_member(target, key, v, err)) return -1;
    apply_directives(target, patch);
    return 0;
}
