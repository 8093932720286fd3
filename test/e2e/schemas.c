/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e/schemas.h"

#include <ctype.h>
#include <string.h>

#include "base/mem.h"
#include "kit/kit.h"

/*
 * jansson does it, and not jq, because the suites have it anyway, and because a member
 * that is called "properties" or "$ref" (a CustomResourceDefinition has such) must not be
 * taken for the keyword: who walks must know where he is.
 */

#define REF "#/definitions/"

static bool ends(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Calls fn for the schema and all within. */
static void walk(json_t *schema, void (*fn)(json_t *schema, void *ctx), void *ctx)
{
    const char *key;
    json_t *v;
    size_t i;
    if (!json_is_object(schema))
        return;
    json_object_foreach(json_object_get(schema, "properties"), key, v) walk(v, fn, ctx);
    walk(json_object_get(schema, "items"), fn, ctx);
    walk(json_object_get(schema, "additionalProperties"), fn, ctx);
    json_array_foreach(json_object_get(schema, "anyOf"), i, v) walk(v, fn, ctx);
    fn(schema, ctx);
}

/* -- what OpenAPI leaves open -- */

static void close_one(json_t *schema, void *ctx)
{
    (void)ctx;
    const char *format = json_string_value(json_object_get(schema, "format"));
    if (format && strcmp(format, "int-or-string") == 0)
        json_object_set_new(schema, "type", json_pack("[ss]", "integer", "string"));
    if (json_object_get(schema, "properties") &&
        !json_object_get(schema, "additionalProperties") &&
        !json_is_true(json_object_get(schema, "x-kubernetes-preserve-unknown-fields")))
        json_object_set_new(schema, "additionalProperties", json_false());
}

/* Types that are more than OpenAPI 2 can say, which says nothing of them or one half. */
static void close_named(const char *name, json_t *schema)
{
    static const char *const either[] = {"JSONSchemaPropsOrBool",
                                         "JSONSchemaPropsOrArray",
                                         "JSONSchemaPropsOrStringArray"};
    for (size_t i = 0; i < ARRAY_LEN(either); i++) {
        if (!ends(name, either[i]))
            continue;
        cleanup_free char *inner = xasprintf(
            REF "%.*s", (int)(strstr(name, "JSONSchemaProps") - name + 15), name);
        json_object_set_new(
            schema, "anyOf",
            json_pack("[{ss}{ss}]", "$ref", inner, "type", i == 0 ? "boolean" : "array"));
    }
    if (ends(name, ".resource.Quantity"))
        json_object_set_new(schema, "type", json_pack("[ss]", "number", "string"));
    if (ends(name, ".meta.v1.Time")) /* what Go writes for a time that is not set */
        json_object_set_new(schema, "type", json_pack("[ss]", "null", "string"));
}

/* -- a file for each kind -- */

struct gathered {
    const json_t *all;
    json_t *needed;
};

static void gather(json_t *schema, void *ctx)
{
    struct gathered *g = ctx;
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    if (!ref)
        return;
    ck_assert_msg(strncmp(ref, REF, strlen(REF)) == 0, "%s", ref);
    const char *name = ref + strlen(REF);
    json_t *there = json_object_get(g->all, name);
    ck_assert_msg(there != NULL, "there is no %s", name);
    if (json_object_get(g->needed, name))
        return;
    json_object_set(g->needed, name, there);
    walk(there, gather, g);
}

static void write_kind(const char *dir, const char *definition, const json_t *all,
                       const json_t *kind)
{
    const char *group = kit_str(kind, "group"), *version = kit_str(kind, "version");
    cleanup_free char *ref = xasprintf(REF "%s", definition);
    cleanup_free char *file = xasprintf("%s_%s_%s.json", *group ? group : version,
                                        version, kit_str(kind, "kind"));
    cleanup_json json_t *schema = json_pack("{ss s{}}", "$ref", ref, "definitions");
    struct gathered g = {all, json_object_get(schema, "definitions")};
    for (char *p = file; *p; p++)
        *p = (char)tolower((unsigned char)*p);
    gather(schema, &g);
    cleanup_free char *text = json_dumps(schema, JSON_COMPACT);
    temp_write(dir, file, text);
}

size_t schemas_write(const struct peer *api, const char *dir)
{
    cleanup_json json_t *openapi = peer_json(api, "GET", "/openapi/v2", NULL);
    json_t *all = json_object_get(openapi, "definitions"), *v, *kind;
    const char *name;
    size_t n = 0, i;
    json_object_foreach(all, name, v)
    {
        walk(v, close_one, NULL);
        close_named(name, v);
    }
    json_object_foreach(all, name, v)
    {
        json_t *kinds = json_object_get(v, "x-kubernetes-group-version-kind");
        if (json_array_size(kinds) != 1) /* DeleteOptions and such are of every group */
            continue;
        json_array_foreach(kinds, i, kind) write_kind(dir, name, all, kind);
        n++;
    }
    return n;
}
