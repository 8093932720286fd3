/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "lib/cluster.h"
#include "lib/gangs.h"

/*
 * The roles of manifests/rbac.yaml with one permission less: for each verb of each rule,
 * the extender starts, names the missing permission, does no harm, and recovers by
 * itself when the permission is back.
 */

#define SCVS     "/apis/core.run-linux.com/v1/scvs"
#define RBAC     "/apis/rbac.authorization.k8s.io/v1"
#define NAME     "gpushare-schd-extender"
#define EXTENDER "gpushare-extender"
#define LEASE                                                                            \
    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/gpushare-extender"

static const char *const roles[] = {
    RBAC "/clusterroles/" NAME,
    RBAC "/namespaces/kube-system/roles/" NAME,
    RBAC "/namespaces/nvidia-gpu-scheduler-node-lease/roles/" NAME,
};

/* One verb of one rule. */
struct right {
    const char *role;
    size_t rule, verb;
    const char *verb_name, *resource; /* "pods/binding" */
};

static void put_role(const char *role, const json_t *j)
{
    cleanup_free char *body = json_dumps(j, 0);
    json_decref(peer_json(&cluster.api, "PUT", role, body));
}

/* Removes the permission. Returns the earlier role, new. */
static json_t *take(const struct right *r)
{
    json_t *role = peer_json(&cluster.api, "GET", r->role, NULL);
    cleanup_json json_t *less = json_deep_copy(role);
    json_t *rule = json_array_get(lib_at(less, "rules"), r->rule);
    json_array_remove(lib_at(rule, "verbs"), r->verb);
    if (json_array_size(lib_at(rule, "verbs")) == 0)
        json_array_remove(lib_at(less, "rules"), r->rule);
    put_role(r->role, less);
    return role;
}

static void give_back(const struct right *r, json_t *role)
{
    cleanup_json json_t *now = peer_json(&cluster.api, "GET", r->role, NULL);
    json_object_set(lib_at(role, "metadata"), "resourceVersion",
                    lib_at(now, "metadata.resourceVersion"));
    put_role(r->role, role);
    json_decref(role);
}

static void restart_extender(void)
{
    cluster_listen();
    cluster_stop(EXTENDER, "TERM");
    cluster_start(EXTENDER);
    lib_wait(peer_status(&cluster.extender.observers, "/healthz") == 200);
}

/* -- causes of requests that a start does not make -- */

static bool is(const struct right *r, const char *verb, const char *resource)
{
    return strcmp(r->verb_name, verb) == 0 && strcmp(r->resource, resource) == 0;
}

/* Requests a bind of a pod that does not exist. Returns the answer, new. */
static char *bind_unknown(void)
{
    cleanup_buf struct buf reply = {0};
    peer_call(&cluster.extender.verbs, "POST", "/gpushare-scheduler/bind",
              "{\"PodName\":\"nobody\",\"PodNamespace\":\"default\",\"PodUID\":"
              "\"uid-of-nobody\",\"Node\":\"n1\"}",
              &reply);
    return xstrdup(reply.p);
}

static void set_health(const char *health)
{
    cleanup_free char *body = xasprintf(
        "{\"status\":{\"cardList\":[{\"id\":0,\"uuid\":\"GPU-n1-0\",\"health\":\"%s\","
        "\"model\":\"Tesla T4\",\"totalMemory\":16384,\"freeMemory\":16384}]}}",
        health);
    json_decref(peer_json(&cluster.api, "PATCH", SCVS "/n1", body));
}

/* Frees memory for a pending pod that kube-scheduler does not retry. */
static void make_room(void)
{
    set_health("Unhealthy");
    cluster_create_pod("waits", 1, "", SCHEDULER("nobody"));
    lib_wait(extender_filter(&cluster.extender, 1, "n1", NULL) == NOT_NOW);
    set_health("Healthy");
    lib_wait(extender_filter(&cluster.extender, 1, "n1", NULL) == FITS);
}

/* The expected text: "cannot list resource "pods"". New. */
static char *lack_of(const struct right *r, const char *quote)
{
    return xasprintf("cannot %s resource %s%s%s", r->verb_name, quote, r->resource,
                     quote);
}

static void provoke(const struct right *r)
{
    if (is(r, "create", "leases"))
        json_decref(peer_json(&cluster.api, "DELETE", LEASE, NULL));
    /* A bind writes an Event. A rejection writes one only if the pod is already listed. */
    if (is(r, "create", "pods/binding") || is(r, "create", "events"))
        cluster_create_pod("waits", 1, "", "");
    if (is(r, "get", "pods") || is(r, "patch", "nodes") || is(r, "get", "podgroups"))
        lib_wait(extender_leads(&cluster.extender) && extender_ready(&cluster.extender));
    if (is(r, "get", "pods")) {
        cleanup_free char *said = bind_unknown(), *lack = lack_of(r, "\\\"");
        ck_assert_contains(said, lack);
    }
    if (is(r, "patch", "nodes"))
        make_room();
    if (is(r, "get", "podgroups"))
        gangs_filter_members();
}

/* -- one permission less -- */

static bool readyz_says(const char *text)
{
    cleanup_buf struct buf reply = {0};
    unsigned status =
        peer_call(&cluster.extender.observers, "GET", "/readyz", NULL, &reply);
    return status == 503 && strstr(reply.p, text);
}

static bool binds_are_over(void)
{
    cleanup_json json_t *j =
        peer_json(&cluster.extender.observers, "GET", "/inspect", NULL);
    return json_integer_value(lib_at(j, "bindsInFlight")) == 0;
}

/* kube-scheduler also writes it into the events of the pod. */
static void check_reported(const struct right *r)
{
    cleanup_free char *lack = lack_of(r, "\"");
    if (strcmp(r->verb_name, "list") == 0) {
        lib_wait(readyz_says(lack));
        cluster_create_pod("waits", 1, "", "");
    } else if (is(r, "create", "pods/binding")) {
        cluster_wait_refused("waits", lack);
    } else if (is(r, "patch", "leases") || is(r, "get", "leases") ||
               is(r, "create", "leases")) {
        cluster_create_pod("waits", 1, "", "");
        cluster_wait_refused("waits", lack);
    }
}

/* Only expected promises exist, and the extender runs. */
static void check_no_harm(pid_t pid)
{
    ck_assert_int_eq(cluster_pid(EXTENDER), pid);
    ck_assert_uint_eq(peer_status(&cluster.extender.observers, "/healthz"), 200);
    oracle_check(&cluster.api);
}

/* Binds a pod and waits until the extender has seen its deletion: a denied list or watch
 * is retried after some seconds. Returns how long it took. */
static int64_t check_recovers(void)
{
    int64_t begun = lib_now_ms();
    cluster_create_pod("again", 1, "", "");
    cluster_wait_running("again");
    lib_wait(extender_ready(&cluster.extender) && binds_are_over());
    cluster_delete_pods();
    oracle_agrees(&cluster.api, &cluster.extender);
    return lib_now_ms() - begun;
}

static int64_t without(const struct right *r)
{
    cleanup_free char *lack = lack_of(r, "\\\"");
    json_t *role = take(r);
    restart_extender();
    pid_t pid = cluster_pid(EXTENDER);
    provoke(r);
    if (!is(r, "get", "pods")) /* the client gets this error */
        lib_wait(cluster_logged(lack));
    check_reported(r);
    check_no_harm(pid);
    ck_assert_uint_le(cluster_logged(lack), 12); /* rate-limited */
    give_back(r, role);
    return check_recovers();
}

static void without_each(const char *role)
{
    cleanup_json json_t *j = peer_json(&cluster.api, "GET", role, NULL);
    size_t i, k, n;
    json_t *rule, *verb, *resource;
    int64_t longest = 0;
    cluster_add_node("n1", NULL, NULL, CARDS(16384));
    json_array_foreach(lib_at(j, "rules"), i, rule)
    {
        json_array_foreach(lib_at(rule, "verbs"), k, verb)
        {
            json_array_foreach(lib_at(rule, "resources"), n, resource)
            {
                /* Only with HTTPS; test_view_auth takes these away. */
                if (strstr(json_string_value(resource), "reviews"))
                    continue;
                if (strcmp(json_string_value(resource), "secrets") == 0)
                    continue; /* not used on loopback: test/integration/test_certs.c */
                /* In one rule with podgroups, and one warning a minute stands for both. */
                if (strcmp(json_string_value(resource), "workloads") == 0)
                    continue;
                struct right r = {role, i, k, json_string_value(verb),
                                  json_string_value(resource)};
                int64_t ms = without(&r);
                longest = ms > longest ? ms : longest;
            }
        }
    }
    cluster_report("longest time from a right's return until all is as before", longest);
}

static void begin(void)
{
    free(cluster_kubectl(ARGV("apply", "-f", "manifests/rbac.yaml")));
}

START_TEST(each_permission_of_the_cluster_role)
{
    begin();
    without_each(roles[0]);
}

START_TEST(each_permission_in_kube_system)
{
    begin();
    without_each(roles[1]);
}

START_TEST(each_permission_in_the_heartbeat_namespace)
{
    begin();
    without_each(roles[2]);
}

CLUSTER_MAIN("rbac", 600, ARGV("--nodes", "0"), each_permission_of_the_cluster_role,
             each_permission_in_kube_system, each_permission_in_the_heartbeat_namespace)
