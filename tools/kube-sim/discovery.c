/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/discovery_priv.h"

#include "base/mem.h"
#include "kube-sim/openapi_priv.h"

static const char *const verbs =
    "[\"create\",\"delete\",\"get\",\"list\",\"patch\",\"update\",\"watch\"]";

static void add_resource(const struct kind *k, const char *sub, const char *type,
                         const char *sub_verbs, struct buf *out)
{
    buf_printf(out,
               "{\"name\":\"%s%s%s\",\"singularName\":\"%s\",\"namespaced\":%s,"
               "\"kind\":\"%s\",\"verbs\":%s",
               k->plural, sub ? "/" : "", sub ? sub : "", sub ? "" : k->singular,
               k->namespaced ? "true" : "false", type, sub_verbs);
    if (!sub && k->short_names[0])
        buf_printf(out, ",\"shortNames\":[\"%s\"]", k->short_names);
    if (!sub && k->binding) /* for `kubectl get all` */
        buf_adds(out, ",\"categories\":[\"all\"]");
    buf_addc(out, '}');
}

static void add_resources(struct span group, struct buf *out)
{
    const char *sep = "";
    for (const struct kind *k = sim_kinds; k < sim_kinds + KINDS_N; k++) {
        if (!span_eq(group, span_of(k->group)))
            continue;
        buf_adds(out, sep);
        sep = ",";
        add_resource(k, NULL, k->kind, verbs, out);
        if (k->status) {
            buf_addc(out, ',');
            add_resource(k, "status", k->kind, "[\"get\",\"patch\",\"update\"]", out);
        }
        if (k->binding) {
            buf_addc(out, ',');
            add_resource(k, "binding", "Binding", "[\"create\"]", out);
            buf_adds(out, ",{\"name\":\"pods/eviction\",\"singularName\":\"\","
                          "\"namespaced\":true,\"group\":\"policy\",\"version\":\"v1\","
                          "\"kind\":\"Eviction\",\"verbs\":[\"create\"]}");
        }
    }
}

static void add_group(const struct kind *k, struct buf *out)
{
    buf_printf(out,
               "\"name\":\"%s\",\"versions\":[{\"groupVersion\":\"%s/%s\","
               "\"version\":\"%s\"}],\"preferredVersion\":{\"groupVersion\":\"%s/%s\","
               "\"version\":\"%s\"}}",
               k->group, k->group, k->version, k->version, k->group, k->version,
               k->version);
}

static void add_groups(struct buf *out)
{
    const char *sep = "";
    buf_adds(out, "{\"kind\":\"APIGroupList\",\"apiVersion\":\"v1\",\"groups\":[");
    for (const struct kind *k = sim_kinds; k < sim_kinds + KINDS_N; k++) {
        bool seen = !k->group[0]; /* the core group is under /api */
        for (const struct kind *before = sim_kinds; before < k; before++)
            seen |= strcmp(before->group, k->group) == 0;
        if (seen)
            continue;
        buf_printf(out, "%s{", sep);
        sep = ",";
        add_group(k, out);
    }
    buf_adds(out, "]}\n");
}

/* "/apis/GROUP" and "/apis/GROUP/VERSION". */
static bool group_paths(struct span path, struct buf *out)
{
    static const struct span prefix = {"/apis/", 6};
    if (!span_starts(path, prefix))
        return false;
    struct span rest = {path.p + prefix.n, path.n - prefix.n};
    struct span group = span_cut(&rest, '/');
    const struct kind *k = sim_kinds;
    while (k < sim_kinds + KINDS_N && !(k->group[0] && span_eq(group, span_of(k->group))))
        k++;
    if (k == sim_kinds + KINDS_N || (rest.p && !span_eq(rest, span_of(k->version))))
        return false;
    if (!rest.p) {
        buf_adds(out, "{\"kind\":\"APIGroup\",\"apiVersion\":\"v1\",");
        add_group(k, out);
        buf_addc(out, '\n');
        return true;
    }
    buf_printf(out,
               "{\"kind\":\"APIResourceList\",\"apiVersion\":\"v1\","
               "\"groupVersion\":\"%s/%s\",\"resources\":[",
               k->group, k->version);
    add_resources(group, out);
    buf_adds(out, "]}\n");
    return true;
}

struct page {
    const char *path, *type; /* type NULL: JSON */
    const char *text;
};

static const struct page pages[] = {
    {"/healthz", "text/plain", "ok"},
    {"/readyz", "text/plain", "ok"},
    {"/livez", "text/plain", "ok"},
    {"/api", NULL,
     "{\"kind\":\"APIVersions\",\"versions\":[\"v1\"],\"serverAddressByClientCIDRs\":[]}"
     "\n"},
    {"/version", NULL,
     "{\"major\":\"1\",\"minor\":\"35\",\"gitVersion\":\"v1.35.4\",\"gitCommit\":\"\","
     "\"gitTreeState\":\"clean\",\"buildDate\":\"2026-01-01T00:00:00Z\",\"goVersion\":"
     "\"\","
     "\"compiler\":\"gc\",\"platform\":\"linux/amd64\"}\n"},
};

static bool fixed_pages(struct call *c)
{
    for (size_t i = 0; i < ARRAY_LEN(pages); i++) {
        if (strcmp(c->req->path, pages[i].path) != 0)
            continue;
        c->reply->content_type = pages[i].type;
        buf_adds(&c->reply->body, pages[i].text);
        return true;
    }
    return false;
}

static void add_paths(struct buf *out)
{
    buf_adds(out, "{\"paths\":[\"/api\",\"/api/v1\",\"/apis\"");
    for (const struct kind *k = sim_kinds; k < sim_kinds + KINDS_N; k++)
        if (k->group[0])
            buf_printf(out, ",\"/apis/%s\",\"/apis/%s/%s\"", k->group, k->group,
                       k->version);
    for (size_t i = 0; i < ARRAY_LEN(pages); i++)
        if (strcmp(pages[i].path, "/api") != 0)
            buf_printf(out, ",\"%s\"", pages[i].path);
    buf_adds(out, ",\"/openapi/v2\",\"/openapi/v3\"]}\n");
}

bool sim_discovery_handle(struct call *c)
{
    struct buf *out = &c->reply->body;
    const char *path = c->req->path;
    c->reply->status = 200;
    if (fixed_pages(c) || sim_openapi_handle(c) || group_paths(span_of(path), out))
        return true;
    if (strcmp(path, "/") == 0) {
        add_paths(out);
        return true;
    }
    if (strcmp(path, "/apis") == 0) {
        add_groups(out);
        return true;
    }
    if (strcmp(path, "/api/v1") == 0) {
        buf_adds(out,
                 "{\"kind\":\"APIResourceList\",\"groupVersion\":\"v1\",\"resources\":[");
        add_resources(SPAN(""), out);
        buf_adds(out, "]}\n");
        return true;
    }
    return false;
}
