/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "lib/gang_body.h"
#include "lib/rights.h"
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
    cleanup_free char *name = xasprintf("kubeconfig-%u", p->sim.api.port),
                      *path = lib_kubeconfig(name, "http", p->sim.api.port, "", "");
    rights_count(&p->sim.api, rights);
    extender_start_at(&p->extender, path, ARGV(option));
}

static bool waits(const struct pair *p, const char *pod)
{
    cleanup_buf struct buf said = {0};
    cleanup_free char *text = xasprintf("\"uid\":\"uid-%s\",\"request\"", pod);
    ck_assert_uint_eq(peer_call(&p->extender.verbs, "GET", "/inspect", NULL, &said), 200);
    return strstr(said.p, text) != NULL;
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
    cleanup_json json_t *second =
        peer_json(&p->extender.verbs, "POST", "/filter", body.p);
    ck_assert_contains(lib_str(second, "FailedNodes.n1"), "most free: 0 of 8192 MiB");
    lib_wait(waits(p, "second"));
    sim_add_node(&p->sim, "n1", 2, 8);
    lib_wait(sim_count(&p->sim, "patch", "nodes", "")); /* gpushare/room-since */
    lib_wait(sim_count(&p->sim, "create", "events", ""));
}

static void read_groups(const struct pair *p)
{
    cleanup_buf struct buf body = {0};
    for (size_t n = 0; gang_body(&body, n); n++) {
        json_decref(peer_json(&p->extender.verbs, "POST", "/filter", body.p));
        buf_clear(&body);
    }
}

/* An extender with HTTPS reviews a client of /metrics. */
static void review(const struct pair *p)
{
    struct program secure;
    struct peer observers;
    cleanup_buf struct buf reply = {0};
    cleanup_free char *ca = temp_path(lib_dir, "ca.crt"),
                      *crt = temp_path(lib_dir, "server.crt"),
                      *key = temp_path(lib_dir, "server.key"),
                      *config =
                          lib_kubeconfig("review", "http", p->sim.api.port, "", "");
    ck_assert_uint_eq(peer_call(&p->sim.api, "POST", "/kube-sim/access",
                                "{\"tokens\":{\"t\":{\"username\":\"u\"}},\"rules\":[{}]}",
                                &reply),
                      200);
    tls_make_ca(lib_dir, "ca");
    tls_make_cert(lib_dir, "ca", "server", "IP:127.0.0.1");
    lib_program(&secure, "gpushare-extender",
                ARGV("--listen", "127.0.0.1", "--port", "0", "--observe-port", "0",
                     "--kubeconfig", config),
                ARGV("--tls-cert", crt, "--tls-key", key, "--client-ca", ca));
    peer_init_tls(&observers, program_port(&secure, "observing on "), ca);
    observers.authorization = "Bearer t";
    ck_assert_uint_eq(peer_status(&observers, "/metrics"), 403);
    peer_fini(&observers);
    program_stop(&secure);
}

START_TEST(rules_grant_the_requests_of_the_extender_and_no_others)
{
    struct rights rights;
    struct pair usual, lost, fresh; /* lost: without its Lease; fresh: with TLS */
    struct pair *const all[] = {&usual, &lost, &fresh};
    const char *const *loads = ARGV("--load", "manifests/namespace.yaml");
    rights_read(&rights, ARGV("manifests/deployment.yaml", "manifests/rbac.yaml"),
                "Deployment");
    lib_program(&lost.sim.program, "kube-sim", ARGV("--port", "0"), ARGV(NULL));
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
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        extender_stop(&all[i]->extender);
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        rights_check(&all[i]->sim.api, &rights);
    rights_used(&rights);
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        sim_stop(&all[i]->sim);
    rights_fini(&rights);
}

LIB_MAIN("rbac", 240, rules_grant_the_requests_of_the_extender_and_no_others)
