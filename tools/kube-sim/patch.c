/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/patch_priv.h"

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

/* Of a list of either sort; `like` is an element, or has its key. */
static size_t find_item(const json_t *list, const char *key, const json_t *like)
{
    return key[0] ? find_keyed(list, key, json_object_get(like, key))
                  : find_plain(list, like);
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

static int refuse_key(const json_t *item, const char *key, struct err *err)
{
    cleanup_buf struct buf text = {0};
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)item, name, v)
    {
        buf_printf(&text, "%s%s:", text.n ? " " : "", name);
        if (json_is_string(v))
            buf_adds(&text, json_string_value(v));
        else
            sim_jsonx_dump(&text, v);
    }
    return err_set(err, ERR_INVALID,
                   "map: map[%.200s] does not contain declared merge key: %s",
                   text.p ? text.p : "", key);
}

static int merge_keyed_item(json_t *list, const char *key, json_t *item, struct err *err)
{
    json_t *value = json_object_get(item, key);
    if (!value)
        return refuse_key(item, key, err);
    size_t at = find_keyed(list, key, value);
    bool found = at < json_array_size(list);
    if (strcmp(directive(item), "delete") == 0)
        return found ? json_array_remove(list, at) : 0;
    return found ? sim_patch_strategic(json_array_get(list, at), item, err)
                 : json_array_append_new(list, plain_copy(item));
}

/* Is `a` in front of `b` in the list? Both must be there. */
static bool in_front(const json_t *list, const char *key, const json_t *a,
                     const json_t *b)
{
    size_t n = json_array_size(list), at = find_item(list, key, a),
           other = find_item(list, key, b);
    return at < n && other < n && at < other;
}

/* The order of a list after a patch: what the patch names stands in the patch's order;
 * the rest keeps its own, and each of it stands as early as it may, but behind what it
 * was behind. `before` is the list as it was. */
static json_t *ordered(const json_t *list, const json_t *before, const json_t *wanted,
                       const char *key)
{
    cleanup_json json_t *named = json_array(), *others = json_array();
    json_t *sorted = json_array(), *v;
    size_t i, k = 0;
    json_array_foreach((json_t *)wanted, i, v)
    {
        size_t at = find_item(list, key, v);
        if (at < json_array_size(list))
            json_array_append(named, json_array_get(list, at));
    }
    json_array_foreach((json_t *)list, i,
                       v) if (find_item(wanted, key, v) == json_array_size(wanted))
        json_array_append(others, v);
    json_array_foreach(named, i, v)
    {
        while (k < json_array_size(others) &&
               in_front(before, key, json_array_get(others, k), v))
            json_array_append(sorted, json_array_get(others, k++));
        json_array_append(sorted, v);
    }
    while (k < json_array_size(others))
        json_array_append(sorted, json_array_get(others, k++));
    return sorted;
}

/* Does the order of a patch's list follow the one that it asks for? */
static int check_order(const char *key, const json_t *list, const json_t *wanted,
                       struct err *err)
{
    size_t i, last = 0;
    json_t *v;
    json_array_foreach((json_t *)list, i, v)
    {
        size_t at = find_item(wanted, key, v);
        if (at == json_array_size(wanted) && directive(v)[0])
            continue; /* it goes */
        if (at == json_array_size(wanted) || at < last)
            return err_set(err, ERR_INVALID,
                           "The order in patch list:\n doesn't match $setElementOrder "
                           "list:\n");
        last = at;
    }
    return 0;
}

static int merge_items(json_t *list, const char *key, json_t *patch, struct err *err)
{
    size_t i;
    json_t *item;
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

/* `order`: what the patch asks for by $setElementOrder, or NULL. */
static int merge_list(json_t *target, const char *name, json_t *patch,
                      const json_t *order, struct err *err)
{
    const char *key = merge_key(name);
    json_t *list = json_object_get(target, name), *item;
    size_t i;
    bool replace = !key || !json_is_array(list);
    json_array_foreach(patch, i, item) replace |= strcmp(directive(item), "replace") == 0;
    if (key && json_is_array(order) && check_order(key, patch, order, err))
        return -1;
    if (replace) {
        json_object_set_new(target, name, plain_copy(patch));
        return 0;
    }
    cleanup_json json_t *before = json_deep_copy(list);
    if (merge_items(list, key, patch, err))
        return -1;
    json_object_set_new(target, name,
                        ordered(list, before, json_is_array(order) ? order : patch, key));
    return 0;
}

/* The list of the directive is not in the patch itself: only the order is asked for. */
static void set_order(json_t *target, const char *name, const json_t *order)
{
    const char *key = merge_key(name);
    json_t *list = json_object_get(target, name);
    if (!key || !json_is_array(list) || !json_is_array(order))
        return;
    cleanup_json json_t *before = json_deep_copy(list);
    json_object_set_new(target, name, ordered(list, before, order, key));
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

static int merge_member(json_t *target, const char *key, json_t *v, const json_t *patch,
                        struct err *err)
{
    if (json_is_null(v)) {
        json_object_del(target, key);
        return 0;
    }
    if (json_is_object(v))
        return sim_patch_strategic(sim_jsonx_make(target, key), v, err);
    if (json_is_array(v)) {
        cleanup_free char *order = xasprintf("$setElementOrder/%s", key);
        return merge_list(target, key, v, json_object_get(patch, order), err);
    }
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
        if (name && !json_object_get(patch, name))
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
                               merge_member(target, key, v, patch, err)) return -1;
    apply_directives(target, patch);
    return 0;
}
