/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"
#include "wire/yaml.h"

/*
 * The address of the API server and the credentials for it.
 *
 * Sources, the first that exists: the kubeconfig of the option or of KUBECONFIG (of a
 * colon-separated list, the one file that exists; kubectl merges several); the pod's service
 * account (host and port are set and its token file exists); ~/.kube/config. Supported fields:
 * clusters (server, certificate-authority[-data], insecure-skip-tls-verify, tls-server-name,
 * proxy-url), users (client-certificate[-data], client-key[-data], token, tokenFile), contexts.
 * Relative paths are relative to the file. An unsupported field (exec, auth-provider, username,
 * password, as) is an error that names the field, so that no call is anonymous by accident.
 */

/* Strings are in the arena, or static. */
struct kube_config {
    const char *server;      /* "https://host:port" */
    const char *path_prefix; /* "" or "/k8s/clusters/c1", prepended to every path */
    const char *server_name; /* NULL: the host of the server */
    const char *proxy;       /* NULL: none */
    const char *unix_socket; /* of `kubectl proxy`; NULL: none */
    bool insecure;
    struct buf ca_pem;                /* empty: the system's authorities */
    const char *ca_file;              /* the file of ca_pem, for reloads; or NULL */
    struct buf cert_pem, key_pem;     /* client certificate, or empty */
    const char *cert_file, *key_file; /* their files, for reloads; or NULL */
    const char *token;                /* static token, or NULL */
    const char *token_file;           /* reloaded at least once a minute; or NULL */
    const char *ns;     /* namespace of the context or service account; "default" */
    const char *source; /* for messages: "context dev of /root/.kube/config" */
    struct arena arena;
};

struct kube_config_sources {
    const char *kubeconfig;  /* colon list, or NULL */
    const char *context;     /* or NULL: current-context */
    const char *host, *port; /* KUBERNETES_SERVICE_HOST and _PORT, or NULL */
    const char *account_dir; /* NULL: /var/run/secrets/kubernetes.io/serviceaccount */
    const char *home;        /* HOME, or NULL */
};

/* Which source is there? *files: NULL for the service account, a path, or a list in which several
 * files exist; in the arena, or borrowed. ERR_NOT_FOUND: none. */
int kube_config_find(const struct kube_config_sources *sources, struct arena *a,
                     const char **files, struct err *err);

/* Fills *config, which must be zeroed; release with kube_config_fini in every case.
 * ERR_NOT_FOUND: no source exists. ERR_INVALID: the message names file and line. */
int kube_config_load(const struct kube_config_sources *sources,
                     struct kube_config *config, struct err *err);
void kube_config_fini(struct kube_config *config);

enum { KUBE_FILE_MAX = 1 << 20 }; /* bytes of a certificate, key or token file */

/* Splits the URL of a server into config->server and config->path_prefix. */
int kube_config_server(struct kube_config *config, struct span url, struct err *err);
/* Whether it is a valid bearer token: printable ASCII without spaces, not empty. */
bool kube_token_ok(struct span token);

/* Reads a PEM file into an empty buffer. */
int kube_read_pem(const char *path, struct buf *pem, struct err *err);
