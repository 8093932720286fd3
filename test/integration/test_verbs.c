/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "integration/kit.h"
#include "support/raw.h"

/* The verbs and what observers ask for, over HTTP, from the program as it is started. */

struct world {
    struct sim sim;
    struct extender extender;
};

static void world_begin(struct world *w)
{
    sim_start(&w->sim, ARGV(NULL));
    sim_add_node(&w->sim, "big", 2, 16);
    sim_add_node(&w->sim, "small", 2, 2);
    sim_add_node(&w->sim, "full", 1, 16);
    sim_add_bound_pod(&w->sim, "old", 14, "full",
                      "{\"ALIYUN_COM_GPU_MEM_IDX\":\"0\",\"ALIYUN_COM_GPU_MEM_POD\":"
                      "\"14\",\"ALIYUN_COM_GPU_MEM_DEV\":\"16\"}");
    extender_start(&w->extender, &w->sim, ARGV(NULL));
}

static void world_end(struct world *w)
{
    extender_stop(&w->extender);
    sim_stop(&w->sim);
}

static const char *const filter_paths[] = {
    "/gpushare-scheduler/filter", "/filter",
    "/apis/nvidia-gpu-scheduler/v1/schedule/filter"};

START_TEST(filter_answers_under_every_path)
{
    struct world w;
    cleanup_buf struct buf body = {0};
    world_begin(&w);
    kit_filter_body(&body, "p", 4, ARGV("full", "big", "small", "nowhere"));
    for (size_t i = 0; i < ARRAY_LEN(filter_paths); i++) {
        cleanup_json json_t *j =
            peer_json(&w.extender.verbs, "POST", filter_paths[i], body.p);
        ck_assert_uint_eq(json_array_size(kit_at(j, "NodeNames")), 1);
        ck_assert_str_eq(json_string_value(json_array_get(kit_at(j, "NodeNames"), 0)),
                         "big");
        ck_assert_says(kit_str(j, "FailedNodes.full"), "needs 4096 MiB on one card");
        ck_assert_says(kit_str(j, "FailedAndUnresolvableNodes.small"),
                       "the largest card has 2048 MiB");
        ck_assert_int_ne(!kit_at(j, "FailedNodes.nowhere"),
                         !kit_at(j, "FailedAndUnresolvableNodes.nowhere"));
        ck_assert_str_eq(kit_str(j, "Error"), "");
    }
    world_end(&w);
}

START_TEST(prioritize_answers_under_every_path)
{
    static const char *const paths[] = {
        "/gpushare-scheduler/prioritize", "/prioritize",
        "/apis/nvidia-gpu-scheduler/v1/schedule/prioritize"};
    struct world w;
    cleanup_buf struct buf body = {0};
    world_begin(&w);
    kit_filter_body(&body, "p", 2, ARGV("big", "full", "small"));
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        cleanup_json json_t *j = peer_json(&w.extender.verbs, "POST", paths[i], body.p);
        ck_assert_uint_eq(json_array_size(j), 3);
        const char *const hosts[] = {"big", "full", "small"};
        json_int_t scores[3];
        for (size_t k = 0; k < 3; k++) {
            ck_assert_str_eq(kit_str(json_array_get(j, k), "Host"), hosts[k]);
            scores[k] = json_integer_value(kit_at(json_array_get(j, k), "Score"));
            ck_assert_int_ge(scores[k], 0);
            ck_assert_int_le(scores[k], 10);
        }
        /* Nothing is stranded: what leaves less free is better. */
        ck_assert_int_gt(scores[1], scores[0]);
        ck_assert_int_gt(scores[2], scores[0]);
    }
    world_end(&w);
}

START_TEST(bind_answers_under_every_path)
{
    static const char *const paths[] = {"/gpushare-scheduler/bind", "/bind"};
    struct world w;
    world_begin(&w);
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        cleanup_buf struct buf body = {0};
        char name[16], path[64];
        snprintf(name, sizeof name, "p%zu", i);
        snprintf(path, sizeof path, "/api/v1/namespaces/default/pods/%s", name);
        sim_add_pod(&w.sim, name, 3);
        kit_bind_body(&body, name, "big");
        cleanup_json json_t *j = peer_json(&w.extender.verbs, "POST", paths[i], body.p);
        ck_assert_ptr_nonnull(kit_at(j, "Error"));
        ck_assert_str_eq(kit_str(j, "Error"), "");
        cleanup_json json_t *pod = peer_json(&w.sim.api, "GET", path, NULL);
        json_t *notes = kit_at(pod, "metadata.annotations");
        ck_assert_str_eq(kit_str(pod, "spec.nodeName"), "big");
        ck_assert_str_eq(kit_str(notes, "ALIYUN_COM_GPU_MEM_IDX"), "0");
        ck_assert_str_eq(kit_str(notes, "ALIYUN_COM_GPU_MEM_DEV"), "16");
        ck_assert_str_eq(kit_str(notes, "ALIYUN_COM_GPU_MEM_POD"), "3");
        ck_assert_str_eq(kit_str(notes, "ALIYUN_COM_GPU_MEM_ASSIGNED"), "false");
        ck_assert_str_eq(kit_str(notes, "gpushare/card-uuid"), "GPU-big-0");
        const char *allocation = json_string_value(
            json_object_get(notes, "scheduler.framework.gpushare.allocation"));
        ck_assert_str_eq(allocation, "{\"0\":{\"0\":3}}");
    }
    ck_assert_int_eq(sim_count(&w.sim, "create", "pods", "binding"), 2);
    oracle_agrees(&w.sim.api, &w.extender);
    world_end(&w);
}

START_TEST(a_bind_that_cannot_be_says_why)
{
    struct world w;
    cleanup_buf struct buf why = {0};
    world_begin(&w);
    sim_add_pod(&w.sim, "large", 20);
    sim_load(
        &w.sim, "%s",
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"plain\","
        "\"uid\":\"uid-plain\","
        "\"namespace\":\"default\"},\"spec\":{\"containers\":[{\"name\":\"c\",\"image\":"
        "\"i\"}]}}");
    ck_assert(!extender_bind(&w.extender, "large", "big", &why));
    ck_assert_says(why.p, "no card of node big fits");
    ck_assert(!extender_bind(&w.extender, "large", "nowhere", &why));
    ck_assert_says(why.p, "nowhere");
    ck_assert(!extender_bind(&w.extender, "absent", "big", &why));
    ck_assert_says(why.p, "pod not found");
    ck_assert(!extender_bind(&w.extender, "plain", "big", &why));
    ck_assert_says(why.p, "no GPU memory");
    ck_assert_int_eq(sim_count(&w.sim, "create", "pods", "binding"), 0);
    oracle_agrees(&w.sim.api, &w.extender);
    world_end(&w);
}

START_TEST(observers_ask_on_both_ports)
{
    static const char *const inspects[] = {"/inspect", "/gpushare-scheduler/inspect"};
    struct world w;
    world_begin(&w);
    const struct peer *const ports[] = {&w.extender.verbs, &w.extender.observers};
    for (size_t i = 0; i < ARRAY_LEN(ports); i++) {
        cleanup_buf struct buf reply = {0};
        ck_assert_uint_eq(peer_call(ports[i], "GET", "/healthz", NULL, &reply), 200);
        ck_assert_str_eq(reply.p, "ok\n");
        ck_assert_uint_eq(peer_call(ports[i], "GET", "/readyz", NULL, &reply), 200);
        ck_assert_str_eq(reply.p, "ok\n");
        cleanup_json json_t *version = peer_json(ports[i], "GET", "/version", NULL);
        ck_assert_str_ne(kit_str(version, "version"), "");
        for (size_t k = 0; k < ARRAY_LEN(inspects); k++) {
            cleanup_free char *one = xasprintf("%s/full", inspects[k]);
            cleanup_free char *none = xasprintf("%s/nowhere", inspects[k]);
            cleanup_json json_t *all = peer_json(ports[i], "GET", inspects[k], NULL);
            ck_assert_uint_eq(json_array_size(kit_at(all, "nodes")), 3);
            ck_assert_str_eq(kit_str(all, "unit"), "GiB");
            cleanup_json json_t *j = peer_json(ports[i], "GET", one, NULL);
            json_t *node = json_array_get(kit_at(j, "nodes"), 0);
            ck_assert_str_eq(kit_str(node, "name"), "full");
            ck_assert_int_eq(json_integer_value(kit_at(node, "usedGPU")), 14);
            ck_assert_uint_eq(peer_status(ports[i], none), 404);
        }
    }
    /* Only those who may change something have the verbs. */
    cleanup_buf struct buf body = {0}, reply = {0};
    kit_filter_body(&body, "p", 4, ARGV("big"));
    ck_assert_uint_eq(peer_call(&w.extender.observers, "POST", "/filter", body.p, &reply),
                      404);
    oracle_agrees(&w.sim.api, &w.extender);
    world_end(&w);
}

START_TEST(a_connection_is_used_again)
{
    struct world w;
    struct raw c;
    struct raw_reply r = {0};
    cleanup_buf struct buf body = {0}, request = {0};
    world_begin(&w);
    kit_filter_body(&body, "p", 4, ARGV("big", "full"));
    buf_printf(&request,
               "POST /gpushare-scheduler/filter HTTP/1.1\r\nHost: x\r\n"
               "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
               body.n, body.p);
    raw_open(&c, w.extender.verbs.port);
    for (int i = 0; i < 50; i++) {
        raw_call(&c, &r, i % 2 ? "GET /inspect HTTP/1.1\r\nHost: x\r\n\r\n" : request.p);
        ck_assert_uint_eq(r.status, 200);
    }
    /* Two at once: answered in their order. */
    ck_assert(raw_sendf(&c, "%sGET /version HTTP/1.1\r\nHost: x\r\n\r\n", request.p));
    ck_assert_int_eq(raw_read(&c, &r), RAW_OK);
    ck_assert_says(r.body.p, "NodeNames");
    ck_assert_int_eq(raw_read(&c, &r), RAW_OK);
    ck_assert_says(r.body.p, "version");
    raw_reply_fini(&r);
    raw_close(&c);
    world_end(&w);
}

/* -- what kube-scheduler really sends -- */

#define DATA "test/data/kube-scheduler/"

static void read_body(const char *name, struct buf *out)
{
    struct err err = {0};
    cleanup_free char *path = xasprintf(DATA "%s", name);
    buf_clear(out);
    ck_assert_done(file_read(path, 16 << 20, out, &err), err);
}

/* Writes the request as Go's client does. */
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

/* The candidates of a recorded filter request: their names, in order. */
static json_t *candidates(const json_t *args)
{
    json_t *names = json_array(), *node;
    size_t i;
    if (json_is_array(kit_at(args, "NodeNames"))) {
        json_decref(names);
        return json_incref(kit_at(args, "NodeNames"));
    }
    json_array_foreach(kit_at(args, "Nodes.items"), i, node)
        json_array_append_new(names, json_string(kit_str(node, "metadata.name")));
    return names;
}

enum { ROOMY, TOO_SMALL, TAKEN, UNKNOWN, SORTS };

static void make_nodes(const struct sim *s, const json_t *names)
{
    size_t i;
    json_t *item;
    json_array_foreach(names, i, item)
    {
        const char *name = json_string_value(item);
        cleanup_free char *pod = xasprintf("old-%zu", i);
        if (i % SORTS == ROOMY)
            sim_add_node(s, name, 2, 16);
        else if (i % SORTS == TOO_SMALL)
            sim_add_node(s, name, 2, 2);
        else if (i % SORTS == TAKEN)
            sim_add_node(s, name, 1, 16);
        if (i % SORTS == TAKEN)
            sim_add_bound_pod(s, pod, 14, name,
                              "{\"ALIYUN_COM_GPU_MEM_IDX\":\"0\","
                              "\"ALIYUN_COM_GPU_MEM_POD\":\"14\"}");
    }
}

/* Is the node among those that passed? In kind: as a name, or as the object that came. */
static bool passed(const json_t *reply, const json_t *args, const char *name)
{
    size_t i, k;
    json_t *item, *sent;
    json_array_foreach(kit_at(reply, "NodeNames"), i, item)
    {
        if (strcmp(json_string_value(item), name) == 0)
            return true;
    }
    json_array_foreach(kit_at(reply, "Nodes.items"), i, item)
    {
        if (strcmp(kit_str(item, "metadata.name"), name) != 0)
            continue;
        json_array_foreach(kit_at(args, "Nodes.items"), k, sent)
        {
            if (json_equal(item, sent))
                return true;
        }
        ck_abort_msg("node %s came back changed", name);
    }
    return false;
}

static void check_reply(const json_t *reply, const json_t *args, const json_t *names)
{
    size_t i, n_passed = 0;
    json_t *item;
    bool in_kind = json_is_array(kit_at(args, "NodeNames"));
    ck_assert_int_eq(json_is_array(kit_at(reply, "NodeNames")), in_kind);
    ck_assert_int_eq(json_is_object(kit_at(reply, "Nodes")), !in_kind);
    json_array_foreach(names, i, item)
    {
        const char *name = json_string_value(item);
        bool fits = passed(reply, args, name);
        bool failed = json_object_get(kit_at(reply, "FailedNodes"), name);
        bool never = json_object_get(kit_at(reply, "FailedAndUnresolvableNodes"), name);
        ck_assert_msg(fits + failed + never == 1, "%s is in %d places", name,
                      fits + failed + never);
        if (i % SORTS == ROOMY)
            ck_assert_msg(fits, "%s has room", name);
        else if (i % SORTS == TOO_SMALL)
            ck_assert_msg(never, "%s is too small for ever", name);
        else if (i % SORTS == TAKEN)
            ck_assert_msg(failed, "%s is taken now", name);
        else
            ck_assert_msg(!fits, "nothing is known of %s", name);
        n_passed += fits;
    }
    json_t *list = kit_at(reply, in_kind ? "NodeNames" : "Nodes.items");
    ck_assert_uint_eq(json_array_size(list), n_passed);
    ck_assert_uint_eq(n_passed + json_object_size(kit_at(reply, "FailedNodes")) +
                          json_object_size(kit_at(reply, "FailedAndUnresolvableNodes")),
                      json_array_size(names));
}

static void check_recorded_filter(const char *file)
{
    struct sim s;
    struct extender e;
    cleanup_buf struct buf body = {0};
    read_body(file, &body);
    cleanup_json json_t *args = json_loadb(body.p, body.n, 0, NULL);
    cleanup_json json_t *names = candidates(args);
    ck_assert_uint_gt(json_array_size(names), 50);
    sim_start(&s, ARGV(NULL));
    make_nodes(&s, names);
    extender_start(&e, &s, ARGV(NULL));
    cleanup_json json_t *reply = send_as_go(&e, "/gpushare-scheduler/filter", &body);
    check_reply(reply, args, names);
    cleanup_json json_t *scores = send_as_go(&e, "/gpushare-scheduler/prioritize", &body);
    ck_assert_uint_eq(json_array_size(scores), json_array_size(names));
    extender_stop(&e);
    sim_stop(&s);
}

START_TEST(recorded_names_are_answered_with_names)
{
    check_recorded_filter("names-100-filter.json");
    check_recorded_filter("names-1000-filter.json");
}

START_TEST(recorded_nodes_are_answered_with_nodes)
{
    check_recorded_filter("nodes-100-filter.json");
}

/* The pod of the filter request is bound as the bind request says. */
static void check_recorded_bind(const char *filter, const char *bind)
{
    struct sim s;
    struct extender e;
    cleanup_buf struct buf body = {0};
    read_body(filter, &body);
    cleanup_json json_t *args = json_loadb(body.p, body.n, 0, NULL);
    json_t *pod = kit_at(args, "Pod");
    json_object_set_new(pod, "apiVersion", json_string("v1"));
    json_object_set_new(pod, "kind", json_string("Pod"));
    json_object_del(kit_at(pod, "metadata"), "resourceVersion");
    cleanup_free char *text = json_dumps(pod, 0);
    read_body(bind, &body);
    cleanup_json json_t *wanted = json_loadb(body.p, body.n, 0, NULL);

    sim_start(&s, ARGV(NULL));
    sim_add_node(&s, kit_str(wanted, "Node"), 8, 80);
    sim_load(&s, "%s", text);
    extender_start(&e, &s, ARGV(NULL));
    cleanup_json json_t *reply = send_as_go(&e, "/gpushare-scheduler/bind", &body);
    ck_assert_str_eq(kit_str(reply, "Error"), "");
    cleanup_free char *path =
        xasprintf("/api/v1/namespaces/%s/pods/%s", kit_str(wanted, "PodNamespace"),
                  kit_str(wanted, "PodName"));
    cleanup_json json_t *bound = peer_json(&s.api, "GET", path, NULL);
    ck_assert_str_eq(kit_str(bound, "spec.nodeName"), kit_str(wanted, "Node"));
    ck_assert_str_eq(kit_str(bound, "metadata.uid"), kit_str(wanted, "PodUID"));
    ck_assert_str_eq(
        kit_str(kit_at(bound, "metadata.annotations"), "ALIYUN_COM_GPU_MEM_POD"), "4");
    oracle_agrees(&s.api, &e);
    extender_stop(&e);
    sim_stop(&s);
}

START_TEST(recorded_binds_bind)
{
    check_recorded_bind("names-100-filter.json", "names-100-bind.json");
    check_recorded_bind("nodes-100-filter.json", "nodes-100-bind.json");
}

KIT_MAIN("verbs", 150, filter_answers_under_every_path,
         prioritize_answers_under_every_path, bind_answers_under_every_path,
         a_bind_that_cannot_be_says_why, observers_ask_on_both_ports,
         a_connection_is_used_again, recorded_names_are_answered_with_names,
         recorded_nodes_are_answered_with_nodes, recorded_binds_bind)
