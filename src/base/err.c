/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    unsigned http;
} codes[] = {
    [ERR_NONE] = {"ok", 200},
    [ERR_INVALID] = {"invalid", 400},
    [ERR_NOT_FOUND] = {"not-found", 404},
    [ERR_CONFLICT] = {"conflict", 409},
    [ERR_GONE] = {"gone", 410},
    [ERR_UNAUTHORIZED] = {"unauthorized", 401},
    [ERR_FORBIDDEN] = {"forbidden", 403},
    [ERR_TOO_LARGE] = {"too-large", 413},
    [ERR_UNAVAILABLE] = {"unavailable", 503},
    [ERR_TIMEOUT] = {"timeout", 504},
    [ERR_INTERNAL] = {"internal", 500},
};

int err_set(struct err *err, enum err_code code, const char *fmt, ...)
{
    if (!err)
        return -1;
    va_list ap;
    va_start(ap, fmt);
    err->code = code;
    vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    return -1;
}

int err_wrap(struct err *err, const char *fmt, ...)
{
    if (!err)
        return -1;
    char inner[sizeof err->msg];
    memcpy(inner, err->msg, sizeof inner);

    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof err->msg)
        snprintf(err->msg + n, sizeof err->msg - (size_t)n, ": %s", inner);
    return -1;
}

const char *err_code_name(enum err_code code)
{
    return code <= ERR_INTERNAL ? codes[code].name : "unknown";
}

unsigned err_http_status(enum err_code code)
{
    return code <= ERR_INTERNAL ? codes[code].http : 500;
}
