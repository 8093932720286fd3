/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "kube/config.h"

/*
 * What a client shows the server, kept fresh.
 *
 * Sources, as the config names them: a fixed token, a token file, an exec plugin, a
 * client certificate, and the authorities that the server is checked against. Files are
 * read again after 50 s, at once after a refusal and soon after a failed connection; one
 * that is missing, empty or not what it should be keeps the old value, with one warning.
 * A token file wins over a token, both win over a plugin (as for kubectl). A plugin is
 * run when there is no credential, when it is about to expire, and after a refusal; one
 * run at a time serves all threads, and no two begin within a second.
 *
 * Tokens and keys never reach a log or a message.
 */

/* What a plugin answers. */
struct kube_exec_credential {
    char *token;                   /* or NULL */
    struct span cert_pem, key_pem; /* owned; or empty */
    bool expires;
    int64_t expires_s; /* since 1970 */
};
void kube_exec_credential_fini(struct kube_exec_credential *a);

/* Runs the plugin, which has `limit_ms`; then its process group is killed. Its standard
 * input is empty; what it says on standard error comes into the message. */
int kube_exec_run(const struct kube_exec *e, int64_t limit_ms,
                  struct kube_exec_credential *answer, struct err *err);

/* What is shown at one moment: immutable, shared. */
struct kube_identity {
    char *authorization; /* header value, or NULL */
    struct span ca_pem, cert_pem, key_pem;
    uint64_t version;     /* grows with every change */
    uint64_t tls_version; /* the version in which ca, cert or key changed last */
};
void kube_identity_free(struct kube_identity *id); /* gives one share up */

struct kube_credential;

/* New. `config` is borrowed. */
struct kube_credential *kube_credential_new(const struct kube_config *config);
void kube_credential_free(struct kube_credential *c);

/* What to show now; a share for the caller. `now_ms` is clock_mono_ms (an argument for
 * the sake of tests). May run a plugin, or wait for a run. From any thread. */
struct kube_identity *kube_credential_get(struct kube_credential *c, int64_t now_ms,
                                          struct err *err);
/* The server refused `id` (401): the next get brings something new, if there is anything
 * that can change. Without effect when `id` is not the latest any more; NULL: the latest.
 */
void kube_credential_rejected(struct kube_credential *c, const struct kube_identity *id);
/* No TLS connection came about: the next get looks at the files, but not more often than
 * once a second. */
void kube_credential_connect_failed(struct kube_credential *c);
/* Is there anything that a refusal could make new: a token file, a plugin, a certificate
 * file? */
bool kube_credential_can_change(const struct kube_credential *c);
