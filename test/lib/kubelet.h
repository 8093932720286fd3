/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>

#include "lib/lib.h"
#include "wire/grpcc.h"
#include "wire/grpcd.h"

/*
 * A fake kubelet: the device plugin and podresources APIs, with its sockets in lib_dir,
 * "plugins/kubelet.sock" and "podresources.sock". The test drives it step by step; a
 * thread answers podresources at any time.
 */

enum { KUBELET_PODS = 256, KUBELET_CONTAINERS = 4, KUBELET_RESOURCES = 4 };
/* NVIDIA: nvidia.com/gpu; no plugin serves it, and the test sets its ids. */
enum { MEM, COUNT, NVIDIA, CORE };

struct kubelet_container {
    char name[32];
    json_t *ids[KUBELET_RESOURCES]; /* arrays of strings, or NULL */
};
struct kubelet_pod {
    char name[64];
    struct kubelet_container containers[KUBELET_CONTAINERS];
    int n;
};

/* A resource with a registered plugin. */
struct kubelet_endpoint {
    char *socket; /* path, or NULL */
    struct grpc_watch *stream;
    json_t *devices; /* the last list: {id: healthy} */
};

struct kubelet {
    struct grpcd *registration, *podresources;
    int refuse;           /* number of further registrations to refuse */
    pthread_mutex_t lock; /* protects the members below */
    struct kubelet_pod pods[KUBELET_PODS];
    int n_pods;
    json_t *allocatable;         /* ids of aliyun.com/gpu-mem, or NULL */
    struct grpcd_call *asked[8]; /* registrations pending until kubelet_serve */
    char endpoints[8][80], resources[8][40];
    int n_asked;
    /* used by the test's thread only */
    struct kubelet_endpoint plugins[KUBELET_RESOURCES];
    int registrations, lists, gets;
};

/* Starts after removing every socket in the directory, like a kubelet. */
void kubelet_start(struct kubelet *k);
/* Stops it. The pods and their ids persist, as in a kubelet's checkpoint. */
void kubelet_stop(struct kubelet *k);
void kubelet_fini(struct kubelet *k); /* discards the pods, too */
/* Serves until all resources of the plugin (or only `resource`) have registered and sent a list. */
void kubelet_wait_registered(struct kubelet *k, int resource);
bool kubelet_serve(struct kubelet *k); /* handles pending input; true: there was some */
/* Has the plugin ended the stream of that resource? */
bool kubelet_lost(struct kubelet *k, int resource);
size_t kubelet_devices(struct kubelet *k, int resource, bool healthy);

/* Adds `n` units of aliyun.com/gpu-mem on a card to the allocatable devices. */
void kubelet_add_units(struct kubelet *k, const char *uuid, int n);
/* The ids from..to-1 of aliyun.com/gpu-mem on a card; new. */
json_t *kubelet_units(const char *uuid, int from, int to);

/* Adds a pod to those that podresources returns. `containers` ends with NULL. */
struct kubelet_pod *kubelet_add(struct kubelet *k, const char *name,
                                const char *const *containers);
void kubelet_remove(struct kubelet *k, const char *name);
/* Sets the ids of a container. */
void kubelet_give(struct kubelet *k, const char *pod, const char *container, int resource,
                  json_t *ids);

/* The reply of the plugin. */
struct kubelet_answer {
    enum grpc_status status;
    char words[512];
    json_t *env; /* object */
    /* "HOST:CONTAINER:PERMISSIONS " of each device node; then CDI names, and annotations. */
    char *devices;
    char *mounts; /* "HOST:CONTAINER:ro " or "...:rw " of each */
    json_t *ids;  /* array */
};
void kubelet_answer_fini(struct kubelet_answer *a);
#define cleanup_answer __attribute__((cleanup(kubelet_answer_fini)))
/* Calls GetPreferredAllocation with all free ids, then Allocate with the preferred ids. On
 * success the container gets these ids. */
void kubelet_admit(struct kubelet *k, const char *pod, const char *container,
                   int resource, int amount, struct kubelet_answer *a);
void kubelet_prefer(struct kubelet *k, int resource, int amount,
                    struct kubelet_answer *a);
void kubelet_allocate(struct kubelet *k, int resource, json_t *ids,
                      struct kubelet_answer *a);
/* Picks n free ids: of the cards of `like` (`same`), or of other cards. New. */
json_t *kubelet_pick(struct kubelet *k, int resource, int n, json_t *like, bool same);
