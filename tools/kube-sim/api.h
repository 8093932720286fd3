/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * A Kubernetes API server in memory, pure: (request, now) -> reply, and events for
 * watches. It has no socket, thread, lock or clock, and the same requests give the same
 * replies. So the deterministic simulator can run it, and kube-sim puts HTTP in front.
 *
 * Our programs are tested against it, so it shares no code with domain, core or kube, and
 * parses with jansson. It keeps each object as serialized bytes and copies them into lists.
 *
 * Served: namespaces, nodes, pods, events, configmaps, secrets (v1), leases (coordination.k8s.io),
 * events (events.k8s.io; a separate resource here, while a real server shows the same
 * objects in both groups), scvs (core.run-linux.com), and discovery. docs/testing.md
 * lists the differences from a real server.
 */

struct api;
struct api_list;
struct api_watch;

struct api_config {
    uint64_t seed;           /* of UIDs, generated names, watch timeouts */
    size_t history;          /* events kept per resource for watches; 0: 100,000 */
    size_t history_bytes;    /* of old object states kept per resource; 0: 64 MiB */
    uint64_t version;        /* the first resourceVersion is the next one; versions
                                up to this one count as compacted */
    int64_t now_ms;          /* creation time of the initial namespaces */
    bool run_pods;           /* play the kubelet: run bound pods, remove deleted ones */
    int64_t renew_leases_ms; /* play scv-agent: renew each Lease of the heartbeat
                                namespace at this interval; 0: off */
};

struct api_request {
    const char *method;       /* "GET", "POST", "PUT", "PATCH", "DELETE" */
    const char *path;         /* decoded, without query */
    const char *query;        /* raw, "" if none */
    const char *content_type; /* or NULL */
    struct span body;
    const char *accept; /* or NULL; may ask for a Table */
    bool defer;         /* the reply to a list may be reply.list */
};

struct api_reply {
    unsigned status;
    struct buf body;          /* JSON */
    const char *content_type; /* static; NULL: application/json */
    int64_t retry_after_s;    /* for a Retry-After header, if > 0 */
    struct api_watch *watch;  /* new, if the request opened a watch; body is empty then */
    struct api_list *list;    /* new, with `defer`: the body, in pieces; body is empty */
};
void api_reply_fini(
    struct api_reply *r); /* frees list and watch too; steal them to keep them */

struct api *api_new(const struct api_config *config);
void api_free(struct api *api); /* all its watches must have been freed */

/* now_ms: milliseconds since 1970. `reply` is zeroed by the caller. */
void api_handle(struct api *api, int64_t now_ms, const struct api_request *req,
                struct api_reply *reply);
/* Does what is due by now_ms: removes pods after their grace period, starts pods, removes
 * old events. */
void api_tick(struct api *api, int64_t now_ms);

/* Appends the next line of the watch with its newline. Returns 1 if it appended a line, 0
 * if there is none now, -1 when the watch has ended (timeout, or 410 was delivered). */
int api_watch_next(struct api_watch *w, int64_t now_ms, struct buf *out);
void api_watch_free(struct api_watch *w);                  /* NULL is accepted */
const char *api_watch_resource(const struct api_watch *w); /* "pods"; static */

typedef void (*api_wake_fn)(void *ctx);
/* Calls `wake` at a change that this watch will deliver, at most once between two calls of
 * api_watch_next that return 0. Bookmarks and the timeout do not call it. */
void api_watch_on_ready(struct api_watch *w, api_wake_fn wake, void *ctx);
/* Calls `wake` after every change of any object. */
void api_on_change(struct api *api, api_wake_fn wake, void *ctx);

/* Appends the next piece of a list's body. False at its end. Needs no lock: a list is
 * immutable and holds references to its objects. */
bool api_list_next(struct api_list *list, struct buf *out);
void api_list_free(struct api_list *list); /* NULL is accepted; also without a lock */

/* Discards the history like an etcd compaction: older watches and continue tokens get
 * 410. */
void api_compact(struct api *api);

/* Simulates a stale watch cache: while frozen, reads with resourceVersion=0 return the
 * state of this moment. Other reads return the current state. False: no such resource. */
bool api_freeze(struct api *api, const char *resource, bool frozen);

/* Creates or replaces the objects of a JSON array, or a single object, with their status,
 * UID and creation time. Creates missing namespaces. */
int api_load(struct api *api, int64_t now_ms, struct span json, struct err *err);

/* Sets who has which token and may do what, for TokenReview and SubjectAccessReview: the
 * JSON of docs/testing.md. */
int api_set_access(struct api *api, struct span json, struct err *err);

uint64_t api_version(const struct api *api); /* the newest resourceVersion */
size_t api_count(const struct api *api, const char *resource); /* number of objects */

/* The target of a request, for fault rules and counters. */
struct api_target {
    const char *verb; /* get list watch create update patch delete deletecollection, "" */
    const char *resource;      /* "pods", static */
    const char *group;         /* "" for core, static */
    struct span ns, name, sub; /* {NULL, 0} when not in the path; borrowed from it */
};
/* False: the path is not a served resource. */
bool api_classify(const struct api_request *req, struct api_target *target);
