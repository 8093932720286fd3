/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/serve.h"

#include "lib/unit.h"

/* The headers and paths that test/integration/test_serve cannot send, and the forms of the
 * others. */

#define TOKEN "0123456789abcdef"

static const char *address = "127.0.0.1";

static const char *check(const char *host, const char *origin, const char *path)
{
    struct err err = {0};
    const char *rest = serve_check(TOKEN, address, 8080, host, origin, path, &err);
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

TEST(on_a_machine_without_ipv4_the_host_is_the_address_of_ipv6)
{
    static const char *const hosts[] = {
        "127.0.0.1:8080", "::1:8080", "[::1]",        "[::1]:80", "[::1]:80800",
        "[::2]:8080",     "::1",      "[::1].x:8080", "::1]:8080"};
    static const char *const origins[] = {"http://127.0.0.1:8080", "http://::1:8080",
                                          "http://[::1]:8081", "https://[::1]:8080"};
    address = "::1";
    array_items(host, hosts)
        ck_assert_ptr_null(check(*host, NULL, "/" TOKEN "/"));
    array_items(origin, origins)
        ck_assert_ptr_null(check("[::1]:8080", *origin, "/" TOKEN "/"));
    ck_assert_str_eq(check("[::1]:8080", "http://[::1]:8080", "/" TOKEN "/"), "/");
    ck_assert_str_eq(check("localhost:8080", NULL, "/" TOKEN "/"), "/");
    struct err err = {0};
    ck_assert_ptr_null(serve_check(TOKEN, address, 8080, "x", NULL, "/" TOKEN "/", &err));
    ck_assert_str_eq(err.msg, "Host must be [::1]:8080 or localhost:8080");
}
