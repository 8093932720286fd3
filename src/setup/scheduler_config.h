/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "base/str.h"

/*
 * How kube-scheduler is configured: the Pod that runs it (kubeadm's static pod, or its
 * mirror pod in the API), and the extenders in its KubeSchedulerConfiguration.
 */

/* -- the Pod -- */

struct scheduler_config_pod {
    const json_t *pod;       /* borrowed, as all of these */
    const json_t *container; /* the one that runs kube-scheduler */
    const char *name;        /* of the pod; "" if it has none */
    int minor;               /* 31 of "v1.31.0"; 0: the image's tag is not a version */
};

/* False: the Pod does not run kube-scheduler. */
bool scheduler_config_read_pod(const json_t *pod, struct scheduler_config_pod *out);
/* The value of `--NAME=VALUE` or `--NAME VALUE`, "" for a flag without one, NULL if
 * absent. The last occurrence counts, as for kube-scheduler. */
const char *scheduler_config_option(const struct scheduler_config_pod *p,
                                    const char *name);
/* Appends the path on the node of a path in the container, by the hostPath volumes.
 * False: the path is not on a hostPath volume. */
bool scheduler_config_host_path(const struct scheduler_config_pod *p, const char *path,
                                struct buf *out);
/* Are these arguments, each NUL-terminated, the pod's command and args? */
bool scheduler_config_is_process(const struct scheduler_config_pod *p,
                                 struct span arguments);
/* The minor version in "v1.31.0", or in an image with that tag; 0: none. */
int scheduler_config_minor(const char *version);

/* -- the extenders; `json` is the whole configuration file -- */

/* Our entry, recognized by its urlPrefix or its managedResources; NULL: none. */
const json_t *scheduler_config_extender(const json_t *json);
/* The number of extenders with a bindVerb. */
size_t scheduler_config_binders(const json_t *json);
/* The newest apiVersion of KubeSchedulerConfiguration that kube-scheduler 1.MINOR reads,
 * and whether it reads `api`. */
const char *scheduler_config_newest_api(int minor);
bool scheduler_config_reads_api(const char *api, int minor);

/* The urlPrefix, parsed. */
struct scheduler_config_url {
    bool tls;
    char host[256]; /* without the brackets of an IPv6 address */
    unsigned port;
    char path[256]; /* "/gpushare-scheduler", without a trailing '/'; may be "" */
};

int scheduler_config_read_url(const char *text, struct scheduler_config_url *out,
                              struct err *err);
/* Appends "http://127.0.0.1:32766". */
void scheduler_config_url_base(const struct scheduler_config_url *u, struct buf *out);
/* -1: `address` is neither HOST:PORT nor [HOST]:PORT. */
int scheduler_config_check_address(const char *address, struct err *err);
