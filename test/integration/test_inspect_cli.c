/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "lib/sim.h"

/*
 * kubectl-inspect-gpushare as users run it, against kube-sim and the real extender. Its
 * output for each kind of object is tested in test/cli.
 */

static char *kubeconfig(const struct sim *s)
{
    return lib_kubeconfig("config", "http", s->api.port, "", "");
}

static void start(struct program *p, const struct sim *s, const char *const *options)
{
    cleanup_free char *config = kubeconfig(s);
    lib_program(p, "kubectl-inspect-gpushare", ARGV("--kubeconfig", config), options);
}

/* Runs the program to its end; returns its output, new. */
static char *inspect(const struct sim *s, int status, const char *const *options)
{
    struct program p;
    start(&p, s, options);
    return program_end(&p, status);
}

static const char idx_0[] = "{\"ALIYUN_COM_GPU_MEM_IDX\":\"0\"}";

START_TEST(it_shows_the_api_servers_objects)
{
    struct sim s;
    sim_start(&s, ARGV(NULL));
    sim_add_node(&s, "n1", 2, 15);
    sim_add_bound_pod(&s, "a", 2, "n1", idx_0);
    sim_add_pod(&s, "w", 20);
    cleanup_free char *table = inspect(&s, 0, ARGV(NULL));
    ck_assert_contains(table, "2/15");
    ck_assert_contains(table, "2 of 30 GiB promised (6%), 28 free");
    ck_assert_contains(table, "; 2 cards (2 healthy) on 1 node; 1 pending pod\n");
    cleanup_free char *details = inspect(&s, 0, ARGV("-d", "n1"));
    ck_assert_contains(details, "default");
    cleanup_free char *text = inspect(&s, 0, ARGV("-ojson"));
    json_error_t error;
    cleanup_json json_t *j = json_loads(text, 0, &error);
    ck_assert_msg(j != NULL, "%s: %s", error.text, text);
    ck_assert_str_eq(lib_str(json_array_get(lib_at(j, "nodes"), 0), "name"), "n1");
    cleanup_free char *mib = inspect(&s, 0, ARGV("--memory-unit=MiB"));
    ck_assert_contains(mib, "PROMISED/TOTAL(MiB)");
    ck_assert_contains(mib, "2/15360");
    cleanup_free char *usage = inspect(&s, 0, ARGV("usage"));
    ck_assert_contains(usage, "n1    0    default    a    2 ");
    sim_stop(&s);
}
END_TEST

/* Lists nothing but nodes and pods. */
START_TEST(classic_uses_nodes_and_pods_only)
{
    struct sim s;
    sim_start(&s, ARGV(NULL));
    sim_load(&s,
             "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"n1\"},"
             "\"status\":{\"addresses\":[{\"type\":\"InternalIP\",\"address\":"
             "\"10.0.0.7\"}],\"capacity\":{\"aliyun.com/gpu-mem\":\"30\","
             "\"aliyun.com/gpu-count\":\"2\"},\"allocatable\":{"
             "\"aliyun.com/gpu-mem\":\"30\",\"aliyun.com/gpu-count\":\"2\"}}}");
    sim_add_bound_pod(&s, "a", 2, "n1", idx_0);
    cleanup_free char *all = inspect(&s, 0, ARGV("--classic"));
    ck_assert_str_eq(
        all, "NAME  IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU "
             "Memory(GiB)\n"
             "n1    10.0.0.7   2/15                   0/15                   2/30\n"
             "-----------------------------------------------\n"
             "Allocated/Total GPU Memory In Cluster:\n"
             "2/30 (6%)  \n");
    ck_assert_int_eq(sim_count(&s, "list", "scvs", ""), 0);
    ck_assert_int_eq(sim_count(&s, "list", "configmaps", ""), 0);
    cleanup_free char *none = inspect(&s, 1, ARGV("--classic", "nope"));
    ck_assert_str_eq(none, "Failed due to nodes \"nope\" not found");
    sim_stop(&s);
}
END_TEST

START_TEST(it_explains_pods)
{
    struct sim s;
    sim_start(&s, ARGV(NULL));
    sim_add_node(&s, "n1", 1, 15);
    sim_add_bound_pod(&s, "a", 12, "n1", idx_0);
    sim_add_pod(&s, "w", 8);
    cleanup_free char *pending = inspect(&s, 0, ARGV("explain", "pod", "default/w"));
    ck_assert_contains(pending, "lacks 5 GiB; promised: default/a 12 GiB");
    cleanup_free char *bound =
        inspect(&s, 0, ARGV("explain", "pod", "a", "-n", "default"));
    ck_assert_contains(bound, "pod default/a is bound to node n1");
    cleanup_free char *none = inspect(&s, 1, ARGV("explain", "pod/x/y"));
    ck_assert_contains(none, "pod x/y not found");
    /* The API objects explain the pod also while the extender is not available. */
    cleanup_free char *alone = inspect(
        &s, 0, ARGV("explain", "pod", "default/w", "--extender=kube-system/none:12345"));
    ck_assert_contains(alone, "lacks 5 GiB; promised: default/a 12 GiB");
    ck_assert_contains(alone, "\n! --extender kube-system/none:12345: HTTP 404");
    ck_assert_ptr_null(strstr(pending, "--extender"));
    sim_stop(&s);
}
END_TEST

START_TEST(check_compares_with_the_extender)
{
    struct sim s;
    struct extender e;
    sim_start(&s, ARGV(NULL));
    sim_add_node(&s, "n1", 2, 15);
    extender_start(&e, &s, ARGV(NULL));
    extender_wait_ready(&e);
    sim_add_pod(&s, "a", 4);
    lib_wait(extender_bind(&e, "a", "n1", NULL));
    cleanup_free char *url =
        xasprintf("--extender=http://127.0.0.1:%u", e.observers.port);
    cleanup_free char *good = inspect(&s, 0, ARGV("--check", url));
    ck_assert_str_eq(good, "no differences; compared with the extender\n");
    cleanup_free char *unit =
        inspect(&s, 2, ARGV("--check", url, "--memory-unit=512MiB"));
    ck_assert_contains(unit, "node n1: GPU");
    /* Without --extender, nobody but the API server's objects is asked. */
    cleanup_free char *alone = inspect(&s, 0, ARGV("--check"));
    ck_assert_str_eq(alone,
                     "no differences; not compared with the extender (see --extender)\n");
    cleanup_free char *service = inspect(
        &s, 1, ARGV("--check", "--extender=kube-system/gpushare-schd-extender:12345"));
    ck_assert_contains(service, "--extender kube-system/gpushare-schd-extender:12345: ");
    sim_add_bound_pod(&s, "b", 15, "n1", idx_0);
    sim_add_bound_pod(&s, "c", 15, "n1", idx_0);
    cleanup_free char *over = inspect(&s, 2, ARGV("--check", "--extender", "none"));
    ck_assert_contains(over, "node n1: GPU0 has 15360 MiB, but ");
    ck_assert_contains(over, "1 difference; not compared with the extender (see");
    extender_stop(&e);
    cleanup_free char *gone = inspect(&s, 1, ARGV("--check", url));
    ck_assert_contains(gone, "--extender http://127.0.0.1:");
    sim_stop(&s);
}
END_TEST

#define NO_HEARTBEAT "no heartbeat from scv-agent on this node for "

START_TEST(a_watch_follows)
{
    struct sim s;
    struct program p;
    sim_start(&s, ARGV(NULL));
    sim_add_node(&s, "n1", 1, 15);
    start(&p, &s, ARGV("--watch"));
    ck_assert(program_wait_output(&p, "0 of 15 GiB promised"));
    sim_add_bound_pod(&s, "a", 4, "n1", idx_0);
    ck_assert(program_wait_output(&p, "4 of 15 GiB promised"));
    sim_delete_pod(&s, "a");
    sim_add_bound_pod(&s, "b", 3, "n1", idx_0);
    ck_assert(program_wait_output(&p, "3 of 15 GiB promised"));
    program_signal(&p, SIGINT); /* ends the program at once */
    free(program_end(&p, 128 + SIGINT));
    sim_stop(&s);
}
END_TEST

START_TEST(errors_are_clear)
{
    struct sim s;
    sim_start(&s, ARGV(NULL));
    static const struct {
        const char *options[4], *says;
    } cases[] = {
        {{"nope"}, "kubectl-inspect-gpushare: nodes \"nope\" not found\n"},
        {{"a", "b"}, "unexpected argument \"b\"; expected at most one node name"},
        {{"-o", "xml"}, "--output: \"xml\" is not one of table|wide|json\n"},
        {{"--memory-unit", "3 apples"},
         "--memory-unit: \"3 apples\" is not one of auto|GiB|MiB|"},
        {{"-x"}, "unknown option -x"},
        {{"explain", "node", "n1"}, "expected explain pod [NAMESPACE/]NAME"},
        {{"--extender=x"},
         "--extender: invalid address \"x\"; expected http://HOST:PORT, "
         "https://HOST:PORT or NAMESPACE/SERVICE:PORT"},
        {{"--extender-token=x"}, "--extender-token needs --extender https://HOST:PORT\n"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_free char *said = inspect(&s, 1, cases[i].options);
        ck_assert_contains(said, cases[i].says);
    }
    sim_fault(&s, "{\"resource\":\"leases\",\"action\":\"answer\",\"status\":403}");
    cleanup_free char *right = inspect(&s, 1, ARGV(NULL));
    ck_assert_contains(right, "list of leases: ");
    sim_stop(&s);
}
END_TEST

START_TEST(completion_lists_names_of_the_cluster)
{
    struct sim s;
    sim_start(&s, ARGV(NULL));
    sim_add_node(&s, "n1", 1, 15);
    sim_add_pod(&s, "w", 8);
    cleanup_free char *config = kubeconfig(&s);
    const struct {
        const char *const *words;
        const char *want;
    } cases[] = {{ARGV("n"), "n1\n:4\n"},
                 {ARGV("explain", "pod", ""), "w\n:4\n"},
                 {ARGV("explain", "pod", "default/"), "default/w\n:4\n"},
                 {ARGV("-n", "other", "explain", "pod", ""), "default/w\n:4\n"},
                 {ARGV("defrag", "pod", ""), "w\n:4\n"},
                 {ARGV("-o", "w"), "wide\n:4\n"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct program p;
        lib_program(&p, "kubectl-inspect-gpushare",
                    ARGV("__complete", "--kubeconfig", config), cases[i].words);
        cleanup_free char *said = program_end(&p, 0);
        ck_assert_str_eq(said, cases[i].want);
    }
    sim_stop(&s);
}
END_TEST

LIB_MAIN("inspect_cli", 60, it_shows_the_api_servers_objects,
         classic_uses_nodes_and_pods_only, it_explains_pods,
         check_compares_with_the_extender, a_watch_follows, errors_are_clear,
         completion_lists_names_of_the_cluster)
