/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes JSON objects by tables of their fields. */
#include "domain/fields.h"

void fields_read_quantity(struct jread *j, const char *where, struct arena *a,
                          struct span *text)
{
    struct span raw;
    if (jread_peek(j) != JREAD_NUMBER)
        jread_text(j, where, a, text);
    else if (jread_raw(j, &raw))
        *text = raw;
}

static void read_field(struct field_reader *r, const struct field *f, char *object)
{
    struct jread *j = r->j;
    void *at = object + f->at;
    switch (f->type) {
    case FIELD_TEXT:
        jread_text(j, f->where, r->a, at);
        break;
    case FIELD_QUANTITY:
        fields_read_quantity(j, f->where, r->a, at);
        break;
    case FIELD_FLAG:
        jread_bool(j, f->where, at);
        break;
    case FIELD_NUMBER:
    case FIELD_INDEX:
    case FIELD_MEASURED: {
        int64_t v = 0;
        bool read = jread_i64(j, f->where, &v), valid = v >= f->min && v <= f->max;
        if (read && !valid && f->type != FIELD_MEASURED)
            jread_fail(j, f->where, f->why);
        else if (read && valid && f->type == FIELD_INDEX)
            *(int32_t *)at = (int32_t)v;
        else if (read && valid)
            *(int64_t *)at = v;
        if (f->has)
            *(bool *)(object + f->has) = read && valid;
        break;
    }
    case FIELD_META:
        object_meta_read(j, r->a, at, NULL, 0);
        break;
    case FIELD_OBJECT:
        if (f->has)
            *(bool *)(object + f->has) = jread_peek(j) != JREAD_NULL;
        fields_read(r, f->where, f->fields, at);
        break;
    case FIELD_LIST:
        jread_array(j, f->where);
        while (jread_item(j))
            f->read(r, f, at);
        break;
    case FIELD_RAW:
        jread_raw(j, at);
        break;
    case FIELD_OTHER:
        f->read(r, f, at);
        break;
    }
}

void fields_read(struct field_reader *r, const char *where, const struct field *fields,
                 void *object)
{
    struct jread_str key;
    jread_object(r->j, where);
    while (jread_member(r->j, &key)) {
        const struct field *f = fields;
        while (f->name.n && !jread_str_eq(key, f->name))
            f++;
        struct field member = *f;
        member.where = f->where ? f->where : where;
        if (!f->name.n || (f->all && !r->all))
            jread_skip(r->j);
        else
            read_field(r, &member, object);
    }
}

void fields_write(struct jwrite *w, const struct field *fields, const void *object)
{
    jwrite_object(w, NULL);
    for (const struct field *f = fields; f->name.n; f++) {
        const void *at = (const char *)object + f->at;
        if (f->write)
            f->write(w, object);
        else if (f->type == FIELD_TEXT)
            jwrite_str_set(w, f->name.p, *(const struct span *)at);
        else if (f->type == FIELD_INDEX)
            jwrite_i64(w, f->name.p, *(const int32_t *)at);
        else if (f->type != FIELD_FLAG) {
            int64_t v = *(const int64_t *)(const void *)(object + f->at);
            if (f->has ? *(const bool *)(object + f->has)
                       : f->absent == ABSENT_NEVER ||
                             (f->absent == ABSENT_ZERO ? v != 0 : v >= 0))
                jwrite_i64(w, f->name.p, v);
        } else if (*(const bool *)at)
            jwrite_bool(w, f->name.p, true);
    }
    jwrite_object_end(w);
}
