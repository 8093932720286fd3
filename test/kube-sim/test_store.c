/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include "base/rng.h"
#include "lib/unit.h"

/* Compares a store with a plain model that records the whole state after each change; the
 * store must be able to list each of these states. */

enum { KEYS = 40, STEPS = 400 };

struct model {
    int value[KEYS]; /* 0: absent */
};

static struct object *make(int key, int value, uint64_t rv)
{
    char name[16], number[16];
    snprintf(name, sizeof name, "k%02d", key);
    snprintf(number, sizeof number, "%d", value);
    cleanup_json_value json_t *root =
        json_pack("{s:{s:s,s:s},s:{s:s}}", "metadata", "name", name, "namespace", "ns",
                  "data", "v", number);
    return sim_object_new(sim_kind_by_resource(SPAN("configmaps")), root, rv);
}

static void step(struct store *s, struct rng *rng, struct model *m, uint64_t rv)
{
    int key = (int)rng_below(rng, KEYS);
    if (m->value[key] && rng_below(rng, 3) == 0) {
        sim_store_remove(s, make(key, m->value[key], rv));
        m->value[key] = 0;
        return;
    }
    m->value[key] = (int)rv;
    sim_store_put(s, make(key, (int)rv, rv));
}

struct check {
    const struct model *m;
    int key; /* smallest key that may follow */
};

static bool check_one(void *ctx, struct object *o)
{
    struct check *c = ctx;
    cleanup_json_value json_t *root = sim_object_parse(o);
    int64_t key, value;
    ck_assert(span_i64((struct span){o->name.p + 1, o->name.n - 1}, &key));
    ck_assert(span_i64(sim_jsonx_span(root, "data.v"), &value));
    for (; c->key < key; c->key++)
        ck_assert_int_eq(c->m->value[c->key], 0);
    ck_assert_int_eq(c->m->value[key], value);
    c->key++;
    return true;
}

static void check_state(const struct store *s, const struct model *m, uint64_t rv)
{
    struct check c = {m, 0};
    sim_store_walk(s, rv, SPAN(""), check_one, &c);
    for (; c.key < KEYS; c.key++)
        ck_assert_int_eq(m->value[c.key], 0);
}

TEST_LOOP(every_past_state_can_be_walked, 5)
{
    static struct model past[STEPS + 1];
    struct store s;
    struct rng rng;
    rng_init(&rng, (uint64_t)_i);
    sim_store_init(&s, sim_kind_by_resource(SPAN("configmaps")), 1000000, 1 << 30);
    for (uint64_t rv = 1; rv <= STEPS; rv++) {
        past[rv] = past[rv - 1];
        step(&s, &rng, &past[rv], rv);
    }
    for (uint64_t rv = 0; rv <= STEPS; rv++)
        check_state(&s, &past[rv], rv);
    sim_store_fini(&s);
}

TEST(history_is_bounded_by_events_and_by_bytes)
{
    struct store s;
    sim_store_init(&s, sim_kind_by_resource(SPAN("configmaps")), 10, 1 << 30);
    for (uint64_t rv = 1; rv <= 100; rv++)
        sim_store_put(&s, make(1, 1, rv));
    ck_assert_uint_eq(s.next_seq - s.first_seq, 10);
    ck_assert_uint_eq(s.floor_rv, 90);
    ck_assert_uint_eq(sim_store_event(&s, s.first_seq)->rv, 91);
    ck_assert_uint_eq(sim_store_seq_after(&s, 95), s.next_seq - 5);
    sim_store_compact(&s, 100);
    ck_assert_uint_eq(s.next_seq, s.first_seq);
    ck_assert_uint_eq(s.bytes, 0);
    ck_assert_uint_eq(s.floor_rv, 100);
    sim_store_fini(&s);

    sim_store_init(&s, sim_kind_by_resource(SPAN("configmaps")), 1000, 1000);
    for (uint64_t rv = 1; rv <= 100; rv++)
        sim_store_put(&s, make(1, 1, rv));
    ck_assert_uint_le(s.bytes, 1000);
    ck_assert_uint_gt(s.next_seq - s.first_seq, 2);
    ck_assert_uint_lt(s.next_seq - s.first_seq, 20);
    sim_store_fini(&s);
}
