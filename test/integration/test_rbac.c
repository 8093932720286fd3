/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/rights.h"
#include "lib/gang_body.h"
#include "lib/sim.h"
#include "lib/tls.h"

/*
 * manifests/rbac.yaml against the requests of the extender: in a real run it makes each
 * of its requests once, and kube-sim records them. Every request needs a rule, and every
 * rule a request.
 */

struct pair {
    struct sim sim;
    struct extender extender;
};

/* Starts the extender with `option`, which may be NULL. */
static void start_extender(struct pair *p, const struct rights *rights,
                           const char *option)
{
    rights_count(&p->sim.api, rights);
    extender_begin(&p->extender, &p->sim, ARGV("--requests-of", "hami", option));
}

static bool waits(const struct pair *p, const char *pod)
{
    return peer_says(&p->extender.verbs, "/inspect", 200,
                     lib_fmt("\"uid\":\"uid-%s\",\"request\"", pod));
}

/* A bind whose answer is lost and whose pod no watch reports, so that the extender gets
 * the pod; a pod that does not fit; and memory that becomes free for it. */
static void bind_and_mark(const struct pair *p)
{
    cleanup_buf struct buf body = {0}, why = {0};
    sim_add_node(&p->sim, "n1", 1, 8);
    sim_add_pod(&p->sim, "first", 8);
    sim_add_pod(&p->sim, "second", 8);
    sim_fault(&p->sim, "{\"verb\":\"create\",\"resource\":\"pods\",\"subresource\":"
                       "\"binding\",\"nth\":1,\"action\":\"apply-cut\"}");
    lib_wait(waits(p, "first"));
    sim_watches(&p->sim, "stall", "pods");
    ck_assert_msg(extender_bind(&p->extender, "first", "n1", &why), "%s", why.p);
    sim_watches(&p->sim, "release", "pods");
    lib_filter_body(&body, "second", 8, ARGV("n1"));
    const json_t *second = peer_post(&p->extender.verbs, "/filter", body.p);
    ck_assert_contains(lib_str(second, "FailedNodes.n1"), "most free: 0 of 8192 MiB");
    lib_wait(waits(p, "second"));
    sim_add_node(&p->sim, "n1", 2, 8);
    lib_wait(sim_count(&p->sim, "patch", "nodes", "")); /* gpushare/room-since */
    lib_wait(sim_count(&p->sim, "create", "events", ""));
}

static void read_groups(const struct pair *p)
{
    const char *body;
    for (size_t i = 0; (body = gang_body(i)); i++)
        peer_do(&p->extender.verbs, "POST", "/filter", body);
}

/* An extender with HTTPS reviews a client of /metrics. */
static void review(const struct pair *p)
{
    struct extender secure;
    peer_do(&p->sim.api, "POST", "/kube-sim/access",
            "{\"tokens\":{\"t\":{\"username\":\"u\"}},\"rules\":[{}]}");
    tls_make_ca(lib_dir, "ca");
    tls_make_cert(lib_dir, "ca", "server", "IP:127.0.0.1");
    extender_begin(&secure, &p->sim,
                   ARGV("--tls-cert", lib_path("server.crt"), "--tls-key",
                        lib_path("server.key"), "--client-ca", lib_path("ca.crt")));
    extender_connect(&secure, lib_path("ca.crt"), NULL, NULL);
    secure.observers.authorization = "Bearer t";
    ck_assert_uint_eq(peer_status(&secure.observers, "/metrics"), 403);
    extender_stop(&secure);
}

TEST(rules_grant_the_requests_of_the_extender_and_no_others)
{
    struct rights rights;
    struct pair usual, lost, fresh; /* lost: without its Lease; fresh: with TLS */
    struct pair *const all[] = {&usual, &lost, &fresh};
    const char *const *loads = ARGV("--load", "manifests/namespace.yaml");
    rights_read(&rights, ARGV("manifests/deployment.yaml", "manifests/rbac.yaml"),
                "Deployment");
    lib_program(&lost.sim.program, "kube-sim", ARGV("--port", "0"), NULL);
    peer_init(&lost.sim.api, program_port(&lost.sim.program, "listening on "));
    lost.sim.authorization = NULL;
    start_extender(&lost, &rights, NULL);
    sim_start(&usual.sim, loads);
    start_extender(&usual, &rights, NULL);
    sim_start(&fresh.sim, loads);
    start_extender(&fresh, &rights, "--insecure=off");
    lib_wait(extender_leads(&usual.extender));
    bind_and_mark(&usual);
    read_groups(&usual);
    review(&usual);
    lib_wait(extender_leads(&lost.extender)); /* creates the Lease, after five seconds */
    lib_wait(sim_count(&fresh.sim, "create", "secrets", "") == 3); /* the missing ones */
    /* Reads the record once it no longer changes. */
    array_indices(i, all)
        extender_stop(&all[i]->extender);
    array_indices(i, all)
        rights_check(&all[i]->sim.api, &rights);
    rights_used(&rights);
    array_indices(i, all)
        sim_stop(&all[i]->sim);
}

LIB_MAIN(240)
