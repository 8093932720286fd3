/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/*
 * What went wrong, and why, in words.
 *
 * A fallible function returns 0 or -1 (or a pointer or NULL) and takes a `struct err *`
 * last. The struct belongs to the caller, has a fixed size, and is never allocated or
 * freed. A function that succeeds leaves it untouched. NULL is accepted and means that
 * the caller does not want the words.
 */

enum err_code {
    ERR_NONE = 0,
    ERR_INVALID,      /* the input is wrong; repeating the call cannot help */
    ERR_NOT_FOUND,    /* the named thing does not exist */
    ERR_CONFLICT,     /* the thing changed in between, or is taken */
    ERR_GONE,         /* the wanted version is no longer kept (HTTP 410) */
    ERR_UNAUTHORIZED, /* no or wrong credentials (HTTP 401) */
    ERR_FORBIDDEN,    /* the credentials do not allow this (HTTP 403) */
    ERR_TOO_LARGE,    /* a limit on size was passed */
    ERR_UNAVAILABLE,  /* not now; repeating the call later may help */
    ERR_TIMEOUT,      /* no answer in time: the outcome is unknown */
    ERR_INTERNAL,     /* something that should not happen */
};

struct err {
    enum err_code code;
    char msg[512];
};

/* Sets code and message (cut at the size of msg). Always returns -1, so that failing is
 * one statement: `return err_set(err, ERR_INVALID, "port: %s is not a number", s);` */
int err_set(struct err *err, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts what the caller was doing in front of the message: "bind default/p1: ...".
 * Keeps the code. Always returns -1. */
int err_wrap(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The code as a word for logs: "invalid", "not-found", ... Never NULL. */
const char *err_code_name(enum err_code code);

/* The HTTP status that stands for the code when it is answered over HTTP. */
unsigned err_http_status(enum err_code code);
