/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/*
 * Errors: a code and a message.
 *
 * A fallible function returns 0 or -1 (or a pointer or NULL) and takes a `struct err *`
 * last. The struct belongs to the caller, has a fixed size, and is never allocated or
 * freed. A function that succeeds leaves it untouched. NULL is accepted: the caller does
 * not need the error.
 */

enum err_code {
    ERR_NONE = 0,
    ERR_INVALID,      /* the input is invalid; a retry cannot succeed */
    ERR_NOT_FOUND,    /* the named object does not exist */
    ERR_CONFLICT,     /* the object was changed by another writer, or is in use */
    ERR_GONE,         /* the requested resource version has expired (HTTP 410) */
    ERR_UNAUTHORIZED, /* missing or invalid credentials (HTTP 401) */
    ERR_FORBIDDEN,    /* the credentials do not allow the request (HTTP 403) */
    ERR_TOO_LARGE,    /* a size limit is exceeded */
    ERR_UNAVAILABLE,  /* temporary failure; a retry may succeed */
    ERR_TIMEOUT,      /* no response in time: the outcome is unknown */
    ERR_INTERNAL,     /* a failure that should not happen */
};

struct err {
    enum err_code code;
    char msg[512];
};

/* Sets code and message, which is truncated to the size of msg. Always returns -1, so
 * that a caller fails in one statement: `return err_set(err, ERR_INVALID, "port: %s is
 * not a number", s);` */
int err_set(struct err *err, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Prepends context and ": " to the message: "bind default/p1: ...". Keeps the code.
 * Always returns -1. */
int err_wrap(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The code as a word for logs: "invalid", "not-found", ... Never NULL. */
const char *err_code_name(enum err_code code);

/* The HTTP status for an error reply with this code. */
unsigned err_http_status(enum err_code code);
