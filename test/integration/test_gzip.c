/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/sim.h"

/* Lists that the API server compresses. */

static int compressed(const struct sim *s)
{
    cleanup_json json_t *j = peer_json(&s->api, "GET", "/kube-sim/state", NULL);
    ck_assert(json_is_integer(lib_at(j, "compressed")));
    return (int)json_integer_value(lib_at(j, "compressed"));
}

/* Nodes and pods of some hundred KiB each; Scvs and the others stay below 128 KiB. */
START_TEST(a_compressed_list_makes_the_same_ledger)
{
    struct sim sim;
    struct extender packed, plain;
    sim_start(&sim, ARGV("--generate", "nodes=40,cards=4,pods=5,uuid=1,scvs=1"));
    extender_start(&packed, &sim, ARGV(NULL));
    ck_assert_int_eq(compressed(&sim), 2);
    extender_start(&plain, &sim, ARGV("--api-compression=off"));
    ck_assert_int_eq(compressed(&sim), 2);
    cleanup_json json_t *a = peer_json(&packed.observers, "GET", "/inspect", NULL);
    cleanup_json json_t *b = peer_json(&plain.observers, "GET", "/inspect", NULL);
    ck_assert_uint_eq(json_array_size(lib_at(a, "nodes")), 40);
    ck_assert(json_equal(lib_at(a, "nodes"), lib_at(b, "nodes")));
    oracle_agrees(&sim.api, &packed);
    extender_stop(&plain);
    extender_stop(&packed);
    sim_stop(&sim);
}

/* After a watch that broke and a history that is gone, the lists are read anew. */
START_TEST(what_it_missed_comes_compressed_too)
{
    struct sim sim;
    struct extender e;
    sim_start(&sim, ARGV("--generate", "nodes=40,cards=4,pods=5,uuid=1,scvs=1"));
    extender_start(&e, &sim, ARGV(NULL));
    int before = compressed(&sim);
    sim_watches(&sim, "stall", NULL);
    sim_add_node(&sim, "late", 2, 16);
    json_decref(peer_json(&sim.api, "POST", "/kube-sim/compact", NULL));
    sim_watches(&sim, "cut", NULL);
    sim_watches(&sim, "release", NULL);
    lib_wait(extender_filter(&e, 8, "late", NULL) == FITS);
    lib_wait(compressed(&sim) >= before + 2);
    oracle_agrees(&sim.api, &e);
    extender_stop(&e);
    sim_stop(&sim);
}

LIB_MAIN("gzip", 60, a_compressed_list_makes_the_same_ledger,
         what_it_missed_comes_compressed_too)
