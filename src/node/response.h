/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/deviceplugin.h"
#include "node/allocation.h"
#include "node/cards.h"
#include "node/driver.h"
#include "node/limit_dir.h"
#include "node/pod_allocation.h"

/*
 * The answer to Allocate, which the kubelet passes to the container runtime: environment
 * variables, mounts, CDI devices. Built in an arena; strings live there or are static.
 *
 * Several cards are named in the order of their best ring (domain/links.h). All other lists keep
 * the order of the allocation, which is that of the promise.
 */

/* How a promise is enforced in a container: --isolation, and the annotation
 * gpushare/isolation. */
enum isolation {
    ISOLATION_NONE,
    ISOLATION_MPS,    /* by variables that CUDA passes on to NVIDIA's MPS daemon */
    ISOLATION_LIMIT,  /* by libgpushare-limit.so, and by the driver where it can */
    ISOLATION_DRIVER, /* by the driver, or no container starts */
    ISOLATION_AUTO,   /* by the driver where it can */
};

/* How the library is loaded. A pod can name one way where its image needs the other; the
 * node's own way is both, so one alone is less. */
enum preload {
    PRELOAD_FILE = 1, /* /etc/ld.so.preload, which hides the file of the image; glibc */
    PRELOAD_ENV = 2,  /* LD_PRELOAD, which replaces the variable of the image */
    PRELOAD_BOTH = PRELOAD_FILE | PRELOAD_ENV,
};

struct response_settings {
    enum driver_strategy strategy;  /* DRIVER_AUTO: as DRIVER_ENVVAR */
    const struct driver_view *view; /* borrowed; NULL: no sample of the cards yet */
    bool by_index;                  /* name cards by index instead of by UUID */
    bool cgpu_disable;              /* set CGPU_DISABLE */
    enum isolation isolation;       /* of pods that do not ask for another one */
    bool less_isolation;            /* pods can ask for less */
    const char *mps_dir;            /* the MPS daemon's directory on the host */
    const char *limit_dir; /* of node/limit_dir.h; NULL: the library is not there */
    bool limit_env; /* without CDI names, give the driver's limit as variables alone */
    int64_t unit_mib;
};

/* Why a pod is not limited whose UID cannot name the folder of its limits. */
#define RESPONSE_STATIC_POD "a static pod has no limit: it starts before it has a UID"

struct response {
    struct dp_allocation dp; /* texts end with NUL */
    /* The limits of the pod, to be written before the answer; NULL: none. The last
     * n_limit_envs and n_limit_mounts of dp need them. */
    struct limit_plan *limit;
    enum preload preload;
    size_t n_limit_envs, n_limit_mounts;
    /* As in struct allocation. A device is to be defined (node/limit_cdi.h) before the answer. */
    int64_t driver_limit_mib;
    bool limit_device, limit_needed;
    const char
        *not_isolated; /* why the pod does not get what it asks for; NULL: it does */
};

/* The answer for the container `c` of the pod with this allocation. A container gets all of
 * its cards or does not start: NULL with ERR_NOT_FOUND if a card of the allocation is not on
 * this node, with ERR_UNAVAILABLE if it needs a CDI name and no specification has one, with
 * ERR_FORBIDDEN if it must have the driver's limit and cannot.
 *
 * With DRIVER_ENVVAR and DRIVER_VOLUME_MOUNTS the kubelet gets the device nodes too, if
 * the host's root is known: the runtime's hook adds them behind the back of the kubelet
 * and of systemd, which take them away when they rewrite the container's cgroup
 * (nvidia-container-toolkit issue 48). */
struct response *response_of(const struct response_settings *settings,
                             const struct cards *cards, const struct pod_allocation *pod,
                             const struct pod_allocation_container *c,
                             const struct allocation *al, struct arena *a,
                             struct err *err);
/* What containers of this node can be held to their promise by: bits of domain/scv.h. */
uint8_t response_isolation(const struct response_settings *settings);
/* Why they can have no limit of the driver; NULL: they can. Borrowed from the settings, or
 * static. */
const char *response_no_driver(const struct response_settings *settings);
/* The driver's limit that this container is to have by its promise as it is now, where the driver
 * can; 0: none; -1: the promise says nothing of its cards. `al`: its allocation. */
int64_t response_driver_limit(const struct response_settings *settings,
                              const struct cards *cards, const struct pod_allocation *pod,
                              const struct pod_allocation_container *c,
                              const struct allocation *al);
/* Only the limits of the pod, as its annotations have them now. */
struct response *response_changed_limit(const struct response_settings *settings,
                                        const struct cards *cards,
                                        const struct pod_allocation *pod,
                                        struct arena *a);
/* Appends the encoded answer to ListAndWatch: the devices of a resource. Ids of another plugin that
 * containers have are healthy: else the kubelet rejects their pods when it restarts. */
int response_list(const struct cards *cards, const struct allocation_set *allocations,
                  enum ids_resource r, struct buf *out, struct err *err);
