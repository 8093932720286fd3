/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/jwrite.h"
#include "domain/object.h"

/*
 * Tables of fields: how each member of a JSON object is read into a struct, checked, and
 * written. Members that the table lacks are skipped. Members are written in the order of the
 * table, by name, so that equal structs are equal bytes.
 */

enum field_type {
    FIELD_TEXT,     /* struct span; written unless empty */
    FIELD_QUANTITY, /* struct span: a string, or a number as users write in manifests */
    FIELD_FLAG,     /* bool; written if true */
    FIELD_NUMBER,   /* int64_t; out of range: a fault */
    FIELD_INDEX,    /* int32_t, always written; out of range: a fault */
    FIELD_MEASURED, /* int64_t; out of range: unknown, and no fault, because a fault makes
                       the cards of the node unusable */
    FIELD_META,     /* struct object_meta, without labels and annotations; not written */
    FIELD_OBJECT,   /* a struct with a table of its own; not written */
    FIELD_LIST,     /* `read` reads each item; `write` all */
    FIELD_RAW,      /* struct span: the value as JSON, borrowed; not written */
    FIELD_OTHER,    /* `read` and `write` */
};

/* Numbers that equal `absent` are not written, unless `has` names a flag that says so. */
enum absent { ABSENT_ZERO, ABSENT_NEGATIVE, ABSENT_NEVER };

struct field_reader {
    struct jread *j;
    struct arena *a;
    bool all; /* also the fields with `all` */
};

struct field {
    struct span name;
    const char *where; /* the path, for messages; NULL: that of the object */
    size_t at;         /* offset of the value in the struct */
    enum field_type type;
    enum absent absent;
    size_t
        has; /* offset of the flag that a value is there, of numbers and objects; 0: none */
    bool all; /* read on demand only */
    int64_t min, max;
    const char *why;            /* of a fault */
    const struct field *fields; /* of an object */
    /* `at`: the value in the struct; `object`: the struct. Types LIST and OTHER. */
    void (*read)(struct field_reader *r, const struct field *f, void *at);
    void (*write)(struct jwrite *w, const void *object);
};

#define FIELD(path, key, object, member)                                                 \
    .name = {key, sizeof(key) - 1}, .where = path key,                                   \
    .at = offsetof(struct object, member)
#define FIELDS_END                                                                       \
    {                                                                                    \
        .name = { 0 }                                                                    \
    }
/* The members of an object, and a number that may be any. */
#define FIELD_IS_OBJECT(table) .type = FIELD_OBJECT, .fields = (table)
#define FIELD_IS_NUMBER        .type = FIELD_NUMBER, .min = INT64_MIN, .max = INT64_MAX

/* The tables end with FIELDS_END. */
void fields_read(struct field_reader *r, const char *where, const struct field *fields,
                 void *object);
void fields_write(struct jwrite *w, const struct field *fields, const void *object);

/* A string or a number. *text is unchanged if there is none. */
void fields_read_quantity(struct jread *j, const char *where, struct arena *a,
                          struct span *text);
