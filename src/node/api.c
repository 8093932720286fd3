/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and answers of the publisher's calls. */
#include "node/api.h"

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
        const char *method, *content_type, *path;
        bool named; /* the path ends with the node's name */
    } calls[] = {[PUBLISHER_CREATE] = {"POST", NULL, SCVS, false},
                 [PUBLISHER_PATCH] = {"PATCH", merge, SCVS, true},
                 [PUBLISHER_GET_NODE] = {"GET", NULL, "/api/v1/nodes", true},
                 [PUBLISHER_CREATE_LEASE] = {"POST", NULL, LEASES, false},
                 [PUBLISHER_PATCH_LEASE] = {"PATCH", merge, LEASES, true}};
    const bool named = calls[o->type].named;
    *r = (struct kube_request){.method = calls[o->type].method,
                               .path = arena_printf(a, "%s%s%s", calls[o->type].path,
                                                    named ? "/" : "", named ? node : ""),
                               .content_type = calls[o->type].content_type,
                               .body = arena_copy(a, span_of(o->body)),
                               .timeout_ms = PUBLISHER_CALL_MS};
}

/* -- objects -- */

static void read_meta(struct field_reader *r, const struct field *f, void *at)
{
    struct api_object *o = at;
    struct span uid = {0}, other = {0};
    const struct object_field fields[] = {
        {OBJECT_ANNOTATION, SPAN(KEY_MESSAGE), &o->message},
        {OBJECT_OWNER_UID, SPAN("Node"), &uid},
        {OBJECT_OTHER_OWNER, SPAN("Node"), &other}};
    (void)f;
    object_meta_read(r->j, r->a, &o->meta, fields, ARRAY_LEN(fields));
    o->owner = (struct api_owner){other.p, uid.n ? hash_bytes(1, uid.p, uid.n) : 0};
}

static const struct field spec_fields[] = {
    {FIELD("spec.", "updateInterval", api_object, interval_ms), FIELD_IS_NUMBER},
    FIELDS_END,
};

static const struct field object_fields[] = {
    {FIELD("", "metadata", api_object, meta), .type = FIELD_OTHER, .read = read_meta},
    {FIELD("", "spec", api_object, meta), FIELD_IS_OBJECT(spec_fields)},
    {FIELD("", "status", api_object, status), .type = FIELD_RAW},
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
    *in = (struct publisher_input){.type = PUBLISHER_ANSWER, .call = o->call, .err = err};
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
