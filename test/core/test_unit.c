/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rig.h"
#include "domain/diagnosis.h"

/* The unit of gpu-mem changes under bound pods: each promise counts in the unit in which it was
 * made. Node n1 has one card of 8 GiB. */

enum { CARD = 8192, GIB = 1024 };

static void start(int unit_mib)
{
    rig_new((struct core_settings){.ledger = {.unit_mib = unit_mib}});
    rig_lead();
    rig_cards("n1", 1, CARD);
    rig_reset();
}

/* A bound pod; `more`: annotations, each after a comma. */
static void see_bound(const char *uid, int units, const char *more)
{
    rig_see(rig_json(
        "{'metadata':{'namespace':'default','name':'pod-%s','uid':'%s','annotations':{"
        "'ALIYUN_COM_GPU_MEM_IDX':'0'%s}},'spec':{'nodeName':'n1','containers':[{'name':"
        "'c','resources':{'limits':{'aliyun.com/gpu-mem':'%d'}}}]}}",
        uid, uid, more, units));
}

static int64_t promised(void)
{
    return rig_ledger_node("n1")->cards[0].promised_mib;
}

static int64_t other_units(void)
{
    int64_t drifts[DRIFTS] = {0};
    diagnosis_count(core_ledger(r.core), rig_ledger_node("n1"), drifts);
    return drifts[DRIFT_MEMORY_UNIT];
}

#define DEV(n)  ",'ALIYUN_COM_GPU_MEM_DEV':'" n "'"
#define UNIT(n) ",'gpushare/memory-unit':'" n "'"

TEST(a_full_card_stays_full_when_the_unit_becomes_mib)
{
    static const char *const made_as[] = {
        DEV("8") UNIT("1024"), UNIT("1024"), DEV("8"), "", DEV("7"),
        DEV("x") UNIT("1Gi")};
    array_items(made, made_as) {
        start(1);
        see_bound("a", 6, *made);
        see_bound("b", 2, *made);
        ck_assert_int_eq(promised(), CARD);
        ck_assert_int_eq(other_units(), 2);
        rig_pending("c", 4096);
        rig_bind(1, "c", "n1");
        ck_assert_int_eq(rig_count(CORE_CALL_BIND), 0);
        ck_assert_int_eq(rig_take(CORE_REPLY).code, ERR_CONFLICT);
    }
}

TEST(a_promise_in_the_own_unit_is_no_difference)
{
    start(1);
    see_bound("a", 4096, DEV("8192"));
    see_bound("b", 1024, UNIT("1"));
    ck_assert_int_eq(promised(), 5120);
    ck_assert_int_eq(other_units(), 0);
    /* What this process binds has its unit, also before the watch shows it. */
    rig_pending("c", 2048);
    rig_bind(1, "c", "n1");
    struct core_output o = rig_take(CORE_CALL_BIND);
    ck_noted(o, KEY_MEMORY_UNIT, "1");
    ck_assert_int_eq(promised(), 7168);
    rig_answer(o.call, ERR_NONE);
    ck_assert_int_eq(promised(), 7168);
    ck_assert_int_eq(other_units(), 0);
}

TEST(a_promise_in_mib_counts_in_mib_when_the_unit_becomes_gib)
{
    start(GIB);
    see_bound("a", 4096, DEV("8192"));
    see_bound("b", 2048, UNIT("1"));
    ck_assert_int_eq(promised(), 6144);
    ck_assert_int_eq(other_units(), 2);
}

/* Another release of the driver keeps some MiB more. */
TEST(a_card_whose_size_changed_a_little_implies_the_same_unit)
{
    start(1);
    see_bound("a", 4096, DEV("8190"));
    ck_assert_int_eq(promised(), 4096);
    ck_assert_int_eq(other_units(), 0);
}

TEST(a_forged_unit_makes_no_promise_smaller)
{
    start(GIB);
    see_bound("a", 6, DEV("8192"));
    ck_assert_int_eq(promised(), 6 * GIB);
    start(GIB);
    see_bound("a", 6, DEV("8192") UNIT("1"));
    ck_assert_int_eq(promised(), 6 * GIB);
}

TEST(a_forged_unit_takes_no_more_than_the_card)
{
    start(GIB);
    see_bound("a", 1, UNIT("1073741824"));
    ck_assert_int_eq(promised(), CARD);
    start(GIB);
    see_bound("a", 1, DEV("1"));
    ck_assert_int_eq(promised(), GIB);
}

TEST(the_card_may_become_known_after_the_pod)
{
    rig_start();
    rig_lead();
    see_bound("a", 6, DEV("8"));
    see_bound("b", 1000, DEV("8192"));
    rig_cards("n1", 1, CARD);
    ck_assert_int_eq(promised(), 6 * GIB + 1000);
    ck_assert_int_eq(other_units(), 1);
}

TEST(a_start_says_that_promises_have_another_unit)
{
    rig_start();
    rig_acquire();
    rig_cards("n1", 1, CARD);
    see_bound("a", 6, UNIT("1024"));
    rig_lists_end();
    rig_tick(0);
    ck_assert_contains(
        rig_log(), "1 promise is not in units of 1 MiB (--memory-unit), as that of pod "
                   "default/pod-a, in units of 1024 MiB");
    rig_reset();
    rig_tick(1000);
    ck_assert_str_eq(rig_log(), "");
}
