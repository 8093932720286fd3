/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/suite.h"
#include "lib/tls.h"

/*
 * Binds that one replica forwards to another over TLS: both sides authenticate and check
 * the name of the other.
 */

static struct extender follower; /* `extender` leads */

/* A replica with these options. Its certificate has the name replica.test. */
static void start(struct extender *e, const char *const *options)
{
    const char *argv[PROGRAM_ARGS] = {"--tls-cert", lib_path("replica.crt"), "--tls-key",
                                      lib_path("replica.key")};
    program_args(argv, 4, options);
    extender_begin(e, &sim, argv);
    extender_connect(e, lib_path("ca.crt"), lib_path("scheduler.crt"),
                     lib_path("scheduler.key"));
    e->observers.authorization = SIM_BEARER;
    extender_wait_ready(e);
}

/* `leader`, `other`: further options. */
static void set_up(const char *const *leader, const char *const *other)
{
    tls_make_ca(lib_dir, "ca");
    tls_make_ca(lib_dir, "other");
    tls_make_cert(lib_dir, "ca", "replica", "DNS:replica.test,IP:127.0.0.1");
    tls_make_cert(lib_dir, "ca", "scheduler", "DNS:scheduler.test");
    sim_add_node(&sim, "n1", 1, 16);
    sim_add_pod(&sim, "p", 1);
    sim_add_pod(&sim, "q", 1);
    start(&extender, leader);
    lib_wait(extender_leads(&extender));
    start(&follower, other);
}

/* A replica that expects `name` as the leader's. */
#define EXPECTS(name)                                                                    \
    ARGV("--client-ca", lib_path("ca.crt"), "--client-name",                             \
         "scheduler.test,replica.test", "--replica-name", name)

TEST(a_leader_with_an_unexpected_name_gets_no_binds)
{
    cleanup_buf struct buf why = {0};
    set_up(EXPECTS("replica.test"), EXPECTS("holder.test"));
    lib_wait(!extender_bind(&follower, "p", "n1", &why) && strstr(why.p, "holder.test"));
    ck_assert_contains(why.p, "the leader at 127.0.0.1:");
    ck_assert_int_eq(sim_bound(&sim), 0);
    ck_assert(extender_bind(&extender, "q", "n1", NULL));
    extender_stop(&follower);
}

TEST(an_invalid_ca_bundle_is_not_used)
{
    cleanup_buf struct buf why = {0};
    set_up(EXPECTS("replica.test"), EXPECTS("replica.test"));
    ck_assert_msg(extender_bind(&follower, "p", "n1", &why), "%s", why.p);
    temp_write(lib_dir, "ca.crt", "no certificate\n");
    ck_assert_msg(extender_bind(&follower, "q", "n1", &why), "%s", why.p);
    ck_assert(program_wait_output(&follower.program,
                                  "the new CA file for replicas is invalid"));
    temp_remove(lib_dir, "ca.crt");
    sim_add_pod(&sim, "r", 1);
    ck_assert_msg(extender_bind(&follower, "r", "n1", &why), "%s", why.p);
    /* A valid bundle is used: the leader's certificate is not signed by this CA. */
    temp_write(lib_dir, "ca.crt", lib_read("other.crt"));
    lib_wait(!extender_bind(&follower, "no-such-pod", "n1", &why) &&
             strstr(why.p, "the leader at 127.0.0.1:"));
    extender_stop(&follower);
}

/* Replicas that ask for no client certificates. */
TEST(replica_ca_works_without_client_ca)
{
    cleanup_buf struct buf why = {0};
    set_up(ARGV("--insecure", "--replica-name", "replica.test"),
           ARGV("--insecure", "--replica-name", "replica.test", "--replica-ca",
                lib_path("ca.crt")));
    ck_assert(
        program_wait_output(&extender.program, "neither --replica-ca nor --client-ca"));
    ck_assert_msg(extender_bind(&follower, "p", "n1", &why), "%s", why.p);
    ck_assert_lacks(program_output(&follower.program), "neither --replica-ca");
    extender_stop(&follower);
}

SUITE_MAIN(90, NULL)
