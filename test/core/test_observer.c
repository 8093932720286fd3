/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core.h"
#include "lib/program.h"
#include "lib/unit.h"

/* Observer mode: the core lists and watches, and makes no call. */

static struct core *core;
static struct core_outputs outputs;
static int64_t now_ms = 1000;
static uint64_t runs[CORE_KINDS];

/* Steps and records lists; any output but lists and watches fails the test. */
static void step(struct core_input in)
{
    const struct core_time now = {now_ms, now_ms * 1000000};
    core_outputs_reset(&outputs);
    core_step(core, now, &in, &outputs);
    for (size_t i = 0; i < outputs.n; i++) {
        const struct core_output *o = &outputs.items[i];
        ck_assert_msg(o->type == CORE_LIST || o->type == CORE_WATCH, "output %d: %s",
                      (int)o->type, o->text ? o->text : "");
        runs[o->kind] = o->run;
    }
}

START_TEST(an_observer_lists_at_once_and_makes_no_call)
{
    const struct core_settings settings = {
        .ledger = {.unit_mib = 1024}, .node_grace_ms = 40000, .observer = true};
    struct err err;
    core = core_new(&settings);
    step((struct core_input){.type = CORE_TICK});
    for (int kind = 0; kind < CORE_KINDS; kind++)
        ck_assert_msg(runs[kind] != 0, "%s are not listed",
                      core_kind_name((enum core_kind)kind));
    for (int kind = 0; kind < CORE_KINDS; kind++)
        step((struct core_input){.type = CORE_LIST_ENDED,
                                 .kind = (enum core_kind)kind,
                                 .run = runs[kind],
                                 .version = SPAN("7")});
    const struct core_time now = {now_ms, now_ms * 1000000};
    ck_assert_int_eq(core_ready(core, now, &err), 0);
    ck_assert_int_eq(core_may_bind(core, now, &err), -1);
    ck_assert_str_eq(err.msg, "observer mode: binding is disabled");
    /* Neither time nor a refresh makes it touch the Lease. */
    for (int i = 0; i < 20; i++, now_ms += 500) {
        step((struct core_input){.type = i % 2 ? CORE_REFRESH_LEASE : CORE_TICK});
        ck_assert_int_gt(core_due(core), now_ms);
    }
    core_outputs_fini(&outputs);
    core_free(core);
}
END_TEST

/* A pod that a later list lacks is removed without a GET. */
START_TEST(a_pod_that_a_list_lacks_is_removed)
{
    const struct core_settings settings = {.ledger = {.unit_mib = 1024},
                                           .observer = true};
    struct pod_container limit = {.mem = SPAN("2")};
    const struct pod pod = {
        .meta = {.ns = SPAN("ns"), .name = SPAN("a"), .uid = SPAN("u")},
        .node = SPAN("n1"),
        .containers = &limit,
        .n_containers = 1,
        .idx = SPAN("0"),
    };
    core = core_new(&settings);
    step((struct core_input){.type = CORE_TICK});
    step((struct core_input){
        .type = CORE_OBJECT, .kind = CORE_PODS, .run = runs[CORE_PODS], .pod = &pod});
    step((struct core_input){
        .type = CORE_LIST_ENDED, .kind = CORE_PODS, .run = runs[CORE_PODS]});
    ck_assert_ptr_nonnull(ledger_pod_find(core_ledger(core), SPAN("u")));
    struct err gone = {.code = ERR_GONE};
    now_ms += 10;
    struct core_input ended = {.type = CORE_WATCH_ENDED,
                               .kind = CORE_PODS,
                               .run = runs[CORE_PODS],
                               .err = &gone,
                               .retry_after_ms = -1};
    const struct core_time now = {now_ms, now_ms * 1000000};
    core_outputs_reset(&outputs);
    core_step(core, now, &ended, &outputs);
    for (size_t i = 0; i < outputs.n; i++)
        if (outputs.items[i].type == CORE_LIST)
            runs[CORE_PODS] = outputs.items[i].run;
    step((struct core_input){
        .type = CORE_LIST_ENDED, .kind = CORE_PODS, .run = runs[CORE_PODS]});
    ck_assert_ptr_null(ledger_pod_find(core_ledger(core), SPAN("u")));
    core_outputs_fini(&outputs);
    core_free(core);
}
END_TEST

UNIT_MAIN("observer", an_observer_lists_at_once_and_makes_no_call,
          a_pod_that_a_list_lacks_is_removed)
