/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The messages of the device plugin and podresources APIs. The first byte selects the
 * message, the rest is its content. A decoded message can be encoded, unless it has ids
 * or names that we never write, and decoding and encoding the result gives the same
 * bytes. (The result may be shorter, without unknown fields, and be rejected because it
 * takes more memory than its size allows.) Errors have a text. The memory of a message is
 * proportional to its size.
 */

#include "fuzz/fuzz.h"

#include "base/mem.h"
#include "kube/deviceplugin.h"
#include "kube/podresources.h"

enum { MEMORY_AT_LEAST = 256 * 1024, MEMORY_PER_BYTE = 100 };

/* Decodes the bytes and encodes the message. */
enum outcome { DONE, NOT_READ, NOT_WRITTEN };
typedef enum outcome (*codec_fn)(struct span in, struct arena *a, struct buf *out,
                                 struct err *err);

#define CODEC(name, type)                                                                \
    static enum outcome name(struct span in, struct arena *a, struct buf *out,           \
                             struct err *err)                                            \
    {                                                                                    \
        struct type m;                                                                   \
        if (name##_decode(in, a, &m, err))                                               \
            return NOT_READ;                                                             \
        return name##_encode(&m, out, err) ? NOT_WRITTEN : DONE;                         \
    }
CODEC(dp_register, dp_register)
CODEC(dp_devices, dp_devices)
CODEC(dp_ids, dp_ids)
CODEC(dp_groups, dp_groups)
CODEC(dp_preferences, dp_preferences)
CODEC(dp_allocations, dp_allocations)
CODEC(podres_list, podres_list)
CODEC(podres_get, podres_pod)
CODEC(podres_allocatable, podres_allocatable)

static enum outcome dp_options(struct span in, struct arena *a, struct buf *out,
                               struct err *err)
{
    struct dp_options m;
    (void)a;
    if (dp_options_decode(in, &m, err))
        return NOT_READ;
    return dp_options_encode(&m, out, err) ? NOT_WRITTEN : DONE;
}

static enum outcome podres_get_request(struct span in, struct arena *a, struct buf *out,
                                       struct err *err)
{
    struct span ns, name;
    if (podres_get_request_decode(in, a, &ns, &name, err))
        return NOT_READ;
    return podres_get_request_encode(ns, name, out, err) ? NOT_WRITTEN : DONE;
}

static const struct {
    codec_fn run;
    bool may_reject; /* invalid ids, or names of variables */
} codecs[] = {
    {dp_options, false},         {dp_register, false},
    {dp_devices, true},          {dp_ids, true},
    {dp_groups, true},           {dp_preferences, true},
    {dp_allocations, true},      {podres_list, false},
    {podres_get, false},         {podres_allocatable, false},
    {podres_get_request, false},
};

static void check_error(const struct err *err)
{
    if (err->code != ERR_INVALID && err->code != ERR_TOO_LARGE)
        fuzz_fail("an unexpected error code");
    if (!err->msg[0])
        fuzz_fail("an error without text");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_arena struct arena a = {0}, b = {0};
    cleanup_buf struct buf first = {0}, second = {0};
    struct err err = {0};
    if (size < 1)
        return 0;
    size_t kind = data[0] % ARRAY_LEN(codecs);
    struct span in = {(const char *)data + 1, size - 1};
    enum outcome got = codecs[kind].run(in, &a, &first, &err);
    if (arena_bytes(&a) > MEMORY_AT_LEAST + in.n * MEMORY_PER_BYTE)
        fuzz_fail("too much memory for a message");
    if (got != DONE) {
        check_error(&err);
        if (got == NOT_WRITTEN && !codecs[kind].may_reject)
            fuzz_fail("a decoded message cannot be encoded");
        return 0;
    }
    got = codecs[kind].run(buf_span(&first), &b, &second, &err);
    if (got == NOT_READ && err.code == ERR_TOO_LARGE && first.n < in.n)
        return 0;
    if (got != DONE)
        fuzz_fail("an encoded message cannot be decoded");
    if (!span_eq(buf_span(&first), buf_span(&second)))
        fuzz_fail("a message changes when encoded and decoded");
    return 0;
}
