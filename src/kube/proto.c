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
    void *items;
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

/* One walk serves both directions. */
static int copy_message(const struct proto_type *type, char *message, char *ours,
                        bool encode, struct arena *a, struct err *err);

static int copy_value(const struct proto_field *f, ProtobufCType type, void *theirs,
                      void *ours, bool encode, struct arena *a, struct err *err)
{
    ProtobufCBinaryData *bytes = theirs;
    struct span *text = ours;
    void **message = theirs;
    switch (type) {
    case PROTOBUF_C_TYPE_BOOL:
        if (encode)
            *(protobuf_c_boolean *)theirs = *(bool *)ours;
        else
            *(bool *)ours = *(protobuf_c_boolean *)theirs;
        return 0;
    case PROTOBUF_C_TYPE_INT32:
        if (encode)
            *(int32_t *)theirs = *(int32_t *)ours;
        else if ((*(int32_t *)ours = *(int32_t *)theirs) < 0)
            return err_set(err, ERR_INVALID, "negative number %d", *(int32_t *)ours);
        return 0;
    case PROTOBUF_C_TYPE_MESSAGE:
        if (encode) {
            *message = arena_zalloc(a, f->type->wire->sizeof_message);
            protobuf_c_message_init(f->type->wire, *message);
        }
        return *message ? copy_message(f->type, *message, ours, encode, a, err) : 0;
    default:
        if (!encode)
            *text = arena_copy(a, (struct span){(const char *)bytes->data, bytes->len});
        else if (f->max && (text->n < 1 || text->n > f->max))
            return err_set(err, ERR_INVALID, "%zu bytes, expected 1 to %zu", text->n,
                           f->max);
        else
            *bytes = (ProtobufCBinaryData){text->n, (uint8_t *)(uintptr_t)text->p};
        return check_text(*text, err);
    }
}

/* To encode, the strings of the message are borrowed from our struct. */
static int copy_message(const struct proto_type *type, char *message, char *ours,
                        bool encode, struct arena *a, struct err *err)
{
    for (unsigned i = 0; i < type->wire->n_fields; i++) {
        const struct proto_field *f = &type->fields[i];
        const ProtobufCFieldDescriptor *d = &type->wire->fields[i];
        size_t size = f->type ? sizeof(void *) : sizeof(ProtobufCBinaryData);
        size_t our_size = f->type ? f->type->size : sizeof(struct span); /* if repeated */
        char *from = message + d->offset, *to = ours + f->at;
        size_t n = 1;
        if (d->label == PROTOBUF_C_LABEL_REPEATED) {
            size_t *count = (void *)(message + d->quantifier_offset);
            char **items = (void *)from;
            struct list *list = (void *)to;
            if (encode) {
                *count = list->n;
                *items = arena_zalloc(a, *count * size);
            } else {
                *list = (struct list){arena_zalloc(a, *count * our_size), *count};
            }
            n = *count;
            from = *items;
            to = list->items;
        }
        for (size_t k = 0; k < n; k++)
            if (copy_value(f, d->type, from + k * size, to + k * our_size, encode, a,
                           err))
                return d->label == PROTOBUF_C_LABEL_REPEATED
                           ? err_wrap(err, "%s[%zu]", d->name, k)
                           : err_wrap(err, "%s", d->name);
    }
    return 0;
}

int proto_encode(const struct proto_type *type, const void *from, size_t max,
                 struct buf *out, struct err *err)
{
    cleanup_arena struct arena a = {0};
    ProtobufCMessage *message = arena_zalloc(&a, type->wire->sizeof_message);
    protobuf_c_message_init(type->wire, message);
    int rc = copy_message(type, (char *)message, (char *)(uintptr_t)from, true, &a, err);
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

int proto_decode(const struct proto_type *type, struct span bytes, struct arena *a,
                 void *to, struct err *err)
{
    size_t most = BYTES_AT_LEAST + bytes.n * BYTES_PER_BYTE;
    struct unpacked u = {.left = most};
    ProtobufCAllocator allocator = {unpacked_alloc, unpacked_free, &u};
    ProtobufCMessage *message = protobuf_c_message_unpack(
        type->wire, &allocator, bytes.n, (const uint8_t *)(bytes.p ? bytes.p : ""));
    int rc;
    memset(to, 0, type->size);
    if (message)
        rc = copy_message(type, (char *)message, to, false, a, err);
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
