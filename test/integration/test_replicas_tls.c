/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "lib/sim.h"
#include "lib/tls.h"

/*
 * Binds that one replica forwards to another over TLS: both sides authenticate and check
 * the name of the other.
 */

static char *trust, *scheduler_cert, *scheduler_key;

static void begin(void)
{
    tls_make_ca(lib_dir, "ca");
    tls_make_ca(lib_dir, "other");
    tls_make_cert(lib_dir, "ca", "replica", "DNS:replica.test");
    tls_make_cert(lib_dir, "ca", "other", "DNS:other.test");
    tls_make_cert(lib_dir, "ca", "scheduler", "DNS:scheduler.test");
    trust = temp_path(lib_dir, "ca.crt");
    scheduler_cert = temp_path(lib_dir, "scheduler.crt");
    scheduler_key = temp_path(lib_dir, "scheduler.key");
}

static void end(void)
{
    free(trust);
    free(scheduler_cert);
    free(scheduler_key);
}

/* A replica with the certificate NAME.crt that expects `expects` as the leader's name. */
static void start(struct extender *e, const struct sim *s, const char *name,
                  const char *expects)
{
    cleanup_free char *cert = xasprintf("%s/%s.crt", lib_dir, name);
    cleanup_free char *key = xasprintf("%s/%s.key", lib_dir, name);
    cleanup_free char *config = lib_kubeconfig("kubeconfig", "http", s->api.port, "", "");
    extender_start_at(e, config,
                      ARGV("--tls-cert", cert, "--tls-key", key, "--client-ca", trust,
                           "--client-name", "scheduler.test,replica.test",
                           "--replica-name", expects));
    unsigned verbs = e->verbs.port, observers = e->observers.port;
    peer_fini(&e->verbs);
    peer_fini(&e->observers);
    peer_init_server(&e->verbs, verbs, trust, name, scheduler_cert, scheduler_key);
    peer_init_server(&e->observers, observers, trust, name, NULL, NULL);
    e->observers.authorization = SIM_BEARER;
    extender_wait_ready(e);
}

static void set_up(struct sim *s, struct extender e[2], const char *name,
                   const char *expects)
{
    sim_start(s, ARGV(NULL));
    sim_add_node(s, "n1", 1, 16);
    sim_add_pod(s, "p", 1);
    sim_add_pod(s, "q", 1);
    start(&e[0], s, "replica", "replica.test");
    lib_wait(extender_leads(&e[0]));
    start(&e[1], s, name, expects);
}

static void tear_down(struct sim *s, struct extender e[2])
{
    extender_stop(&e[1]);
    extender_stop(&e[0]);
    sim_stop(s);
}

START_TEST(a_leader_with_an_unexpected_name_gets_no_binds)
{
    struct sim s;
    struct extender e[2];
    cleanup_buf struct buf why = {0};
    set_up(&s, e, "replica", "holder.test");
    lib_wait(!extender_bind(&e[1], "p", "n1", &why) && strstr(why.p, "holder.test"));
    ck_assert_contains(why.p, "the leader at 127.0.0.1:");
    ck_assert_int_eq(sim_bound(&s), 0);
    ck_assert(extender_bind(&e[0], "q", "n1", NULL));
    tear_down(&s, e);
}
END_TEST

START_TEST(an_invalid_ca_bundle_is_not_used)
{
    struct sim s;
    struct extender e[2];
    cleanup_buf struct buf why = {0};
    cleanup_free char *good = temp_read(lib_dir, "ca.crt");
    set_up(&s, e, "replica", "replica.test");
    ck_assert_msg(extender_bind(&e[1], "p", "n1", &why), "%s", why.p);
    temp_write(lib_dir, "ca.crt", "no certificate\n");
    ck_assert_msg(extender_bind(&e[1], "q", "n1", &why), "%s", why.p);
    ck_assert(
        program_wait_output(&e[1].program, "the new CA file for replicas is invalid"));
    temp_remove(lib_dir, "ca.crt");
    sim_add_pod(&s, "r", 1);
    ck_assert_msg(extender_bind(&e[1], "r", "n1", &why), "%s", why.p);
    /* A valid bundle is used: the leader's certificate is not signed by this CA. */
    cleanup_free char *other = temp_read(lib_dir, "other.crt");
    temp_write(lib_dir, "ca.crt", other);
    sim_add_pod(&s, "t", 1);
    ck_assert(!extender_bind(&e[1], "t", "n1", &why));
    ck_assert_contains(why.p, "the leader at 127.0.0.1:");
    temp_write(lib_dir, "ca.crt", good);
    tear_down(&s, e);
}
END_TEST

/* A replica that asks for no client certificates. */
static void start_without_client_ca(struct extender *e, const struct sim *s,
                                    const char *option, const char *value)
{
    cleanup_free char *cert = temp_path(lib_dir, "replica.crt");
    cleanup_free char *key = temp_path(lib_dir, "replica.key");
    cleanup_free char *config = lib_kubeconfig("kubeconfig", "http", s->api.port, "", "");
    extender_start_at(e, config,
                      ARGV("--tls-cert", cert, "--tls-key", key, "--insecure",
                           "--replica-name", "replica.test", option, value));
    unsigned verbs = e->verbs.port, observers = e->observers.port;
    peer_fini(&e->verbs);
    peer_fini(&e->observers);
    peer_init_server(&e->verbs, verbs, trust, "replica", NULL, NULL);
    peer_init_server(&e->observers, observers, trust, "replica", NULL, NULL);
    e->observers.authorization = SIM_BEARER;
    extender_wait_ready(e);
}

START_TEST(replica_ca_works_without_client_ca)
{
    struct sim s;
    struct extender e[2];
    cleanup_buf struct buf why = {0};
    sim_start(&s, ARGV(NULL));
    sim_add_node(&s, "n1", 1, 16);
    sim_add_pod(&s, "p", 1);
    start_without_client_ca(&e[0], &s, "--log-level", "info");
    lib_wait(extender_leads(&e[0]));
    ck_assert(program_wait_output(&e[0].program, "neither --replica-ca nor --client-ca"));
    start_without_client_ca(&e[1], &s, "--replica-ca", trust);
    ck_assert_msg(extender_bind(&e[1], "p", "n1", &why), "%s", why.p);
    ck_assert_ptr_null(strstr(program_output(&e[1].program), "neither --replica-ca"));
    tear_down(&s, e);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {a_leader_with_an_unexpected_name_gets_no_binds,
                                  an_invalid_ca_bundle_is_not_used,
                                  replica_ca_works_without_client_ca};
    return lib_run_with("replicas-tls", tests, sizeof tests / sizeof *tests, 90,
                        &(struct unit_fixtures){.begin = begin, .end = end});
}
