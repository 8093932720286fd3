/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/config.h"
#include "wire/yaml.h"

enum { KUBE_FILE_MAX = 1 << 20 }; /* certificates, keys, tokens */

/* The kubeconfig files of a list, in its order. */
struct kubeconfig {
    struct kubeconfig_file {
        char *path;
        struct yaml *yaml;
    } * files;
    size_t n, cap;
    const char *list; /* as it was given; borrowed */
};

/* A named entry: `what` is "cluster", the section "clusters", the body under "cluster".
 */
struct kube_entry {
    const char *what, *name;
    const struct yaml_node *body; /* NULL: empty */
    const char *path;             /* of its file */
};

/* Reads the files; those that are missing are left out, but one must be there. */
int kubeconfig_load(struct kubeconfig *k, const char *list, struct err *err);
void kubeconfig_fini(struct kubeconfig *k);
/* Finds the entry in the first file that has it. */
int kubeconfig_find(const struct kubeconfig *k, const char *what, const char *name,
                    struct kube_entry *e, struct err *err);
/* Fills the config from the context of this name (NULL: the current one). */
int kubeconfig_apply(const struct kubeconfig *k, const char *context,
                     struct kube_config *config, struct err *err);

/* Fill their part of the config from an entry's body. */
int kube_config_cluster(const struct kube_entry *e, struct kube_config *config,
                        struct err *err);
int kube_config_user(const struct kube_entry *e, struct kube_config *config,
                     struct err *err);
/* The plugin under "exec" of the user e, in the config that the cluster has filled. */
int kube_config_exec(const struct kube_entry *e, const struct kube_entry *cluster,
                     struct kube_config *config, struct err *err);

/* Splits the URL of a server into config->server and config->path_prefix. */
int kube_config_server(struct kube_config *config, struct span url, struct err *err);
/* Can it be a bearer token: one word of printable ASCII? */
bool kube_token_ok(struct span token);
/* Is it a name that a namespace can have? */
bool kube_namespace_ok(const char *name);
/* Says that the value under `key` of the entry is wrong, with file and line. Returns -1.
 */
int kube_entry_fail(const struct kube_entry *e, const char *key, const char *why,
                    struct err *err);
/* Puts the entry in front of a message that already has file and line. Returns -1. */
int kube_entry_wrap(const struct kube_entry *e, struct err *err);
/* true or false under the key; untouched when absent. */
int kube_entry_bool(const struct kube_entry *e, const char *key, bool *out,
                    struct err *err);
/* The path as seen from the entry's file, new. */
char *kube_entry_path(const struct kube_entry *e, const char *path);

/* Is the text PEM, as far as one can see without decoding it? */
bool kube_is_pem(struct span s);
/* A new copy, as a span that span_free releases. */
struct span kube_span_copy(struct span s);
void kube_span_free(struct span *s);
