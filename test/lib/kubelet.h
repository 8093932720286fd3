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

/* NVIDIA: nvidia.com/gpu; where no plugin serves it, the test sets its ids. */
enum { MEM, COUNT, NVIDIA, CORE, SHARE, KUBELET_RESOURCES };

/* A resource with a registered plugin. */
struct kubelet_endpoint {
    char *socket; /* path, or NULL */
    struct grpc_watch *stream;
    json_t *devices; /* the last list: {id: healthy} */
};

struct kubelet {
    struct grpcd *registration, *podresources;
    pthread_mutex_t lock; /* protects the members below */
    json_t *pods;         /* {pod: {container: {resource: [ids]}}} */
    json_t *allocatable;  /* healthy ids, {resource: [ids]}; NULL: not implemented */
    struct kubelet_asked {
        struct grpcd_call *call;
        char endpoint[80], resource[40];
    } asked[8]; /* registrations pending until kubelet_serve */
    size_t n_asked, lists;
    /* used by the test's thread only */
    struct kubelet_endpoint plugins[KUBELET_RESOURCES];
    int registrations;
};

/* Starts after removing every socket in the directory, like a kubelet. */
void kubelet_start(struct kubelet *k);
/* Stops it. The pods and their ids persist, as in a kubelet's checkpoint. */
void kubelet_stop(struct kubelet *k);
void kubelet_fini(struct kubelet *k); /* discards the pods, too */
/* Serves until all resources of the plugin but NVIDIA, or only `resource`, have registered and sent a
 * list. */
void kubelet_wait_registered(struct kubelet *k, int resource);
bool kubelet_serve(struct kubelet *k); /* handles pending input; true: there was some */
bool kubelet_is_asked(struct kubelet *k); /* Is a Register unanswered? */
size_t kubelet_devices(struct kubelet *k, int resource, bool healthy);

/* What podresources says is allocatable, from now on. Takes the object. */
void kubelet_set_allocatable(struct kubelet *k, json_t *ids);

/* Adds a pod to those that podresources returns. `containers` ends with NULL. */
void kubelet_add(struct kubelet *k, const char *name, const char *const *containers);
void kubelet_remove(struct kubelet *k, const char *name);
/* Sets the ids of a container, if it is one of those. */
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
/* Picks n free ids: of the cards of `like` (`same`), or of other cards. Kept. */
json_t *kubelet_pick(struct kubelet *k, int resource, int n, json_t *like, bool same);
