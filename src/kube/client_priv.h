/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "kube/client.h"
#include "kube/kubeconfig_priv.h"

/*
 * The credentials of an API client, kept up to date.
 *
 * Sources, from the config: a static token, a token file, an exec plugin, a client
 * certificate, and the certificate authorities for the server. Files are reloaded every
 * 50 s, at once after a 401, and after a failed connection (at most once a second); if a
 * file is missing, empty or malformed, the old value stays in use and one warning is
 * logged. A token file has precedence over a token, and both over a plugin, as for
 * kubectl. A plugin runs if there is no credential, 10 s before it expires, and after a
 * 401. One run serves all threads, and runs are at least a second apart.
 *
 * Tokens and keys are never logged and never part of an error message.
 */

/* The status of the ExecCredential that a plugin prints. */
struct kube_exec_credential {
    char *token;                   /* or NULL */
    struct span cert_pem, key_pem; /* owned; or empty */
    bool expires;
    int64_t expires_s; /* since 1970 */
};
void kube_exec_credential_fini(struct kube_exec_credential *a);

/* Runs the plugin; after `limit_ms` its process group is killed. Its standard input is
 * empty; its standard error becomes part of the error message. */
int kube_exec_run(const struct kube_exec *e, int64_t limit_ms,
                  struct kube_exec_credential *credential, struct err *err);

/* The credentials at one point in time; immutable and reference-counted. */
struct kube_identity {
    char *authorization; /* header value, or NULL */
    struct span ca_pem, cert_pem, key_pem;
    uint64_t version;     /* grows with every change */
    uint64_t tls_version; /* the version that last changed ca, cert or key */
};
void kube_identity_free(struct kube_identity *id); /* releases one reference */

struct kube_credential;

/* New. `config` is borrowed. */
struct kube_credential *kube_credential_new(const struct kube_config *config);
void kube_credential_free(struct kube_credential *c);

/* The current credentials; a new reference. `now_ms` is clock_mono_ms, an argument for
 * tests. May run a plugin, or wait for a run of another thread. From any thread. */
struct kube_identity *kube_credential_get(struct kube_credential *c, int64_t now_ms,
                                          struct err *err);
/* The server rejected `id` with 401: the next kube_credential_get refreshes the
 * credentials, if they can change. No effect if `id` is not the latest version; NULL: the
 * latest. */
void kube_credential_rejected(struct kube_credential *c, const struct kube_identity *id);
/* A connection failed: the next kube_credential_get reloads the files, at most once a
 * second, because the server may have a certificate of a new authority. */
void kube_credential_connect_failed(struct kube_credential *c);
/* Whether a refresh can change the credentials: there is a token file, an exec plugin or
 * a certificate file. */
bool kube_credential_can_change(const struct kube_credential *c);

/* The result of a program: its output, truncated to the limits, and its exit status. */
struct kube_run {
    struct buf out, errors; /* standard output, standard error */
    int status;             /* as from waitpid */
};
void kube_run_fini(struct kube_run *r);

/* Runs argv[0], searched in PATH, with the environment `env`, an empty standard input and
 * its own process group. ERR_NOT_FOUND: no such program. ERR_TOO_LARGE: more than
 * `max_out` bytes of output. ERR_TIMEOUT: not finished within `limit_ms`. In both last
 * cases the process group is killed. */
int kube_run_program(char *const *argv, char *const *env, size_t max_out,
                     int64_t limit_ms, struct kube_run *r, struct err *err);

/* Parses the output of a plugin. ERR_INVALID: not an ExecCredential with a credential. */
int kube_exec_parse(const struct kube_exec *e, struct span text,
                    struct kube_exec_credential *credential, struct err *err);

/* The text on one line, without control characters, truncated to `max` bytes; new. */
char *kube_printable(struct span s, size_t max);

struct kube_client {
    struct kube_config config;
    struct kube_credential *credential;
    int64_t (*now_ms)(void); /* clock_mono_ms; tests of long intervals replace it */
    pthread_mutex_t lock;    /* protects the fields below */
    struct httpc *http;
    uint64_t tls_version; /* of the identity that http was made for */
};
