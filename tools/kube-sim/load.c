/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include "base/log.h"
#include "base/mem.h"
#include "wire/yaml.h"

/* Loads the objects of --load files, YAML or JSON. */

enum {
    HISTORY = 100000,
    HISTORY_BYTES = 64 << 20,
};

static void make_namespace(struct api *api, int64_t now_ms, struct span name)
{
    struct api_reply reply = {0};
    struct api_request req = {
        .method = "POST", .path = "/api/v1/namespaces", .query = ""};
    struct call c = {.api = api, .now_ms = now_ms, .req = &req, .reply = &reply};
    c.route = sim_route_parse(req.path);
    c.store = sim_api_store(api, c.route.kind);
    cleanup_json_value json_t *object =
        json_pack("{s:{s:s%}}", "metadata", "name", name.p, name.n);
    if (sim_create_prepare(&c, object, true) == 0)
        sim_change_put(api, c.route.kind, object);
    api_reply_fini(&reply);
}

struct api *api_new(const struct api_config *config)
{
    static const char *const namespaces[] = {"default", "kube-node-lease", "kube-public",
                                             "kube-system"};
    struct api *api = xcalloc(1, sizeof *api);
    api->config = *config;
    api->rv = config->version;
    rng_init(&api->rng, config->seed);
    for (size_t i = 0; i < KINDS_N; i++) {
        list_init(&api->watches[i]);
        sim_store_init(&api->stores[i], &sim_kinds[i],
                       config->history ? config->history : HISTORY,
                       config->history_bytes ? config->history_bytes : HISTORY_BYTES);
    }
    api_compact(api);
    for (size_t i = 0; i < ARRAY_LEN(namespaces); i++)
        make_namespace(api, config->now_ms, span_of(namespaces[i]));
    return api;
}

/* An object that is loaded again keeps its UID and creation time, unless the manifest has
 * others. */
static void keep_identity(struct call *c, json_t *object)
{
    cleanup_buf struct buf key = {0};
    json_t *meta = json_object_get(object, "metadata");
    const struct object *o =
        sim_store_find(c->store, sim_kind_key(c->route.kind, c->route.ns,
                                              sim_jsonx_span(meta, "name"), &key));
    if (!o)
        return;
    cleanup_json_value json_t *old = sim_object_parse(o);
    sim_jsonx_default_str(meta, "uid", sim_jsonx_str(old, "metadata.uid"));
    sim_jsonx_default_str(meta, "creationTimestamp",
                          sim_jsonx_str(old, "metadata.creationTimestamp"));
}

static int load_object(struct call *c, json_t *object, struct err *err)
{
    cleanup_buf struct buf ns = {0};
    if (!json_object_get(object, "metadata"))
        json_object_set_new(object, "metadata", json_object());
    if (c->route.kind->namespaced) {
        struct span given = sim_jsonx_span(object, "metadata.namespace");
        buf_add_span(&ns, given.n ? given : SPAN("default"));
        c->route.ns = buf_span(&ns);
        if (!sim_store_find(&c->api->stores[0], c->route.ns))
            make_namespace(c->api, c->now_ms, c->route.ns);
    }
    bool good = sim_body_check(c, object, false) == 0;
    if (good)
        keep_identity(c, object);
    if (!good || sim_create_prepare(c, object, true)) {
        cleanup_json_value json_t *status =
            sim_jsonx_parse(buf_span(&c->reply->body), NULL);
        return err_set(err, ERR_INVALID, "%s", sim_jsonx_str(status, "message"));
    }
    sim_change_put(c->api, c->route.kind, object);
    return 0;
}

int sim_load_tree(struct api *api, int64_t now_ms, json_t *object, struct err *err)
{
    struct span version = sim_jsonx_span(object, "apiVersion"),
                type = sim_jsonx_span(object, "kind");
    struct span name = sim_jsonx_span(object, "metadata.name");
    struct api_reply reply = {0};
    struct api_request req = {.method = "POST", .path = "", .query = ""};
    struct call c = {.api = api, .now_ms = now_ms, .req = &req, .reply = &reply};
    c.route.kind = sim_kind_by_type(version, type);
    if (!c.route.kind)
        return err_set(err, ERR_NOT_FOUND,
                       "kind \"%.*s\" of version \"%.*s\" is not served", SPAN_ARG(type),
                       SPAN_ARG(version));
    c.store = sim_api_store(api, c.route.kind);
    int rc = load_object(&c, object, err);
    if (rc)
        err_wrap(err, "%s \"%.*s\"", c.route.kind->kind, SPAN_ARG(name));
    api_reply_fini(&reply);
    return rc;
}

int api_load(struct api *api, int64_t now_ms, struct span text, struct err *err)
{
    cleanup_json_value json_t *j = sim_jsonx_parse(text, err);
    if (!j)
        return -1;
    sim_jsonx_strip_nulls(j);
    if (!json_is_array(j))
        return sim_load_tree(api, now_ms, j, err);
    size_t i;
    json_t *item;
    json_array_foreach(j, i, item) if (sim_load_tree(api, now_ms, item, err)) return -1;
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

/* Loads the object, or the items of a List. */
static int load_document(struct api *api, int64_t now_ms, json_t *object, struct err *err)
{
    struct err why;
    if (is_list(object)) {
        size_t i;
        json_t *item;
        json_array_foreach(json_object_get(object, "items"), i,
                           item) if (load_document(api, now_ms, item, err)) return -1;
        return 0;
    }
    if (sim_load_tree(api, now_ms, object, &why) == 0)
        return 0;
    if (why.code != ERR_NOT_FOUND)
        return err_set(err, why.code, "%s", why.msg);
    log_warn("manifest", "object skipped", LOG_S("reason", why.msg));
    return 0;
}

int manifest_load(struct api *api, int64_t now_ms, const char *path, struct err *err)
{
    cleanup_yaml struct yaml *y = yaml_load(path, err);
    if (!y)
        return -1;
    for (size_t i = 0; i < yaml_count(y); i++) {
        const struct yaml_node *node = yaml_document(y, i);
        if (!node)
            continue;
        cleanup_buf struct buf text = {0};
        yaml_json(node, &text);
        cleanup_json_value json_t *object = sim_jsonx_parse(buf_span(&text), err);
        sim_jsonx_strip_nulls(object);
        if (!object || load_document(api, now_ms, object, err))
            return err_wrap(err, "%s, document %zu", path, i + 1);
    }
    return 0;
}
