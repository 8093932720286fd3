/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <string.h>

#include "base/mem.h"
#include "lib/sim.h"
#include "lib/tls.h"

/*
 * An API server that speaks TLS and wants a token: what is right works, what is wrong is
 * named in the log and by readyz, and what is put right while the extender runs is found.
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

struct world {
    struct sim sim;
    struct extender extender;
    const char *prefix; /* of the pods' names */
    int bound;
};

static void world_begin(struct world *w, const struct sim_security *how)
{
    *w = (struct world){.prefix = "p"};
    make_certificates();
    sim_start_secure(&w->sim, how, ARGV(NULL));
    add_objects(&w->sim, w->prefix);
}

/* `cluster` and `user` are further members of the kubeconfig. */
static void connect_with(struct world *w, const char *scheme, const char *cluster,
                         const char *user)
{
    cleanup_free char *path =
        lib_kubeconfig("kubeconfig", scheme, w->sim.api.port, cluster, user);
    extender_start_at(&w->extender, path, ARGV("--log-level", "debug"));
}

static void check_works(struct world *w)
{
    char name[16];
    cleanup_buf struct buf why = {0};
    extender_wait_ready(&w->extender);
    snprintf(name, sizeof name, "%s%d", w->prefix, w->bound++);
    int64_t end = lib_now_ms() + PROGRAM_WAIT_MS;
    while (!extender_bind(&w->extender, name, "n1", &why))
        ck_assert_msg(lib_now_ms() < end, "%s; %s", why.p,
                      program_output(&w->extender.program));
    oracle_agrees(&w->sim.api, &w->extender);
}

/* It says why it cannot, in the log and to who asks; the verbs do not answer. */
static void check_refused(struct world *w, const char *log)
{
    cleanup_buf struct buf reply = {0}, why = {0};
    ck_assert_msg(program_wait_output(&w->extender.program, log), "it ended: %s",
                  w->extender.program.said.p);
    ck_assert_uint_eq(peer_call(&w->extender.observers, "GET", "/readyz", NULL, &reply),
                      503);
    ck_assert_contains(reply.p, "not ready: the ");
    ck_assert_uint_eq(peer_status(&w->extender.observers, "/healthz"), 200);
    ck_assert_int_eq(extender_filter(&w->extender, 4, "n1", &why), UNANSWERED);
    ck_assert_contains(why.p, "not ready");
    ck_assert(!extender_bind(&w->extender, "p0", "n1", &why));
    ck_assert_contains(why.p, "503: not ready");
}

/* No token ever gets into a log. */
static void stop_extender(struct world *w)
{
    program_signal(&w->extender.program, SIGTERM);
    ck_assert_msg(program_wait(&w->extender.program) == 0, "%s",
                  program_output(&w->extender.program));
    ck_assert_ptr_null(strstr(w->extender.program.said.p, TOKEN));
    ck_assert_ptr_null(strstr(w->extender.program.said.p, "wr0ng"));
    extender_kill(&w->extender);
}

static void world_end(struct world *w)
{
    stop_extender(w);
    sim_stop(&w->sim);
}

#define CA ", certificate-authority: ca.crt"

START_TEST(a_token_in_the_kubeconfig)
{
    struct world w;
    world_begin(&w, &security);
    connect_with(&w, "https", CA, "token: " TOKEN);
    check_works(&w);
    check_works(&w);
    world_end(&w);
}

START_TEST(a_wrong_token_and_the_right_one_at_the_next_start)
{
    struct world w;
    world_begin(&w, &security);
    connect_with(&w, "https", CA, "token: wr0ng");
    check_refused(&w, "list of nodes failed: HTTP 401: Unauthorized");
    stop_extender(&w);
    connect_with(&w, "https", CA, "");
    check_refused(&w, "list of nodes failed: HTTP 401: Unauthorized");
    stop_extender(&w);
    connect_with(&w, "https", CA, "token: " TOKEN);
    check_works(&w);
    world_end(&w);
}

START_TEST(a_token_file_that_is_missing_then_wrong_then_right)
{
    struct world w;
    world_begin(&w, &security);
    connect_with(&w, "https", CA, "tokenFile: token");
    check_refused(&w, "/token: No such file or directory");
    temp_write(lib_dir, "token", "wr0ng\n");
    check_refused(&w, "Unauthorized");
    temp_write(lib_dir, "token", TOKEN "\n");
    check_works(&w);
    world_end(&w);
}

START_TEST(a_token_and_a_certificate_that_are_renewed)
{
    struct world w;
    struct sim_security next = {"other-ca", "renewed", TOKEN "-2", 0};
    world_begin(&w, &security);
    temp_write(lib_dir, "token", TOKEN);
    cleanup_free char *old_ca = temp_read(lib_dir, "ca.crt");
    cleanup_free char *new_ca = temp_read(lib_dir, "other-ca.crt");
    temp_write(lib_dir, "bundle.crt", old_ca);
    connect_with(&w, "https", ", certificate-authority: bundle.crt", "tokenFile: token");
    check_works(&w);
    /* Another API server comes up under the same address, with other pods; for a moment
     * the extender's files are the old ones. */
    next.port = w.sim.api.port;
    sim_stop(&w.sim);
    sim_start_secure(&w.sim, &next, ARGV(NULL));
    w.prefix = "q";
    add_objects(&w.sim, w.prefix);
    ck_assert(program_wait_output(&w.extender.program, "certificate"));
    temp_write(lib_dir, "bundle.crt", new_ca);
    ck_assert(program_wait_output(&w.extender.program, "Unauthorized"));
    temp_write(lib_dir, "token", TOKEN "-2");
    check_works(&w); /* and what was promised there is not promised here */
    world_end(&w);
}

START_TEST(a_wrong_authority_until_it_is_put_right)
{
    struct world w;
    world_begin(&w, &security);
    cleanup_free char *right = temp_read(lib_dir, "ca.crt");
    cleanup_free char *wrong = temp_read(lib_dir, "other-ca.crt");
    temp_write(lib_dir, "bundle.crt", wrong);
    connect_with(&w, "https", ", certificate-authority: bundle.crt", "token: " TOKEN);
    check_refused(&w, "certificate");
    temp_write(lib_dir, "bundle.crt", right);
    check_works(&w);
    world_end(&w);
}

START_TEST(a_certificate_of_another_name)
{
    struct world w = {0};
    make_certificates();
    cleanup_free char *cert = temp_path(lib_dir, "elsewhere.crt");
    cleanup_free char *key = temp_path(lib_dir, "elsewhere.key");
    cleanup_free char *sim = program_path("kube-sim");
    program_start(&w.sim.program, lib_dir,
                  ARGV(sim, "--port", "0", "--cert", cert, "--key", key, "--token", TOKEN,
                       "--generate", "nodes=1,cards=1,pods=0"));
    w.sim.api.port = program_port(&w.sim.program, "listening on ");
    connect_with(&w, "https", CA, "token: " TOKEN);
    check_refused(&w, "certificate");
    stop_extender(&w);
    connect_with(&w, "https", CA ", tls-server-name: elsewhere.test", "token: " TOKEN);
    extender_wait_ready(&w.extender);
    stop_extender(&w);
    connect_with(&w, "https", ", insecure-skip-tls-verify: true", "token: " TOKEN);
    extender_wait_ready(&w.extender);
    stop_extender(&w);
    program_stop(&w.sim.program);
}

START_TEST(plain_http_to_a_server_with_tls)
{
    struct world w;
    world_begin(&w, &security);
    connect_with(&w, "http", "", "token: " TOKEN);
    check_refused(&w, "list of nodes failed: ");
    stop_extender(&w);
    sim_stop(&w.sim);
    sim_start(&w.sim, ARGV(NULL));
    connect_with(&w, "https", CA, "token: " TOKEN);
    check_refused(&w, "list of nodes failed: ");
    world_end(&w);
}

LIB_MAIN("auth", 150, a_token_in_the_kubeconfig,
         a_wrong_token_and_the_right_one_at_the_next_start,
         a_token_file_that_is_missing_then_wrong_then_right,
         a_token_and_a_certificate_that_are_renewed,
         a_wrong_authority_until_it_is_put_right, a_certificate_of_another_name,
         plain_http_to_a_server_with_tls)
