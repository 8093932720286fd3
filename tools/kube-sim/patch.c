/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/patch_priv.h"

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

/* The first member that is a list, or a directive such as $patch; NULL: there is none. */
static const char *unsupported(const json_t *patch)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)patch, key, v)
    {
        if (key[0] == '$' || json_is_array(v))
            return key;
        const char *inner = json_is_object(v) ? unsupported(v) : NULL;
        if (inner)
            return inner;
    }
    return NULL;
}

int sim_patch_strategic(json_t *target, const json_t *patch, struct err *err)
{
    const char *key = unsupported(patch);
    if (key)
        return err_set(err, ERR_INVALID,
                       "%.200s: kube-sim merges no lists and knows no directives in a "
                       "strategic merge patch; use a merge patch",
                       key);
    sim_patch_merge(target, patch);
    return 0;
}
