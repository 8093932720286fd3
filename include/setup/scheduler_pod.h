/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/str.h"
#include "setup/jsonpath.h"

/*
 * A Pod that runs kube-scheduler: a static pod's manifest as kubeadm writes it, or its
 * mirror pod in the API.
 */

struct scheduler_pod {
    const json_t *pod;       /* borrowed, as all of these */
    const json_t *container; /* the one that runs kube-scheduler */
    const char *name;        /* of the pod; "" if it has none */
    int minor;               /* 31 of "v1.31.0"; 0: the image's tag is not a version */
};

/* False: the Pod does not run kube-scheduler. */
bool scheduler_pod_read(const json_t *pod, struct scheduler_pod *out);
/* The value of `--NAME=VALUE` or `--NAME VALUE`, "" for a flag without one, NULL if
 * absent. The last occurrence counts, as for kube-scheduler. */
const char *scheduler_pod_option(const struct scheduler_pod *p, const char *name);
/* The file of --config, or else of --policy-config-file (*policy); "": neither. */
const char *scheduler_pod_config_option(const struct scheduler_pod *p, bool *policy);
/* Appends the path on the node of a path in the container, by the hostPath volumes.
 * False: the path is not on a hostPath volume. */
bool scheduler_pod_host_path(const struct scheduler_pod *p, const char *path,
                             struct buf *out);
/* Are these arguments, each NUL-terminated, the pod's command and args? */
bool scheduler_pod_is_process(const struct scheduler_pod *p, struct span arguments);
/* The minor version in "v1.31.0", or in an image with that tag; 0: none. */
int scheduler_pod_parse_minor(const char *version);
