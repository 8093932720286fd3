/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/pure.h"

/* Beyond the conformance cases: loading, time, freezing, streamed lists. */

static const char pod_body[] =
    "{\"metadata\":{\"name\":\"p\"},\"spec\":{\"containers\":[{\"name\":\"c\",\"image\":"
    "\"i\"}]}}";
static const char binding_body[] =
    "{\"metadata\":{\"name\":\"p\"},\"target\":{\"name\":\"n1\"}}";
#define PODS "/api/v1/namespaces/default/pods"

static struct api *make(bool run_pods)
{
    struct api_config config = {.seed = 1, .run_pods = run_pods};
    return api_new(&config);
}

static bool is_there(struct api *api, const char *path)
{
    char line[PURE_PATH];
    snprintf(line, sizeof line, "GET %s", path);
    return pure_call(api, 0, line, NULL, NULL, NULL) == 200;
}

START_TEST(loaded_objects_keep_status_uid_and_creation_time)
{
    struct api *api = make(false);
    struct err err = {0};
    json_t *j;
    ck_assert_done(
        api_load(
            api, 5000,
            SPAN("[{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":"
                 "\"n\",\"uid\":\"u-1\",\"creationTimestamp\":\"2020-01-01T00:00:00Z\"},"
                 "\"status\":{\"capacity\":{\"aliyun.com/gpu-mem\":\"16\"}}},"
                 "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"p\","
                 "\"namespace\":\"new\"},\"spec\":{\"nodeName\":\"n\",\"containers\":"
                 "[{\"name\":\"c\",\"image\":\"i\"}]},\"status\":{\"phase\":"
                 "\"Running\"}}]"),
            &err),
        err);
    ck_assert_uint_eq(pure_call(api, 0, "GET /api/v1/nodes/n", NULL, NULL, &j), 200);
    ck_assert_str_eq(pure_str(j, "metadata", "uid"), "u-1");
    ck_assert_str_eq(pure_str(j, "metadata", "creationTimestamp"),
                     "2020-01-01T00:00:00Z");
    json_decref(j);
    ck_assert(is_there(api, "/api/v1/namespaces/new"));
    ck_assert_uint_eq(
        pure_call(api, 0, "GET /api/v1/namespaces/new/pods/p", NULL, NULL, &j), 200);
    ck_assert_str_eq(pure_str(j, "status", "phase"), "Running");
    json_decref(j);
    ck_assert_uint_eq(api_count(api, "pods"), 1);
    api_free(api);
}

START_TEST(loading_again_replaces_the_object_and_keeps_its_uid)
{
    struct api *api = make(false);
    json_t *a, *b;
    static const char *const versions[] = {
        "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"c\"},"
        "\"data\":{\"a\":\"1\"}}",
        "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"c\"},"
        "\"data\":{\"b\":\"2\"}}"};
    const char *get = "GET /api/v1/namespaces/default/configmaps/c";
    ck_assert_int_eq(api_load(api, 0, span_of(versions[0]), NULL), 0);
    pure_call(api, 0, get, NULL, NULL, &a);
    ck_assert_int_eq(api_load(api, 9000, span_of(versions[1]), NULL), 0);
    pure_call(api, 0, get, NULL, NULL, &b);
    ck_assert_str_eq(pure_str(b, "data", "b"), "2");
    ck_assert_str_eq(pure_str(b, "data", "a"), "");
    ck_assert_str_eq(pure_str(a, "metadata", "uid"), pure_str(b, "metadata", "uid"));
    ck_assert_uint_eq(api_count(api, "configmaps"), 1);
    json_decref(a);
    json_decref(b);
    api_free(api);
}

START_TEST(loading_refuses_invalid_objects)
{
    struct api *api = make(false);
    struct err err = {0};
    ck_assert_int_eq(api_load(api, 0, SPAN("{"), &err), -1);
    ck_assert_int_eq(api_load(api, 0, SPAN("5"), &err), -1);
    ck_assert_int_eq(api_load(api, 0,
                              SPAN("{\"kind\":\"Deployment\",\"apiVersion\":"
                                   "\"apps/v1\"}"),
                              &err),
                     -1);
    ck_assert_int_eq(err.code, ERR_NOT_FOUND);
    ck_assert_int_eq(api_load(api, 0,
                              SPAN("{\"kind\":\"Pod\",\"apiVersion\":\"v1\","
                                   "\"metadata\":{\"name\":\"P\"}}"),
                              &err),
                     -1);
    ck_assert_ptr_nonnull(strstr(err.msg, "metadata.name"));
    ck_assert_int_eq(api_load(api, 0,
                              SPAN("{\"kind\":\"Pod\",\"apiVersion\":\"v1\","
                                   "\"metadata\":5}"),
                              &err),
                     -1);
    api_free(api);
}

START_TEST(run_pods_runs_bound_pods_and_removes_deleted_pods)
{
    struct api *api = make(true);
    json_t *j;
    pure_call(api, 1000, "POST " PODS, NULL, pod_body, NULL);
    api_tick(api, 1100);
    pure_call(api, 1100, "GET " PODS "/p", NULL, NULL, &j);
    ck_assert_str_eq(pure_str(j, "status", "phase"), "Pending");
    json_decref(j);
    ck_assert_uint_eq(
        pure_call(api, 1100, "POST " PODS "/p/binding", NULL, binding_body, NULL), 201);
    api_tick(api, 1200);
    pure_call(api, 1200, "GET " PODS "/p", NULL, NULL, &j);
    ck_assert_str_eq(pure_str(j, "status", "phase"), "Running");
    ck_assert_str_ne(pure_str(j, "status", "startTime"), "");
    json_t *c = json_array_get(
        json_object_get(json_object_get(j, "status"), "containerStatuses"), 0);
    ck_assert(json_is_true(json_object_get(c, "ready")));
    json_decref(j);
    ck_assert_uint_eq(pure_call(api, 2000, "DELETE " PODS "/p", NULL, NULL, NULL), 200);
    api_tick(api, 2900);
    ck_assert(is_there(api, PODS "/p"));
    api_tick(api, 3000);
    ck_assert(!is_there(api, PODS "/p"));
    api_free(api);
}

START_TEST(a_timer_ignores_a_new_pod_of_the_same_name)
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

START_TEST(renew_leases_renews_each_lease_once_per_period)
{
    struct api_config config = {.seed = 1, .renew_leases_ms = 10000};
    struct api *api = api_new(&config);
    for (int i = 0; i < 20; i++) {
        char text[256];
        snprintf(
            text, sizeof text,
            "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\",\"metadata\":"
            "{\"name\":\"n%02d\",\"namespace\":\"%s\"},\"spec\":{\"renewTime\":"
            "\"2020-01-01T00:00:00.000000Z\"}}",
            i, i < 15 ? "nvidia-gpu-scheduler-node-lease" : "kube-system");
        ck_assert_int_eq(api_load(api, 0, span_of(text), NULL), 0);
    }
    api_tick(api, 1000000);
    uint64_t before = api_version(api);
    for (int64_t t = 1000000; t <= 1010000; t += 100)
        api_tick(api, t);
    ck_assert_uint_eq(api_version(api) - before, 15);
    json_t *j;
    pure_call(api, 0,
              "GET /apis/coordination.k8s.io/v1/leases?fieldSelector=metadata.namespace"
              "%3Dnvidia-gpu-scheduler-node-lease",
              NULL, NULL, &j);
    json_t *list = json_object_get(j, "items"), *o;
    size_t i;
    ck_assert_uint_eq(json_array_size(list), 15);
    json_array_foreach(list, i, o) ck_assert_ptr_nonnull(
        strstr(pure_str(o, "spec", "renewTime"), "1970-01-01T00:16:"));
    json_decref(j);
    api_tick(api, 5000000); /* after a pause: each Lease once */
    ck_assert_uint_eq(api_version(api) - before, 30);
    api_free(api);
}

START_TEST(a_frozen_resource_is_stale_only_for_resource_version_0)
{
    struct api *api = make(false);
    json_t *j;
    pure_call(api, 0, "POST " PODS, NULL, pod_body, NULL);
    ck_assert(!api_freeze(api, "unicorns", true));
    ck_assert(api_freeze(api, "pods", true));
    pure_call(api, 0, "POST " PODS "/p/binding", NULL, binding_body, NULL);
    pure_call(api, 0,
              "GET /api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName%3Dn1", NULL,
              NULL, &j);
    ck_assert_uint_eq(json_array_size(json_object_get(j, "items")), 0);
    json_decref(j);
    pure_call(api, 0, "GET /api/v1/pods?fieldSelector=spec.nodeName%3Dn1", NULL, NULL,
              &j);
    ck_assert_uint_eq(json_array_size(json_object_get(j, "items")), 1);
    json_decref(j);
    ck_assert(api_freeze(api, "pods", false));
    api_free(api);
}

START_TEST(a_body_over_three_mebibytes_is_refused)
{
    struct api *api = make(false);
    size_t n = (3 << 20) + 1;
    char *body = xmalloc(n + 1);
    memset(body, ' ', n);
    body[n] = '\0';
    json_t *j;
    ck_assert_uint_eq(pure_call(api, 0, "POST " PODS, NULL, body, &j), 413);
    json_decref(j);
    body[n - 1] = '\0';
    ck_assert_uint_eq(pure_call(api, 0, "POST " PODS, NULL, body, NULL), 400);
    free(body);
    api_free(api);
}

START_TEST(annotations_have_a_limit_but_not_in_a_binding)
{
    struct api *api = make(false);
    size_t n = 256 * 1024;
    char *body = xmalloc(n + 1024), *value = xmalloc(n + 1);
    memset(value, 'x', n);
    value[n] = '\0';
    pure_call(api, 0, "POST " PODS, NULL, pod_body, NULL);
    snprintf(body, n + 1024, "{\"metadata\":{\"annotations\":{\"a\":\"%s\"}}}", value);
    ck_assert_uint_eq(
        pure_call(api, 0, "PATCH " PODS "/p", "application/merge-patch+json", body, NULL),
        422);
    snprintf(body, n + 1024,
             "{\"metadata\":{\"name\":\"p\",\"annotations\":{\"a\":\"%s\"}},\"target\":{"
             "\"name\":\"n1\"}}",
             value);
    ck_assert_uint_eq(pure_call(api, 0, "POST " PODS "/p/binding", NULL, body, NULL),
                      201);
    ck_assert_uint_eq(pure_call(api, 0, "PATCH " PODS "/p",
                                "application/merge-patch+json",
                                "{\"metadata\":{\"labels\":{\"a\":\"b\"}}}", NULL),
                      422);
    free(body);
    free(value);
    api_free(api);
}

UNIT_MAIN("api", loaded_objects_keep_status_uid_and_creation_time,
          loading_again_replaces_the_object_and_keeps_its_uid,
          loading_refuses_invalid_objects,
          run_pods_runs_bound_pods_and_removes_deleted_pods,
          a_timer_ignores_a_new_pod_of_the_same_name,
          renew_leases_renews_each_lease_once_per_period,
          a_frozen_resource_is_stale_only_for_resource_version_0,
          a_body_over_three_mebibytes_is_refused,
          annotations_have_a_limit_but_not_in_a_binding)
