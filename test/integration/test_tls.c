/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "lib/sim.h"
#include "lib/tls.h"

/*
 * The extender with HTTPS: which clients may use the verbs and which may only read, and
 * certificates that are replaced at run time, as the kubelet updates a Secret's volume.
 */

struct fixture {
    struct sim sim;
    struct extender e;
    char *cert, *key, *ca; /* files of the extender */
    char *trust;           /* CA file of the clients */
};

/* Switches the symbolic link to new files, in one step. */
static void publish(const char *cert, const char *ca)
{
    static int n;
    cleanup_free char *name = xasprintf("data-%d", ++n), *data = temp_path(lib_dir, name),
                      *link = temp_path(lib_dir, "..data"),
                      *next = temp_path(lib_dir, "..next"),
                      *crt = xasprintf("%s.crt", cert), *key = xasprintf("%s.key", cert);
    cleanup_free char *crt_pem = temp_read(lib_dir, crt),
                      *key_pem = temp_read(lib_dir, key),
                      *ca_pem = temp_read(lib_dir, ca);
    temp_mkdir(lib_dir, name);
    temp_write(data, "tls.crt", crt_pem);
    temp_write(data, "tls.key", key_pem);
    temp_write(data, "ca.crt", ca_pem);
    ck_assert_int_eq(symlink(name, next), 0);
    ck_assert_int_eq(rename(next, link), 0);
}

/* A peer with the client certificate NAME.crt, or none if `name` is NULL. */
static void peer_as(struct peer *p, unsigned port, const char *trust, const char *name)
{
    if (!name) {
        peer_init_tls(p, port, trust);
        return;
    }
    cleanup_free char *crt = xasprintf("%s/%s.crt", lib_dir, name),
                      *key = xasprintf("%s/%s.key", lib_dir, name);
    peer_init_cert(p, port, trust, crt, key);
}

static void set_up(struct fixture *f)
{
    tls_make_ca(lib_dir, "ca");
    tls_make_ca(lib_dir, "other");
    tls_make_cert(lib_dir, "ca", "server", "IP:127.0.0.1");
    tls_make_cert(lib_dir, "ca", "server2", "IP:127.0.0.1");
    tls_make_cert(lib_dir, "ca", "kube-scheduler", "DNS:scheduler.test");
    tls_make_cert(lib_dir, "ca", "somebody", "DNS:somebody.test");
    tls_make_cert(lib_dir, "other", "foreign", "DNS:scheduler.test");
    publish("server", "ca.crt");
    *f = (struct fixture){.cert = temp_path(lib_dir, "..data/tls.crt"),
                          .key = temp_path(lib_dir, "..data/tls.key"),
                          .ca = temp_path(lib_dir, "..data/ca.crt"),
                          .trust = temp_path(lib_dir, "ca.crt")};
    sim_start(&f->sim, ARGV(NULL));
    sim_add_node(&f->sim, "n1", 2, 16);
    sim_add_pod(&f->sim, "p1", 4);
    cleanup_free char *path =
        lib_kubeconfig("kubeconfig", "http", f->sim.api.port, "", "");
    extender_start_at(&f->e, path,
                      ARGV("--tls-cert", f->cert, "--tls-key", f->key, "--client-ca",
                           f->ca, "--client-name", "system:kube-scheduler,kube-scheduler",
                           "--client-name", "another"));
    unsigned verbs = f->e.verbs.port, observers = f->e.observers.port;
    peer_fini(&f->e.verbs);
    peer_fini(&f->e.observers);
    peer_as(&f->e.verbs, verbs, f->trust, "kube-scheduler");
    peer_as(&f->e.observers, observers, f->trust, NULL);
    f->e.observers.authorization = SIM_BEARER;
    extender_wait_ready(&f->e);
}

static void tear_down(struct fixture *f)
{
    extender_stop(&f->e);
    sim_stop(&f->sim);
    free(f->cert);
    free(f->key);
    free(f->ca);
    free(f->trust);
}

/* Filters on a new connection with the certificate `name`. Returns the status; 0: no
 * reply. */
static unsigned filter_as(struct fixture *f, const char *trust, const char *name,
                          struct buf *said)
{
    struct peer p;
    cleanup_buf struct buf body = {0};
    lib_filter_body(&body, "p1", 4, ARGV("n1"));
    peer_as(&p, f->e.verbs.port, trust, name);
    unsigned status = peer_call(&p, "POST", "/gpushare-scheduler/filter", body.p, said);
    peer_fini(&p);
    return status;
}

START_TEST(verbs_need_a_named_client_and_reading_does_not)
{
    struct fixture f;
    cleanup_buf struct buf said = {0};
    set_up(&f);
    ck_assert_uint_eq(filter_as(&f, f.trust, "kube-scheduler", &said), 200);
    ck_assert_contains(said.p, "\"NodeNames\":[\"n1\"]");
    ck_assert(extender_bind(&f.e, "p1", "n1", &said));
    ck_assert_uint_eq(filter_as(&f, f.trust, "somebody", &said), 403);
    ck_assert_contains(said.p,
                       "the client certificate of \\\"somebody\\\" is not allowed");
    ck_assert_uint_eq(filter_as(&f, f.trust, "foreign", &said), 401);
    ck_assert_uint_eq(filter_as(&f, f.trust, NULL, &said), 401);
    ck_assert_contains(said.p, "a client certificate is required");
    /* The kubelet's probes have no client certificate. */
    struct peer probe;
    peer_as(&probe, f.e.verbs.port, f.trust, NULL);
    ck_assert_uint_eq(peer_status(&probe, "/readyz"), 200);
    ck_assert_uint_eq(peer_status(&probe, "/healthz"), 200);
    ck_assert_uint_eq(peer_status(&probe, "/version"), 200);
    ck_assert_uint_eq(peer_status(&probe, "/inspect"), 401);
    ck_assert_uint_eq(peer_status(&probe, "/metrics"), 401);
    ck_assert_uint_eq(peer_status(&f.e.verbs, "/inspect"), 200);
    peer_fini(&probe);
    ck_assert_uint_eq(peer_status(&f.e.observers, "/readyz"), 200);
    ck_assert_uint_eq(peer_call(&f.e.observers, "GET", "/healthz", NULL, &said), 200);
    ck_assert_str_eq(said.p, "ok\n");
    json_decref(peer_json(&f.e.observers, "GET", "/inspect", NULL));
    ck_assert(program_wait_output(&f.e.program, "client certificate: rejected"));
    tear_down(&f);
}
END_TEST

static bool healthz_says(struct fixture *f, const char *text)
{
    cleanup_buf struct buf said = {0};
    ck_assert_uint_eq(peer_call(&f->e.observers, "GET", "/healthz", NULL, &said), 200);
    return text ? strstr(said.p, text) != NULL : strcmp(said.p, "ok\n") == 0;
}

START_TEST(replaced_files_are_used_and_invalid_ones_are_reported)
{
    struct fixture f;
    cleanup_buf struct buf said = {0};
    set_up(&f);
    tls_make_cert(lib_dir, "other", "elsewhere", "IP:127.0.0.1");
    cleanup_free char *other = temp_path(lib_dir, "other.crt");
    ck_assert(extender_bind(&f.e, "p1", "n1", &said));

    publish("elsewhere", "ca.crt");
    lib_wait(filter_as(&f, other, "kube-scheduler", &said) == 200);
    /* The connection that kube-scheduler already has is still valid. */
    ck_assert(extender_bind(&f.e, "p1", "n1", &said));

    temp_write(lib_dir, "..data/tls.crt", "rubbish\n");
    lib_wait(healthz_says(&f, "tls of verbs: certificate "));
    lib_wait(healthz_says(&f, "tls of observers: certificate "));
    ck_assert(program_wait_output(&f.e.program, "still using the old ones"));
    ck_assert_uint_eq(filter_as(&f, other, "kube-scheduler", &said), 200);
    ck_assert_uint_eq(peer_status(&f.e.observers, "/readyz"), 200);

    publish("server2", "other.crt");
    lib_wait(filter_as(&f, f.trust, "foreign", &said) == 403); /* not in --client-name */
    ck_assert_uint_eq(filter_as(&f, f.trust, "kube-scheduler", &said), 401);
    lib_wait(healthz_says(&f, NULL));
    tear_down(&f);
}
END_TEST

static void check_refused(const char *const *more, const char *text)
{
    struct program p;
    cleanup_free char *path =
        lib_kubeconfig("nowhere", "http", 1, "", ""); /* no server listens there */
    lib_program(&p, "gpushare-extender",
                ARGV("--listen", "127.0.0.1", "--port", "0", "--observe-port", "0",
                     "--kubeconfig", path),
                more);
    ck_assert_int_eq(program_wait(&p), 1);
    ck_assert_contains(p.said.p, text);
    program_fini(&p);
}

START_TEST(missing_companion_options_are_reported)
{
    tls_make_ca(lib_dir, "ca");
    tls_make_cert(lib_dir, "ca", "server", "IP:127.0.0.1");
    cleanup_free char *crt = temp_path(lib_dir, "server.crt"),
                      *key = temp_path(lib_dir, "server.key");
    check_refused(ARGV("--tls-cert", crt),
                  "--tls-cert and --tls-key must be set together");
    check_refused(ARGV("--tls-key", key),
                  "--tls-cert and --tls-key must be set together");
    check_refused(ARGV("--tls-cert", crt, "--tls-key", key),
                  "--tls-cert needs --client-ca, the CA of kube-scheduler's client");
    check_refused(ARGV("--insecure", "--client-ca", crt),
                  "--insecure=on asks no client for credentials, and --client-ca does");
    check_refused(
        ARGV("--insecure", "--observe-client-ca", crt),
        "--insecure=on asks no client for credentials, and --observe-client-ca");
    check_refused(ARGV("--insecure", "--requestheader-client-ca", crt),
                  "--requestheader-client-ca needs --tls-cert");
    check_refused(ARGV("--replica-ca", crt), "--replica-ca needs --tls-cert");
    check_refused(ARGV("--tls-cert", crt, "--tls-key", key, "--client-name", "x"),
                  "--client-name needs --client-ca");
    check_refused(
        ARGV("--tls-cert", crt, "--tls-key", key, "--requestheader-allowed-names", "x"),
        "--requestheader-allowed-names needs --requestheader-client-ca");
    check_refused(ARGV("--tls-cert", crt, "--tls-key", key, "--client-ca", crt,
                       "--observe-client-ca", key),
                  "CA file ");
    check_refused(ARGV("--tls-cert", crt, "--tls-key", crt, "--client-ca", crt),
                  "server.crt with key ");
    check_refused(ARGV("--tls-cert", "/no/such.crt", "--tls-key", key, "--insecure"),
                  "/no/such.crt: No such file");
}
END_TEST

LIB_MAIN("tls", 60, verbs_need_a_named_client_and_reading_does_not,
         replaced_files_are_used_and_invalid_ones_are_reported,
         missing_companion_options_are_reported)
