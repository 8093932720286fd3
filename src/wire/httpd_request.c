/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/mem.h"
#include "wire/httpd_priv.h"

/*
 * libmicrohttpd calls on_line after the request line; then on_request once with the
 * headers, once per piece of the body and once at its end, unless a reply was queued
 * before; then on_completed, in any case.
 *
 * A reply can be queued with the headers, which closes the connection, or at the end of
 * the body, but not in between.
 */

enum { PRESIZE_MAX = 64 << 10 };

/* Copies the raw target, which libmicrohttpd is about to split in place. The query is
 * hidden from libmicrohttpd: with very many parameters it would run out of its buffer and
 * never reply. */
void *httpd_on_line(void *cls, const char *uri, struct MHD_Connection *mhd)
{
    (void)cls;
    struct httpd_conn *p =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    httpd_conn_begin(p);
    buf_clear(&p->target);
    buf_adds(&p->target, uri);
    char *query = (char *)strchr(uri, '?');
    if (query)
        query[1] = '\0';
    return p;
}

/* Disables libmicrohttpd's decoding: httpd_uri.c decodes paths and parameters. */
size_t httpd_on_unescape(void *cls, struct MHD_Connection *mhd, char *s)
{
    (void)cls, (void)mhd;
    return strlen(s);
}

struct head {
    unsigned hosts;
    const char *wrong; /* why the request is malformed, or NULL */
    bool has_length, has_coding, chunked;
    uint64_t length;
};

static void read_length(struct head *head, struct span value)
{
    uint64_t n = 0;
    if (head->has_length)
        head->wrong = "more than one Content-Length";
    head->has_length = true;
    if (!value.n)
        head->wrong = "malformed Content-Length";
    for (size_t i = 0; i < value.n; i++) {
        unsigned digit = (unsigned char)value.p[i] - (unsigned)'0';
        if (digit > 9)
            head->wrong = "malformed Content-Length";
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, digit, &n))
            n = UINT64_MAX;
    }
    head->length = n;
}

static enum MHD_Result on_header(void *cls, enum MHD_ValueKind kind, const char *name,
                                 size_t name_n, const char *value, size_t value_n)
{
    (void)kind;
    struct head *head = cls;
    struct span k = {name, name_n}, v = {value ? value : "", value ? value_n : 0};
    if (!httpd_header_sane(k, v))
        head->wrong = "malformed header";
    if (span_eq_nocase(k, SPAN("Content-Length"))) {
        read_length(head, v);
    } else if (span_eq_nocase(k, SPAN("Transfer-Encoding"))) {
        if (head->has_coding || !span_eq_nocase(v, SPAN("chunked")))
            head->wrong = "unsupported Transfer-Encoding";
        head->has_coding = head->chunked = true;
    } else if (span_eq_nocase(k, SPAN("Host"))) {
        head->hosts++;
    } else if (span_eq_nocase(k, SPAN("Expect"))) {
        if (!span_eq_nocase(v, SPAN("100-continue")))
            head->wrong = "unsupported Expect";
    }
    return head->wrong ? MHD_NO : MHD_YES;
}

static const char *read_head(struct httpd_conn *p, struct head *head)
{
    MHD_get_connection_values_n(p->mhd, MHD_HEADER_KIND, on_header, head);
    if (head->wrong)
        return head->wrong;
    if (head->hosts != 1 && !(p->http_1_0 && head->hosts == 0)) /* RFC 9112, 3.2 */
        return "expected exactly one Host header";
    if (head->chunked && head->has_length)
        return "both Content-Length and Transfer-Encoding";
    if (head->chunked && p->http_1_0)
        return "Transfer-Encoding in HTTP/1.0";
    if (!httpd_uri_parse(p))
        return "malformed request target";
    return NULL;
}

static enum MHD_Result reject_now(struct httpd_conn *p, unsigned status, const char *why)
{
    p->error_status = status;
    p->why = why;
    p->must_linger = true;
    return httpd_reject(p);
}

/* A GET has no use for a large body. */
static size_t max_body(const struct httpd_conn *p)
{
    size_t max = p->listener->conf.max_body;
    bool get = p->route && p->route->method && strcmp(p->route->method, "GET") == 0;
    return get && max > HTTPD_GET_BODY_MAX ? HTTPD_GET_BODY_MAX : max;
}

static enum MHD_Result on_head(struct httpd_conn *p, const char *version)
{
    struct head head = {0};
    p->http_1_0 = strcmp(version, "HTTP/1.0") == 0;
    const char *wrong = read_head(p, &head);
    if (wrong)
        return reject_now(p, MHD_HTTP_BAD_REQUEST, wrong);
    p->chunked = head.chunked;
    p->length = head.length;
    httpd_route(p);
    if (!p->chunked && !p->length)
        return MHD_YES;
    if (p->error_status)
        return reject_now(p, p->error_status, p->why);
    enum MHD_Result rejected;
    /* Without a thread the request may have to wait, which is possible only at the end of
     * the body: libmicrohttpd calls again for a header when the connection is resumed. */
    if (p->listener->conf.mode == HTTPD_THREADS && !httpd_authorize(p, &rejected))
        return rejected;
    if (p->length > max_body(p))
        return reject_now(p, MHD_HTTP_CONTENT_TOO_LARGE, "request body is too large");
    buf_reserve(&p->body, p->length < PRESIZE_MAX ? p->length : PRESIZE_MAX);
    return MHD_YES;
}

/* Discards the body without closing the connection, because a reply can only be queued at
 * the end of the body. */
static enum MHD_Result discard(struct httpd_conn *p, size_t n)
{
    buf_fini(&p->body);
    httpd_conn_uncharge(p);
    p->discarded += n;
    return p->discarded > HTTPD_DISCARD_MAX ? MHD_NO : MHD_YES;
}

static enum MHD_Result on_body(struct httpd_conn *p, const char *data, size_t n)
{
    if (httpd_conn_is_closed(p))
        return MHD_NO;
    if (p->error_status)
        return discard(p, n);
    if (n > max_body(p) - p->body.n) {
        p->error_status = MHD_HTTP_CONTENT_TOO_LARGE;
        p->why = "request body is too large";
        return discard(p, n);
    }
    if (!httpd_conn_charge(p, n)) {
        p->error_status = MHD_HTTP_SERVICE_UNAVAILABLE;
        p->why = "too many bytes of request bodies in memory";
        return discard(p, n);
    }
    /* Doubles the buffer, but not beyond Content-Length. */
    if (!p->chunked && p->body.cap - p->body.n <= n) {
        uint64_t left = p->length - p->body.n;
        buf_reserve(&p->body, left < p->body.n + n ? left : p->body.n + n);
    }
    buf_add(&p->body, data, n);
    return MHD_YES;
}

enum MHD_Result httpd_on_request(void *cls, struct MHD_Connection *mhd, const char *url,
                                 const char *method, const char *version,
                                 const char *data, size_t *data_n, void **ctx)
{
    (void)cls, (void)mhd, (void)url;
    struct httpd_conn *p = *ctx;
    if (!p->seen_head) {
        p->seen_head = true;
        p->method = method;
        return on_head(p, version);
    }
    if (*data_n) {
        size_t n = *data_n;
        *data_n = 0;
        return on_body(p, data, n);
    }
    return p->error_status ? httpd_reject(p) : httpd_handle(p);
}

void httpd_on_completed(void *cls, struct MHD_Connection *mhd, void **ctx,
                        enum MHD_RequestTerminationCode why)
{
    (void)cls, (void)mhd, (void)why;
    struct httpd_conn *p = *ctx;
    if (p)
        httpd_conn_end(p);
    *ctx = NULL;
}
