/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/opt.h"
#include "extender/core_driver.h"
#include "extender/forward.h"
#include "extender/metrics.h"
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
 *   secrets   otherwise: the certificates in three Secrets of type kubernetes.io/tls.
 *
 * Every client completes the TLS handshake, because the kubelet's probes have no
 * certificate; extender/access.h decides what a client may do. The observers' port trusts
 * X-Remote-User only from the API server's front proxy.
 *
 * The Secrets:
 *
 *   gpushare-extender-ca    a certificate authority (CA)
 *   gpushare-extender-tls   the server's certificate; replicas call each other with it
 *   gpushare-scheduler-tls  kube-scheduler's client certificate
 *
 * Every replica reads the last two and serves what they contain; clients are verified with
 * the ca.crt of both. The leader makes what is missing, once, for ten years: certificates
 * of the CA of the first Secret, which it also makes if it is missing. A Secret that exists
 * is never written, whatever its source: renewing it is the task of cert-manager or of an
 * administrator, who deletes it.
 *
 * kube-scheduler reads ca.crt only when it starts. With --scheduler-deployment the leader
 * compares the SHA-256 of that file with an annotation of the Deployment's pod template, and
 * writes it if they differ, so that the Deployment replaces its pods; never before this replica
 * serves what they will trust. With --pod-webhook it also writes the ca.crt of the server's
 * Secret to the first webhook of that object.
 */

struct certs_config {
    enum opt_switch insecure;     /* --insecure */
    char *cert_file, *key_file;   /* or NULL */
    char *client_ca_file;         /* CA of clients of the verbs, or NULL */
    struct opt_list client_names; /* each item a comma list */
    char *front_ca_file;          /* CA of the front proxy; NULL: there is none */
    struct opt_list front_names;  /* common names of the front proxy */
    char *observe_ca_file;        /* CA of observers, or NULL */
    char *scheduler_deployment;   /* of the chart's kube-scheduler, or NULL */
    char *webhook;                /* MutatingWebhookConfiguration, or NULL */
};

#define CERTS_SERVER_NAME "gpushare-extender"      /* common name of the server */
#define CERTS_CLIENT_NAME "gpushare-scheduler"     /* ... of kube-scheduler */
#define CERTS_HOST        "gpushare-schd-extender" /* the Service */

enum certs_mode { CERTS_INSECURE, CERTS_FILES, CERTS_SECRETS };

struct certs;

/* New; chooses the mode, logs it and reads the files. The error names the option or file.
 * `listen` is the address of both ports, `ns` the namespace of the Secrets and of the
 * Service. The config, `ns` and the client are borrowed. */
struct certs *certs_new(const struct certs_config *config, const char *listen,
                        const char *ns, struct kube_client *client, struct err *err);
/* Starts the thread that follows the files and Secrets. All are borrowed. */
void certs_start(struct certs *c, struct core_driver *driver, struct forward *forward,
                 struct counters *counters);
/* Joins the thread; may be called twice. It and certs_free accept NULL. */
void certs_stop(struct certs *c);
void certs_free(struct certs *c); /* the listeners must have stopped */

/* Is it an address of 127.0.0.0/8, or ::1? */
bool certs_is_loopback(const char *address);

/* What is in force. */
struct certs_info {
    enum certs_mode mode;
    struct tls *verbs, *observers; /* for the listeners; NULL: plain HTTP */
    bool has_front_proxy;          /* one is configured */
    bool on_loopback;              /* plain HTTP without credentials on such an address */
};
/* Never changes. NULL is accepted, as by the next two: insecure, plain HTTP. */
const struct certs_info *certs_info(const struct certs *c);
/* 0: there is a certificate. Else -1 and the reason. */
int certs_ready(struct certs *c, struct err *err);
/* Appends when each certificate of this process ends, also those of its kube_client. */
void certs_write(struct certs *c, struct buf *out);
/* Appends problems with files and Secrets (expiry, failed reload), a line each. */
void certs_report(struct certs *c, struct buf *out);
