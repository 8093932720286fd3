/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/grpcd_priv.h"

/*
 * Header validation. nghttp2's own validation is disabled, because it rejects an
 * :authority that is a path.
 */

enum once {
    METHOD = 1,
    SCHEME = 2,
    PATH = 4,
    AUTHORITY = 8,
    CONTENT_TYPE = 16,
    TIMEOUT = 32,
};

/* Lower-case tokens (RFC 9113, section 8.2.1); a pseudo-header begins with ':'. */
static bool name_ok(struct span name)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    size_t from = name.n && name.p[0] == ':' ? 1 : 0;
    for (size_t i = from; i < name.n; i++) {
        char c = name.p[i];
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') &&
            !(c && strchr(others, c)))
            return false;
    }
    return name.n > from;
}

static bool value_ok(struct span value)
{
    for (size_t i = 0; i < value.n; i++) {
        unsigned char c = (unsigned char)value.p[i];
        if ((c < ' ' && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

/* Visible ASCII characters, at least one. */
static bool is_visible(struct span value)
{
    for (size_t i = 0; i < value.n; i++)
        if (value.p[i] <= ' ' || value.p[i] > '~')
            return false;
    return value.n > 0;
}

static bool is_of_http1(struct span name)
{
    return span_eq(name, SPAN("connection")) ||
           span_eq(name, SPAN("transfer-encoding")) || span_eq(name, SPAN("upgrade")) ||
           span_eq(name, SPAN("keep-alive")) || span_eq(name, SPAN("proxy-connection"));
}

static void set_once(struct grpcd_headers *head, enum once what)
{
    if (head->seen & what)
        head->is_malformed = true;
    head->seen |= what;
}

static void add_pseudo(struct grpcd_headers *head, struct span name, struct span value)
{
    if (head->in_fields || !is_visible(value))
        head->is_malformed = true;
    if (span_eq(name, SPAN(":method"))) {
        set_once(head, METHOD);
        head->is_post = span_eq(value, SPAN("POST"));
    } else if (span_eq(name, SPAN(":path"))) {
        set_once(head, PATH);
        head->path_n = value.n;
        memcpy(head->path, value.p,
               value.n < sizeof head->path ? value.n : sizeof head->path);
    } else if (span_eq(name, SPAN(":scheme"))) {
        set_once(head, SCHEME);
    } else if (span_eq(name, SPAN(":authority"))) {
        set_once(head, AUTHORITY);
    } else {
        head->is_malformed = true;
    }
}

static void add_field(struct grpcd_headers *head, struct span name, struct span value)
{
    head->in_fields = true;
    if (is_of_http1(name))
        head->is_malformed = true;
    if (span_eq(name, SPAN("content-type"))) {
        set_once(head, CONTENT_TYPE);
        head->is_grpc = grpc_content_type_ok(value);
    } else if (span_eq(name, SPAN("grpc-timeout"))) {
        set_once(head, TIMEOUT);
        head->has_bad_timeout = !grpc_timeout_parse(value, &head->timeout_ms);
    }
}

void grpcd_headers_add(struct grpcd_headers *head, struct span name, struct span value)
{
    head->n++;
    head->bytes += name.n + value.n + 32; /* as HPACK counts them */
    if (head->n > GRPCD_HEADERS_MAX || head->bytes > GRPCD_HEADER_BYTES_MAX)
        head->is_too_large = true;
    if (head->is_too_large)
        return;
    if (!name_ok(name) || !value_ok(value))
        head->is_malformed = true;
    else if (name.p[0] == ':')
        add_pseudo(head, name, value);
    else
        add_field(head, name, value);
}

unsigned grpcd_headers_check(const struct grpcd_headers *head)
{
    const unsigned wanted = METHOD | SCHEME | PATH;
    if (head->is_too_large)
        return 431;
    if (head->is_malformed || (head->seen & wanted) != wanted || head->path[0] != '/')
        return GRPCD_HEADERS_RESET;
    if (!head->is_post)
        return 405;
    return head->is_grpc ? 0 : 415;
}
