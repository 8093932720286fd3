/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/review.h"
#include "lib/unit.h"

TEST(only_plausible_tokens_are_reviewed)
{
    static const char *const good[] = {"a", "eyJhbGciOi.J9-_~+/x==", "0="};
    static const char *const bad[] = {"", "=", "a b", "a\"", "a=b", "\x80", "a\tb"};
    array_items(g, good)
        ck_assert(review_token_is_plausible(span_of(*g)));
    array_items(c, bad)
        ck_assert(!review_token_is_plausible(span_of(*c)));
    cleanup_buf struct buf big = {0};
    for (int i = 0; i < REVIEW_TOKEN_MAX; i++)
        buf_addc(&big, 'a');
    ck_assert(review_token_is_plausible(buf_span(&big)));
    buf_addc(&big, 'a');
    ck_assert(!review_token_is_plausible(buf_span(&big)));
    ck_assert(!review_token_is_plausible((struct span){"a\0b", 3}));
}

TEST(a_token_review_names_the_user)
{
    cleanup_buf struct buf body = {0};
    struct review_user u;
    struct err err = {0};
    review_token_write(&body, SPAN("t.o-k"));
    ck_assert_str_eq(body.p, "{\"apiVersion\":\"authentication.k8s.io/v1\","
                             "\"kind\":\"TokenReview\",\"spec\":{\"token\":\"t.o-k\"}}");
    static const char yes[] =
        "{\"status\":{\"authenticated\":true,\"user\":{\"username\":\"a\\\"b\",\"uid\":"
        "\"7\",\"groups\":[\"g\",\"h\"],\"extra\":{\"k\":[\"v\"]},\"more\":1}}}";
    ck_assert_int_eq(review_token_read(span_of(yes), &u, &err), 1);
    ck_assert_str_eq(u.name, "a\"b");
    ck_assert_str_eq(u.spec, "\"extra\":{\"k\":[\"v\"]},\"groups\":[\"g\",\"h\"],"
                             "\"uid\":\"7\",\"user\":\"a\\\"b\"");
    review_user_fini(&u);
    static const struct {
        const char *answer;
        int result;
    } others[] = {
        {"{\"status\":{\"authenticated\":false,\"error\":\"x\"}}", 0},
        {"{\"status\":{}}", 0},
        {"{\"status\":{\"authenticated\":\"true\",\"user\":{\"username\":\"a\"}}}", 0},
        {"{\"status\":{\"authenticated\":true}}", -1},
        {"{\"status\":{\"authenticated\":true,\"user\":{\"username\":\"\"}}}", -1},
        {"{\"status\":{\"authenticated\":true,\"user\":{\"username\":[\"a\"]}}}", -1},
        {"{}", -1},
        {"[]", -1},
        {"", -1},
        {"rubbish", -1},
    };
    array_items(other, others) {
        ck_assert_int_eq(review_token_read(span_of(other->answer), &u, &err),
                         other->result);
        ck_assert_ptr_null(u.name);
        review_user_fini(&u);
    }
}

TEST(an_access_review_asks_for_a_path_or_a_resource)
{
    cleanup_buf struct buf body = {0};
    static const char spec[] = "\"groups\":[\"g\",\"h\\\"i\"],\"user\":\"u\"";
    review_access_write(&body, spec,
                        &(struct review_access){.verb = "get", .path = "/metrics"});
    ck_assert_str_eq(body.p,
                     "{\"apiVersion\":\"authorization.k8s.io/v1\",\"kind\":"
                     "\"SubjectAccessReview\",\"spec\":{\"groups\":[\"g\",\"h\\\"i\"],"
                     "\"user\":\"u\",\"nonResourceAttributes\":{\"path\":\"/metrics\","
                     "\"verb\":\"get\"}}}");
    buf_clear(&body);
    review_access_write(
        &body, spec,
        &(struct review_access){
            .verb = "list", .group = "", .version = "v1", .resource = "pods"});
    ck_assert_contains(body.p,
                       ",\"resourceAttributes\":{\"group\":\"\",\"version\":\"v1\","
                       "\"resource\":\"pods\",\"verb\":\"list\"}}}");
}

TEST(access_is_denied_unless_it_is_allowed)
{
    static const struct {
        const char *answer;
        int result;
    } all[] = {
        {"{\"status\":{\"allowed\":true}}", 1},
        {"{\"status\":{\"allowed\":true,\"denied\":true}}", 0},
        {"{\"status\":{\"allowed\":false,\"reason\":\"x\"}}", 0},
        {"{\"status\":{\"allowed\":1}}", 0},
        {"{\"status\":{}}", 0},
        {"{\"status\":true}", -1},
        {"", -1},
    };
    struct err err;
    array_items(a, all)
        ck_assert_int_eq(review_access_read(span_of(a->answer), &err), a->result);
}
