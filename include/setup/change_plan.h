/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "setup/facts.h"

/*
 * The changes to a control plane node's files after which its kube-scheduler calls the
 * extender; pure. The input is the node's files, the files of policy/ and the Secret with
 * kube-scheduler's client certificate.
 */

/* In the order in which the files are to be written: each names those before it. */
enum change_plan_kind {
    CHANGE_PLAN_CA, /* this and the next two as enum client_secret_file */
    CHANGE_PLAN_CERT,
    CHANGE_PLAN_KEY,
    CHANGE_PLAN_CONFIG,
    CHANGE_PLAN_MANIFEST,
    CHANGE_PLAN_FILES
};

struct change_plan_file {
    char *path;       /* NULL: no change */
    struct buf bytes; /* the new content */
};

struct change_plan {
    struct change_plan_file changes[CHANGE_PLAN_FILES];
    /* After an error: instructions for the changes that cannot be made safely; may be
     * empty. */
    struct buf by_hand;
};

struct change_plan_input {
    const struct facts *facts;
    const char *root;    /* prefix of paths on the node */
    const char *address; /* HOST:PORT; NULL: the existing address, or that of policy/ */
    bool insecure;       /* plain HTTP, for an extender with --insecure */
    struct span config;  /* policy/kube-scheduler-config.yaml */
    struct span policy;  /* policy/scheduler-policy-config.json */
    /* Reads a file of the node that the manifest does not name; `path` includes the root.
     * ERR_NOT_FOUND: no such file. */
    int (*read)(void *ctx, const char *path, struct buf *out, struct err *err);
    void *ctx;
};

/* All changes. Without a Secret (facts.secret_why), the node must have its files. */
int change_plan_make(const struct change_plan_input *in, struct change_plan *out,
                     struct err *err);
/* Only the files of the certificate, where the manifest's kube-scheduler uses them. */
int change_plan_renew(const struct change_plan_input *in, struct change_plan *out,
                      struct err *err);
void change_plan_fini(struct change_plan *p);
