/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * A pull parser for JSON (RFC 8259) over borrowed bytes. (The prefix is not json_*:
 * jansson, which other modules link, exports such names.)
 *
 * The caller reads the values that it expects and skips the others. Skipped values are
 * validated, too: syntax, UTF-8, escapes (a lone surrogate is an error), numbers and the
 * nesting depth. The parser does not allocate or copy: strings are spans of the input.
 *
 * Syntax errors are sticky. After the first one, every call returns "no more" or "no
 * value", so that a caller does not check each call, but jread_finish once:
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
 * A value of the wrong type is a fault of the object, not a syntax error: the parser
 * skips the value and continues, and jread_finish reports the first fault with the path
 * that the caller passed. In a list, jread_fault reports and clears the fault of one
 * object, so that the other objects are still read. `null` is accepted for every type, as
 * Go's decoder does, and leaves the target untouched. A duplicate key is delivered twice.
 *
 * Input in pieces: after jread_continue, a value that is incomplete at the end of the bytes
 * sets JREAD_TRUNCATED instead of JREAD_BAD. `struct jread` is plain data: copy it before the
 * value, append bytes to the buffer (which may move), call jread_continue on the copy, and
 * read the value again. kube/list_watch.h does this for lists and watches, with one item in
 * memory at a time.
 */

enum {
    JREAD_MAX_DEPTH = 256, /* nesting of arrays and objects */
};

enum jread_type {
    JREAD_NONE, /* no value: end of input, or an earlier error */
    JREAD_NULL,
    JREAD_BOOL,
    JREAD_NUMBER,
    JREAD_STRING,
    JREAD_ARRAY,
    JREAD_OBJECT,
};

enum jread_state {
    JREAD_OK,
    JREAD_TRUNCATED, /* more bytes are needed (after jread_continue only) */
    JREAD_BAD,
};

struct jread {
    const char *data; /* borrowed */
    size_t n;
    size_t pos;
    uint64_t objects[JREAD_MAX_DEPTH / 64]; /* bit d: level d is an object */
    const char *why;                        /* JREAD_BAD: the error, a static string */
    const char *fault, *where; /* the first fault of the object, and its path */
    size_t fault_pos;
    uint16_t depth;
    uint8_t state; /* enum jread_state */
    bool part;     /* more bytes may follow */
    bool at_first; /* in an array or object, before its first item or member */
    bool is_null;  /* the array or object that was entered is null */
};

/* A string or key without its quotes, undecoded. Borrowed from the input. `escaped`: it
 * contains a backslash, so jread_decode must decode it. `plain`, set by jread_strings only:
 * it is known to contain only bytes from 0x21 to 0x7e, and neither a quote nor a slash of
 * either kind. */
struct jread_str {
    const char *p;
    size_t n;
    bool escaped, plain;
};

void jread_init(struct jread *j, const char *data, size_t n);
/* Continues with the same bytes, possibly moved, and more appended. `last`: no more bytes
 * will follow. */
void jread_continue(struct jread *j, const char *data, size_t n, bool last);

/* The type of the next value; consumes white space only. */
enum jread_type jread_peek(struct jread *j);

/* Enters the next value, an object or array (null counts as an empty one). The caller
 * must then loop over jread_member or jread_item until it returns false. */
void jread_object(struct jread *j, const char *where);
void jread_array(struct jread *j, const char *where);
/* Moves to the next member or item, whose value the caller must then read or skip. False
 * at the end, which is consumed, or on error. */
bool jread_member(struct jread *j, struct jread_str *key);
bool jread_item(struct jread *j);

/* Reads up to max consecutive string items of an array that are separated by a comma
 * only, and returns their number. Faster than jread_item for a long list of names.
 * jread_item reads the item at which this function stops:
 *
 *     do {
 *         while ((n = jread_strings(&j, names, ARRAY_LEN(names))) > 0)
 *             ...
 *         if (!(more = jread_item(&j))) break; ... one value of any kind ...
 *     } while (more);
 */
size_t jread_strings(struct jread *j, struct jread_str *out, size_t max);

/* Each reads one value. True when *out is set; false for null and on error. */
bool jread_string(struct jread *j, const char *where, struct jread_str *out);
bool jread_bool(struct jread *j, const char *where, bool *out);
/* An integer that fits; 3.0 and 3e0 are errors, as they are to Go. */
bool jread_i64(struct jread *j, const char *where, int64_t *out);
/* A string, decoded. Borrowed from the input if it has no escapes, else from `a`. */
bool jread_text(struct jread *j, const char *where, struct arena *a, struct span *out);
/* Validates and consumes a value of any type. jread_raw also returns its bytes. */
bool jread_skip(struct jread *j);
bool jread_raw(struct jread *j, struct span *raw);

/* s decoded: the span itself if it has no escapes, else a copy in the arena. */
struct span jread_span_decoded(struct jread_str s, struct arena *a);
static inline struct span jread_span(struct jread_str s, struct arena *a)
{
    return s.escaped ? jread_span_decoded(s, a) : (struct span){s.p, s.n};
}
/* Is the decoded s equal to the literal? */
bool jread_str_eq(struct jread_str s, struct span literal);
bool jread_str_eq_nocase(struct jread_str s, struct span literal);
#define jread_key_is(key, literal) jread_str_eq((key), SPAN(literal))

/* Records a fault that the caller found in the object; the first fault wins. Both strings
 * are static. */
void jread_fail(struct jread *j, const char *where, const char *why);
/* 0 if the object has no fault. Otherwise -1 and a message; clears the fault. */
int jread_fault(struct jread *j, struct err *err);

/* 0 while the JSON is valid and not truncated. */
int jread_check(const struct jread *j, struct err *err);
/* 0 if the JSON is valid and complete, nothing but white space follows, and the object
 * has no fault. Otherwise -1 and a message with the path and the byte offset. */
int jread_finish(struct jread *j, struct err *err);
