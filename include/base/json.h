/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * A pull reader for JSON (RFC 8259) in bytes that somebody else holds.
 *
 * The caller asks for what it expects; what it does not ask for is skipped. Everything is
 * validated, also what is skipped: syntax, UTF-8, escapes (a lone surrogate is an error),
 * numbers, and a depth limit. Nothing is allocated and nothing is copied: strings come
 * back as spans of the input.
 *
 * Errors are sticky. After the first one every call answers "no more" or "nothing", so a
 * reader is written without a check behind each call, and asks json_finish once:
 *
 *     struct json j;
 *     json_init(&j, bytes, n);
 *     json_object(&j, "widget");
 *     while (json_member(&j, &key)) {
 *         if (json_key_is(key, "name"))
 *             json_string(&j, "widget.name", &name);
 *         else
 *             json_skip(&j);
 *     }
 *     if (json_finish(&j, err))
 *         return -1;
 *
 * Where a value of the wrong type stands, that is an error too, and `where`, the path that
 * the caller gave, is in its message. `null` is accepted for every type, as by Go's
 * decoder, and leaves the target untouched. A key that comes twice is delivered twice.
 *
 * Input that comes in pieces: json_init_part says that more bytes may follow. A value that
 * is cut off at the end of the bytes then sets JSON_CUT instead of JSON_BAD. `struct json`
 * is plain data: keep a copy of it from before the value, append bytes to the buffer
 * (which may move), call json_more on the copy, and read the value again. One item of a
 * list at a time need be in memory that way; see base/jsonlist.h.
 */

enum {
    JSON_MAX_DEPTH = 256, /* arrays and objects inside each other */
};

enum json_type {
    JSON_NONE, /* no value here: end of input, or an error before */
    JSON_NULL,
    JSON_BOOL,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT,
};

enum json_state {
    JSON_OK,
    JSON_CUT, /* more bytes are needed (json_init_part only) */
    JSON_BAD,
};

struct json {
    const char *data; /* borrowed */
    size_t n;
    size_t pos;
    uint64_t objects[JSON_MAX_DEPTH / 64]; /* bit d: level d is an object */
    const char *why, *where;               /* the error, in static words */
    uint16_t depth;
    uint8_t state; /* enum json_state */
    bool part;     /* more bytes may follow */
    bool fresh;    /* inside an array or object of which nothing was read yet */
    bool hollow;   /* null stood for the array or object that was stepped into */
};

/* A string or key between its quotes, as it stands in the input. Valid as long as the
 * input. `escaped`: it holds a backslash and has to be decoded by json_decode. */
struct json_str {
    const char *p;
    size_t n;
    bool escaped;
};

/* jansson, which some programs link beside this, has functions of three of these names:
 * ours go under other symbols, or the linker would take one for the other. */
#define JSON_SYMBOL(symbol) __asm__(symbol)

void json_init(struct json *j, const char *data, size_t n);
void json_init_part(struct json *j, const char *data, size_t n);
/* The same bytes, perhaps elsewhere, with more behind them. `last`: none will follow. */
void json_more(struct json *j, const char *data, size_t n, bool last);

enum json_type json_peek(struct json *j); /* type of the next value; reads only space */

/* Steps into the object or array that comes next (null counts as an empty one). A loop
 * over json_member or json_item must follow at once, and run until it answers false. */
void json_object(struct json *j, const char *where) JSON_SYMBOL("base_json_object");
void json_array(struct json *j, const char *where) JSON_SYMBOL("base_json_array");
/* Steps to the next member or item; its value is read next and must be (json_skip).
 * False at the end, which is then left behind, or at an error. */
bool json_member(struct json *j, struct json_str *key);
bool json_item(struct json *j);

/* Values. Each reads one value. True when *out was set; false for null and errors. */
bool json_string(struct json *j, const char *where, struct json_str *out)
    JSON_SYMBOL("base_json_string");
bool json_bool(struct json *j, const char *where, bool *out);
/* An integer that fits; 3.0 and 3e0 are errors, as they are to Go. */
bool json_i64(struct json *j, const char *where, int64_t *out);
/* A string, decoded. Borrowed from the input if it has no escapes, else from `a`. */
bool json_text(struct json *j, const char *where, struct arena *a, struct span *out);
/* Any value: checks it and leaves it behind. `raw` (may be NULL) gets its bytes. */
bool json_skip(struct json *j);
bool json_raw(struct json *j, struct span *raw);

/* Decodes s into out, which has room for s.n bytes (the decoded form is never longer).
 * Returns the length. s must come from a reader, which has validated it. */
size_t json_decode(struct json_str s, char *out);
/* s decoded: the span itself when it has no escapes, else a copy in the arena. */
struct span json_span(struct json_str s, struct arena *a);
/* Is the decoded s equal to the literal? */
bool json_str_eq(struct json_str s, struct span literal);
bool json_str_eq_nocase(struct json_str s, struct span literal);
#define json_key_is(key, literal) json_str_eq((key), SPAN(literal))

/* Marks what was just read as wrong for a reason of the caller's. `why` and `where` are
 * static strings. */
void json_fail(struct json *j, const char *where, const char *why);

/* 0 when all went well and nothing but white space is left; otherwise -1 and a message
 * with the path and the byte offset. */
int json_finish(struct json *j, struct err *err);
/* The same without asking that the input is at its end. */
int json_check(const struct json *j, struct err *err);
