/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "base/str.h"

/*
 * What a Pod says of the kube-scheduler that it runs: a static pod's file as kubeadm
 * writes it, or the mirror of one in the API.
 */

struct scheduler_pod {
    const json_t *pod;       /* borrowed, as all of these */
    const json_t *container; /* the one that runs kube-scheduler */
    const char *name;        /* of the pod; "" if it has none */
    int minor;               /* 31 of "v1.31.0"; 0: the image does not tell */
};

/* Does this Pod run kube-scheduler? */
bool scheduler_pod_read(const json_t *pod, struct scheduler_pod *out);
/* The value of `--NAME=VALUE` or `--NAME VALUE`, "" for a flag alone, NULL when it is not
 * there; the last one counts, as for kube-scheduler. */
const char *scheduler_pod_option(const struct scheduler_pod *p, const char *name);
/* Where on the node the file of the container is, by its hostPath volumes and mounts.
 * False: nothing of the node is mounted there. */
bool scheduler_pod_host_path(const struct scheduler_pod *p, const char *path, struct buf *out);
/* Is a process with these arguments (NUL behind each) what the pod runs? */
bool scheduler_pod_is_process(const struct scheduler_pod *p, struct span arguments);
/* The user that it runs as; 0: root, or the image says. */
int64_t scheduler_pod_user(const struct scheduler_pod *p);
/* The minor version in "v1.31.0" or in an image of that tag; 0: none. */
int scheduler_pod_parse_minor(const char *version);

/* Paths into JSON, for all of this folder. `path` is "spec.containers"; NULL if there is
 * no such member. Never fails for NULL. */
const json_t *jsonpath_at(const json_t *j, const char *path);
const char *jsonpath_str(const json_t *j, const char *path); /* "" if it is no string */
