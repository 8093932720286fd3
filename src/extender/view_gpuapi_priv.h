/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "extender/view_gpuapi.h"
#include "extender/watch_cache.h"

/*
 *   observe.c        the thread that follows the ledger, and what it has seen of each
 * node observe_text.c   what of a node and its pods is shown: JSON observe_http.c lists,
 * watches, discovery
 *
 * The thread looks for nodes whose generation has changed, copies out under the store's
 * lock what is to be shown of them, a few nodes at a time, and publishes it under its
 * own. The two locks are never held together.
 */

enum view_gpuapi_kind { VIEW_GPUAPI_NODES, VIEW_GPUAPI_PODS, VIEW_GPUAPI_KINDS };

/* What is to be shown of a pod; in an arena. */
struct view_gpuapi_pod {
    struct span ns, name, uid;
    struct span shown_name; /* of the GpuPod */
    struct span head, tail; /* around its resourceVersion */
};

/* The same of a node. The rest of its JSON depends on when we saw what. */
struct view_gpuapi_node {
    struct span name;
    uint32_t slot;
    uint64_t generation;
    bool gone; /* nothing is there, or nothing to show; what follows is not set */
    bool healthy;
    bool has_sample;
    int64_t sample_s;
    struct span head, spec, message; /* spec: up to the value of report_time */
    struct view_gpuapi_pod *pods;
    size_t n_pods;
};

struct view_gpuapi_times {
    bool has_report, was_healthy;
    int64_t report_s, health_s, transition_s;
};

/* observe_text.c */
extern const struct watch_cache_kind view_gpuapi_kinds[VIEW_GPUAPI_KINDS];
/* Fills what is shown; sets `gone` where nothing is. */
void view_gpuapi_render_node(const struct ledger_node *node, int64_t grace_s,
                             struct arena *a, struct view_gpuapi_node *out);
/* What follows the resourceVersion of a node. */
void view_gpuapi_node_tail(const struct view_gpuapi_node *n,
                           const struct view_gpuapi_times *t, struct buf *out);

/* One list or watch that is open. */
struct watcher {
    struct view_gpuapi *o;
    enum view_gpuapi_kind kind;
    struct watch_cache_reader reader;
    struct watch_cache_list *list; /* of a list, once there is something to show */
    struct httpd_waker *waker;
    int64_t said_ms; /* when something was sent last */
    bool counted;    /* among o->main_watches */
    bool asleep;     /* in the list of its kind; observe.lock */
    struct watcher *next, *prev;
};

/* Those of a kind that have all there was, the longest asleep first. */
struct sleepers {
    struct watcher *first, *last;
    size_t n;
};

/* Somebody reads from now on, or does no more. */
void view_gpuapi_reader_begin(struct view_gpuapi *o);
void view_gpuapi_reader_end(struct view_gpuapi *o);

/* observe_http.c */
/* Answers with a list, or with 503 where too many are under way. */
void view_gpuapi_list(struct view_gpuapi *o, enum view_gpuapi_kind kind,
                      struct httpd_reply *reply);
/* The same of a watch: `main` is as in observe.h. */
void view_gpuapi_watch(struct view_gpuapi *o, enum view_gpuapi_kind kind, bool main,
                       struct httpd_reply *reply);
void view_gpuapi_unlist(struct watcher *w); /* observe.lock is held */

struct shown_node;

struct view_gpuapi {
    struct store *store;
    struct view_gpuapi_config conf;
    atomic_bool wanted; /* somebody reads, or did not long ago; changed under lock */
    atomic_bool ready;  /* all there is has been published once; changed under lock */
    atomic_uint watches, main_watches, lists;

    pthread_mutex_t lock; /* protects what follows */
    unsigned readers;
    int64_t read_ms; /* when somebody began or ended to read last */
    struct watch_cache *logs[VIEW_GPUAPI_KINDS];
    struct sleepers asleep[VIEW_GPUAPI_KINDS];

    pthread_mutex_t wait_lock; /* protects dirty, stop */
    pthread_cond_t cond;       /* CLOCK_MONOTONIC */
    bool dirty, stop;
    pthread_t thread;

    /* The thread's own. */
    struct shown_node *shown; /* by slot */
    size_t n_shown, shown_cap;
    uint64_t generation; /* of the ledger when the last round began */
    struct arena arena;
};
