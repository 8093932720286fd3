/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>
#include <string.h>

#include "base/mem.h"
#include "kube-sim/sim.h"
#include "lib/unit.h"

/* Requests to the pure API in one line. */

enum { PURE_PATH = 512 };

/* `line`: "METHOD path?query". Returns the status; *answer (may be NULL) gets the body as a
 * tree (new). */
static inline unsigned pure_call(struct api *api, int64_t now_ms, const char *line,
                                 const char *type, const char *body, json_t **answer)
{
    char method[16], path[PURE_PATH];
    struct api_reply reply = {0};
    ck_assert_int_eq(sscanf(line, "%15s %511s", method, path), 2);
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
        *answer = json_loadb(reply.body.p ? reply.body.p : "", reply.body.n, 0, NULL);
    api_reply_fini(&reply);
    return status;
}

static inline struct api_watch *pure_watch(struct api *api, int64_t now_ms,
                                           const char *path)
{
    char text[PURE_PATH];
    struct api_reply reply = {0};
    snprintf(text, sizeof text, "%s", path);
    char *query = strchr(text, '?');
    *query++ = '\0';
    struct api_request req = {.method = "GET", .path = text, .query = query};
    api_handle(api, now_ms, &req, &reply);
    struct api_watch *w = steal(&reply.watch);
    ck_assert_ptr_nonnull(w);
    api_reply_fini(&reply);
    return w;
}

static inline const char *pure_str(const json_t *j, const char *a, const char *b)
{
    const json_t *v = json_object_get(json_object_get(j, a), b);
    return json_is_string(v) ? json_string_value(v) : "";
}
