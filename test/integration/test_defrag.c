/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "integration/suite.h"

/*
 * `kubectl inspect gpushare defrag` against kube-sim. The test plays the controllers, which
 * replace evicted pods, and kube-scheduler, which binds the replacements.
 *
 *     n1  2 cards: a (8 GiB) and b (6 GiB), each of a ReplicaSet of its own
 *     n2  1 card: bare (4 GiB), without a controller
 *     n3  1 card: job (10 GiB), of a Job
 *     big, pending, requests 2 whole cards
 */

static void start_program(struct program *p, const char *const *options)
{
    lib_program(p, "kubectl-inspect-gpushare", ARGV("--kubeconfig", sim_kubeconfig(&sim)),
                options);
}

/* Its output, kept. */
static char *defrag(int status, const char *const *options)
{
    struct program p;
    start_program(&p, options);
    return lib_keep(program_end(&p, status), free);
}

/* Waits until the program ends; its output contains the text. */
static void expect_end(struct program *p, int status, const char *text)
{
    cleanup_free char *said = program_end(p, status);
    ck_assert_contains(said, text);
}

/* `node` NULL: pending. `owner`: the kind of the controller, or NULL; `of`: its name. */
static void add_pod(const char *name, const char *limit, int amount, const char *node,
                    int card, const char *owner, const char *of)
{
    sim_load(&sim,
             "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"namespace\":"
             "\"default\",\"name\":\"%s\",\"uid\":\"uid-%s\"%s%s},\"spec\":{%s"
             "\"containers\":[{\"name\":\"c\",\"image\":\"i\",\"resources\":{\"limits\":{"
             "\"aliyun.com/%s\":\"%d\"}}}]}}",
             name, name,
             owner ? lib_fmt(",\"ownerReferences\":[{\"apiVersion\":\"apps/v1\",\"kind\":"
                             "\"%s\",\"name\":\"%s\",\"uid\":\"uid-of-%s\","
                             "\"controller\":true}]",
                             owner, of, of)
                   : "",
             node ? lib_fmt(",\"annotations\":{\"ALIYUN_COM_GPU_MEM_IDX\":\"%d\"}", card)
                  : "",
             node ? lib_fmt("\"nodeName\":\"%s\",", node) : "", limit, amount);
}

/* A pod of the ReplicaSet `of`. */
static void add_replica(const char *name, int units, const char *node, int card,
                        const char *of)
{
    add_pod(name, "gpu-mem", units, node, card, "ReplicaSet", of);
}

static void start(void)
{
    sim_add_node(&sim, "n1", 2, 16);
    sim_add_node(&sim, "n2", 1, 16);
    sim_add_node(&sim, "n3", 1, 16);
    add_replica("a", 8, "n1", 0, "set-a");
    add_replica("b", 6, "n1", 1, "set-b");
    add_pod("bare", "gpu-mem", 4, "n2", 0, NULL, "");
    add_pod("job", "gpu-mem", 10, "n3", 0, "Job", "job");
    add_pod("big", "gpu-count", 2, NULL, 0, NULL, "");
}

static int evictions(void)
{
    return sim_count(&sim, "create", "pods", "eviction");
}

static bool is_cordoned(void)
{
    return json_is_true(
        lib_at(peer_get(&sim.api, "/api/v1/nodes/n1"), "spec.unschedulable"));
}

TEST(a_plan_changes_nothing)
{
    start();
    ck_assert_str_eq(
        defrag(0, ARGV("defrag", "pod", "default/big")),
        "pod default/big (2 whole cards) fits on node n1 (GPU0,GPU1) after 2 moves\n"
        "MOVE  POD        REQUEST  FROM     TO\n"
        "1     default/a  8 GiB    n1 GPU0  n2 GPU0\n"
        "2     default/b  6 GiB    n1 GPU1  n3 GPU0\n"
        "nothing was changed; --apply evicts these pods one by one\n");
    const char *shape = defrag(0, ARGV("defrag", "--cards=1"));
    ck_assert_contains(shape, "1 whole card fits on node n1 (GPU1) after 1 move\n");
    ck_assert_contains(shape, "1     default/b  6 GiB    n1 GPU1  n3 GPU0\n");
    ck_assert_contains(defrag(0, ARGV("defrag", "--cards=2")),
                       "2 whole cards fit on node n1 (GPU0,GPU1) after 2 moves\n");
    ck_assert_contains(defrag(2, ARGV("defrag", "--cards=3")),
                       "3 whole cards fit on no node, whatever pods move\n");
    ck_assert_contains(defrag(2, ARGV("defrag", "--cards=3", "--node=n1")),
                       "3 whole cards do not fit on node n1, whatever pods move\n");
    ck_assert_str_eq(defrag(0, ARGV("defrag", "--memory=12Gi")),
                     "12 GiB fits on node n2 (GPU0) already; no pod has to move\n");
    ck_assert_str_eq(defrag(2, ARGV("defrag", "--memory=17Gi")),
                     "17 GiB fits on no node, whatever pods move\n"
                     "stays: pod default/job belongs to a Job, which would lose its "
                     "work (safe-to-evict is not true)\n"
                     "stays: pod default/bare has no controller that would replace "
                     "it\n");
    ck_assert_str_eq(defrag(2, ARGV("defrag", "--memory=13Gi", "--node=n2")),
                     "13 GiB does not fit on node n2, whatever pods move\n"
                     "stays: pod default/bare has no controller that would replace "
                     "it\n");
    ck_assert_int_eq(evictions(), 0);
    ck_assert(!is_cordoned());
}

TEST(programs_read_a_plan)
{
    start();
    const char *text = defrag(0, ARGV("defrag", "pod/big", "-ojson", "-n", "default"));
    const json_t *j = lib_parse(text, strlen(text));
    ck_assert(json_is_true(lib_at(j, "found")));
    ck_assert(json_is_true(lib_at(j, "shortest")));
    ck_assert_at(j, "node", "n1");
    ck_assert_uint_eq(lib_size(j, "moves"), 2);
    ck_assert_at(j, "moves.0.name", "a");
    ck_assert_at(j, "moves.0.toNode", "n2");
}

TEST(invalid_arguments_are_rejected)
{
    start();
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
        {{"defrag", "--memory", "8"}, "--memory: \"8\" is not within 1048576.."},
        {{"defrag", "--memory=8Ki"}, " bytes (8 GiB are 8Gi)"},
    };
    array_items(c, cases)
        ck_assert_contains(defrag(1, c->options), c->want);
}

TEST(each_pod_leaves_after_the_replacement_of_the_former_is_bound)
{
    struct program p;
    start();
    start_program(&p, ARGV("defrag", "pod", "default/big", "--apply"));
    ck_assert(program_wait_output(&p, "evicting pod default/a from node n1\n"));
    lib_wait(evictions() == 1);
    ck_assert(is_cordoned());
    /* The program has read the pending replacement, and waits. */
    int reads = sim_count(&sim, "get", "pods", "");
    add_replica("a2", 8, NULL, 0, "set-a");
    lib_wait(sim_count(&sim, "get", "pods", "") > reads);
    ck_assert_int_eq(evictions(), 1);
    sim_delete_pod(&sim, "a2");
    add_replica("a3", 8, "n2", 0, "set-a");
    lib_wait(evictions() == 2);
    ck_assert(program_wait_output(&p, "pod default/a3 is bound to node n2\n"
                                      "evicting pod default/b from node n1\n"));
    add_replica("b2", 6, "n3", 0, "set-b");
    ck_assert(program_wait_output(&p, "node n1 uncordoned\n"));
    ck_assert(!is_cordoned());
    add_pod("big", "gpu-count", 2, "n1", 0, NULL, "");
    expect_end(&p, 0, "pod default/big is bound to node n1\n");
    ck_assert_int_eq(evictions(), 2);
}

/* A PodDisruptionBudget answers with 429. */
TEST(a_delayed_eviction_is_retried)
{
    struct program p;
    start();
    sim_fault(&sim, "{\"resource\":\"pods\",\"subresource\":\"eviction\",\"action\":"
                    "\"answer\",\"status\":429,\"retryAfter\":1,\"times\":1}");
    start_program(&p, ARGV("defrag", "--cards=1", "--apply"));
    ck_assert(program_wait_output(&p, "eviction of pod default/b: "));
    ck_assert(program_wait_output(&p, "; retrying\n"));
    lib_wait(evictions() == 2);
    add_replica("b2", 6, "n3", 0, "set-b");
    expect_end(&p, 0, "pod default/b2 is bound to node n3\nnode n1 uncordoned\n");
}

TEST(without_a_replacement_no_further_pod_leaves)
{
    start();
    ck_assert_contains(
        defrag(1, ARGV("defrag", "pod", "default/big", "--apply", "--move-timeout=2s")),
        "replacement of pod default/a is bound: not within --move-timeout 2 s");
    ck_assert_int_eq(evictions(), 1);
    ck_assert(!is_cordoned());
}

/* Another pod takes the place that the second pod needs. */
TEST(a_plan_that_no_longer_holds_ends)
{
    struct program p;
    start();
    start_program(&p, ARGV("defrag", "pod", "default/big", "--apply"));
    lib_wait(evictions() == 1);
    add_pod("other", "gpu-mem", 6, "n3", 0, NULL, "");
    add_replica("a2", 8, "n2", 0, "set-a");
    expect_end(&p, 1, "the other pods on node n1 have no place elsewhere now");
    ck_assert_int_eq(evictions(), 1);
    ck_assert(!is_cordoned());
}

TEST(a_signal_uncordons_the_node)
{
    struct program p;
    start();
    start_program(&p, ARGV("defrag", "pod", "default/big", "--apply"));
    lib_wait(evictions() == 1);
    program_signal(&p, SIGTERM);
    expect_end(&p, 1, "interrupted while waiting");
    ck_assert(!is_cordoned());
}

/* A node that the user cordoned stays cordoned. */
TEST(a_cordoned_node_stays_cordoned)
{
    struct program p;
    start();
    peer_do(&sim.api, "PATCH", "/api/v1/nodes/n1", "{\"spec\":{\"unschedulable\":true}}");
    ck_assert_contains(defrag(2, ARGV("defrag", "--cards=1")),
                       "1 whole card fits on no node");
    start_program(&p, ARGV("defrag", "--cards=1", "--node=n1", "--apply"));
    lib_wait(evictions() == 1);
    add_replica("b2", 6, "n3", 0, "set-b");
    expect_end(&p, 0, "node n1 is cordoned already and stays so\n");
    ck_assert(is_cordoned());
}

SUITE_MAIN(120, ARGV("--run-pods"))
