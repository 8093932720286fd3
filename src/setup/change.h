/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "setup/edit.h"
#include "setup/facts.h"

/*
 * The changes to the files of a control plane node of kubeadm after which its
 * kube-scheduler calls the extender; pure. The input is the node's files, the file of
 * policy/ and the Secret with kube-scheduler's client certificate. (scripts/install writes
 * the files, and keeps the old ones for --undo.)
 */

/* In the order in which the files are to be written: each names those before it. */
enum change_kind {
    CHANGE_CONFIG = SECRET_KEYS, /* those before are the files of the certificate */
    CHANGE_KUBEADM,              /* kubeadm's own configuration, in the API server */
    CHANGE_MANIFEST,
    CHANGE_FILES
};

struct change {
    struct {
        const char *path; /* borrowed from the facts; NULL: no change */
        struct buf bytes; /* the new content */
    } files[CHANGE_FILES];
    /* Why ClusterConfiguration cannot have the change; ERR_NOT_FOUND: no such ConfigMap. */
    struct err kubeadm_why;
};

/* All changes. `policy_file`: policy/kube-scheduler-config.yaml. Without a Secret
 * (facts.secret_why), the node must have its files. */
int change_make(const struct facts *f, struct span policy_file, struct change *out,
                struct err *err);
/* The ClusterConfiguration with what the option and the volumes of the static pod need, so that
 * `kubeadm upgrade` keeps them; `tls`: also the folder of the certificate. */
int change_kubeadm(const struct facts *f, const char *config, bool tls, struct edit *e,
                   struct err *err);
/* Removes from a file, which others may have written since, the list items that `with` (what
 * change_make wrote) has and `old` lacks. ERR_CONFLICT: it has only some of them, or an item was
 * changed, there or by change_make. */
int change_revert(struct span old, struct span with, struct edit *e, struct err *err);
/* Only the files of the certificate, where the manifest's kube-scheduler uses them. */
int change_renew(const struct facts *f, struct change *out, struct err *err);
void change_fini(struct change *c);
