/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * A Kubernetes API server in memory, pure: (request, now) -> reply, and events for
 * watches. No socket, thread, lock or clock; the same requests give the same answers, so
 * that the deterministic simulator can run it, and kube-sim puts HTTP in front of it.
 *
 * It is the independent opinion that our programs are tested against: it shares no code
 * with domain, core or kube, and parses with jansson. Each object is kept as its
 * serialised bytes; lists are made by copying them.
 *
 * Served: namespaces, nodes, pods, events, configmaps (v1), leases (coordination.k8s.io),
 * events (events.k8s.io; kept apart from the core ones, where a real server shows the
 * same objects in both groups), scvs (core.run-linux.com), and discovery.
 * docs/kube-sim.md says where it differs from a real server.
 */

struct api;
struct api_list;
struct api_watch;

struct api_config {
    uint64_t seed;           /* for UIDs, generated names, times of watches */
    size_t history;          /* events kept per resource for watches; 0: 100,000 */
    size_t history_bytes;    /* of old states kept per resource; 0: 64 MiB */
    uint64_t version;        /* versions go on from here, as of a database that others
                                have used; what is older has been forgotten */
    int64_t now_ms;          /* when the first namespaces are made */
    bool run_pods;           /* play the kubelet: bound pods run, deleted ones go soon */
    int64_t renew_leases_ms; /* play scv-agent: each Lease of its heartbeat namespace is
                                renewed so often; 0: not */
};

struct api_request {
    const char *method;       /* "GET", "POST", "PUT", "PATCH", "DELETE" */
    const char *path;         /* decoded, without query */
    const char *query;        /* raw, "" if none */
    const char *content_type; /* or NULL */
    struct span body;
    const char *accept; /* or NULL; tables are made for who asks for them */
    bool defer;         /* lists may be answered as reply.list */
};

struct api_reply {
    unsigned status;
    struct buf body;          /* JSON */
    const char *content_type; /* static; NULL: application/json */
    int64_t retry_after_s;    /* for a Retry-After header, if > 0 */
    struct api_watch
        *watch;            /* new, when the request opened a watch; body is empty then */
    struct api_list *list; /* new, with `defer`: the body, in pieces; body is empty */
};
void api_reply_fini(struct api_reply *r); /* frees list and watch too, unless taken out */

struct api *api_new(const struct api_config *config);
void api_free(struct api *api); /* all its watches must have been freed */

/* now_ms: milliseconds since 1970. `reply` is zeroed by the caller. */
void api_handle(struct api *api, int64_t now_ms, const struct api_request *req,
                struct api_reply *reply);
/* Lets time pass: deletions whose grace is over, pods that start, old events. */
void api_tick(struct api *api, int64_t now_ms);

/* Takes the next line of the watch (with its newline). 0: none now. 1: appended one.
 * -1: the watch is over (timeout, or 410 was delivered). */
int api_watch_next(struct api_watch *w, int64_t now_ms, struct buf *out);
void api_watch_free(struct api_watch *w);                  /* NULL is accepted */
const char *api_watch_resource(const struct api_watch *w); /* "pods"; static */

typedef void (*api_wake_fn)(void *ctx);
/* Called when a change comes that this watch will deliver, once between two answers 0 of
 * api_watch_next. Bookmarks and the end of its time do not call it. */
void api_watch_on_ready(struct api_watch *w, api_wake_fn wake, void *ctx);
/* Called after every change of any object, also for events that no watch sees yet. */
void api_on_change(struct api *api, api_wake_fn wake, void *ctx);

/* Appends the next piece of a list's body. False at its end. Needs no lock: a list does
 * not change, and holds what it needs. */
bool api_list_next(struct api_list *list, struct buf *out);
void api_list_free(struct api_list *list); /* NULL is accepted; also without a lock */

/* Forgets history, as etcd compaction does: older watches and continue tokens get 410. */
void api_compact(struct api *api);

/* From now on, or no longer, reads with resourceVersion=0 see this resource as it is now:
 * the stale cache of a real server. Reads without a version stay right. False: no such
 * resource. */
bool api_freeze(struct api *api, const char *resource, bool frozen);

/* Loads objects from a JSON array or a single object (already parsed from a manifest):
 * creates or replaces, the status too, with the UID and creation time that are given. A
 * namespace that is missing is made. */
int api_load(struct api *api, int64_t now_ms, struct span json, struct err *err);

uint64_t api_version(const struct api *api); /* the newest resourceVersion */
size_t api_count(const struct api *api, const char *resource); /* objects there are */

/* What a request is about, for who looks at requests from outside (faults, counters). */
struct api_target {
    const char *verb; /* get list watch create update patch delete deletecollection, "" */
    const char *resource;      /* "pods", static */
    const char *group;         /* "" for core, static */
    struct span ns, name, sub; /* {NULL, 0} when not in the path; borrowed from it */
};
/* False when the path is no resource that is served. */
bool api_classify(const struct api_request *req, struct api_target *target);
