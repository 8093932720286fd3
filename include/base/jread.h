/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * A pull reader for JSON (RFC 8259) in bytes that somebody else holds. (Not named json_*:
 * those names are the jansson library's, which other parts link.)
 *
 * The caller asks for what it expects; what it does not ask for is skipped. Everything is
 * validated, also what is skipped: syntax, UTF-8, escapes (a lone surrogate is an error),
 * numbers, and a depth limit. Nothing is allocated and nothing is copied: strings come
 * back as spans of the input.
 *
 * Errors in the JSON are sticky. After the first one every call answers "no more" or
 * "nothing", so a reader is written without a check behind each call, and asks
 * jread_finish once:
 *
 *     struct jread j;
 *     jread_init(&j, bytes, n);
 *     jread_object(&j, "widget");
 *     while (jread_member(&j, &key)) {
 *         if (jread_key_is(key, "name"))
 *             jread_string(&j, "widget.name", &name);
 *         else
 *             jread_skip(&j);
 *     }
 *     if (jread_finish(&j, err))
 *         return -1;
 *
 * A value of the wrong type is a fault of the object, not of the JSON: it is skipped, the
 * reader goes on, and the first such fault, with the path that the caller gave, is
 * reported at the end. In a list, jread_fault reports and forgets it, so that one bad
 * object does not stop the others. `null` is accepted for every type, as by Go's decoder,
 * and leaves the target untouched. A key that comes twice is delivered twice.
 *
 * Input that comes in pieces: jread_init_partial says that more bytes may follow. A value
 * that is cut off at the end of the bytes then sets JREAD_TRUNCATED instead of JREAD_BAD.
 * `struct jread` is plain data: keep a copy of it from before the value, append bytes to
 * the buffer (which may move), call jread_continue on the copy, and read the value again.
 * One item of a list at a time need be in memory that way; see base/jstream.h.
 */

enum {
    JREAD_MAX_DEPTH = 256, /* arrays and objects inside each other */
};

enum jread_type {
    JREAD_NONE, /* no value here: end of input, or an error before */
    JREAD_NULL,
    JREAD_BOOL,
    JREAD_NUMBER,
    JREAD_STRING,
    JREAD_ARRAY,
    JREAD_OBJECT,
};

enum jread_state {
    JREAD_OK,
    JREAD_TRUNCATED, /* more bytes are needed (jread_init_partial only) */
    JREAD_BAD,
};

struct jread {
    const char *data; /* borrowed */
    size_t n;
    size_t pos;
    uint64_t objects[JREAD_MAX_DEPTH / 64]; /* bit d: level d is an object */
    const char *why;                        /* JREAD_BAD: the error, in static words */
    const char *fault, *where; /* the first fault of the object, and its path */
    size_t fault_pos;
    uint16_t depth;
    uint8_t state; /* enum jread_state */
    bool part;     /* more bytes may follow */
    bool fresh;    /* inside an array or object of which nothing was read yet */
    bool hollow;   /* null stood for the array or object that was stepped into */
};

/* A string or key between its quotes, as it stands in the input. Valid as long as the
 * input. `escaped`: it holds a backslash and has to be decoded by jread_decode. */
struct jread_str {
    const char *p;
    size_t n;
    bool escaped;
};

void jread_init(struct jread *j, const char *data, size_t n);
void jread_init_partial(struct jread *j, const char *data, size_t n);
/* The same bytes, perhaps elsewhere, with more behind them. `last`: none will follow. */
void jread_continue(struct jread *j, const char *data, size_t n, bool last);

enum jread_type
jread_peek(struct jread *j); /* type of the next value; reads only space */

/* Steps into the object or array that comes next (null counts as an empty one). A loop
 * over jread_member or jread_item must follow at once, and run until it answers false. */
void jread_object(struct jread *j, const char *where);
void jread_array(struct jread *j, const char *where);
/* Steps to the next member or item; its value is read next and must be (jread_skip).
 * False at the end, which is then left behind, or at an error. */
bool jread_member(struct jread *j, struct jread_str *key);
bool jread_item(struct jread *j);

/* Steps over the next items of an array as long as they are strings and nothing but a
 * comma stands between them, at most max of them, and returns how many. It saves calls in
 * a long list of names. What stops it is left to jread_item, which always goes on:
 *
 *     do {
 *         while ((n = jread_strings(&j, names, ARRAY_LEN(names))) > 0)
 *             ...
 *         if (!(more = jread_item(&j))) break; ... one value of any kind ...
 *     } while (more);
 */
size_t jread_strings(struct jread *j, struct jread_str *out, size_t max);

/* Values. Each reads one value. True when *out was set; false for null and errors. */
bool jread_string(struct jread *j, const char *where, struct jread_str *out);
bool jread_bool(struct jread *j, const char *where, bool *out);
/* An integer that fits; 3.0 and 3e0 are errors, as they are to Go. */
bool jread_i64(struct jread *j, const char *where, int64_t *out);
/* A string, decoded. Borrowed from the input if it has no escapes, else from `a`. */
bool jread_text(struct jread *j, const char *where, struct arena *a, struct span *out);
/* Any value: checks it and leaves it behind. `raw` (may be NULL) gets its bytes. */
bool jread_skip(struct jread *j);
bool jread_raw(struct jread *j, struct span *raw);

/* Decodes s into out, which has room for s.n bytes (the decoded form is never longer).
 * Returns the length. s must come from a reader, which has validated it. */
size_t jread_decode(struct jread_str s, char *out);
/* s decoded: the span itself when it has no escapes, else a copy in the arena. */
struct span jread_span_decoded(struct jread_str s, struct arena *a);
static inline struct span jread_span(struct jread_str s, struct arena *a)
{
    return s.escaped ? jread_span_decoded(s, a) : (struct span){s.p, s.n};
}
/* Is the decoded s equal to the literal? */
bool jread_str_eq(struct jread_str s, struct span literal);
bool jread_str_eq_nocase(struct jread_str s, struct span literal);
#define jread_key_is(key, literal) jread_str_eq((key), SPAN(literal))

/* Reports a fault of the object found by the caller. Both are static strings. */
void jread_fail(struct jread *j, const char *where, const char *why);
/* 0 when the object had no fault. Otherwise -1 and a message; the fault is forgotten. */
int jread_fault(struct jread *j, struct err *err);

/* 0 while the JSON is good and complete so far. */
int jread_check(const struct jread *j, struct err *err);
/* 0 when the JSON is good, nothing but white space is left, and the object had no fault.
 * Otherwise -1 and a message with the path and the byte offset. */
int jread_finish(struct jread *j, struct err *err);
