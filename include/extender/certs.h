/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/opt.h"
#include "wire/tls.h"

/*
 * TLS of the two ports: one certificate for both, and the clients that each port trusts.
 * A thread checks the files for changes once a second.
 *
 * The verbs' port admits only clients with a certificate of --client-ca. The observers'
 * port admits every client, because the kubelet's probes and scrapers have no
 * certificate, and trusts X-Remote-User only from the API server's front proxy. With
 * --observe-client-ca it shows the cluster only to clients of that CA and to the front
 * proxy.
 */

struct certs_config {
    const char *cert_file, *key_file;    /* NULL: plain HTTP */
    const char *client_ca_file;          /* NULL: any client may call the verbs */
    const struct opt_list *client_names; /* each item a comma list */
    const char *front_ca_file;           /* CA of the front proxy; NULL: there is none */
    const struct opt_list *front_names;  /* common names of the front proxy */
    const char *observe_ca_file;         /* CA of observers; NULL: everyone may observe */
};

struct certs;

/* New; reads the files and starts the thread. The error names the option or file. */
struct certs *certs_start(const struct certs_config *config, struct err *err);
/* The listeners must have stopped. All functions below accept NULL: no TLS. */
void certs_stop(struct certs *c);
/* For a listener; NULL: plain HTTP. */
struct tls *certs_verbs(struct certs *c);
struct tls *certs_observers(struct certs *c);
/* Whether a front proxy is configured. */
bool certs_has_front_proxy(const struct certs *c);
/* Appends problems with the files (expiry, failed reload), a line each. */
void certs_report(struct certs *c, struct buf *out);
