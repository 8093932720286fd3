/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <string.h>

#include "base/mem.h"
#include "lib/sim.h"

/*
 * `kubectl inspect gpushare defrag` against kube-sim. The test plays the controllers, which
 * replace evicted pods, and kube-scheduler, which binds the replacements.
 *
 *     n1  2 cards: a (8 GiB) and b (6 GiB), each of a ReplicaSet of its own
 *     n2  1 card: bare (4 GiB), without a controller
 *     n3  1 card: job (10 GiB), of a Job
 *     big, pending, requests 2 whole cards
 */

static void start_program(struct program *p, const struct sim *s,
                          const char *const *options)
{
    cleanup_free char *config = lib_kubeconfig("config", "http", s->api.port, "", "");
    lib_program(p, "kubectl-inspect-gpushare", ARGV("--kubeconfig", config), options);
}

static char *defrag(const struct sim *s, int status, const char *const *options)
{
    struct program p;
    start_program(&p, s, options);
    return program_end(&p, status);
}

/* `card` -1: pending. `owner`: kind of the controller, or NULL; `spec`: further members of
 * the spec, or "". */
static void add_pod(const struct sim *s, const char *name, const char *limit, int amount,
                    const char *node, int card, const char *owner, const char *of,
                    const char *spec)
{
    cleanup_buf struct buf owners = {0}, bound = {0}, index = {0};
    if (owner)
        buf_printf(&owners,
                   ",\"ownerReferences\":[{\"apiVersion\":\"apps/v1\",\"kind\":\"%s\","
                   "\"name\":\"%s\",\"uid\":\"uid-of-%s\",\"controller\":true}]",
                   owner, of, of);
    if (card >= 0) {
        buf_printf(&bound, "\"nodeName\":\"%s\",", node);
        buf_printf(&index, ",\"annotations\":{\"ALIYUN_COM_GPU_MEM_IDX\":\"%d\"}", card);
    }
    sim_load(s,
             "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"namespace\":"
             "\"default\",\"name\":\"%s\",\"uid\":\"uid-%s\"%s%s},\"spec\":{%s%s"
             "\"containers\":[{\"name\":\"c\",\"image\":\"i\",\"resources\":{\"limits\":{"
             "\"aliyun.com/%s\":\"%d\"}}}]}}",
             name, name, owners.n ? owners.p : "", index.n ? index.p : "",
             bound.n ? bound.p : "", spec, limit, amount);
}

#define ADD_MEMORY(s, name, units, node, card, owner)                                    \
    add_pod(s, name, "gpu-mem", units, node, card, owner, "set-" name, "")

static void start(struct sim *s)
{
    sim_start(s, ARGV("--run-pods"));
    sim_add_node(s, "n1", 2, 16);
    sim_add_node(s, "n2", 1, 16);
    sim_add_node(s, "n3", 1, 16);
    ADD_MEMORY(s, "a", 8, "n1", 0, "ReplicaSet");
    ADD_MEMORY(s, "b", 6, "n1", 1, "ReplicaSet");
    ADD_MEMORY(s, "bare", 4, "n2", 0, NULL);
    ADD_MEMORY(s, "job", 10, "n3", 0, "Job");
    add_pod(s, "big", "gpu-count", 2, NULL, -1, NULL, "", "");
}

static int evictions(const struct sim *s)
{
    return sim_count(s, "create", "pods", "eviction");
}

static bool is_cordoned(const struct sim *s, const char *node)
{
    cleanup_free char *path = xasprintf("/api/v1/nodes/%s", node);
    cleanup_json json_t *j = peer_json(&s->api, "GET", path, NULL);
    return json_is_true(json_object_get(lib_at(j, "spec"), "unschedulable"));
}

START_TEST(a_plan_changes_nothing)
{
    struct sim s;
    start(&s);
    cleanup_free char *plan = defrag(&s, 0, ARGV("defrag", "pod", "default/big"));
    ck_assert_str_eq(
        plan,
        "pod default/big (2 whole cards) fits on node n1 (GPU0,GPU1) after 2 moves\n"
        "MOVE  POD        REQUEST  FROM     TO\n"
        "1     default/a  8 GiB    n1 GPU0  n2 GPU0\n"
        "2     default/b  6 GiB    n1 GPU1  n3 GPU0\n"
        "nothing was changed; --apply evicts these pods one by one\n");
    cleanup_free char *shape = defrag(&s, 0, ARGV("defrag", "--cards=1"));
    ck_assert_contains(shape, "1 whole card fits on node n1 (GPU1) after 1 move\n");
    ck_assert_contains(shape, "1     default/b  6 GiB    n1 GPU1  n3 GPU0\n");
    cleanup_free char *fits = defrag(&s, 0, ARGV("defrag", "--memory=12Gi"));
    ck_assert_str_eq(fits, "12 GiB fits on node n2 (GPU0) already; no pod has to move\n");
    cleanup_free char *none = defrag(&s, 2, ARGV("defrag", "--memory=17Gi"));
    ck_assert_str_eq(none,
                     "17 GiB fits on no node, whatever pods move\n"
                     "stays: pod default/job belongs to a Job, which would lose its "
                     "work (safe-to-evict is not true)\n"
                     "stays: pod default/bare has no controller that would replace "
                     "it\n");
    cleanup_free char *here = defrag(&s, 2, ARGV("defrag", "--memory=13Gi", "--node=n2"));
    ck_assert_str_eq(here, "13 GiB does not fit on node n2, whatever pods move\n"
                           "stays: pod default/bare has no controller that would replace "
                           "it\n");
    ck_assert_int_eq(evictions(&s), 0);
    ck_assert(!is_cordoned(&s, "n1"));
    sim_stop(&s);
}
END_TEST

START_TEST(programs_read_a_plan)
{
    struct sim s;
    start(&s);
    cleanup_free char *text =
        defrag(&s, 0, ARGV("defrag", "pod/big", "-ojson", "-n", "default"));
    json_error_t error;
    cleanup_json json_t *j = json_loads(text, 0, &error);
    ck_assert_msg(j != NULL, "%s: %s", error.text, text);
    ck_assert(json_is_true(lib_at(j, "found")));
    ck_assert(json_is_true(lib_at(j, "shortest")));
    ck_assert_str_eq(lib_str(j, "node"), "n1");
    ck_assert_uint_eq(json_array_size(lib_at(j, "moves")), 2);
    const json_t *first = json_array_get(lib_at(j, "moves"), 0);
    ck_assert_str_eq(lib_str(first, "name"), "a");
    ck_assert_str_eq(lib_str(first, "toNode"), "n2");
    sim_stop(&s);
}
END_TEST

START_TEST(invalid_arguments_are_rejected)
{
    struct sim s;
    start(&s);
    const struct {
        const char *options[5], *want;
    } cases[] = {
        {{"defrag"}, "expected defrag pod [NAMESPACE/]NAME"},
        {{"defrag", "pod", "default/big", "--cards=1"}, "expected defrag pod"},
        {{"defrag", "--model=T4"}, "expected defrag pod"},
        {{"defrag", "--cards=1", "--apply", "-ojson"},
         "cannot be combined with --output"},
        {{"defrag", "pod", "default/none"}, "pod default/none not found"},
        {{"defrag", "pod", "default/a"}, "is already bound to node n1"},
        {{"defrag", "--cards=1", "--node=nope"}, "nodes \"nope\" not found"},
        {{"n1", "--apply"}, "need the command defrag"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_free char *said = defrag(&s, 1, cases[i].options);
        ck_assert_contains(said, cases[i].want);
    }
    sim_stop(&s);
}
END_TEST

START_TEST(each_pod_leaves_after_the_replacement_of_the_former_is_bound)
{
    struct sim s;
    struct program p;
    start(&s);
    start_program(&p, &s, ARGV("defrag", "pod", "default/big", "--apply"));
    ck_assert(program_wait_output(&p, "evicting pod default/a from node n1\n"));
    lib_wait(evictions(&s) == 1);
    ck_assert(is_cordoned(&s, "n1"));
    /* The program has read the pending replacement, and waits. */
    int reads = sim_count(&s, "get", "pods", "");
    add_pod(&s, "a2", "gpu-mem", 8, NULL, -1, "ReplicaSet", "set-a", "");
    lib_wait(sim_count(&s, "get", "pods", "") > reads);
    ck_assert_int_eq(evictions(&s), 1);
    sim_delete_pod(&s, "a2");
    add_pod(&s, "a3", "gpu-mem", 8, "n2", 0, "ReplicaSet", "set-a", "");
    lib_wait(evictions(&s) == 2);
    ck_assert(program_wait_output(&p, "pod default/a3 is bound to node n2\n"
                                      "evicting pod default/b from node n1\n"));
    add_pod(&s, "b2", "gpu-mem", 6, "n3", 0, "ReplicaSet", "set-b", "");
    ck_assert(program_wait_output(&p, "node n1 uncordoned\n"));
    ck_assert(!is_cordoned(&s, "n1"));
    add_pod(&s, "big", "gpu-count", 2, "n1", 0, NULL, "", "");
    cleanup_free char *said = program_end(&p, 0);
    ck_assert_contains(said, "pod default/big is bound to node n1\n");
    ck_assert_int_eq(evictions(&s), 2);
    sim_stop(&s);
}
END_TEST

/* A PodDisruptionBudget answers with 429. */
START_TEST(a_delayed_eviction_is_retried)
{
    struct sim s;
    struct program p;
    start(&s);
    sim_fault(&s, "{\"resource\":\"pods\",\"subresource\":\"eviction\",\"action\":"
                  "\"answer\",\"status\":429,\"retryAfter\":1,\"times\":1}");
    start_program(&p, &s, ARGV("defrag", "--cards=1", "--apply"));
    ck_assert(program_wait_output(&p, "eviction of pod default/b: "));
    ck_assert(program_wait_output(&p, "; retrying\n"));
    lib_wait(evictions(&s) == 2);
    add_pod(&s, "b2", "gpu-mem", 6, "n3", 0, "ReplicaSet", "set-b", "");
    cleanup_free char *said = program_end(&p, 0);
    ck_assert_contains(said, "pod default/b2 is bound to node n3\nnode n1 uncordoned\n");
    sim_stop(&s);
}
END_TEST

START_TEST(without_a_replacement_no_further_pod_leaves)
{
    struct sim s;
    start(&s);
    cleanup_free char *said = defrag(
        &s, 1, ARGV("defrag", "pod", "default/big", "--apply", "--move-timeout=2s"));
    ck_assert_contains(
        said, "replacement of pod default/a is bound: not within --move-timeout 2 s");
    ck_assert_int_eq(evictions(&s), 1);
    ck_assert(!is_cordoned(&s, "n1"));
    sim_stop(&s);
}
END_TEST

/* Another pod takes the place that the second pod needs. */
START_TEST(a_plan_that_no_longer_holds_ends)
{
    struct sim s;
    struct program p;
    start(&s);
    start_program(&p, &s, ARGV("defrag", "pod", "default/big", "--apply"));
    lib_wait(evictions(&s) == 1);
    ADD_MEMORY(&s, "other", 6, "n3", 0, NULL);
    add_pod(&s, "a2", "gpu-mem", 8, "n2", 0, "ReplicaSet", "set-a", "");
    cleanup_free char *said = program_end(&p, 1);
    ck_assert_contains(said, "the other pods on node n1 have no place elsewhere now");
    ck_assert_int_eq(evictions(&s), 1);
    ck_assert(!is_cordoned(&s, "n1"));
    sim_stop(&s);
}
END_TEST

START_TEST(a_signal_uncordons_the_node)
{
    struct sim s;
    struct program p;
    start(&s);
    start_program(&p, &s, ARGV("defrag", "pod", "default/big", "--apply"));
    lib_wait(evictions(&s) == 1);
    program_signal(&p, SIGTERM);
    cleanup_free char *said = program_end(&p, 1);
    ck_assert_contains(said, "interrupted while waiting");
    ck_assert(!is_cordoned(&s, "n1"));
    sim_stop(&s);
}
END_TEST

/* A node that the user cordoned stays cordoned. */
START_TEST(a_cordoned_node_stays_cordoned)
{
    struct sim s;
    struct program p;
    start(&s);
    json_decref(peer_json(&s.api, "PATCH", "/api/v1/nodes/n1",
                          "{\"spec\":{\"unschedulable\":true}}"));
    cleanup_free char *none = defrag(&s, 2, ARGV("defrag", "--cards=1"));
    ck_assert_contains(none, "1 whole card fits on no node");
    start_program(&p, &s, ARGV("defrag", "--cards=1", "--node=n1", "--apply"));
    lib_wait(evictions(&s) == 1);
    add_pod(&s, "b2", "gpu-mem", 6, "n3", 0, "ReplicaSet", "set-b", "");
    cleanup_free char *said = program_end(&p, 0);
    ck_assert_contains(said, "node n1 is cordoned already and stays so\n");
    ck_assert(is_cordoned(&s, "n1"));
    sim_stop(&s);
}
END_TEST

LIB_MAIN("defrag", 120, a_plan_changes_nothing, programs_read_a_plan,
         invalid_arguments_are_rejected,
         each_pod_leaves_after_the_replacement_of_the_former_is_bound,
         a_delayed_eviction_is_retried, without_a_replacement_no_further_pod_leaves,
         a_plan_that_no_longer_holds_ends, a_signal_uncordons_the_node,
         a_cordoned_node_stays_cordoned)
