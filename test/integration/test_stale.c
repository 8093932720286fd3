/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "integration/suite.h"
#include "lib/watch.h"

/*
 * What is no longer known is not shown as current: since when and why, in every view, when the API
 * server is gone or accepts the login no more.
 */

#define WHY " delivers nothing: "

static void lose_api_server(const char *status)
{
    /* Reviews of the views' callers go on. */
    static const char *const verbs[] = {"list", "watch"};
    array_items(verb, verbs)
        sim_fault(&sim, "{\"verb\":\"%s\",\"action\":\"answer\",\"status\":%s}", *verb,
                  status);
    sim_watches(&sim, "cut", NULL);
}

static void plugin_starts(struct program *p, const char *option)
{
    lib_program(p, "kubectl-inspect-gpushare",
                ARGV("--kubeconfig", sim_kubeconfig(&sim), option), NULL);
}

/* The header Warning of gpunodes or gpupods; empty: none. Kept. */
static const char *warning(const char *target)
{
    cleanup_raw_reply struct raw_reply reply = {0};
    struct raw c;
    raw_open(&c, extender.observers.port);
    raw_call(&c, &reply,
             lib_fmt("GET /apis/nvidia-gpu-scheduler/v1/%s HTTP/1.1\r\nHost: "
                     "127.0.0.1\r\nAuthorization: " SIM_BEARER "\r\n\r\n",
                     target));
    ck_assert_uint_eq(reply.status, 200);
    const char *value = lib_fmt("%.*s", SPAN_ARG(raw_header(&reply, "Warning")));
    raw_close(&c);
    return value;
}

TEST(the_views_of_the_extender_say_since_when)
{
    struct watch w = {0}, nodes = {0};
    sim_add_node(&sim, "n1", 1, 15);
    suite_extender(NULL);
    watch_open(&w, extender.observers.port, "/inspect?watch=true");
    watch_until(&w, "\"Cluster\"");
    watch_open(&nodes, extender.observers.port,
               "/apis/nvidia-gpu-scheduler/v1/gpunodes?watch=true");
    watch_until(&nodes, "n1");
    ck_assert_str_eq(warning("gpunodes"), "");
    ck_assert(peer_metric(&extender.observers, "gpushare_stale_seconds") == 0);

    lose_api_server("403");
    const char *line = watch_until(&w, "staleReason");
    ck_assert_contains(line, WHY "HTTP 403");
    ck_assert_contains(line, "\"staleSince\":\"20");
    ck_assert(peer_says(&extender.observers, "/inspect", 200,
                        "\"staleReason\":\"the watch of "));
    ck_assert(peer_says(&extender.observers, "/gpushare-scheduler/inspect/n1", 200,
                        "\"staleReason\":\"the watch of "));
    /* The scheduler is answered for some time more; what is old is said all the same. */
    ck_assert_uint_eq(peer_status(&extender.observers, "/readyz"), 200);
    lib_wait(peer_metric(&extender.observers, "gpushare_stale_seconds") >= 4);
    ck_assert(peer_metric(&extender.observers, "gpushare_pending_pods") == 0);
    static const char *const kinds[] = {"gpunodes", "gpupods"};
    array_items(kind, kinds) {
        const char *value = warning(*kind);
        ck_assert_msg(strncmp(value, "299 - \"as of 20", 15) == 0, "%s", value);
        ck_assert_contains(value, WHY "HTTP 403");
    }
    while (watch_line(&nodes)) /* its next watch begins with the warning */
        ;
    watch_close(&nodes);
    watch_open(&nodes, extender.observers.port,
               "/apis/nvidia-gpu-scheduler/v1/gpunodes?watch=true");
    ck_assert_contains(lib_fmt("%.*s", SPAN_ARG(raw_header(&nodes.r, "Warning"))), WHY);

    sim_no_faults(&sim);
    while (strstr(watch_until(&w, "\"Cluster\""), "stale"))
        ; /* kind by kind */
    ck_assert_str_eq(warning("gpunodes"), "");
    lib_wait(peer_metric(&extender.observers, "gpushare_stale_seconds") == 0);
    watch_close(&w);
    watch_close(&nodes);
}

TEST(a_watch_says_since_when_and_goes_on)
{
    struct program p;
    sim_add_node(&sim, "n1", 1, 15);
    plugin_starts(&p, "--watch");
    ck_assert(program_wait_output(&p, "0 of 15 GiB promised"));
    lose_api_server("503");
    ck_assert(program_wait_output(&p, "\nkubectl-inspect-gpushare: as of "));
    ck_assert(program_wait_output(&p, "\n! as of ")); /* in the table, too */
    ck_assert_contains(program_output(&p), WHY "HTTP 503");
    sim_no_faults(&sim);
    ck_assert(
        program_wait_output(&p, "kubectl-inspect-gpushare: the watches work again"));
    sim_add_bound_pod(&sim, "a", 3, "n1", "{\"ALIYUN_COM_GPU_MEM_IDX\":\"0\"}");
    ck_assert(program_wait_output(&p, "3 of 15 GiB promised"));
    program_signal(&p, SIGINT);
    free(program_end(&p, 128 + SIGINT));
}

TEST(a_watch_ends_when_the_login_has_expired)
{
    struct program p;
    sim_add_node(&sim, "n1", 1, 15);
    plugin_starts(&p, "--watch");
    ck_assert(program_wait_output(&p, "0 of 15 GiB promised"));
    lose_api_server("401");
    const char *said = lib_keep(program_end(&p, 1), free);
    ck_assert_contains(said, WHY "HTTP 401");
    ck_assert_contains(said, "kubectl-inspect-gpushare: the login has expired\n");
}

TEST(json_of_a_watch_says_since_when)
{
    struct program p;
    sim_add_node(&sim, "n1", 1, 15);
    lib_program(&p, "kubectl-inspect-gpushare",
                ARGV("--kubeconfig", sim_kubeconfig(&sim), "-w", "-o", "json"), NULL);
    ck_assert(program_wait_output(&p, "\"unitMiB\""));
    sim_stop(&sim); /* the API server is gone */
    ck_assert(program_wait_output(&p, "\"staleReason\": \"the watch of "));
    ck_assert_contains(program_output(&p), "\"staleSince\": \"20");
    program_signal(&p, SIGINT);
    free(program_end(&p, 128 + SIGINT));
    sim_start(&sim, NULL);
}

TEST(the_served_page_goes_on_after_the_login_has_expired)
{
    struct program p;
    struct peer page;
    sim_add_node(&sim, "n1", 1, 15);
    plugin_starts(&p, "--serve");
    peer_init(&page, program_port(&p, "serving the page on http://127.0.0.1:"));
    struct span rest = span_of(strstr(program_output(&p), "127.0.0.1:"));
    span_cut(&rest, '/');
    const char *inspect = lib_fmt("/%.*s/inspect", 32, rest.p);
    ck_assert_lacks(lib_text(peer_get(&page, inspect), ""), "stale");
    lose_api_server("401");
    lib_wait(peer_says(&page, inspect, 200, WHY "HTTP 401"));
    ck_assert(program_wait_output(&p, "\nkubectl-inspect-gpushare: as of "));
    sim_no_faults(&sim); /* a new login */
    ck_assert(program_wait_output(&p, "the watches work again"));
    ck_assert_lacks(lib_text(peer_get(&page, inspect), ""), "stale");
    peer_fini(&page);
    program_signal(&p, SIGINT);
    free(program_end(&p, 0));
}

SUITE_MAIN(120, NULL)
