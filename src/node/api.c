/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and answers of the publisher's calls. */
#include "node/api.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "domain/fields.h"
#include "domain/keys.h"

/* -- calls -- */

enum { RETRY_AFTER_MAX_S = 60 };

#define SCVS   "/apis/core.run-linux.com/v1/scvs"
#define LEASES "/apis/coordination.k8s.io/v1/namespaces/" KEY_LEASE_NAMESPACE "/leases"

void api_request(const char *node, const struct publisher_output *o, struct arena *a,
                 struct kube_request *r)
{
    static const char merge[] = "application/merge-patch+json";
    static const struct {
        const char *method, *content_type;
    } calls[] = {[PUBLISHER_CREATE] = {"POST", NULL},
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
    jread_init(&j, bytes.p, bytes.n);
    scv_read_all(&j, a, &o->scv);
    if (jread_finish(&j, NULL))
        o->scv = (struct scv){0};
    return object_is_name(o->meta.name)
               ? 0
               : err_set(err, ERR_INVALID, "the object has no name");
}

/* -- answers -- */

void api_answer(const struct publisher_output *o, const struct httpc_reply *reply,
                const struct err *why, struct arena *a, struct api_answer *answer)
{
    struct publisher_input *in = &answer->input;
    struct err *err = &answer->err;
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
    if (api_object_read(body, a, &answer->object, err)) {
        err->code = ERR_INTERNAL;
        err_wrap(err, "answer of the API server");
    } else {
        in->object = &answer->object;
    }
}
