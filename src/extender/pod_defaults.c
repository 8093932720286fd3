/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/pod_defaults.h"

#include "domain/dialect.h"
#include "domain/fields.h"
#include "domain/keys.h"
#include "kube/jpath.h"
#include "wire/base64.h"

enum {
    UID_MAX = 128, /* bytes of a uid, which the answer repeats; UUIDs have 36 */
    RETRY_MS = 250,
    SETTLED_MS = 2000,
    CALL_MS = 15000, /* longer than timeoutSeconds of the webhook */
};

struct review {
    struct span api, kind, uid;
    struct span of; /* the kind of the object */
    struct span scheduler, runtime_class;
    const struct dialect *dialect; /* NULL: none */
    size_t n_apps, n_inits;        /* containers so far */
    struct buf *cards; /* operations of JSON Patch, with a comma before each */
};
_Static_assert(offsetof(struct review, api) == 0, "nested objects are read into it");

struct container {
    const struct dialect *dialect;
    bool parts, cards; /* limits of the dialect: of parts of a card, of cards */
};

static void read_limits(struct field_reader *r, const struct field *f, void *at)
{
    struct container *c = at;
    struct jread_str key;
    jread_object(r->j, f->where);
    while (jread_member(r->j, &key)) {
        for (size_t k = 0; k < DIALECT_LIMITS; k++)
            *(k == DIALECT_CARDS ? &c->cards : &c->parts) |=
                jread_str_eq(key, c->dialect->limits[k].key);
        jread_skip(r->j);
    }
}

static const struct field resources_fields[] = {
    {FIELD("containers[].resources.", "limits", container, dialect), .type = FIELD_OTHER,
     .read = read_limits},
    FIELDS_END,
};
static const struct field container_fields[] = {
    {FIELD("containers[].", "resources", container, dialect),
     FIELD_IS_OBJECT(resources_fields)},
    FIELDS_END,
};
_Static_assert(offsetof(struct container, dialect) == 0, "limits are read into it");

/* The API server makes the request of it, as of each limit. */
static void read_container(struct field_reader *r, const struct field *f, void *at)
{
    struct review *review = (struct review *)((char *)at - f->at);
    size_t *n = at;
    struct container c = {.dialect = review->dialect};
    if (!c.dialect) {
        jread_skip(r->j);
        return;
    }
    fields_read(r, f->where, container_fields, &c);
    if (c.parts && !c.cards) {
        struct span key = c.dialect->limits[DIALECT_CARDS].key;
        buf_printf(review->cards,
                   ",{\"op\":\"add\",\"path\":\"/spec/%.*s/%zu/resources/limits/",
                   SPAN_ARG(f->name), *n);
        for (; key.n; key.p++, key.n--)
            if (*key.p == '/')
                buf_adds(review->cards, "~1");
            else
                buf_addc(review->cards, *key.p);
        buf_adds(review->cards, "\",\"value\":\"1\"}");
    }
    ++*n;
}

static const struct field spec_fields[] = {
    {FIELD("object.spec.", "containers", review, n_apps), .type = FIELD_LIST,
     .read = read_container},
    {FIELD("object.spec.", "initContainers", review, n_inits), .type = FIELD_LIST,
     .read = read_container},
    {FIELD("object.spec.", "schedulerName", review, scheduler)},
    {FIELD("object.spec.", "runtimeClassName", review, runtime_class)},
    FIELDS_END,
};
static const struct field pod_fields[] = {
    {FIELD("object.", "spec", review, api), FIELD_IS_OBJECT(spec_fields)},
    FIELDS_END,
};
static const struct field kind_fields[] = {
    {FIELD("request.kind.", "kind", review, of)},
    FIELDS_END,
};
static const struct field request_fields[] = {
    {FIELD("request.", "uid", review, uid)},
    {FIELD("request.", "kind", review, api), FIELD_IS_OBJECT(kind_fields)},
    {FIELD("request.", "object", review, api), FIELD_IS_OBJECT(pod_fields)},
    FIELDS_END,
};
static const struct field review_fields[] = {
    {FIELD("", "apiVersion", review, api)},
    {FIELD("", "kind", review, kind)},
    {FIELD("", "request", review, api), FIELD_IS_OBJECT(request_fields)},
    FIELDS_END,
};

/* Appends an operation of JSON Patch (RFC 6902), unless there is nothing to set. */
static void add_member(struct jwrite *w, bool empty, const char *path, const char *value)
{
    if (!empty || !value || !*value)
        return;
    jwrite_object(w, NULL);
    jwrite_str(w, "op", SPAN("add"));
    jwrite_str(w, "path", span_of(path));
    jwrite_str(w, "value", span_of(value));
    jwrite_object_end(w);
}

void pod_defaults_answer(const struct pod_defaults *d, struct span body,
                         struct httpd_reply *reply)
{
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf patch = {0}, cards = {0};
    struct buf *out = &reply->body;
    struct review r = {.dialect = d->hami, .cards = &cards};
    struct err err = {0};
    struct jwrite w = {.out = &patch};
    struct jread j;
    jread_init(&j, body.p, body.n);
    fields_read(&(struct field_reader){.j = &j, .a = &a}, "body", review_fields, &r);
    int rc = jread_finish(&j, &err);
    if (rc == 0 &&
        (!span_eq(r.api, SPAN("admission.k8s.io/v1")) ||
         !span_eq(r.kind, SPAN("AdmissionReview")) || !r.uid.n || r.uid.n > UID_MAX))
        rc = err_set(&err, ERR_INVALID,
                     "expected an AdmissionReview of admission.k8s.io/v1 with a "
                     "request.uid of at most %d bytes",
                     UID_MAX);
    if (rc) {
        httpd_fail(reply, 400, "%s", err.msg);
        return;
    }
    buf_adds(out, "{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\","
                  "\"response\":{\"uid\":");
    buf_add_json(out, r.uid);
    if (!span_eq(r.of, SPAN("Pod"))) {
        buf_adds(out, ",\"allowed\":false,\"status\":{\"message\":\"gpushare sets "
                      "defaults of pods only\"}}}");
        return;
    }
    jwrite_array(&w, NULL);
    add_member(&w, !r.scheduler.n || span_eq(r.scheduler, SPAN("default-scheduler")),
               "/spec/schedulerName", d->scheduler);
    add_member(&w, !r.runtime_class.n, "/spec/runtimeClassName", d->runtime_class);
    if (cards.n)
        buf_adds(&patch, cards.p + (patch.n == 1)); /* the first has no comma before */
    jwrite_array_end(&w);
    buf_adds(out, ",\"allowed\":true,\"patchType\":\"JSONPatch\",\"patch\":\"");
    base64_encode(buf_span(&patch), out);
    buf_adds(out, "\"}}");
}

/* -- the dry run -- */

/* A namespace may allow nothing less restricted, and only pods with limits. */
static const struct span pod =
    SPAN("{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"generateName\":"
         "\"gpushare-dry-run-\"},\"spec\":{\"automountServiceAccountToken\":false,"
         "\"securityContext\":{\"runAsNonRoot\":true,\"seccompProfile\":{\"type\":"
         "\"RuntimeDefault\"}},\"containers\":[{\"name\":\"c\",\"image\":\"none\","
         "\"resources\":{\"limits\":{\"cpu\":\"100m\",\"memory\":\"64Mi\",\"" KEY_GPU_MEM
         "\":\"1\"}},\"securityContext\":{\"allowPrivilegeEscalation\":false,"
         "\"capabilities\":{\"drop\":[\"ALL\"]}}}]}}");

static int check_set(const char *what, const char *wanted, struct span is,
                     struct err *err)
{
    return !wanted || !*wanted || span_eq(is, span_of(wanted))
               ? 0
               : err_set(err, ERR_NOT_FOUND, "a dry run leaves %s \"%.*s\"", what,
                         SPAN_ARG(is));
}

static int try_pod(const struct pod_defaults *d, struct kube_client *client,
                   const char *path, struct err *err)
{
    const struct kube_request request = {
        .method = "POST", .path = path, .body = pod, .timeout_ms = CALL_MS};
    cleanup_reply struct httpc_reply reply = {0};
    if (kube_ask(client, &request, &reply, err))
        return -1;
    json_auto_t *made = jpath_read(buf_span(&reply.body), err);
    struct span scheduler = jpath_text(made, "spec.schedulerName"),
                runtime_class = jpath_text(made, "spec.runtimeClassName");
    return !made || check_set("schedulerName", d->scheduler, scheduler, err)
               ? -1
               : check_set("runtimeClassName", d->runtime_class, runtime_class, err);
}

int pod_defaults_await(const struct pod_defaults *d, struct kube_client *client,
                       const char *ns, int64_t limit_ms, struct err *err)
{
    cleanup_arena struct arena a = {0};
    const char *path = arena_printf(&a, "/api/v1/namespaces/%s/pods?dryRun=All", ns);
    const int64_t until_ms = clock_mono_ms() + limit_ms;
    int64_t since_ms = -1;
    for (;;) {
        struct err why = {0};
        bool set = try_pod(d, client, path, &why) == 0;
        int64_t now_ms = clock_mono_ms();
        since_ms = !set ? -1 : since_ms < 0 ? now_ms : since_ms;
        if (set && now_ms - since_ms >= SETTLED_MS)
            return 0;
        if (now_ms >= until_ms)
            return err_set(err, ERR_TIMEOUT,
                           "new pods do not get their defaults: %s; check the "
                           "MutatingAdmissionPolicy or MutatingWebhookConfiguration "
                           "gpushare-pods, and that the API server reaches the extender",
                           set ? "not for long" : why.msg);
        clock_sleep_ms(RETRY_MS);
    }
}
