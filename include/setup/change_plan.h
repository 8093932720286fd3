/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "setup/facts.h"

/*
 * What has to be changed on a node so that its kube-scheduler asks the extender: pure,
 * from the files as they are and the files of policy/.
 */

enum change_plan_kind { CHANGE_PLAN_CONFIG, CHANGE_PLAN_MANIFEST, CHANGE_PLAN_FILES };

struct change_plan_file {
    char *path;       /* NULL: this file stays as it is */
    struct buf bytes; /* as it is to be */
};

struct change_plan {
    struct change_plan_file changes[CHANGE_PLAN_FILES];
    /* What cannot be put in safely, as text for whoever does it by hand; see the error.
     */
    struct buf by_hand;
};

struct change_plan_input {
    const struct facts *facts;
    const char *root;    /* in front of paths on the node */
    const char *address; /* HOST:PORT; NULL: what is there, or that of policy/ */
    struct span config;  /* policy/kube-scheduler-config.yaml */
    struct span policy;  /* policy/scheduler-policy-config.json */
    /* The file of that path on the node (with the root in front), where nothing names one
     * yet: ERR_NOT_FOUND if it is not there, which is as well. */
    int (*read)(void *ctx, const char *path, struct buf *out, struct err *err);
    void *ctx;
};

int change_plan_make(const struct change_plan_input *in, struct change_plan *out, struct err *err);
void change_plan_fini(struct change_plan *p);
