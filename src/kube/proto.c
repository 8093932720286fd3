/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/proto_priv.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/utf8.h"

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

void *proto_unpack(const ProtobufCMessageDescriptor *type, struct span bytes,
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

static void proto_free(void *message)
{
    struct budget unused = {0};
    ProtobufCAllocator allocator = {budget_alloc, budget_free, &unused};
    protobuf_c_message_free_unpacked(message, &allocator);
}

void proto_cleanup_free(void *message_p)
{
    proto_free(*(void **)message_p);
}

int proto_pack(const ProtobufCMessage *message, size_t max, struct buf *out,
               struct err *err)
{
    size_t n = protobuf_c_message_get_packed_size(message);
    if (n > max)
        return err_set(err, ERR_TOO_LARGE,
                       "message has %zu bytes, at most %zu are allowed", n, max);
    buf_reserve(out, n);
    protobuf_c_message_pack(message, (uint8_t *)out->p + out->n);
    out->n += n;
    out->p[out->n] = '\0';
    return 0;
}

/* Strings. ERR_INVALID: invalid UTF-8 or a NUL; the error names the field `what`[i]. */
static int proto_text_check(struct span s, const char *what, size_t i, struct err *err)
{
    for (size_t at = 0, len; at < s.n; at += len) {
        len = utf8_len((const unsigned char *)s.p + at, s.n - at);
        if (!len)
            return err_set(err, ERR_INVALID, "%s[%zu]: invalid UTF-8 at byte %zu", what,
                           i, at);
        if (!s.p[at])
            return err_set(err, ERR_INVALID, "%s[%zu]: NUL at byte %zu", what, i, at);
    }
    return 0;
}

int proto_text(const ProtobufCBinaryData *b, struct arena *a, const char *what, size_t i,
               struct span *out, struct err *err)
{
    struct span s = {(const char *)b->data, b->len};
    if (proto_text_check(s, what, i, err))
        return -1;
    *out = s.n ? arena_copy(a, s) : SPAN("");
    return 0;
}

int proto_texts(const ProtobufCBinaryData *b, size_t n, struct arena *a, const char *what,
                const struct span **out, struct err *err)
{
    struct span *items = arena_alloc(a, n * sizeof *items);
    for (size_t i = 0; i < n; i++)
        if (proto_text(&b[i], a, what, i, &items[i], err))
            return -1;
    *out = items;
    return 0;
}

int proto_bytes(struct span s, const char *what, size_t i, ProtobufCBinaryData *out,
                struct err *err)
{
    if (proto_text_check(s, what, i, err))
        return -1;
    *out = (ProtobufCBinaryData){s.n, (uint8_t *)(uintptr_t)s.p};
    return 0;
}

int proto_bytes_list(const struct span *s, size_t n, struct arena *a, const char *what,
                     ProtobufCBinaryData **out, struct err *err)
{
    ProtobufCBinaryData *items = arena_alloc(a, n * sizeof *items);
    for (size_t i = 0; i < n; i++)
        if (proto_bytes(s[i], what, i, &items[i], err))
            return -1;
    *out = items;
    return 0;
}

void *proto_array(struct arena *a, size_t n, size_t size, void ***pointers)
{
    char *items = arena_zalloc(a, n * size);
    void **p = *pointers = arena_alloc(a, n * sizeof *p);
    for (size_t i = 0; i < n; i++)
        p[i] = items + i * size;
    return items;
}

Topology__Topology *proto_topology_of(const int64_t *numa, size_t n, struct arena *a)
{
    void **pointers;
    if (!n)
        return NULL;
    Topology__Topology *t = arena_alloc(a, sizeof *t);
    Topology__NumaNode *nodes = proto_array(a, n, sizeof *nodes, &pointers);
    topology__topology__init(t);
    t->n_nodes = n;
    t->nodes = (Topology__NumaNode **)pointers;
    for (size_t i = 0; i < n; i++) {
        topology__numa_node__init(&nodes[i]);
        nodes[i].id = numa[i];
    }
    return t;
}

size_t proto_topology_from(const Topology__Topology *t, struct arena *a,
                           const int64_t **numa)
{
    if (!t || !t->n_nodes)
        return 0;
    int64_t *numbers = arena_alloc(a, t->n_nodes * sizeof *numbers);
    for (size_t i = 0; i < t->n_nodes; i++)
        numbers[i] = t->nodes[i]->id;
    *numa = numbers;
    return t->n_nodes;
}
