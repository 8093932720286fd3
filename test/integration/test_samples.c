/* SPDX-License-Identifier: Apache-2.0 */
#include <glob.h>

#include "base/mem.h"
#include "domain/keys.h"
#include "lib/sim.h"
#include "lib/yamlfile.h"

/*
 * manifests/samples: each sample gets what its comment describes. Every sample is
 * filtered and bound on a node of its own, with two T4 of 16 units.
 */

static const struct sample {
    const char *name;
    const char *cards, *units; /* the expected promise */
    int first;                 /* units promised on the first card before */
} samples[] = {
    {"binpack-1", "0", "1", 0},
    {"gpu-mem", "0", "4", 0},
    {"gpu-mem-several-cards", "0,1", "24", 0},
    {"gpu-count", "0,1", "32", 0},
    {"spread", "1", "2", 4},
    {"gpu-mem-model", "0", "4", 0},
    {"nvidia-gpu-model", "", "", 0},
    {"scv-labels", "0,1", "8", 0},
    {"cuda", "0", "1", 0},
    {"pytorch", "0", "4", 0},
    {"vllm", "0", "8", 0},
    {"tensorflow", "0", "4", 0},
};

/* The pod of a sample; for a Deployment, the pod of its template. New. */
static json_t *pod_of(const json_t *object)
{
    json_t *pod = json_deep_copy(object);
    if (strcmp(lib_str(object, "kind"), "Deployment") == 0) {
        json_decref(pod);
        pod = json_deep_copy(lib_at(object, "spec.template"));
        json_object_set_new(pod, "apiVersion", json_string("v1"));
        json_object_set_new(pod, "kind", json_string("Pod"));
        json_object_del(lib_at(pod, "metadata"), "creationTimestamp");
        json_object_set(lib_at(pod, "metadata"), "name", lib_at(object, "metadata.name"));
        json_object_set(lib_at(pod, "metadata"), "namespace",
                        lib_at(object, "metadata.namespace"));
    }
    json_object_set_new(lib_at(pod, "metadata"), "uid",
                        json_sprintf("uid-%s", lib_str(pod, "metadata.name")));
    return pod;
}

/* sim_add_node says nothing about the clock. */
#define CARD(id)                                                                         \
    "{\"id\":" id ",\"health\":\"Healthy\",\"model\":\"Tesla T4\",\"clock\":5001,"       \
    "\"totalMemory\":16384,\"freeMemory\":16384}"

static void check_sample(const struct sim *s, const struct extender *e,
                         const struct sample *sample, json_t *pod)
{
    cleanup_buf struct buf why = {0};
    cleanup_free char *path =
                          xasprintf("/api/v1/namespaces/default/pods/%s", sample->name),
                      *text = json_dumps(pod, 0);
    sim_load(s, "%s", text);
    cleanup_json json_t *args =
        json_pack("{s:O, s:[s, s]}", "Pod", pod, "NodeNames", "no-gpu", sample->name);
    cleanup_free char *body = json_dumps(args, 0);
    cleanup_json json_t *fits = peer_json(&e->verbs, "POST", "/filter", body);
    ck_assert_uint_eq(json_array_size(lib_at(fits, "NodeNames")), 1);
    ck_assert_str_eq(lib_str(fits, "NodeNames.0"), sample->name);
    ck_assert_msg(extender_bind(e, sample->name, sample->name, &why), "%s", why.p);
    cleanup_json json_t *now = peer_json(&s->api, "GET", path, NULL);
    ck_assert_str_eq(lib_str(now, "metadata.annotations." KEY_MEM_IDX), sample->cards);
    ck_assert_str_eq(lib_str(now, "metadata.annotations." KEY_MEM_POD), sample->units);
}

START_TEST(each_sample_gets_its_cards)
{
    struct sim s;
    struct extender e;
    glob_t files;
    cleanup_json json_t *all = json_array();
    size_t i, k, seen = 0;
    json_t *j;
    ck_assert_int_eq(glob("manifests/samples/*.yaml", 0, NULL, &files), 0);
    ck_assert_int_eq(glob("manifests/samples/*/*.yaml", GLOB_APPEND, NULL, &files), 0);
    for (i = 0; i < files.gl_pathc; i++)
        yamlfile_read(all, files.gl_pathv[i]);
    globfree(&files);
    sim_start(&s, ARGV(NULL));
    sim_add_node(&s, "no-gpu", 0, 0);
    for (i = 0; i < ARRAY_LEN(samples); i++) {
        sim_add_node(&s, samples[i].name, 2, 16);
        if (samples[i].first)
            sim_add_bound_pod(&s, "resident", samples[i].first, samples[i].name,
                              "{\"" KEY_MEM_IDX "\":\"0\"}");
    }
    sim_load(&s,
             "{\"apiVersion\":\"core.run-linux.com/v1\",\"kind\":\"Scv\",\"metadata\":{"
             "\"name\":\"scv-labels\"},\"status\":{\"cardList\":[" CARD("0") "," CARD(
                 "1") "]}}");
    extender_start(&e, &s, ARGV(NULL));
    lib_wait(extender_leads(&e));
    json_array_foreach(all, i, j)
    {
        const char *name = lib_str(j, "metadata.name");
        if (strcmp(lib_str(j, "kind"), "Pod") != 0 &&
            strcmp(lib_str(j, "kind"), "Deployment") != 0)
            continue;
        for (k = 0; k < ARRAY_LEN(samples) && strcmp(samples[k].name, name) != 0; k++)
            ;
        ck_assert_msg(k < ARRAY_LEN(samples), "no expectation for %s", name);
        cleanup_json json_t *pod = pod_of(j);
        check_sample(&s, &e, &samples[k], pod);
        seen++;
    }
    ck_assert_uint_eq(seen, ARRAY_LEN(samples));
    extender_stop(&e);
    sim_stop(&s);
}

/* No device plugin is involved in a pod with labels: its container reads the annotation.
 */
START_TEST(the_sample_of_labels_reads_its_cards)
{
    cleanup_json json_t *all = json_array();
    yamlfile_read(all, "manifests/samples/yoda/scv-labels.yaml");
    ck_assert_str_eq(lib_str(all, "0.spec.schedulerName"), "yoda-scheduler");
    ck_assert_str_eq(lib_str(all, "0.spec.containers.0.env.0.name"), KEY_VISIBLE_DEVICES);
    ck_assert_str_eq(
        json_string_value(json_object_get(
            lib_at(all, "0.spec.containers.0.env.0.valueFrom.fieldRef"), "fieldPath")),
        "metadata.annotations['" KEY_CARD_UUID "']");
}

LIB_MAIN("samples", 60, the_sample_of_labels_reads_its_cards, each_sample_gets_its_cards)
