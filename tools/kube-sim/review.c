/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include "base/mem.h"

/* TokenReview and SubjectAccessReview, answered by the rules of a test. */

static const struct review {
    const char *path, *group, *resource;
} reviews[] = {
    {"/apis/authentication.k8s.io/v1/tokenreviews", "authentication.k8s.io",
     "tokenreviews"},
    {"/apis/authorization.k8s.io/v1/subjectaccessreviews", "authorization.k8s.io",
     "subjectaccessreviews"},
};

const char *sim_review_resource(const char *path, const char **group)
{
    for (size_t i = 0; i < ARRAY_LEN(reviews); i++) {
        if (strcmp(path, reviews[i].path) != 0)
            continue;
        *group = reviews[i].group;
        return reviews[i].resource;
    }
    return NULL;
}

static json_t *review_token(const json_t *access, const json_t *spec)
{
    const char *token = sim_jsonx_str(spec, "token");
    json_t *user = json_object_get(json_object_get(access, "tokens"), token);
    if (!user)
        return json_pack("{s:{}, s:s}", "user", "error", "[invalid bearer token]");
    return json_pack("{s:b, s:O}", "authenticated", 1, "user", user);
}

/* An absent member of the rule matches everything, as does "*". */
static bool matches(const json_t *rule, const char *member, const char *value)
{
    const char *want = json_string_value(json_object_get(rule, member));
    return !want || strcmp(want, "*") == 0 || strcmp(want, value) == 0;
}

static bool has_group(const json_t *spec, const char *name)
{
    size_t i;
    json_t *group;
    json_array_foreach(json_object_get(spec, "groups"), i, group)
    {
        const char *value = json_string_value(group);
        if (value && strcmp(value, name) == 0)
            return true;
    }
    return false;
}

static bool allows(const json_t *rule, const json_t *spec)
{
    const char *group = json_string_value(json_object_get(rule, "group"));
    const json_t *path = json_object_get(spec, "nonResourceAttributes"),
                 *at = path ? path : json_object_get(spec, "resourceAttributes");
    if (!matches(rule, "user", sim_jsonx_str(spec, "user")) ||
        (group && !has_group(spec, group)) ||
        !matches(rule, "verb", sim_jsonx_str(at, "verb")))
        return false;
    if (path)
        return json_object_get(rule, "path") &&
               matches(rule, "path", sim_jsonx_str(at, "path"));
    return json_object_get(rule, "resource") &&
           matches(rule, "resource", sim_jsonx_str(at, "resource")) &&
           matches(rule, "apiGroup", sim_jsonx_str(at, "group")) &&
           matches(rule, "namespace", sim_jsonx_str(at, "namespace"));
}

static json_t *review_access(const json_t *access, const json_t *spec)
{
    size_t i;
    json_t *rule;
    json_array_foreach(json_object_get(access, "rules"), i, rule)
    {
        if (allows(rule, spec))
            return json_pack("{s:b}", "allowed", 1);
    }
    return json_pack("{s:b}", "allowed", 0);
}

void sim_review_handle(struct call *c)
{
    const char *group, *resource = sim_review_resource(c->req->path, &group);
    struct err err;
    if (strcmp(c->req->method, "POST") != 0) {
        sim_refuse(c, 405,
                   "the server does not allow this method on the requested resource");
        return;
    }
    cleanup_json_value json_t *root = sim_jsonx_parse(c->req->body, &err);
    const json_t *spec = json_object_get(root, "spec");
    bool token = strcmp(resource, "tokenreviews") == 0;
    const char *kind = sim_jsonx_str(root, "kind");
    if (!root || !json_is_object(spec) ||
        strcmp(kind, token ? "TokenReview" : "SubjectAccessReview") != 0) {
        sim_refuse(c, 400, "the body is not a review of %s", resource);
        return;
    }
    json_t *status =
        token ? review_token(c->api->access, spec) : review_access(c->api->access, spec);
    json_object_set_new(root, "status", status);
    c->reply->status = 201;
    sim_jsonx_dump(&c->reply->body, root);
    buf_addc(&c->reply->body, '\n');
}
