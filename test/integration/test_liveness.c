/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <string.h>

#include "base/mem.h"
#include "integration/kit.h"

/* Nodes whose scv-agent dies, as the program sees them: kube-sim renews the Leases of the
 * others. */

enum { GRACE_MS = 3000 };

struct world {
    struct sim sim;
    struct extender extender;
};

static void add_lease(const struct sim *s, const char *node)
{
    sim_load(s,
             "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\","
             "\"metadata\":{\"name\":\"%s\",\"namespace\":"
             "\"nvidia-gpu-scheduler-node-lease\",\"ownerReferences\":[{\"apiVersion\":"
             "\"v1\",\"kind\":\"Node\",\"name\":\"%s\",\"uid\":\"u\"}]},\"spec\":{"
             "\"holderIdentity\":\"%s\",\"leaseDurationSeconds\":40}}",
             node, node, node);
}

static void patch_lease(const struct sim *s, const char *node, const char *annotation)
{
    cleanup_free char *path =
        xasprintf("/apis/coordination.k8s.io/v1/namespaces/"
                  "nvidia-gpu-scheduler-node-lease/leases/%s?fieldManager=test",
                  node);
    cleanup_free char *body = xasprintf(
        "{\"metadata\":{\"annotations\":{\"kube-sim/frozen\":%s}}}", annotation);
    struct httpc_request req = {.method = "PATCH",
                                .path = path,
                                .content_type = "application/merge-patch+json",
                                .body = span_of(body),
                                .timeout_ms = 10000};
    struct httpc_reply answer;
    struct err err = {0};
    ck_assert_done(httpc_call(s->api.http, &req, 1 << 20, &answer, &err), err);
    ck_assert_uint_eq(answer.status, 200);
    httpc_reply_fini(&answer);
}

/* n1 and n2 have agents, n3 the Scv of another daemon. */
static void world_begin(struct world *w)
{
    sim_start(&w->sim, ARGV("--renew-leases", "500ms"));
    sim_add_node(&w->sim, "n1", 1, 16);
    sim_add_node(&w->sim, "n2", 1, 16);
    sim_add_node(&w->sim, "n3", 1, 16);
    add_lease(&w->sim, "n1");
    add_lease(&w->sim, "n2");
    extender_start(&w->extender, &w->sim, ARGV("--node-grace", "3s"));
}

static void world_end(struct world *w)
{
    extender_stop(&w->extender);
    sim_stop(&w->sim);
}

static bool fits(struct world *w, const char *node)
{
    return extender_filter(&w->extender, 8, node, NULL) == FITS;
}

/* For longer than the grace, all of them fit all the time. */
static void stay_alive(struct world *w)
{
    int64_t end = kit_now_ms() + 2 * GRACE_MS;
    while (kit_now_ms() < end) {
        ck_assert(fits(w, "n1") && fits(w, "n2") && fits(w, "n3"));
        kit_pause();
    }
}

static char *room_since(struct world *w, const char *node)
{
    cleanup_free char *path = xasprintf("/api/v1/nodes/%s", node);
    cleanup_json json_t *j = peer_json(&w->sim.api, "GET", path, NULL);
    json_t *notes = kit_at(j, "metadata.annotations");
    const char *text = json_string_value(json_object_get(notes, "gpushare/room-since"));
    return xstrdup(text ? text : "");
}

static bool was_marked(struct world *w, const char *node)
{
    cleanup_free char *text = room_since(w, node);
    return *text != '\0';
}

START_TEST(a_node_whose_agent_dies_gets_no_new_pods_until_it_is_back)
{
    struct world w;
    cleanup_buf struct buf why = {0};
    world_begin(&w);
    sim_add_pod(&w.sim, "old", 4);
    kit_wait(extender_bind(&w.extender, "old", "n1", &why));
    patch_lease(&w.sim, "n1", "\"yes\"");
    int64_t frozen = kit_now_ms();
    kit_wait(!fits(&w, "n1"));
    printf("measured: silent %lld ms after the agent froze, with a grace of %d ms\n",
           (long long)(kit_now_ms() - frozen), GRACE_MS);
    ck_assert_int_ge(kit_now_ms() - frozen, GRACE_MS - 1000);
    ck_assert_int_eq(extender_filter(&w.extender, 8, "n1", &why), NOT_NOW);
    ck_assert_str_eq(why.p, "no heartbeat from scv-agent on this node for 3 s");
    sim_add_pod(&w.sim, "new", 8);
    kit_wait(!extender_bind(&w.extender, "new", "n1", &why));
    ck_assert_says(why.p, "no heartbeat from scv-agent on this node for 3 s");
    cleanup_json json_t *node = extender_inspect(&w.extender, "n1");
    ck_assert_says(kit_str(node, "reason"), "no heartbeat from scv-agent");
    ck_assert_int_eq(json_integer_value(kit_at(node, "usedGPU")), 4);
    ck_assert(fits(&w, "n2") && fits(&w, "n3"));
    ck_assert(!was_marked(&w, "n1"));
    /* Back by itself, and kube-scheduler is told, because a pod waits. */
    patch_lease(&w.sim, "n1", "null");
    kit_wait(fits(&w, "n1"));
    kit_wait(was_marked(&w, "n1"));
    ck_assert_msg(extender_bind(&w.extender, "new", "n1", &why), "%s", why.p);
    oracle_agrees(&w.sim.api, &w.extender);
    world_end(&w);
}
END_TEST

START_TEST(a_lease_that_is_deleted_counts_as_an_agent_that_died)
{
    struct world w;
    world_begin(&w);
    json_decref(peer_json(&w.sim.api, "DELETE",
                          "/apis/coordination.k8s.io/v1/namespaces/"
                          "nvidia-gpu-scheduler-node-lease/leases/n2",
                          NULL));
    kit_wait(!fits(&w, "n2"));
    ck_assert(fits(&w, "n1") && fits(&w, "n3"));
    add_lease(&w.sim, "n2");
    kit_wait(fits(&w, "n2"));
    world_end(&w);
}
END_TEST

/* nvidia-gpu-scheduler's Leases have the names of ours. */
START_TEST(a_lease_that_another_system_left_behind_is_named)
{
    struct world w;
    cleanup_buf struct buf why = {0};
    world_begin(&w);
    sim_load(&w.sim,
             "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\","
             "\"metadata\":{\"name\":\"n3\",\"namespace\":"
             "\"nvidia-gpu-scheduler-node-lease\",\"annotations\":{\"kube-sim/frozen\":"
             "\"yes\"},\"ownerReferences\":[{\"apiVersion\":\"v1\",\"kind\":\"GpuNode\","
             "\"name\":\"n3\",\"uid\":\"u\"}]},\"spec\":{\"holderIdentity\":\"n3\","
             "\"leaseDurationSeconds\":8,\"renewTime\":"
             "\"2026-11-20T09:00:00.000000Z\"}}");
    kit_wait(!fits(&w, "n3"));
    ck_assert_int_eq(extender_filter(&w.extender, 8, "n3", &why), NOT_NOW);
    ck_assert_str_eq(
        why.p, "no heartbeat from scv-agent on this node for 3 s; Lease "
               "nvidia-gpu-scheduler-node-lease/n3 does not belong to scv-agent (holder: "
               "n3; last renewed: 2026-11-20T09:00:00.000000Z): delete it if another "
               "system left it behind");
    cleanup_json json_t *node = extender_inspect(&w.extender, "n3");
    ck_assert_str_eq(kit_str(node, "reason"), why.p);
    ck_assert(fits(&w, "n1"));
    world_end(&w);
}
END_TEST

/* The connection is there, but nothing comes: the Leases are listed, and all are well. */
START_TEST(a_watch_that_is_stalled_makes_nobody_silent)
{
    struct world w;
    world_begin(&w);
    sim_watches(&w.sim, "stall", "leases");
    stay_alive(&w);
    sim_watches(&w.sim, "release", "leases");
    stay_alive(&w);
    world_end(&w);
}
END_TEST

START_TEST(an_api_server_that_fails_makes_nobody_silent)
{
    struct world w;
    world_begin(&w);
    sim_fault(&w.sim, "[{\"verb\":\"list\",\"resource\":\"leases\",\"action\":\"cut\"},"
                      "{\"verb\":\"watch\",\"resource\":\"leases\",\"action\":\"cut\"}]");
    sim_watches(&w.sim, "cut", "leases");
    stay_alive(&w);
    sim_no_faults(&w.sim);
    stay_alive(&w);
    /* And then it judges again. */
    patch_lease(&w.sim, "n1", "\"yes\"");
    kit_wait(!fits(&w, "n1"));
    world_end(&w);
}
END_TEST

START_TEST(a_program_that_stood_still_blames_nobody)
{
    struct world w;
    world_begin(&w);
    program_signal(&w.extender.program, SIGSTOP);
    int64_t end = kit_now_ms() + 2 * GRACE_MS;
    kit_wait(kit_now_ms() > end);
    program_signal(&w.extender.program, SIGCONT);
    stay_alive(&w);
    world_end(&w);
}
END_TEST

KIT_MAIN("liveness", 90, a_node_whose_agent_dies_gets_no_new_pods_until_it_is_back,
         a_lease_that_is_deleted_counts_as_an_agent_that_died,
         a_lease_that_another_system_left_behind_is_named,
         a_watch_that_is_stalled_makes_nobody_silent,
         an_api_server_that_fails_makes_nobody_silent,
         a_program_that_stood_still_blames_nobody)
