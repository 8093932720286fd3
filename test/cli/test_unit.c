/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/session.h"

#include "cli/check.h"
#include "cli/lib.h"
#include "cli/show.h"
#include "lib/program.h"

/* The memory unit, where no option sets it. */

#define T4(id)          CARD_OF(id, "Healthy", "T4", "15109", "0") /* 14.75 GiB */
#define ONE_T4(name)    SCV_OF(name, T4("0"))
#define TWO_T4(name)    SCV_OF(name, T4("0") "," T4("1"))
#define UNHEALTHY(name) SCV_OF(name, CARD_OF("0", "Bad", "T4", "15109", "0"))
#define DAMAGED(name)   "{\"metadata\":{\"name\":\"" name "\"},\"status\":7}"
#define NO_CARDS(name)  SCV_OF(name, "")

START_TEST(the_unit_follows_from_capacity_and_cards)
{
    static const struct {
        const char *nodes, *scvs;
        bool sure;
        int64_t mib;
    } cases[] = {
        {NODE("n1", "28", "2"), TWO_T4("n1"), true, 1024},
        {NODE("n1", "30218", "2"), TWO_T4("n1"), true, 1},
        {NODE("n1", "15109", "1"), UNHEALTHY("n1"), true, 1},
        {NODE("n1", "59", "1"), ONE_T4("n1"), true, 256},
        {NODE("n1", "3776", "2"), TWO_T4("n1"), true, 8},
        /* A card that is not reported (yet) does not change the unit. */
        {NODE("n1", "14", "1") "," NODE("n2", "14", "1"), ONE_T4("n1") "," TWO_T4("n2"),
         true, 1024},
        {NODE("n1", "15109", "1") "," NODE("n2", "15109", "1"),
         ONE_T4("n1") "," TWO_T4("n2"), true, 1},
        {NODE("n1", "7", "1"), ONE_T4("n1"), false, 1024}, /* not 2 GiB */
        {NODE("n1", "20", "1"), ONE_T4("n1"), false, 1024},
        {NODE("n1", "59", "1") "," NODE("n2", "29", "1"), ONE_T4("n1") "," ONE_T4("n2"),
         false, 1024},
        {NODE("n1", "14", "1") "," NODE("n2", "15109", "1"),
         ONE_T4("n1") "," ONE_T4("n2"), false, 1},
        /* Scv and capacity differ in the number of cards: not comparable. */
        {NODE("n1", "280", "2"),
         SCV_OF("n1", CARD_OF("0", "Healthy", "H200", "143771", "0")), true, 1024},
        /* Nothing speaks against GiB. */
        {NODE("n1", "0", "0"), TWO_T4("n1"), true, 1024},
        {NODE("n1", "15109", "1"), DAMAGED("n1"), true, 1024},
        {NODE("n1", "15109", "1"), NO_CARDS("n1"), true, 1024},
        {NULL, TWO_T4("n1"), true, 1024},
        {NULL, NULL, true, 1024},
        /* Without an Scv. */
        {NODE("n1", "160", "2"), NULL, true, 1024},
        {NODE("n1", "30218", "2"), NULL, false, 1},
        {NODE("n1", "30218", "2") "," NODE("n2", "15109", "1"), ONE_T4("n2"), true, 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct cluster_state *cs = lib_cluster_state(
            &(struct lists){.nodes = cases[i].nodes, .scvs = cases[i].scvs});
        int64_t mib = 0;
        bool sure = session_unit_of_cluster(cs, &mib);
        ck_assert_msg(sure == cases[i].sure && mib == cases[i].mib, "%zu: %d, %lld MiB",
                      i, sure, (long long)mib);
        cluster_state_free(cs);
    }
}
END_TEST

START_TEST(or_from_the_extenders_view)
{
    static const struct {
        const char *view;
        int64_t mib; /* 0: none */
    } cases[] = {
        {"{\"unit\":\"GiB\"}", 1024},   {"{\"unit\":\"MiB\"}", 1},
        {"{\"unit\":\"256MiB\"}", 256}, {"{\"unit\":\"0MiB\"}", 0},
        {"{\"unit\":\"\"}", 0},         {"{\"unit\":5}", 0},
        {"{\"nodes\":[]}", 0},          {"[]", 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_t *view = json_loads(cases[i].view, 0, NULL);
        int64_t mib = 0;
        ck_assert_ptr_nonnull(view);
        ck_assert_msg(session_unit_of_view(view, &mib) == (cases[i].mib > 0), "%zu", i);
        ck_assert_msg(!cases[i].mib || mib == cases[i].mib, "%zu", i);
        json_decref(view);
    }
    int64_t mib;
    ck_assert(!session_unit_of_view(NULL, &mib));
}
END_TEST

START_TEST(an_assumed_unit_is_reported)
{
    struct cluster_state *cs =
        lib_cluster_state(&(struct lists){.nodes = NODE("n1", "15", "1")});
    struct show show = {.unit_assumed = true};
    cleanup_buf struct buf out = {0}, sure = {0}, json = {0};
    ck_assert(show_write(&out, cs, &show));
    ck_assert_contains(out.p,
                       "! cannot derive the unit of aliyun.com/gpu-mem from the nodes' "
                       "capacity, and the extender is unavailable: assuming GiB (set "
                       "--memory-unit)\n");
    show.format = SHOW_JSON;
    ck_assert(show_write(&json, cs, &show));
    ck_assert_contains(json.p, "\"unitAssumed\": true");
    show = (struct show){0};
    ck_assert(show_write(&sure, cs, &show));
    ck_assert_ptr_null(strchr(sure.p, '!'));
    cluster_state_free(cs);
}
END_TEST

/* Both would compute with different amounts. */
START_TEST(the_extender_has_another_unit)
{
    struct cluster_state *cs = lib_cluster_state(&(struct lists){0});
    cleanup_buf struct buf out = {0};
    json_t *view = json_loads("{\"nodes\":[],\"unit\":\"MiB\"}", 0, NULL);
    ck_assert_uint_eq(check_extender(&out, cs, view, (struct span){0}), 1);
    ck_assert_str_eq(out.p,
                     "one unit of aliyun.com/gpu-mem is 1024 MiB, but 1 MiB for the "
                     "extender\n");
    json_decref(view);
    cluster_state_free(cs);
}
END_TEST

UNIT_MAIN("unit", the_unit_follows_from_capacity_and_cards, or_from_the_extenders_view,
          an_assumed_unit_is_reported, the_extender_has_another_unit)
