/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "lib/sim.h"

/*
 * Pods with requests other than our own limits, against the real programs: models, Yoda's
 * labels, limits for NVIDIA's device plugin, and pods without a request.
 */

enum { BURST = 12 };

#define MODEL(text)  "\"annotations\":{\"nvidia-gpu-scheduler/gpu.model\":\"" text "\"}"
#define LABELS(text) "\"labels\":{" text "}"

/* `meta`: an additional member of metadata, or "\"x\":\"\"". */
static char *pod_text(const char *name, const char *meta, const char *limits)
{
    return xasprintf(
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\","
        "\"namespace\":\"default\",\"uid\":\"uid-%s\",%s},\"spec\":{"
        "\"containers\":[{\"name\":\"c\",\"image\":\"i\",\"resources\":{"
        "\"limits\":{%s}}}]}}",
        name, name, meta, limits);
}

static void add_pod(const struct sim *s, const char *name, const char *meta,
                    const char *limits)
{
    cleanup_free char *text = pod_text(name, meta, limits);
    sim_load(s, "%s", text);
}

/* Two cards of the given model; `held`: items of status.podList. */
static void put_scv(const struct sim *s, const char *name, const char *model, int clock,
                    const char *held)
{
    sim_load(s,
             "[{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"%s\"},"
             "\"status\":{\"capacity\":{\"nvidia.com/gpu\":\"2\"}}},"
             "{\"apiVersion\":\"core.run-linux.com/v1\",\"kind\":\"Scv\",\"metadata\":{"
             "\"name\":\"%s\"},\"status\":{\"cardList\":["
             "{\"id\":0,\"health\":\"Healthy\",\"model\":\"%s\",\"clock\":%d,"
             "\"totalMemory\":16276,\"freeMemory\":16276,\"uuid\":\"GPU-%s-0\"},"
             "{\"id\":1,\"health\":\"Healthy\",\"model\":\"%s\",\"clock\":%d,"
             "\"totalMemory\":16276,\"freeMemory\":16276,\"uuid\":\"GPU-%s-1\"}],"
             "\"podList\":[%s]}}]",
             name, name, model, clock, name, model, clock, name, held);
}

struct fixture {
    struct sim sim;
    struct extender extender;
};

/* Filter answers with all nodes, so that a test sees every node's judgment. */
#define ALL "--filter-answer=all"

static void set_up(struct fixture *f, const char *const *more)
{
    sim_start(&f->sim, ARGV(NULL));
    put_scv(&f->sim, "t4", "Tesla T4", 5001, "");
    put_scv(&f->sim, "v100", "Tesla V100-SXM2-16GB", 877, "");
    extender_start(&f->extender, &f->sim, more);
}

static void tear_down(struct fixture *f)
{
    extender_stop(&f->extender);
    sim_stop(&f->sim);
}

/* Filters such a pod on both nodes. Returns the reply, new. */
static json_t *filter(const struct fixture *f, const char *meta, const char *limits)
{
    cleanup_free char *pod = pod_text("filtered", meta, limits);
    cleanup_free char *body =
        xasprintf("{\"Pod\":%s,\"NodeNames\":[\"t4\",\"v100\"]}", pod);
    return peer_json(&f->extender.verbs, "POST", "/gpushare-scheduler/filter", body);
}

static void assert_only_passes(const struct fixture *f, const char *meta,
                               const char *limits, const char *node)
{
    cleanup_json json_t *j = filter(f, meta, limits);
    json_t *names = lib_at(j, "NodeNames");
    cleanup_free char *text = json_dumps(j, 0);
    ck_assert_msg(json_array_size(names) == 1 &&
                      !strcmp(json_string_value(json_array_get(names, 0)), node),
                  "%s", text);
}

static json_t *annotations_of(const struct fixture *f, const char *name)
{
    cleanup_free char *path = xasprintf("/api/v1/namespaces/default/pods/%s", name);
    cleanup_json json_t *pod = peer_json(&f->sim.api, "GET", path, NULL);
    return json_incref(lib_at(pod, "metadata.annotations"));
}

static const char *annotation(const json_t *annotations, const char *key)
{
    const char *text = json_string_value(json_object_get(annotations, key));
    return text ? text : "";
}

static json_int_t number_of(const struct fixture *f, const char *node, const char *path)
{
    cleanup_json json_t *j = extender_inspect(&f->extender, node);
    return json_integer_value(lib_at(j, path));
}

static json_int_t promised(const struct fixture *f, const char *node, size_t card)
{
    cleanup_json json_t *j = extender_inspect(&f->extender, node);
    return json_integer_value(
        lib_at(json_array_get(lib_at(j, "devs"), card), "promisedMiB"));
}

START_TEST(model_is_checked_for_every_form_of_request)
{
    struct fixture f;
    static const char *const limits[] = {"\"aliyun.com/gpu-mem\":\"4\"",
                                         "\"aliyun.com/gpu-count\":\"2\"",
                                         "\"nvidia.com/gpu\":\"2\""};
    set_up(&f, ARGV(ALL));
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        assert_only_passes(&f, MODEL("tesla t4"), limits[i], "t4");
        assert_only_passes(&f, MODEL("A100, Tesla V100-SXM2-16GB"), limits[i], "v100");
        cleanup_json json_t *j = filter(&f, MODEL("A100"), limits[i]);
        ck_assert_contains(lib_str(j, "FailedAndUnresolvableNodes.t4"),
                           "model A100; the node has 2 x Tesla T4");
        ck_assert_uint_eq(json_object_size(lib_at(j, "FailedNodes")), 0);
    }
    cleanup_buf struct buf why = {0};
    add_pod(&f.sim, "m", MODEL("Tesla T4"), limits[0]);
    ck_assert(!extender_bind(&f.extender, "m", "v100", &why));
    ck_assert_contains(why.p, "the node has 2 x Tesla V100-SXM2-16GB");
    ck_assert(extender_bind(&f.extender, "m", "t4", &why));
    cleanup_json json_t *annotations = annotations_of(&f, "m");
    ck_assert_str_eq(annotation(annotations, "gpushare/card-uuid"), "GPU-t4-0");
    tear_down(&f);
}

struct burst {
    struct fixture *f;
    bool bound[BURST];
};

static void bind_one(void *ctx, size_t i)
{
    struct burst *b = ctx;
    cleanup_free char *name = xasprintf("d%zu", i);
    b->bound[i] = extender_bind(&b->f->extender, name, "t4", NULL);
}

static void append_held(struct buf *out, const char *pod, int card)
{
    buf_printf(out,
               "%s{\"namespace\":\"default\",\"name\":\"%s\",\"container\":\"c\","
               "\"resource\":\"nvidia.com/gpu\",\"units\":1,\"cards\":[\"GPU-t4-%d\"]}",
               out->n ? "," : "", pod, card);
}

START_TEST(concurrent_nvidia_gpu_pods_get_no_more_cards_than_exist)
{
    struct fixture f;
    struct burst burst = {.f = &f};
    cleanup_buf struct buf list = {0};
    set_up(&f, ARGV(ALL));
    for (size_t i = 0; i < BURST; i++) {
        cleanup_free char *name = xasprintf("d%zu", i);
        add_pod(&f.sim, name, MODEL("Tesla T4"), "\"nvidia.com/gpu\":\"1\"");
    }
    lib_threads(BURST, bind_one, &burst);
    int n = 0;
    for (size_t i = 0; i < BURST; i++) {
        if (!burst.bound[i])
            continue;
        cleanup_free char *name = xasprintf("d%zu", i);
        cleanup_json json_t *annotations = annotations_of(&f, name);
        ck_assert_uint_eq(json_object_size(annotations),
                          1); /* the model; no promise was added */
        append_held(&list, name, n++);
    }
    ck_assert_int_eq(n, 2);
    ck_assert_int_eq(number_of(&f, "t4", "claimedCards"), 2);
    /* The agent publishes the kubelet's allocations: the cards have known holders now. */
    put_scv(&f.sim, "t4", "Tesla T4", 5001, list.p);
    lib_wait(number_of(&f, "t4", "claimedCards") == 0);
    cleanup_json json_t *j =
        filter(&f, MODEL("Tesla T4"), "\"aliyun.com/gpu-mem\":\"1\"");
    ck_assert_contains(lib_str(j, "FailedNodes.t4"),
                       "allocated through nvidia.com/gpu: GPU0,GPU1");
    assert_only_passes(&f, "\"x\":\"\"", "\"aliyun.com/gpu-count\":\"2\"", "v100");
    tear_down(&f);
}

START_TEST(pods_with_yoda_labels_keep_their_promises_over_a_restart)
{
    struct fixture f;
    cleanup_buf struct buf why = {0};
    set_up(&f, ARGV(ALL, "--external-tolerance=0"));
    static const char labels[] =
        LABELS("\"scv/number\":\"2\",\"scv/memory\":\"16001\",\"scv/clock\":\"5000\"");
    assert_only_passes(&f, labels, "", "t4");
    add_pod(&f.sim, "y", labels, "");
    add_pod(&f.sim, "z", LABELS("\"scv/memory\":\"276\""), "");
    ck_assert(!extender_bind(&f.extender, "y", "v100", &why));
    ck_assert_contains(why.p, "2 x Tesla V100-SXM2-16GB (877 MHz)");
    ck_assert_msg(extender_bind(&f.extender, "y", "t4", &why), "%s", why.p);
    cleanup_json json_t *annotations = annotations_of(&f, "y");
    ck_assert_str_eq(annotation(annotations, "ALIYUN_COM_GPU_MEM_IDX"), "0,1");
    ck_assert_str_eq(annotation(annotations, "gpushare/card-uuid"), "GPU-t4-0,GPU-t4-1");
    ck_assert(!extender_bind(&f.extender, "z", "t4", &why));
    ck_assert_contains(why.p, "most free: 275 of 16276 MiB on GPU0");
    extender_kill(&f.extender);
    extender_start(&f.extender, &f.sim, ARGV(ALL));
    ck_assert_int_eq(promised(&f, "t4", 0), 16001);
    ck_assert_int_eq(promised(&f, "t4", 1), 16001);
    cleanup_json json_t *j = filter(&f, LABELS("\"scv/memory\":\"8Gi\""), "");
    ck_assert_contains(lib_str(j, "FailedAndUnresolvableNodes.t4"),
                       "label scv/memory: \"8Gi\" is not a number of MiB");
    tear_down(&f);
}

START_TEST(yoda_semantics_can_be_enabled_by_options)
{
    struct fixture f;
    cleanup_buf struct buf why = {0};
    set_up(&f, ARGV(ALL, "--scv-clock=exact", "--scv-number=share"));
    assert_only_passes(&f, LABELS("\"scv/clock\":\"877\""), "", "v100");
    for (int i = 0; i < 3; i++) {
        cleanup_free char *name = xasprintf("n%d", i);
        add_pod(&f.sim, name, LABELS("\"scv/number\":\"2\""), "");
        ck_assert_msg(extender_bind(&f.extender, name, "t4", &why), "%s", why.p);
    }
    ck_assert_int_eq(promised(&f, "t4", 0), 0);
    tear_down(&f);
}

START_TEST(pod_without_request_needs_bind_any)
{
    for (int any = 0; any < 2; any++) {
        struct fixture f;
        cleanup_buf struct buf why = {0};
        set_up(&f, any ? ARGV("--bind-any") : ARGV(NULL));
        add_pod(&f.sim, "plain", "\"x\":\"\"", "");
        cleanup_json json_t *j = filter(&f, "\"x\":\"\"", "");
        ck_assert_uint_eq(json_array_size(lib_at(j, "NodeNames")), 2);
        ck_assert_int_eq(extender_bind(&f.extender, "plain", "v100", &why), any);
        cleanup_json json_t *annotations = annotations_of(&f, "plain");
        ck_assert_uint_eq(json_object_size(annotations), 0);
        if (!any)
            ck_assert_contains(why.p, "--bind-any");
        ck_assert_int_eq(sim_bound(&f.sim), any);
        tear_down(&f);
    }
}

LIB_MAIN("forms", 60, model_is_checked_for_every_form_of_request,
         concurrent_nvidia_gpu_pods_get_no_more_cards_than_exist,
         pods_with_yoda_labels_keep_their_promises_over_a_restart,
         yoda_semantics_can_be_enabled_by_options, pod_without_request_needs_bind_any)
