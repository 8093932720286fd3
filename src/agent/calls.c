/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/calls.h"

#include "base/mem.h"
#include "kube/listwatch.h"

enum {
    /* timeoutSeconds of a watch. Bookmarks are optional, so the regular end of a watch
     * is what shows that it works. */
    WATCH_MIN_S = 50,
    WATCH_MORE_S = 25,
    STALL_MS = 90 * 1000, /* longer than any watch lasts */
    RETRY_AFTER_MAX_S = 60,
};

#define SCVS   "/apis/core.run-linux.com/v1/scvs"
#define LEASES "/apis/coordination.k8s.io/v1/namespaces/"

static const char *path(struct arena *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static const char *path(struct arena *a, const char *fmt, ...)
{
    cleanup_buf struct buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    return arena_copy(a, buf_span(&b)).p;
}

/* A watch of our own object only: with 1,000 agents that watch every Scv, each change
 * would be sent 1,000 times. */
static const char *watch_path(const char *node, const struct publisher_output *o,
                              struct arena *a)
{
    cleanup_buf struct buf b = {0};
    buf_adds(&b, SCVS "?fieldSelector=metadata.name%3D");
    listwatch_escape(&b, span_of(node));
    buf_addc(&b, '&');
    listwatch_watch_query(&b, span_of(o->version),
                          WATCH_MIN_S + (int64_t)(o->run % WATCH_MORE_S));
    return arena_copy(a, buf_span(&b)).p;
}

void calls_request(const struct calls_names *names, const struct publisher_output *o,
                   struct arena *a, struct kube_request *r)
{
    const char *node = names->node, *ns = names->lease_namespace;
    *r = (struct kube_request){.method = "GET", .timeout_ms = PUBLISHER_CALL_MS};
    if (o->body)
        r->body = arena_copy(a, span_of(o->body));
    switch (o->type) {
    case PUBLISHER_WATCH:
        r->path = watch_path(node, o, a);
        r->timeout_ms = 0;
        r->stall_ms = STALL_MS;
        break;
    case PUBLISHER_LIST:
        r->path = path(a, SCVS "?fieldSelector=metadata.name%%3D%s", node);
        break;
    case PUBLISHER_CREATE:
        r->method = "POST";
        r->path = SCVS;
        break;
    case PUBLISHER_PATCH:
        r->method = "PATCH";
        r->path = path(a, SCVS "/%s", node);
        break;
    case PUBLISHER_CREATE_LEASE:
        r->method = "POST";
        r->path = path(a, LEASES "%s/leases", ns);
        break;
    case PUBLISHER_PATCH_LEASE:
        r->method = "PATCH";
        r->path = path(a, LEASES "%s/leases/%s", ns, node);
        break;
    default:
        r->path = path(a, "/api/v1/nodes/%s", node);
        break;
    }
    if (*r->method == 'P' && r->method[1] == 'A')
        r->content_type = "application/merge-patch+json";
}

static int read_body(const struct publisher_output *o, struct span body, struct arena *a,
                     struct calls_answer *answer)
{
    bool found = true;
    int rc = o->type == PUBLISHER_LIST
                 ? api_object_read_list(body, a, &answer->object, &found,
                                        &answer->input.version, &answer->err)
                 : api_object_read(body, a, &answer->object, &answer->err);
    if (rc) {
        answer->err.code = ERR_INTERNAL;
        return err_wrap(&answer->err, "answer of the API server");
    }
    if (found)
        answer->input.object = &answer->object;
    return 0;
}

void calls_answer(const struct publisher_output *o, const struct httpc_reply *reply,
                  const struct err *why, struct arena *a, struct calls_answer *answer)
{
    answer->err = (struct err){0};
    answer->input = (struct publisher_input){
        .type = PUBLISHER_ANSWER, .call = o->call, .retry_after_ms = -1};
    if (!reply) {
        answer->err = *why;
    } else {
        int64_t s = reply->retry_after_s;
        if (s >= 0)
            answer->input.retry_after_ms =
                1000 * (s < RETRY_AFTER_MAX_S ? s : RETRY_AFTER_MAX_S);
        if (kube_reply_check(reply->status, buf_span(&reply->body), &answer->err) == 0)
            read_body(o, buf_span(&reply->body), a, answer);
    }
    answer->input.err = &answer->err;
}
