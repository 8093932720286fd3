/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "extender/core_driver_rig.h"
#include "extender/gpuapi_priv.h"
#include "extender/inspect_stream.h"
#include "lib/raw.h"

/*
 * The JSON of a node and of its pods, byte for byte. (Lists and watches over HTTP:
 * test/integration/test_observe.c.)
 */

static struct core_driver_rig rig;
static struct arena arena;

static void begin(const char *objects)
{
    const struct ledger_settings settings = {.unit_mib = 1024,
                                             .external_tolerance_mib = 1024};
    json_error_t error;
    json_t *j = json_loads(objects, 0, &error);
    ck_assert_msg(j, "%s", error.text);
    rig_start(&rig, &settings, false);
    rig_deliver(&rig, j);
    json_decref(j);
}

static void end(void)
{
    rig_stop(&rig);
    arena_fini(&arena);
}

static struct gpuapi_node render(const char *name, int64_t grace_s)
{
    struct gpuapi_node n;
    const struct ledger *l = core_ledger(core_driver_read(rig.driver));
    const struct ledger_node *node = ledger_node_find(l, span_of(name));
    ck_assert_ptr_nonnull(node);
    gpuapi_render_node(node, grace_s, &arena, &n);
    core_driver_read_end(rig.driver);
    return n;
}

/* Compares the whole object, with 123 as its resourceVersion. */
static void assert_node(const struct gpuapi_node *n, const struct gpuapi_times *t,
                        const char *want)
{
    cleanup_buf struct buf out = {0};
    buf_add_span(&out, n->head);
    buf_adds(&out, "123");
    gpuapi_node_tail(n, t, &out);
    ck_assert_str_eq(out.p, want);
}

static void assert_pod(const struct gpuapi_node *n, const char *ns, const char *name,
                       const char *want)
{
    for (size_t i = 0; i < n->n_pods; i++) {
        if (!span_eq(n->pods[i].name, span_of(name)) ||
            !span_eq(n->pods[i].ns, span_of(ns)))
            continue;
        cleanup_buf struct buf out = {0};
        buf_add_span(&out, n->pods[i].head);
        buf_adds(&out, "123");
        buf_add_span(&out, n->pods[i].tail);
        ck_assert_str_eq(out.p, want);
        return;
    }
    ck_abort_msg("no pod %s/%s", ns, name);
}

#define META(kind, name)                                                                 \
    "{\"kind\":\"" kind                                                                  \
    "\",\"apiVersion\":\"resources.scheduler.caden2016.github.io/v1\",\"metadata\":{"    \
    "\"name\":\"" name "\",\"namespace\":\"kube-system\",\"resourceVersion\":\"123\","   \
    "\"creationTimestamp\":"

#define SCV_HEAD                                                                         \
    "[{\"kind\":\"Lease\",\"metadata\":{\"name\":\"node-a\","                            \
    "\"namespace\":\"nvidia-gpu-scheduler-node-lease\"}},"                               \
    "{\"kind\":\"Scv\",\"metadata\":{\"name\":\"node-a\","                               \
    "\"creationTimestamp\":\"2024-01-02T03:04:05Z\"},"                                   \
    "\"status\":{\"updateTime\":\"2024-01-02T03:04:05Z\",\"cardList\":["

#define TIME "\"2024-01-02T03:04:05Z\""
enum { TIME_S = 1704164645 };

static const struct gpuapi_times times = {true, true, TIME_S, TIME_S, TIME_S};

START_TEST(a_node_equals_the_golden_line_of_nvidia_gpu_scheduler)
{
    /* GPU-1 is allocated by NVIDIA's plugin, so it is busy. */
    begin(SCV_HEAD "{\"id\":0,\"health\":\"Healthy\",\"model\":\"Tesla T4\","
                   "\"totalMemory\":15109,\"uuid\":\"GPU-1\","
                   "\"busId\":\"00000000:3B:00.0\"}],"
                   "\"podList\":[{\"namespace\":\"default\",\"name\":\"p1\","
                   "\"container\":\"c1\",\"resource\":\"nvidia.com/gpu\",\"units\":1,"
                   "\"cards\":[\"GPU-1\"]}]}}]");
    struct gpuapi_node n = render("node-a", 4);
    ck_assert(n.healthy && n.has_sample);
    ck_assert_int_eq(n.sample_s, TIME_S);
    /* All but device_brand, which an Scv does not have. */
    assert_node(
        &n, &times,
        META("GpuNode", "node-a") TIME
        "},\"spec\":{\"device_infos\":{\"GPU-1\":{\"device_id\":\"GPU-1\","
        "\"device_model\":\"Tesla T4\",\"device_busid\":\"00000000:3B:00.0\","
        "\"device_node\":\"node-a\"}},\"device_models\":{\"tesla t4\":[\"GPU-1\"]},"
        "\"device_busy\":[\"GPU-1\"],\"report_time\":" TIME "},"
        "\"status\":{\"health\":\"True\","
        "\"message\":\"Lease of GpuNode is refreshed in 4s.\","
        "\"last_health_time\":" TIME ",\"last_transition_time\":" TIME "}}");
    ck_assert_uint_eq(n.n_pods, 1);
    assert_pod(&n, "default", "p1",
               META("GpuPod",
                    "default-p1") "null,\"labels\":{\"nvidia-gpu-scheduler.node\":\"node-"
                                  "a\"}},\"spec\":{"
                                  "\"pod_name\":\"p1\",\"pod_namespace\":\"default\","
                                  "\"node_name\":\"node-a\","
                                  "\"containers_device\":[{\"container_name\":\"c1\","
                                  "\"device_info\":[{"
                                  "\"device_id\":\"GPU-1\",\"device_model\":\"Tesla T4\","
                                  "\"device_busid\":\"00000000:3B:00.0\",\"device_node\":"
                                  "\"node-a\"}]}]},"
                                  "\"status\":{}}");
    end();
}
END_TEST

START_TEST(models_are_sorted_and_partly_used_cards_are_busy)
{
    begin(
        SCV_HEAD
        "{\"id\":0,\"health\":\"Healthy\",\"model\":\"Tesla V100\",\"uuid\":\"GPU-d\","
        "\"totalMemory\":16384,\"freeMemory\":16384},"
        "{\"id\":1,\"health\":\"Healthy\",\"model\":\"Tesla T4\",\"uuid\":\"GPU-c\","
        "\"totalMemory\":16384,\"freeMemory\":16384},"
        "{\"id\":2,\"health\":\"Unhealthy\",\"model\":\"tesla t4\",\"uuid\":\"GPU-b\","
        "\"totalMemory\":16384,\"freeMemory\":16384},"
        "{\"id\":3,\"health\":\"Healthy\",\"uuid\":\"GPU-a\",\"totalMemory\":16384,"
        "\"freeMemory\":16384},"
        "{\"id\":4,\"health\":\"Healthy\",\"model\":\"X\",\"totalMemory\":16384,"
        "\"freeMemory\":16384}]}},"
        "{\"kind\":\"Pod\",\"metadata\":{\"name\":\"p\",\"namespace\":\"d\",\"uid\":"
        "\"u\",\"creationTimestamp\":\"2024-01-02T03:04:05Z\",\"annotations\":{"
        "\"ALIYUN_COM_GPU_MEM_IDX\":\"0\",\"gpushare/card-uuid\":\"GPU-d\"}},"
        "\"spec\":{\"nodeName\":\"node-a\",\"containers\":[{\"name\":\"side\"},"
        "{\"name\":\"main\",\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":\"2\"}}}]}}"
        "]");
    struct gpuapi_node n = render("node-a", 0);
    struct gpuapi_times never = {.transition_s = TIME_S};
    assert_node(&n, &never,
                META("GpuNode", "node-a") TIME
                "},\"spec\":{\"device_infos\":{"
                "\"GPU-a\":{\"device_id\":\"GPU-a\",\"device_node\":\"node-a\"},"
                "\"GPU-b\":{\"device_id\":\"GPU-b\",\"device_model\":\"tesla t4\","
                "\"device_node\":\"node-a\"},"
                "\"GPU-c\":{\"device_id\":\"GPU-c\",\"device_model\":\"Tesla T4\","
                "\"device_node\":\"node-a\"},"
                "\"GPU-d\":{\"device_id\":\"GPU-d\",\"device_model\":\"Tesla V100\","
                "\"device_node\":\"node-a\"}},"
                "\"device_models\":{\"tesla t4\":[\"GPU-b\",\"GPU-c\"],"
                "\"tesla v100\":[\"GPU-d\"]},\"device_busy\":[\"GPU-b\",\"GPU-d\"],"
                "\"report_time\":null},\"status\":{\"health\":\"True\","
                "\"message\":\"Lease of GpuNode is refreshed.\","
                "\"last_health_time\":null,\"last_transition_time\":" TIME "}}");
    assert_pod(&n, "d", "p",
               META("GpuPod", "d-p") TIME
               ",\"labels\":{\"nvidia-gpu-scheduler.node\":\"node-a\"}},\"spec\":{"
               "\"pod_name\":\"p\",\"pod_namespace\":\"d\",\"node_name\":\"node-a\","
               "\"containers_device\":[{\"container_name\":\"main\",\"device_info\":[{"
               "\"device_id\":\"GPU-d\",\"device_model\":\"Tesla V100\","
               "\"device_node\":\"node-a\"}]}]},\"status\":{}}");
    end();
}
END_TEST

START_TEST(containers_have_the_cards_of_the_promise)
{
#define POD(name, more, annotations, containers)                                         \
    "{\"kind\":\"Pod\",\"metadata\":{\"name\":\"" name "\",\"namespace\":\"d\","         \
    "\"uid\":\"" name "\"," more "\"annotations\":{" annotations "}},"                   \
    "\"spec\":{\"nodeName\":\"node-a\",\"containers\":[" containers "]}}"
#define WANTS(name, resource, n)                                                         \
    "{\"name\":\"" name "\",\"resources\":{\"limits\":{\"aliyun.com/" resource "\":\"" n \
    "\"}}}"
#define CARD(id, uuid)                                                                   \
    "{\"id\":" id ",\"health\":\"Healthy\",\"uuid\":\"" uuid "\",\"totalMemory\":16384}"
#define INFO(uuid) "{\"device_id\":\"" uuid "\",\"device_node\":\"node-a\"}"
#define SPEC(name)                                                                       \
    META("GpuPod", "d-" name)                                                            \
    "null,\"labels\":{\"nvidia-gpu-scheduler.node\":\"node-a\"}},\"spec\":{"             \
    "\"pod_name\":\"" name "\",\"pod_namespace\":\"d\",\"node_name\":\"node-a\""
    begin(
        SCV_HEAD CARD("0", "GPU-0") "," CARD("1", "GPU-1") "," CARD("2", "GPU-2") "," CARD(
            "3",
            "GPU-3") "]}}," POD("shared", "\"labels\":{\"aliyun.com/gpu-count\":\"2\"},",
                                "\"ALIYUN_COM_GPU_MEM_IDX\":\"0,1\"",
                                WANTS("x", "gpu-mem", "2") "," WANTS(
                                    "y", "gpu-mem",
                                    "4")) "," POD("whole", "",
                                                  "\"ALIYUN_COM_GPU_MEM_IDX\":\"2,3,9\","
                                                  "\"scheduler.framework.gpushare."
                                                  "allocation\":\"{}\","
                                                  "\"gpushare/"
                                                  "card-uuid\":\"GPU-2,GPU-3,GPU-9\"",
                                                  WANTS("x", "gpu-count", "1") "," WANTS(
                                                      "y", "gpu-count",
                                                      "2")) "," POD("bare", "", "",
                                                                    WANTS("x", "gpu-mem",
                                                                          "1")) "]");
    struct gpuapi_node n = render("node-a", 0);
    ck_assert_uint_eq(n.n_pods, 3);
    assert_pod(&n, "d", "shared",
               SPEC("shared") ",\"containers_device\":[{\"container_name\":\"x\","
                              "\"device_info\":[" INFO("GPU-0") "," INFO(
                                  "GPU-1") "]},{\"container_name\":\"y\","
                                           "\"device_info\":[" INFO("GPU-0") "," INFO(
                                               "GPU-1") "]}]},\"status\":{}}");
    assert_pod(
        &n, "d", "whole",
        SPEC("whole") ",\"containers_device\":[{\"container_name\":\"x\",\"device_info\":"
                      "[" INFO("GPU-2") "]},{\"container_name\":\"y\",\"device_info\":"
                                        "[" INFO("GPU-3") "," INFO(
                                            "GPU-9") "]}]},\"status\":{}}");
    assert_pod(&n, "d", "bare", SPEC("bare") "},\"status\":{}}");
    end();
}
END_TEST

START_TEST(an_unusable_node_has_health_false_and_the_reason)
{
    begin(
        "[{\"kind\":\"Lease\",\"metadata\":{\"name\":\"n1\","
        "\"namespace\":\"nvidia-gpu-scheduler-node-lease\",\"ownerReferences\":[{"
        "\"kind\":\"Node\",\"name\":\"n1\"}]},\"spec\":{\"holderIdentity\":\"n1\"}},"
        "{\"kind\":\"Node\",\"metadata\":{\"name\":\"cpu\"}},"
        "{\"kind\":\"Node\",\"metadata\":{\"name\":\"old\"},\"status\":{\"capacity\":{"
        "\"aliyun.com/gpu-mem\":\"30\",\"aliyun.com/gpu-count\":\"2\"},\"allocatable\":{"
        "\"aliyun.com/gpu-mem\":\"30\",\"aliyun.com/gpu-count\":\"2\"}}}]");
    struct gpuapi_times unknown = {.transition_s = TIME_S};
    struct gpuapi_node n = render("n1", 40);
    ck_assert(!n.healthy && !n.gone);
    assert_node(&n, &unknown,
                META("GpuNode",
                     "n1") "null},\"spec\":{\"device_busy\":null,\"report_time\":null},"
                           "\"status\":{\"health\":\"False\",\"message\":\"the node's "
                           "Scv object is missing, "
                           "so its cards are unknown\",\"last_health_time\":null,"
                           "\"last_transition_time\":" TIME "}}");
    ck_assert(render("cpu", 40).gone); /* no GPU: no GpuNode */
    n = render("old", 40);
    assert_node(
        &n, &unknown,
        META("GpuNode", "old") "null},\"spec\":{\"device_busy\":[],\"report_time\":null},"
                               "\"status\":{\"health\":\"True\",\"message\":\"The cards "
                               "of GpuNode are "
                               "known; it has no Lease.\",\"last_health_time\":null,"
                               "\"last_transition_time\":" TIME "}}");
    end();
}
END_TEST

START_TEST(a_deleted_object_equals_the_golden_line)
{
    static const char *const want[GPUAPI_KINDS] = {
        "{\"GpuNode\":{\"metadata\":{\"name\":\"node-a\",\"namespace\":\"kube-system\","
        "\"creationTimestamp\":null},\"spec\":{\"device_busy\":null,\"report_time\":null}"
        ","
        "\"status\":{\"last_health_time\":null,\"last_transition_time\":null}},\"Type\":"
        "\"DELETED\"}\n",
        "{\"GpuPod\":{\"metadata\":{\"name\":\"default-p1\",\"namespace\":\"kube-"
        "system\","
        "\"creationTimestamp\":null},\"spec\":{},\"status\":{}},\"Type\":\"DELETED\"}\n"};
    for (int k = 0; k < GPUAPI_KINDS; k++) {
        struct watch_cache *w = watch_cache_new(&gpuapi_kinds[k], 10);
        struct watch_cache_item *item = NULL;
        struct watch_cache_reader r = {0};
        cleanup_buf struct buf out = {0};
        watch_cache_put(w, &item, k ? SPAN("default-p1") : SPAN("node-a"), SPAN("{"),
                        SPAN("}"));
        watch_cache_read(w, &r, 1000, &out);
        ck_assert_str_eq(out.p, k ? "{\"GpuPod\":{1},\"Type\":\"SYNCED\"}\n\n"
                                  : "{\"GpuNode\":{1},\"Type\":\"SYNCED\"}\n\n");
        buf_clear(&out);
        watch_cache_drop(w, &item);
        watch_cache_read(w, &r, 1000, &out);
        ck_assert_str_eq(out.p, want[k]);
        watch_cache_free(w);
    }
}
END_TEST

/* -- only while there are readers -- */

static size_t cached_nodes(struct gpuapi *o)
{
    pthread_mutex_lock(&o->lock);
    size_t n = watch_cache_count(o->caches[GPUAPI_NODES]);
    pthread_mutex_unlock(&o->lock);
    return n;
}

/* Waits until the cache has `n` nodes. */
static void await_cached_nodes(struct gpuapi *o, size_t n)
{
    for (int i = 0; i < 6000; i++) {
        if (cached_nodes(o) == n && atomic_load(&o->ready) == (n > 0))
            break;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    ck_assert_uint_eq(cached_nodes(o), n);
    ck_assert(atomic_load(&o->ready) == (n > 0));
}

START_TEST(the_cache_is_filled_while_there_are_readers)
{
    begin(SCV_HEAD "{\"id\":0,\"health\":\"Healthy\",\"totalMemory\":15109,\"uuid\":"
                   "\"GPU-1\"}]}}]");
    struct gpuapi *o = gpuapi_start(rig.driver, &(struct gpuapi_config){.idle_ms = 50});
    ck_assert(!atomic_load(&o->wanted)); /* no reader yet */
    gpuapi_changed(o);
    ck_assert_uint_eq(cached_nodes(o), 0);
    gpuapi_reader_begin(o);
    gpuapi_reader_begin(o);
    await_cached_nodes(o, 1);
    uint64_t last = watch_cache_last(o->caches[GPUAPI_NODES]);
    gpuapi_reader_end(o);
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    ck_assert_uint_eq(cached_nodes(o), 1); /* one reader is left */
    gpuapi_reader_end(o);
    await_cached_nodes(o, 0);
    gpuapi_reader_begin(o); /* another one comes later */
    await_cached_nodes(o, 1);
    ck_assert_uint_gt(watch_cache_last(o->caches[GPUAPI_NODES]), last);
    gpuapi_reader_end(o);
    gpuapi_stop(o);
    gpuapi_free(o);
    end();
}
END_TEST

START_TEST(the_number_of_open_lists_is_limited)
{
    begin(SCV_HEAD "{\"id\":0,\"health\":\"Healthy\",\"totalMemory\":15109,\"uuid\":"
                   "\"GPU-1\"}]}}]");
    struct gpuapi *o = gpuapi_start(rig.driver, &(struct gpuapi_config){.idle_ms = 50});
    struct httpd_reply replies[GPUAPI_LISTS] = {0};
    for (int i = 0; i < GPUAPI_LISTS; i++) {
        gpuapi_list(o, i % GPUAPI_KINDS, &replies[i]);
        ck_assert_ptr_nonnull(replies[i].stream);
    }
    struct httpd_reply more = {0};
    gpuapi_list(o, GPUAPI_PODS, &more);
    ck_assert_ptr_null(more.stream);
    ck_assert_uint_eq(more.status, 503);
    ck_assert_str_eq(more.header[0][0], "Retry-After");
    replies[5].stream->close(replies[5].stream_ctx);
    gpuapi_list(o, GPUAPI_PODS, &replies[5]); /* below the limit again */
    ck_assert_ptr_nonnull(replies[5].stream);
    for (int i = 0; i < GPUAPI_LISTS; i++)
        replies[i].stream->close(replies[i].stream_ctx);
    ck_assert_uint_eq(atomic_load(&o->lists.taken), 0);
    buf_fini(&more.body);
    gpuapi_stop(o);
    gpuapi_free(o);
    end();
}
END_TEST

/* -- heartbeats -- */

enum { HEARTBEAT_MS = 600 };

struct views {
    struct gpuapi *o;
    struct inspect_stream *stream;
};

static void on_nodes(void *ctx, const struct httpd_request *req,
                     struct httpd_reply *reply)
{
    const struct views *w = ctx;
    gpuapi_answer(w->o, GPUAPI_NODES, false, INT64_MAX, req, reply);
}

static void on_page(void *ctx, const struct httpd_request *req, struct httpd_reply *reply)
{
    const struct views *w = ctx;
    (void)req;
    inspect_stream_watch(w->stream, false, INT64_MAX, reply);
}

static void read_piece(struct raw *c, struct raw_reply *r)
{
    bool last;
    ck_assert_int_eq(raw_read_chunk(c, r, &last), RAW_OK);
    ck_assert(!last);
}

/* The initial state and an empty line; then an empty line per idle interval. */
static void check_heartbeats(unsigned port, const char *path)
{
    struct raw c;
    struct raw_reply r = {0};
    int64_t begun_ms = clock_mono_ms();
    raw_open(&c, port);
    raw_sendf(&c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path);
    ck_assert_int_eq(raw_read_head(&c, &r), RAW_OK);
    do
        read_piece(&c, &r);
    while (r.body.n < 2 || memcmp(r.body.p + r.body.n - 2, "\n\n", 2) != 0);
    ck_assert_int_eq(r.body.p[0], '{'); /* no empty line before the initial state */
    for (int i = 1; i <= 2; i++) {
        buf_clear(&r.body);
        read_piece(&c, &r);
        ck_assert_span_eq(buf_span(&r.body), "\n");
        ck_assert_int_ge(clock_mono_ms() - begun_ms, i * HEARTBEAT_MS - i);
    }
    raw_reply_fini(&r);
    raw_close(&c);
}

START_TEST(an_idle_watch_sends_heartbeats)
{
    static const struct httpd_route routes[] = {
        {"GET", "/nodes", on_nodes}, {"GET", "/page", on_page}, {NULL, NULL, NULL}};
    const struct gpuapi_config config = {.idle_ms = 50, .heartbeat_ms = HEARTBEAT_MS};
    begin(SCV_HEAD "{\"id\":0,\"health\":\"Healthy\",\"totalMemory\":15109,\"uuid\":"
                   "\"GPU-1\"}]}}]");
    struct views w = {gpuapi_start(rig.driver, &config),
                      inspect_stream_new(rig.driver, HEARTBEAT_MS)};
    struct httpd *d = httpd_new(NULL);
    struct httpd_listener_config listener = {.name = "observers",
                                             .address = "127.0.0.1",
                                             .mode = HTTPD_EVENTS,
                                             .routes = routes,
                                             .ctx = &w};
    unsigned port;
    struct err err;
    ck_assert_done(httpd_listen(d, &listener, &port, &err), err);
    check_heartbeats(port, "/nodes?watch=true");
    check_heartbeats(port, "/page");
    gpuapi_stop(w.o);
    httpd_free(d);
    gpuapi_free(w.o);
    inspect_stream_free(w.stream);
    end();
}
END_TEST

/* A watch that was allowed for a time ends then. */
START_TEST(a_watch_ends_when_it_must_be_authorized_again)
{
    begin(SCV_HEAD "{\"id\":0,\"health\":\"Healthy\",\"totalMemory\":15109,\"uuid\":"
                   "\"GPU-1\"}]}}]");
    struct inspect_stream *s = inspect_stream_new(rig.driver, 0);
    struct httpd_reply now = {0}, later = {0};
    cleanup_buf struct buf text = {0};
    inspect_stream_watch(s, false, clock_mono_ms(), &now);
    ck_assert_int_eq(now.stream->fill(now.stream_ctx, NULL, &text), HTTPD_STREAM_END);
    ck_assert_uint_eq(text.n, 0);
    inspect_stream_watch(s, false, clock_mono_ms() + 60000, &later);
    ck_assert_int_eq(later.stream->fill(later.stream_ctx, NULL, &text), HTTPD_STREAM_MORE);
    now.stream->close(now.stream_ctx);
    later.stream->close(later.stream_ctx);
    inspect_stream_free(s);
    end();
}
END_TEST

UNIT_MAIN("gpuapi", a_watch_ends_when_it_must_be_authorized_again,
          the_number_of_open_lists_is_limited,
          a_node_equals_the_golden_line_of_nvidia_gpu_scheduler,
          models_are_sorted_and_partly_used_cards_are_busy,
          containers_have_the_cards_of_the_promise,
          an_unusable_node_has_health_false_and_the_reason,
          a_deleted_object_equals_the_golden_line,
          the_cache_is_filled_while_there_are_readers, an_idle_watch_sends_heartbeats)
