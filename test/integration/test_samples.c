/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/keys.h"
#include "lib/manifest.h"

/*
 * manifests/samples: each sample gets what its comment describes. Every sample is
 * filtered and bound on a node of its own, with two cards of 16 units. For samples in
 * folders, the Scv of the node lists the cards as T4.
 */

static const struct sample {
    const char *name;
    const char *cards, *units; /* the expected promise */
    const char *first;         /* units promised on the first card before */
    bool t4;                   /* its node has an Scv */
} samples[] = {
    {"binpack-1", "0", "1", NULL, false},
    {"gpu-mem", "0", "4", NULL, false},
    {"gpu-mem-several-cards", "0,1", "24", NULL, false},
    {"gpu-count", "0,1", "32", NULL, false},
    {"spread", "1", "2", "4", false},
    {"gpu-mem-model", "0", "4", NULL, true},
    {"nvidia-gpu-model", "", "", NULL, true},
    {"scv-labels", "0,1", "8", NULL, true},
    {"cuda", "0", "1", NULL, false},
    {"pytorch", "0", "4", NULL, false},
    {"vllm", "0", "8", NULL, false},
    {"tensorflow", "0", "4", NULL, false},
};

struct world {
    char *dir;
    struct program sim, extender;
    unsigned api, port;
};

static void load(const struct world *w, json_t *object)
{
    cleanup_free char *body = json_dumps(object, 0);
    ck_assert_uint_eq(ask(w->api, "POST", "/kube-sim/load", body, NULL), 200);
    json_decref(object);
}

static json_t *node(const char *name, const char *units, const char *cards)
{
    return json_pack("{s:s, s:s, s:{s:s}, s:{s:{s:s, s:s}, s:{s:s, s:s}}}", "apiVersion",
                     "v1", "kind", "Node", "metadata", "name", name, "status", "capacity",
                     KEY_GPU_MEM, units, KEY_GPU_COUNT, cards, "allocatable", KEY_GPU_MEM,
                     units, KEY_GPU_COUNT, cards);
}

static json_t *scv(const char *name)
{
    json_t *cards = json_array();
    for (int i = 0; i < 2; i++)
        json_array_append_new(cards,
                              json_pack("{s:i, s:s, s:s, s:i, s:i, s:i, s:o}", "id", i,
                                        "health", "Healthy", "model", "Tesla T4", "clock",
                                        5001, "totalMemory", 16384, "freeMemory", 16384,
                                        "uuid", json_sprintf("GPU-%s-%d", name, i)));
    return json_pack("{s:s, s:s, s:{s:s}, s:{s:o}}", "apiVersion",
                     "core.run-linux.com/v1", "kind", "Scv", "metadata", "name", name,
                     "status", "cardList", cards);
}

/* A pod that already has a promise on the node. */
static json_t *resident(const char *on, const char *units)
{
    cleanup_free char *name = xasprintf("on-%s", on);
    return json_pack("{s:s, s:s, s:{s:s, s:s, s:{s:s}},"
                     " s:{s:s, s:[{s:s, s:s, s:{s:{s:s}}}]}}",
                     "apiVersion", "v1", "kind", "Pod", "metadata", "name", name,
                     "namespace", "default", "annotations", KEY_MEM_IDX, "0", "spec",
                     "nodeName", on, "containers", "name", "c", "image", "i", "resources",
                     "limits", KEY_GPU_MEM, units);
}

/* The pod of a sample; for a Deployment, the pod of its template. New. */
static json_t *pod_of(const json_t *object)
{
    json_t *pod = json_deep_copy(object);
    if (strcmp(str_at(object, "kind"), "Deployment") == 0) {
        json_decref(pod);
        pod = json_deep_copy(at(object, "spec/template"));
        json_object_set_new(pod, "apiVersion", json_string("v1"));
        json_object_set_new(pod, "kind", json_string("Pod"));
        json_object_del(at(pod, "metadata"), "creationTimestamp");
        json_object_set(at(pod, "metadata"), "name", at(object, "metadata/name"));
        json_object_set(at(pod, "metadata"), "namespace",
                        at(object, "metadata/namespace"));
    }
    json_object_set_new(at(pod, "metadata"), "uid",
                        json_sprintf("uid-%s", str_at(pod, "metadata/name")));
    return pod;
}

static void post(const struct world *w, const char *verb, const json_t *body,
                 json_t **answer)
{
    cleanup_free char *text = json_dumps(body, 0);
    ck_assert_uint_eq(ask(w->port, "POST", verb, text, answer), 200);
}

static void check_sample(const struct world *w, const struct sample *s, json_t *pod)
{
    cleanup_json json_t *fits = NULL, *bound = NULL, *now = NULL;
    cleanup_free char *path = xasprintf("/api/v1/namespaces/default/pods/%s", s->name);
    load(w, json_incref(pod));
    cleanup_json json_t *args =
        json_pack("{s:O, s:[s, s]}", "Pod", pod, "NodeNames", "no-gpu", s->name);
    post(w, "/filter", args, &fits);
    ck_assert_uint_eq(json_array_size(at(fits, "NodeNames")), 1);
    ck_assert_str_eq(json_string_value(at(fits, "NodeNames/0")), s->name);
    cleanup_json json_t *bind =
        json_pack("{s:s, s:s, s:O, s:s}", "PodName", s->name, "PodNamespace", "default",
                  "PodUID", at(pod, "metadata/uid"), "Node", s->name);
    post(w, "/bind", bind, &bound);
    ck_assert_str_eq(str_at(bound, "Error"), "");
    ck_assert_uint_eq(ask(w->api, "GET", path, "", &now), 200);
    ck_assert_str_eq(str_at(now, "metadata/annotations/" KEY_MEM_IDX), s->cards);
    ck_assert_str_eq(str_at(now, "metadata/annotations/" KEY_MEM_POD), s->units);
}

static bool is_known(const struct world *w, const char *name, bool resident)
{
    cleanup_json json_t *all = NULL;
    cleanup_free char *path = xasprintf("/inspect/%s", name);
    if (ask(w->port, "GET", path, "", &all) != 200)
        return false;
    return at(all, "nodes/0/devs/1") &&
           (!resident || json_array_size(at(all, "nodes/0/devs/0/pods")) == 1);
}

static bool has_model(const struct world *w, const char *name)
{
    cleanup_json json_t *all = NULL;
    cleanup_free char *path = xasprintf("/inspect/%s", name);
    return ask(w->port, "GET", path, "", &all) == 200 &&
           *str_at(all, "nodes/0/devs/1/model");
}

/* The extender may bind, has completed every list, and knows every node and its pods. */
static bool is_ready(void *ctx)
{
    const struct world *w = ctx;
    cleanup_json json_t *all = NULL;
    ask(w->port, "GET", "/inspect", "", &all);
    bool ready = json_is_true(at(all, "leader")) &&
                 ask(w->port, "GET", "/readyz", "", NULL) == 200;
    for (size_t i = 0; i < ARRAY_LEN(samples); i++)
        ready = ready && is_known(w, samples[i].name, samples[i].first) &&
                (!samples[i].t4 || has_model(w, samples[i].name));
    return ready;
}

static void world_start(struct world *w)
{
    w->dir = temp_dir();
    w->api = start_sim(&w->sim, w->dir, ARGV("--load", "manifests/lease.yaml"));
    load(w, node("no-gpu", "0", "0"));
    for (size_t i = 0; i < ARRAY_LEN(samples); i++) {
        load(w, node(samples[i].name, "32", "2"));
        if (samples[i].t4)
            load(w, scv(samples[i].name));
        if (samples[i].first)
            load(w, resident(samples[i].name, samples[i].first));
    }
    w->port = start_extender(&w->extender, w->dir, w->api, NULL);
    ck_assert(raw_until(is_ready, w));
}

static void world_stop(struct world *w)
{
    program_stop(&w->extender);
    program_stop(&w->sim);
    temp_dir_remove(w->dir);
    free(w->dir);
}

START_TEST(each_sample_gets_its_cards)
{
    struct world w;
    glob_t files;
    cleanup_json json_t *all = json_array();
    size_t i, k, seen = 0;
    json_t *j;
    ck_assert_int_eq(glob("manifests/samples/*.yaml", 0, NULL, &files), 0);
    ck_assert_int_eq(glob("manifests/samples/*/*.yaml", GLOB_APPEND, NULL, &files), 0);
    for (i = 0; i < files.gl_pathc; i++)
        manifest_read(all, files.gl_pathv[i]);
    globfree(&files);
    world_start(&w);
    json_array_foreach(all, i, j)
    {
        const char *name = str_at(j, "metadata/name");
        if (strcmp(str_at(j, "kind"), "Pod") != 0 &&
            strcmp(str_at(j, "kind"), "Deployment") != 0)
            continue;
        for (k = 0; k < ARRAY_LEN(samples) && strcmp(samples[k].name, name) != 0; k++)
            ;
        ck_assert_msg(k < ARRAY_LEN(samples), "no expectation for %s", name);
        cleanup_json json_t *pod = pod_of(j);
        check_sample(&w, &samples[k], pod);
        seen++;
    }
    ck_assert_uint_eq(seen, ARRAY_LEN(samples));
    world_stop(&w);
}

/* No device plugin is involved in a pod with labels: its container reads the annotation.
 */
START_TEST(the_sample_of_labels_reads_its_cards)
{
    cleanup_json json_t *all = json_array();
    manifest_read(all, "manifests/samples/yoda/scv-labels.yaml");
    ck_assert_str_eq(str_at(all, "0/spec/schedulerName"), "yoda-scheduler");
    ck_assert_str_eq(str_at(all, "0/spec/containers/0/env/0/name"), KEY_VISIBLE_DEVICES);
    ck_assert_str_eq(
        json_string_value(json_object_get(
            at(all, "0/spec/containers/0/env/0/valueFrom/fieldRef"), "fieldPath")),
        "metadata.annotations['" KEY_CARD_UUID "']");
}

UNIT_MAIN("samples", the_sample_of_labels_reads_its_cards, each_sample_gets_its_cards)
