/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/suite.h"
#include "lib/raw.h"

/*
 * The verbs and the read-only endpoints over HTTP, against the real extender. Filter answers
 * with all nodes here; test_decide.c has the other answers.
 */
#define ALL "--filter-answer=all"

static void set_up(void)
{
    sim_add_node(&sim, "big", 2, 16);
    sim_add_node(&sim, "small", 2, 2);
    sim_add_node(&sim, "full", 1, 16);
    sim_add_bound_pod(&sim, "old", 14, "full",
                      "{\"ALIYUN_COM_GPU_MEM_IDX\":\"0\",\"ALIYUN_COM_GPU_MEM_POD\":"
                      "\"14\",\"ALIYUN_COM_GPU_MEM_DEV\":\"16\"}");
    suite_extender(ARGV(ALL));
}

TEST(filter_and_prioritize_are_served_under_every_path)
{
    static const char *const roots[] = {"/gpushare-scheduler/", "/",
                                        "/apis/nvidia-gpu-scheduler/v1/schedule/"};
    static const char *const hosts[] = {"big", "full", "small"};
    cleanup_buf struct buf four = {0}, two = {0};
    set_up();
    lib_filter_body(&four, "p", 4, ARGV("full", "big", "small", "nowhere"));
    lib_filter_body(&two, "p", 2, ARGV("big", "full", "small"));
    array_items(root, roots) {
        const json_t *j = peer_post(&extender.verbs, lib_fmt("%sfilter", *root), four.p),
                     *scores = peer_post(&extender.verbs, lib_fmt("%sprioritize", *root),
                                         two.p);
        json_int_t score[3];
        ck_assert_str_eq(lib_text(j, "NodeNames"), "[\"big\"]");
        ck_assert_contains(lib_str(j, "FailedNodes.full"), "needs 4096 MiB on one card");
        ck_assert_contains(lib_str(j, "FailedAndUnresolvableNodes.small"),
                           "the largest card has 2048 MiB");
        ck_assert_int_ne(!lib_at(j, "FailedNodes.nowhere"),
                         !lib_at(j, "FailedAndUnresolvableNodes.nowhere"));
        ck_assert_at(j, "Error", "");
        ck_assert_uint_eq(json_array_size(scores), 3);
        for (size_t k = 0; k < 3; k++) {
            const json_t *host = json_array_get(scores, k);
            ck_assert_at(host, "Host", hosts[k]);
            score[k] = lib_int(host, "Score");
            ck_assert(score[k] >= 0 && score[k] <= 10);
        }
        /* No memory becomes unusable, so the node with less free memory is better. */
        ck_assert_int_gt(score[1], score[0]);
        ck_assert_int_gt(score[2], score[0]);
    }
}

TEST(bind_is_served_under_every_path)
{
    static const char *const paths[] = {"/gpushare-scheduler/bind", "/bind"};
    set_up();
    array_indices(i, paths) {
        cleanup_buf struct buf body = {0};
        const char *name = lib_fmt("p%zu", i);
        sim_add_pod(&sim, name, 3);
        lib_bind_body(&body, name, "big");
        ck_assert_str_eq(lib_text(peer_post(&extender.verbs, paths[i], body.p), "Error"),
                         "\"\"");
        const json_t *pod =
            peer_get(&sim.api, lib_fmt("/api/v1/namespaces/default/pods/%s", name));
        static const char *const notes[][2] = {
            {"ALIYUN_COM_GPU_MEM_IDX", "0"},
            {"ALIYUN_COM_GPU_MEM_DEV", "16"},
            {"ALIYUN_COM_GPU_MEM_POD", "3"},
            {"ALIYUN_COM_GPU_MEM_ASSIGNED", "false"},
            {"gpushare/card-uuid", "GPU-big-0"},
            {"scheduler.framework.gpushare.allocation", "{\"0\":{\"0\":3}}"}};
        ck_assert_at(pod, "spec.nodeName", "big");
        array_indices(k, notes)
            ck_assert_str_eq(lib_annotation(pod, notes[k][0]), notes[k][1]);
    }
    ck_assert_int_eq(sim_count(&sim, "create", "pods", "binding"), 2);
    oracle_agrees(&sim.api, &extender);
}

TEST(read_only_endpoints_are_served_on_both_ports)
{
    static const char *const inspects[] = {"/inspect", "/gpushare-scheduler/inspect"};
    set_up();
    const struct peer *const ports[] = {&extender.verbs, &extender.observers};
    array_items(port, ports) {
        ck_assert(peer_says(*port, "/healthz", 200, "ok\n"));
        ck_assert(peer_says(*port, "/readyz", 200, "ok\n"));
        ck_assert_str_ne(lib_str(peer_get(*port, "/version"), "version"), "");
        array_items(inspect, inspects) {
            json_t *all = peer_get(*port, *inspect);
            ck_assert_uint_eq(lib_size(all, "nodes"), 3);
            ck_assert_at(all, "unit", "GiB");
            const json_t *j = peer_get(*port, lib_fmt("%s/full", *inspect));
            ck_assert_at(j, "nodes.0.name", "full");
            ck_assert_int_eq(lib_int(j, "nodes.0.usedGPU"), 14);
            ck_assert_uint_eq(peer_status(*port, lib_fmt("%s/nowhere", *inspect)), 404);
        }
    }
    /* The observe port does not serve the verbs. */
    cleanup_buf struct buf body = {0}, reply = {0};
    lib_filter_body(&body, "p", 4, ARGV("big"));
    ck_assert_uint_eq(peer_call(&extender.observers, "POST", "/filter", body.p, &reply),
                      404);
    oracle_agrees(&sim.api, &extender);
}

/* -- recorded requests of kube-scheduler -- */

#define DATA "test/data/kube-scheduler/"

/* Sends the request with the headers of Go's client. */
static json_t *send_as_go(const char *path, const char *body)
{
    struct raw c;
    struct raw_reply r = {0};
    raw_open(&c, extender.verbs.port);
    ck_assert(raw_sendf(&c,
                        "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n"
                        "User-Agent: Go-http-client/1.1\r\nContent-Length: %zu\r\n"
                        "Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n",
                        path, extender.verbs.port, strlen(body)));
    ck_assert(raw_send(&c, body, strlen(body)));
    ck_assert_int_eq(raw_read(&c, &r), RAW_OK);
    ck_assert_msg(r.status == 200, "%u: %s", r.status, r.body.p);
    json_t *j = lib_parse(r.body.p, r.body.n);
    raw_reply_fini(&r);
    raw_close(&c);
    return j;
}

/* Every candidate fits, so the reply has the list of the request, with so many. */
static void check_recorded_filter(const char *file, size_t at_least)
{
    const char *body = lib_file(lib_fmt(DATA "%s", file));
    const json_t *args = lib_parse(body, strlen(body));
    bool by_name = json_is_array(lib_at(args, "NodeNames"));
    const char *list = by_name ? "NodeNames" : "Nodes.items";
    json_t *item, *sent = lib_at(args, list);
    lib_each(item, sent)
        sim_add_node(&sim, lib_str(item, by_name ? "" : "metadata.name"), 2, 16);
    suite_extender(ARGV(ALL));
    const json_t *reply = send_as_go("/gpushare-scheduler/filter", body),
                 *scores = send_as_go("/gpushare-scheduler/prioritize", body);
    ck_assert(json_equal(lib_at(reply, list), sent));
    ck_assert(json_is_null(lib_at(reply, by_name ? "Nodes" : "NodeNames")));
    ck_assert_uint_eq(json_array_size(scores), json_array_size(sent));
    ck_assert_uint_gt(json_array_size(sent), at_least);
    extender_stop(&extender);
}

TEST(recorded_filters_are_answered_in_kind)
{
    check_recorded_filter("names-100-filter.json", 50);
    check_recorded_filter("names-1000-filter.json", 400);
    check_recorded_filter("nodes-100-filter.json", 50);
}

SUITE_MAIN(150, NULL)
