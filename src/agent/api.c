/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and answers of the publisher's calls, and the watch of the Scv. */
#include "agent/api.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "domain/fields.h"
#include "domain/keys.h"

/* -- calls -- */

enum {
    /* timeoutSeconds of a watch. Bookmarks are optional, so the regular end of a watch
     * is what shows that it works. */
    WATCH_MIN_S = 50,
    WATCH_MORE_S = 25,
    STALL_MS = 90 * 1000, /* longer than any watch lasts */
    RETRY_AFTER_MAX_S = 60,
};

#define SCVS   "/apis/core.run-linux.com/v1/scvs"
#define LEASES "/apis/coordination.k8s.io/v1/namespaces/" KEY_LEASE_NAMESPACE "/leases"

void api_request(const char *node, const struct publisher_output *o, struct arena *a,
                 struct kube_request *r)
{
    static const char merge[] = "application/merge-patch+json";
    static const struct {
        const char *method, *content_type;
    } calls[] = {[PUBLISHER_WATCH] = {"GET", NULL},
                 [PUBLISHER_LIST] = {"GET", NULL},
                 [PUBLISHER_CREATE] = {"POST", NULL},
                 [PUBLISHER_PATCH] = {"PATCH", merge},
                 [PUBLISHER_GET_NODE] = {"GET", NULL},
                 [PUBLISHER_CREATE_LEASE] = {"POST", NULL},
                 [PUBLISHER_PATCH_LEASE] = {"PATCH", merge}};
    cleanup_buf struct buf path = {0};
    *r = (struct kube_request){.method = calls[o->type].method,
                               .content_type = calls[o->type].content_type,
                               .timeout_ms = PUBLISHER_CALL_MS};
    if (o->body)
        r->body = arena_copy(a, span_of(o->body));
    switch (o->type) {
    case PUBLISHER_WATCH:
        /* Of our own object only: with 1,000 agents that watch every Scv, each change
         * would be sent 1,000 times. */
        buf_adds(&path, SCVS "?fieldSelector=metadata.name%3D");
        list_watch_escape(&path, span_of(node));
        buf_addc(&path, '&');
        list_watch_watch_query(&path, span_of(o->version),
                               WATCH_MIN_S + (int64_t)(o->run % WATCH_MORE_S));
        r->timeout_ms = 0;
        r->stall_ms = STALL_MS;
        break;
    case PUBLISHER_LIST:
        buf_printf(&path, SCVS "?fieldSelector=metadata.name%%3D%s", node);
        break;
    case PUBLISHER_CREATE:
        buf_adds(&path, SCVS);
        break;
    case PUBLISHER_PATCH:
        buf_printf(&path, SCVS "/%s", node);
        break;
    case PUBLISHER_CREATE_LEASE:
        buf_adds(&path, LEASES);
        break;
    case PUBLISHER_PATCH_LEASE:
        buf_printf(&path, LEASES "/%s", node);
        break;
    default:
        buf_printf(&path, "/api/v1/nodes/%s", node);
        break;
    }
    r->path = arena_copy(a, buf_span(&path)).p;
}

/* -- objects -- */

static void read_owner(struct jread *j, struct arena *a, struct api_owner *owner)
{
    struct span kind = {0}, uid = {0};
    struct jread_str key;
    jread_object(j, "owner reference");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "kind"))
            jread_text(j, "kind", a, &kind);
        else if (jread_key_is(key, "uid"))
            jread_text(j, "uid", a, &uid);
        else
            jread_skip(j);
    }
    if (span_eq(kind, SPAN("Node")))
        owner->node = hash_bytes(1, uid.p, uid.n);
    else
        owner->other = true;
}

static void read_meta(struct field_reader *r, const struct field *f, void *at)
{
    struct api_object *o = at;
    const struct object_field message = {OBJECT_ANNOTATION, SPAN(KEY_MESSAGE),
                                         &o->message};
    struct span raw;
    struct jread inner;
    struct jread_str key;
    (void)f;
    if (!jread_raw(r->j, &raw))
        return;
    jread_init(&inner, raw.p, raw.n);
    object_meta_read(&inner, r->a, &o->meta, &message, 1);
    jread_init(&inner, raw.p, raw.n);
    jread_object(&inner, "metadata");
    while (jread_member(&inner, &key)) {
        if (!jread_key_is(key, "ownerReferences")) {
            jread_skip(&inner);
            continue;
        }
        jread_array(&inner, "metadata.ownerReferences");
        while (jread_item(&inner))
            read_owner(&inner, r->a, &o->owner);
    }
}

static void read_status(struct field_reader *r, const struct field *f, void *at)
{
    (void)f;
    jread_raw(r->j, at);
}

static const struct field spec_fields[] = {
    {FIELD("spec.", "updateInterval", api_object, interval_ms), FIELD_IS_NUMBER},
    FIELDS_END,
};

static const struct field object_fields[] = {
    {FIELD("", "metadata", api_object, meta), .type = FIELD_OTHER, .read = read_meta},
    {FIELD("", "spec", api_object, meta), FIELD_IS_OBJECT(spec_fields)},
    {FIELD("", "status", api_object, status), .type = FIELD_OTHER, .read = read_status},
    FIELDS_END,
};
_Static_assert(offsetof(struct api_object, meta) == 0, "read_meta and spec_fields");

int api_object_read(struct span bytes, struct arena *a, struct api_object *o,
                    struct err *err)
{
    struct jread j;
    struct field_reader r = {.j = &j, .a = a};
    *o = (struct api_object){0};
    jread_init(&j, bytes.p, bytes.n);
    fields_read(&r, "object", object_fields, o);
    jread_fault(&j, NULL); /* a member of another type counts as absent */
    if (jread_finish(&j, err))
        return -1;
    return object_is_name(o->meta.name)
               ? 0
               : err_set(err, ERR_INVALID, "the object has no name");
}

int api_object_read_list(struct span bytes, struct arena *a, struct api_object *o,
                         bool *found, struct span *version, struct err *err)
{
    struct jread j;
    struct jread_str key;
    struct object_meta meta = {0};
    struct span item = {0};
    jread_init(&j, bytes.p, bytes.n);
    jread_object(&j, "list");
    while (jread_member(&j, &key)) {
        if (jread_key_is(key, "metadata")) {
            object_meta_read(&j, a, &meta, NULL, 0);
        } else if (jread_key_is(key, "items")) {
            jread_array(&j, "items");
            while (jread_item(&j))
                jread_raw(&j, &item);
        } else {
            jread_skip(&j);
        }
    }
    *version = meta.version;
    *found = item.n > 0;
    if (jread_finish(&j, err) || (*found && api_object_read(item, a, o, err)))
        return -1;
    jread_init(&j, item.p, item.n);
    scv_read_all(&j, a, &o->scv);
    if (jread_finish(&j, NULL))
        o->scv = (struct scv){0};
    return 0;
}

/* -- answers -- */

void api_answer(const struct publisher_output *o, const struct httpc_reply *reply,
                const struct err *why, struct arena *a, struct api_answer *answer)
{
    struct publisher_input *in = &answer->input;
    struct err *err = &answer->err;
    bool found = true;
    *err = reply ? (struct err){0} : *why;
    *in = (struct publisher_input){
        .type = PUBLISHER_ANSWER, .call = o->call, .err = err, .retry_after_ms = -1};
    if (!reply)
        return;
    struct span body = buf_span(&reply->body);
    int64_t s = reply->retry_after_s;
    if (s >= 0)
        in->retry_after_ms = 1000 * (s < RETRY_AFTER_MAX_S ? s : RETRY_AFTER_MAX_S);
    if (kube_reply_check(reply->status, body, err))
        return;
    if (o->type == PUBLISHER_LIST
            ? api_object_read_list(body, a, &answer->object, &found, &in->version, err)
            : api_object_read(body, a, &answer->object, err)) {
        err->code = ERR_INTERNAL;
        err_wrap(err, "answer of the API server");
    } else if (found) {
        in->object = &answer->object;
    }
}

/* -- the watch -- */

struct api_feed {
    const char *node;
    void (*input)(void *ctx, const struct publisher_input *in);
    void *ctx;
    struct list_watch decoder;
    uint64_t run;
};

static void pass_input(struct api_feed *w, struct publisher_input in)
{
    in.run = w->run;
    in.retry_after_ms = w->decoder.retry_after_ms;
    w->input(w->ctx, &in);
}

static void on_object(void *ctx, struct jread *j, bool gone)
{
    struct api_feed *w = ctx;
    struct api_object object;
    struct span raw;
    struct err err;
    if (!jread_raw(j, &raw))
        return; /* truncated: the next watch sends it again */
    if (api_object_read(raw, &w->decoder.arena, &object, &err))
        list_watch_fail(&w->decoder, &err);
    else
        pass_input(w, (struct publisher_input){
                          .type = PUBLISHER_OBJECT, .gone = gone, .object = &object});
}

static void on_bookmark(void *ctx, struct span version)
{
    pass_input(
        ctx, (struct publisher_input){.type = PUBLISHER_WATCH_ALIVE, .version = version});
}

static void on_fault(void *ctx, const struct err *err)
{
    struct api_feed *w = ctx;
    list_watch_fail(&w->decoder, err);
}

struct api_feed *api_feed_new(const char *node,
                              void (*input)(void *ctx, const struct publisher_input *in),
                              void *ctx)
{
    static const struct list_watch_handler handler = {on_object, on_bookmark, on_fault};
    struct api_feed *w = xcalloc(1, sizeof *w);
    w->node = node;
    w->input = input;
    w->ctx = ctx;
    list_watch_init(&w->decoder, &handler, w);
    return w;
}

void api_feed_free(struct api_feed *w)
{
    if (w)
        list_watch_fini(&w->decoder);
    free(w);
}

static void start_run(void *ctx, size_t slot, const struct list_watch_run *run)
{
    struct api_feed *w = ctx;
    (void)slot;
    w->run = run->run;
    list_watch_start(&w->decoder, true);
    buf_set(&w->decoder.version, span_of(run->version));
}

static struct list_watch *request_watch(void *ctx, size_t slot, struct arena *a,
                                        struct kube_request *request)
{
    struct api_feed *w = ctx;
    const struct publisher_output output = {
        .type = PUBLISHER_WATCH, .run = w->run, .version = w->decoder.version.p};
    (void)slot;
    api_request(w->node, &output, a, request);
    return &w->decoder;
}

static bool end_response(void *ctx, size_t slot, const struct err *why)
{
    struct api_feed *w = ctx;
    (void)slot;
    list_watch_end(&w->decoder, why);
    log_debug("scv", "watch ended", LOG_ERR(&w->decoder.err));
    pass_input(w, (struct publisher_input){.type = PUBLISHER_WATCH_ENDED,
                                           .err = &w->decoder.err});
    return false;
}

const struct list_watch_fns api_feed_fns = {
    .start = start_run, .request = request_watch, .end = end_response};
