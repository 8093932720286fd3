/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <string.h>

#include "base/mem.h"
#include "lib/sim.h"

/*
 * Nodes whose scv-agent stops, as the running extender sees them. kube-sim renews the
 * Leases of the other agents.
 */

enum { GRACE_MS = 4000, LONGER_MS = GRACE_MS + 2000 };

struct fixture {
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

/* n1 and n2 have agents; the Scv of n3 is written by another daemon. */
static void set_up(struct fixture *f)
{
    sim_start(&f->sim, ARGV("--renew-leases", "500ms"));
    sim_add_node(&f->sim, "n1", 1, 16);
    sim_add_node(&f->sim, "n2", 1, 16);
    sim_add_node(&f->sim, "n3", 1, 16);
    add_lease(&f->sim, "n1");
    add_lease(&f->sim, "n2");
    extender_start(&f->extender, &f->sim, ARGV("--node-grace", "4s"));
}

static void tear_down(struct fixture *f)
{
    extender_stop(&f->extender);
    sim_stop(&f->sim);
}

static bool fits(struct fixture *f, const char *node)
{
    return extender_filter(&f->extender, 8, node, NULL) == FITS;
}

/* For longer than the grace, pods fit on all nodes at any time. */
static void assert_all_stay_healthy(struct fixture *f)
{
    int64_t end = lib_now_ms() + LONGER_MS;
    while (lib_now_ms() < end) {
        ck_assert(fits(f, "n1") && fits(f, "n2") && fits(f, "n3"));
        lib_pause();
    }
}

static char *wakeup_annotation(struct fixture *f, const char *node)
{
    cleanup_free char *path = xasprintf("/api/v1/nodes/%s", node);
    cleanup_json json_t *j = peer_json(&f->sim.api, "GET", path, NULL);
    json_t *notes = lib_at(j, "metadata.annotations");
    const char *text = json_string_value(json_object_get(notes, "gpushare/room-since"));
    return xstrdup(text ? text : "");
}

static bool has_wakeup_annotation(struct fixture *f, const char *node)
{
    cleanup_free char *text = wakeup_annotation(f, node);
    return *text != '\0';
}

START_TEST(node_gets_no_new_pods_while_its_agent_is_down)
{
    struct fixture f;
    cleanup_buf struct buf why = {0};
    set_up(&f);
    sim_add_pod(&f.sim, "old", 4);
    lib_wait(extender_bind(&f.extender, "old", "n1", &why));
    patch_lease(&f.sim, "n1", "\"yes\"");
    int64_t frozen_ms = lib_now_ms();
    lib_wait(!fits(&f, "n1"));
    printf("measured: heartbeat lost %lld ms after the agent froze; the grace is %d ms\n",
           (long long)(lib_now_ms() - frozen_ms), GRACE_MS);
    ck_assert_int_eq(extender_filter(&f.extender, 8, "n1", &why), NOT_NOW);
    ck_assert_str_eq(why.p, "no heartbeat from scv-agent on this node for 4 s");
    sim_add_pod(&f.sim, "new", 8);
    lib_wait(!extender_bind(&f.extender, "new", "n1", &why));
    ck_assert_contains(why.p, "no heartbeat from scv-agent on this node for 4 s");
    cleanup_json json_t *node = extender_inspect(&f.extender, "n1");
    ck_assert_contains(lib_str(node, "reason"), "no heartbeat from scv-agent");
    ck_assert_int_eq(json_integer_value(lib_at(node, "usedGPU")), 4);
    ck_assert(fits(&f, "n2") && fits(&f, "n3"));
    ck_assert(!has_wakeup_annotation(&f, "n1"));
    /* The agent recovers, and kube-scheduler retries the pending pod. */
    patch_lease(&f.sim, "n1", "null");
    lib_wait(fits(&f, "n1"));
    lib_wait(has_wakeup_annotation(&f, "n1"));
    ck_assert_msg(extender_bind(&f.extender, "new", "n1", &why), "%s", why.p);
    oracle_agrees(&f.sim.api, &f.extender);
    tear_down(&f);
}
END_TEST

START_TEST(a_paused_extender_makes_no_heartbeat_stale)
{
    struct fixture f;
    set_up(&f);
    program_signal(&f.extender.program, SIGSTOP);
    int64_t end = lib_now_ms() + LONGER_MS;
    lib_wait(lib_now_ms() > end);
    program_signal(&f.extender.program, SIGCONT);
    assert_all_stay_healthy(&f);
    tear_down(&f);
}
END_TEST

LIB_MAIN("liveness", 90, node_gets_no_new_pods_while_its_agent_is_down,
         a_paused_extender_makes_no_heartbeat_stale)
