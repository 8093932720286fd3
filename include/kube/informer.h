/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/reflector.h"
#include "kube/list_watch.h"

/*
 * Follows the objects of one kind in a thread of its own, as client-go's informer, without a
 * store: a reflector with its requests.
 */

/* Strings, `client` and `ctx` are borrowed. The functions run in the thread, without a lock. */
struct informer_settings {
    struct kube_client *client;
    const char
        *path; /* ends in a field selector without value: "/api/v1/pods?fieldSelector=
                         spec.nodeName%3D" */
    const char *value;      /* of the selector */
    const char *name;       /* for the log: "pods" */
    const char *not_served; /* what 404 means, for the log; or "" */
    const char *denied;     /* the same of 403; or NULL */
    struct reflector_kind kind;
    uint64_t seed;
    /* Reads exactly one object from j. If jread_check(j, NULL) fails afterwards, it is truncated
     * and will be passed again, or invalid. *version: its resourceVersion. -1 with the reason:
     * the list or watch fails, because it may be a change. */
    int (*object)(void *ctx, struct jread *j, struct arena *a, bool deleted,
                  struct span *version, struct err *err);
    /* A list begins; or it is complete, and what it lacks does not exist. A list that fails is
     * followed by another one that begins. */
    void (*listed)(void *ctx, bool complete);
    void (*recovered)(void *ctx); /* list and watch work again. Or NULL */
    void *ctx;
};

struct informer_status {
    struct step_failure failure; /* of list and watch, until both work */
    int64_t unknown_since_ms;    /* reflector_unknown_since */
    int64_t alive_ms;            /* clock_mono_ms of the thread's last iteration */
};

struct informer;

/* New. Copies the settings. */
struct informer *informer_new(const struct informer_settings *settings);
/* `thread`: a static string of at most 15 bytes. */
void informer_start(struct informer *i, const char *thread);
/* Lists instead of waiting for the watch. From any thread. */
void informer_relist(struct informer *i);
struct informer_status informer_status(struct informer *i); /* from any thread */
void informer_stop(struct informer *i);                     /* NULL is accepted */
void informer_free(struct informer *i);                     /* after it has stopped */
/* What the loop calls, with the informer as `ctx` and one slot. */
extern const struct list_watch_fns informer_fns;
