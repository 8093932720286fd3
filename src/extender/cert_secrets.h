/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/core_driver.h"
#include "extender/counters.h"
#include "kube/client.h"
#include "wire/tls.h"

/*
 * The certificates in three Secrets of type kubernetes.io/tls:
 *
 *   gpushare-extender-ca    a certificate authority (CA)
 *   gpushare-extender-tls   the server's certificate; replicas call each other with it
 *   gpushare-scheduler-tls  kube-scheduler's client certificate
 *
 * Every replica reads the last two and serves what they contain; clients are verified with
 * the ca.crt of both. The leader makes what is missing, once, for ten years: certificates
 * of the CA of the first Secret, which it also makes if it is missing. A Secret that exists
 * is never written, whoever made it: renewing it is the task of cert-manager or of an
 * administrator, who deletes it. One thread steps this.
 */

#define CERT_SECRETS_SERVER_NAME "gpushare-extender"      /* common name of the server */
#define CERT_SECRETS_CLIENT_NAME "gpushare-scheduler"     /* ... of kube-scheduler */
#define CERT_SECRETS_HOST        "gpushare-schd-extender" /* the Service */
#define CERT_SECRETS_SERVER      "gpushare-extender-tls"  /* the server's Secret */

enum {
    CERT_SECRETS_LIFE_S = 10 * 365 * 86400, /* as kubeadm's CA */
    CERT_SECRETS_BACKDATE_S = 3600,         /* clocks of machines differ */
};

struct cert_secrets;

/* New. `ns` is the namespace of the Secrets and of the Service; copied. tls[2], those of the
 * listeners, with own_names, are borrowed. */
struct cert_secrets *cert_secrets_new(const char *ns, struct tls *const tls[2]);
/* Connects it to the API server and the core, before the first step. All are borrowed;
 * `counters` may be NULL. */
void cert_secrets_connect(struct cert_secrets *c, struct kube_client *client,
                          struct core_driver *driver, struct counters *counters);
void cert_secrets_free(struct cert_secrets *c); /* NULL is accepted */

/* Reads the Secrets if that is due, and makes missing ones if this process leads. Blocks
 * for the time of a few calls to the API server; none is begun after cert_secrets_stop. */
void cert_secrets_step(struct cert_secrets *c);
/* When the next step has something to do, on clock_mono_ms. */
int64_t cert_secrets_due(const struct cert_secrets *c);
void cert_secrets_stop(struct cert_secrets *c); /* from any thread */

/* From any thread: */

/* 0: the listeners have a certificate from a Secret. Else -1 and the reason. */
int cert_secrets_ready(struct cert_secrets *c, struct err *err);
/* Appends a line per problem that an administrator should know. */
void cert_secrets_report(struct cert_secrets *c, struct buf *out);
