/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
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

/* The bytes of a host and port by RFC 3986, section 3.2, without user information, which
 * RFC 9110, section 4.2.4, calls suspicious. */
static bool is_authority(struct span s)
{
    static const char marks[] = "-._~!$&'()*+,;=:[]";
    for (size_t i = 0; i < s.n; i++) {
        char low = (char)(s.p[i] | 0x20);
        bool plain = (low >= 'a' && low <= 'z') || (s.p[i] >= '0' && s.p[i] <= '9');
        if (!plain && (s.p[i] == '\0' || !strchr(marks, s.p[i])))
            return false;
    }
    return s.n > 0 && s.p[0] != ':';
}

static bool has_scheme(struct span target, struct span scheme)
{
    return target.n >= scheme.n &&
           span_eq_nocase((struct span){target.p, scheme.n}, scheme);
}

/* Reduces an absolute target (RFC 9112, section 3.2.2) to its path and query. */
static bool cut_authority(struct httpd_conn *p)
{
    struct span all = buf_span(&p->target), scheme = {0};
    if (has_scheme(all, SPAN("http://")))
        scheme = SPAN("http://");
    else if (has_scheme(all, SPAN("https://")))
        scheme = SPAN("https://");
    else
        return false;
    struct span rest = {all.p + scheme.n, all.n - scheme.n};
    size_t n = 0;
    while (n < rest.n && rest.p[n] != '/' && rest.p[n] != '?')
        n++;
    if (!is_authority((struct span){rest.p, n}))
        return false;
    p->host = xmemdup0(rest.p, n);
    cleanup_buf struct buf path = {0};
    if (n == rest.n || rest.p[n] != '/') /* RFC 9110, section 4.2.3 */
        buf_addc(&path, '/');
    buf_add(&path, rest.p + n, rest.n - n);
    buf_clear(&p->target);
    buf_add_span(&p->target, buf_span(&path));
    return true;
}

bool httpd_uri_parse(struct httpd_conn *p)
{
    if (!p->target.n || (p->target.p[0] != '/' && !cut_authority(p)))
        return false;
    char *s = p->target.p;
    size_t n = p->target.n;
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
    if (req->conn->host && span_eq_nocase(span_of(name), SPAN("Host")))
        return req->conn->host; /* RFC 9112, section 3.2.2: the header is ignored */
    if (MHD_lookup_connection_value_n(req->conn->mhd, MHD_HEADER_KIND, name, strlen(name),
                                      &value, NULL) != MHD_YES)
        return NULL;
    return value ? value : "";
}

struct values {
    const char *name, **values;
    size_t n, max;
};

static enum MHD_Result add_value(void *cls, enum MHD_ValueKind kind, const char *name,
                                 const char *value)
{
    (void)kind;
    struct values *v = cls;
    if (v->n < v->max && span_eq_nocase(span_of(name), span_of(v->name)))
        v->values[v->n++] = value ? value : "";
    return MHD_YES;
}

size_t httpd_headers(const struct httpd_request *req, const char *name,
                     const char **values, size_t max)
{
    struct values v = {name, values, 0, max};
    MHD_get_connection_values(req->conn->mhd, MHD_HEADER_KIND, add_value, &v);
    return v.n;
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

void httpd_trust(const struct httpd_request *req)
{
    atomic_store(&req->conn->trusted, true);
}
