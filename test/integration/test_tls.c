/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/suite.h"
#include "lib/tls.h"

/*
 * The extender with HTTPS: which clients may use the verbs and which may only read, and
 * certificates that are replaced at run time, as the kubelet updates a Secret's volume.
 */

/* A file of a certificate: NAME.crt or NAME.key; NULL: no name. */
static char *file_of(const char *name, const char *suffix)
{
    return name ? lib_fmt("%s/%s.%s", lib_dir, name, suffix) : NULL;
}

/* Switches the symbolic link ..data to a folder with new files, in one step. */
static void publish(const char *cert, const char *ca)
{
    static int n;
    const char *name = lib_fmt("data-%d", ++n);
    temp_mkdir(lib_dir, name);
    temp_write(lib_path(name), "tls.crt", lib_file(file_of(cert, "crt")));
    temp_write(lib_path(name), "tls.key", lib_file(file_of(cert, "key")));
    temp_write(lib_path(name), "ca.crt", lib_file(file_of(ca, "crt")));
    ck_assert_int_eq(symlink(name, lib_path("..next")), 0);
    ck_assert_int_eq(rename(lib_path("..next"), lib_path("..data")), 0);
}

static void set_up(void)
{
    tls_make_ca(lib_dir, "ca");
    tls_make_ca(lib_dir, "other");
    tls_make_cert(lib_dir, "ca", "server", "IP:127.0.0.1");
    tls_make_cert(lib_dir, "ca", "server2", "IP:127.0.0.1");
    tls_make_cert(lib_dir, "ca", "kube-scheduler", "DNS:scheduler.test");
    tls_make_cert(lib_dir, "ca", "somebody", "DNS:somebody.test");
    tls_make_cert(lib_dir, "other", "foreign", "DNS:scheduler.test");
    publish("server", "ca");
    sim_add_node(&sim, "n1", 2, 16);
    sim_add_pod(&sim, "p1", 4);
    extender_begin(&extender, &sim,
                   ARGV("--tls-cert", lib_path("..data/tls.crt"), "--tls-key",
                        lib_path("..data/tls.key"), "--client-ca",
                        lib_path("..data/ca.crt"), "--client-name",
                        "system:kube-scheduler,kube-scheduler", "--client-name",
                        "another"));
    extender_connect(&extender, file_of("ca", "crt"), file_of("kube-scheduler", "crt"),
                     file_of("kube-scheduler", "key"));
    extender.observers.authorization = SIM_BEARER;
    extender_wait_ready(&extender);
}

static const char *said; /* the body of the last reply */

/* Filters on a new connection with the certificate `name`; NULL: none. Returns the status; 0:
 * no reply. */
static unsigned filter_as(const char *trust, const char *name)
{
    struct peer p;
    cleanup_buf struct buf body = {0}, reply = {0};
    lib_filter_body(&body, "p1", 4, ARGV("n1"));
    peer_init_cert(&p, extender.verbs.port, file_of(trust, "crt"), file_of(name, "crt"),
                   file_of(name, "key"));
    unsigned status = peer_call(&p, "POST", "/gpushare-scheduler/filter", body.p, &reply);
    said = lib_fmt("%s", reply.p);
    peer_fini(&p);
    return status;
}

TEST(verbs_need_a_named_client_and_reading_does_not)
{
    set_up();
    ck_assert_uint_eq(filter_as("ca", "kube-scheduler"), 200);
    ck_assert_contains(said, "\"NodeNames\":[\"n1\"]");
    ck_assert(extender_bind(&extender, "p1", "n1", NULL));
    ck_assert_uint_eq(filter_as("ca", "somebody"), 403);
    ck_assert_contains(
        said, "the client certificate of \\\"somebody\\\" is not allowed here: if "
              "it is of --client-ca, add --client-name=somebody\"");
    ck_assert_uint_eq(filter_as("ca", "foreign"), 401);
    ck_assert_uint_eq(filter_as("ca", NULL), 401);
    ck_assert_contains(said, "a client certificate is required");
    /* The kubelet's probes have no client certificate. */
    static const struct {
        const char *path;
        unsigned status;
    } probes[] = {{"/readyz", 200},
                  {"/healthz", 200},
                  {"/version", 200},
                  {"/inspect", 401},
                  {"/metrics", 401}};
    struct peer probe;
    peer_init_tls(&probe, extender.verbs.port, file_of("ca", "crt"));
    array_items(p, probes)
        ck_assert_uint_eq(peer_status(&probe, p->path), p->status);
    peer_fini(&probe);
    ck_assert_uint_eq(peer_status(&extender.verbs, "/inspect"), 200);
    ck_assert_uint_eq(peer_status(&extender.observers, "/readyz"), 200);
    ck_assert(peer_says(&extender.observers, "/healthz", 200, "ok\n"));
    peer_get(&extender.observers, "/inspect");
    ck_assert(program_wait_output(&extender.program, "client certificate: rejected"));
}

TEST(replaced_files_are_used_and_invalid_ones_are_reported)
{
    set_up();
    tls_make_cert(lib_dir, "other", "elsewhere", "IP:127.0.0.1");
    ck_assert(extender_bind(&extender, "p1", "n1", NULL));

    publish("elsewhere", "ca");
    lib_wait(filter_as("other", "kube-scheduler") == 200);
    /* The connection that kube-scheduler already has is still valid. */
    ck_assert(extender_bind(&extender, "p1", "n1", NULL));

    temp_write(lib_dir, "..data/tls.crt", "rubbish\n");
    lib_wait(
        peer_says(&extender.observers, "/healthz", 200, "tls of verbs: certificate "));
    lib_wait(peer_says(&extender.observers, "/healthz", 200,
                       "tls of observers: certificate "));
    ck_assert(program_wait_output(&extender.program, "still using the old ones"));
    ck_assert_uint_eq(filter_as("other", "kube-scheduler"), 200);
    ck_assert_uint_eq(peer_status(&extender.observers, "/readyz"), 200);

    publish("server2", "other");
    lib_wait(filter_as("ca", "foreign") == 403); /* not in --client-name */
    ck_assert_uint_eq(filter_as("ca", "kube-scheduler"), 401);
    lib_wait(peer_says(&extender.observers, "/healthz", 200, "ok\n"));
}

TEST(missing_companion_options_are_reported)
{
    tls_make_ca(lib_dir, "ca");
    tls_make_cert(lib_dir, "ca", "server", "IP:127.0.0.1");
    const char *crt = file_of("server", "crt"), *key = file_of("server", "key");
    const struct {
        const char *const *options, *says;
    } cases[] = {
        {ARGV("--tls-cert", crt), "--tls-cert and --tls-key must be set together"},
        {ARGV("--tls-key", key), "--tls-cert and --tls-key must be set together"},
        {ARGV("--tls-cert", crt, "--tls-key", key),
         "--tls-cert needs --client-ca, the CA of kube-scheduler's client"},
        {ARGV("--insecure", "--client-ca", crt),
         "--insecure=on asks no client for credentials, and --client-ca does"},
        {ARGV("--insecure", "--observe-client-ca", crt),
         "--insecure=on asks no client for credentials, and --observe-client-ca"},
        {ARGV("--insecure", "--requestheader-client-ca", crt),
         "--requestheader-client-ca needs --tls-cert"},
        {ARGV("--replica-ca", crt), "--replica-ca needs --tls-cert"},
        {ARGV("--tls-cert", crt, "--tls-key", key, "--client-name", "x"),
         "--client-name needs --client-ca"},
        {ARGV("--tls-cert", crt, "--tls-key", key, "--requestheader-allowed-names", "x"),
         "--requestheader-allowed-names needs --requestheader-client-ca"},
        {ARGV("--tls-cert", crt, "--tls-key", key, "--client-ca", crt, "--client-name="),
         "--client-name: expected a name"},
        {ARGV("--tls-cert", crt, "--tls-key", key, "--client-ca", crt,
              "--requestheader-client-ca", crt, "--requestheader-allowed-names", " , "),
         "--requestheader-allowed-names: expected a name"},
        {ARGV("--tls-cert", crt, "--tls-key", key, "--client-ca", crt,
              "--observe-client-ca", key),
         "CA file "},
        {ARGV("--tls-cert", crt, "--tls-key", crt, "--client-ca", crt),
         "server.crt with key "},
        {ARGV("--tls-cert", "/no/such.crt", "--tls-key", key, "--insecure"),
         "/no/such.crt: No such file"},
    };
    array_items(c, cases) {
        const char *options[PROGRAM_ARGS] = {
            "--listen",       "127.0.0.1", "--port",       "0",
            "--observe-port", "0",         "--kubeconfig", sim_kubeconfig(&sim)};
        program_args(options, 8, c->options);
        ck_assert_contains(lib_output_of(1, "gpushare-extender", options), c->says);
    }
}

SUITE_MAIN(60, NULL)
