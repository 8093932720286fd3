/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "base/clock.h"
#include "integration/suite.h"
#include "lib/stub.h"

/*
 * kubectl-inspect-gpushare as users run it, against kube-sim and the real extender. Its
 * output for each kind of object is tested in test/cli.
 */

static void start(struct program *p, const char *const *options)
{
    lib_program(p, "kubectl-inspect-gpushare", ARGV("--kubeconfig", sim_kubeconfig(&sim)),
                options);
}

/* Runs the program to its end; returns its output, kept. */
static char *inspect(int status, const char *const *options)
{
    struct program p;
    start(&p, options);
    return lib_keep(program_end(&p, status), free);
}

static const char idx_0[] = "{\"ALIYUN_COM_GPU_MEM_IDX\":\"0\"}";

TEST(it_shows_the_api_servers_objects)
{
    sim_add_node(&sim, "n1", 2, 15);
    sim_add_bound_pod(&sim, "a", 2, "n1", idx_0);
    sim_add_pod(&sim, "w", 20);
    const char *table = inspect(0, NULL);
    ck_assert_contains(table, "2/15");
    ck_assert_contains(table, "2 of 30 GiB promised (6%), 28 free");
    ck_assert_contains(table, "; 2 cards (2 healthy) on 1 node; 1 pending pod\n");
    ck_assert_contains(inspect(0, ARGV("-d", "n1")), "default");
    const char *text = inspect(0, ARGV("-ojson"));
    ck_assert_at(lib_parse(text, strlen(text)), "nodes.0.name", "n1");
    const char *mib = inspect(0, ARGV("--memory-unit=MiB"));
    ck_assert_contains(mib, "PROMISED/TOTAL(MiB)");
    ck_assert_contains(mib, "2048/15360");
    ck_assert_contains(inspect(0, ARGV("usage")), "n1    0    default    a    2 ");
}

/* Lists nothing but nodes and pods. */
TEST(classic_uses_nodes_and_pods_only)
{
    sim_load(&sim,
             "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"n1\"},"
             "\"status\":{\"addresses\":[{\"type\":\"InternalIP\",\"address\":"
             "\"10.0.0.7\"}],\"capacity\":{\"aliyun.com/gpu-mem\":\"30\","
             "\"aliyun.com/gpu-count\":\"2\"},\"allocatable\":{"
             "\"aliyun.com/gpu-mem\":\"30\",\"aliyun.com/gpu-count\":\"2\"}}}");
    sim_add_bound_pod(&sim, "a", 2, "n1", idx_0);
    ck_assert_str_eq(
        inspect(0, ARGV("--classic")),
        "NAME  IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU "
        "Memory(GiB)\n"
        "n1    10.0.0.7   2/15                   0/15                   2/30\n"
        "-----------------------------------------------\n"
        "Allocated/Total GPU Memory In Cluster:\n"
        "2/30 (6%)  \n");
    ck_assert_int_eq(sim_count(&sim, "list", "scvs", ""), 0);
    ck_assert_int_eq(sim_count(&sim, "list", "configmaps", ""), 0);
    ck_assert_str_eq(inspect(1, ARGV("--classic", "nope")),
                     "Failed due to nodes \"nope\" not found");
}

/* The cards of the nodes are not known yet, or there are none. */
TEST(an_empty_table_says_why)
{
    static const char why[] =
        "kubectl-inspect-gpushare: no node has cards; nodes with GPUs need the label "
        "gpushare=true or nvidia.com/gpu.present=true, and a pod of gpushare-node "
        "(DaemonSet gpushare-device-plugin-ds; docs/install.md)\n";
    sim_load(&sim, "[{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":"
                   "\"cpu\"}},{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{"
                   "\"name\":\"theirs\"},\"status\":{\"capacity\":{\"nvidia.com/gpu\":"
                   "\"2\"},\"allocatable\":{\"nvidia.com/gpu\":\"2\"}}}]");
    sim_add_pod(&sim, "w", 8);
    const char *const *const all[] = {
        ARGV("-d"),        ARGV("-o", "wide"), ARGV("usage"),       ARGV("theirs"),
        ARGV("--classic"), ARGV("--check"),    ARGV("explain", "w")};
    array_items(options, all)
        ck_assert_contains(inspect(-1, *options), why);
    sim_add_node(&sim, "n1", 1, 15);
    array_items(options, all)
        ck_assert_lacks(inspect(-1, *options), why);
}

TEST(it_explains_pods)
{
    sim_add_node(&sim, "n1", 1, 15);
    sim_add_bound_pod(&sim, "a", 12, "n1", idx_0);
    sim_add_pod(&sim, "w", 8);
    const char *pending = inspect(0, ARGV("explain", "pod", "default/w"));
    ck_assert_contains(pending, "lacks 5 GiB; promised: default/a 12 GiB");
    /* The cause of all pending pods comes first. */
    static const char none[] =
        "! no extender leads: nobody holds Lease kube-system/gpushare-extender\n";
    ck_assert_msg(strncmp(pending, none, strlen(none)) == 0, "%s", pending);
    const char *check = inspect(2, ARGV("--check"));
    ck_assert_msg(strncmp(check, none, strlen(none)) == 0, "%s", check);
    ck_assert_contains(check, "1 difference; ");
    ck_assert_contains(inspect(0, ARGV("explain", "pod", "a", "-n", "default")),
                       "pod default/a is bound to node n1");
    ck_assert_contains(inspect(1, ARGV("explain", "pod/x/y")), "pod x/y not found");
    const char *const *const spellings[] = {ARGV("explain", "w"),
                                            ARGV("explain", "default/w"),
                                            ARGV("explain", "po", "w"),
                                            ARGV("explain", "po/w"),
                                            ARGV("explain", "pods/default/w"),
                                            ARGV("explain", "pods", "w")};
    array_items(spelling, spellings)
        ck_assert_contains(inspect(0, *spelling), "lacks 5 GiB; promised: default/a");
    /* The API objects explain the pod also while the extender is not available. */
    const char *alone = inspect(
        0, ARGV("explain", "pod", "default/w", "--extender=kube-system/none:12345"));
    ck_assert_contains(alone, "lacks 5 GiB; promised: default/a 12 GiB");
    ck_assert_contains(alone, "\n! --extender kube-system/none:12345: HTTP 404");
    ck_assert_lacks(pending, "--extender");
}

/* What a device plugin and the kubelet make of a pod that was bound past the extender. */
TEST(a_pod_bound_past_the_extender_is_explained)
{
    cleanup_buf struct buf now = {0};
    sim_add_node(&sim, "n1", 2, 15);
    suite_extender(NULL);
    clock_format_us(&now, clock_wall_ns() / 1000);
    sim_load(&sim,
             "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"f\","
             "\"namespace\":\"default\"},\"spec\":{\"nodeName\":\"n1\",\"containers\":[{"
             "\"name\":\"c\",\"image\":\"i\",\"resources\":{\"limits\":{\"aliyun.com/"
             "gpu-mem\":"
             "\"4\"}}}]},\"status\":{\"phase\":\"Failed\",\"reason\":"
             "\"UnexpectedAdmissionError\",\"message\":\"pod default/f has no "
             "promised card\"}}");
    ck_assert_contains(inspect(0, ARGV("explain", "pod", "f", "-n", "default")),
                       "pod default/f failed with UnexpectedAdmissionError: it was bound "
                       "to node n1 without a card");
    ck_assert_str_eq(inspect(0, ARGV("--check")),
                     "no differences; not compared with the extender (see --extender)\n");
    sim_load(&sim,
             "{\"apiVersion\":\"events.k8s.io/v1\",\"kind\":\"Event\",\"metadata\":{"
             "\"name\":\"f.1\",\"namespace\":\"default\"},\"eventTime\":\"%s\","
             "\"reportingController\":\"x\",\"reportingInstance\":\"x\",\"action\":"
             "\"Allocate\",\"reason\":\"GPUAllocationFailed\",\"type\":\"Warning\","
             "\"note\":\"pod default/f has no promised card\"}",
             now.p);
    const char *check = inspect(2, ARGV("--check"));
    ck_assert_contains(check,
                       lib_fmt("! the extender was not asked at %s: pod default/f has "
                               "no promised card\n1 difference; ",
                               now.p));
    sim_add_pod(&sim, "a", 4);
    lib_wait(extender_bind(&extender, "a", "n1", NULL));
    ck_assert_contains(inspect(0, ARGV("--check")), "no differences");
}

TEST(check_compares_with_the_extender)
{
    sim_add_node(&sim, "n1", 2, 15);
    suite_extender(NULL);
    sim_add_pod(&sim, "a", 4);
    lib_wait(extender_bind(&extender, "a", "n1", NULL));
    char *url = lib_fmt("--extender=http://127.0.0.1:%u", extender.observers.port);
    const char *good = inspect(0, ARGV("--check", url));
    ck_assert_str_eq(good, "no differences; compared with the extender\n");
    ck_assert_contains(inspect(2, ARGV("--check", url, "--memory-unit=512MiB")),
                       "has a promise in units of 1024 MiB");
    /* Without --extender, nobody but the API server's objects is asked. */
    const char *alone = inspect(0, ARGV("--check"));
    ck_assert_str_eq(alone,
                     "no differences; not compared with the extender (see --extender)\n");
    ck_assert_contains(
        inspect(1,
                ARGV("--check", "--extender=kube-system/gpushare-schd-extender:12345")),
        "--extender kube-system/gpushare-schd-extender:12345: ");
    extender_stop(&extender);
    ck_assert_contains(inspect(1, ARGV("--check", url)), "--extender http://127.0.0.1:");
}

TEST(a_watch_follows)
{
    struct program p;
    sim_add_node(&sim, "n1", 1, 15);
    start(&p, ARGV("--watch"));
    ck_assert(program_wait_output(&p, "0 of 15 GiB promised"));
    sim_add_bound_pod(&sim, "a", 4, "n1", idx_0);
    ck_assert(program_wait_output(&p, "4 of 15 GiB promised"));
    sim_delete_pod(&sim, "a");
    sim_add_bound_pod(&sim, "b", 3, "n1", idx_0);
    ck_assert(program_wait_output(&p, "3 of 15 GiB promised"));
    program_signal(&p, SIGINT); /* ends the program at once */
    free(program_end(&p, 128 + SIGINT));
}

/* What a login page, a proxy or a load balancer answers instead of an API server. */
struct foreign {
    unsigned status;
    const char *headers, *body;
};

static void answer_foreign(struct stub_conn *conn, void *ctx)
{
    const struct foreign *f = ctx;
    while (stub_read(conn))
        stub_reply(conn, f->status, f->headers, f->body);
}

TEST(a_login_page_is_named)
{
    static const char page[] =
        "\n<!DOCTYPE html><html><head><title>Sign in - Corp SSO</title></head>"
        "<body><h1>\033[31mWelcome</h1></body></html>";
    static const struct {
        struct foreign is;
        const char *says;
    } cases[] = {
        {{200, "Content-Type: text/html\r\n", page},
         "text/html instead of JSON: Sign in - Corp SSO  [31mWelcome\n"},
        {{200, "Content-Type: application/json\r\n", "<html></html>"},
         "text/html instead of JSON: \n"},
        {{302, "Location: https://sso.example/login?state=secret\r\n", page},
         "HTTP 302 redirects to https://sso.example/login\n"},
        {{307, "Location: /\033login\r\n", ""}, "HTTP 307 redirects to /?login\n"},
        {{301, "", ""}, "HTTP 301\n"},
        {{503, "", "<html>down"}, "HTTP 503 without a Status object: <html>down\n"},
        {{200, "", "{}<"}, "invalid JSON at byte 0"},
        {{200, "", "hello"}, "invalid JSON at byte 0"},
    };
    array_items(c, cases) {
        struct stub *s = stub_start(answer_foreign, (void *)&c->is);
        const char *url = stub_url(s);
        temp_write(lib_dir, "foreign",
                   lib_fmt("{\"current-context\":\"c\",\"clusters\":[{\"name\":\"c\","
                           "\"cluster\":{\"server\":\"%s\"}}],\"contexts\":[{\"name\":"
                           "\"c\",\"context\":{\"cluster\":\"c\",\"user\":\"u\"}}],"
                           "\"users\":[{\"name\":\"u\",\"user\":{}}]}",
                           url));
        const char *said = lib_output_of(1, "kubectl-inspect-gpushare",
                                         ARGV("--kubeconfig", lib_path("foreign")));
        ck_assert_contains(said, c->says);
        ck_assert_lacks(said, "\033");
        ck_assert_lacks(said, "secret");
        /* In front of the extender. */
        said = inspect(1, ARGV("--check", lib_fmt("--extender=%s", url)));
        ck_assert_contains(said, *c->is.body == 'h'   ? "the response is not JSON"
                                 : *c->is.body == '{' ? "the response is not JSON"
                                                      : c->says);
        stub_stop(s);
    }
}

TEST(errors_are_clear)
{
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
        {{"explain"}, "expected explain pod [NAMESPACE/]NAME"},
        {{"explain", "pod"}, "expected explain pod [NAMESPACE/]NAME"},
        {{"explain", "po/"}, "expected explain pod [NAMESPACE/]NAME"},
        {{"explain", "pod/a", "b"}, "expected explain pod [NAMESPACE/]NAME"},
        {{"--extender=x"},
         "--extender: invalid address \"x\"; expected http://HOST:PORT, "
         "https://HOST:PORT or NAMESPACE/SERVICE:PORT"},
        {{"--extender-token=x"}, "--extender-token needs --extender https://HOST:PORT\n"},
    };
    array_items(c, cases)
        ck_assert_contains(inspect(1, c->options), c->says);
    sim_fault(&sim, "{\"resource\":\"leases\",\"action\":\"answer\",\"status\":403}");
    ck_assert_contains(inspect(1, NULL), "list of leases: ");
}

TEST(completion_lists_names_of_the_cluster)
{
    sim_add_node(&sim, "n1", 1, 15);
    sim_add_pod(&sim, "w", 8);
    const struct {
        const char *const *words;
        const char *want;
    } cases[] = {{ARGV("n"), "n1\n:4\n"},
                 {ARGV("explain", "pod", ""), "w\n:4\n"},
                 {ARGV("explain", "pod", "default/"), "default/w\n:4\n"},
                 {ARGV("-n", "other", "explain", "pod", ""), "default/w\n:4\n"},
                 {ARGV("defrag", "pod", ""), "w\n:4\n"},
                 {ARGV("-o", "w"), "wide\n:4\n"}};
    array_items(c, cases) {
        const char *words[PROGRAM_ARGS] = {"__complete", "--kubeconfig",
                                           sim_kubeconfig(&sim)};
        program_args(words, 3, c->words);
        ck_assert_str_eq(lib_output_of(0, "kubectl-inspect-gpushare", words), c->want);
    }
}

SUITE_MAIN(60, NULL)
