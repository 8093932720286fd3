/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/api.h"

#include "base/mem.h"
#include "kube-sim/discovery_priv.h"
#include "kube-sim/list_priv.h"
#include "kube-sim/review_priv.h"
#include "kube-sim/status_priv.h"
#include "kube-sim/table_priv.h"
#include "kube-sim/watch_priv.h"
#include "kube-sim/write_priv.h"

enum { MAX_BODY = 3 << 20, TOO_SHORT_NS = 100 * 1000 };

/* The object of a frozen resource, for reads with resourceVersion=0. */
static const struct object *find_frozen(const struct frozen *f, struct span key)
{
    for (size_t i = 0; i < f->n; i++)
        if (span_eq(f->items[i]->key, key))
            return f->items[i];
    return NULL;
}

static void get_handle(struct call *c)
{
    cleanup_buf struct buf key = {0};
    const struct frozen *frozen = &c->api->frozen[sim_kind_index(c->route.kind)];
    bool stale =
        frozen->on && span_eq(sim_query_get(&c->query, "resourceVersion"), SPAN("0"));
    sim_kind_key(c->route.kind, c->route.ns, c->route.name, &key);
    const struct object *o = stale ? find_frozen(frozen, buf_span(&key))
                                   : sim_store_find(c->store, buf_span(&key));
    if (!o) {
        sim_refuse_not_found(c, c->route.kind, c->route.name);
    } else if (sim_table_wanted(c->req->accept)) {
        struct table t = sim_table_of(c->route.kind, c->now_ms,
                                      sim_query_get(&c->query, "includeObject"));
        c->reply->status = 200;
        sim_table_add(&t, true, o, &c->reply->body);
        buf_addc(&c->reply->body, '\n');
    } else {
        sim_answer_object(c, 200, o);
    }
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

/* Does the client accept JSON? */
static bool accepts_json(const char *accept)
{
    struct span rest = span_of(accept);
    bool none = true;
    while (rest.n) {
        struct span entry = span_cut(&rest, ',');
        struct span type = span_trim(span_cut(&entry, ';'));
        if (span_eq_nocase(type, SPAN("application/json")) || span_eq(type, SPAN("*/*")))
            return true;
        none &= !type.n;
    }
    return none;
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

/* Checks ?timeout= of a request that is not a watch. Requests take no time here (fault
 * rules make them hang in server.c), but a timeout that is too short for any real server
 * expires here too. */
static bool is_in_time(struct call *c)
{
    struct err err;
    int64_t ns = 0;
    if (is_watch(c))
        return true;
    if (sim_query_timeout_ns(&c->query, &ns, &err)) {
        sim_refuse(c, 400, "%s", err.msg);
        return false;
    }
    if (ns <= 0 || ns >= TOO_SHORT_NS)
        return true;
    c->reply->status = 504;
    c->reply->content_type = SIM_STATUS_TIMEOUT_TYPE;
    sim_status_write_timeout(&c->reply->body);
    return false;
}

static void dispatch(struct call *c)
{
    if (!is_in_time(c))
        return;
    const char *group;
    if (c->req->body.n > MAX_BODY) {
        sim_refuse(c, 413, "Request entity too large: limit is %d", MAX_BODY);
    } else if (sim_review_resource(c->req->path, &group)) {
        sim_review_handle(c);
    } else if (c->route.kind && !knows_sub(c->route.kind, c->route.sub)) {
        if (c->route.kind->custom) /* a custom resource: the object is looked up first */
            sim_refuse_not_found(c, c->route.kind, c->route.name);
        else
            refuse_path(c);
    } else if (!c->route.kind) {
        if (!sim_discovery_handle(c))
            refuse_path(c);
        else if (strcmp(c->req->method, "GET") != 0)
            refuse_method(c);
    } else if (!accepts_json(c->req->accept)) {
        sim_refuse(c, 406,
                   "406: Not Acceptable\n\nAvailable representations: application/json");
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
    c.dry_run = sim_query_get(&c.query, "dryRun").p;
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
    api_list_free(r->list);
    *r = (struct api_reply){0};
}
