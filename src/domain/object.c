/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/object.h"

static void read_map(struct json *j, struct arena *a, const char *where,
                     enum object_map map, const struct object_field *fields, size_t n)
{
    struct json_str key;
    json_object(j, where);
    while (json_member(j, &key)) {
        const struct object_field *field = NULL;
        for (size_t i = 0; i < n && !field; i++)
            if (fields[i].map == map && json_str_eq(key, fields[i].key))
                field = &fields[i];
        if (field)
            json_text(j, where, a, field->out);
        else
            json_skip(j);
    }
}

void object_meta_read(struct json *j, struct arena *a, struct object_meta *meta,
                      const struct object_field *fields, size_t n)
{
    struct json_str key;
    struct span text;
    json_object(j, "metadata");
    while (json_member(j, &key)) {
        if (json_key_is(key, "name"))
            json_text(j, "metadata.name", a, &meta->name);
        else if (json_key_is(key, "namespace"))
            json_text(j, "metadata.namespace", a, &meta->ns);
        else if (json_key_is(key, "uid"))
            json_text(j, "metadata.uid", a, &meta->uid);
        else if (json_key_is(key, "resourceVersion"))
            json_text(j, "metadata.resourceVersion", a, &meta->version);
        else if (json_key_is(key, "deletionTimestamp"))
            meta->deleting = json_text(j, "metadata.deletionTimestamp", a, &text);
        else if (json_key_is(key, "labels"))
            read_map(j, a, "metadata.labels", OBJECT_LABEL, fields, n);
        else if (json_key_is(key, "annotations"))
            read_map(j, a, "metadata.annotations", OBJECT_ANNOTATION, fields, n);
        else
            json_skip(j);
    }
}

void object_meta_check(struct json *j, const struct object_meta *meta)
{
    if (!meta->name.n || meta->name.n > 253) {
        json_fail(j, "metadata.name", "is missing or too long");
        return;
    }
    for (size_t i = 0; i < meta->name.n; i++) {
        unsigned char c = (unsigned char)meta->name.p[i];
        if (c <= ' ' || c == 0x7f || c == '"' || c == '/' || c == '\\') {
            json_fail(j, "metadata.name", "cannot be a name");
            return;
        }
    }
}
