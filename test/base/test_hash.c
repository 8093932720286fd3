/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include "base/mem.h"
#include "base/rng.h"
#include "support/unit.h"

enum { KEYS = 500 };

START_TEST(a_map_agrees_with_a_plain_array_over_many_changes)
{
    char names[KEYS][16];
    bool in[KEYS] = {0};
    size_t n = 0;
    for (uint64_t seed = 0; seed < 4; seed++) {
        struct rng rng;
        struct map map;
        rng_init(&rng, seed);
        map_init(&map, seed);
        memset(in, 0, sizeof in);
        n = 0;
        for (int i = 0; i < KEYS; i++)
            snprintf(names[i], sizeof names[i], "node-%d", i);
        for (int step = 0; step < 20000; step++) {
            size_t i = rng_below(&rng, KEYS);
            struct span key = span_of(names[i]);
            if (rng_below(&rng, 2)) {
                map_set(&map, key, names[i]);
                n += !in[i];
                in[i] = true;
            } else {
                ck_assert_ptr_eq(map_remove(&map, key), in[i] ? names[i] : NULL);
                n -= in[i];
                in[i] = false;
            }
            ck_assert_uint_eq(map.n, n);
        }
        for (int i = 0; i < KEYS; i++)
            ck_assert_ptr_eq(map_get(&map, span_of(names[i])), in[i] ? names[i] : NULL);
        map_fini(&map);
    }
}
END_TEST

START_TEST(the_seed_changes_the_hash)
{
    const char *text = "gpu-node-00042-with-a-long-name";
    for (size_t n = 0; n < 31; n++) {
        ck_assert_uint_eq(hash_bytes(1, text, n), hash_bytes(1, text, n));
        ck_assert_uint_ne(hash_bytes(1, text, n), hash_bytes(2, text, n));
        ck_assert_uint_ne(hash_bytes(1, text, n), hash_bytes(1, text, n + 1));
    }
}
END_TEST

START_TEST(names_that_count_up_do_not_collide_in_the_low_bits)
{
    enum { N = 8192 };
    cleanup_free unsigned char *used = xcalloc(N, 1);
    unsigned clashes = 0;
    for (int i = 0; i < N / 2; i++) {
        char name[32];
        int n = snprintf(name, sizeof name, "gpu-node-%05d", i);
        uint64_t slot = hash_bytes(7, name, (size_t)n) % N;
        clashes += used[slot];
        used[slot] = 1;
    }
    ck_assert_uint_lt(clashes, N / 2 / 4); /* random: about 21 % */
}
END_TEST

START_TEST(random_numbers_repeat_and_stay_below)
{
    struct rng a, b;
    rng_init(&a, 5);
    rng_init(&b, 5);
    for (int i = 0; i < 1000; i++) {
        uint64_t v = rng_below(&a, 10);
        ck_assert_uint_lt(v, 10);
        ck_assert_uint_eq(v, rng_below(&b, 10));
    }
    ck_assert_uint_ne(rng_entropy(), rng_entropy());
}
END_TEST

UNIT_MAIN("hash", a_map_agrees_with_a_plain_array_over_many_changes,
          the_seed_changes_the_hash, names_that_count_up_do_not_collide_in_the_low_bits,
          random_numbers_repeat_and_stay_below)
