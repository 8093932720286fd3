/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/object.h"

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
        else if (jread_key_is(key, "deletionTimestamp"))
            meta->deleting = jread_text(j, "metadata.deletionTimestamp", a, &text);
        else if (jread_key_is(key, "labels"))
            read_map(j, a, "metadata.labels", OBJECT_LABEL, fields, n);
        else if (jread_key_is(key, "annotations"))
            read_map(j, a, "metadata.annotations", OBJECT_ANNOTATION, fields, n);
        else
            jread_skip(j);
    }
}

bool object_is_name(struct span name)
{
    for (size_t i = 0; i < name.n; i++) {
        unsigned char c = (unsigned char)name.p[i];
        if (c <= ' ' || c == 0x7f || c == '"' || c == '/' || c == '\\')
            return false;
    }
    return name.n > 0 && name.n <= 253;
}

void object_meta_check(struct jread *j, const struct object_meta *meta)
{
    if (!object_is_name(meta->name))
        jread_fail(j, "metadata.name", "is missing or cannot be a name");
}
