/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "lib/raw.h"
#include "lib/sim.h"

/*
 * The verbs and the read-only endpoints over HTTP, against the real extender. Filter answers
 * with all nodes here; test_decide.c has the other answers.
 */
#define ALL "--filter-answer=all"

struct fixture {
    struct sim sim;
    struct extender extender;
};

static void set_up(struct fixture *f)
{
    sim_start(&f->sim, ARGV(NULL));
    sim_add_node(&f->sim, "big", 2, 16);
    sim_add_node(&f->sim, "small", 2, 2);
    sim_add_node(&f->sim, "full", 1, 16);
    sim_add_bound_pod(&f->sim, "old", 14, "full",
                      "{\"ALIYUN_COM_GPU_MEM_IDX\":\"0\",\"ALIYUN_COM_GPU_MEM_POD\":"
                      "\"14\",\"ALIYUN_COM_GPU_MEM_DEV\":\"16\"}");
    extender_start(&f->extender, &f->sim, ARGV(ALL));
}

static void tear_down(struct fixture *f)
{
    extender_stop(&f->extender);
    sim_stop(&f->sim);
}

START_TEST(filter_and_prioritize_are_served_under_every_path)
{
    static const char *const roots[] = {"/gpushare-scheduler/", "/",
                                        "/apis/nvidia-gpu-scheduler/v1/schedule/"};
    static const char *const hosts[] = {"big", "full", "small"};
    struct fixture f;
    cleanup_buf struct buf four = {0}, two = {0};
    set_up(&f);
    lib_filter_body(&four, "p", 4, ARGV("full", "big", "small", "nowhere"));
    lib_filter_body(&two, "p", 2, ARGV("big", "full", "small"));
    for (size_t i = 0; i < ARRAY_LEN(roots); i++) {
        cleanup_free char *filter = xasprintf("%sfilter", roots[i]),
                          *prioritize = xasprintf("%sprioritize", roots[i]);
        cleanup_json json_t *j = peer_json(&f.extender.verbs, "POST", filter, four.p),
                            *scores =
                                peer_json(&f.extender.verbs, "POST", prioritize, two.p);
        json_int_t score[3];
        ck_assert_uint_eq(json_array_size(lib_at(j, "NodeNames")), 1);
        ck_assert_str_eq(lib_str(j, "NodeNames.0"), "big");
        ck_assert_contains(lib_str(j, "FailedNodes.full"), "needs 4096 MiB on one card");
        ck_assert_contains(lib_str(j, "FailedAndUnresolvableNodes.small"),
                           "the largest card has 2048 MiB");
        ck_assert_int_ne(!lib_at(j, "FailedNodes.nowhere"),
                         !lib_at(j, "FailedAndUnresolvableNodes.nowhere"));
        ck_assert_str_eq(lib_str(j, "Error"), "");
        ck_assert_uint_eq(json_array_size(scores), 3);
        for (size_t k = 0; k < 3; k++) {
            const json_t *host = json_array_get(scores, k);
            ck_assert_str_eq(lib_str(host, "Host"), hosts[k]);
            score[k] = json_integer_value(lib_at(host, "Score"));
            ck_assert(score[k] >= 0 && score[k] <= 10);
        }
        /* No memory becomes unusable, so the node with less free memory is better. */
        ck_assert_int_gt(score[1], score[0]);
        ck_assert_int_gt(score[2], score[0]);
    }
    tear_down(&f);
}

START_TEST(bind_is_served_under_every_path)
{
    static const char *const paths[] = {"/gpushare-scheduler/bind", "/bind"};
    struct fixture f;
    set_up(&f);
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        cleanup_buf struct buf body = {0};
        char name[16], path[64];
        snprintf(name, sizeof name, "p%zu", i);
        snprintf(path, sizeof path, "/api/v1/namespaces/default/pods/%s", name);
        sim_add_pod(&f.sim, name, 3);
        lib_bind_body(&body, name, "big");
        cleanup_json json_t *j = peer_json(&f.extender.verbs, "POST", paths[i], body.p);
        ck_assert_ptr_nonnull(lib_at(j, "Error"));
        ck_assert_str_eq(lib_str(j, "Error"), "");
        cleanup_json json_t *pod = peer_json(&f.sim.api, "GET", path, NULL);
        json_t *notes = lib_at(pod, "metadata.annotations");
        ck_assert_str_eq(lib_str(pod, "spec.nodeName"), "big");
        ck_assert_str_eq(lib_str(notes, "ALIYUN_COM_GPU_MEM_IDX"), "0");
        ck_assert_str_eq(lib_str(notes, "ALIYUN_COM_GPU_MEM_DEV"), "16");
        ck_assert_str_eq(lib_str(notes, "ALIYUN_COM_GPU_MEM_POD"), "3");
        ck_assert_str_eq(lib_str(notes, "ALIYUN_COM_GPU_MEM_ASSIGNED"), "false");
        ck_assert_str_eq(lib_str(notes, "gpushare/card-uuid"), "GPU-big-0");
        const char *allocation = json_string_value(
            json_object_get(notes, "scheduler.framework.gpushare.allocation"));
        ck_assert_str_eq(allocation, "{\"0\":{\"0\":3}}");
    }
    ck_assert_int_eq(sim_count(&f.sim, "create", "pods", "binding"), 2);
    oracle_agrees(&f.sim.api, &f.extender);
    tear_down(&f);
}

START_TEST(read_only_endpoints_are_served_on_both_ports)
{
    static const char *const inspects[] = {"/inspect", "/gpushare-scheduler/inspect"};
    struct fixture f;
    set_up(&f);
    const struct peer *const ports[] = {&f.extender.verbs, &f.extender.observers};
    for (size_t i = 0; i < ARRAY_LEN(ports); i++) {
        cleanup_buf struct buf reply = {0};
        ck_assert_uint_eq(peer_call(ports[i], "GET", "/healthz", NULL, &reply), 200);
        ck_assert_str_eq(reply.p, "ok\n");
        ck_assert_uint_eq(peer_call(ports[i], "GET", "/readyz", NULL, &reply), 200);
        ck_assert_str_eq(reply.p, "ok\n");
        cleanup_json json_t *version = peer_json(ports[i], "GET", "/version", NULL);
        ck_assert_str_ne(lib_str(version, "version"), "");
        for (size_t k = 0; k < ARRAY_LEN(inspects); k++) {
            cleanup_free char *one = xasprintf("%s/full", inspects[k]);
            cleanup_free char *none = xasprintf("%s/nowhere", inspects[k]);
            cleanup_json json_t *all = peer_json(ports[i], "GET", inspects[k], NULL);
            ck_assert_uint_eq(json_array_size(lib_at(all, "nodes")), 3);
            ck_assert_str_eq(lib_str(all, "unit"), "GiB");
            cleanup_json json_t *j = peer_json(ports[i], "GET", one, NULL);
            json_t *node = json_array_get(lib_at(j, "nodes"), 0);
            ck_assert_str_eq(lib_str(node, "name"), "full");
            ck_assert_int_eq(json_integer_value(lib_at(node, "usedGPU")), 14);
            ck_assert_uint_eq(peer_status(ports[i], none), 404);
        }
    }
    /* The observe port does not serve the verbs. */
    cleanup_buf struct buf body = {0}, reply = {0};
    lib_filter_body(&body, "p", 4, ARGV("big"));
    ck_assert_uint_eq(peer_call(&f.extender.observers, "POST", "/filter", body.p, &reply),
                      404);
    oracle_agrees(&f.sim.api, &f.extender);
    tear_down(&f);
}

/* -- recorded requests of kube-scheduler -- */

#define DATA "test/data/kube-scheduler/"

static void read_body(const char *name, struct buf *out)
{
    struct err err = {0};
    cleanup_free char *path = xasprintf(DATA "%s", name);
    buf_clear(out);
    ck_assert_done(file_read(path, 16 << 20, out, &err), err);
}

/* Sends the request with the headers of Go's client. */
static json_t *send_as_go(const struct extender *e, const char *path,
                          const struct buf *body)
{
    struct raw c;
    struct raw_reply r = {0};
    raw_open(&c, e->verbs.port);
    ck_assert(raw_sendf(&c,
                        "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n"
                        "User-Agent: Go-http-client/1.1\r\nContent-Length: %zu\r\n"
                        "Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n",
                        path, e->verbs.port, body->n));
    ck_assert(raw_send(&c, body->p, body->n));
    ck_assert_int_eq(raw_read(&c, &r), RAW_OK);
    ck_assert_msg(r.status == 200, "%u: %s", r.status, r.body.p);
    json_t *j = json_loadb(r.body.p, r.body.n, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_ptr_nonnull(j);
    raw_reply_fini(&r);
    raw_close(&c);
    return j;
}

/* Every candidate fits, so the reply has the list of the request. Returns how many. */
static size_t check_recorded_filter(const char *file)
{
    struct sim s;
    struct extender e;
    cleanup_buf struct buf body = {0};
    read_body(file, &body);
    cleanup_json json_t *args = json_loadb(body.p, body.n, 0, NULL);
    bool by_name = json_is_array(lib_at(args, "NodeNames"));
    const char *list = by_name ? "NodeNames" : "Nodes.items";
    json_t *item, *sent = lib_at(args, list);
    size_t i;
    sim_start(&s, ARGV(NULL));
    json_array_foreach(sent, i, item) sim_add_node(
        &s, by_name ? json_string_value(item) : lib_str(item, "metadata.name"), 2, 16);
    extender_start(&e, &s, ARGV(ALL));
    cleanup_json json_t *reply = send_as_go(&e, "/gpushare-scheduler/filter", &body),
                        *scores = send_as_go(&e, "/gpushare-scheduler/prioritize", &body);
    ck_assert(json_equal(lib_at(reply, list), sent));
    ck_assert(json_is_null(lib_at(reply, by_name ? "Nodes" : "NodeNames")));
    ck_assert_uint_eq(json_array_size(scores), json_array_size(sent));
    extender_stop(&e);
    sim_stop(&s);
    return json_array_size(sent);
}

START_TEST(recorded_filters_are_answered_in_kind)
{
    ck_assert_uint_gt(check_recorded_filter("names-100-filter.json"), 50);
    ck_assert_uint_gt(check_recorded_filter("names-1000-filter.json"), 400);
    ck_assert_uint_gt(check_recorded_filter("nodes-100-filter.json"), 50);
}

/* Creates the pod of the filter request and sends the bind request for it. */
static void check_recorded_bind(const char *filter, const char *bind)
{
    struct sim s;
    struct extender e;
    cleanup_buf struct buf body = {0};
    read_body(filter, &body);
    cleanup_json json_t *args = json_loadb(body.p, body.n, 0, NULL);
    json_t *pod = lib_at(args, "Pod");
    json_object_set_new(pod, "apiVersion", json_string("v1"));
    json_object_set_new(pod, "kind", json_string("Pod"));
    json_object_del(lib_at(pod, "metadata"), "resourceVersion");
    cleanup_free char *text = json_dumps(pod, 0);
    read_body(bind, &body);
    cleanup_json json_t *wanted = json_loadb(body.p, body.n, 0, NULL);

    sim_start(&s, ARGV(NULL));
    sim_add_node(&s, lib_str(wanted, "Node"), 8, 80);
    sim_load(&s, "%s", text);
    extender_start(&e, &s, ARGV(NULL));
    cleanup_json json_t *reply = send_as_go(&e, "/gpushare-scheduler/bind", &body);
    ck_assert_str_eq(lib_str(reply, "Error"), "");
    cleanup_free char *path =
        xasprintf("/api/v1/namespaces/%s/pods/%s", lib_str(wanted, "PodNamespace"),
                  lib_str(wanted, "PodName"));
    cleanup_json json_t *bound = peer_json(&s.api, "GET", path, NULL);
    ck_assert_str_eq(lib_str(bound, "spec.nodeName"), lib_str(wanted, "Node"));
    ck_assert_str_eq(lib_str(bound, "metadata.uid"), lib_str(wanted, "PodUID"));
    ck_assert_str_eq(
        lib_str(lib_at(bound, "metadata.annotations"), "ALIYUN_COM_GPU_MEM_POD"), "4");
    oracle_agrees(&s.api, &e);
    extender_stop(&e);
    sim_stop(&s);
}

START_TEST(recorded_binds_succeed)
{
    check_recorded_bind("names-100-filter.json", "names-100-bind.json");
    check_recorded_bind("nodes-100-filter.json", "nodes-100-bind.json");
}

LIB_MAIN("verbs", 150, filter_and_prioritize_are_served_under_every_path,
         bind_is_served_under_every_path,
         read_only_endpoints_are_served_on_both_ports,
         recorded_filters_are_answered_in_kind, recorded_binds_succeed)
