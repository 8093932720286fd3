/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/object_priv.h"

#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"

static void move_member(json_t *to, json_t *from, const char *key)
{
    json_t *v = json_object_get(from, key);
    if (!v)
        return;
    json_object_set(to, key, v);
    json_object_del(from, key);
}

/* Puts the members first whose position in the bytes is searched for. */
static json_t *order_metadata(json_t *old)
{
    static const char *const first[] = {
        "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"};
    cleanup_json json_t *rest = json_copy(old);
    json_t *meta = json_object();
    for (size_t i = 0; i < ARRAY_LEN(first); i++)
        move_member(meta, rest, first[i]);
    json_object_update(meta, rest);
    return meta;
}

static json_t *order_members(const struct kind *kind, json_t *root)
{
    cleanup_buf struct buf version = {0};
    sim_kind_add_group_version(kind, &version);
    json_t *ordered = json_object();
    sim_jsonx_set_str(ordered, "kind", kind->kind);
    json_object_set_new(ordered, "apiVersion", json_stringn(version.p, version.n));
    json_object_set_new(ordered, "metadata",
                        order_metadata(json_object_get(root, "metadata")));
    json_object_update_missing(ordered, root);
    return ordered;
}

/* A field's value as text; `scratch` owns the text of a value that is not a string. */
static struct span field_value(const struct field *field, const json_t *root,
                               char scratch[static 24])
{
    json_t *v = sim_jsonx_at(root, field->path ? field->path : field->name);
    if (json_is_string(v))
        return sim_jsonx_text(v);
    if (json_is_boolean(v))
        return span_of(json_is_true(v) ? "true" : "false");
    if (json_is_integer(v)) {
        struct buf digits = {0};
        buf_add_i64(&digits, json_integer_value(v));
        memcpy(scratch, digits.p, digits.n);
        size_t n = digits.n;
        buf_fini(&digits);
        return (struct span){scratch, n};
    }
    return span_of(field->otherwise ? field->otherwise : "");
}

static size_t count_fields(const struct kind *kind)
{
    size_t n = 0;
    while (kind->fields[n].name)
        n++;
    return n;
}

/* An object is one block of memory; the cutter allocates its parts. */
struct cutter {
    char *at;
};

static struct span cut(struct cutter *c, struct span s)
{
    char *p = c->at;
    if (s.n)
        memcpy(p, s.p, s.n);
    c->at += s.n;
    return (struct span){p, s.n};
}

static size_t texts_size(const struct kind *kind, const json_t *root, json_t *labels)
{
    size_t n = 0;
    char scratch[24];
    const char *key;
    json_t *v;
    for (const struct field *f = kind->fields; f->name; f++)
        n += field_value(f, root, scratch).n;
    json_object_foreach(labels, key, v) n += strlen(key) + json_string_length(v);
    return n;
}

static void cut_texts(struct object *o, struct cutter *c, const json_t *root,
                      json_t *labels)
{
    char scratch[24];
    const char *key;
    json_t *v;
    size_t i = 0;
    for (const struct field *f = o->kind->fields; f->name; f++)
        o->fields[i++] = cut(c, field_value(f, root, scratch));
    i = 0;
    json_object_foreach(labels, key, v)
    {
        o->labels[i].key = cut(c, span_of(key));
        o->labels[i++].value = cut(c, sim_jsonx_text(v));
    }
}

static void find_rv(struct object *o)
{
    static const char mark[] = "\"resourceVersion\":\"";
    const char *at = memmem(o->bytes.p, o->bytes.n, mark, sizeof mark - 1);
    assert(at); /* sim_object_new sets it, and only validated names precede it */
    at += sizeof mark - 1;
    o->rv_at = (size_t)(at - o->bytes.p);
    o->rv_n = strspn(at, "0123456789");
}

static void cut_key(struct object *o, struct cutter *c, struct span ns, struct span name)
{
    char *start = c->at;
    if (o->kind->namespaced) {
        o->ns = cut(c, ns);
        cut(c, SPAN("/"));
    }
    o->name = cut(c, name);
    o->key = (struct span){start, (size_t)(c->at - start)};
}

static void set_rv(json_t *root, uint64_t rv)
{
    cleanup_buf struct buf digits = {0};
    buf_add_i64(&digits, (int64_t)rv);
    json_object_set_new(json_object_get(root, "metadata"), "resourceVersion",
                        json_stringn(digits.p, digits.n));
}

struct object *sim_object_new(const struct kind *kind, json_t *given, uint64_t rv)
{
    set_rv(given, rv);
    cleanup_json json_t *root = order_members(kind, given);
    cleanup_buf struct buf bytes = {0};
    buf_reserve(&bytes, 2048);
    sim_jsonx_dump(&bytes, root);
    json_t *labels = sim_jsonx_at(root, "metadata.labels");
    struct span ns = sim_jsonx_span(root, "metadata.namespace");
    struct span name = sim_jsonx_span(root, "metadata.name");
    struct span uid = sim_jsonx_span(root, "metadata.uid");
    size_t n_fields = count_fields(kind), n_labels = json_object_size(labels);
    size_t size = sizeof(struct object) + n_fields * sizeof(struct span) +
                  n_labels * sizeof(struct object_label) + ns.n + 1 + name.n + uid.n +
                  texts_size(kind, root, labels) + bytes.n;
    struct object *o = xmalloc(size);
    *o = (struct object){.refs = 1,
                         .kind = kind,
                         .rv = rv,
                         .deleting = sim_jsonx_at(root, "metadata.deletionTimestamp"),
                         .n_labels = n_labels};
    o->labels = (struct object_label *)(o + 1);
    o->fields = (struct span *)(o->labels + n_labels);
    struct cutter c = {(char *)(o->fields + n_fields)};
    cut_key(o, &c, ns, name);
    o->uid = cut(&c, uid);
    cut_texts(o, &c, root, labels);
    o->bytes = cut(&c, buf_span(&bytes));
    const char *meta = memmem(o->bytes.p, o->bytes.n, "\"metadata\":", 11);
    o->head = (size_t)(meta - o->bytes.p);
    find_rv(o);
    return o;
}

struct object *sim_object_ref(struct object *o)
{
    __atomic_add_fetch(&o->refs, 1, __ATOMIC_RELAXED);
    return o;
}

void sim_object_unref(struct object *o)
{
    if (o && __atomic_sub_fetch(&o->refs, 1, __ATOMIC_ACQ_REL) == 0)
        free(o);
}

json_t *sim_object_parse(const struct object *o)
{
    json_t *root = sim_jsonx_parse(o->bytes, NULL);
    assert(root); /* sim_object_new wrote the bytes */
    return root;
}

static void move_span(struct span *s, const struct object *from, struct object *to)
{
    if (s->p)
        s->p = (char *)to + (s->p - (const char *)from);
}

/* Copies the block and relocates the spans into it. */
struct object *sim_object_with_rv(const struct object *from, uint64_t rv)
{
    cleanup_buf struct buf digits = {0};
    buf_add_i64(&digits, (int64_t)rv);
    size_t before = (size_t)(from->bytes.p - (const char *)from);
    size_t size = before + from->bytes.n - from->rv_n + digits.n;
    struct object *o = xmalloc(size);
    /* Without the count, which other threads may change. */
    size_t count = offsetof(struct object, kind);
    memcpy((char *)o + count, (const char *)from + count, before + from->rv_at - count);
    o->refs = 1;
    o->rv = rv;
    move_span(&o->key, from, o);
    move_span(&o->ns, from, o);
    move_span(&o->name, from, o);
    move_span(&o->uid, from, o);
    o->labels = (struct object_label *)(o + 1);
    o->fields = (struct span *)(o->labels + o->n_labels);
    for (size_t i = 0; i < o->n_labels; i++) {
        move_span(&o->labels[i].key, from, o);
        move_span(&o->labels[i].value, from, o);
    }
    for (size_t i = 0; i < count_fields(o->kind); i++)
        move_span(&o->fields[i], from, o);
    char *bytes = (char *)o + before;
    size_t tail = from->rv_at + from->rv_n;
    memcpy(bytes + o->rv_at, digits.p, digits.n);
    memcpy(bytes + o->rv_at + digits.n, from->bytes.p + tail, from->bytes.n - tail);
    o->bytes = (struct span){bytes, size - before};
    o->rv_n = digits.n;
    return o;
}

void sim_object_add_bytes(const struct object *o, uint64_t rv, struct buf *out)
{
    buf_add(out, o->bytes.p, o->rv_at);
    buf_add_i64(out, (int64_t)rv);
    buf_add(out, o->bytes.p + o->rv_at + o->rv_n, o->bytes.n - o->rv_at - o->rv_n);
}

void sim_object_add_item(const struct object *o, struct buf *out)
{
    if (o->kind->custom) {
        buf_add_span(out, o->bytes);
        return;
    }
    buf_addc(out, '{');
    buf_add(out, o->bytes.p + o->head, o->bytes.n - o->head);
}
