/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "integration/suite.h"
#include "lib/watch.h"

/*
 * kubectl inspect gpushare --serve: the page for clients with the URL and for no others, and
 * the same ledger as the extender's.
 */

static struct program served;
static struct peer page; /* its port */
static const char *path; /* "/TOKEN/" */

static void start(void)
{
    sim_add_node(&sim, "n1", 2, 15);
    lib_program(&served, "kubectl-inspect-gpushare",
                ARGV("--kubeconfig", sim_kubeconfig(&sim), "--serve", "--extender=none"),
                NULL);
    peer_init(&page, program_port(&served, "serving the page on http://127.0.0.1:"));
    struct span rest = span_of(strstr(program_output(&served), "127.0.0.1:"));
    span_cut(&rest, '/');
    rest = span_cut(&rest, '\n');
    path = lib_fmt("/%.*s", SPAN_ARG(rest));
    ck_assert_uint_eq(strlen(path), 34);
}

static void stop(void)
{
    peer_fini(&page);
    program_signal(&served, SIGINT);
    free(program_end(&served, 0));
}

TEST(the_url_opens_the_page)
{
    static const char *const files[][2] = {
        {"", "page.html"}, {"page.css", "page.css"}, {"page.js", "page.js"}};
    cleanup_buf struct buf body = {0};
    start();
    array_indices(i, files) {
        ck_assert_uint_eq(
            peer_call(&page, "GET", lib_fmt("%s%s", path, files[i][0]), NULL, &body),
            200);
        ck_assert_span_eq(buf_span(&body),
                          lib_file(lib_fmt("src/view/web/%s", files[i][1])));
    }
    ck_assert_uint_eq(peer_status(&page, lib_fmt("%sother", path)), 404);
    sim_add_pod(&sim, "w", 20);
    const char *inspect = lib_fmt("%sinspect", path);
    lib_wait(peer_says(&page, inspect, 200, "needs 20480 MiB on one card"));
    const json_t *j = peer_get(&page, inspect);
    ck_assert_at(j, "nodes.0.name", "n1");
    ck_assert(json_is_true(lib_at(j, "observer")));
    ck_assert_ptr_null(lib_at(j, "leader"));
    ck_assert_ptr_null(lib_at(j, "error"));
    stop();
}

TEST(the_stream_follows_the_cluster)
{
    struct watch w = {0};
    start();
    suite_extender(NULL);
    raw_open(&w.c, page.port);
    raw_sendf(&w.c, "GET %sinspect?watch=true HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n\r\n",
              path, page.port);
    ck_assert_int_eq(raw_read_head(&w.c, &w.r), RAW_OK);
    ck_assert_uint_eq(w.r.status, 200);
    watch_until(&w, "\"name\":\"n1\"");
    watch_until(&w, "\"observer\":true");
    ck_assert_str_eq(watch_line(&w), "");
    sim_add_pod(&sim, "a", 4);
    lib_wait(extender_bind(&extender, "a", "n1", NULL));
    const char *bound = watch_until(&w, "\"promisedMiB\":4096");
    ck_assert_contains(bound, "\"uid\":\"uid-a\"");
    /* Node by node what the extender shows. */
    ck_assert_str_eq(lib_text(lib_parse(bound, strlen(bound)), "Node"),
                     lib_text(peer_get(&extender.observers, "/inspect/n1"), "nodes.0"));
    sim_add_bound_pod(&sim, "b", 3, "n1", "{\"ALIYUN_COM_GPU_MEM_IDX\":\"0\"}");
    watch_until(&w, "\"uid\":\"uid-b\"");
    /* An open stream does not delay the end. */
    int64_t since_ms = lib_now_ms();
    stop();
    ck_assert_int_lt(lib_now_ms() - since_ms, 10000 * LIB_SLOWER);
    watch_close(&w);
}

TEST(other_outputs_are_rejected)
{
    static const char *const others[] = {"n1", "--check", "--classic", "--watch",
                                         "-ojson"};
    array_items(other, others)
        ck_assert_contains(
            lib_output_of(1, "kubectl-inspect-gpushare", ARGV("--serve", *other)),
            "--serve shows the whole cluster; ");
}

SUITE_MAIN(60, NULL)
