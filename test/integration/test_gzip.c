/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/sim.h"

/* Lists with gzip compression by the API server. */

static int compressed(const struct sim *s)
{
    cleanup_json json_t *j = peer_json(&s->api, "GET", "/kube-sim/state", NULL);
    ck_assert(json_is_integer(lib_at(j, "compressed")));
    return (int)json_integer_value(lib_at(j, "compressed"));
}

/* The lists of nodes and pods have some hundred KiB; the other lists stay below 128 KiB,
 * the size from which the API server compresses. */
START_TEST(compressed_lists_give_the_same_ledger)
{
    struct sim sim;
    struct extender gzipped, plain;
    sim_start(&sim, ARGV("--generate", "nodes=40,cards=4,pods=5,uuid=1,scvs=1"));
    extender_start(&gzipped, &sim, ARGV(NULL));
    ck_assert_int_eq(compressed(&sim), 2);
    extender_start(&plain, &sim, ARGV("--api-compression=off"));
    ck_assert_int_eq(compressed(&sim), 2);
    cleanup_json json_t *a = peer_json(&gzipped.observers, "GET", "/inspect", NULL);
    cleanup_json json_t *b = peer_json(&plain.observers, "GET", "/inspect", NULL);
    ck_assert_uint_eq(json_array_size(lib_at(a, "nodes")), 40);
    ck_assert(json_equal(lib_at(a, "nodes"), lib_at(b, "nodes")));
    oracle_agrees(&sim.api, &gzipped);
    extender_stop(&plain);
    extender_stop(&gzipped);
    sim_stop(&sim);
}

/* The watches break and the API server has compacted its history: the extender
 * relists. */
START_TEST(relists_are_compressed_too)
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

LIB_MAIN("gzip", 60, compressed_lists_give_the_same_ledger, relists_are_compressed_too)
