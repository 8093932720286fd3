/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include "base/mem.h"

/* Routes a request to what answers it; GET of one object; discovery, health and version. */

static void add_resources(struct span group, struct buf *out)
{
    const char *sep = "";
    for (const struct kind *k = sim_kinds; k < sim_kinds + KINDS_N; k++) {
        if (!span_eq(group, span_of(k->group)))
            continue;
        buf_printf(out,
                   "%s{\"name\":\"%s\",\"singularName\":\"%s\",\"namespaced\":%s,"
                   "\"kind\":\"%s\",\"verbs\":[\"create\",\"delete\",\"get\",\"list\","
                   "\"patch\",\"update\",\"watch\"]}",
                   sep, k->plural, k->singular, k->namespaced ? "true" : "false",
                   k->kind);
        sep = ",";
    }
}

static void add_group(const struct kind *k, struct buf *out)
{
    buf_printf(out,
               "\"name\":\"%s\",\"versions\":[{\"groupVersion\":\"%s/v1\","
               "\"version\":\"v1\"}],\"preferredVersion\":{\"groupVersion\":\"%s/v1\","
               "\"version\":\"v1\"}}",
               k->group, k->group, k->group);
}

static void add_groups(struct buf *out)
{
    const char *sep = "";
    buf_adds(out, "{\"kind\":\"APIGroupList\",\"apiVersion\":\"v1\",\"groups\":[");
    for (const struct kind *k = sim_kinds; k < sim_kinds + KINDS_N; k++) {
        if (!k->group[0]) /* the core group is under /api; any other has one kind */
            continue;
        buf_printf(out, "%s{", sep);
        sep = ",";
        add_group(k, out);
    }
    buf_adds(out, "]}\n");
}

static void add_list(const char *group, struct buf *out)
{
    buf_printf(out,
               "{\"kind\":\"APIResourceList\",\"apiVersion\":\"v1\","
               "\"groupVersion\":\"%s%sv1\",\"resources\":[",
               group, group[0] ? "/" : "");
    add_resources(span_of(group), out);
    buf_adds(out, "]}\n");
}

static const struct page {
    const char *path, *type; /* type NULL: JSON */
    const char *text;
} pages[] = {
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

/* Health, version, and the discovery that kubectl needs. False: the path is none of
 * these. */
static bool serve_page(struct call *c)
{
    struct buf *out = &c->reply->body;
    const char *path = c->req->path;
    c->reply->status = 200;
    for (size_t i = 0; i < ARRAY_LEN(pages); i++) {
        if (strcmp(path, pages[i].path) == 0) {
            c->reply->content_type = pages[i].type;
            buf_adds(out, pages[i].text);
        }
    }
    if (strcmp(path, "/apis") == 0)
        add_groups(out);
    for (const struct kind *k = sim_kinds; !out->n && k < sim_kinds + KINDS_N; k++) {
        cleanup_buf struct buf root = {0};
        sim_kind_add_root(k, &root);
        if (span_eq(span_of(path), buf_span(&root)))
            add_list(k->group, out);
    }
    return out->n > 0;
}

enum { MAX_BODY = 3 << 20 };

struct object *sim_call_object(struct call *c)
{
    cleanup_buf struct buf key = {0};
    struct object *o = sim_store_find(
        c->store, sim_kind_key(c->route.kind, c->route.ns, c->route.name, &key));
    if (!o)
        sim_refuse_not_found(c, c->route.kind, c->route.name);
    return o;
}

static void get_handle(struct call *c)
{
    const struct object *o = sim_call_object(c);
    if (o)
        sim_answer_object(c, 200, o);
}

/* A path outside of the served groups gets plain text, not a Status. */
static void refuse_path(struct call *c)
{
    if (sim_kind_knows_path(span_of(c->req->path))) {
        sim_refuse(c, 404, "the server could not find the requested resource");
        return;
    }
    c->reply->status = 404;
    c->reply->content_type = "text/plain; charset=utf-8";
    buf_clear(&c->reply->body);
    buf_adds(&c->reply->body, "404 page not found\n");
}

static int refuse_method(struct call *c)
{
    return sim_refuse(c, 405,
                      "the server does not allow this method on the requested resource");
}

/* Does the kind have this subresource? */
static bool knows_sub(const struct kind *kind, struct span sub)
{
    return !sub.p || (kind->status && span_eq(sub, SPAN("status"))) ||
           (kind->binding &&
            (span_eq(sub, SPAN("binding")) || span_eq(sub, SPAN("eviction"))));
}

static bool is_watch(const struct call *c)
{
    return c->route.kind && !c->route.name.p && strcmp(c->req->method, "GET") == 0 &&
           sim_query_bool(&c->query, "watch");
}

static void collection(struct call *c)
{
    if (strcmp(c->req->method, "GET") == 0) {
        if (is_watch(c))
            sim_watch_handle(c);
        else
            sim_list_handle(c);
    } else if (strcmp(c->req->method, "POST") == 0 &&
               (c->route.ns.p || !c->route.kind->namespaced)) {
        sim_create_handle(c);
    } else {
        refuse_method(c);
    }
}

static void single(struct call *c)
{
    const char *method = c->req->method;
    bool binding = span_eq(c->route.sub, SPAN("binding"));
    bool eviction = span_eq(c->route.sub, SPAN("eviction"));
    bool readable = !binding && !eviction;
    if (binding && strcmp(method, "POST") == 0)
        sim_binding_handle(c);
    else if (eviction && strcmp(method, "POST") == 0)
        sim_eviction_handle(c);
    else if (readable && strcmp(method, "GET") == 0)
        get_handle(c);
    else if (readable && (strcmp(method, "PUT") == 0 || strcmp(method, "PATCH") == 0))
        sim_update_handle(c);
    else if (!c->route.sub.p && strcmp(method, "DELETE") == 0 &&
             strcmp(c->route.kind->plural, "namespaces") != 0)
        sim_delete_handle(c);
    else
        refuse_method(c);
}

static void dispatch(struct call *c)
{
    const char *group;
    struct err err;
    int64_t ms; /* fault rules make requests hang in server.c */
    if (!is_watch(c) && sim_query_timeout_ms(&c->query, &ms, &err)) {
        sim_refuse(c, 400, "invalid timeout specified in the request URL - %s", err.msg);
    } else if (sim_query_has(&c->query, "dryRun")) {
        sim_refuse(c, 400, "kube-sim has no dry runs");
    } else if (c->req->body.n > MAX_BODY) {
        sim_refuse(c, 413, "Request entity too large: limit is %d", MAX_BODY);
    } else if (sim_review_resource(c->req->path, &group)) {
        sim_review_handle(c);
    } else if (c->route.kind && !knows_sub(c->route.kind, c->route.sub)) {
        if (c->route.kind->custom) /* a custom resource: the object is looked up first */
            sim_refuse_not_found(c, c->route.kind, c->route.name);
        else
            refuse_path(c);
    } else if (!c->route.kind) {
        if (!serve_page(c))
            refuse_path(c);
        else if (strcmp(c->req->method, "GET") != 0)
            refuse_method(c);
    } else if (c->route.name.p) {
        single(c);
    } else {
        collection(c);
    }
}

void api_handle(struct api *api, int64_t now_ms, const struct api_request *req,
                struct api_reply *reply)
{
    struct call c = {.api = api, .now_ms = now_ms, .req = req, .reply = reply};
    c.route = sim_route_parse(req->path);
    c.store = c.route.kind ? sim_api_store(api, c.route.kind) : NULL;
    sim_query_init(&c.query, req->query);
    dispatch(&c);
    sim_query_fini(&c.query);
}

/* Resources that clients ask for although not every cluster has them, and this one has not:
 * requests for one object of them are counted, too. */
static bool classify_absent(const struct api_request *req, struct api_target *target)
{
    static const char *const absent[][2] = {
        {"scheduling.k8s.io", "podgroups"},
        {"scheduling.k8s.io", "workloads"},
        {"scheduling.x-k8s.io", "podgroups"},
        {"scheduling.volcano.sh", "podgroups"},
    };
    struct span part[8], rest = span_of(req->path); /* /apis/G/V/namespaces/NS/R/NAME */
    for (size_t i = 0; i < ARRAY_LEN(part); i++)
        part[i] = span_cut(&rest, '/');
    if (!span_eq(part[1], SPAN("apis")) || strcmp(req->method, "GET") != 0 ||
        !part[7].n || rest.n)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(absent); i++) {
        if (!span_eq(part[2], span_of(absent[i][0])) ||
            !span_eq(part[6], span_of(absent[i][1])))
            continue;
        *target =
            (struct api_target){"get", absent[i][1], absent[i][0], part[5], part[7], {0}};
        return true;
    }
    return false;
}

bool api_classify(const struct api_request *req, struct api_target *target)
{
    static const char *const verbs[][3] = {
        /* method, on a collection, on an object */
        {"GET", "list", "get"},
        {"POST", "create", "create"},
        {"PUT", "", "update"},
        {"PATCH", "", "patch"},
        {"DELETE", "deletecollection", "delete"},
    };
    struct route r = sim_route_parse(req->path);
    *target = (struct api_target){.verb = ""};
    const char *group, *review = sim_review_resource(req->path, &group);
    if (review) {
        const char *verb = strcmp(req->method, "POST") == 0 ? "create" : "";
        *target = (struct api_target){.verb = verb, .resource = review, .group = group};
        return true;
    }
    if (!r.kind)
        return classify_absent(req, target);
    *target = (struct api_target){"", r.kind->plural, r.kind->group, r.ns, r.name, r.sub};
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(req->method, verbs[i][0]) == 0)
            target->verb = verbs[i][r.name.p ? 2 : 1];
    if (strcmp(target->verb, "list") == 0) {
        cleanup_query struct query q;
        sim_query_init(&q, req->query);
        if (sim_query_bool(&q, "watch"))
            target->verb = "watch";
    }
    return true;
}

void api_reply_fini(struct api_reply *r)
{
    buf_fini(&r->body);
    api_watch_free(r->watch);
    *r = (struct api_reply){0};
}
