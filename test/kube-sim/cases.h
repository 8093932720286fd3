/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/*
 * Conformance cases: what an API server answers to a sequence of requests, as data.
 *
 * A case is a JSON file with an array of steps. It knows nothing of the server: the same
 * files run against the pure API, against kube-sim over HTTP, and against a real API
 * server. A step is an object:
 *
 *   "do": "POST /api/v1/..."  the request; with "body" (JSON) or "raw" (text), "type" (of
 *                             the body), "accept", "ask" (an object: more headers)
 *   "status": 201             what must come back
 *   "expect": {...}           must be contained in the answer, see below
 *   "headers": {...}          the same of the answer's headers, in lower case; looked at
 *                             where there are any, which is not so in the pure API
 *   "save": {"x": "a.b"}      keeps a string of the answer: "${x}" stands for it later.
 *                             An object is kept, too ("" is all of the answer): a body
 *                             {"$from": "x", ...} is it, with the rest merged into it
 *                             ({"0": ...} into a list: into its first element)
 *   "watch": "w"              together with "do": opens a watch under that name
 *   "next": "w"               the next event of the watch; with "expect"
 *   "quiet": "w"              the watch has nothing to say
 *   "over": "w"               the watch has ended, after bookmarks maybe
 *   "wait_ms": 1000           lets time pass. Where the server has a clock of its own,
 *                             that takes as long, and more than CASES_WAIT_MS are not
 *                             waited for: such a case needs the pure API
 *   "compact": true           the database forgets its history; watches go on
 *   "forget": true            so do the server's caches; open watches are worth no more
 *   "only": "kube-sim"        the step, or as a step of its own the case, is for this
 *   "why": "..."              server alone ("pure", "kube-sim": pure and over HTTP,
 *                             "kubernetes"), and the reason for that, or for a step
 *   "differs": {"a.b": "..."} there the real answer need not be like kube-sim's (same.h)
 *                             beyond what is expected, and the reason for that
 *
 * Each case has two namespaces of its own, "${ns}" and "${ns2}" (which is "${ns}-b"), and
 * "${id}" to make names unique that have no namespace. A real server has objects of its
 * own in them, so lists of ConfigMaps, and all lists without a namespace, must select.
 *
 * Contained: an object holds all expected members; null means that the member is absent;
 * an array has as many elements, each containing the expected one; of an object with the
 * one member "$has", an array, each element is contained in some element of the answer; a
 * string that starts with '~' must occur in the answer's string; one that starts with
 * ">=" must be a number not above the answer's.
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

/* A server under test. What it cannot do is NULL; cases that need it are skipped. */
struct cases_server {
    const char *name; /* as in "only" */
    void (*call)(void *ctx, const struct cases_request *req, struct cases_reply *reply);
    /* A watch that was opened goes to *watch. */
    void (*watch)(void *ctx, const struct cases_request *req, void **watch,
                  struct cases_reply *reply);
    /* The next event: 1, appended to line; 0: none; -1: over. May wait for one. */
    int (*next)(void *ctx, void *watch, struct buf *line);
    bool (*quiet)(void *ctx, void *watch); /* NULL: ask next, which does not wait */
    void (*close)(void *ctx, void *watch);
    /* Makes a namespace in which pods can be created. */
    void (*space)(void *ctx, const char *name);
    void (*wait)(void *ctx, int64_t ms); /* NULL: the clock is its own */
    void (*compact)(void *ctx);
    void (*forget)(void *ctx);
    void *ctx;
};

/* Runs the file; `id` makes its names unique on this server. What is not as expected is
 * said on standard output and added to *faults. NULL: skipped, and that was said, too.
 * Else all that was answered, for same.h: an element for each step. New. */
json_t *cases_run(const char *file, const char *id, const struct cases_server *server,
                  size_t *faults);

/* Paths of all case files in order. New; release with cases_free. */
char **cases_files(size_t *n);
void cases_free(char **files, size_t n);
/* "paging_expired" of a path, with '-' for '_': fit for an id. New. */
char *cases_name(const char *file);
