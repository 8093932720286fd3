/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/serve.h"

#include "base/mem.h"
#include "lib/unit.h"

/* The headers and paths that test/integration/test_serve cannot send, and the forms of the
 * others. */

#define TOKEN "0123456789abcdef"

static const struct {
    const char *host, *origin, *path, *rest; /* rest NULL: rejected */
} cases[] = {
    {"127.0.0.1:8080", NULL, "/" TOKEN "/", "/"},
    {"127.0.0.1:8080", NULL, "/" TOKEN "/inspect", "/inspect"},
    {"LocalHost:8080", "http://127.0.0.1:8080", "/" TOKEN "//x", "//x"},
    {"localhost:8080", "http://localhost:8080", "/" TOKEN "/page.js", "/page.js"},
    {NULL, NULL, "/" TOKEN "/", NULL}, /* HTTP/1.0 */
    {"", NULL, "/" TOKEN "/", NULL},
    {"127.0.0.1", NULL, "/" TOKEN "/", NULL},
    {"127.0.0.1:80", NULL, "/" TOKEN "/", NULL},
    {"127.0.0.1:80800", NULL, "/" TOKEN "/", NULL},
    {"127.0.0.1:8080.evil.example", NULL, "/" TOKEN "/", NULL},
    {"evil.example:8080", NULL, "/" TOKEN "/", NULL},
    {"127.0.0.2:8080", NULL, "/" TOKEN "/", NULL},
    {"[::1]:8080", NULL, "/" TOKEN "/", NULL},
    {"127.0.0.1:8080", "", "/" TOKEN "/", NULL},
    {"127.0.0.1:8080", "null", "/" TOKEN "/", NULL},
    {"127.0.0.1:8080", "http://", "/" TOKEN "/", NULL},
    {"127.0.0.1:8080", "http://127.0.0.1:8081", "/" TOKEN "/", NULL},
    {"127.0.0.1:8080", "http://127.0.0.1:8080/", "/" TOKEN "/", NULL},
    {"127.0.0.1:8080", "https://127.0.0.1:8080", "/" TOKEN "/", NULL},
    {"127.0.0.1:8080", NULL, "", NULL},
    {"127.0.0.1:8080", NULL, "/", NULL},
    {"127.0.0.1:8080", NULL, "//", NULL},
    {"127.0.0.1:8080", NULL, "/" TOKEN, NULL},
    {"127.0.0.1:8080", NULL, "/" TOKEN "0/", NULL},
    {"127.0.0.1:8080", NULL, "/0123456789abcde/", NULL},
    {"127.0.0.1:8080", NULL, "/0123456789abcdeF/", NULL},
    {"127.0.0.1:8080", NULL, "/1123456789abcdef/", NULL},
    {"127.0.0.1:8080", NULL, "x" TOKEN "/", NULL},
    {"127.0.0.1:8080", NULL, "//" TOKEN "/", NULL},
};

START_TEST(only_our_host_our_origin_and_the_token)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err err = {0};
        const char *rest =
            serve_check(TOKEN, 8080, cases[i].host, cases[i].origin, cases[i].path, &err);
        ck_assert_msg(!rest == !cases[i].rest, "case %zu", i);
        if (rest)
            ck_assert_str_eq(rest, cases[i].rest);
        else
            ck_assert_int_eq(err.code, ERR_FORBIDDEN);
    }
}
END_TEST

UNIT_MAIN("serve", only_our_host_our_origin_and_the_token)
