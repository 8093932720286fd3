/* SPDX-License-Identifier: Apache-2.0 */
#include "view/web.h"

#include "view/web_priv.h"

/* frame-ancestors: no other page may embed this one. img-src data: the icon is inline. */
static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/* If-None-Match: does the client have this version? (RFC 9110, 13.1.2) */
static bool has_version(const char *if_none_match, const char *etag)
{
    struct span rest = span_of(if_none_match);
    while (rest.n) {
        struct span tag = span_trim(span_cut(&rest, ','));
        if (span_starts(tag, SPAN("W/")))
            tag = (struct span){tag.p + 2, tag.n - 2};
        if (span_eq(tag, SPAN("*")) || span_eq(tag, span_of(etag)))
            return true;
    }
    return false;
}

void view_web_answer(const struct httpd_request *req, struct httpd_reply *reply)
{
    const char *path = strcmp(req->path, "/") ? req->path : "/page.html";
    const struct view_web_file *file = view_web_files;
    while (file->path && strcmp(file->path, path) != 0)
        file++;
    if (!file->path) {
        httpd_fail(reply, 404, "file not found");
        return;
    }
    const char *const headers[][2] = {
        {"ETag", file->etag},
        {"Cache-Control", "no-cache"}, /* cached, and revalidated each time */
        {"Content-Security-Policy", policy},
        {"X-Content-Type-Options", "nosniff"},
        {"Referrer-Policy", "no-referrer"},
    };
    _Static_assert(sizeof headers < sizeof reply->header,
                   "one header is left for the server");
    memcpy(reply->header, headers, sizeof headers);
    reply->content_type = file->type;
    if (has_version(httpd_header(req, "If-None-Match"), file->etag))
        reply->status = 304;
    else
        reply->fixed = (struct span){(const char *)file->bytes, file->n};
}
