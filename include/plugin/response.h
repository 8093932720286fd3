/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "plugin/allocation.h"
#include "plugin/cards.h"
#include "plugin/pod_allocation.h"

/*
 * The answer to Allocate, which the kubelet passes to the container runtime: environment
 * variables, mounts, CDI devices. Built in an arena; strings live there or are static.
 */

/* How the cards are passed to the runtime; the names are those of NVIDIA's plugin. */
enum response_strategy {
    RESPONSE_ENVVAR,        /* the variable NVIDIA_VISIBLE_DEVICES */
    RESPONSE_VOLUME_MOUNTS, /* a mount of /dev/null for each card */
    RESPONSE_CDI,           /* Container Device Interface names */
};

struct response_settings {
    enum response_strategy strategy;
    bool by_index;        /* name cards by index instead of by UUID */
    const char *cdi_kind; /* "nvidia.com/gpu" */
    bool cgpu_disable;    /* set CGPU_DISABLE */
    const char *mps_dir;  /* the MPS daemon's directory on the host; NULL: no MPS */
    int64_t unit_mib;
};

struct response_pair {
    const char *key, *value; /* of a mount: path in the container, path on the host */
    bool read_only;
};

struct response {
    struct response_pair *envs, *mounts;
    size_t n_envs, n_mounts;
    const char **cdi;
    size_t n_cdi;
};

/* The answer for a container with this allocation. NULL with ERR_NOT_FOUND: a card of the
 * allocation is not on this node. A container gets all of its cards or does not start. */
struct response *response_of(const struct response_settings *settings,
                             const struct cards *cards, const struct pod_allocation *pod,
                             const struct allocation *al, struct arena *a,
                             struct err *err);
/* As the Go plugin answers when it has no card: a success that names none. */
struct response *response_without(const struct response_settings *settings, int64_t units,
                                  struct arena *a);
