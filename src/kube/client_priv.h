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
 * A client and its credentials, which it keeps up to date.
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
struct kube_client {
    struct kube_config config; /* its PEM texts: as last loaded */
    int64_t (*now_ms)(void);   /* clock_mono_ms; tests of long intervals replace it */
    pthread_mutex_t lock;      /* protects the fields below, and the PEM texts */
    pthread_cond_t run_ended;
    char *authorization; /* header value, or NULL */
    struct httpc *http;
    bool has_new_pem; /* since http was made */
    uint64_t version; /* grows with every change of a credential */

    /* files */
    bool has_loaded;
    bool is_rejected;       /* the server responded with 401 since the last load */
    bool is_connect_failed; /* a connection failed since the last load */
    int64_t loaded_ms;
    bool warned_token, warned_ca, warned_pair;

    /* the plugin */
    bool is_running, has_run, has_credential, is_credential_rejected;
    bool has_plugin_pair; /* the certificate and key in use are from the plugin */
    int64_t run_ms;       /* end of the last run */
    int64_t expires_ms;   /* of its credential */
    struct err run_err;   /* of the last run; ERR_NONE: it succeeded */
};

/* What one request uses. */
struct kube_session {
    char *authorization; /* owned; or NULL */
    struct httpc *http;  /* a reference */
    uint64_t version;    /* of the credentials */
};
/* May run a plugin, or wait for a run of another thread. */
int kube_session_begin(struct kube_client *c, struct kube_session *s, struct err *err);
void kube_session_fini(struct kube_session *s);
/* The server responded with 401 to that version; 0: to the latest one. The next session
 * refreshes the credentials, unless they have changed since. */
void kube_session_rejected(struct kube_client *c, uint64_t version);

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

/* The result of a program: its output and its exit status. */
struct kube_run {
    struct buf out, errors; /* standard output; the beginning of standard error */
    int status;             /* as from waitpid */
};
void kube_run_fini(struct kube_run *r);

/* Runs argv[0], searched in PATH, with the environment `env`, an empty standard input and
 * its own process group. ERR_NOT_FOUND: no such program. ERR_TOO_LARGE: more than
 * `max_out` bytes of either output. ERR_TIMEOUT: not finished within `limit_ms`. In both last
 * cases the process group is killed. */
int kube_run_program(char *const *argv, char *const *env, size_t max_out,
                     int64_t limit_ms, struct kube_run *r, struct err *err);

/* Parses the output of a plugin. ERR_INVALID: not an ExecCredential with a credential. */
int kube_exec_parse(const struct kube_exec *e, struct span text,
                    struct kube_exec_credential *credential, struct err *err);

/* The text on one line, without control characters, truncated to `max` bytes; new. */
char *kube_printable(struct span s, size_t max);
