/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdlib.h>

#include "base/mem.h"
#include "kube/client.h"
#include "kube/credential_priv.h"

/* Error responses of the API server. */

enum {
    STATUS_MAX = 1 << 20, /* bytes of a body that is parsed as a Status */
    MESSAGE_MAX = 400,
    SHOWN_MAX = 120, /* bytes of any other body in the error message */
};

static enum err_code code_of(unsigned status)
{
    static const struct {
        unsigned status;
        enum err_code code;
    } codes[] = {
        {400, ERR_INVALID},     {401, ERR_UNAUTHORIZED}, {403, ERR_FORBIDDEN},
        {404, ERR_NOT_FOUND},   {408, ERR_TIMEOUT},      {409, ERR_CONFLICT},
        {410, ERR_GONE},        {413, ERR_TOO_LARGE},    {422, ERR_INVALID},
        {429, ERR_UNAVAILABLE}, {503, ERR_UNAVAILABLE},  {504, ERR_TIMEOUT},
    };
    for (size_t i = 0; i < ARRAY_LEN(codes); i++)
        if (codes[i].status == status)
            return codes[i].code;
    return status >= 400 && status < 500 ? ERR_INVALID : ERR_INTERNAL;
}

static bool has_text(const json_t *root, const char *key, const char *text)
{
    const char *value = json_string_value(json_object_get(root, key));
    return value && strcmp(value, text) == 0;
}

/* The timeout filter of kube-apiserver sends a Status without a kind. */
static bool is_status(const json_t *root)
{
    return json_object_get(root, "kind") ? has_text(root, "kind", "Status")
                                         : has_text(root, "status", "Failure");
}

/* The message of a Status object, or its reason; NULL for any other object. Borrowed. */
static const char *message_of(const json_t *root)
{
    const char *message = json_string_value(json_object_get(root, "message"));
    if (!is_status(root))
        return NULL;
    return message && *message ? message
                               : json_string_value(json_object_get(root, "reason"));
}

int kube_reply_check(unsigned status, struct span body, struct err *err)
{
    if (status >= 200 && status < 300)
        return 0;
    enum err_code code = code_of(status);
    bool parse = body.n && body.n <= STATUS_MAX && err;
    json_t *root = parse ? json_loadb(body.p, body.n, 0, NULL) : NULL;
    const char *message = message_of(root);
    cleanup_free char *shown = message ? kube_printable(span_of(message), MESSAGE_MAX)
                                       : kube_printable(body, SHOWN_MAX);
    json_decref(root);
    if (message || !*shown)
        return err_set(err, code, "HTTP %u%s%s", status, *shown ? ": " : "", shown);
    return err_set(err, code, "HTTP %u without a Status object: %s", status, shown);
}
