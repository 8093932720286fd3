/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"
#include "wire/yaml.h"

/*
 * The address of the API server and the credentials for it.
 *
 * Sources, the first that exists: the kubeconfig files of a colon-separated list, as in
 * KUBECONFIG (the first file that sets a value or defines a named entry wins, also for
 * current-context; missing files are skipped); the pod's service account (host and port
 * are set and its token file exists); ~/.kube/config. Supported fields: clusters (server,
 * certificate-authority[-data], insecure-skip-tls-verify, tls-server-name, proxy-url),
 * users (client-certificate[-data], client-key[-data], token, tokenFile, exec), contexts.
 * Relative paths are relative to their file. An unsupported field (auth-provider,
 * username, password, as) is an error that names the field, so that no call is anonymous
 * by accident.
 */

/* An exec credential plugin (client.authentication.k8s.io/v1 or v1beta1). */
struct kube_exec {
    const char *user;         /* of the kubeconfig, for messages */
    const char *api_version;  /* "client.authentication.k8s.io/v1" */
    char **argv;              /* command and arguments; ends with NULL */
    char **env;               /* "NAME=value", added to our environment; ends with NULL */
    const char *install_hint; /* or NULL */
    const char *info;         /* KUBERNETES_EXEC_INFO: a JSON object */
};

/* Strings are in the arena, or static. */
struct kube_config {
    const char *server;      /* "https://host:port" */
    const char *path_prefix; /* "" or "/k8s/clusters/c1", prepended to every path */
    const char *server_name; /* NULL: the host of the server */
    const char *proxy;       /* NULL: none */
    bool insecure;
    struct span ca_pem;               /* owned; empty: the system's authorities */
    const char *ca_file;              /* the file of ca_pem, for reloads; or NULL */
    struct span cert_pem, key_pem;    /* owned; client certificate, or empty */
    const char *cert_file, *key_file; /* their files, for reloads; or NULL */
    const char *token;                /* static token, or NULL */
    const char *token_file;           /* reloaded at least once a minute; or NULL */
    struct kube_exec *exec;           /* or NULL */
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

/* Reads a PEM file; *pem is new. */
int kube_read_pem(const char *path, struct span *pem, struct err *err);
/* Whether the text contains a PEM header; it is not decoded. */
bool kube_is_pem(struct span s);
/* A new copy; release with kube_span_free, which overwrites it. */
struct span kube_span_copy(struct span s);
void kube_span_free(struct span *s);
