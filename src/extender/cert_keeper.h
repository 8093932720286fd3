/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/counters.h"
#include "extender/store.h"
#include "kube/client.h"
#include "wire/tls.h"

/*
 * The certificates in Secrets: every replica reads them and serves what they contain; the
 * leader also makes and renews them (extender/cert_plan.h). One thread steps it.
 */

struct cert_keeper_config {
    const char *ns;     /* of the Secrets; copied */
    struct tls *tls[2]; /* of the listeners, with own_names; borrowed */
};

struct cert_keeper;

struct cert_keeper *cert_keeper_new(const struct cert_keeper_config *config);
/* Connects it to the API server and the core, before the first step. All are borrowed;
 * `counters` may be NULL. */
void cert_keeper_connect(struct cert_keeper *k, struct kube_client *client,
                         struct store *store, struct counters *counters);
void cert_keeper_free(struct cert_keeper *k); /* NULL is accepted */

/* Reads the Secrets if that is due, and makes them if this process leads. Blocks for the
 * time of a few calls to the API server; none is begun after cert_keeper_stop. */
void cert_keeper_step(struct cert_keeper *k);
/* When the next step has something to do, on clock_mono_ms. */
int64_t cert_keeper_due(const struct cert_keeper *k);
void cert_keeper_stop(struct cert_keeper *k); /* from any thread */

/* From any thread: */

/* 0: the listeners have a certificate from a Secret. Else -1 and the reason. */
int cert_keeper_ready(struct cert_keeper *k, struct err *err);
/* Appends a line per problem that an administrator should know. */
void cert_keeper_report(struct cert_keeper *k, struct buf *out);
