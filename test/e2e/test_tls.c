/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "lib/cluster.h"
#include "lib/expect.h"
#include "lib/network.h"
#include "lib/tls.h"

/*
 * kube-scheduler and the extender over HTTPS, each with a certificate, by
 * policy/kube-scheduler-config.yaml, with certificates of the administrator.
 */

#define SERVER_NAME "gpushare-schd-extender.kube-system.svc"

static char *viewer; /* a token for the views */

/* The shipped file with the address, kubeconfig and certificates of this cluster. */
static void configure(void)
{
    static const char *const files[] = {"ca.crt", "client.crt", "client.key"};
    const char *text =
        lib_swap(lib_file("policy/kube-scheduler-config.yaml"), "127.0.0.1:32766",
                 network_at(cluster.extender.verbs.port));
    text = lib_swap(text, "/etc/kubernetes/scheduler.conf",
                    lib_fmt("%s/scheduler.kubeconfig", cluster.dir));
    array_items(file, files)
        text = lib_swap(text, lib_fmt("/etc/kubernetes/gpushare/%s", *file),
                        cluster_pki(*file));
    temp_write(cluster.dir, "scheduler-tls.yaml", text);
}

static void start_extender(void)
{

    cluster_start_with("gpushare-extender",
                       ARGV("--tls-cert", cluster_pki("server.crt"), "--tls-key",
                            cluster_pki("server.key"), "--client-ca",
                            cluster_pki("ca.crt"), "--client-name", "client"));
}

/* The same ports with the client certificate of that name; NULL: without a certificate.
 */
static void connect_as(const char *name)
{
    extender_connect(&cluster.extender, cluster_pki("ca.crt"),
                     name ? cluster_pki(lib_fmt("%s.crt", name)) : NULL,
                     name ? cluster_pki(lib_fmt("%s.key", name)) : NULL);
    cluster.extender.observers.authorization = viewer;
}

static unsigned ask(const char *name)
{
    cleanup_buf struct buf body = {0}, reply = {0};
    connect_as(name);
    lib_filter_body(&body, "somebody", 1, ARGV("n1"));
    return peer_call(&cluster.extender.verbs, "POST", "/filter", body.p, &reply);
}

TEST(only_kube_scheduler_with_its_certificate_is_accepted)
{
    const char *dir = cluster_pki("");
    tls_make_cert(dir, "ca", "server", "IP:127.0.0.1,IP:::1,DNS:" SERVER_NAME);
    tls_make_cert(dir, "ca", "client", "DNS:client.test");
    tls_make_cert(dir, "ca", "unknown", "DNS:unknown.test");
    cluster_create_scv("n1", CARDS(16384));
    cluster_create_node("n1", "", CARDS(16384));
    configure();
    viewer = cluster_viewer();
    start_extender();
    connect_as("client");
    extender_wait_answers(&cluster.extender);
    ck_assert_uint_eq(ask("client"), 200);
    ck_assert_uint_eq(ask("unknown"), 403);
    ck_assert_uint_eq(ask(NULL), 401);
    ck_assert_uint_eq(peer_status(&cluster.extender.verbs, "/healthz"), 200);
    connect_as("client");
    cluster_await_node("n1");

    /* scripts/cluster configures plain HTTP, which the extender rejects. */
    int64_t begun = clock_wall_ns();
    cluster_create_pod("p", 4, "", "");
    cluster_wait_refused("p", "");
    ck_assert(!cluster_bound("p"));
    cluster_start_with("kube-scheduler", ARGV("--config", "scheduler-tls.yaml"));
    expect_placed("p", begun);
    cluster_wait_running("p");
    connect_as("client");
    cluster_agrees();
    cluster.extender.observers.authorization = NULL;
}

CLUSTER_MAIN(120)
