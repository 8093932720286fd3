/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <string.h>

#include "base/mem.h"
#include "lib/sim.h"
#include "lib/tls.h"

/*
 * An API server with TLS and token authentication: valid credentials work, invalid ones
 * are reported in the log and by readyz, and corrected files take effect without a
 * restart.
 */

#define TOKEN "s3cret-of-the-test"

static const struct sim_security security = {"ca", "api", TOKEN, 0};

static void make_certificates(void)
{
    tls_make_ca(lib_dir, "ca");
    tls_make_ca(lib_dir, "other-ca");
    tls_make_cert(lib_dir, "ca", "api", "IP:127.0.0.1");
    tls_make_cert(lib_dir, "ca", "elsewhere", "DNS:elsewhere.test");
    tls_make_cert(lib_dir, "other-ca", "renewed", "IP:127.0.0.1");
}

static void add_objects(const struct sim *s, const char *prefix)
{
    sim_add_node(s, "n1", 2, 16);
    for (int i = 0; i < 8; i++) {
        char name[16];
        snprintf(name, sizeof name, "%s%d", prefix, i);
        sim_add_pod(s, name, 4);
    }
}

struct fixture {
    struct sim sim;
    struct extender extender;
    const char *prefix; /* of the pod names */
    int bound;
};

static void set_up(struct fixture *f, const struct sim_security *how)
{
    *f = (struct fixture){.prefix = "p"};
    make_certificates();
    sim_start_secure(&f->sim, how, ARGV(NULL));
    add_objects(&f->sim, f->prefix);
}

/* `cluster` and `user` are additional members of the kubeconfig. */
static void start_extender(struct fixture *f, const char *scheme, const char *cluster,
                           const char *user)
{
    cleanup_free char *path =
        lib_kubeconfig("kubeconfig", scheme, f->sim.api.port, cluster, user);
    extender_start_at(&f->extender, path, ARGV("--log-level", "debug"));
}

static void check_works(struct fixture *f)
{
    char name[16];
    cleanup_buf struct buf why = {0};
    extender_wait_ready(&f->extender);
    snprintf(name, sizeof name, "%s%d", f->prefix, f->bound++);
    int64_t end = lib_now_ms() + LIB_WAIT_MS;
    while (!extender_bind(&f->extender, name, "n1", &why))
        ck_assert_msg(lib_now_ms() < end, "%s; %s", why.p,
                      program_output(&f->extender.program));
    oracle_agrees(&f->sim.api, &f->extender);
}

/* The log and readyz report the cause; filter and bind fail. */
static void check_not_ready(struct fixture *f, const char *log)
{
    cleanup_buf struct buf reply = {0}, why = {0};
    ck_assert_msg(program_wait_output(&f->extender.program, log),
                  "the extender ended: %s", f->extender.program.said.p);
    ck_assert_uint_eq(peer_call(&f->extender.observers, "GET", "/readyz", NULL, &reply),
                      503);
    ck_assert_contains(reply.p, "not ready: the ");
    ck_assert_uint_eq(peer_status(&f->extender.observers, "/healthz"), 200);
    ck_assert_int_eq(extender_filter(&f->extender, 4, "n1", &why), UNANSWERED);
    ck_assert_contains(why.p, "not ready");
    ck_assert(!extender_bind(&f->extender, "p0", "n1", &why));
    ck_assert_contains(why.p, "503: not ready");
}

/* Also checks that no token is in the log. */
static void stop_extender(struct fixture *f)
{
    program_signal(&f->extender.program, SIGTERM);
    ck_assert_msg(program_wait(&f->extender.program) == 0, "%s",
                  program_output(&f->extender.program));
    ck_assert_ptr_null(strstr(f->extender.program.said.p, TOKEN));
    ck_assert_ptr_null(strstr(f->extender.program.said.p, "wr0ng"));
    extender_kill(&f->extender);
}

static void tear_down(struct fixture *f)
{
    stop_extender(f);
    sim_stop(&f->sim);
}

#define CA ", certificate-authority: ca.crt"

START_TEST(corrected_token_file_is_reread)
{
    struct fixture f;
    set_up(&f, &security);
    start_extender(&f, "https", CA, "tokenFile: token");
    check_not_ready(&f, "/token: No such file or directory");
    temp_write(lib_dir, "token", "wr0ng\n");
    check_not_ready(&f, "Unauthorized");
    temp_write(lib_dir, "token", TOKEN "\n");
    check_works(&f);
    tear_down(&f);
}

START_TEST(rotated_token_and_ca_are_reread)
{
    struct fixture f;
    struct sim_security next = {"other-ca", "renewed", TOKEN "-2", 0};
    set_up(&f, &security);
    temp_write(lib_dir, "token", TOKEN);
    cleanup_free char *old_ca = temp_read(lib_dir, "ca.crt");
    cleanup_free char *new_ca = temp_read(lib_dir, "other-ca.crt");
    temp_write(lib_dir, "bundle.crt", old_ca);
    start_extender(&f, "https", ", certificate-authority: bundle.crt",
                   "tokenFile: token");
    check_works(&f);
    /* Another API server takes over the address, with other pods. At first the extender
     * still has the old CA and token. */
    next.port = f.sim.api.port;
    sim_stop(&f.sim);
    sim_start_secure(&f.sim, &next, ARGV(NULL));
    f.prefix = "q";
    add_objects(&f.sim, f.prefix);
    ck_assert(program_wait_output(&f.extender.program, "certificate"));
    temp_write(lib_dir, "bundle.crt", new_ca);
    ck_assert(program_wait_output(&f.extender.program, "Unauthorized"));
    temp_write(lib_dir, "token", TOKEN "-2");
    check_works(&f); /* promises of the old cluster are not in the ledger */
    tear_down(&f);
}

START_TEST(server_name_of_the_certificate_is_checked)
{
    struct fixture f = {0};
    make_certificates();
    cleanup_free char *cert = temp_path(lib_dir, "elsewhere.crt");
    cleanup_free char *key = temp_path(lib_dir, "elsewhere.key");
    cleanup_free char *sim = program_path("kube-sim");
    program_start(&f.sim.program, lib_dir,
                  ARGV(sim, "--port", "0", "--cert", cert, "--key", key, "--token", TOKEN,
                       "--generate", "nodes=1,cards=1,pods=0"));
    f.sim.api.port = program_port(&f.sim.program, "listening on ");
    start_extender(&f, "https", CA, "token: " TOKEN);
    check_not_ready(&f, "certificate");
    stop_extender(&f);
    start_extender(&f, "https", CA ", tls-server-name: elsewhere.test", "token: " TOKEN);
    extender_wait_ready(&f.extender);
    stop_extender(&f);
    start_extender(&f, "https", ", insecure-skip-tls-verify: true", "token: " TOKEN);
    extender_wait_ready(&f.extender);
    stop_extender(&f);
    program_stop(&f.sim.program);
}

LIB_MAIN("auth", 150, corrected_token_file_is_reread, rotated_token_and_ca_are_reread,
         server_name_of_the_certificate_is_checked)
