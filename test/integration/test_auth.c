/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "integration/suite.h"
#include "lib/tls.h"

/*
 * An API server with TLS and token authentication: valid credentials work, invalid ones
 * are reported in the log and by readyz, and corrected files take effect without a
 * restart.
 */

#define TOKEN "s3cret-of-the-test"

static void begin(void)
{
    tls_make_ca(lib_dir, "ca");
    tls_make_ca(lib_dir, "other-ca");
    tls_make_cert(lib_dir, "ca", "api", "IP:127.0.0.1");
    tls_make_cert(lib_dir, "other-ca", "renewed", "IP:127.0.0.1");
}

/* kube-sim on the port with this certificate and token; it has eight pods. */
static void start_sim(unsigned port, const char *ca, const char *cert, const char *token,
                      const char *prefix)
{
    sim_start_secure(&sim, lib_path(ca), lib_fmt("Bearer %s", token),
                     ARGV("--port", lib_fmt("%u", port), "--cert",
                          lib_fmt("%s/%s.crt", lib_dir, cert), "--key",
                          lib_fmt("%s/%s.key", lib_dir, cert), "--token", token));
    sim_add_node(&sim, "n1", 2, 16);
    for (int i = 0; i < 8; i++)
        sim_add_pod(&sim, lib_fmt("%s%d", prefix, i), 4);
}

/* `cluster` and `user` are additional members of the kubeconfig. */
static void start_extender(const char *cluster, const char *user)
{
    cleanup_free char *path =
        lib_kubeconfig("kubeconfig", "https", sim.api.port, cluster, user);
    extender_start_at(&extender, path, ARGV("--log-level", "debug"));
}

static void check_works(const char *pod)
{
    cleanup_buf struct buf why = {0};
    extender_wait_ready(&extender);
    lib_wait_saying(extender_bind(&extender, pod, "n1", &why), "%s; %s", why.p,
                    program_output(&extender.program));
    oracle_agrees(&sim.api, &extender);
}

/* The log and readyz report the cause; filter and bind fail. */
static void check_not_ready(const char *log)
{
    cleanup_buf struct buf why = {0};
    ck_assert_msg(program_wait_output(&extender.program, log), "the extender ended: %s",
                  extender.program.said.p);
    ck_assert(peer_says(&extender.observers, "/readyz", 503, "not ready: the "));
    ck_assert_uint_eq(peer_status(&extender.observers, "/healthz"), 200);
    ck_assert_int_eq(extender_filter(&extender, 4, "n1", &why), UNANSWERED);
    ck_assert_contains(why.p, "not ready");
    ck_assert(!extender_bind(&extender, "p0", "n1", &why));
    ck_assert_contains(why.p, "503: not ready");
}

/* No token is in the log. */
static void stop_extender(void)
{
    program_signal(&extender.program, SIGTERM);
    program_wait(&extender.program);
    ck_assert_lacks(extender.program.said.p, TOKEN);
    ck_assert_lacks(extender.program.said.p, "wr0ng");
    extender_stop(&extender);
}

static void end(void)
{
    if (extender.program.out)
        stop_extender();
    sim_stop(&sim);
}

#define CA ", certificate-authority: ca.crt"

TEST(corrected_token_file_is_reread)
{
    start_sim(0, "ca.crt", "api", TOKEN, "p");
    start_extender(CA, "tokenFile: token");
    check_not_ready("/token: No such file or directory");
    temp_write(lib_dir, "token", "wr0ng\n");
    check_not_ready("Unauthorized");
    temp_write(lib_dir, "token", TOKEN "\n");
    check_works("p0");
}

TEST(rotated_token_and_ca_are_reread)
{
    start_sim(0, "ca.crt", "api", TOKEN, "p");
    temp_write(lib_dir, "token", TOKEN);
    temp_write(lib_dir, "bundle.crt", lib_read("ca.crt"));
    start_extender(", certificate-authority: bundle.crt", "tokenFile: token");
    check_works("p0");
    /* Another API server takes over the address, with other pods. At first the extender
     * still has the old CA and token. */
    unsigned port = sim.api.port;
    sim_stop(&sim);
    start_sim(port, "other-ca.crt", "renewed", TOKEN "-2", "q");
    ck_assert(program_wait_output(&extender.program, "certificate"));
    temp_write(lib_dir, "bundle.crt", lib_read("other-ca.crt"));
    ck_assert(program_wait_output(&extender.program, "Unauthorized"));
    temp_write(lib_dir, "token", TOKEN "-2");
    check_works("q0"); /* promises of the old cluster are not in the ledger */
}

LIB_MAIN_AROUND(150, begin, end)
