/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/review.h"

#include <jansson.h>
#include <stdlib.h>

#include "base/mem.h"

bool review_token_is_plausible(struct span token)
{
    struct span text = token;
    while (text.n && text.p[text.n - 1] == '=')
        text.n--;
    return text.n && token.n <= REVIEW_TOKEN_MAX && span_has_only(text, "-._~+/");
}

void review_token_write(struct buf *out, struct span token)
{
    static const char head[] =
        "{\"apiVersion\":\"authentication.k8s.io/v1\",\"kind\":\"TokenReview\","
        "\"spec\":{\"token\":";
    buf_reserve(out, sizeof head + 6 * token.n + 16); /* so that it does not move */
    buf_adds(out, head);
    buf_add_json(out, token);
    buf_adds(out, "}}");
}

void review_user_fini(struct review_user *u)
{
    free(u->name);
    free(u->spec);
    *u = (struct review_user){0};
}

int review_token_read(struct span answer, struct review_user *user, struct err *err)
{
    static const char *const members[] = {"uid", "groups", "extra"};
    json_auto_t *root = json_loadb(answer.n ? answer.p : "", answer.n, 0, NULL);
    json_auto_t *spec = json_object(); /* the members of a SubjectAccessReview's spec */
    const json_t *status = json_object_get(root, "status");
    const json_t *from = json_object_get(status, "user");
    const char *name = json_string_value(json_object_get(from, "username"));
    *user = (struct review_user){0};
    if (!json_is_object(status))
        return err_set(err, ERR_INVALID, "TokenReview: the answer has no status");
    if (!json_is_true(json_object_get(status, "authenticated")))
        return 0;
    json_object_set(spec, "user", json_object_get(from, "username"));
    for (size_t i = 0; i < ARRAY_LEN(members); i++)
        json_object_set(spec, members[i], json_object_get(from, members[i]));
    cleanup_free char *text = json_dumps(spec, JSON_COMPACT | JSON_SORT_KEYS);
    if (!text || !name || !*name)
        return err_set(err, ERR_INVALID,
                       "TokenReview: the authenticated user has no name");
    *user = (struct review_user){xstrdup(name), xmemdup0(text + 1, strlen(text) - 2)};
    return 1;
}

static void add_member(struct buf *out, const char *key, struct span value)
{
    buf_adds(out, out->p[out->n - 1] == '{' ? "\"" : ",\"");
    buf_adds(out, key);
    buf_adds(out, "\":");
    buf_add_json(out, value);
}

void review_access_write(struct buf *out, const char *user_spec,
                         const struct review_access *access)
{
    buf_adds(out, "{\"apiVersion\":\"authorization.k8s.io/v1\","
                  "\"kind\":\"SubjectAccessReview\",\"spec\":{");
    buf_adds(out, user_spec);
    buf_adds(out,
             access->path ? ",\"nonResourceAttributes\":{" : ",\"resourceAttributes\":{");
    if (access->path) {
        add_member(out, "path", span_of(access->path));
    } else {
        add_member(out, "group", span_of(access->group));
        add_member(out, "version", span_of(access->version));
        add_member(out, "resource", span_of(access->resource));
    }
    add_member(out, "verb", span_of(access->verb));
    buf_adds(out, "}}}");
}

int review_access_read(struct span answer, struct err *err)
{
    json_auto_t *root = json_loadb(answer.n ? answer.p : "", answer.n, 0, NULL);
    const json_t *status = json_object_get(root, "status");
    if (!json_is_object(status))
        return err_set(err, ERR_INVALID, "SubjectAccessReview: the answer has no status");
    return json_is_true(json_object_get(status, "allowed")) &&
           !json_is_true(json_object_get(status, "denied"));
}
