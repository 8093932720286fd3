/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of protobuf-c from and to our structs. */
#include "kube/proto_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "kube/deviceplugin.h"
#include "kube/topology.pb-c.h"

/*
 * Memory limit of unpacking: a list of 5-byte ids takes 16 times the size of its message
 * (protobuf-c's record per field, the bytes, malloc's overhead). A list of empty structs,
 * as an attacker would send it, takes 50 times.
 */
enum {
    BYTES_PER_BYTE = 24,
    BYTES_AT_LEAST = 64 * 1024,
    OVERHEAD = 32, /* per allocation: malloc's and ours */
};

/* A repeated field of ours. */
struct list {
    const void *items;
    size_t n;
};

struct budget {
    size_t left;
    bool is_exceeded;
};

/* Header of an allocation of protobuf-c. */
union block {
    size_t n;
    max_align_t align;
};

static void *budget_alloc(void *ctx, size_t n)
{
    struct budget *b = ctx;
    if (n > b->left || b->left - n < OVERHEAD) {
        b->is_exceeded = true;
        return NULL;
    }
    b->left -= n + OVERHEAD;
    union block *block = xmalloc(sizeof *block + n);
    block->n = n;
    return block + 1;
}

static void budget_free(void *ctx, void *p)
{
    struct budget *b = ctx;
    if (!p)
        return;
    union block *block = (union block *)p - 1;
    b->left += block->n + OVERHEAD;
    free(block);
}

static void *unpack(const ProtobufCMessageDescriptor *type, struct span bytes,
                    struct err *err)
{
    struct budget budget = {BYTES_AT_LEAST + bytes.n * BYTES_PER_BYTE, false};
    ProtobufCAllocator allocator = {budget_alloc, budget_free, &budget};
    void *message = protobuf_c_message_unpack(type, &allocator, bytes.n,
                                              (const uint8_t *)(bytes.p ? bytes.p : ""));
    if (message)
        return message;
    if (budget.is_exceeded)
        err_set(err, ERR_TOO_LARGE,
                "message of %zu bytes needs more than %zu bytes of memory", bytes.n,
                BYTES_AT_LEAST + bytes.n * BYTES_PER_BYTE);
    else
        err_set(err, ERR_INVALID, "malformed message of type %s, %zu bytes",
                type->short_name, bytes.n);
    return NULL;
}

static void free_unpacked(void *message_p)
{
    struct budget unused = {0};
    ProtobufCAllocator allocator = {budget_alloc, budget_free, &unused};
    protobuf_c_message_free_unpacked(*(void **)message_p, &allocator);
}

const struct proto_type proto_topology = {
    &topology__topology__descriptor,
    NULL,
    sizeof(struct list),
    {{.type = &(const struct proto_type){
          &topology__numa_node__descriptor, NULL, sizeof(int64_t), {{.at = 0}}}}}};

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

static int check_number(const struct proto_field *f, int32_t number, struct err *err)
{
    if (f->rule == PROTO_NOT_NEGATIVE && number < 0)
        return err_set(err, ERR_INVALID, "negative number %d", (int)number);
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

static int text_of(const struct proto_field *f, const void *from,
                   ProtobufCBinaryData *out, struct err *err)
{
    struct span s = f->rule != PROTO_HEALTH ? *(const struct span *)from
                    : *(const bool *)from   ? SPAN("Healthy")
                                            : SPAN("Unhealthy");
    if (f->rule == PROTO_ID && (s.n < 1 || s.n > DP_ID_MAX))
        return err_set(err, ERR_INVALID, "%zu bytes, expected 1 to %d", s.n, DP_ID_MAX);
    if (f->rule == PROTO_VARIABLE && (!s.n || memchr(s.p, '=', s.n)))
        return err_set(err, ERR_INVALID, "invalid variable name \"%.*s\"", SPAN_ARG(s));
    *out = (ProtobufCBinaryData){s.n, (uint8_t *)(uintptr_t)s.p};
    return check_text(s, err);
}

static int value_of(const struct proto_field *f, ProtobufCType type, const void *from,
                    struct arena *a, void *out, struct err *err)
{
    switch (type) {
    case PROTOBUF_C_TYPE_BOOL:
        *(protobuf_c_boolean *)out = *(const bool *)from;
        return 0;
    case PROTOBUF_C_TYPE_INT64:
        *(int64_t *)out = *(const int64_t *)from;
        return 0;
    case PROTOBUF_C_TYPE_INT32:
        *(int32_t *)out = *(const int32_t *)from;
        return check_number(f, *(int32_t *)out, err);
    case PROTOBUF_C_TYPE_MESSAGE:
        if (f->rule == PROTO_IF_FILLED && !((const struct list *)from)->n)
            return 0;
        return message_of(f->type, from, a, out, err);
    default:
        return text_of(f, from, out, err);
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
    switch (type) {
    case PROTOBUF_C_TYPE_BOOL:
        *(bool *)out = *(const protobuf_c_boolean *)from;
        return 0;
    case PROTOBUF_C_TYPE_INT64:
        *(int64_t *)out = *(const int64_t *)from;
        return 0;
    case PROTOBUF_C_TYPE_INT32:
        *(int32_t *)out = *(const int32_t *)from;
        return check_number(f, *(int32_t *)out, err);
    case PROTOBUF_C_TYPE_MESSAGE:
        from = *(void *const *)from;
        if (!from && f->rule == PROTO_REQUIRED)
            return err_set(err, ERR_INVALID, "missing");
        return from ? struct_from(f->type, from, a, out, err) : 0;
    default:;
        struct span s = {(const char *)bytes->data, bytes->len};
        if (f->rule == PROTO_HEALTH) {
            *(bool *)out = span_eq(s, SPAN("Healthy"));
            return 0;
        }
        *(struct span *)out = s.n ? arena_copy(a, s) : SPAN("");
        return check_text(s, err);
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
    __attribute__((cleanup(free_unpacked))) void *message =
        unpack(type->wire, bytes, err);
    if (message && struct_from(type, message, a, to, err) == 0)
        return 0;
    return err_wrap(err, "%s", type->name);
}
