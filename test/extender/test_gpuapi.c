/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/gpuapi.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "domain/dialect.h"
#include "extender/core_driver_rig.h"

/*
 * The lines of a watch, byte for byte, and the cache while it is read. test/golden/gpuapi has
 * the objects of lists, test/view/test_watch_cache.c what a reader gets, and
 * test/integration/test_observe.c lists and watches over HTTP.
 */

#define TIME "\"2024-01-02T03:04:05Z\""

static struct core_driver_rig rig;
static struct view_watch *views[2];
static struct view_watch_limit streams;
enum { NODES, PODS };

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

static void begin_with(json_t *objects, int64_t idle_ms)
{
    static int64_t grace_s;
    rig_start(&rig, &(struct ledger_settings){.unit_mib = 1024, .dialect = &dialect_hami},
              false);
    rig_deliver(&rig, objects);
    streams = (struct view_watch_limit){.most = 10};
    for (int i = 0; i < 2; i++)
        views[i] = view_watch_new(
            &(struct view_watch_config){.kind = i == NODES ? &gpuapi_nodes : &gpuapi_pods,
                                        .ctx = &grace_s,
                                        .source = core_driver_source(rig.driver),
                                        .lists = &streams,
                                        .watches = &streams,
                                        .idle_ms = idle_ms});
}

static void begin(int64_t idle_ms)
{
    begin_with(json_pack("[o]", scv()), idle_ms);
}

static void end(void)
{
    for (int i = 0; i < 2; i++)
        view_watch_free(views[i]);
    rig_stop(&rig);
}

static struct httpd_reply open_stream(int kind, bool watch)
{
    struct httpd_reply reply = {.status = 200};
    view_watch_answer(views[kind], false, watch, INT64_MAX, &reply);
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
    struct httpd_reply nodes = open_stream(NODES, true), pods = open_stream(PODS, true);
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

TEST(a_whole_card_in_the_words_of_hami_has_its_pod)
{
    json_t *node = rig_scv("node-a",
                           "{\"id\":0,\"health\":\"Healthy\",\"totalMemory\":15109,"
                           "\"uuid\":\"GPU-1\"}",
                           ",\"dialect\":\"hami\"");
    json_t *pod = rig_json(
        "{\"kind\":\"Pod\",\"metadata\":{\"name\":\"w\",\"namespace\":\"d\",\"uid\":"
        "\"w\",\"annotations\":{"
        "\"ALIYUN_COM_GPU_MEM_IDX\":\"0\",\"ALIYUN_COM_GPU_MEM_DEV\":\"15109\","
        "\"gpushare/card-memory\":\"whole "
        "w\"}},\"spec\":{\"nodeName\":\"node-a\",\"containers\":[{"
        "\"name\":\"c\",\"resources\":{\"limits\":{\"nvidia.com/gpu\":\"1\"}}}]},"
        "\"status\":{\"phase\":\"Running\"}}");
    begin_with(json_pack("[oo]", node, pod), 0);
    struct httpd_reply reply = open_stream(PODS, false);
    cleanup_buf struct buf out = {0};
    while (reply.stream->fill(reply.stream_ctx, NULL, &out) != HTTPD_STREAM_END)
        continue;
    close_stream(&reply);
    ck_assert_contains(out.p, "GPU-1");
    end();
}

/* The resourceVersion of the node in a list. */
static int listed_version(void)
{
    struct httpd_reply reply = open_stream(NODES, false);
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
    struct httpd_reply watch = open_stream(NODES, true);
    int first = listed_version();
    clock_sleep_ms(2);
    view_watch_trim(views[NODES]); /* a reader is left */
    ck_assert_int_eq(listed_version(), first);
    close_stream(&watch);
    lib_wait(({
        view_watch_trim(views[NODES]);
        listed_version() > first; /* rises also in the next cache */
    }));
    end();
    begin(60 * 1000);
    first = listed_version();
    clock_sleep_ms(2);
    view_watch_trim(views[NODES]); /* and for a time after them */
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
    enum { MANY = 2000, EACH = 8 };
    json_t *nodes = json_array();
    for (int i = 0; i < MANY; i++) {
        char name[32];
        snprintf(name, sizeof name, "node-%d", i);
        json_array_append_new(nodes, scv_with(name, EACH));
    }
    begin_with(nodes, 60 * 1000);
    struct httpd_reply watches[2];
    for (int i = 0; i < 2; i++) {
        cleanup_buf struct buf out = {0};
        watches[i] = open_stream(PODS, true);
        ck_assert_int_eq(watches[i].stream->fill(watches[i].stream_ctx, NULL, &out),
                         HTTPD_STREAM_MORE);
        ck_assert_uint_eq(out.n, 0);
    }
    for (int i = 0; i < 2; i++) {
        ck_assert_uint_eq(count_pods(&watches[i]), MANY * EACH);
        close_stream(&watches[i]);
    }
    end();
}

TEST(a_node_with_many_pods_of_another_plugin_is_rendered_in_time)
{
    begin_with(json_pack("[o]", scv_with("node-a", SCV_MAX_HELD)), 60 * 1000);
    struct httpd_reply watch = open_stream(PODS, true);
    int64_t began_ms = clock_mono_ms();
    ck_assert_uint_eq(count_pods(&watch), SCV_MAX_HELD);
    ck_assert_int_lt(clock_mono_ms() - began_ms, 1500 * LIB_SLOWER);
    close_stream(&watch);
    end();
}

/* -- threads -- */

enum { READERS = 8, ROUNDS = 60 };
static atomic_bool changing;

static void *read_all(void *arg)
{
    int kind = *(int *)arg;
    while (atomic_load(&changing)) {
        struct httpd_reply list = open_stream(kind, false),
                           watch = open_stream(kind, true);
        cleanup_buf struct buf out = {0}, lines = {0};
        enum httpd_stream_result got;
        do
            got = list.stream->fill(list.stream_ctx, NULL, &out);
        while (got == HTTPD_STREAM_MORE);
        ck_assert_int_eq(got, HTTPD_STREAM_END);
        ck_assert_str_eq(out.p + out.n - 3, "}]}");
        for (int k = 0; k < 20; k++)
            watch.stream->fill(watch.stream_ctx, NULL, &lines);
        close_stream(&list);
        close_stream(&watch);
        view_watch_trim(views[kind]);
    }
    return NULL;
}

TEST(threads_read_while_the_ledger_changes)
{
    static int kinds[] = {NODES, PODS};
    pthread_t threads[READERS];
    begin(0);
    streams.most = 2 * READERS;
    atomic_store(&changing, true);
    for (int i = 0; i < READERS; i++)
        pthread_create(&threads[i], NULL, read_all, &kinds[i % 2]);
    for (int i = 0; i < ROUNDS; i++)
        rig_watched(&rig, "MODIFIED", scv_with("node-a", 1 + i % 40));
    atomic_store(&changing, false);
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    end();
}
