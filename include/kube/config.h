/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"

/*
 * Where the API server is and how to show who we are.
 *
 * Sources, first that exists: the file(s) named (colon list, as in KUBECONFIG: the first
 * file that sets a value or a named entry wins, `current-context` too; a file that is
 * missing is left out), the service account of the pod (host and port are set and there
 * is a token file), ~/.kube/config. Kubeconfig: clusters (server,
 * certificate-authority[-data], insecure-skip-tls-verify, tls-server-name, proxy-url),
 * users (client-certificate[-data], client-key[-data], token, tokenFile, exec), contexts.
 * Relative paths are relative to the file they stand in. What we cannot honour
 * (auth-provider, username/password, as) is an error that names it, not a silent
 * anonymous call.
 */

/* A credential plugin (client.authentication.k8s.io/v1 or v1beta1). */
struct kube_exec {
    char *user;         /* of the kubeconfig, for messages */
    char *api_version;  /* "client.authentication.k8s.io/v1" */
    char **argv;        /* command and arguments; ends with NULL */
    char **env;         /* "NAME=value", on top of our own environment; ends with NULL */
    char *install_hint; /* or NULL */
    char *info;         /* KUBERNETES_EXEC_INFO: a JSON object */
};

struct kube_exec *kube_exec_copy(const struct kube_exec *e); /* new; NULL of NULL */
void kube_exec_free(struct kube_exec *e);

struct kube_config {
    char *server;      /* "https://host:port" */
    char *path_prefix; /* "" or "/k8s/clusters/c1": put in front of every path */
    char *server_name; /* NULL: the host of the server */
    char *proxy;       /* NULL: none */
    bool insecure;
    struct span ca_pem;            /* owned; empty: the system's authorities */
    char *ca_file;                 /* where ca_pem came from, to be read again; or NULL */
    struct span cert_pem, key_pem; /* owned; client certificate, or empty */
    char *cert_file, *key_file;    /* where they came from, or NULL */
    char *token;                   /* fixed token, or NULL */
    char *token_file;              /* read again at least once a minute, or NULL */
    struct kube_exec *exec;        /* or NULL */
    char *ns;     /* namespace of the context or service account; "default" */
    char *source; /* for messages: "context dev of /root/.kube/config" */
};

struct kube_config_sources {
    const char *kubeconfig;  /* colon list, or NULL */
    const char *context;     /* or NULL: current-context */
    const char *host, *port; /* KUBERNETES_SERVICE_HOST and _PORT, or NULL */
    const char *account_dir; /* NULL: /var/run/secrets/kubernetes.io/serviceaccount */
    const char *home;        /* HOME, or NULL */
};

/* Fills *config, which must be zeroed; release with kube_config_fini in every case. */
int kube_config_load(const struct kube_config_sources *sources,
                     struct kube_config *config, struct err *err);
void kube_config_fini(struct kube_config *config);
/* Makes *to, which holds nothing, an independent copy. */
void kube_config_copy(struct kube_config *to, const struct kube_config *from);
