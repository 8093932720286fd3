/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/pure.h"

/* Beyond the conformance cases: loading, time, freezing, streamed lists. */

static const char pod_body[] =
    "{\"metadata\":{\"name\":\"p\"},\"spec\":{\"containers\":[{\"name\":\"c\",\"image\":"
    "\"i\"}]}}";
static const char binding_body[] =
    "{\"metadata\":{\"name\":\"p\"},\"target\":{\"name\":\"n1\"}}";
#define PODS "/api/v1/namespaces/default/pods"

static void load(struct api *api, int64_t now_ms, const char *text)
{
    struct err err = {0};
    ck_assert_done(api_load(api, now_ms, span_of(text), &err), err);
}

static struct api *make(bool run_pods)
{
    struct api_config config = {.seed = 1, .run_pods = run_pods};
    return api_new(&config);
}

static bool is_there(struct api *api, const char *path)
{
    return pure_call(api, 0, lib_fmt("GET %s", path), NULL, NULL, NULL) == 200;
}

static const char *phase(struct api *api)
{
    return lib_str(pure_get(api, 1200, PODS "/p"), "status.phase");
}

TEST(loaded_objects_keep_status_uid_and_creation_time)
{
    struct api *api = make(false);
    const json_t *j;
    load(api, 5000,
         "[{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":"
         "\"n\",\"uid\":\"u-1\",\"creationTimestamp\":\"2020-01-01T00:00:00Z\"},"
         "\"status\":{\"capacity\":{\"aliyun.com/gpu-mem\":\"16\"}}},"
         "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"p\","
         "\"namespace\":\"new\"},\"spec\":{\"nodeName\":\"n\",\"containers\":"
         "[{\"name\":\"c\",\"image\":\"i\"}]},\"status\":{\"phase\":"
         "\"Running\"}}]");
    j = pure_get(api, 0, "/api/v1/nodes/n");
    ck_assert_at(j, "metadata.uid", "u-1");
    ck_assert_at(j, "metadata.creationTimestamp", "2020-01-01T00:00:00Z");
    ck_assert(is_there(api, "/api/v1/namespaces/new"));
    ck_assert_at(pure_get(api, 0, "/api/v1/namespaces/new/pods/p"), "status.phase",
                 "Running");
    ck_assert_uint_eq(api_count(api, "pods"), 1);
    api_free(api);
}

TEST(loading_again_replaces_the_object_and_keeps_its_uid)
{
    struct api *api = make(false);
    static const char *const data[] = {"{\"a\":\"1\"}", "{\"b\":\"2\"}"};
    const json_t *got[2];
    for (int i = 0; i < 2; i++) {
        load(api, 9000 * i,
             lib_fmt(
                 "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":"
                 "\"c\"},\"data\":%s}",
                 data[i]));
        got[i] = pure_get(api, 0, "/api/v1/namespaces/default/configmaps/c");
        ck_assert_str_eq(lib_text(got[i], "data"), data[i]);
    }
    ck_assert_at(got[0], "metadata.uid", lib_str(got[1], "metadata.uid"));
    ck_assert_uint_eq(api_count(api, "configmaps"), 1);
    api_free(api);
}

TEST(loading_refuses_invalid_objects)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"{", ""},
        {"5", ""},
        {"{\"kind\":\"DaemonSet\",\"apiVersion\":\"apps/v1\"}", ""},
        {"{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":5}", ""},
        {"{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"P\"}}",
         "metadata.name"}};
    struct api *api = make(false);
    array_indices(i, cases) {
        struct err err = {0};
        ck_assert_int_eq(api_load(api, 0, span_of(cases[i].text), &err), -1);
        ck_assert_contains(err.msg, cases[i].why);
        ck_assert(i != 2 || err.code == ERR_NOT_FOUND);
    }
    api_free(api);
}

TEST(run_pods_runs_bound_pods_and_removes_deleted_pods)
{
    struct api *api = make(true);
    pure_call(api, 1000, "POST " PODS, NULL, pod_body, NULL);
    api_tick(api, 1100);
    ck_assert_str_eq(phase(api), "Pending");
    ck_assert_uint_eq(
        pure_call(api, 1100, "POST " PODS "/p/binding", NULL, binding_body, NULL), 201);
    api_tick(api, 1200);
    ck_assert_str_eq(phase(api), "Running");
    const json_t *status = lib_at(pure_get(api, 1200, PODS "/p"), "status");
    ck_assert_str_ne(lib_str(status, "startTime"), "");
    ck_assert(json_is_true(lib_at(status, "containerStatuses.0.ready")));
    ck_assert_uint_eq(pure_call(api, 2000, "DELETE " PODS "/p", NULL, NULL, NULL), 200);
    api_tick(api, 2900);
    ck_assert(is_there(api, PODS "/p"));
    api_tick(api, 3000);
    ck_assert(!is_there(api, PODS "/p"));
    api_free(api);
}

TEST(a_timer_ignores_a_new_pod_of_the_same_name)
{
    struct api *api = make(false);
    pure_call(api, 0, "POST " PODS, NULL, pod_body, NULL);
    pure_call(api, 0, "POST " PODS "/p/binding", NULL, binding_body, NULL);
    pure_call(api, 0, "DELETE " PODS "/p", NULL, NULL, NULL);
    pure_call(api, 0, "DELETE " PODS "/p?gracePeriodSeconds=0", NULL, NULL, NULL);
    pure_call(api, 0, "POST " PODS, NULL, pod_body, NULL);
    pure_call(api, 0, "POST " PODS "/p/binding", NULL, binding_body, NULL);
    pure_call(api, 20000, "DELETE " PODS "/p", NULL, NULL, NULL);
    api_tick(api, 30000); /* the end of the first pod's grace period */
    ck_assert(is_there(api, PODS "/p"));
    api_tick(api, 50000);
    ck_assert(!is_there(api, PODS "/p"));
    api_free(api);
}

TEST(a_frozen_resource_is_stale_only_for_resource_version_0)
{
    struct api *api = make(false);
    pure_call(api, 0, "POST " PODS, NULL, pod_body, NULL);
    ck_assert(!api_freeze(api, "unicorns", true));
    ck_assert(api_freeze(api, "pods", true));
    pure_call(api, 0, "POST " PODS "/p/binding", NULL, binding_body, NULL);
    static const char *const versions[] = {"resourceVersion=0&", ""};
    for (size_t i = 0; i < 2; i++)
        ck_assert_uint_eq(
            lib_size(pure_get(api, 0,
                              lib_fmt("/api/v1/pods?%sfieldSelector=spec.nodeName%%3Dn1",
                                      versions[i])),
                     "items"),
            i);
    ck_assert(api_freeze(api, "pods", false));
    api_free(api);
}

TEST(a_body_over_three_mebibytes_is_refused)
{
    struct api *api = make(false);
    size_t n = (3 << 20) + 1;
    char *body = xmalloc(n + 1);
    memset(body, ' ', n);
    body[n] = '\0';
    ck_assert_uint_eq(pure_call(api, 0, "POST " PODS, NULL, body, NULL), 413);
    body[n - 1] = '\0';
    ck_assert_uint_eq(pure_call(api, 0, "POST " PODS, NULL, body, NULL), 400);
    free(body);
    api_free(api);
}

TEST(annotations_have_a_limit_but_not_in_a_binding)
{
    struct api *api = make(false);
    char *value = lib_fmt("%*s", 256 * 1024, "x");
    pure_call(api, 0, "POST " PODS, NULL, pod_body, NULL);
    const char *body = lib_fmt("{\"metadata\":{\"annotations\":{\"a\":\"%s\"}}}", value);
    ck_assert_uint_eq(
        pure_call(api, 0, "PATCH " PODS "/p", "application/merge-patch+json", body, NULL),
        422);
    body = lib_fmt("{\"metadata\":{\"name\":\"p\",\"annotations\":{\"a\":\"%s\"}},"
                   "\"target\":{\"name\":\"n1\"}}",
                   value);
    ck_assert_uint_eq(pure_call(api, 0, "POST " PODS "/p/binding", NULL, body, NULL),
                      201);
    ck_assert_uint_eq(pure_call(api, 0, "PATCH " PODS "/p",
                                "application/merge-patch+json",
                                "{\"metadata\":{\"labels\":{\"a\":\"b\"}}}", NULL),
                      422);
    api_free(api);
}
