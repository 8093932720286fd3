/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>

#include "lib/lib.h"
#include "wire/grpcc.h"
#include "wire/grpcd.h"

/*
 * A kubelet, as far as device plugins and podresources go: its sockets are in lib_dir,
 * "plugins/kubelet.sock" and "podresources.sock". It is driven by the test, one step
 * after the other; a thread answers podresources at any time.
 */

enum { KUBELET_PODS = 256, KUBELET_CONTAINERS = 4, KUBELET_RESOURCES = 3 };
/* NVIDIA: nvidia.com/gpu, of a plugin that is not played; its ids are the test's to set.
 */
enum { MEM, COUNT, NVIDIA };

struct kubelet_container {
    char name[32];
    json_t *ids[KUBELET_RESOURCES]; /* arrays of strings, or NULL */
};
struct kubelet_pod {
    char name[64];
    struct kubelet_container containers[KUBELET_CONTAINERS];
    int n;
};

/* A resource whose plugin is registered. */
struct kubelet_endpoint {
    char *socket; /* path, or NULL */
    struct grpcc_stream *stream;
    json_t *devices; /* the last list: {id: is it healthy?} */
};

struct kubelet {
    struct grpcd *registration, *podresources;
    bool no_get;          /* as before 1.34 */
    int refuse;           /* so many registrations more are refused */
    pthread_mutex_t lock; /* protects what follows */
    struct kubelet_pod pods[KUBELET_PODS];
    int n_pods;
    struct grpcd_call *asked[8]; /* registrations that wait for kubelet_serve */
    char endpoints[8][80], resources[8][40];
    int n_asked;
    /* of the test's thread */
    struct kubelet_endpoint plugins[KUBELET_RESOURCES];
    int registrations, lists, gets;
};

/* Starts, after removing every socket in the directory, as a kubelet does. */
void kubelet_start(struct kubelet *k);
/* Without a trace but what it has on disk: the pods and their ids. */
void kubelet_stop(struct kubelet *k);
void kubelet_fini(struct kubelet *k); /* the pods, too */
/* Takes registrations and lists, until both are up to date (or only `resource`). */
void kubelet_wait_registered(struct kubelet *k, int resource);
bool kubelet_serve(struct kubelet *k); /* what has come; true: something had */
/* Was the stream of that resource ended by the plugin? */
bool kubelet_lost(struct kubelet *k, int resource);
size_t kubelet_devices(struct kubelet *k, int resource, bool healthy);
int kubelet_listed(struct kubelet *k); /* how often List was asked for */

/* The set of pods that podresources shows. Names end with NULL. */
struct kubelet_pod *kubelet_add(struct kubelet *k, const char *name,
                                const char *const *containers);
void kubelet_remove(struct kubelet *k, const char *name);
bool kubelet_knows(struct kubelet *k, const char *name);
/* The container has these ids now. */
void kubelet_give(struct kubelet *k, const char *pod, const char *container, int resource,
                  json_t *ids);

/* What the plugin answered. */
struct kubelet_answer {
    enum grpc_status status;
    char words[512];
    json_t *env; /* object */
    json_t *ids; /* array */
};
void kubelet_answer_fini(struct kubelet_answer *a);
#define cleanup_answer __attribute__((cleanup(kubelet_answer_fini)))
/* GetPreferredAllocation with all free ids; then Allocate with those of the answer, which
 * are the container's when that succeeds. */
void kubelet_admit(struct kubelet *k, const char *pod, const char *container,
                   int resource, int amount, struct kubelet_answer *a);
void kubelet_prefer(struct kubelet *k, int resource, int amount,
                    struct kubelet_answer *a);
void kubelet_allocate(struct kubelet *k, int resource, json_t *ids,
                      struct kubelet_answer *a);
/* So many free ids, of cards that `like` has an id of, or of others. New. */
json_t *kubelet_pick(struct kubelet *k, int resource, int n, json_t *like, bool same);
