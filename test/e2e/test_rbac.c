/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e/gangs.h"
#include "lib/cluster.h"

/*
 * The roles of manifests/rbac.yaml with one permission less: for each verb of each rule,
 * the extender starts, names the missing permission, does no harm, and recovers by
 * itself when the permission is back.
 */

#define RBAC     "/apis/rbac.authorization.k8s.io/v1"
#define NAME     "gpushare-schd-extender"
#define EXTENDER "gpushare-extender"
#define LEASE                                                                            \
    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/gpushare-extender"

/* One verb of one rule. */
struct right {
    const char *role;
    size_t rule, verb;
    const char *verb_name, *resource; /* "pods/binding" */
};

/* Removes the permission. Returns the earlier role, kept. */
static json_t *take(const struct right *r)
{
    json_t *role = peer_get(&cluster.api, r->role);
    json_t *less = lib_own(json_deep_copy(role));
    json_t *rule = json_array_get(lib_at(less, "rules"), r->rule);
    json_array_remove(lib_at(rule, "verbs"), r->verb);
    if (lib_size(rule, "verbs") == 0)
        json_array_remove(lib_at(less, "rules"), r->rule);
    peer_do(&cluster.api, "PUT", r->role, lib_text(less, ""));
    return role;
}

static void give_back(const struct right *r, json_t *role)
{
    json_t *now = peer_get(&cluster.api, r->role);
    json_object_set(lib_at(role, "metadata"), "resourceVersion",
                    lib_at(now, "metadata.resourceVersion"));
    peer_do(&cluster.api, "PUT", r->role, lib_text(role, ""));
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

/* Frees memory for a pending pod that kube-scheduler does not retry. */
static void make_room(void)
{
    cluster_set_health("n1", CARDS(16384), "Unhealthy");
    cluster_create_pod("waits", 1, "", SCHEDULER("nobody"));
    lib_wait(extender_filter(&cluster.extender, 1, "n1", NULL) == NOT_NOW);
    cluster_set_health("n1", CARDS(16384), "Healthy");
    lib_wait(extender_filter(&cluster.extender, 1, "n1", NULL) == FITS);
}

/* The expected text: "cannot list resource "pods"". Kept. */
static char *lack_of(const struct right *r, const char *quote)
{
    return lib_fmt("cannot %s resource %s%s%s", r->verb_name, quote, r->resource, quote);
}

static void provoke(const struct right *r)
{
    if (is(r, "create", "leases"))
        peer_do(&cluster.api, "DELETE", LEASE, NULL);
    /* A bind writes an Event. A rejection writes one only if the pod is already listed. */
    if (is(r, "create", "pods/binding") || is(r, "create", "events"))
        cluster_create_pod("waits", 1, "", "");
    if (is(r, "get", "pods") || is(r, "patch", "nodes") || is(r, "get", "podgroups"))
        lib_wait(extender_leads(&cluster.extender) && extender_ready(&cluster.extender));
    if (is(r, "get", "pods")) {
        cleanup_buf struct buf why = {0};
        extender_bind(&cluster.extender, "nobody", "n1", &why);
        ck_assert_contains(why.p, lack_of(r, "\""));
    }
    if (is(r, "patch", "nodes"))
        make_room();
    if (is(r, "get", "podgroups"))
        gangs_filter_members();
}

/* -- one permission less -- */

static bool binds_are_over(void)
{
    return lib_int(peer_get(&cluster.extender.observers, "/inspect"), "bindsInFlight") ==
           0;
}

/* kube-scheduler also writes it into the events of the pod. */
static void check_reported(const struct right *r)
{
    const char *lack = lack_of(r, "\"");
    if (strcmp(r->verb_name, "list") == 0) {
        lib_wait(peer_says(&cluster.extender.observers, "/readyz", 503, lack));
        cluster_create_pod("waits", 1, "", "");
    } else if (is(r, "create", "pods/binding")) {
        cluster_wait_refused("waits", lack);
    } else if (strcmp(r->resource, "leases") == 0 && !is(r, "watch", "leases")) {
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
    const char *lack = lack_of(r, "\\\"");
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
    json_t *j = peer_get(&cluster.api, role);
    size_t i, k;
    json_t *rule, *verb, *resource;
    int64_t longest = 0;
    cluster_kubectl("apply", "-f", "manifests/rbac.yaml");
    cluster_add_node("n1", "", CARDS(16384));
    json_array_foreach(lib_at(j, "rules"), i, rule)
    {
        json_array_foreach(lib_at(rule, "verbs"), k, verb)
        {
            lib_each(resource, lib_at(rule, "resources")) {
                struct right r = {role, i, k, lib_str(verb, ""), lib_str(resource, "")};
                /* Reviews: only with HTTPS; test_view_auth takes them away. Secrets: not
                 * used on loopback (test/integration/test_certs.c). Workloads: in one rule
                 * with podgroups, and one warning a minute stands for both. */
                if (strstr(r.resource, "reviews") || strcmp(r.resource, "secrets") == 0 ||
                    strcmp(r.resource, "workloads") == 0)
                    continue;
                int64_t ms = without(&r);
                longest = ms > longest ? ms : longest;
            }
        }
    }
    cluster_report("longest time from a right's return until all is as before", longest);
}

TEST(each_permission_of_the_cluster_role)
{
    without_each(RBAC "/clusterroles/" NAME);
}

TEST(each_permission_in_kube_system)
{
    without_each(RBAC "/namespaces/kube-system/roles/" NAME);
}

TEST(each_permission_in_the_heartbeat_namespace)
{
    without_each(RBAC "/namespaces/nvidia-gpu-scheduler-node-lease/roles/" NAME);
}

CLUSTER_MAIN(600)
