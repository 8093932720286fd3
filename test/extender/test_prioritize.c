/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/core_driver_rig.h"

/*
 * filter and prioritize read the ledger in parts, and for the policy scv each part twice.
 * Between two parts the ledger can change; here it does after every possible read. The node
 * of a name then has another place in the ledger, and the place another node.
 *
 * The program is linked with --wrap=core_driver_read_end (test/rules.mk).
 */

enum { UNKNOWN = VERB_LOCK_NODES }; /* candidates beside n1 and n2: two parts */

static struct core_driver_rig rig;
static struct verbs *verbs;
static unsigned reads, changes_after; /* the number of a read; 0: never */

static void watched(const char *type, const char *name, int total_mib)
{
    cleanup_free char *card =
        xasprintf("{\"id\":0,\"health\":\"Healthy\",\"totalMemory\":%d}", total_mib);
    rig_watched(&rig, type, rig_scv(name, card, ""));
}

/* The slot that became free last is used first, so the nodes exchange theirs. */
static void exchange_slots(void)
{
    watched("DELETED", "n1", 8000);
    watched("DELETED", "n2", 16000);
    watched("ADDED", "n1", 8000);
    watched("ADDED", "n2", 16000);
}

void __real_core_driver_read_end(struct core_driver *s);
void __wrap_core_driver_read_end(struct core_driver *s);
void __wrap_core_driver_read_end(struct core_driver *s)
{
    __real_core_driver_read_end(s);
    if (++reads == changes_after)
        exchange_slots();
}

static uint32_t slot_of(const char *name)
{
    const struct ledger *l = core_ledger(core_driver_read(rig.driver));
    const struct ledger_node *node = ledger_node_find(l, span_of(name));
    ck_assert_ptr_nonnull(node);
    uint32_t slot = node->id;
    __real_core_driver_read_end(rig.driver);
    return slot;
}

static json_t *ask(rig_verb verb)
{
    json_t *names = json_pack("[ss]", "n1", "n2");
    for (int i = 0; i < UNKNOWN; i++)
        json_array_append_new(names, json_sprintf("unknown-%d", i));
    return rig_ask(verbs, verb, rig_pod("p", 4000), names);
}

static void begin(int64_t answer, enum score_policy policy)
{
    rig_start(&rig, &(struct ledger_settings){.unit_mib = 1}, false);
    rig_deliver(&rig, json_array());
    watched("ADDED", "n1", 8000);
    watched("ADDED", "n2", 16000);
    verbs = verbs_new(
        &(struct verbs_config){.driver = rig.driver, .answer = answer, .policy = policy});
    reads = changes_after = 0;
}

static void end(void)
{
    verbs_free(verbs);
    rig_stop(&rig);
}

/* Repeats the call, each time with the change after a later read, until it has fewer reads.
 * The better node is n1, or n2 for scv. */
static void check_after_each_read(int64_t answer, enum score_policy policy, rig_verb verb,
                                  void (*check)(const json_t *, size_t))
{
    bool changed = true;
    unsigned times = 0;
    for (; changed; times++) {
        begin(answer, policy);
        uint32_t before = slot_of("n1");
        reads = 0;
        changes_after = times + 1;
        json_t *reply = ask(verb);
        changed = reads >= changes_after;
        changes_after = 0;
        ck_assert_int_eq(slot_of("n1") != before, changed);
        check(reply, policy == SCORE_SCV);
        json_decref(reply);
        end();
    }
    ck_assert_uint_ge(times, policy == SCORE_SCV ? 5 : 3); /* one more: the nodes known */
}

static void answers(const json_t *reply, size_t best)
{
    json_t *names = json_object_get(reply, "NodeNames");
    ck_assert_uint_eq(json_array_size(names), 1);
    ck_assert_str_eq(json_string_value(json_array_get(names, 0)), best ? "n2" : "n1");
}

static void scores(const json_t *reply, size_t best)
{
    json_int_t points[2];
    ck_assert_uint_eq(json_array_size(reply), 2 + UNKNOWN);
    for (size_t i = 0; i < 2; i++)
        points[i] =
            json_integer_value(json_object_get(json_array_get(reply, i), "Score"));
    ck_assert_int_gt(points[best], points[1 - best]);
}

TEST(the_answers_are_those_of_the_names_whatever_changes_meanwhile)
{
    for (int scv = 0; scv < 2; scv++) {
        enum score_policy policy = scv ? SCORE_SCV : SCORE_BINPACK;
        check_after_each_read(1, policy, filter_answer, answers);
        check_after_each_read(VERBS_ALL, policy, prioritize_answer, scores);
    }
}

TEST(a_call_may_have_no_candidates)
{
    for (int64_t answer = VERBS_ALL; answer <= 1; answer++) {
        begin(answer, SCORE_SCV);
        json_t *reply = rig_ask(verbs, filter_answer, rig_pod("p", 4000), json_array());
        ck_assert_uint_eq(json_array_size(json_object_get(reply, "NodeNames")), 0);
        json_decref(reply);
        reply = rig_ask(verbs, prioritize_answer, rig_pod("p", 4000), json_array());
        ck_assert_uint_eq(json_array_size(reply), 0);
        json_decref(reply);
        end();
    }
}
