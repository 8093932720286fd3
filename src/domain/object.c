/* SPDX-License-Identifier: Apache-2.0 */
/* Metadata of API objects, and their names. */
#include "domain/object.h"

#include "base/clock.h"

bool object_version_is_older(struct span version, struct span than)
{
    int64_t a, b;
    return span_i64(version, &a) && span_i64(than, &b) && a < b;
}

static void read_map(struct jread *j, struct arena *a, const char *where,
                     enum object_map map, const struct object_field *fields, size_t n)
{
    struct jread_str key;
    jread_object(j, where);
    while (jread_member(j, &key)) {
        const struct object_field *field = NULL;
        for (size_t i = 0; i < n && !field; i++)
            if (fields[i].map == map && jread_str_eq(key, fields[i].key))
                field = &fields[i];
        if (field)
            jread_text(j, where, a, field->out);
        else
            jread_skip(j);
    }
}

static void read_owners(struct jread *j, struct arena *a,
                        const struct object_field *fields, size_t n)
{
    struct jread_str key;
    jread_array(j, "metadata.ownerReferences");
    while (jread_item(j)) {
        struct span kind = SPAN(""), name = {0}, uid = {0};
        jread_object(j, "metadata.ownerReferences[]");
        while (jread_member(j, &key)) {
            if (jread_key_is(key, "kind"))
                jread_text(j, "metadata.ownerReferences[].kind", a, &kind);
            else if (jread_key_is(key, "name"))
                jread_text(j, "metadata.ownerReferences[].name", a, &name);
            else if (jread_key_is(key, "uid"))
                jread_text(j, "metadata.ownerReferences[].uid", a, &uid);
            else
                jread_skip(j);
        }
        for (size_t i = 0; i < n; i++) {
            const enum object_map map = fields[i].map;
            if (map == OBJECT_OTHER_OWNER
                    ? !span_eq(kind, fields[i].key)
                    : map >= OBJECT_OWNER && span_eq(kind, fields[i].key))
                *fields[i].out = map == OBJECT_OWNER       ? name
                                 : map == OBJECT_OWNER_UID ? uid
                                                           : kind;
        }
    }
}

void object_meta_read(struct jread *j, struct arena *a, struct object_meta *meta,
                      const struct object_field *fields, size_t n)
{
    struct jread_str key;
    struct span text;
    jread_object(j, "metadata");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "name"))
            jread_text(j, "metadata.name", a, &meta->name);
        else if (jread_key_is(key, "namespace"))
            jread_text(j, "metadata.namespace", a, &meta->ns);
        else if (jread_key_is(key, "uid"))
            jread_text(j, "metadata.uid", a, &meta->uid);
        else if (jread_key_is(key, "resourceVersion"))
            jread_text(j, "metadata.resourceVersion", a, &meta->version);
        else if (jread_key_is(key, "creationTimestamp")) {
            /* An invalid time counts as absent: no decision depends on it. */
            if (!jread_text(j, "metadata.creationTimestamp", a, &text) ||
                !clock_parse(text, &meta->created_s))
                meta->created_s = 0;
        } else if (jread_key_is(key, "deletionTimestamp"))
            meta->deleting = jread_text(j, "metadata.deletionTimestamp", a, &text);
        else if (jread_key_is(key, "labels")) {
            jread_peek(j);
            const size_t start = j->pos;
            read_map(j, a, "metadata.labels", OBJECT_LABEL, fields, n);
            meta->labels = (struct span){j->data + start, j->pos - start};
        } else if (jread_key_is(key, "annotations"))
            read_map(j, a, "metadata.annotations", OBJECT_ANNOTATION, fields, n);
        else if (jread_key_is(key, "ownerReferences"))
            read_owners(j, a, fields, n);
        else
            jread_skip(j);
    }
}

void object_write_owner(struct jwrite *w, struct span node, struct span uid)
{
    jwrite_array(w, "ownerReferences");
    jwrite_object(w, NULL);
    jwrite_str(w, "apiVersion", SPAN("v1"));
    jwrite_str(w, "kind", SPAN("Node"));
    jwrite_str(w, "name", node);
    jwrite_str(w, "uid", uid);
    jwrite_object_end(w);
    jwrite_array_end(w);
}

bool object_is_name(struct span name)
{
    if (name.n == 0 || name.n > OBJECT_NAME_MAX)
        return false;
    for (size_t i = 0; i < name.n; i++) {
        unsigned char c = (unsigned char)name.p[i];
        if (c <= ' ' || c == 0x7f || c == '"' || c == '/' || c == '\\')
            return false;
    }
    return true;
}

void object_meta_check(struct jread *j, const struct object_meta *meta)
{
    if (!object_is_name(meta->name))
        jread_fail(j, "metadata.name", "is missing or cannot be a name");
}

bool object_is_namespace(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");
    return n > 0 && n <= 63 && !name[n] && name[0] != '-' && name[n - 1] != '-';
}
