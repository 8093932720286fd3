/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/review.h"

#include <jansson.h>
#include <stdlib.h>

#include "base/mem.h"

bool review_token_is_plausible(struct span token)
{
    static const char marks[] = "-._~+/";
    size_t n = token.n;
    while (n && token.p[n - 1] == '=')
        n--;
    for (size_t i = 0; i < n; i++) {
        char c = token.p[i], low = (char)(c | 0x20);
        if (!(low >= 'a' && low <= 'z') && !(c >= '0' && c <= '9') &&
            (c == '\0' || !strchr(marks, c)))
            return false;
    }
    return n && token.n <= REVIEW_TOKEN_MAX;
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

/* Takes `spec`, the members of a SubjectAccessReview's spec. */
static int set_user(struct review_user *user, json_t *spec, struct err *err)
{
    char *text = json_dumps(spec, JSON_COMPACT | JSON_SORT_KEYS);
    const char *name = json_string_value(json_object_get(spec, "user"));
    if (text && name && *name) {
        *user = (struct review_user){xstrdup(name), xmemdup0(text + 1, strlen(text) - 2)};
        free(text);
        json_decref(spec);
        return 1;
    }
    free(text);
    json_decref(spec);
    return err_set(err, ERR_INVALID, "TokenReview: the authenticated user has no name");
}

int review_token_read(struct span answer, struct review_user *user, struct err *err)
{
    json_error_t bad;
    *user = (struct review_user){0};
    json_t *root = json_loadb(answer.n ? answer.p : "", answer.n, 0, &bad);
    json_t *status = json_object_get(root, "status");
    int rc = 0;
    if (!json_is_object(status)) {
        rc = err_set(err, ERR_INVALID, "TokenReview: the answer has no status");
    } else if (json_is_true(json_object_get(status, "authenticated"))) {
        static const char *const members[] = {"uid", "groups", "extra"};
        json_t *from = json_object_get(status, "user"), *spec = json_object();
        json_object_set(spec, "user", json_object_get(from, "username"));
        for (size_t i = 0; i < ARRAY_LEN(members); i++)
            json_object_set(spec, members[i], json_object_get(from, members[i]));
        rc = set_user(user, spec, err);
    }
    json_decref(root);
    return rc;
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
    json_error_t bad;
    json_t *root = json_loadb(answer.n ? answer.p : "", answer.n, 0, &bad);
    const json_t *status = json_object_get(root, "status");
    int rc = json_is_true(json_object_get(status, "allowed")) &&
             !json_is_true(json_object_get(status, "denied"));
    if (!json_is_object(status))
        rc = err_set(err, ERR_INVALID, "SubjectAccessReview: the answer has no status");
    json_decref(root);
    return rc;
}
