/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base64.h"

#include "base/mem.h"
#include "base/rng.h"
#include "lib/mutate.h"
#include "lib/unit.h"

START_TEST(base64_is_decoded_strictly)
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
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_buf struct buf out = {0};
        buf_adds(&out, "kept");
        bool ok = base64_decode(span_of(cases[i].in), &out);
        ck_assert_msg(ok == (cases[i].out != NULL), "\"%s\"", cases[i].in);
        cleanup_free char *want = xasprintf("kept%s", ok ? cases[i].out : "");
        ck_assert_str_eq(out.p, want);
    }
}
END_TEST

START_TEST(base64_round_trips)
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
END_TEST

START_TEST(mutated_base64_is_rejected_or_round_trips)
{
    static const char *const pieces[] = {"=", "==", " ", "\n", "A", "-", "\xff", NULL};
    struct rng rng;
    unsigned good = 0;
    rng_init(&rng, 5);
    for (int round = 0; round < 20000; round++) {
        cleanup_buf struct buf text = {0}, bytes = {0}, again = {0}, packed = {0};
        for (uint64_t n = rng_below(&rng, 40); n; n--)
            buf_addc(&packed, (char)rng_next(&rng));
        base64_encode(buf_span(&packed), &text);
        mutate(&rng, pieces, &text);
        cleanup_free char *exact = xmalloc(text.n);
        memcpy(exact, text.p, text.n);
        if (!base64_decode((struct span){exact, text.n}, &bytes))
            continue;
        good++;
        /* Encoded again, it must be the same text except for white space. */
        base64_encode(buf_span(&bytes), &again);
        size_t k = 0;
        for (size_t i = 0; i < text.n; i++)
            if (!strchr(" \n\r\t", text.p[i]) || !text.p[i])
                ck_assert(k < again.n && again.p[k++] == text.p[i]);
        ck_assert_uint_eq(k, again.n);
    }
    ck_assert_uint_gt(good, 500);
    ck_assert_uint_lt(good, 19500);
}
END_TEST

UNIT_MAIN("base64", base64_is_decoded_strictly, base64_round_trips,
          mutated_base64_is_rejected_or_round_trips)
