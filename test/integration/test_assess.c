/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/suite.h"
#include "lib/stub.h"

/*
 * `kubectl inspect gpushare assess` against kube-sim, files, and a stub for Prometheus that is less
 * polite than Prometheus.
 *
 *     n1  2 cards of 16 GiB, as GPU feature discovery labels them; a and b hold one each
 */

#define NODE                                                                             \
    "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"n1\",\"labels\":" \
    "{\"nvidia.com/gpu.product\":\"Tesla-T4\",\"nvidia.com/gpu.count\":\"2\","           \
    "\"nvidia.com/gpu.memory\":\"16384\"}}}"
#define POD(name)                                                                        \
    "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"namespace\":\"default\","   \
    "\"name\":\"" name "\",\"uid\":\"uid-" name                                          \
    "\"},\"spec\":{\"nodeName\":\"n1\",\"containers\":[{\"name\":\"c\",\"image\":\"i\"," \
    "\"resources\":{\"limits\":{\"nvidia.com/gpu\":\"1\"}}}]}}"
#define ANSWER(type, values)                                                             \
    "{\"status\":\"success\",\"data\":{\"resultType\":\"" type "\",\"result\":" values   \
    "}}"
#define USED(pod, value)                                                                 \
    "{\"metric\":{\"namespace\":\"default\",\"pod\":\"" pod                              \
    "\",\"of\":\"card\"},\"value\":[1,\"" value "\"]}"
#define BOTH    ANSWER("vector", "[" USED("a", "2e9") "," USED("b", "3e9") "]")
#define HEADER  "\nMODEL     CARDS  HELD  NEEDED  PODS  COULD SHARE\n"
#define SHARED  HEADER "Tesla-T4  2      2     1       2     2\n"
#define NOTHING HEADER "Tesla-T4  2      2     2       2     0\n"

static char *assess(int status, const char *const *options)
{
    struct program p;
    lib_program(&p, "kubectl-inspect-gpushare", ARGV("assess"), options);
    return lib_keep(program_end(&p, status), free);
}

static char *from(const char *name)
{
    return lib_fmt("--from=%s", lib_path(name));
}

/* The output with this answer of the server. */
static char *asked(int status, stub_fn serve, const char *ctx)
{
    struct stub *s = stub_start(serve, (void *)ctx);
    char *said = assess(status, ARGV("--kubeconfig=/nonexistent", from("objects.json"),
                                     "--prometheus", lib_fmt("%s", stub_url(s)),
                                     "--request-timeout=2s"));
    if (stub_requests(s)) {
        cleanup_free char *request = stub_request(s, 0);
        ck_assert_contains(request, "GET /api/v1/query?query=label_replace");
    }
    stub_stop(s);
    return said;
}

static void write_objects(void)
{
    temp_write(lib_dir, "objects.json",
               "{\"kind\":\"List\",\"items\":[" NODE "," POD("a") "," POD("b") "]}");
}

static void redirect(struct stub_conn *conn, void *ctx)
{
    while (stub_read(conn))
        stub_reply(conn, 302, ctx, "");
}

static void overloaded(struct stub_conn *conn, void *ctx)
{
    while (stub_read(conn))
        stub_reply(conn, 503, "", ctx);
}

static void truncate_reply(struct stub_conn *conn, void *ctx)
{
    if (stub_read(conn))
        stub_printf(conn, "HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n%s",
                    (const char *)ctx);
}

/* More than any answer may have, without an end. */
static void flood(struct stub_conn *conn, void *ctx)
{
    static char zeros[1 << 20];
    (void)ctx;
    if (!stub_read(conn))
        return;
    stub_printf(conn, "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n");
    for (int i = 0; i < 80; i++)
        stub_send(conn, zeros, sizeof zeros);
}

TEST(prometheus_is_not_trusted)
{
    static const struct {
        const char *answer, *want;
        int status;
    } cases[] = {
        {BOTH, SHARED, 0},
        {ANSWER("vector", "[]"), NOTHING, 0},
        {ANSWER("vector", "[" USED("a", "NaN") "," USED("b", "+Inf") "]"), NOTHING, 0},
        {ANSWER("vector", "[" USED("a", "-1") "," USED("b", "1e300") "]"), NOTHING, 0},
        {ANSWER("vector", "[" USED("a", "2e9x") "]"), "has no number", 1},
        {ANSWER("vector", "[7]"), "has no number", 1},
        {ANSWER("vector", "[{\"metric\":[],\"value\":[1,2]}]"), "has no number", 1},
        {ANSWER("vector", "[{\"metric\":7,\"value\":[1,\"2\"]}]"), NOTHING, 0},
        {ANSWER("matrix", "[]"), "nor a vector", 1},
        {ANSWER("vector", "{}"), NOTHING, 0},
        {"{\"status\":\"error\",\"errorType\":\"bad_data\",\"error\":\"too "
         "many\\nsamples\"}",
         "too many", 1},
        {"{\"status\":\"success\"}", "nor a vector", 1},
        {"[]", "neither objects", 1},
        {"<html>login</html>", "text/html instead of JSON: login", 1},
        {"", "not JSON", 1},
    };
    write_objects();
    array_items(c, cases)
        ck_assert_contains(asked(c->status, stub_echo, c->answer), c->want);
    ck_assert_contains(
        asked(1, overloaded, "{\"status\":\"error\",\"error\":\"timeout\"}"), "503");
    ck_assert_contains(asked(1, redirect, "Location: http://127.0.0.1:1/\r\n"), "302");
    ck_assert_contains(asked(1, truncate_reply, BOTH), "--prometheus: ");
    ck_assert_contains(asked(1, flood, NULL), "--prometheus: ");
}

/* Objects and answers, in several files, some of them twice. */
TEST(files_take_the_place_of_the_cluster)
{
    write_objects();
    temp_write(lib_dir, "one.json", POD("a"));
    ck_assert_contains(assess(1, ARGV(from("objects.json"), from("one.json"))),
                       "a single Pod");
    temp_write(lib_dir, "ours.json",
               lib_swap("{\"kind\":\"List\",\"items\":[" NODE "," POD("a") "]}",
                        "nvidia.com/gpu\":\"1\"", "aliyun.com/gpu-mem\":\"4097\""));
    ck_assert_contains(assess(0, ARGV(from("ours.json"), "--memory-unit=MiB")), " 4097 ");
    temp_write(lib_dir, "used.json", BOTH "\n");
    temp_write(lib_dir, "more.json", "{\"kind\":\"List\",\"items\":[" POD("a") "]}\n");
    const char *text = assess(
        0, ARGV(from("more.json"), from("objects.json"), from("used.json"), "-ojson"));
    const json_t *j = lib_parse(text, strlen(text));
    ck_assert_int_eq(json_integer_value(lib_at(j, "models.Tesla-T4.cardsNeeded")), 1);
    ck_assert_uint_eq(json_object_size(lib_at(j, "pods")), 2);
    /* 3e9 bytes are 2862 MiB. */
    ck_assert_str_eq(
        assess(0, ARGV(from("objects.json"), from("used.json"), "--headroom=500%")),
        "POD        NODE  USED(MiB)  NEEDS(MiB)  COULD SHARE  REASON\n"
        "default/b  n1    2862       17172       no           needs more than a card "
        "with "
        "the head room\n"
        "default/a  n1    1908       11448       yes          -\n" HEADER
        "Tesla-T4  2      2     2       2     1\n");
    temp_write(lib_dir, "bad.json", "{\"kind\":\"List\"} {");
    ck_assert_contains(assess(1, ARGV(from("bad.json"))), "bad.json: ");
    ck_assert_contains(assess(1, ARGV(from("none.json"))), "No such file");
    ck_assert_contains(assess(1, ARGV("--headroom=x")), "is not a percentage");
    ck_assert_contains(assess(1, ARGV("n1")), "unexpected argument \"n1\" after assess");
}

static const char *container(const char *name, const char *limits)
{
    return lib_fmt("{\"name\":\"%s\",\"image\":\"i\",\"resources\":{\"limits\":{%s}}}",
                   name, limits);
}

/* Members in the order of `kubectl get -o json`: containers before initContainers. */
static const char *hami_pod(const char *name, const char *given, const char *containers,
                            const char *inits)
{
    return lib_fmt(
        "{\"kind\":\"Pod\",\"metadata\":{\"annotations\":{"
        "\"hami.io/vgpu-devices-allocated\":\"%s\",\"hami.io/vgpu-node\":\"n1\"},"
        "\"name\":\"%s\",\"namespace\":\"default\",\"uid\":\"uid-%s\"},\"spec\":{"
        "\"containers\":[%s],\"initContainers\":[%s]%s}}",
        given, name, name, containers, inits, *given ? ",\"nodeName\":\"n1\"" : "");
}

#define GPU(n)   "\"nvidia.com/gpu\":\"" n "\""
#define MEM(n)   "\"nvidia.com/gpumem\":\"" n "\""
#define CORES(n) "\"nvidia.com/gpucores\":\"" n "\""
TEST(pods_of_hami_are_read_with_its_table)
{
    const char *half = GPU("1") ",\"nvidia.com/gpumem-percentage\":\"50\"," CORES("30");
    const char *pods[] = {
        hami_pod("one", "GPU-a,NVIDIA,3000,0:;", container("c", GPU("1") "," MEM("3k")),
                 ""),
        /* HAMi has left out the entry of `wait`. */
        hami_pod("two", "GPU-a,NVIDIA,8192,30:;",
                 lib_fmt("%s,%s", container("log", ""), container("c", half)),
                 container("wait", "")),
        hami_pod("three", "GPU-b,NVIDIA,6000,0:;GPU-b,NVIDIA,4000,0:;",
                 container("c", GPU("1") "," MEM("4000")),
                 container("load", GPU("1") "," MEM("6000"))),
        hami_pod("all", "", container("c", GPU("1") "," CORES("100")), ""),
        hami_pod("apart", "",
                 lib_fmt("%s,%s", container("a", GPU("2") "," MEM("10")),
                         container("b", MEM("20"))),
                 ""),
    };
    cleanup_buf struct buf list = {0};
    buf_adds(&list, "{\"kind\":\"List\",\"items\":[" NODE);
    array_items(p, pods)
        buf_printf(&list, ",%s", *p);
    buf_adds(&list, "]}");
    temp_write(lib_dir, "hami.json", list.p);
    ck_assert_str_eq(
        assess(0, ARGV(from("hami.json"))),
        "POD            NODE  USED(MiB)  NEEDS(MiB)  COULD SHARE  REASON\n"
        "default/all    -     -          -           no           nvidia.com/gpu 1 on 1 "
        "card, 100 percent of nvidia.com/gpucores\n"
        "default/apart  -     -          -           no           containers with 2 and "
        "1 "
        "cards of nvidia.com/gpu: all memory of a pod is on the same cards\n"
        "default/two    n1    -          8192        yes          "
        "nvidia.com/gpumem-percentage 50 on 1 card = 8192 MiB, 30 percent of "
        "nvidia.com/gpucores\n"
        "default/three  n1    -          6000        yes          nvidia.com/gpumem "
        "4000, "
        "nvidia.com/gpumem 6000 on 1 card = 6000 MiB\n"
        "default/one    n1    -          3000        yes          nvidia.com/gpumem 3000 "
        "on "
        "1 card = 3000 MiB\n" HEADER "Tesla-T4  2      2     2       3     3\n"
        "USED is of this moment; with --prometheus, the most of a week.\n");
}

/* Without Scvs, with what scv-agent measures, and without the right to read that. */
TEST(a_cluster_is_read)
{
    sim_load(&sim, NODE);
    sim_load(&sim, POD("a"));
    sim_load(&sim, POD("b"));
    char *config = sim_kubeconfig(&sim);
    ck_assert_contains(assess(0, ARGV("--kubeconfig", config)),
                       NOTHING "USED is of this moment; ");
    sim_load(
        &sim,
        "{\"apiVersion\":\"core.run-linux.com/v1\",\"kind\":\"Scv\",\"metadata\":{"
        "\"name\":\"n1\"},\"status\":{\"cardList\":[{\"id\":0,\"model\":\"Tesla T4\","
        "\"totalMemory\":16000},{\"id\":1,\"model\":\"Tesla T4\",\"totalMemory\":16000}"
        "],\"podList\":[{\"namespace\":\"default\",\"name\":\"a\",\"container\":\"c\","
        "\"usage\":[{\"uuid\":\"u\",\"usedMemory\":900}]},{\"namespace\":\"default\","
        "\"name\":\"b\",\"container\":\"c\",\"usage\":[{\"uuid\":\"v\",\"usedMemory\":"
        "900}]}]}}");
    ck_assert_contains(assess(0, ARGV("--kubeconfig", config)),
                       HEADER "Tesla T4  2      2     1       2     2\n");
    sim_fault(&sim, "{\"resource\":\"scvs\",\"action\":\"answer\",\"status\":403}");
    ck_assert_contains(assess(0, ARGV("--kubeconfig", config)), NOTHING);
}

SUITE_MAIN(60, NULL)
