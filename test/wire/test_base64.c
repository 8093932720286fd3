/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/base64.h"

#include "lib/unit.h"

TEST(base64_is_decoded_strictly)
{
    static const struct {
        const char *in, *out; /* out NULL: rejected */
    } cases[] = {
        {"", ""},
        {"Zg==", "f"},
        {"Zm8=", "fo"},
        {"Zm9v", "foo"},
        {"Zm9vYg==", "foob"},
        {" Z\nm 9\tv\r\n", "foo"},
        {"Zg", NULL},
        {"Zg=", NULL},
        {"Z", NULL},
        {"Zh==", NULL},
        {"Zm9=", NULL},
        {"Zg===", NULL},
        {"Zg==Zg==", NULL},
        {"=", NULL},
        {"Z===", NULL},
        {"Zm9v!", NULL},
        {"Zm-_", NULL},
        {"Zg==\n", "f"},
        {"Zg= =", "f"},
        {"Zg==A", NULL},
        {"Z=g=", NULL},
        {"\xff\xff\xff\xff", NULL},
    };
    array_items(c, cases) {
        cleanup_buf struct buf out = {0};
        buf_adds(&out, "kept");
        bool ok = base64_decode(span_of(c->in), &out);
        ck_assert_msg(ok == (c->out != NULL), "\"%s\"", c->in);
        cleanup_free char *want = xasprintf("kept%s", ok ? c->out : "");
        ck_assert_str_eq(out.p, want);
    }
}

TEST(base64_round_trips)
{
    cleanup_buf struct buf bytes = {0};
    for (int n = 0; n < 300; n++) {
        cleanup_buf struct buf text = {0}, again = {0};
        base64_encode(buf_span(&bytes), &text);
        ck_assert(base64_decode(buf_span(&text), &again));
        ck_assert(span_eq(buf_span(&bytes), buf_span(&again)));
        buf_addc(&bytes, (char)(n * 167));
    }
}
