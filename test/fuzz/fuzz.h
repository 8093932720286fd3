/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"

/* The frame of the fuzz targets. */

/* A target: checks one input, which ends where it ends, so that a sanitizer detects every
 * overread. */
void fuzz_input(struct span in);
/* Optional in a target: appends an input to `out`. driver.c makes most of its inputs this way
 * and mutates half of them. */
void fuzz_generate(struct rng *rng, struct buf *out) __attribute__((weak));

/* Reports an error that the current input has revealed, and aborts. */
void fuzz_fail(const char *why) __attribute__((noreturn));
static inline void fuzz_fail_if(bool bad, const char *why)
{
    if (bad)
        fuzz_fail(why);
}
/* Fails if the error has no code or no text. */
void fuzz_check_error(const struct err *err);

static inline void fuzz_check_same(const struct buf *a, const struct buf *b,
                                   const char *why)
{
    fuzz_fail_if(!span_eq(buf_span(a), buf_span(b)), why);
}

/* Is every byte of the text at least `first`, and printable ASCII? */
static inline bool fuzz_is_plain(struct span text, char first)
{
    for (; text.n; text.p++, text.n--)
        if (*text.p < first || *text.p > '~')
            return false;
    return true;
}

/* Removes the first n bytes of an input, or fewer if it has fewer, and returns them. */
static inline struct span fuzz_cut(struct span *in, size_t n)
{
    struct span first = {in->p, n < in->n ? n : in->n};
    in->p += first.n;
    in->n -= first.n;
    return first;
}
/* The same with one byte; 0 if there is none. */
static inline unsigned fuzz_take(struct span *in)
{
    struct span first = fuzz_cut(in, 1);
    return first.n ? (unsigned char)*first.p : 0;
}

/* Does jansson reject text only because it cannot represent a number or a key of it? */
bool fuzz_is_unsupported(const json_error_t *error);

/* For readers that take a path: a file in memory with these bytes, one per process. Returns
 * its path, the same for every call. */
const char *fuzz_file(struct span bytes);

/* What a reader of a stream has made of it, as text. */
struct fuzz_result {
    struct buf text;
    size_t before_end; /* length of `text` before the end of the stream */
};
/* Reads in pieces of that size. `broken`: the stream then breaks off. */
typedef void (*fuzz_read_fn)(struct span in, size_t piece, bool broken,
                             struct fuzz_result *out);
/* Fails if the size of the pieces changes the result, or if the first part of the stream gives
 * anything but a prefix of it. */
void fuzz_stream(fuzz_read_fn read, struct span in, size_t piece, struct span first);
