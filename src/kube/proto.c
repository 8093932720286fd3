/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of protobuf-c from and to our structs. */
#include "kube/proto.h"

#include <protobuf-c/protobuf-c.h>
#include <string.h>

#include "base/utf8.h"

/* Memory limit of unpacking: a list of 5-byte ids takes 16 times the size of its message. A list
 * of empty structs, as an attacker would send it, takes over 50 times. */
enum {
    BYTES_PER_BYTE = 24,
    BYTES_AT_LEAST = 64 * 1024,
    OVERHEAD = 16, /* per allocation: the arena's alignment */
};

/* An unpacked message: all of its memory. */
struct unpacked {
    struct arena a;
    size_t left;
    bool is_exceeded;
};

static void *unpacked_alloc(void *ctx, size_t n)
{
    struct unpacked *u = ctx;
    u->is_exceeded |= n + OVERHEAD > u->left;
    if (u->is_exceeded)
        return NULL;
    u->left -= n + OVERHEAD;
    return arena_alloc(&u->a, n);
}

static void unpacked_free(void *ctx, void *p)
{
    (void)ctx, (void)p; /* the arena's end */
}

/* A repeated field of ours. */
struct list {
    const void *items;
    size_t n;
};

static int check_text(struct span s, struct err *err)
{
    for (size_t at = 0, len; at < s.n; at += len) {
        len = utf8_len((const unsigned char *)s.p + at, s.n - at);
        if (!len)
            return err_set(err, ERR_INVALID, "invalid UTF-8 at byte %zu", at);
        if (!s.p[at])
            return err_set(err, ERR_INVALID, "NUL at byte %zu", at);
    }
    return 0;
}

/* The bytes between two items of a repeated field. */
static size_t item_size(const struct proto_field *f)
{
    return f->type ? f->type->size : sizeof(struct span);
}

static int wrap(const ProtobufCFieldDescriptor *d, size_t i, struct err *err)
{
    return d->label == PROTOBUF_C_LABEL_REPEATED ? err_wrap(err, "%s[%zu]", d->name, i)
                                                 : err_wrap(err, "%s", d->name);
}

static int message_of(const struct proto_type *type, const void *from, struct arena *a,
                      ProtobufCMessage **out, struct err *err);

static int value_of(const struct proto_field *f, ProtobufCType type, const void *from,
                    struct arena *a, void *out, struct err *err)
{
    const struct span *text = from;
    switch (type) {
    case PROTOBUF_C_TYPE_BOOL:
        *(protobuf_c_boolean *)out = *(const bool *)from;
        return 0;
    case PROTOBUF_C_TYPE_INT32:
        *(int32_t *)out = *(const int32_t *)from;
        return 0;
    case PROTOBUF_C_TYPE_MESSAGE:
        return message_of(f->type, from, a, out, err);
    default:
        if (f->max && (text->n < 1 || text->n > f->max))
            return err_set(err, ERR_INVALID, "%zu bytes, expected 1 to %zu", text->n,
                           f->max);
        *(ProtobufCBinaryData *)out =
            (ProtobufCBinaryData){text->n, (uint8_t *)(uintptr_t)text->p};
        return check_text(*text, err);
    }
}

/* The message of a struct. Its strings are borrowed. */
static int message_of(const struct proto_type *type, const void *from, struct arena *a,
                      ProtobufCMessage **out, struct err *err)
{
    char *m = arena_zalloc(a, type->wire->sizeof_message);
    protobuf_c_message_init(type->wire, m);
    *out = (ProtobufCMessage *)(void *)m;
    for (unsigned i = 0; i < type->wire->n_fields; i++) {
        const struct proto_field *f = &type->fields[i];
        const ProtobufCFieldDescriptor *d = &type->wire->fields[i];
        struct list list = {(const char *)from + f->at, 1};
        char *to = m + d->offset;
        size_t size = f->type ? sizeof(void *) : sizeof(ProtobufCBinaryData);
        if (d->label == PROTOBUF_C_LABEL_REPEATED) {
            list = *(const struct list *)list.items;
            *(size_t *)(void *)(m + d->quantifier_offset) = list.n;
            to = *(void **)(void *)to = arena_zalloc(a, list.n * size);
        }
        for (size_t k = 0; k < list.n; k++)
            if (value_of(f, d->type, (const char *)list.items + k * item_size(f), a,
                         to + k * size, err))
                return wrap(d, k, err);
    }
    return 0;
}

int proto_encode(const struct proto_type *type, const void *from, size_t max,
                 struct buf *out, struct err *err)
{
    cleanup_arena struct arena a = {0};
    ProtobufCMessage *message;
    int rc = message_of(type, from, &a, &message, err);
    size_t n = rc ? 0 : protobuf_c_message_get_packed_size(message);
    if (n > max)
        rc = err_set(err, ERR_TOO_LARGE, "message has %zu bytes, at most %zu are allowed",
                     n, max);
    if (rc)
        return err_wrap(err, "%s", type->name);
    buf_reserve(out, n);
    protobuf_c_message_pack(message, (uint8_t *)out->p + out->n);
    out->n += n;
    out->p[out->n] = '\0';
    return 0;
}

static int struct_from(const struct proto_type *type, const void *message,
                       struct arena *a, void *out, struct err *err);

static int value_from(const struct proto_field *f, ProtobufCType type, const void *from,
                      struct arena *a, void *out, struct err *err)
{
    const ProtobufCBinaryData *bytes = from;
    struct span *text = out;
    switch (type) {
    case PROTOBUF_C_TYPE_BOOL:
        *(bool *)out = *(const protobuf_c_boolean *)from;
        return 0;
    case PROTOBUF_C_TYPE_INT32:
        *(int32_t *)out = *(const int32_t *)from;
        return *(int32_t *)out < 0
                   ? err_set(err, ERR_INVALID, "negative number %d", *(int32_t *)out)
                   : 0;
    case PROTOBUF_C_TYPE_MESSAGE:
        from = *(void *const *)from;
        return from ? struct_from(f->type, from, a, out, err) : 0;
    default:
        *text = arena_copy(a, (struct span){(const char *)bytes->data, bytes->len});
        return check_text(*text, err);
    }
}

static int struct_from(const struct proto_type *type, const void *message,
                       struct arena *a, void *out, struct err *err)
{
    const char *m = message;
    memset(out, 0, type->size);
    for (unsigned i = 0; i < type->wire->n_fields; i++) {
        const struct proto_field *f = &type->fields[i];
        const ProtobufCFieldDescriptor *d = &type->wire->fields[i];
        const char *from = m + d->offset;
        char *to = (char *)out + f->at;
        size_t n = 1, size = f->type ? sizeof(void *) : sizeof(ProtobufCBinaryData);
        if (d->label == PROTOBUF_C_LABEL_REPEATED) {
            from = *(void *const *)(const void *)from;
            n = *(const size_t *)(const void *)(m + d->quantifier_offset);
            char *items = arena_zalloc(a, n * item_size(f));
            *(struct list *)(void *)to = (struct list){items, n};
            to = items;
        }
        for (size_t k = 0; k < n; k++)
            if (value_from(f, d->type, from + k * size, a, to + k * item_size(f), err))
                return wrap(d, k, err);
    }
    return 0;
}

int proto_decode(const struct proto_type *type, struct span bytes, struct arena *a,
                 void *to, struct err *err)
{
    size_t most = BYTES_AT_LEAST + bytes.n * BYTES_PER_BYTE;
    struct unpacked u = {.left = most};
    ProtobufCAllocator allocator = {unpacked_alloc, unpacked_free, &u};
    ProtobufCMessage *message = protobuf_c_message_unpack(
        type->wire, &allocator, bytes.n, (const uint8_t *)(bytes.p ? bytes.p : ""));
    int rc;
    if (message)
        rc = struct_from(type, message, a, to, err);
    else if (u.is_exceeded)
        rc = err_set(err, ERR_TOO_LARGE,
                     "message of %zu bytes needs more than %zu bytes of memory", bytes.n,
                     most);
    else
        rc = err_set(err, ERR_INVALID, "malformed message of type %s, %zu bytes",
                     type->wire->short_name, bytes.n);
    arena_fini(&u.a);
    return rc ? err_wrap(err, "%s", type->name) : 0;
}
