/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/config.h"
#include "wire/yaml.h"

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
/* Finds the entry in the first file that has it. */
int kubeconfig_find(const struct kubeconfig *k, const char *what, const char *name,
                    struct kube_entry *e, struct err *err);
/* Fills the config from the context of this name (NULL: the current one). */
int kubeconfig_apply(const struct kubeconfig *k, const char *context,
                     struct kube_config *config, struct err *err);

/* Fill the config from the body of a cluster or user entry. */
int kube_config_cluster(const struct kube_entry *e, struct kube_config *config,
                        struct err *err);
int kube_config_user(const struct kube_entry *e, struct kube_config *config,
                     struct err *err);
/* Reads the exec plugin of the user e; kube_config_cluster must have filled the config.
 */
int kube_config_exec(const struct kube_entry *e, const struct kube_entry *cluster,
                     struct kube_config *config, struct err *err);

/* Splits the URL of a server into config->server and config->path_prefix. */
int kube_config_server(struct kube_config *config, struct span url, struct err *err);
/* Whether it is a valid bearer token: printable ASCII without spaces, not empty. */
bool kube_token_ok(struct span token);
/* Sets an error about the value of `key`, with file and line. Returns -1. */
int kube_entry_fail(const struct kube_entry *e, const char *key, const char *why,
                    struct err *err);
/* Prepends the entry to a message that already has file and line. Returns -1. */
int kube_entry_wrap(const struct kube_entry *e, struct err *err);
/* The boolean of a key; *out is unchanged if the key is absent. */
int kube_entry_bool(const struct kube_entry *e, const char *key, bool *out,
                    struct err *err);
/* The path, relative to the entry's file; new. */
char *kube_entry_path(const struct kube_entry *e, const char *path);

/* Whether the text contains a PEM header; it is not decoded. */
bool kube_is_pem(struct span s);
/* A new copy; release with kube_span_free, which overwrites it. */
struct span kube_span_copy(struct span s);
void kube_span_free(struct span *s);
