/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "integration/kit.h"

/*
 * Pods that ask otherwise than by our limits, against the real programs: models, Yoda's
 * labels, NVIDIA's own device plugin, and pods that ask for nothing.
 */

enum { BURST = 12 };

#define MODEL(text)  "\"annotations\":{\"nvidia-gpu-scheduler/gpu.model\":\"" text "\"}"
#define LABELS(text) "\"labels\":{" text "}"

/* `meta`: a further member of metadata, or "\"x\":\"\"". */
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

/* A Node and its Scv: two cards of that model; `held`: of the podList. */
static void put_scv(const struct sim *s, const char *name, const char *model, int clock,
                    const char *held)
{
    sim_load(s,
             "[{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"%s\"}},"
             "{\"apiVersion\":\"core.run-linux.com/v1\",\"kind\":\"Scv\",\"metadata\":{"
             "\"name\":\"%s\"},\"status\":{\"cardList\":["
             "{\"id\":0,\"health\":\"Healthy\",\"model\":\"%s\",\"clock\":%d,"
             "\"totalMemory\":16276,\"freeMemory\":16276,\"uuid\":\"GPU-%s-0\"},"
             "{\"id\":1,\"health\":\"Healthy\",\"model\":\"%s\",\"clock\":%d,"
             "\"totalMemory\":16276,\"freeMemory\":16276,\"uuid\":\"GPU-%s-1\"}],"
             "\"podList\":[%s]}}]",
             name, name, model, clock, name, model, clock, name, held);
}

struct world {
    struct sim sim;
    struct extender extender;
};

static void begin(struct world *w, const char *const *more)
{
    sim_start(&w->sim, ARGV(NULL));
    put_scv(&w->sim, "t4", "Tesla T4", 5001, "");
    put_scv(&w->sim, "v100", "Tesla V100-SXM2-16GB", 877, "");
    extender_start(&w->extender, &w->sim, more);
}

static void end(struct world *w)
{
    extender_stop(&w->extender);
    sim_stop(&w->sim);
}

/* The filter's answer for such a pod on both nodes. New. */
static json_t *filter(const struct world *w, const char *meta, const char *limits)
{
    cleanup_free char *pod = pod_text("asking", meta, limits);
    cleanup_free char *body =
        xasprintf("{\"Pod\":%s,\"NodeNames\":[\"t4\",\"v100\"]}", pod);
    return peer_json(&w->extender.verbs, "POST", "/gpushare-scheduler/filter", body);
}

static void passes_only(const struct world *w, const char *meta, const char *limits,
                        const char *node)
{
    cleanup_json json_t *j = filter(w, meta, limits);
    json_t *names = kit_at(j, "NodeNames");
    cleanup_free char *text = json_dumps(j, 0);
    ck_assert_msg(json_array_size(names) == 1 &&
                      !strcmp(json_string_value(json_array_get(names, 0)), node),
                  "%s", text);
}

static json_t *annotations_of(const struct world *w, const char *name)
{
    cleanup_free char *path = xasprintf("/api/v1/namespaces/default/pods/%s", name);
    cleanup_json json_t *pod = peer_json(&w->sim.api, "GET", path, NULL);
    return json_incref(kit_at(pod, "metadata.annotations"));
}

static const char *note(const json_t *notes, const char *key)
{
    const char *text = json_string_value(json_object_get(notes, key));
    return text ? text : "";
}

static json_int_t number_of(const struct world *w, const char *node, const char *path)
{
    cleanup_json json_t *j = extender_inspect(&w->extender, node);
    return json_integer_value(kit_at(j, path));
}

static json_int_t promised(const struct world *w, const char *node, size_t card)
{
    cleanup_json json_t *j = extender_inspect(&w->extender, node);
    return json_integer_value(
        kit_at(json_array_get(kit_at(j, "devs"), card), "promisedMiB"));
}

START_TEST(a_model_decides_for_every_form_of_request)
{
    struct world w;
    static const char *const limits[] = {"\"aliyun.com/gpu-mem\":\"4\"",
                                         "\"aliyun.com/gpu-count\":\"2\"",
                                         "\"nvidia.com/gpu\":\"2\""};
    begin(&w, ARGV(NULL));
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        passes_only(&w, MODEL("tesla t4"), limits[i], "t4");
        passes_only(&w, MODEL("A100, Tesla V100-SXM2-16GB"), limits[i], "v100");
        cleanup_json json_t *j = filter(&w, MODEL("A100"), limits[i]);
        ck_assert_says(kit_str(j, "FailedAndUnresolvableNodes.t4"),
                       "model A100; the node has 2 x Tesla T4");
        ck_assert_uint_eq(json_object_size(kit_at(j, "FailedNodes")), 0);
    }
    cleanup_buf struct buf why = {0};
    add_pod(&w.sim, "m", MODEL("Tesla T4"), limits[0]);
    ck_assert(!extender_bind(&w.extender, "m", "v100", &why));
    ck_assert_says(why.p, "the node has 2 x Tesla V100-SXM2-16GB");
    ck_assert(extender_bind(&w.extender, "m", "t4", &why));
    cleanup_json json_t *notes = annotations_of(&w, "m");
    ck_assert_str_eq(note(notes, "gpushare/card-uuid"), "GPU-t4-0");
    end(&w);
}

struct burst {
    struct world *w;
    bool bound[BURST];
};

static void bind_one(void *ctx, size_t i)
{
    struct burst *b = ctx;
    cleanup_free char *name = xasprintf("d%zu", i);
    b->bound[i] = extender_bind(&b->w->extender, name, "t4", NULL);
}

static void held(struct buf *out, const char *pod, int card)
{
    buf_printf(out,
               "%s{\"namespace\":\"default\",\"name\":\"%s\",\"container\":\"c\","
               "\"resource\":\"nvidia.com/gpu\",\"units\":1,\"cards\":[\"GPU-t4-%d\"]}",
               out->n ? "," : "", pod, card);
}

START_TEST(a_burst_for_nvidias_plugin_takes_no_more_cards_than_there_are)
{
    struct world w;
    struct burst burst = {.w = &w};
    cleanup_buf struct buf list = {0};
    begin(&w, ARGV(NULL));
    for (size_t i = 0; i < BURST; i++) {
        cleanup_free char *name = xasprintf("d%zu", i);
        add_pod(&w.sim, name, MODEL("Tesla T4"), "\"nvidia.com/gpu\":\"1\"");
    }
    kit_threads(BURST, bind_one, &burst);
    int n = 0;
    for (size_t i = 0; i < BURST; i++) {
        if (!burst.bound[i])
            continue;
        cleanup_free char *name = xasprintf("d%zu", i);
        cleanup_json json_t *notes = annotations_of(&w, name);
        ck_assert_uint_eq(json_object_size(notes), 1); /* its own */
        held(&list, name, n++);
    }
    ck_assert_int_eq(n, 2);
    ck_assert_int_eq(number_of(&w, "t4", "claimedCards"), 2);
    /* The kubelet's word comes: the cards are held, by name. */
    put_scv(&w.sim, "t4", "Tesla T4", 5001, list.p);
    kit_wait(number_of(&w, "t4", "claimedCards") == 0);
    cleanup_json json_t *j =
        filter(&w, MODEL("Tesla T4"), "\"aliyun.com/gpu-mem\":\"1\"");
    ck_assert_says(kit_str(j, "FailedNodes.t4"),
                   "allocated through nvidia.com/gpu: GPU0,GPU1");
    passes_only(&w, "\"x\":\"\"", "\"aliyun.com/gpu-count\":\"2\"", "v100");
    end(&w);
}

START_TEST(labels_alone_are_bound_and_outlive_a_restart)
{
    struct world w;
    cleanup_buf struct buf why = {0};
    begin(&w, ARGV("--external-tolerance=0"));
    static const char labels[] =
        LABELS("\"scv/number\":\"2\",\"scv/memory\":\"16001\",\"scv/clock\":\"5000\"");
    passes_only(&w, labels, "", "t4");
    add_pod(&w.sim, "y", labels, "");
    add_pod(&w.sim, "z", LABELS("\"scv/memory\":\"276\""), "");
    ck_assert(!extender_bind(&w.extender, "y", "v100", &why));
    ck_assert_says(why.p, "2 x Tesla V100-SXM2-16GB (877 MHz)");
    ck_assert_msg(extender_bind(&w.extender, "y", "t4", &why), "%s", why.p);
    cleanup_json json_t *notes = annotations_of(&w, "y");
    ck_assert_str_eq(note(notes, "ALIYUN_COM_GPU_MEM_IDX"), "0,1");
    ck_assert_str_eq(note(notes, "gpushare/card-uuid"), "GPU-t4-0,GPU-t4-1");
    ck_assert(!extender_bind(&w.extender, "z", "t4", &why));
    ck_assert_says(why.p, "most free: 275 of 16276 MiB on GPU0");
    extender_kill(&w.extender);
    extender_start(&w.extender, &w.sim, ARGV(NULL));
    ck_assert_int_eq(promised(&w, "t4", 0), 16001);
    ck_assert_int_eq(promised(&w, "t4", 1), 16001);
    cleanup_json json_t *j = filter(&w, LABELS("\"scv/memory\":\"8Gi\""), "");
    ck_assert_says(kit_str(j, "FailedAndUnresolvableNodes.t4"),
                   "label scv/memory: \"8Gi\" is not a number of MiB");
    end(&w);
}

START_TEST(yodas_own_meanings_are_options)
{
    struct world w;
    cleanup_buf struct buf why = {0};
    begin(&w, ARGV("--scv-clock=exact", "--scv-number=share"));
    passes_only(&w, LABELS("\"scv/clock\":\"877\""), "", "v100");
    for (int i = 0; i < 3; i++) {
        cleanup_free char *name = xasprintf("n%d", i);
        add_pod(&w.sim, name, LABELS("\"scv/number\":\"2\""), "");
        ck_assert_msg(extender_bind(&w.extender, name, "t4", &why), "%s", why.p);
    }
    ck_assert_int_eq(promised(&w, "t4", 0), 0);
    end(&w);
}

START_TEST(a_pod_that_asks_for_nothing_is_bound_only_if_told_to)
{
    for (int any = 0; any < 2; any++) {
        struct world w;
        cleanup_buf struct buf why = {0};
        begin(&w, any ? ARGV("--bind-any") : ARGV(NULL));
        add_pod(&w.sim, "plain", "\"x\":\"\"", "");
        cleanup_json json_t *j = filter(&w, "\"x\":\"\"", "");
        ck_assert_uint_eq(json_array_size(kit_at(j, "NodeNames")), 2);
        ck_assert_int_eq(extender_bind(&w.extender, "plain", "v100", &why), any);
        cleanup_json json_t *notes = annotations_of(&w, "plain");
        ck_assert_uint_eq(json_object_size(notes), 0);
        if (!any)
            ck_assert_says(why.p, "--bind-any");
        ck_assert_int_eq(sim_bound(&w.sim), any);
        end(&w);
    }
}

/* kube-scheduler asks about it all the same: it goes by the name. */
START_TEST(a_limit_of_zero_asks_for_nothing_and_is_bound)
{
    struct world w;
    cleanup_buf struct buf why = {0};
    begin(&w, ARGV(NULL));
    add_pod(&w.sim, "zero", "\"x\":\"\"", "\"aliyun.com/gpu-mem\":\"0\"");
    cleanup_json json_t *j = filter(&w, "\"x\":\"\"", "\"aliyun.com/gpu-mem\":\"0\"");
    ck_assert_uint_eq(json_array_size(kit_at(j, "NodeNames")), 2);
    ck_assert_msg(extender_bind(&w.extender, "zero", "v100", &why), "%s", why.p);
    cleanup_json json_t *notes = annotations_of(&w, "zero");
    ck_assert_uint_eq(json_object_size(notes), 0);
    ck_assert_int_eq(sim_bound(&w.sim), 1);
    end(&w);
}
END_TEST

KIT_MAIN("forms", 60, a_model_decides_for_every_form_of_request,
         a_burst_for_nvidias_plugin_takes_no_more_cards_than_there_are,
         labels_alone_are_bound_and_outlive_a_restart, yodas_own_meanings_are_options,
         a_pod_that_asks_for_nothing_is_bound_only_if_told_to,
         a_limit_of_zero_asks_for_nothing_and_is_bound)
