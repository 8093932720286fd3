/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "extender/gpuapi.h"
#include "extender/seats.h"

/*
 * gpuapi.c       the watch caches, the thread that follows the ledger and fills them; lists and
 *                watches
 * gpuapi_json.c  the JSON of a node and its pods
 *
 * The thread finds the nodes whose generation has changed. It renders a few at a time
 * under the driver's lock, then publishes them under its own lock. The two locks are never
 * held together.
 */

/* -- the cache of watches -- */

/*
 * The objects of one kind, in the order of their last changes, for any number of readers.
 * Pure and not locked. Lists and watches are served from the same objects.
 *
 * Each object is in the cache once, with its latest state. Each change gives it the next
 * number. A reader is a number: it gets, in order, every object with a higher one, first
 * the initial state and then changes. An object that changes while a reader is behind
 * moves to the end. So a slow reader sees fewer states of an object, never an old one
 * after a newer one, and misses no state that lasts; it costs two integers.
 *
 * Deletions are remembered by name: up to `max_gone` of them, and at least half as many.
 * Only a reader that falls further behind has to start again; it gets a RESYNC line.
 */

struct watch_cache;
struct watch_cache_item; /* an object */

struct watch_cache_kind {
    const char *key; /* of the object in a line: "GpuNode" */
    /* The object of a DELETED line: JSON before and after its name. */
    const char *gone_head, *gone_tail;
};

/* New. `kind` is borrowed. */
struct watch_cache *watch_cache_new(const struct watch_cache_kind *kind, size_t max_gone);
void watch_cache_free(struct watch_cache *w);

/* Sets the state of an object: JSON in two parts, between which the cache puts the number
 * of the change (the resourceVersion). *item is NULL for a new object, and is set.
 * Returns whether the state changed. The name of an item never changes. Two objects may
 * share a name; after one is deleted, readers get the remaining one again. */
bool watch_cache_put(struct watch_cache *w, struct watch_cache_item **item,
                     struct span name, struct span head, struct span tail);
/* Whether watch_cache_put would change nothing. */
bool watch_cache_item_is(const struct watch_cache_item *item, struct span head,
                         struct span tail);
/* Deletes the object, frees the item and sets it to NULL. NULL is accepted. */
void watch_cache_drop(struct watch_cache *w, struct watch_cache_item **item);

uint64_t watch_cache_last(const struct watch_cache *w); /* number of the last change */
size_t watch_cache_count(const struct watch_cache *w);

/* The position of a watch. {0} starts with the initial state. */
struct watch_cache_reader {
    bool begun, synced; /* synced: the initial state is complete */
    uint64_t base, at;
};

/* Appends lines until `out` has `max` bytes or the reader is up to date. True: it is;
 * call again after the next change. The lines:
 *
 *     {"GpuNode":<object>,"Type":"SYNCED"}
 *     {"GpuNode":<object with its name>,"Type":"DELETED"}
 *     {"Type":"RESYNC"}   discard all objects: the initial state follows
 *     (empty line)        the initial state is complete, also after a RESYNC
 */
bool watch_cache_read(const struct watch_cache *w, struct watch_cache_reader *r,
                      size_t max, struct buf *out);

/* A snapshot of all objects, by name. Later changes do not affect it. Readers between two
 * changes share one. */
struct watch_cache_list;
struct watch_cache_list *watch_cache_list(struct watch_cache *w); /* a reference */
/* Releases a reference; from any thread; NULL is accepted. */
void watch_cache_list_free(struct watch_cache_list *l);
/* Appends the objects from *next on, separated by commas, until `out` has `max` bytes, and
 * sets *next behind them. True: the list is complete. */
bool watch_cache_list_read(const struct watch_cache_list *l, size_t *next, size_t max,
                           struct buf *out);

/* -- gpuapi.c and gpuapi_json.c -- */

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
