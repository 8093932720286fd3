/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/temp.h"
#include "lib/tls.h"
#include "lib/world.h"

/* A world whose extender has HTTPS, with certificates in lib_dir. */

/* A client with the certificate of kube-scheduler. */
static inline void tls_peer_init(struct peer *p, unsigned port)
{
    cleanup_free char *ca = temp_path(lib_dir, "ca.crt"),
                      *crt = temp_path(lib_dir, "scheduler.crt"),
                      *key = temp_path(lib_dir, "scheduler.key");
    peer_init_cert(p, port, ca, crt, key);
}

static inline void tls_world_start(struct world *w)
{
    struct extender *e = &w->extender;
    tls_make_ca(lib_dir, "ca");
    tls_make_cert(lib_dir, "ca", "server", "IP:127.0.0.1");
    tls_make_cert(lib_dir, "ca", "scheduler", "DNS:scheduler.test");
    cleanup_free char *crt = temp_path(lib_dir, "server.crt"),
                      *key = temp_path(lib_dir, "server.key"),
                      *ca = temp_path(lib_dir, "ca.crt");
    sim_start(&w->sim, ARGV(NULL));
    sim_add_node(&w->sim, "n1", 2, 16);
    cleanup_free char *path =
        lib_kubeconfig("kubeconfig", "http", w->sim.api.port, "", "");
    extender_start_at(e, path,
                      ARGV("--tls-cert", crt, "--tls-key", key, "--client-ca", ca));
    unsigned ports[] = {e->verbs.port, e->observers.port};
    peer_fini(&e->verbs);
    peer_fini(&e->observers);
    tls_peer_init(&e->verbs, ports[0]);
    tls_peer_init(&e->observers, ports[1]);
    extender_wait_ready(e);
}
