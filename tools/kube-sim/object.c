/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

/* Objects: metadata, names, and the bytes that are sent. */

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
    static const char *const first[] = {"name", "namespace", "uid", "resourceVersion",
                                        "creationTimestamp"};
    cleanup_json_value json_t *rest = json_copy(old);
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

static struct span field_value(const struct field *field, const json_t *root)
{
    json_t *v = sim_jsonx_at(root, field->path ? field->path : field->name);
    if (json_is_string(v))
        return sim_jsonx_text(v);
    if (json_is_boolean(v))
        return span_of(json_is_true(v) ? "true" : "false");
    return span_of(field->otherwise ? field->otherwise : "");
}

static size_t count_fields(const struct kind *kind)
{
    size_t n = 0;
    while (kind->fields[n].name)
        n++;
    return n;
}

static size_t texts_size(const struct kind *kind, const json_t *root, json_t *labels)
{
    size_t n = 0;
    const char *key;
    json_t *v;
    for (const struct field *f = kind->fields; f->name; f++)
        n += field_value(f, root).n;
    json_object_foreach(labels, key, v) n += strlen(key) + json_string_length(v);
    return n;
}

static void put_texts(struct object *o, char **at, const json_t *root, json_t *labels)
{
    const char *key;
    json_t *v;
    size_t i = 0;
    for (const struct field *f = o->kind->fields; f->name; f++)
        o->fields[i++] = span_put(field_value(f, root), at);
    i = 0;
    json_object_foreach(labels, key, v)
    {
        o->labels[i].key = span_put(span_of(key), at);
        o->labels[i++].value = span_put(sim_jsonx_text(v), at);
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

static void put_key(struct object *o, char **at, struct span ns, struct span name)
{
    char *start = *at;
    if (o->kind->namespaced) {
        o->ns = span_put(ns, at);
        span_put(SPAN("/"), at);
    }
    o->name = span_put(name, at);
    o->key = (struct span){start, (size_t)(*at - start)};
}

static void set_rv(json_t *root, uint64_t rv)
{
    char digits[STR_U64 + 1];
    *str_put_u64(digits, rv) = '\0';
    sim_jsonx_set_str(json_object_get(root, "metadata"), "resourceVersion", digits);
}

struct object *sim_object_new(const struct kind *kind, json_t *given, uint64_t rv)
{
    set_rv(given, rv);
    cleanup_json_value json_t *root = order_members(kind, given);
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
    char *at = (char *)(o->fields + n_fields);
    put_key(o, &at, ns, name);
    o->uid = span_put(uid, &at);
    put_texts(o, &at, root, labels);
    o->bytes = span_put(buf_span(&bytes), &at);
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

enum { ANNOTATIONS_MAX = 256 * 1024 };

static void check_name(const struct kind *kind, const json_t *object, struct faultlist *f)
{
    struct span name = sim_jsonx_span(object, "metadata.name");
    bool label = strcmp(kind->kind, "Namespace") == 0;
    if (!name.n)
        sim_fault_required(f, "metadata.name", "name or generateName is required");
    else if (label && memchr(name.p, '.', name.n))
        sim_fault_invalid(f, "metadata.name", name, "must not contain dots");
    else if (label ? !sim_name_is_dns_label(name) : !sim_name_is_dns_subdomain(name))
        sim_fault_invalid(f, "metadata.name", name,
                          label ? sim_name_dns_label_rule : sim_name_dns_subdomain_rule);
}

static void check_key(const char *field, struct span key, struct span shown,
                      struct faultlist *f)
{
    if (!sim_name_is_qualified(key))
        sim_fault_invalid(f, field, shown,
                          span_starts(key, SPAN("/")) ? "prefix part must be non-empty"
                                                      : sim_name_qualified_rule);
}

static void check_labels(json_t *labels, struct faultlist *f)
{
    const char *key;
    json_t *value;
    json_object_foreach(labels, key, value)
    {
        check_key("metadata.labels", span_of(key), span_of(key), f);
        if (!sim_name_is_label_value(sim_jsonx_text(value)))
            sim_fault_invalid(f, "metadata.labels", sim_jsonx_text(value),
                              sim_name_label_value_rule);
    }
}

static void check_annotations(json_t *annotations, struct faultlist *f)
{
    const char *key;
    json_t *value;
    size_t total = 0;
    json_object_foreach(annotations, key, value)
    {
        /* Annotation keys are validated in lower case. */
        cleanup_free char *lower = xstrdup(key);
        for (char *c = lower; *c; c++)
            if (*c >= 'A' && *c <= 'Z')
                *c = (char)(*c + ('a' - 'A'));
        check_key("metadata.annotations", span_of(lower), span_of(key), f);
        total += strlen(key) + json_string_length(value);
    }
    if (total > ANNOTATIONS_MAX)
        sim_fault_too_long(f, "metadata.annotations", ANNOTATIONS_MAX);
}

void sim_meta_check(const struct kind *kind, const json_t *object, struct faultlist *f)
{
    check_name(kind, object, f);
    check_labels(sim_jsonx_at(object, "metadata.labels"), f);
    check_annotations(sim_jsonx_at(object, "metadata.annotations"), f);
}

static void carry(json_t *meta, const json_t *old, const char *key, bool fixed,
                  struct faultlist *f)
{
    json_t *before = json_object_get(old, key), *after = json_object_get(meta, key);
    if (!after || json_is_null(after) || !fixed) {
        if (before)
            json_object_set(meta, key, before);
        else
            json_object_del(meta, key);
        return;
    }
    if (before && json_equal(before, after))
        return;
    cleanup_buf struct buf field = {0}, value = {0};
    buf_printf(&field, "metadata.%s", key);
    if (json_is_string(after))
        buf_add_span(&value, sim_jsonx_text(after));
    else
        sim_jsonx_dump(&value, after);
    sim_fault_invalid(f, field.p, buf_span(&value), "field is immutable");
}

void sim_meta_carry_over(json_t *object, const json_t *old, struct faultlist *f)
{
    static const char *const fixed[] = {"name", "namespace", "uid", "deletionTimestamp",
                                        "deletionGracePeriodSeconds"};
    json_t *meta = json_object_get(object, "metadata");
    const json_t *before = json_object_get(old, "metadata");
    for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
        carry(meta, before, fixed[i], true, f);
    carry(meta, before, "creationTimestamp", false, f);
}

const char sim_name_dns_label_rule[] =
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or "
    "'-', and must start and end with an alphanumeric character (e.g. 'my-name',  or "
    "'123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const char sim_name_dns_subdomain_rule[] =
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
    "'-' or '.', and must start and end with an alphanumeric character (e.g. "
    "'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const char sim_name_qualified_rule[] =
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or "
    "'123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const char sim_name_label_value_rule[] =
    "a valid label must be an empty string or consist of alphanumeric characters, '-', "
    "'_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  "
    "or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

enum { LABEL_MAX = 63, SUBDOMAIN_MAX = 253 };

/* Begins and ends with a letter or digit; in between may also be those of `inner`. */
static bool is_word(struct span s, size_t max, bool upper, const char *inner)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                     (upper && c >= 'A' && c <= 'Z');
        if (!plain && (i == 0 || i + 1 == s.n || !c || !strchr(inner, c)))
            return false;
    }
    return s.n && s.n <= max;
}

bool sim_name_is_dns_label(struct span s)
{
    return is_word(s, LABEL_MAX, false, "-");
}

bool sim_name_is_dns_subdomain(struct span s)
{
    bool good = s.n && s.n <= SUBDOMAIN_MAX;
    while (good && s.p)
        good = is_word(span_cut(&s, '.'), SUBDOMAIN_MAX, false, "-");
    return good;
}

static bool is_plain_name(struct span s)
{
    return is_word(s, LABEL_MAX, true, "-_.");
}

bool sim_name_is_qualified(struct span s)
{
    struct span rest = s;
    struct span first = span_cut(&rest, '/');
    if (!rest.p)
        return is_plain_name(first);
    return sim_name_is_dns_subdomain(first) && is_plain_name(rest);
}

bool sim_name_is_label_value(struct span s)
{
    return s.n == 0 || is_plain_name(s);
}
