/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/keys.h"
#include "integration/suite.h"
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
    {"hami-gpumem", "0", "3000", 0},
    {"hami-gpu", "0", "16384", 0},
    {"hami-percentage", "0,1", "8192", 0},
    {"hami-deployment", "0", "2000", 0},
};

/* The pod of a sample; for a Deployment, the pod of its template. */
static json_t *pod_of(json_t *object)
{
    json_t *pod = object, *of = lib_at(object, "metadata");
    if (strcmp(lib_str(object, "kind"), "Deployment") == 0) {
        pod = lib_at(object, "spec.template");
        json_object_set_new(pod, "apiVersion", json_string("v1"));
        json_object_set_new(pod, "kind", json_string("Pod"));
        json_object_del(lib_at(pod, "metadata"), "creationTimestamp");
        json_object_update_missing(lib_at(pod, "metadata"), of);
    }
    json_object_set_new(lib_at(pod, "metadata"), "uid",
                        json_sprintf("uid-%s", lib_str(of, "name")));
    return pod;
}

/* sim_add_node says nothing about the clock. */
#define CARD(id)                                                                         \
    "{\"id\":" id ",\"health\":\"Healthy\",\"model\":\"Tesla T4\",\"clock\":5001,"       \
    "\"totalMemory\":16384,\"freeMemory\":16384}"

static void check_sample(const struct sample *sample, json_t *pod)
{
    cleanup_buf struct buf why = {0};
    sim_load(&sim, "%s", lib_text(pod, ""));
    const json_t *fits =
        peer_post(&extender.verbs, "/filter",
                  lib_fmt("{\"Pod\":%s,\"NodeNames\":[\"no-gpu\",\"%s\"]}",
                          lib_text(pod, ""), sample->name));
    ck_assert_str_eq(lib_text(fits, "NodeNames"), lib_fmt("[\"%s\"]", sample->name));
    ck_assert_msg(extender_bind(&extender, sample->name, sample->name, &why), "%s",
                  why.p);
    json_t *now =
        peer_get(&sim.api, lib_fmt("/api/v1/namespaces/default/pods/%s", sample->name));
    ck_assert_at(now, "metadata.annotations." KEY_MEM_IDX, sample->cards);
    ck_assert_at(now, "metadata.annotations." KEY_MEM_POD, sample->units);
}

/* Makes the node one of HAMi's dialect. */
static void serve_hami(const char *node)
{
    sim_load(&sim,
             "{\"apiVersion\":\"core.run-linux.com/v1\",\"kind\":\"Scv\",\"metadata\":{"
             "\"name\":\"%s\"},\"status\":{\"dialect\":\"hami\",\"cardList\":[" CARD(
                 "0") "," CARD("1") "]}}",
             node);
    peer_do(&sim.api, "PATCH", lib_fmt("/api/v1/nodes/%s/status", node),
            "{\"status\":{\"capacity\":{\"nvidia.com/gpu\":\"64\"}}}");
}

TEST(each_sample_gets_its_cards)
{
    size_t i, k, seen = 0;
    json_t *j;
    sim_add_node(&sim, "no-gpu", 0, 0);
    for (i = 0; i < ARRAY_LEN(samples); i++) {
        sim_add_node(&sim, samples[i].name, 2, 16);
        if (strncmp(samples[i].name, "hami-", 5) == 0)
            serve_hami(samples[i].name);
        if (samples[i].first)
            sim_add_bound_pod(&sim, "resident", samples[i].first, samples[i].name,
                              "{\"" KEY_MEM_IDX "\":\"0\"}");
    }
    sim_load(&sim,
             "{\"apiVersion\":\"core.run-linux.com/v1\",\"kind\":\"Scv\",\"metadata\":{"
             "\"name\":\"scv-labels\"},\"status\":{\"cardList\":[" CARD("0") "," CARD(
                 "1") "]}}");
    suite_extender(ARGV("--requests-of", "hami"));
    lib_wait(extender_leads(&extender));
    lib_each(j, yamlfile_all("manifests/samples/{,*/}*.yaml")) {
        const char *name = lib_str(j, "metadata.name");
        if (strcmp(lib_str(j, "kind"), "Pod") != 0 &&
            strcmp(lib_str(j, "kind"), "Deployment") != 0)
            continue;
        for (k = 0; k < ARRAY_LEN(samples) && strcmp(samples[k].name, name) != 0; k++)
            ;
        ck_assert_msg(k < ARRAY_LEN(samples), "no expectation for %s", name);
        check_sample(&samples[k], pod_of(j));
        seen++;
    }
    ck_assert_uint_eq(seen, ARRAY_LEN(samples));
}

/* No device plugin is involved in a pod with labels: its container reads the annotation.
 */
TEST(the_sample_of_labels_reads_its_cards)
{
    const json_t *pod = yamlfile_one("manifests/samples/yoda/scv-labels.yaml"),
                 *env = lib_at(pod, "spec.containers.0.env.0");
    ck_assert_at(pod, "spec.schedulerName", "yoda-scheduler");
    ck_assert_at(env, "name", KEY_VISIBLE_DEVICES);
    ck_assert_at(env, "valueFrom.fieldRef.fieldPath",
                 "metadata.annotations['" KEY_CARD_UUID "']");
}

SUITE_MAIN(60, NULL)
