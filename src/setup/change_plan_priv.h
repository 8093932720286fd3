/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "setup/change_plan.h"

#define CHANGE_PLAN_CONFIG_AT "/etc/kubernetes/kube-scheduler-config.yaml"

/* A plan in progress. */
struct change_plan_work {
    const struct change_plan_input *in;
    struct change_plan *out;
    const struct facts_file *manifest;
    struct scheduler_pod pod;
    const char *container; /* path of kube-scheduler's container in the manifest */
    bool policy;
    const char *inside; /* path of the configuration file in the container */
    struct buf text;    /* the file of policy/, adapted to this node */
    const char *name;   /* of that file, for messages */
    bool tls;           /* the new configuration names our files of the certificate */
    bool add_option, add_mount; /* k3s, RKE2: for change_plan_dropin */
};

/* Keeps the new content of a file; takes the bytes. */
void change_plan_keep(struct change_plan *plan, enum change_plan_kind kind,
                      const char *path, struct buf *bytes);

/* The manifest: adds the option that names the configuration file; adds a mount of that
 * file, or of the folder of certificates. On failure the changes are described for a
 * person. */
int change_plan_manifest_option(struct change_plan_work *w, struct err *err);
int change_plan_manifest_mount_config(struct change_plan_work *w, struct err *err);
int change_plan_manifest_mount_tls(struct change_plan_work *w, struct err *err);

/* -1: this node's files are not to be changed, or not safely. */
int change_plan_platform(struct change_plan_work *w, struct err *err);
/* -1: the service of k3s or RKE2 has options that would win over the plan. */
int change_plan_service(struct change_plan_work *w, struct err *err);
/* k3s, RKE2: the file in config.yaml.d, if it must change. */
int change_plan_dropin(struct change_plan_work *w, struct err *err);

/* Our entry in the user's configuration file: adds it, or sets its address and TLS. */
int change_plan_entry_add(struct change_plan_work *w, const char *path, struct err *err);
int change_plan_entry_set(struct change_plan_work *w, const char *path,
                          const json_t *ours, struct err *err);

/* Adds the files of the certificate to the plan, and their mount if `mount`. */
int change_plan_tls(struct change_plan_work *w, bool mount, struct err *err);
/* Does the entry name our files of the certificate? */
bool change_plan_tls_is_ours(const json_t *entry);
/* Appends tlsConfig with our files, as YAML. */
void change_plan_tls_describe(const struct facts *f, struct buf *out, int indent);
