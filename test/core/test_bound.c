/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rig.h"

/*
 * A bound pod never counts for less than its raw limits, nor for less than its Binding
 * promised, whatever its labels and annotations are now. Each case is a restart: the core
 * first sees the pod when it is already bound.
 */

enum { CARD = 16276 };

static void start(int cards)
{
    rig_new((struct core_settings){.ledger = {.unit_mib = 1024}});
    rig_lead();
    rig_cards("n1", cards, CARD);
    rig_reset();
}

/* `meta`, `spec`: additional members of metadata and spec. */
static struct pod pod_of(const char *uid, const char *meta, const char *spec)
{
    return rig_json("{'metadata':{'namespace':'default','name':"
                    "'pod-%s','uid':'%s'%s},'spec':{%s}}",
                    uid, uid, meta, spec);
}

static const struct card *card(int i)
{
    return &rig_ledger_node("n1")->cards[i];
}

#define ON_NODE      "'nodeName':'n1',"
#define LIMITS(text) "'containers':[{'name':'c','resources':{'limits':{" text "}}}]"
#define MEM(n)       "'aliyun.com/gpu-mem':'" n "'"
#define INITS(text)  ",'initContainers':[" text "]"
#define INIT(n)      "{'name':'i','resources':{'limits':{" MEM(n) "}}}"
#define SIDECAR(n)                                                                       \
    "{'name':'s','restartPolicy':'Always','resources':{'limits':{" MEM(n) "}}}"
/* The five annotations of the Go extender, and more. */
#define GO(units, more)                                                                  \
    ",'annotations':{'ALIYUN_COM_GPU_MEM_IDX':'0','ALIYUN_COM_GPU_MEM_DEV':'15',"        \
    "'ALIYUN_COM_GPU_MEM_POD':'" units "','ALIYUN_COM_GPU_MEM_ASSIGNED':'true',"         \
    "'ALIYUN_COM_GPU_MEM_ASSUME_TIME':'1'" more "}"
#define BAD_LABEL ",'labels':{'scv/memory':'8Gi'}"

static const struct {
    const char *what, *meta, *spec;
    int64_t promised_mib; /* on card 0 */
} cases[] = {
    {"valid", GO("8", ""), LIMITS(MEM("8")), 8192},
    {"units that cannot be split", ",'labels':{'aliyun.com/gpu-count':'3'}" GO("8", ""),
     LIMITS(MEM("8")), 8192},
    {"malformed scv/memory", BAD_LABEL GO("8", ""), LIMITS(MEM("8")), 8192},
    {"unknown placement", GO("8", ",'gpushare/placement':'best'"), LIMITS(MEM("8")),
     8192},
    {"empty model list", GO("8", ",'nvidia-gpu-scheduler/gpu.model':' , '"),
     LIMITS(MEM("8")), 8192},
    {"nvidia.com/gpu beside", GO("8", ""), LIMITS(MEM("8") ",'nvidia.com/gpu':'1'"),
     8192},
    {"fractional gpu-count", GO("8", ",'aliyun.com/gpu-count':'1.5'"), LIMITS(MEM("8")),
     8192},
    {"annotations say less", BAD_LABEL GO("1", ""), LIMITS(MEM("8")), 8192},
    {"gpu-count beside gpu-mem", GO("8", ""),
     LIMITS(MEM("8") ",'aliyun.com/gpu-count':'1'"), CARD},
    {"whole card", BAD_LABEL GO("15", ""), LIMITS("'aliyun.com/gpu-count':'1'"), CARD},
    {"several containers", BAD_LABEL GO("8", ""),
     "'containers':[{'resources':{'limits':{" MEM("2") "}}},{'resources':{'limits':{" MEM(
         "3") "}}},{}]",
     5120},
    {"init container", BAD_LABEL GO("5", ""), LIMITS(MEM("5")) INITS(INIT("8")), 8192},
    {"init container beside a sidecar", BAD_LABEL GO("5", ""),
     LIMITS(MEM("5")) INITS(SIDECAR("3") "," INIT("8") "," SIDECAR("1")), 11264},
    {"sidecars stay", BAD_LABEL GO("5", ""),
     LIMITS(MEM("5")) INITS(SIDECAR("3") "," SIDECAR("1")), 9216},
    {"a fraction is rounded up", GO("8", ""), LIMITS(MEM("7500m")), 8192},
    {"pod-level resources do not count", BAD_LABEL GO("8", ""),
     LIMITS(MEM("8")) ",'resources':{'limits':{'cpu':'64','memory':'64Gi'}}", 8192},
};

TEST(a_bound_pod_counts_for_its_raw_limits)
{
    array_items(c, cases) {
        start(1);
        cleanup_free char *spec = xasprintf(ON_NODE "%s", c->spec);
        rig_see(pod_of("a", c->meta, spec));
        ck_assert_msg(card(0)->promised_mib == c->promised_mib, "%s: %lld MiB", c->what,
                      (long long)card(0)->promised_mib);
        /* The next pod requests one unit more than is free. */
        int64_t left = (CARD - c->promised_mib) / 1024;
        cleanup_free char *next =
            xasprintf(LIMITS("'aliyun.com/gpu-mem':'%lld'"), (long long)left + 1);
        rig_see(pod_of("b", "", next));
        rig_bind(1, "b", "n1");
        ck_assert_msg(rig_count(CORE_CALL_BIND) == 0, "%s: bound", c->what);
    }
}

TEST(raw_limits_saturate)
{
    static const char *const huge[] = {"9223372036854775807", "9E", "1e30", "-8", "x"};
    array_items(h, huge) {
        start(2);
        cleanup_free char *spec = xasprintf(
            ON_NODE "'containers':[{'resources':{'limits':{" MEM(
                "%s") "}}},"
                      "{'resources':{'limits':{" MEM("8E") "}}}]" INITS(INIT("8E")),
            *h);
        rig_see(pod_of("a", GO("8", ""), spec));
        ck_assert_int_eq(card(0)->free_mib, 0);
        ck_assert_int_gt(card(0)->promised_mib, CARD);
        ck_assert(card(0)->overcommitted);
        ck_assert_int_eq(card(1)->free_mib, CARD);
    }
}

TEST(an_invalid_pod_without_a_card_counts_where_there_is_one_card)
{
    start(1);
    rig_see(pod_of("a", BAD_LABEL, ON_NODE LIMITS(MEM("8"))));
    ck_assert_int_eq(card(0)->promised_mib, 8192);
    rig_see(pod_of("b", BAD_LABEL ",'annotations':{'ALIYUN_COM_GPU_MEM_IDX':'x'}",
                   ON_NODE LIMITS(MEM("2"))));
    ck_assert_int_eq(card(0)->promised_mib, 10240);
}

TEST(an_invalid_pod_of_nvidia_com_gpu_claims_its_devices)
{
    start(2);
    rig_see(pod_of("a", BAD_LABEL, ON_NODE LIMITS("'nvidia.com/gpu':'2'")));
    ck_assert_int_eq(card(0)->state, CARD_HELD);
    ck_assert_int_eq(card(1)->state, CARD_HELD);
    start(2);
    rig_see(pod_of("a", GO("8", ""), ON_NODE LIMITS(MEM("8") ",'nvidia.com/gpu':'2'")));
    ck_assert_int_eq(card(0)->promised_mib, 8192);
    ck_assert_int_eq(card(1)->state, CARD_HELD);
}

/* Binds a pod that requests by `labels` only, restarts with the labels `then`, and returns
 * what counts on card 0. */
static int64_t after_an_edit(const char *labels, const char *then, bool no_record)
{
    start(1);
    rig_see(pod_of("a", labels, LIMITS("")));
    rig_bind(1, "a", "n1");
    struct core_output o = rig_take(CORE_CALL_BIND);
    cleanup_free char *notes = xstrdup(o.annotations);
    char *key = strstr(notes, "gpushare/card-memory");
    ck_assert_ptr_nonnull(key);
    if (no_record)
        memcpy(key, "x", 1);
    cleanup_free char *meta = xasprintf("%s,'annotations':%s", then, notes);
    start(1);
    rig_see(pod_of("a", meta, ON_NODE LIMITS("")));
    int64_t promised = card(0)->promised_mib;
    return promised;
}

#define NUMBER    ",'labels':{'scv/number':'1'}"
#define MEMORY(n) ",'labels':{'scv/memory':'" n "'}"

TEST(a_promise_by_labels_outlives_the_labels)
{
    ck_assert_int_eq(after_an_edit(NUMBER, NUMBER, false), CARD);
    ck_assert_int_eq(after_an_edit(NUMBER, "", false), CARD);
    ck_assert_int_eq(after_an_edit(NUMBER, ",'labels':{'scv/number':'x'}", false), CARD);
    ck_assert_int_eq(after_an_edit(NUMBER, MEMORY("100"), false), CARD);
    ck_assert_int_eq(after_an_edit(NUMBER, MEMORY("15000"), false), CARD);
    ck_assert_int_eq(after_an_edit(MEMORY("5033"), MEMORY("5033"), false), 5033);
    ck_assert_int_eq(after_an_edit(MEMORY("5033"), "", false), 5033);
    ck_assert_int_eq(after_an_edit(MEMORY("5033"), MEMORY("5000"), false), 5033);
    ck_assert_int_eq(after_an_edit(MEMORY("5033"), NUMBER, false), CARD);
    /* Without gpushare/card-memory there is no record, and the labels decide. */
    ck_assert_int_eq(after_an_edit(NUMBER, NUMBER, true), CARD);
    ck_assert_int_eq(after_an_edit(MEMORY("5033"), MEMORY("5033"), true), 5033);
    ck_assert_int_eq(after_an_edit(NUMBER, "", true), 0);
    ck_assert_int_eq(after_an_edit(NUMBER, MEMORY("5033"), true), 5033);
}

TEST(a_copied_card_memory_means_nothing_beside_limits)
{
    start(1);
    rig_see(pod_of("a", GO("2", ",'gpushare/card-memory':'whole'"),
                   ON_NODE LIMITS(MEM("2"))));
    ck_assert_int_eq(card(0)->promised_mib, 2048);
}

/* The pod asks by its label. */
#define ask_for(memory) rig_see(pod_of("a", MEMORY(memory), LIMITS("")))

/* A Binding of 1000 MiB without outcome. */
static struct core_output binding(void)
{
    start(1);
    ask_for("1000");
    rig_bind(1, "a", "n1");
    return rig_take(CORE_CALL_BIND);
}

static void not_sent(uint64_t call)
{
    rig_not_sent(call);
    rig_reset();
}

TEST(an_edit_that_is_reverted_during_a_bind_changes_nothing)
{
    struct core_output o = binding();
    ask_for("9000");
    ask_for("1000");
    not_sent(o.call);
    rig_bind(2, "a", "n1");
    rig_take(CORE_CALL_BIND);
    ck_assert_int_eq(card(0)->promised_mib, 1000);
}

TEST(labels_removed_during_a_failed_bind_leave_no_request)
{
    struct core_output o = binding();
    rig_see(pod_of("a", "", LIMITS("")));
    not_sent(o.call);
    ck_total(pending, 0);
    ck_assert_ptr_null(ledger_first_pod(core_ledger(r.core)));
}

TEST(a_nomination_during_a_failed_bind_is_applied)
{
    struct core_output o = binding();
    struct pod pod = pod_of("a", MEMORY("1000"), LIMITS(""));
    pod.nominated_node = SPAN("n1");
    rig_see(pod);
    not_sent(o.call);
    ck_assert(rig_ledger_node("n1")->has_nominated);
}

/* The device plugin refuses a pod that was bound past the extender. */
TEST(a_pod_without_a_card_overcommits_none_before_it_runs)
{
    static const char asks[] = ON_NODE LIMITS(MEM("10")),
                      runs[] = ON_NODE LIMITS(MEM("10")) "},'status':{'phase':'Running'";
    start(2);
    rig_see(pod_of("a", GO("10", ""), asks));
    rig_see(pod_of("x", "", asks));
    rig_see(pod_of("y", "", asks));
    ck_assert_int_eq(card(0)->promised_mib, 30 * 1024);
    ck_total(overcommitted, 0);
    rig_see(pod_of("x", "", runs));
    ck_total(overcommitted, 1);
    rig_see(pod_of("y", "", runs));
    ck_total(overcommitted, 2);
    ck_assert(!card(0)->free_mib && !card(1)->free_mib);
    /* Those with a card count as before. */
    start(1);
    rig_see(pod_of("a", GO("10", ""), asks));
    rig_see(pod_of("b", GO("10", ""), asks));
    ck_total(overcommitted, 1);
}

/* Another replica binds the pod while the Binding of this one has no outcome: its
 * annotations and the labels at that time are the promise. */
static void bound_by_another_replica(const char *meta)
{
    binding();
    rig_see(pod_of("a", meta, ON_NODE LIMITS("")));
}

#define IDX(units, memory)                                                               \
    "'annotations':{'ALIYUN_COM_GPU_MEM_IDX':'0','ALIYUN_COM_GPU_MEM_DEV':'15',"         \
    "'ALIYUN_COM_GPU_MEM_POD':'" units "','ALIYUN_COM_GPU_MEM_ASSIGNED':'false',"        \
    "'ALIYUN_COM_GPU_MEM_ASSUME_TIME':'1','gpushare/card-uuid':'',"                      \
    "'scheduler.framework.gpushare.allocation':'{\\\"0\\\":{\\\"0\\\":" units            \
    "}}','gpushare/card-memory':'" memory " a'}"

TEST(the_promise_of_another_replica_replaces_the_reservation)
{
    bound_by_another_replica(MEMORY("1020") "," IDX("1", "1020"));
    ck_assert_int_eq(card(0)->promised_mib, 1020);
    bound_by_another_replica(NUMBER "," IDX("15", "whole"));
    ck_assert_int_eq(card(0)->promised_mib, CARD);
    ck_assert(card(0)->whole);
    bound_by_another_replica("," IDX("15", "whole"));
    ck_assert_int_eq(card(0)->promised_mib, CARD);
}
