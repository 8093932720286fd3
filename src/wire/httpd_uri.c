/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/httpd_priv.h"

/* The value of a hexadecimal digit, or -1. */
static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte encoded by the escape at s, or -1; %00 is invalid. */
static int escape(struct span s)
{
    if (s.n < 3 || hex(s.p[1]) < 0 || hex(s.p[2]) < 0)
        return -1;
    int byte = hex(s.p[1]) << 4 | hex(s.p[2]);
    return byte ? byte : -1;
}

static bool escapes_valid(struct span s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] == '%' && escape((struct span){s.p + i, s.n - i}) < 0)
            return false;
    return true;
}

/* Decodes s, whose escapes are valid, into `to`; may decode in place. */
static void decode(struct span s, bool plus_is_space, char *to)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '%') {
            *to++ = (char)escape((struct span){s.p + i, s.n - i});
            i += 2;
        } else {
            *to++ = plus_is_space && s.p[i] == '+' ? ' ' : s.p[i];
        }
    }
    *to = '\0';
}

bool httpd_uri_parse(struct httpd_conn *p)
{
    char *s = p->target.p;
    size_t n = p->target.n;
    if (!n || s[0] != '/')
        return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] <= ' ' || s[i] == 0x7f)
            return false;
    if (memchr(s, '%', n) && !escapes_valid((struct span){s, n}))
        return false;
    char *mark = memchr(s, '?', n);
    struct span path = {s, mark ? (size_t)(mark - s) : n};
    if (mark)
        *mark = '\0';
    p->query = mark ? mark + 1 : "";
    if (memchr(path.p, '%', path.n))
        decode(path, false, s);
    return true;
}

/* A token by RFC 9110, section 5.6.2: the syntax of a header name. */
static bool is_token(struct span s)
{
    static const char marks[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i], low = (char)(c | 0x20);
        bool plain = (low >= 'a' && low <= 'z') || (c >= '0' && c <= '9') || c == '-';
        if (!plain && (c == '\0' || !strchr(marks, c)))
            return false;
    }
    return s.n > 0;
}

bool httpd_header_sane(struct span name, struct span value)
{
    for (size_t i = 0; i < value.n; i++)
        if (((unsigned char)value.p[i] < ' ' && value.p[i] != '\t') || value.p[i] == 0x7f)
            return false;
    return is_token(name);
}

static struct span decoded(struct arena *arena, struct span s)
{
    if (!s.n)
        return SPAN("");
    char *p = arena_alloc(arena, s.n + 1);
    decode(s, true, p);
    return span_of(p);
}

const char *httpd_param(const struct httpd_request *req, const char *name)
{
    struct arena *arena = &req->conn->params;
    struct span want = span_of(name), rest = span_of(req->query);
    while (rest.n) {
        struct span value = span_cut(&rest, '&');
        struct span key = span_cut(&value, '=');
        if (memchr(key.p, '%', key.n) || memchr(key.p, '+', key.n))
            key = decoded(arena, key);
        if (key.n && span_eq(key, want))
            return decoded(arena, value).p;
    }
    return NULL;
}

const char *httpd_header(const struct httpd_request *req, const char *name)
{
    const char *value = NULL;
    if (MHD_lookup_connection_value_n(req->conn->mhd, MHD_HEADER_KIND, name, strlen(name),
                                      &value, NULL) != MHD_YES)
        return NULL;
    return value ? value : "";
}

static const char *name_in(const struct httpd_request *req, int group)
{
    const struct tls_client *client = &req->conn->client;
    return client->trusted[group] ? client->name : NULL;
}

const char *httpd_client_name(const struct httpd_request *req)
{
    return name_in(req, TLS_FIRST);
}

const char *httpd_secondary_client_name(const struct httpd_request *req)
{
    return name_in(req, TLS_SECOND);
}

const char *httpd_own_client_name(const struct httpd_request *req)
{
    return name_in(req, TLS_OWN);
}

const char *httpd_any_client_name(const struct httpd_request *req)
{
    return req->conn->client.name;
}
