/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * A Kubernetes API server in memory, pure: (request, now) -> reply, and events for watches.
 * No socket, thread, lock or clock; the same requests give the same answers, so that the
 * deterministic simulator can run it, and kube-sim puts HTTP in front of it.
 *
 * It is the independent opinion that our programs are tested against: it shares no code
 * with domain, core or kube, and parses with jansson. Each object is kept as its serialised
 * bytes; lists are made by copying them.
 */

struct api;
struct api_watch;

struct api_config {
    uint64_t seed;      /* for UIDs */
    size_t history;     /* events kept per resource for watches; 0: a default */
};

struct api_request {
    const char *method;       /* "GET", "POST", "PUT", "PATCH", "DELETE" */
    const char *path;         /* decoded, without query */
    const char *query;        /* raw, "" if none */
    const char *content_type; /* or NULL */
    struct span body;
};

struct api_reply {
    unsigned status;
    struct buf body;          /* JSON */
    struct api_watch *watch;  /* new, when the request opened a watch; body is empty then */
};
void api_reply_fini(struct api_reply *r);

struct api *api_new(const struct api_config *config);
void api_free(struct api *api); /* all its watches must have been freed */

/* now_ms: milliseconds since 1970. */
void api_handle(struct api *api, int64_t now_ms, const struct api_request *req,
                struct api_reply *reply);
/* Lets time pass: deletions whose grace is over, watches that time out, bookmarks. */
void api_tick(struct api *api, int64_t now_ms);

/* Takes the next line of the watch (with its newline). 0: none now. 1: appended one.
 * -1: the watch is over (timeout, or 410 was delivered). */
int api_watch_next(struct api_watch *w, int64_t now_ms, struct buf *out);
void api_watch_free(struct api_watch *w);

/* Called after every change of any object, also for events that no watch sees yet. */
typedef void (*api_wake_fn)(void *ctx);
void api_on_change(struct api *api, api_wake_fn wake, void *ctx);

/* Forgets history, as etcd compaction does: older watches and continue tokens get 410. */
void api_compact(struct api *api);

/* Loads objects from a JSON array or a single object (already parsed from a manifest):
 * creates or replaces. */
int api_load(struct api *api, int64_t now_ms, struct span json, struct err *err);
