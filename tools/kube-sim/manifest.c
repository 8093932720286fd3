/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/manifest.h"

#include "base/log.h"
#include "kube-sim/jsonx_priv.h"
#include "kube-sim/load_priv.h"
#include "wire/yaml.h"

static int load_one(struct api *api, int64_t now_ms, json_t *object, struct err *err)
{
    struct err why;
    if (sim_load_tree(api, now_ms, object, &why) == 0)
        return 0;
    if (why.code != ERR_NOT_FOUND)
        return err_set(err, why.code, "%s", why.msg);
    log_warn("manifest", "object skipped", LOG_S("reason", why.msg));
    return 0;
}

/* "kind: List", "kind: PodList", ... */
static bool is_list(const json_t *object)
{
    struct span kind = sim_jsonx_span(object, "kind");
    static const struct span end = {"List", 4};
    return kind.n >= end.n &&
           span_eq((struct span){kind.p + kind.n - end.n, end.n}, end) &&
           json_is_array(json_object_get(object, "items"));
}

static int load_document(struct api *api, int64_t now_ms, const struct yaml_node *node,
                         struct err *err)
{
    cleanup_buf struct buf text = {0};
    yaml_json(node, &text);
    cleanup_json json_t *object = sim_jsonx_parse(buf_span(&text), err);
    if (!object)
        return -1;
    sim_jsonx_strip_nulls(object);
    if (!is_list(object))
        return load_one(api, now_ms, object, err);
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(object, "items"), i,
                       item) if (load_one(api, now_ms, item, err)) return -1;
    return 0;
}

int manifest_load(struct api *api, int64_t now_ms, const char *path, struct err *err)
{
    cleanup_yaml struct yaml *y = yaml_load(path, err);
    if (!y)
        return -1;
    for (size_t i = 0; i < yaml_count(y); i++) {
        const struct yaml_node *node = yaml_document(y, i);
        if (node && load_document(api, now_ms, node, err))
            return err_wrap(err, "%s, document %zu", path, i + 1);
    }
    return 0;
}
