/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/*
 * Conformance cases: what an API server answers to a sequence of requests, as data.
 *
 * A case is a JSON file with an array of steps. The same files run against the pure API,
 * against kube-sim over HTTP, and against a real API server. A step is an object:
 *
 *   "do": "POST /api/v1/..."  the request; with "body" (JSON) or "raw" (text), "type" (of
 *                             the body), "accept", "ask" (an object: more headers)
 *   "status": 201             the expected status
 *   "expect": {...}           must be contained in the reply, see below
 *   "headers": {...}          must be contained in the reply's headers, in lower case; the
 *                             pure API, which has no headers, skips this check
 *   "save": {"x": "a.b"}      saves a string of the reply; later "${x}" is replaced by it.
 *                             Saves objects too ("" is the whole reply): the body
 *                             {"$from": "x", ...} is the object x with the other members
 *                             merged ({"0": ...}: into the first element of a list)
 *   "watch": "w"              together with "do": opens a watch under that name
 *   "next": "w"               the next event of the watch; with "expect"
 *   "quiet": "w"              the watch has no event
 *   "over": "w"               the watch has ended, possibly after bookmarks
 *   "wait_ms": 1000           advances the clock. A server with a real clock waits, but at
 *                             most CASES_WAIT_MS: longer cases need the pure API
 *   "compact": true           the database discards its history; watches continue
 *   "forget": true            the server's caches are discarded too; open watches end
 *   "only": "kube-sim"        restricts the step (as a step of its own: the case) to this
 *                             server: "pure", "kube-sim" (pure and over HTTP) or
 *                             "kubernetes"
 *   "why": "..."              the reason of "only", or of the step
 *   "differs": {"a.b": "..."} members that may differ between kube-sim and a real server
 *                             (same.h), apart from "expect", and the reason
 *
 * Each case has its own namespaces "${ns}" and "${ns2}" ("${ns}-b"), and "${id}" for unique
 * names in cluster scope. A real server creates objects in these namespaces, so lists of
 * ConfigMaps, and lists over all namespaces, must use selectors.
 *
 * Contained: an object holds all expected members; null means that the member is absent;
 * an array has as many elements, each containing the expected one; of an object with the
 * one member "$has", an array, each element is contained in an element of the reply; a
 * string that starts with '~' must occur in the reply's string; one that starts with
 * ">=" must be a number not above the reply's.
 */

#define CASES_DIR "test/kube-sim/conformance"
enum { CASES_WAIT_MS = 5000 };

struct cases_request {
    const char *method, *path; /* with the query */
    const char *type, *accept; /* or NULL */
    const json_t *headers;     /* name -> text, or NULL */
    struct span body;
};

struct cases_reply {
    unsigned status;
    struct buf body;
    json_t *headers; /* lower case name -> text; NULL: none are known */
};

/* A server under test. Unsupported functions are NULL; cases that need them are skipped. */
struct cases_server {
    const char *name; /* as in "only" */
    void (*call)(void *ctx, const struct cases_request *req, struct cases_reply *reply);
    /* Sets *watch if the request opened a watch. */
    void (*watch)(void *ctx, const struct cases_request *req, void **watch,
                  struct cases_reply *reply);
    /* Appends the next event to line. 1: an event; 0: none; -1: the watch has ended. May
     * wait. */
    int (*next)(void *ctx, void *watch, struct buf *line);
    bool (*quiet)(void *ctx, void *watch); /* NULL: use next, which does not wait */
    void (*close)(void *ctx, void *watch);
    /* Creates a namespace in which pods can be created. */
    void (*space)(void *ctx, const char *name);
    void (*wait)(void *ctx, int64_t ms); /* NULL: a real clock */
    void (*compact)(void *ctx);
    void (*forget)(void *ctx);
    void *ctx;
};

/* Runs the file; `id` makes its names unique on this server. Prints unexpected results to
 * standard output and adds their number to *faults. Returns the replies, an element per
 * step, for same.h; NULL: the case was skipped, which is printed too. New. */
json_t *cases_run(const char *file, const char *id, const struct cases_server *server,
                  size_t *faults);

/* The base name of a path with '-' for '_', for use as an id. Kept. */
char *cases_name(const char *file);
