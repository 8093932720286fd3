/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/opt.h"
#include "extender/core_driver.h"
#include "extender/counters.h"
#include "kube/client.h"
#include "wire/tls.h"

/*
 * TLS of the two ports: where the certificate comes from, one for both, and which clients
 * each port knows. A thread follows files and Secrets.
 *
 * Modes:
 *   insecure  --insecure: no client needs credentials. Plain HTTP, or HTTPS with
 *             --tls-cert. The default on a loopback address without certificate options.
 *   files     --tls-cert and --tls-key, and --client-ca for the clients of the verbs.
 *   secrets   otherwise: the certificates of extender/cert_secrets.h.
 *
 * Every client completes the TLS handshake, because the kubelet's probes have no
 * certificate; extender/access.h decides what a client may do. The observers' port trusts
 * X-Remote-User only from the API server's front proxy.
 */

struct certs_config {
    const char *listen;                  /* address of both ports */
    enum opt_switch insecure;            /* --insecure */
    const char *ns;                      /* of the Secrets */
    const char *cert_file, *key_file;    /* or NULL */
    const char *client_ca_file;          /* CA of clients of the verbs, or NULL */
    const struct opt_list *client_names; /* each item a comma list */
    const char *front_ca_file;           /* CA of the front proxy; NULL: there is none */
    const struct opt_list *front_names;  /* common names of the front proxy */
    const char *observe_ca_file;         /* CA of observers, or NULL */
};

enum certs_mode { CERTS_INSECURE, CERTS_FILES, CERTS_SECRETS };

struct certs;

/* New; chooses the mode, logs it and reads the files. The error names the option or file.
 */
struct certs *certs_new(const struct certs_config *config, struct err *err);
/* Starts the thread that follows the files and Secrets. All are borrowed. */
void certs_start(struct certs *c, struct kube_client *client, struct core_driver *driver,
                 struct counters *counters);
/* The listeners must have stopped. All functions below accept NULL: insecure, plain HTTP.
 */
void certs_stop(struct certs *c); /* joins the thread; may be called twice */
void certs_free(struct certs *c);

enum certs_mode certs_mode(const struct certs *c);
/* For a listener; NULL: plain HTTP. */
struct tls *certs_verbs(struct certs *c);
struct tls *certs_observers(struct certs *c);
/* Whether a front proxy is configured. */
bool certs_has_front_proxy(const struct certs *c);
/* 0: there is a certificate. Else -1 and the reason. */
int certs_ready(struct certs *c, struct err *err);
/* Appends problems with files and Secrets (expiry, failed reload), a line each. */
void certs_report(struct certs *c, struct buf *out);
