/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/tls_secret.h"

/*
 * The certificates that the extender makes itself: which Secrets must be written, as a
 * function of what they contain and of the time. No I/O, no clock. The leader executes the
 * plan; every replica serves what the Secrets contain.
 *
 * Three Secrets of type kubernetes.io/tls:
 *
 *   gpushare-extender-ca    the certificate authority (CA) that signs the two others, and
 *                           in time its successor (next.crt, next.key)
 *   gpushare-extender-tls   the server's certificate; replicas call each other with it
 *   gpushare-scheduler-tls  kube-scheduler's client certificate
 *
 * ca.crt is the same in all three: every CA that must be trusted, old and new. A Secret is
 * ours if its annotation gpushare/certificate-hash fits tls.crt. A Secret that another
 * program or a person has written is never changed.
 *
 * Life of a CA, in fractions of its ten years: at 2/3 its successor is made, and from then
 * on in every ca.crt; at 5/6 the successor signs. Clients have 20 months to get the new
 * ca.crt, and then 20 months to get a certificate of the new CA. kube-scheduler reads
 * ca.crt only when it starts, and Kubernetes supports a release for 14 months: its next
 * upgrade starts every kube-scheduler in time. A CA that an older version made for three
 * years keeps its dates: six months instead of 20.
 */

enum cert_plan_secret {
    CERT_PLAN_CA,
    CERT_PLAN_SERVER,
    CERT_PLAN_CLIENT,
    CERT_PLAN_SECRETS,
};
const char *cert_plan_name(enum cert_plan_secret secret); /* "gpushare-extender-ca" */

#define CERT_PLAN_SERVER_NAME "gpushare-extender"      /* common name of the server */
#define CERT_PLAN_CLIENT_NAME "gpushare-scheduler"     /* common name of kube-scheduler */
#define CERT_PLAN_HOST        "gpushare-schd-extender" /* the Service */

enum {
    CERT_PLAN_CA_S = 10 * 365 * 86400, /* as kubeadm's */
    CERT_PLAN_SERVER_S = 90 * 86400,
    /* As kubeadm's certificates: kube-scheduler's copy is a file of a control plane node. */
    CERT_PLAN_CLIENT_S = 365 * 86400,
    /* All but a successor begin before now: clocks of machines differ. */
    CERT_PLAN_BACKDATE_S = 3600,
    CERT_PLAN_CAS_MAX = 6, /* certificates in ca.crt */
};

struct cert_plan {
    /* The Secrets to write, in this order: of each, the complete new content with the
     * version that it replaces, and the reason, a static text. */
    struct {
        bool write;
        const char *why;
        struct kube_tls_secret to;
    } secrets[CERT_PLAN_SECRETS];
    struct buf problem; /* lines that an administrator must read; empty: none */
};

/* Fills *plan, which must be empty. `ns` is the namespace of the Service, which is part of
 * the server's names. */
void cert_plan_make(const struct kube_tls_secret seen[CERT_PLAN_SECRETS], const char *ns,
                    int64_t now_s, struct cert_plan *plan);
void cert_plan_fini(struct cert_plan *plan);
