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
    char *user;         /* of the kubeconfig, for messages */
    char *api_version;  /* "client.authentication.k8s.io/v1" */
    char **argv;        /* command and arguments; ends with NULL */
    char **env;         /* "NAME=value", added to our environment; ends with NULL */
    char *install_hint; /* or NULL */
    char *info;         /* KUBERNETES_EXEC_INFO: a JSON object */
};

void kube_exec_free(struct kube_exec *e);

struct kube_config {
    char *server;      /* "https://host:port" */
    char *path_prefix; /* "" or "/k8s/clusters/c1", prepended to every path */
    char *server_name; /* NULL: the host of the server */
    char *proxy;       /* NULL: none */
    bool insecure;
    struct span ca_pem;            /* owned; empty: the system's authorities */
    char *ca_file;                 /* the file of ca_pem, for reloads; or NULL */
    struct span cert_pem, key_pem; /* owned; client certificate, or empty */
    char *cert_file, *key_file;    /* their files, for reloads; or NULL */
    char *token;                   /* static token, or NULL */
    char *token_file;              /* reloaded at least once a minute; or NULL */
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

/* Fills *config, which must be zeroed; release with kube_config_fini in every case.
 * ERR_NOT_FOUND: no source exists. ERR_INVALID: the message names file and line. */
int kube_config_load(const struct kube_config_sources *sources,
                     struct kube_config *config, struct err *err);
void kube_config_fini(struct kube_config *config);

enum { KUBE_FILE_MAX = 1 << 20 }; /* bytes of a certificate, key or token file */

/* The kubeconfig files of a list, in order. */
struct kubeconfig {
    struct kubeconfig_file {
        char *path;
        struct yaml *yaml;
    } * files;
    size_t n, cap;
    const char *list; /* as configured; borrowed */
};

/* A named entry. `what` is its type: "cluster" for an item of the list "clusters", whose
 * body is the value of the key "cluster". */
struct kube_entry {
    const char *what, *name;
    const struct yaml_node *body; /* NULL: empty */
    const char *path;             /* of its file */
};

/* Reads the files. Missing files are skipped; if all are missing: ERR_NOT_FOUND. */
int kubeconfig_load(struct kubeconfig *k, const char *list, struct err *err);
void kubeconfig_fini(struct kubeconfig *k);
/* Fills the config from the context of this name (NULL: the current one). */
int kubeconfig_apply(const struct kubeconfig *k, const char *context,
                     struct kube_config *config, struct err *err);

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
