/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include "base/rng.h"
#include "lib/unit.h"

enum { KEYS = 500 };

struct named {
    int before; /* the key need not be first */
    struct span key;
    char name[16];
};

static void named_init(struct named *all, int n)
{
    for (int i = 0; i < n; i++) {
        snprintf(all[i].name, sizeof all[i].name, "node-%d", i);
        all[i].key = span_of(all[i].name);
    }
}

TEST(a_map_agrees_with_a_plain_array_over_many_changes)
{
    static struct named names[KEYS];
    bool in[KEYS] = {0};
    size_t n = 0;
    for (uint64_t seed = 0; seed < 4; seed++) {
        struct rng rng;
        struct map map;
        rng_init(&rng, seed);
        map_init(&map, seed, offsetof(struct named, key));
        memset(in, 0, sizeof in);
        n = 0;
        named_init(names, KEYS);
        for (int step = 0; step < 20000; step++) {
            size_t i = rng_below(&rng, KEYS);
            struct span key = names[i].key;
            if (rng_below(&rng, 2)) {
                map_set(&map, &names[i]);
                n += !in[i];
                in[i] = true;
            } else {
                ck_assert_ptr_eq(map_remove(&map, key), in[i] ? &names[i] : NULL);
                n -= in[i];
                in[i] = false;
            }
            ck_assert_uint_eq(map.n, n);
        }
        for (int i = 0; i < KEYS; i++)
            ck_assert_ptr_eq(map_get(&map, names[i].key), in[i] ? &names[i] : NULL);
        map_fini(&map);
    }
}

TEST(the_seed_changes_the_hash)
{
    const char *text = "gpu-node-00042-with-a-long-name";
    for (size_t n = 0; n < 31; n++) {
        ck_assert_uint_eq(hash_bytes(1, text, n), hash_bytes(1, text, n));
        ck_assert_uint_ne(hash_bytes(1, text, n), hash_bytes(2, text, n));
        ck_assert_uint_ne(hash_bytes(1, text, n), hash_bytes(1, text, n + 1));
    }
}

TEST(a_batch_lookup_equals_single_lookups)
{
    enum { N = 1000, ASKED = 3 * MAP_BATCH + 5 };
    static struct named names[N];
    struct map m;
    struct rng rng;
    struct span keys[ASKED];
    void *values[ASKED];
    rng_init(&rng, 1);
    named_init(names, N);
    map_init(&m, 3, offsetof(struct named, key));
    memset(values, 1, sizeof values);
    for (int i = 0; i < ASKED; i++)
        keys[i] = names[i].key;
    map_get_many(&m, keys, ASKED, 0, values); /* an empty table */
    for (int i = 0; i < ASKED; i++)
        ck_assert_ptr_null(values[i]);
    for (int i = 0; i < N; i++)
        if (i % 3) /* every third key is absent */
            map_set(&m, &names[i]);
    for (int round = 0; round < 1000; round++) {
        size_t n = rng_below(&rng, ASKED + 1);
        for (size_t i = 0; i < n; i++)
            keys[i] = names[rng_below(&rng, N)].key;
        map_get_many(&m, keys, n, sizeof(struct named), values);
        for (size_t i = 0; i < n; i++)
            ck_assert_ptr_eq(values[i], map_get(&m, keys[i]));
    }
    map_fini(&m);
}
