/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "lib/cluster.h"
#include "lib/expect.h"
#include "lib/tls.h"

/*
 * kube-scheduler and the extender over HTTPS, each with a certificate, by the commented
 * lines of policy/kube-scheduler-config.yaml.
 */

#define SERVER_NAME "gpushare-schd-extender.kube-system.svc"

static char *viewer; /* a token for the views */

static char *pki(const char *name)
{
    cleanup_free char *part = xasprintf("pki/%s", name);
    return temp_path(cluster.dir, part);
}

/* Uncomments the line and replaces its paths by the files of this cluster. Returns
 * whether the line was one of them. */
static bool uncomment(struct buf *out, const char *line)
{
    static const char *const files[][2] = {{"  #  caFile:", "ca.crt"},
                                           {"  #  certFile:", "client.crt"},
                                           {"  #  keyFile:", "client.key"}};
    static const char *const as_they_are[] = {
        "  #enableHTTPS:", "  #tlsConfig:", "  #  serverName:"};
    for (size_t i = 0; i < ARRAY_LEN(as_they_are); i++) {
        if (strncmp(line, as_they_are[i], strlen(as_they_are[i])) == 0) {
            buf_printf(out, "  %s\n", line + 3);
            return true;
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        if (strncmp(line, files[i][0], strlen(files[i][0])) == 0) {
            cleanup_free char *path = pki(files[i][1]);
            buf_printf(out, "  %s %s\n", files[i][0] + 3, path);
            return true;
        }
    }
    return false;
}

static void configure(void)
{
    cleanup_free char *shipped = temp_read(cluster.dir, "scheduler.yaml");
    cleanup_buf struct buf out = {0};
    char *rest = shipped, *line, *http;
    int uncommented = 0;
    while ((line = strsep(&rest, "\n"))) {
        if (uncomment(&out, line))
            uncommented++;
        else if (!strncmp(line, "- urlPrefix:", 12) && (http = strstr(line, "http://")))
            buf_printf(&out, "- urlPrefix: https://%s\n", http + 7);
        else if (strncmp(line, "  enableHTTPS:", 14))
            buf_printf(&out, "%s\n", line);
    }
    ck_assert_int_eq(uncommented, 6);
    temp_write(cluster.dir, "scheduler-tls.yaml", out.p);
}

static void start_extender(void)
{
    cleanup_free char *cert = pki("server.crt"), *key = pki("server.key"),
                      *ca = pki("ca.crt");
    cluster_start_with("gpushare-extender",
                       ARGV("--tls-cert", cert, "--tls-key", key, "--client-ca", ca,
                            "--client-name", "client"));
}

/* The same ports with the client certificate of that name; NULL: without a certificate.
 */
static void connect_as(const char *name)
{
    unsigned verbs = cluster.extender.verbs.port, look = cluster.extender.observers.port;
    cleanup_free char *ca = pki("ca.crt");
    peer_fini(&cluster.extender.verbs);
    peer_fini(&cluster.extender.observers);
    peer_init_tls(&cluster.extender.observers, look, ca);
    cluster.extender.observers.authorization = viewer;
    if (!name) {
        peer_init_tls(&cluster.extender.verbs, verbs, ca);
        return;
    }
    cleanup_free char *crt_name = xasprintf("%s.crt", name),
                      *key_name = xasprintf("%s.key", name);
    cleanup_free char *crt = pki(crt_name), *key = pki(key_name);
    peer_init_cert(&cluster.extender.verbs, verbs, ca, crt, key);
}

static unsigned ask(const char *name)
{
    cleanup_buf struct buf body = {0}, reply = {0};
    connect_as(name);
    lib_filter_body(&body, "somebody", 1, ARGV("n1"));
    return peer_call(&cluster.extender.verbs, "POST", "/filter", body.p, &reply);
}

START_TEST(only_kube_scheduler_with_its_certificate_is_accepted)
{
    cleanup_free char *dir = temp_path(cluster.dir, "pki");
    tls_make_cert(dir, "ca", "server", "IP:127.0.0.1,DNS:" SERVER_NAME);
    tls_make_cert(dir, "ca", "client", "DNS:client.test");
    tls_make_cert(dir, "ca", "unknown", "DNS:unknown.test");
    cluster_create_node("n1", NULL, NULL, CARDS(16384));
    configure();
    viewer = cluster_viewer();
    start_extender();
    connect_as("client");
    extender_wait_answers(&cluster.extender);
    ck_assert_uint_eq(ask("client"), 200);
    ck_assert_uint_eq(ask("unknown"), 403);
    ck_assert_uint_eq(ask(NULL), 401);

    /* The shipped configuration uses HTTP, which the extender rejects. */
    int64_t begun = expect_now_ns();
    cluster_create_pod("p", 4, "", "");
    cluster_wait_refused("p", "");
    ck_assert(!cluster_bound("p"));
    cluster_start_with("kube-scheduler", ARGV("--config", "scheduler-tls.yaml"));
    expect_placed("p", begun);
    cluster_wait_running("p");
    connect_as("client");
    cluster_agrees();
    cluster.extender.observers.authorization = NULL;
    free(viewer);
}

static const char *const up[] = {"--nodes", "0", NULL};
CLUSTER_MAIN("tls", 120, up, only_kube_scheduler_with_its_certificate_is_accepted)
