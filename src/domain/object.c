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

static bool may_stand_in_name(unsigned char c)
{
    return c > ' ' && c != 0x7f && c != '"' && c != '/' && c != '\\';
}

/* The same for eight bytes at once: each term has a top bit set when a byte is wrong. */
static bool eight_may_stand_in_name(const char *p)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    uint64_t v;
    memcpy(&v, p, sizeof v);
    uint64_t del = v ^ (ones * 0x7f), quote = v ^ (ones * '"'), slash = v ^ (ones * '/'),
             back = v ^ (ones * '\\');
    uint64_t wrong = ((v - ones * 0x21) & ~v) | ((del - ones) & ~del) |
                     ((quote - ones) & ~quote) | ((slash - ones) & ~slash) |
                     ((back - ones) & ~back);
    return !(wrong & tops);
}

bool object_is_name(struct span name)
{
    if (name.n == 0 || name.n > 253)
        return false;
    if (name.n < 8) {
        for (size_t i = 0; i < name.n; i++)
            if (!may_stand_in_name((unsigned char)name.p[i]))
                return false;
        return true;
    }
    for (size_t i = 0; i + 8 <= name.n; i += 8)
        if (!eight_may_stand_in_name(name.p + i))
            return false;
    return eight_may_stand_in_name(name.p + name.n - 8); /* the rest, and some again */
}

void object_meta_check(struct jread *j, const struct object_meta *meta)
{
    if (!object_is_name(meta->name))
        jread_fail(j, "metadata.name", "is missing or cannot be a name");
}
