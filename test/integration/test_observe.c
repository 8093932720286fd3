/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <string.h>

#include "base/mem.h"
#include "lib/sim.h"
#include "lib/watch.h"

/*
 * gpunodes and gpupods of the running extender: lists, watches and unknown paths.
 * test/extender/test_gpuapi.c tests the bytes of an object, test_view_auth.c who may see them.
 */

#define API         "/apis/nvidia-gpu-scheduler/v1"
#define WATCH_NODES API "/gpunodes?watch=true"
#define WATCH_PODS  API "/gpupods?watch=true"

static void start(struct extender *e, const struct sim *s)
{
    extender_start(e, s, ARGV(NULL));
    lib_wait(peer_status(&e->observers, API "/gpunodes") == 200);
}

static void assert_line(struct watch *w, const char *text, const char *also)
{
    cleanup_free char *line = watch_until(w, text);
    ck_assert_contains(line, also);
}

START_TEST(discovery_lists_and_unknown_paths)
{
    struct sim s;
    struct extender e;
    struct raw c;
    struct raw_reply r = {0};
    sim_start(&s, ARGV(NULL));
    sim_add_node(&s, "n2", 1, 16);
    sim_add_node(&s, "n1", 2, 16);
    sim_add_pod(&s, "p1", 4);
    start(&e, &s);
    ck_assert(extender_bind(&e, "p1", "n1", NULL));
    unsigned ports[] = {e.observers.port, e.verbs.port};
    for (size_t i = 0; i < ARRAY_LEN(ports); i++) {
        raw_open(&c, ports[i]);
        raw_call(&c, &r, "GET " API " HTTP/1.1\r\nHost: x\r\n\r\n");
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
        for (size_t k = 0; k < ARRAY_LEN(lists); k++) {
            cleanup_free char *call =
                xasprintf("GET " API "/gpunodes%s HTTP/1.1\r\nHost: x\r\n\r\n", lists[k]);
            raw_call(&c, &r, call);
            ck_assert_uint_eq(r.status, 200);
            ck_assert(span_starts(buf_span(&r.body), SPAN("{\"metadata\":{},\"items\":[{"
                                                          "\"kind\":\"GpuNode\",")));
            cleanup_json json_t *list = json_loadb(r.body.p, r.body.n, 0, NULL);
            json_t *items = json_object_get(list, "items");
            ck_assert_uint_eq(json_array_size(items), 2);
            ck_assert_str_eq(lib_str(json_array_get(items, 0), "metadata.name"), "n1");
            ck_assert_str_eq(lib_str(json_array_get(items, 1), "metadata.name"), "n2");
            ck_assert_str_eq(lib_str(json_array_get(items, 1), "status.health"), "True");
        }

        static const char *const unknown[] = {"GET /apis",
                                              "GET /apis/",
                                              "GET " API "/",
                                              "GET " API "/gpunodes/",
                                              "POST /openapi/v2",
                                              "GET " API "/gpunodes/n1",
                                              "DELETE " API "/nothing"};
        for (size_t k = 0; k < ARRAY_LEN(unknown); k++) {
            bool api = strstr(unknown[k], "/apis") != NULL;
            cleanup_free char *call =
                xasprintf("%s HTTP/1.1\r\nHost: x\r\n\r\n", unknown[k]);
            raw_call(&c, &r, call);
            ck_assert_uint_eq(r.status, 404);
            if (!api)
                continue;
            ck_assert_span_eq(buf_span(&r.body),
                              "{\"code\":404,\"msg\":\"api not found\"}\n");
            ck_assert_span_eq(raw_header(&r, "X-Content-Type-Options"), "nosniff");
            ck_assert_span_eq(raw_header(&r, "Content-Type"), "application/json");
        }
        raw_call(&c, &r, "DELETE " API "/gpupods HTTP/1.1\r\nHost: x\r\n\r\n");
        ck_assert_uint_eq(r.status, 405);
        ck_assert_uint_eq(r.body.n, 0);
        ck_assert_span_eq(raw_header(&r, "Allow"), "GET, HEAD");
        if (ports[i] == e.verbs.port) {
            raw_call(&c, &r, "GET " API "/schedule/filter HTTP/1.1\r\nHost: x\r\n\r\n");
            ck_assert_uint_eq(r.status, 405);
            ck_assert_span_eq(raw_header(&r, "Allow"), "POST");
        }
        raw_close(&c);
    }
    raw_reply_fini(&r);
    extender_stop(&e);
    sim_stop(&s);
}
END_TEST

static void wait_for_gpupod(const struct extender *e)
{
    lib_wait(({
        cleanup_json json_t *list = peer_json(&e->observers, "GET", API "/gpupods", NULL);
        json_array_size(json_object_get(list, "items")) == 1;
    }));
}

START_TEST(a_watch_delivers_every_change)
{
    struct sim s;
    struct extender e;
    struct watch nodes, pods, late_pods;
    sim_start(&s, ARGV(NULL));
    sim_add_node(&s, "n1", 2, 16);
    start(&e, &s);
    watch_open(&nodes, e.observers.port, WATCH_NODES);
    watch_open(&pods, e.verbs.port, WATCH_PODS);
    assert_line(&nodes, "\"name\":\"n1\"", "{\"GpuNode\":{\"kind\":\"GpuNode\",");
    free(watch_until(&nodes, "")); /* the end of the initial state */
    free(watch_until(&pods, ""));

    sim_add_pod(&s, "p1", 16); /* all units of a card */
    lib_wait(extender_bind(&e, "p1", "n1", NULL));
    assert_line(&pods, "\"pod_name\":\"p1\"",
                "\"containers_device\":[{\"container_name\":\"c\",\"device_info\":[{"
                "\"device_id\":\"GPU-n1-0\"");
    assert_line(&nodes, "\"device_busy\":[\"GPU-n1-0\"]", "\"Type\":\"SYNCED\"}");
    wait_for_gpupod(&e);
    watch_open(&late_pods, e.observers.port, WATCH_PODS);
    assert_line(&late_pods, "\"pod_name\":\"p1\"", "\"Type\":\"SYNCED\"}");

    sim_add_scv(&s, "n1", 2, 16, 1); /* card 1 is unhealthy */
    assert_line(&nodes, "\"GPU-n1-1\"]", "\"device_busy\":[\"GPU-n1-0\",\"GPU-n1-1\"]");
    sim_delete_pod(&s, "p1");
    cleanup_free char *gone = watch_until(&pods, "DELETED");
    ck_assert_str_eq(gone, "{\"GpuPod\":{\"metadata\":{\"name\":\"default-p1\","
                           "\"namespace\":\"kube-system\",\"creationTimestamp\":null},"
                           "\"spec\":{},\"status\":{}},\"Type\":\"DELETED\"}");
    assert_line(&late_pods, "DELETED", "default-p1");
    assert_line(&nodes, "\"device_busy\":[\"GPU-n1-1\"]", "\"Type\":\"SYNCED\"}");

    /* An orderly stop ends a watch with its last chunk. */
    program_signal(&e.program, SIGTERM);
    char *line;
    while ((line = watch_line(&nodes)))
        free(line);
    watch_close(&nodes);
    watch_close(&pods);
    watch_close(&late_pods);
    extender_stop(&e);
    sim_stop(&s);
}
END_TEST

START_TEST(lists_and_watches_are_rejected_before_the_initial_sync)
{
    struct sim s;
    struct extender e;
    cleanup_buf struct buf said = {0};
    sim_start(&s, ARGV(NULL));
    sim_add_node(&s, "n1", 2, 16);
    sim_fault(
        &s,
        "{\"verb\":\"list\",\"resource\":\"pods\",\"action\":\"answer\",\"status\":503}");
    cleanup_free char *path = lib_kubeconfig("kubeconfig", "http", s.api.port, "", "");
    extender_start_at(&e, path, ARGV(NULL));
    lib_wait(sim_fired(&s) > 0);
    ck_assert_uint_eq(peer_call(&e.observers, "GET", API "/gpunodes", NULL, &said), 503);
    ck_assert_contains(said.p, "not every kind of object has been listed yet");
    ck_assert_uint_eq(peer_status(&e.observers, API "/gpunodes?watch=true"), 503);
    ck_assert_uint_eq(peer_call(&e.observers, "GET", "/inspect?watch=true", NULL, &said),
                      503);
    ck_assert_contains(said.p, "{\"error\":\"");
    ck_assert_uint_eq(peer_status(&e.observers, API), 200);
    ck_assert_uint_eq(peer_status(&e.observers, "/"), 200);
    sim_no_faults(&s);
    lib_wait(peer_status(&e.observers, API "/gpunodes") == 200);
    extender_stop(&e);
    sim_stop(&s);
}
END_TEST

START_TEST(the_main_port_serves_sixteen_watches)
{
    enum { MAIN = 16 };
    struct sim s;
    struct extender e;
    struct watch main[MAIN];
    cleanup_buf struct buf said = {0};
    sim_start(&s, ARGV(NULL));
    sim_add_node(&s, "n1", 2, 16);
    start(&e, &s);
    for (int i = 0; i < MAIN; i++) {
        watch_open(&main[i], e.verbs.port, i % 2 ? WATCH_PODS : WATCH_NODES);
        ck_assert_uint_eq(main[i].r.status, 200);
    }
    ck_assert_uint_eq(peer_call(&e.verbs, "GET", WATCH_PODS, NULL, &said), 503);
    ck_assert_contains(said.p, "--observe-port");
    ck_assert_uint_eq(peer_status(&e.verbs, API "/gpupods"), 200); /* a list works */
    for (int i = 0; i < MAIN; i++)
        watch_close(&main[i]);
    extender_stop(&e);
    sim_stop(&s);
}
END_TEST

LIB_MAIN("observe", 120, discovery_lists_and_unknown_paths, a_watch_delivers_every_change,
         lists_and_watches_are_rejected_before_the_initial_sync,
         the_main_port_serves_sixteen_watches)
