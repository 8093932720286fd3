/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/serve.h"

#include "lib/unit.h"

/* The headers and paths that test/integration/test_serve cannot send, and the forms of the
 * others. */

#define TOKEN "0123456789abcdef"

static const char *check(const char *host, const char *origin, const char *path)
{
    struct err err = {0};
    const char *rest = serve_check(TOKEN, 8080, host, origin, path, &err);
    ck_assert(rest || err.code == ERR_FORBIDDEN);
    return rest;
}

TEST(only_our_host_our_origin_and_the_token)
{
    static const char *const hosts[] = {
        NULL /* HTTP/1.0 */, "",
        "127.0.0.1",         "127.0.0.1:80",
        "127.0.0.1:80800",   "127.0.0.1:8080.evil.example",
        "evil.example:8080", "127.0.0.2:8080",
        "[::1]:8080"};
    static const char *const origins[] = {"",
                                          "null",
                                          "http://",
                                          "http://127.0.0.1:8081",
                                          "http://127.0.0.1:8080/",
                                          "https://127.0.0.1:8080"};
    static const char *const paths[] = {"",
                                        "/",
                                        "//",
                                        "/" TOKEN,
                                        "/" TOKEN "0/",
                                        "/0123456789abcde/",
                                        "/0123456789abcdeF/",
                                        "/1123456789abcdef/",
                                        "x" TOKEN "/",
                                        "//" TOKEN "/"};
    static const char good[] = "127.0.0.1:8080";
    array_items(host, hosts)
        ck_assert_ptr_null(check(*host, NULL, "/" TOKEN "/"));
    array_items(origin, origins)
        ck_assert_ptr_null(check(good, *origin, "/" TOKEN "/"));
    array_items(path, paths)
        ck_assert_ptr_null(check(good, NULL, *path));
    ck_assert_str_eq(check(good, NULL, "/" TOKEN "/"), "/");
    ck_assert_str_eq(check(good, NULL, "/" TOKEN "/inspect"), "/inspect");
    ck_assert_str_eq(check("LocalHost:8080", "http://127.0.0.1:8080", "/" TOKEN "//x"),
                     "//x");
    ck_assert_str_eq(
        check("localhost:8080", "http://localhost:8080", "/" TOKEN "/page.js"),
        "/page.js");
}
