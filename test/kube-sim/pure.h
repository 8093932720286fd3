/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "kube-sim/sim.h"
#include "lib/lib.h"

/* Requests to the pure API in one line. */

/* `line`: "METHOD path?query". Returns the status; *answer (may be NULL) gets the body as a
 * tree, kept, or NULL. */
static inline unsigned pure_call(struct api *api, int64_t now_ms, const char *line,
                                 const char *type, const char *body, json_t **answer)
{
    char *path = lib_fmt("%s", line);
    struct api_reply reply = {0};
    const char *method = strsep(&path, " ");
    char *query = strchr(path, '?');
    if (query)
        *query++ = '\0';
    struct api_request req = {.method = method,
                              .path = path,
                              .query = query ? query : "",
                              .content_type = type,
                              .body = span_of(body)};
    api_handle(api, now_ms, &req, &reply);
    unsigned status = reply.status;
    if (answer)
        *answer = reply.body.n ? lib_parse(reply.body.p, reply.body.n) : NULL;
    api_reply_fini(&reply);
    return status;
}

/* GET, which must succeed: its body, kept. */
static inline json_t *pure_get(struct api *api, int64_t now_ms, const char *path)
{
    json_t *j;
    ck_assert_uint_eq(pure_call(api, now_ms, lib_fmt("GET %s", path), NULL, NULL, &j),
                      200);
    return j;
}

static inline struct api_watch *pure_watch(struct api *api, int64_t now_ms,
                                           const char *path)
{
    struct api_reply reply = {0};
    char *query = lib_fmt("%s", path);
    const char *only = strsep(&query, "?");
    struct api_request req = {.method = "GET", .path = only, .query = query};
    api_handle(api, now_ms, &req, &reply);
    struct api_watch *w = steal(&reply.watch);
    ck_assert_ptr_nonnull(w);
    api_reply_fini(&reply);
    return w;
}
