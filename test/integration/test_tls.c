/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "lib/sim.h"
#include "lib/tls.h"

/*
 * The extender with HTTPS: who may use the verbs and who may look, and certificates that
 * are replaced while it runs, as the kubelet replaces those of a Secret.
 */

struct world {
    struct sim sim;
    struct extender e;
    char *cert, *key, *ca; /* what the extender reads */
    char *trust;           /* what clients believe */
};

/* Swaps what is behind the links, in one step. */
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

/* A peer that shows NAME.crt; NULL: nothing. */
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

static void world_begin(struct world *w)
{
    tls_make_ca(lib_dir, "ca");
    tls_make_ca(lib_dir, "other");
    tls_make_cert(lib_dir, "ca", "server", "IP:127.0.0.1");
    tls_make_cert(lib_dir, "ca", "server2", "IP:127.0.0.1");
    tls_make_cert(lib_dir, "ca", "kube-scheduler", "DNS:scheduler.test");
    tls_make_cert(lib_dir, "ca", "somebody", "DNS:somebody.test");
    tls_make_cert(lib_dir, "other", "foreign", "DNS:scheduler.test");
    publish("server", "ca.crt");
    *w = (struct world){.cert = temp_path(lib_dir, "..data/tls.crt"),
                        .key = temp_path(lib_dir, "..data/tls.key"),
                        .ca = temp_path(lib_dir, "..data/ca.crt"),
                        .trust = temp_path(lib_dir, "ca.crt")};
    sim_start(&w->sim, ARGV(NULL));
    sim_add_node(&w->sim, "n1", 2, 16);
    sim_add_pod(&w->sim, "p1", 4);
    cleanup_free char *path =
        lib_kubeconfig("kubeconfig", "http", w->sim.api.port, "", "");
    extender_start_at(&w->e, path,
                      ARGV("--tls-cert", w->cert, "--tls-key", w->key, "--client-ca",
                           w->ca, "--client-name", "system:kube-scheduler,kube-scheduler",
                           "--client-name", "another"));
    unsigned verbs = w->e.verbs.port, observers = w->e.observers.port;
    peer_fini(&w->e.verbs);
    peer_fini(&w->e.observers);
    peer_as(&w->e.verbs, verbs, w->trust, "kube-scheduler");
    peer_as(&w->e.observers, observers, w->trust, NULL);
    extender_wait_ready(&w->e);
}

static void world_end(struct world *w)
{
    extender_stop(&w->e);
    sim_stop(&w->sim);
    free(w->cert);
    free(w->key);
    free(w->ca);
    free(w->trust);
}

/* A filter call on a connection of its own, by whom? 0: no answer. */
static unsigned filter_as(struct world *w, const char *trust, const char *name,
                          struct buf *said)
{
    struct peer p;
    cleanup_buf struct buf body = {0};
    lib_filter_body(&body, "p1", 4, ARGV("n1"));
    peer_as(&p, w->e.verbs.port, trust, name);
    unsigned status = peer_call(&p, "POST", "/gpushare-scheduler/filter", body.p, said);
    peer_fini(&p);
    return status;
}

START_TEST(the_verbs_are_for_the_named_clients_and_a_look_is_for_all)
{
    struct world w;
    cleanup_buf struct buf said = {0};
    world_begin(&w);
    ck_assert_uint_eq(filter_as(&w, w.trust, "kube-scheduler", &said), 200);
    ck_assert_contains(said.p, "\"NodeNames\":[\"n1\"]");
    ck_assert(extender_bind(&w.e, "p1", "n1", &said));
    ck_assert_uint_eq(filter_as(&w, w.trust, "somebody", &said), 403);
    ck_assert_uint_eq(filter_as(&w, w.trust, "foreign", &said), 0);
    ck_assert_uint_eq(filter_as(&w, w.trust, NULL, &said), 0);
    /* A probe of the kubelet has no certificate. */
    ck_assert_uint_eq(peer_status(&w.e.observers, "/readyz"), 200);
    ck_assert_uint_eq(peer_call(&w.e.observers, "GET", "/healthz", NULL, &said), 200);
    ck_assert_str_eq(said.p, "ok\n");
    json_decref(peer_json(&w.e.observers, "GET", "/inspect", NULL));
    ck_assert_contains(program_output(&w.e.program), "client certificate: rejected");
    world_end(&w);
}
END_TEST

static bool healthz_says(struct world *w, const char *text)
{
    cleanup_buf struct buf said = {0};
    ck_assert_uint_eq(peer_call(&w->e.observers, "GET", "/healthz", NULL, &said), 200);
    return text ? strstr(said.p, text) != NULL : strcmp(said.p, "ok\n") == 0;
}

START_TEST(what_is_replaced_is_used_and_what_is_bad_is_told)
{
    struct world w;
    cleanup_buf struct buf said = {0};
    world_begin(&w);
    tls_make_cert(lib_dir, "other", "elsewhere", "IP:127.0.0.1");
    cleanup_free char *other = temp_path(lib_dir, "other.crt");
    ck_assert(extender_bind(&w.e, "p1", "n1", &said));

    publish("elsewhere", "ca.crt");
    lib_wait(filter_as(&w, other, "kube-scheduler", &said) == 200);
    /* kube-scheduler's connection of before is still good. */
    ck_assert(extender_bind(&w.e, "p1", "n1", &said));

    temp_write(lib_dir, "..data/tls.crt", "rubbish\n");
    lib_wait(healthz_says(&w, "tls of verbs: certificate "));
    lib_wait(healthz_says(&w, "tls of observers: certificate "));
    ck_assert_contains(program_output(&w.e.program), "still using the old ones");
    ck_assert_uint_eq(filter_as(&w, other, "kube-scheduler", &said), 200);
    ck_assert_uint_eq(peer_status(&w.e.observers, "/readyz"), 200);

    publish("server2", "other.crt");
    lib_wait(filter_as(&w, w.trust, "foreign", &said) == 403); /* known, not named */
    ck_assert_uint_eq(filter_as(&w, w.trust, "kube-scheduler", &said), 0);
    lib_wait(healthz_says(&w, NULL));
    world_end(&w);
}
END_TEST

static void check_refused(const char *const *more, const char *text)
{
    struct program p;
    cleanup_free char *path =
        lib_kubeconfig("nowhere", "http", 1, "", ""); /* nobody listens there */
    lib_program(&p, "gpushare-extender",
                ARGV("--listen", "127.0.0.1", "--port", "0", "--observe-port", "0",
                     "--kubeconfig", path),
                more);
    ck_assert_int_eq(program_wait(&p), 1);
    ck_assert_contains(p.said.p, text);
    program_fini(&p);
}

START_TEST(options_that_need_each_other_say_so)
{
    tls_make_ca(lib_dir, "ca");
    tls_make_cert(lib_dir, "ca", "server", "IP:127.0.0.1");
    cleanup_free char *crt = temp_path(lib_dir, "server.crt"),
                      *key = temp_path(lib_dir, "server.key");
    check_refused(ARGV("--tls-cert", crt),
                  "--tls-cert and --tls-key must be set together");
    check_refused(ARGV("--tls-key", key),
                  "--tls-cert and --tls-key must be set together");
    check_refused(ARGV("--client-ca", crt), "--client-ca needs --tls-cert");
    check_refused(ARGV("--replica-ca", crt), "--replica-ca needs --tls-cert");
    check_refused(ARGV("--tls-cert", crt, "--tls-key", key, "--client-name", "x"),
                  "--client-name needs --client-ca");
    check_refused(ARGV("--requestheader-client-ca", crt),
                  "--requestheader-client-ca needs --tls-cert");
    check_refused(
        ARGV("--tls-cert", crt, "--tls-key", key, "--requestheader-allowed-names", "x"),
        "--requestheader-allowed-names needs --requestheader-client-ca");
    check_refused(ARGV("--tls-cert", crt, "--tls-key", key, "--observe-client-ca", crt),
                  "--observe-client-ca needs --client-ca, because the main port serves "
                  "the same views");
    check_refused(ARGV("--tls-cert", crt, "--tls-key", key, "--client-ca", crt,
                       "--observe-client-ca", key),
                  "CA file ");
    check_refused(ARGV("--tls-cert", crt, "--tls-key", crt), "server.crt with key ");
    check_refused(ARGV("--tls-cert", "/no/such.crt", "--tls-key", key),
                  "/no/such.crt: No such file");
}
END_TEST

LIB_MAIN("tls", 60, the_verbs_are_for_the_named_clients_and_a_look_is_for_all,
         what_is_replaced_is_used_and_what_is_bad_is_told,
         options_that_need_each_other_say_so)
