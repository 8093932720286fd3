/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/openapi_priv.h"

static void add_info(struct buf *out)
{
    buf_adds(out, "\"info\":{\"title\":\"Kubernetes\",\"version\":\"v1.35.4\"}");
}

/* "api/v1" or "apis/group/version". */
static void add_root(const struct kind *k, struct buf *out)
{
    buf_adds(out, k->group[0] ? "apis/" : "api/");
    sim_kind_add_group_version(k, out);
}

static bool is_first_of_group(const struct kind *k)
{
    for (const struct kind *before = sim_kinds; before < k; before++)
        if (strcmp(before->group, k->group) == 0)
            return false;
    return true;
}

static void add_index(struct buf *out)
{
    const char *sep = "";
    buf_adds(out, "{\"paths\":{");
    for (const struct kind *k = sim_kinds; k < sim_kinds + KINDS_N; k++) {
        if (!is_first_of_group(k))
            continue;
        buf_printf(out, "%s\"", sep);
        sep = ",";
        add_root(k, out);
        buf_adds(out, "\":{\"serverRelativeURL\":\"/openapi/v3/");
        add_root(k, out);
        buf_adds(out, "\"}");
    }
    buf_adds(out, "}}\n");
}

/* kubectl looks for the parameter fieldValidation of a kind's PATCH. */
static void add_path(const struct kind *k, struct buf *out)
{
    buf_adds(out, "\"/");
    add_root(k, out);
    buf_printf(
        out,
        "%s/%s/{name}\":{\"patch\":{\"x-kubernetes-group-version-kind\":{\"group\":"
        "\"%s\",\"version\":\"%s\",\"kind\":\"%s\"},\"parameters\":[{\"name\":"
        "\"fieldValidation\",\"in\":\"query\",\"schema\":{\"type\":\"string\"}}],"
        "\"responses\":{}}}",
        k->namespaced ? "/namespaces/{namespace}" : "", k->plural, k->group, k->version,
        k->kind);
}

static bool group_document(struct span path, struct buf *out)
{
    const char *sep = "";
    cleanup_buf struct buf paths = {0};
    for (const struct kind *k = sim_kinds; k < sim_kinds + KINDS_N; k++) {
        cleanup_buf struct buf root = {0};
        add_root(k, &root);
        if (!span_eq(path, buf_span(&root)))
            continue;
        buf_adds(&paths, sep);
        sep = ",";
        add_path(k, &paths);
    }
    if (!paths.n)
        return false;
    buf_adds(out, "{\"openapi\":\"3.0.0\",");
    add_info(out);
    buf_printf(out, ",\"paths\":{%s},\"components\":{}}\n", paths.p);
    return true;
}

/* Clients request /openapi/v2 as Protobuf; an empty document has no bytes. */
static void old_document(struct call *c)
{
    static const char type[] =
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    struct span wanted = span_of(c->req->accept);
    if (span_starts(wanted, SPAN("application/com.github.proto-openapi"))) {
        c->reply->content_type = type;
        return;
    }
    buf_adds(&c->reply->body, "{\"swagger\":\"2.0\",");
    add_info(&c->reply->body);
    buf_adds(&c->reply->body, ",\"paths\":{},\"definitions\":{}}\n");
}

bool sim_openapi_handle(struct call *c)
{
    static const struct span v3 = {"/openapi/v3/", 12};
    struct span path = span_of(c->req->path);
    if (strcmp(c->req->path, "/openapi/v2") == 0)
        old_document(c);
    else if (strcmp(c->req->path, "/openapi/v3") == 0)
        add_index(&c->reply->body);
    else
        return span_starts(path, v3) &&
               group_document((struct span){path.p + v3.n, path.n - v3.n},
                              &c->reply->body);
    return true;
}
