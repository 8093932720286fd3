/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "integration/suite.h"
#include "lib/watch.h"

/*
 * gpunodes and gpupods of the running extender: lists, watches and unknown paths.
 * test/extender/test_gpuapi.c tests the bytes of a line, test_view_auth.c who may see them.
 */

#define API         "/apis/nvidia-gpu-scheduler/v1"
#define WATCH_NODES API "/gpunodes?watch=true"
#define WATCH_PODS  API "/gpupods?watch=true"

static void start(void)
{
    extender_start(&extender, &sim, NULL);
    lib_wait(peer_status(&extender.observers, API "/gpunodes") == 200);
}

static void assert_line(struct watch *w, const char *text, const char *also)
{
    ck_assert_contains(watch_until(w, text), also);
}

TEST(discovery_lists_and_unknown_paths)
{
    struct raw c;
    struct raw_reply r = {0};
    sim_add_node(&sim, "n2", 1, 16);
    sim_add_node(&sim, "n1", 2, 16);
    sim_add_pod(&sim, "p1", 4);
    start();
    ck_assert(extender_bind(&extender, "p1", "n1", NULL));
    unsigned ports[] = {extender.observers.port, extender.verbs.port};
    array_items(x, ports) {
        raw_open(&c, *x);
        raw_call(&c, &r, "GET " API " HTTP/1.1\r\nHost: localhost\r\n\r\n");
        ck_assert_span_eq(
            buf_span(&r.body),
            "{\"kind\":\"APIResourceList\",\"apiVersion\":\"v1\",\"groupVersion\":"
            "\"nvidia-gpu-scheduler/v1\",\"resources\":[{\"name\":\"gpupods\","
            "\"singularName\":\"gpupod\",\"namespaced\":false,\"kind\":\"GpuPod\","
            "\"verbs\":[\"list\",\"watch\"]},{\"name\":\"gpunodes\",\"singularName\":"
            "\"gpunode\",\"namespaced\":false,\"kind\":\"GpuNode\",\"verbs\":[\"list\","
            "\"watch\"]}]}");
        ck_assert_span_eq(raw_header(&r, "Content-Type"), "application/json");

        /* Only the exact value "true" opens a watch. */
        static const char *const lists[] = {"", "?watch=1", "?watch=True", "?watch"};
        array_items(e, lists) {
            raw_call(&c, &r,
                     lib_fmt("GET " API "/gpunodes%s HTTP/1.1\r\nHost: localhost\r\n\r\n",
                             *e));
            ck_assert_uint_eq(r.status, 200);
            ck_assert(span_starts(buf_span(&r.body), SPAN("{\"metadata\":{},\"items\":[{"
                                                          "\"kind\":\"GpuNode\",")));
            const json_t *list = lib_parse(r.body.p, r.body.n);
            ck_assert_uint_eq(lib_size(list, "items"), 2);
            ck_assert_at(list, "items.0.metadata.name", "n1");
            ck_assert_at(list, "items.1.metadata.name", "n2");
            ck_assert_at(list, "items.1.status.health", "True");
        }

        static const char *const unknown[] = {"GET /apis",
                                              "GET /apis/",
                                              "GET " API "/",
                                              "GET " API "/gpunodes/",
                                              "POST /openapi/v2",
                                              "GET " API "/gpunodes/n1",
                                              "DELETE " API "/nothing"};
        array_items(u, unknown) {
            bool api = strstr(*u, "/apis") != NULL;
            raw_call(&c, &r, lib_fmt("%s HTTP/1.1\r\nHost: localhost\r\n\r\n", *u));
            ck_assert_uint_eq(r.status, 404);
            if (!api)
                continue;
            ck_assert_span_eq(buf_span(&r.body),
                              "{\"code\":404,\"msg\":\"api not found\"}\n");
            ck_assert_span_eq(raw_header(&r, "X-Content-Type-Options"), "nosniff");
            ck_assert_span_eq(raw_header(&r, "Content-Type"), "application/json");
        }
        raw_call(&c, &r, "DELETE " API "/gpupods HTTP/1.1\r\nHost: localhost\r\n\r\n");
        ck_assert_uint_eq(r.status, 405);
        ck_assert_uint_eq(r.body.n, 0);
        ck_assert_span_eq(raw_header(&r, "Allow"), "GET, HEAD");
        if (*x == extender.verbs.port) {
            raw_call(&c, &r,
                     "GET " API "/schedule/filter HTTP/1.1\r\nHost: localhost\r\n\r\n");
            ck_assert_uint_eq(r.status, 405);
            ck_assert_span_eq(raw_header(&r, "Allow"), "POST");
        }
        raw_close(&c);
    }
    raw_reply_fini(&r);
}

TEST(a_watch_delivers_every_change)
{
    struct watch nodes, pods, late_pods;
    sim_add_node(&sim, "n1", 2, 16);
    start();
    watch_open(&nodes, extender.observers.port, WATCH_NODES);
    watch_open(&pods, extender.verbs.port, WATCH_PODS);
    assert_line(&nodes, "\"name\":\"n1\"", "{\"GpuNode\":{\"kind\":\"GpuNode\",");
    watch_until(&nodes, ""); /* the end of the initial state */
    watch_until(&pods, "");

    sim_add_pod(&sim, "p1", 16); /* all units of a card */
    lib_wait(extender_bind(&extender, "p1", "n1", NULL));
    assert_line(&pods, "\"pod_name\":\"p1\"",
                "\"containers_device\":[{\"container_name\":\"c\",\"device_info\":[{"
                "\"device_id\":\"GPU-n1-0\"");
    assert_line(&nodes, "\"device_busy\":[\"GPU-n1-0\"]", "\"Type\":\"SYNCED\"}");
    lib_wait(lib_size(peer_get(&extender.observers, API "/gpupods"), "items") == 1);
    watch_open(&late_pods, extender.observers.port, WATCH_PODS);
    assert_line(&late_pods, "\"pod_name\":\"p1\"", "\"Type\":\"SYNCED\"}");

    sim_add_scv(&sim, "n1", 2, 16, 1); /* card 1 is unhealthy */
    assert_line(&nodes, "\"GPU-n1-1\"]", "\"device_busy\":[\"GPU-n1-0\",\"GPU-n1-1\"]");
    sim_delete_pod(&sim, "p1");
    ck_assert_str_eq(watch_until(&pods, "DELETED"),
                     "{\"GpuPod\":{\"metadata\":{\"name\":\"default-p1\","
                     "\"namespace\":\"kube-system\",\"creationTimestamp\":null},"
                     "\"spec\":{},\"status\":{}},\"Type\":\"DELETED\"}");
    assert_line(&late_pods, "DELETED", "default-p1");
    assert_line(&nodes, "\"device_busy\":[\"GPU-n1-1\"]", "\"Type\":\"SYNCED\"}");

    /* An orderly stop ends a watch with its last chunk. */
    program_signal(&extender.program, SIGTERM);
    while (watch_line(&nodes))
        ;
    watch_close(&nodes);
    watch_close(&pods);
    watch_close(&late_pods);
}

TEST(lists_and_watches_are_rejected_before_the_initial_sync)
{
    sim_add_node(&sim, "n1", 2, 16);
    sim_fault(
        &sim,
        "{\"verb\":\"list\",\"resource\":\"pods\",\"action\":\"answer\",\"status\":503}");
    extender_begin(&extender, &sim, NULL);
    lib_wait(sim_fired(&sim) > 0);
    ck_assert(peer_says(&extender.observers, API "/gpunodes", 503,
                        "not ready: the first list of "));
    ck_assert_uint_eq(peer_status(&extender.observers, API "/gpunodes?watch=true"), 503);
    ck_assert(
        peer_says(&extender.observers, "/inspect?watch=true", 503, "{\"error\":\""));
    ck_assert_uint_eq(peer_status(&extender.observers, API), 200);
    ck_assert_uint_eq(peer_status(&extender.observers, "/"), 200);
    sim_no_faults(&sim);
    lib_wait(peer_status(&extender.observers, API "/gpunodes") == 200);
}

SUITE_MAIN(120, NULL)
