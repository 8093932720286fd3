/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/gpuapi.h"

#include "base/clock.h"
#include "extender/core_driver_rig.h"

/*
 * The lines of a watch, byte for byte, and the cache while it is read. test/golden/gpuapi has
 * the objects of lists, test_watch_cache.c what a reader gets, and
 * test/integration/test_observe.c lists and watches over HTTP.
 */

#define TIME "\"2024-01-02T03:04:05Z\""

static struct core_driver_rig rig;
static struct gpuapi *api;

/* A node with a card that a pod has through NVIDIA's plugin. */
static json_t *scv(void)
{
    json_t *j = rig_scv("node-a",
                        "{\"id\":0,\"health\":\"Healthy\",\"totalMemory\":15109,"
                        "\"uuid\":\"GPU-1\"}",
                        ",\"updateTime\":" TIME ",\"podList\":[{\"namespace\":\"d\","
                        "\"name\":\"p\",\"container\":\"c\",\"resource\":"
                        "\"nvidia.com/gpu\",\"units\":1,\"cards\":[\"GPU-1\"]}]");
    json_object_set_new(json_object_get(j, "metadata"), "creationTimestamp",
                        json_string("2024-01-02T03:04:05Z"));
    return j;
}

static void begin(int64_t idle_ms)
{
    rig_start(&rig, &(struct ledger_settings){.unit_mib = 1024}, false);
    rig_deliver(&rig, json_pack("[o]", scv()));
    api = gpuapi_new(rig.driver, &(struct gpuapi_config){.idle_ms = idle_ms});
}

static void end(void)
{
    gpuapi_free(api);
    rig_stop(&rig);
}

static struct httpd_reply open_stream(enum gpuapi_kind kind, const char *query)
{
    struct httpd_reply reply = {.status = 200};
    gpuapi_answer(api, kind, &(struct stream_client){false, INT64_MAX},
                  &(struct httpd_request){.query = query}, &reply);
    return reply;
}

static void close_stream(struct httpd_reply *reply)
{
    reply->stream->close(reply->stream_ctx);
}

/* Waits for more of a watch. */
static void expect(struct httpd_reply *reply, const char *want)
{
    cleanup_buf struct buf out = {0};
    lib_wait(reply->stream->fill(reply->stream_ctx, NULL, &out) == HTTPD_STREAM_MORE &&
             out.n);
    /* The time of the test itself is replaced. */
    for (char *at = out.p; (at = strstr(at, "time\":\"20")); at++)
        if (strncmp(at, "time\":" TIME, strlen("time\":" TIME)) != 0)
            memcpy(at + strlen("time\":"), TIME, strlen(TIME));
    ck_assert_str_eq(out.p, want);
}

TEST(the_lines_of_a_watch_are_those_of_nvidia_gpu_scheduler)
{
#define HEAD(kind, name)                                                                 \
    "{\"" kind "\":{\"kind\":\"" kind                                                    \
    "\",\"apiVersion\":\"resources.scheduler.caden2016.github.io/v1\",\"metadata\":{"    \
    "\"name\":\"" name "\",\"namespace\":\"kube-system\",\"resourceVersion\":\"1\","     \
    "\"creationTimestamp\":"
#define GONE(kind, name)                                                                 \
    "{\"" kind "\":{\"metadata\":{\"name\":\"" name "\",\"namespace\":\"kube-system\","  \
    "\"creationTimestamp\":null},"
    begin(0);
    struct httpd_reply nodes = open_stream(GPUAPI_NODES, "watch=true"),
                       pods = open_stream(GPUAPI_PODS, "watch=true");
    expect(&nodes, HEAD("GpuNode", "node-a") TIME
           "},\"spec\":{\"device_infos\":{\"GPU-1\":{\"device_id\":"
           "\"GPU-1\","
           "\"device_node\":\"node-a\"}},\"device_busy\":[\"GPU-1\"],"
           "\"report_time\":" TIME "},\"status\":{\"health\":\"True\","
           "\"message\":\"The cards of GpuNode are known; it has no "
           "Lease.\",\"last_health_time\":" TIME ",\"last_transition_time\":" TIME
           "}},\"Type\":\"SYNCED\"}\n\n");
    expect(&pods,
           HEAD("GpuPod", "d-p") "null,\"labels\":{\"nvidia-gpu-scheduler.node\":"
                                 "\"node-a\"}},\"spec\":{\"pod_name\":\"p\","
                                 "\"pod_namespace\":\"d\",\"node_name\":\"node-a\","
                                 "\"containers_device\":[{\"container_name\":\"c\","
                                 "\"device_info\":[{\"device_id\":\"GPU-1\","
                                 "\"device_node\":\"node-a\"}]}]},\"status\":{}},"
                                 "\"Type\":\"SYNCED\"}\n\n");
    rig_watched(&rig, "DELETED", scv());
    expect(&nodes, GONE("GpuNode",
                        "node-a") "\"spec\":{\"device_busy\":null,\"report_time\":null}"
                                  ",\"status\":{\"last_health_time\":null,"
                                  "\"last_transition_time\":null}},\"Type\":"
                                  "\"DELETED\"}\n");
    expect(&pods,
           GONE("GpuPod", "d-p") "\"spec\":{},\"status\":{}},\"Type\":\"DELETED\"}\n");
    close_stream(&nodes);
    close_stream(&pods);
    end();
}

/* The resourceVersion of the node in a list. */
static int listed_version(void)
{
    struct httpd_reply reply = open_stream(GPUAPI_NODES, "");
    cleanup_buf struct buf out = {0};
    while (reply.stream->fill(reply.stream_ctx, NULL, &out) != HTTPD_STREAM_END)
        continue;
    close_stream(&reply);
    const char *at = strstr(out.p, "resourceVersion\":\"");
    ck_assert_ptr_nonnull(at);
    return atoi(at + strlen("resourceVersion\":\""));
}

TEST(the_cache_exists_while_there_are_readers)
{
    begin(0);
    struct httpd_reply watch = open_stream(GPUAPI_PODS, "watch=true");
    int first = listed_version();
    clock_sleep_ms(2);
    gpuapi_trim(api); /* a reader is left */
    ck_assert_int_eq(listed_version(), first);
    close_stream(&watch);
    lib_wait(({
        gpuapi_trim(api);
        listed_version() > first; /* rises also in the next cache */
    }));
    end();
    begin(60 * 1000);
    first = listed_version();
    clock_sleep_ms(2);
    gpuapi_trim(api); /* and for a time after them */
    ck_assert_int_eq(listed_version(), first);
    end();
}

/* An Scv of one card, with `pods` pods that have it through NVIDIA's plugin; new. */
static json_t *scv_with(const char *name, int pods)
{
    cleanup_buf struct buf list = {0};
    buf_adds(&list, ",\"podList\":[");
    for (int i = 0; i < pods; i++)
        buf_printf(&list,
                   "%s{\"namespace\":\"d\",\"name\":\"%s-%d\",\"container\":\"c\","
                   "\"resource\":\"nvidia.com/gpu\",\"units\":1,\"cards\":[\"GPU-1\"]}",
                   i ? "," : "", name, i);
    buf_addc(&list, ']');
    return rig_scv(name,
                   "{\"id\":0,\"health\":\"Healthy\",\"totalMemory\":15109,"
                   "\"uuid\":\"GPU-1\"}",
                   list.p);
}

static size_t lines_of(const char *text)
{
    size_t n = 0;
    while ((text = strchr(text, '\n')))
        n += *++text && *text != '\n';
    return n + 1; /* the first */
}

/* Reads until the initial state is complete. */
static size_t count_pods(struct httpd_reply *watch)
{
    cleanup_buf struct buf out = {0};
    while (!out.n || strcmp(out.p + out.n - 2, "\n\n") != 0) {
        cleanup_buf struct buf piece = {0};
        watch->stream->fill(watch->stream_ctx, NULL, &piece);
        buf_add_span(&out, buf_span(&piece));
    }
    return lines_of(out.p);
}

/* The thread of the second port answers /healthz between two fills. */
TEST(a_fill_renders_a_part_of_a_large_cluster)
{
    enum { NODES = 2000, PODS = 8 };
    json_t *nodes = json_array();
    for (int i = 0; i < NODES; i++) {
        char name[32];
        snprintf(name, sizeof name, "node-%d", i);
        json_array_append_new(nodes, scv_with(name, PODS));
    }
    rig_start(&rig, &(struct ledger_settings){.unit_mib = 1024}, false);
    rig_deliver(&rig, nodes);
    api = gpuapi_new(rig.driver, &(struct gpuapi_config){.idle_ms = 60 * 1000});
    struct httpd_reply watches[2];
    for (int i = 0; i < 2; i++) {
        cleanup_buf struct buf out = {0};
        watches[i] = open_stream(GPUAPI_PODS, "watch=true");
        ck_assert_int_eq(watches[i].stream->fill(watches[i].stream_ctx, NULL, &out),
                         HTTPD_STREAM_MORE);
        ck_assert_uint_eq(out.n, 0);
    }
    for (int i = 0; i < 2; i++) {
        ck_assert_uint_eq(count_pods(&watches[i]), NODES * PODS);
        close_stream(&watches[i]);
    }
    end();
}

TEST(a_node_with_many_pods_of_another_plugin_is_rendered_in_time)
{
    rig_start(&rig, &(struct ledger_settings){.unit_mib = 1024}, false);
    rig_deliver(&rig, json_pack("[o]", scv_with("node-a", SCV_MAX_HELD)));
    api = gpuapi_new(rig.driver, &(struct gpuapi_config){.idle_ms = 60 * 1000});
    struct httpd_reply watch = open_stream(GPUAPI_PODS, "watch=true");
    int64_t began_ms = clock_mono_ms();
    ck_assert_uint_eq(count_pods(&watch), SCV_MAX_HELD);
    ck_assert_int_lt(clock_mono_ms() - began_ms, 1500 * LIB_SLOWER);
    close_stream(&watch);
    end();
}
