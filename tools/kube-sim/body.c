/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

/*
 * The body of a request: JSON, YAML of kubectl, or protobuf, which kube-scheduler and the kubelet
 * send.
 */

bool sim_body_is(const struct call *c, const char *type)
{
    struct span rest = span_of(c->req->content_type);
    struct span given = span_trim(span_cut(&rest, ';'));
    if (!given.n)
        given = SPAN("application/json");
    return span_eq_nocase(given, span_of(type));
}

/* A custom resource: the error of the schema validation. */
static int refuse_by_schema(struct call *c, const json_t *object)
{
    cleanup_faultlist struct faultlist f = {0};
    struct shape_fault wrong = {0};
    if (sim_shape_find(sim_shape_meta, (json_t *)object, &wrong) ||
        sim_shape_find(c->route.kind->shape, (json_t *)object, &wrong))
        sim_fault_type(&f, wrong.where.p, wrong.given, wrong.wanted);
    buf_fini(&wrong.where);
    return sim_refuse_invalid(c, sim_jsonx_span(object, "metadata.name"), &f);
}

static int check_shape(struct call *c, json_t *object, struct err *err)
{
    return sim_shape_check(sim_shape_meta, object, err) ||
                   sim_shape_check(c->route.kind->shape, object, err)
               ? -1
               : 0;
}

int sim_body_check(struct call *c, json_t *object)
{
    struct err err;
    const struct kind *kind = c->route.kind;
    if (check_shape(c, object, &err) == 0)
        return 0;
    if (kind->custom)
        return refuse_by_schema(c, object);
    return sim_refuse(c, 400, "%s in version \"%s\" cannot be handled as a %s: %s",
                      kind->kind, kind->version, kind->kind, err.msg);
}

int sim_body_check_patched(struct call *c, json_t *object)
{
    struct err err;
    if (check_shape(c, object, &err) == 0)
        return 0;
    return c->route.kind->custom ? refuse_by_schema(c, object)
                                 : sim_refuse_patch(c, object, err.msg);
}

static int check_type(struct call *c, const json_t *object)
{
    const struct kind *kind = c->route.kind;
    cleanup_buf struct buf version = {0};
    sim_kind_add_group_version(kind, &version);
    struct span given = sim_jsonx_span(object, "apiVersion"),
                type = sim_jsonx_span(object, "kind");
    if (kind->custom && !type.n) /* a custom resource must name its apiVersion and kind */
        return sim_refuse(c, 400,
                          "the object provided is unrecognized (must be of type %s): "
                          "Object 'Kind' is missing in '%.*s'",
                          kind->kind, SPAN_ARG(c->req->body));
    if (given.n && !span_eq(given, buf_span(&version)))
        return sim_refuse(
            c, 400,
            "the API version in the data (%.*s) does not match the expected API "
            "version (%s)",
            SPAN_ARG(given), version.p);
    if (type.n && !span_eq(type, span_of(kind->kind)))
        return sim_refuse(
            c, 400, "the kind in the data (%.*s) does not match the expected kind (%s)",
            SPAN_ARG(type), kind->kind);
    return 0;
}

/* The body as a tree of any JSON type. New; NULL: the request has been refused. */
static json_t *read_body(struct call *c)
{
    struct err err;
    json_t *object = NULL;
    const struct proto_field *message = c->route.kind->message;
    if (sim_body_is(c, "application/json")) {
        object = sim_jsonx_parse(c->req->body, &err);
    } else if (message && sim_body_is(c, "application/vnd.kubernetes.protobuf")) {
        object = sim_proto_parse(message, c->req->body, &err);
    } else {
        sim_refuse(
            c, 415,
            "the body of the request was in an unknown format - accepted media types "
            "include: application/json");
        return NULL;
    }
    if (!object)
        sim_refuse(c, 400, "the object provided is unrecognized (must be of type %s): %s",
                   c->route.kind->kind, err.msg);
    return object;
}

json_t *sim_body_object(struct call *c)
{
    cleanup_json_value json_t *object = read_body(c);
    if (!object)
        return NULL;
    if (!json_is_object(object)) {
        sim_refuse(c, 400, "the object provided is unrecognized (must be of type %s)",
                   c->route.kind->kind);
        return NULL;
    }
    sim_jsonx_strip_nulls(object);
    if (!json_object_get(object, "metadata"))
        json_object_set_new(object, "metadata", json_object());
    if (check_type(c, object) || sim_body_check(c, object))
        return NULL;
    return json_incref(object);
}

static const struct proto_field meta[] = {{1, "name", PROTO_STRING, NULL},
                                          {2, "generateName", PROTO_STRING, NULL},
                                          {3, "namespace", PROTO_STRING, NULL},
                                          {5, "uid", PROTO_STRING, NULL},
                                          {6, "resourceVersion", PROTO_STRING, NULL},
                                          {11, "labels", PROTO_TEXTS, NULL},
                                          {12, "annotations", PROTO_TEXTS, NULL},
                                          {14, "finalizers", PROTO_STRINGS, NULL},
                                          {0}};
static const struct proto_field namespace_spec[] = {
    {1, "finalizers", PROTO_STRINGS, NULL}, {0}};
const struct proto_field sim_proto_namespace[] = {
    {1, "metadata", PROTO_MESSAGE, meta},
    {2, "spec", PROTO_MESSAGE, namespace_spec},
    {0}};
const struct proto_field sim_proto_configmap[] = {{1, "metadata", PROTO_MESSAGE, meta},
                                                  {2, "data", PROTO_TEXTS, NULL},
                                                  {4, "immutable", PROTO_BOOL, NULL},
                                                  {0}};

/* The envelope of every object: its type and its bytes. */
static const struct proto_field type_meta[] = {
    {1, "apiVersion", PROTO_STRING, NULL}, {2, "kind", PROTO_STRING, NULL}, {0}};

/* One field of a message. */
struct wire {
    unsigned number;
    bool is_bytes; /* false: a number */
    uint64_t value;
    struct span bytes;
};

static bool take_varint(struct span *s, uint64_t *v)
{
    *v = 0;
    for (unsigned shift = 0; shift < 64 && s->n; shift += 7) {
        unsigned char c = (unsigned char)s->p[0];
        *s = (struct span){s->p + 1, s->n - 1};
        *v |= (uint64_t)(c & 0x7f) << shift;
        if (c < 0x80)
            return true;
    }
    return false;
}

static bool take_bytes(struct span *s, uint64_t n, struct span *bytes)
{
    if (n > s->n)
        return false;
    *bytes = (struct span){s->p, (size_t)n};
    *s = (struct span){s->p + n, s->n - (size_t)n};
    return true;
}

static bool take_field(struct span *s, struct wire *w)
{
    uint64_t tag, n;
    *w = (struct wire){0};
    if (!take_varint(s, &tag) || tag >> 3 == 0 || tag >> 3 > 536870911)
        return false;
    w->number = (unsigned)(tag >> 3);
    switch (tag & 7) {
    case 0:
        return take_varint(s, &w->value);
    case 1:
        return take_bytes(s, 8, &w->bytes);
    case 2:
        w->is_bytes = true;
        return take_varint(s, &n) && take_bytes(s, n, &w->bytes);
    case 5:
        return take_bytes(s, 4, &w->bytes);
    default:
        return false;
    }
}

/* NULL if the bytes are not UTF-8 or contain NUL, which JSON bodies may not contain
 * either. */
static json_t *string_of(struct span s)
{
    if (s.n && memchr(s.p, '\0', s.n))
        return NULL;
    return json_stringn(s.n ? s.p : "", s.n);
}

static bool add_text(json_t *texts, struct span entry)
{
    struct wire w;
    struct span key = {"", 0}, value = {"", 0};
    while (entry.n) {
        if (!take_field(&entry, &w))
            return false;
        if (w.number == 1 && w.is_bytes)
            key = w.bytes;
        if (w.number == 2 && w.is_bytes)
            value = w.bytes;
    }
    cleanup_buf struct buf name = {0};
    buf_add_span(&name, key);
    buf_adds(&name, "");
    return strlen(name.p) == name.n &&
           json_object_set_new(texts, name.p, string_of(value)) == 0;
}

static bool read_message(const struct proto_field *fields, struct span s, json_t *out);

static bool read_field(const struct proto_field *f, const struct wire *w, json_t *out)
{
    if (w->is_bytes == (f->type == PROTO_BOOL))
        return false;
    switch (f->type) {
    case PROTO_BOOL:
        return json_object_set_new(out, f->name, json_boolean(w->value)) == 0;
    case PROTO_STRING: /* empty means absent */
        return !w->bytes.n || json_object_set_new(out, f->name, string_of(w->bytes)) == 0;
    case PROTO_STRINGS:
        if (!json_object_get(out, f->name))
            json_object_set_new(out, f->name, json_array());
        return json_array_append_new(json_object_get(out, f->name),
                                     string_of(w->bytes)) == 0;
    case PROTO_TEXTS:
        return add_text(sim_jsonx_make(out, f->name), w->bytes);
    default:
        return read_message(f->fields, w->bytes, sim_jsonx_make(out, f->name));
    }
}

static bool read_message(const struct proto_field *fields, struct span s, json_t *out)
{
    struct wire w;
    while (s.n) {
        if (!take_field(&s, &w))
            return false;
        for (const struct proto_field *f = fields; f->number; f++)
            if (f->number == w.number && !read_field(f, &w, out))
                return false;
    }
    return true;
}

json_t *sim_proto_parse(const struct proto_field *fields, struct span body,
                        struct err *err)
{
    static const struct span magic = {"k8s", 4}; /* with its NUL */
    const struct proto_field envelope[] = {
        {1, "type", PROTO_MESSAGE, type_meta}, {2, "object", PROTO_MESSAGE, fields}, {0}};
    cleanup_json_value json_t *all = json_object();
    bool good =
        span_starts(body, magic) &&
        read_message(envelope, (struct span){body.p + magic.n, body.n - magic.n}, all);
    if (!good) {
        err_set(err, ERR_INVALID,
                "provided data does not appear to be a protobuf message");
        return NULL;
    }
    json_t *object = sim_jsonx_make(all, "object");
    json_object_update(object, sim_jsonx_make(all, "type"));
    return json_incref(object);
}
