/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The messages of the device plugin and podresources APIs. The first byte selects the
 * message, the rest is its content. A decoded message can be encoded, unless it has ids
 * that we never write, and decoding and encoding the result gives the same bytes. Errors
 * have a text. The memory of a message is proportional to its size.
 */

#include "fuzz/fuzz.h"

#include "kube/deviceplugin.h"
#include "kube/podresources.h"

enum { MEMORY_AT_LEAST = 256 * 1024, MEMORY_PER_BYTE = 100 };

static const struct {
    const struct proto_type *type;
    bool may_reject; /* invalid ids */
} messages[] = {
    {&dp_options_type, false},         {&dp_register_type, false},
    {&dp_devices_type, true},          {&dp_ids_type, true},
    {&dp_groups_type, true},           {&dp_preferences_type, true},
    {&dp_allocations_type, false},     {&podres_list_type, false},
    {&podres_get_type, false},         {&podres_get_request_type, false},
};

enum outcome { DONE, NOT_READ, NOT_WRITTEN };

/* Decodes the bytes and encodes the message. */
static enum outcome run(const struct proto_type *type, struct span in, struct arena *a,
                        struct buf *out, struct err *err)
{
    void *m = arena_zalloc(a, type->size);
    if (proto_decode(type, in, a, m, err))
        return NOT_READ;
    return proto_encode(type, m, PODRES_MESSAGE_MAX, out, err) ? NOT_WRITTEN : DONE;
}

void fuzz_input(struct span in)
{
    cleanup_arena struct arena a = {0}, b = {0};
    cleanup_buf struct buf first = {0}, second = {0};
    struct err err = {0};
    size_t kind = fuzz_take(&in) % ARRAY_LEN(messages);
    enum outcome got = run(messages[kind].type, in, &a, &first, &err);
    fuzz_fail_if(arena_bytes(&a) > MEMORY_AT_LEAST + in.n * MEMORY_PER_BYTE,
                 "too much memory for a message");
    if (got != DONE) {
        fuzz_check_error(&err);
        fuzz_fail_if(err.code != ERR_INVALID &&
                         (err.code != ERR_TOO_LARGE || got == NOT_WRITTEN),
                     "an error of another kind");
        fuzz_fail_if(got == NOT_WRITTEN && !messages[kind].may_reject,
                     "a decoded message cannot be encoded");
        return;
    }
    got = run(messages[kind].type, buf_span(&first), &b, &second, &err);
    /* Memory is limited by the bytes, of which unknown fields are left out. */
    if (got == NOT_READ && err.code == ERR_TOO_LARGE && first.n < in.n)
        return;
    fuzz_fail_if(got != DONE, "an encoded message cannot be decoded");
    fuzz_check_same(&first, &second, "a message changes when encoded and decoded");
}
