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
 * Sources, from the config: a static token, a token file, a client certificate, and the
 * certificate authorities for the server. Files are reloaded every 50 s, at once after a 401,
 * and after a failed connection (at most once a second); if a file is missing, empty or
 * malformed, the old value stays in use and one warning is logged. A token file has precedence
 * over a token, as for kubectl.
 *
 * Tokens and keys are never logged and never part of an error message.
 */
struct kube_client {
    struct kube_config config; /* its PEM texts: as last loaded */
    int64_t (*now_ms)(void);   /* clock_mono_ms; tests of long intervals replace it */
    pthread_mutex_t lock;      /* protects the fields below, and the PEM texts */
    char *authorization;       /* header value, or NULL */
    struct httpc *http;
    bool has_new_pem;       /* since http was made */
    bool has_loaded;        /* the files */
    bool is_rejected;       /* the server responded with 401 since the last load */
    bool is_connect_failed; /* a connection failed since the last load */
    int64_t loaded_ms;
    bool warned_token, warned_ca, warned_pair;
};

/* What one request uses. */
struct kube_session {
    char *authorization; /* owned; or NULL */
    struct httpc *http;  /* a reference */
};
int kube_session_begin(struct kube_client *c, struct kube_session *s, struct err *err);
void kube_session_fini(struct kube_session *s);
