/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "base/utf8.h"
#include "wire/grpc_priv.h"

enum { STATUSES = GRPC_UNAUTHENTICATED + 1 };

static const struct {
    const char *name;
    enum err_code code;
} statuses[STATUSES] = {
    [GRPC_OK] = {"OK", ERR_NONE},
    [GRPC_CANCELLED] = {"CANCELLED", ERR_UNAVAILABLE},
    [GRPC_UNKNOWN] = {"UNKNOWN", ERR_INTERNAL},
    [GRPC_INVALID_ARGUMENT] = {"INVALID_ARGUMENT", ERR_INVALID},
    [GRPC_DEADLINE_EXCEEDED] = {"DEADLINE_EXCEEDED", ERR_TIMEOUT},
    [GRPC_NOT_FOUND] = {"NOT_FOUND", ERR_NOT_FOUND},
    [GRPC_ALREADY_EXISTS] = {"ALREADY_EXISTS", ERR_CONFLICT},
    [GRPC_PERMISSION_DENIED] = {"PERMISSION_DENIED", ERR_FORBIDDEN},
    [GRPC_RESOURCE_EXHAUSTED] = {"RESOURCE_EXHAUSTED", ERR_UNAVAILABLE},
    [GRPC_FAILED_PRECONDITION] = {"FAILED_PRECONDITION", ERR_CONFLICT},
    [GRPC_ABORTED] = {"ABORTED", ERR_CONFLICT},
    [GRPC_OUT_OF_RANGE] = {"OUT_OF_RANGE", ERR_INVALID},
    [GRPC_UNIMPLEMENTED] = {"UNIMPLEMENTED", ERR_INVALID},
    [GRPC_INTERNAL] = {"INTERNAL", ERR_INTERNAL},
    [GRPC_UNAVAILABLE] = {"UNAVAILABLE", ERR_UNAVAILABLE},
    [GRPC_DATA_LOSS] = {"DATA_LOSS", ERR_INTERNAL},
    [GRPC_UNAUTHENTICATED] = {"UNAUTHENTICATED", ERR_UNAUTHORIZED},
};

const char *grpc_status_name(enum grpc_status status)
{
    return (unsigned)status < STATUSES ? statuses[status].name : "unknown status";
}

enum err_code grpc_status_err(enum grpc_status status)
{
    return (unsigned)status < STATUSES ? statuses[status].code : ERR_INTERNAL;
}

enum grpc_status grpc_status_of(enum err_code code)
{
    switch (code) {
    case ERR_NONE:
        return GRPC_OK;
    case ERR_INVALID:
        return GRPC_INVALID_ARGUMENT;
    case ERR_NOT_FOUND:
        return GRPC_NOT_FOUND;
    case ERR_CONFLICT:
    case ERR_GONE:
        return GRPC_FAILED_PRECONDITION;
    case ERR_UNAUTHORIZED:
        return GRPC_UNAUTHENTICATED;
    case ERR_FORBIDDEN:
        return GRPC_PERMISSION_DENIED;
    case ERR_TOO_LARGE:
        return GRPC_RESOURCE_EXHAUSTED;
    case ERR_UNAVAILABLE:
        return GRPC_UNAVAILABLE;
    case ERR_TIMEOUT:
        return GRPC_DEADLINE_EXCEEDED;
    case ERR_INTERNAL:
        break;
    }
    return GRPC_INTERNAL;
}

size_t grpc_reader_length(const struct grpc_reader *r)
{
    return (size_t)r->head[1] << 24 | (size_t)r->head[2] << 16 | (size_t)r->head[3] << 8 |
           r->head[4];
}

bool grpc_reader_is_empty(const struct grpc_reader *r)
{
    return r->head_n == 0;
}

enum grpc_read grpc_reader_take(struct grpc_reader *r, struct span *in)
{
    while (r->head_n < sizeof r->head) {
        if (!in->n)
            return GRPC_READ_MORE;
        r->head[r->head_n++] = (unsigned char)*in->p++;
        in->n--;
    }
    if (r->head[0])
        return r->head[0] == 1 ? GRPC_READ_COMPRESSED : GRPC_READ_BAD_FLAG;
    size_t want = grpc_reader_length(r);
    if (want > r->max)
        return GRPC_READ_TOO_LARGE;
    size_t n = want - r->body.n < in->n ? want - r->body.n : in->n;
    buf_add(&r->body, in->p, n);
    in->p += n;
    in->n -= n;
    return r->body.n == want ? GRPC_READ_MESSAGE : GRPC_READ_MORE;
}

void grpc_reader_next(struct grpc_reader *r)
{
    r->head_n = 0;
    buf_clear(&r->body);
}

void grpc_reader_fini(struct grpc_reader *r)
{
    buf_fini(&r->body);
}

void grpc_message_head(unsigned char head[GRPC_HEAD], size_t n)
{
    head[0] = 0;
    head[1] = (unsigned char)(n >> 24);
    head[2] = (unsigned char)(n >> 16);
    head[3] = (unsigned char)(n >> 8);
    head[4] = (unsigned char)n;
}

void grpc_percent_encode(struct buf *out, struct span s)
{
    static const char hex[] = "0123456789ABCDEF";
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c >= ' ' && c <= '~' && c != '%') {
            buf_addc(out, (char)c);
            continue;
        }
        buf_addc(out, '%');
        buf_addc(out, hex[c >> 4]);
        buf_addc(out, hex[c & 15]);
    }
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Replaces control characters and invalid UTF-8 by '?', in place. */
static void make_printable(char *p, size_t n)
{
    for (size_t i = 0, len; i < n; i += len) {
        len = utf8_len((unsigned char *)p + i, n - i);
        if (!len || (unsigned char)p[i] < ' ' || p[i] == 0x7f) {
            p[i] = '?';
            len = 1;
        }
    }
}

void grpc_percent_decode(struct buf *out, struct span s)
{
    size_t from = out->n;
    for (size_t i = 0; i < s.n; i++) {
        int high = s.p[i] == '%' && s.n - i > 2 ? hex_value(s.p[i + 1]) : -1;
        int low = high >= 0 ? hex_value(s.p[i + 2]) : -1;
        if (low < 0) {
            buf_addc(out, s.p[i]);
            continue;
        }
        buf_addc(out, (char)(high << 4 | low));
        i += 2;
    }
    if (out->n > from)
        make_printable(out->p + from, out->n - from);
}

/* Nanoseconds per unit of grpc-timeout; 0: unknown unit. */
static int64_t unit_ns(char unit)
{
    switch (unit) {
    case 'H':
        return 3600 * INT64_C(1000000000);
    case 'M':
        return 60 * INT64_C(1000000000);
    case 'S':
        return INT64_C(1000000000);
    case 'm':
        return 1000000;
    case 'u':
        return 1000;
    case 'n':
        return 1;
    default:
        return 0;
    }
}

bool grpc_timeout_parse(struct span s, int64_t *ms)
{
    enum { DIGITS = 8 };
    const int64_t ns_per_ms = 1000000;
    int64_t value = 0;
    if (s.n < 2 || s.n > DIGITS + 1)
        return false;
    for (size_t i = 0; i < s.n - 1; i++) {
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
        value = value * 10 + (s.p[i] - '0');
    }
    int64_t unit = unit_ns(s.p[s.n - 1]);
    if (!unit)
        return false;
    *ms = unit >= ns_per_ms ? value * (unit / ns_per_ms)
                            : (value * unit + ns_per_ms - 1) / ns_per_ms;
    return true;
}

void grpc_timeout_format(struct buf *out, int64_t ms)
{
    const int64_t max = 99999999;
    int64_t seconds = (ms + 999) / 1000;
    if (ms <= max) {
        buf_add_i64(out, ms);
        buf_addc(out, 'm');
        return;
    }
    buf_add_i64(out, seconds < max ? seconds : max);
    buf_addc(out, 'S');
}

bool grpc_content_type_ok(struct span s)
{
    const struct span want = SPAN("application/grpc");
    if (s.n < want.n || !span_eq_nocase((struct span){s.p, want.n}, want))
        return false;
    return s.n == want.n || s.p[want.n] == '+' || s.p[want.n] == ';';
}

bool grpc_address(const char *path, struct sockaddr_un *addr, struct err *err)
{
    size_t n = strlen(path);
    if (!n || n > GRPC_PATH_MAX) {
        err_set(err, ERR_INVALID, "%s: socket path has %zu bytes, expected 1 to %d", path,
                n, GRPC_PATH_MAX);
        return false;
    }
    *addr = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(addr->sun_path, path, n);
    return true;
}

nghttp2_nv grpc_field(struct span name, struct span value)
{
    return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name.p,
                        .namelen = name.n,
                        .value = (uint8_t *)(uintptr_t)(value.p ? value.p : ""),
                        .valuelen = value.n};
}
