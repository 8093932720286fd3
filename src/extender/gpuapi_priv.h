/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "extender/gpuapi.h"
#include "extender/seats.h"
#include "extender/watch_cache.h"

/*
 * gpuapi.c       the thread that follows the ledger and fills the watch caches; lists, watches
 * gpuapi_json.c  the JSON of a node and its pods
 *
 * The thread finds the nodes whose generation has changed. It renders a few at a time
 * under the driver's lock, then publishes them under its own lock. The two locks are never
 * held together.
 */

/* A rendered GpuPod; in an arena. */
struct gpuapi_pod {
    struct span ns, name, uid;
    struct span shown_name; /* of the GpuPod */
    struct span head, tail; /* JSON before and after the resourceVersion */
};

/* A rendered node, in an arena. The rest of its JSON has times that depend on earlier
 * scans: gpuapi_node_tail. */
struct gpuapi_node {
    struct span name;
    uint32_t slot;
    uint64_t generation;
    bool gone; /* deleted, or without cards; the members below are not set */
    bool healthy;
    bool has_sample;
    int64_t sample_s;
    struct span head, spec, message; /* spec: up to the value of report_time */
    struct gpuapi_pod *pods;
    size_t n_pods;
};

struct gpuapi_times {
    bool has_report, was_healthy;
    int64_t report_s, health_s, transition_s;
};

/* gpuapi_json.c */
extern const struct watch_cache_kind gpuapi_kinds[GPUAPI_KINDS];
/* Renders a node, or sets `gone`. */
void gpuapi_render_node(const struct ledger_node *node, int64_t grace_s, struct arena *a,
                        struct gpuapi_node *out);
/* Appends the JSON after the resourceVersion of a node. */
void gpuapi_node_tail(const struct gpuapi_node *n, const struct gpuapi_times *t,
                      struct buf *out);

/* An open list or watch. */
struct watcher {
    struct gpuapi *v;
    enum gpuapi_kind kind;
    struct watch_cache_reader reader;
    struct watch_cache_list *list; /* of a list, once the cache is filled */
    size_t next_item;              /* of the list */
    struct httpd_open_stream *waker;
    int64_t sent_ms; /* when the last bytes were sent */
    int64_t end_ms;  /* of a watch */
    bool main;       /* on the main port */
    struct list waiting; /* in `waiters` of its kind, or alone; protected by gpuapi.lock */
};

/* A reader comes or goes. The first one makes the thread fill the caches. */
void gpuapi_reader_begin(struct gpuapi *v);
void gpuapi_reader_end(struct gpuapi *v);

/* Answers with a list, or with 503 if too many lists are open. */
void gpuapi_list(struct gpuapi *v, enum gpuapi_kind kind, struct httpd_reply *reply);

struct shown_node;

struct gpuapi {
    struct core_driver *driver;
    struct gpuapi_config conf;
    atomic_bool wanted; /* there is a reader, or was recently; changed under lock */
    atomic_bool ready;  /* the caches are filled; changed under lock */
    struct seats watches, lists;

    pthread_mutex_t lock; /* protects the members up to waiters */
    unsigned readers;
    int64_t read_ms; /* when a reader last came or went */
    struct watch_cache *caches[GPUAPI_KINDS];
    struct list waiters[GPUAPI_KINDS]; /* watchers that wait, for the longest first */

    pthread_mutex_t wait_lock; /* protects dirty, stop */
    pthread_cond_t cond;
    bool dirty, stop;
    pthread_t thread;

    /* Used by the thread only. */
    struct shown_node *shown; /* by slot of the ledger */
    size_t n_shown, shown_cap;
    uint64_t generation; /* of the ledger when the last round began */
    struct arena arena;
};
