/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz/replies.h"

#include <string.h>

#include "fuzz/fuzz.h"

static bool take_line(struct span *rest, struct span *line)
{
    const char *end = memmem(rest->p, rest->n, "\r\n", 2);
    if (!end)
        return false;
    *line = (struct span){rest->p, (size_t)(end - rest->p)};
    rest->n -= line->n + 2;
    rest->p = end + 2;
    return true;
}

static uint64_t number_of(struct span digits, unsigned base)
{
    uint64_t n = 0;
    if (!digits.n || digits.n > 9)
        fuzz_fail("a length that is not a number");
    for (size_t i = 0; i < digits.n; i++) {
        const char *all = "0123456789abcdef", *at = strchr(all, digits.p[i] | 0x20);
        if (!at || (unsigned)(at - all) >= base)
            fuzz_fail("a length that is not a number");
        n = n * base + (unsigned)(at - all);
    }
    return n;
}

struct head {
    unsigned status;
    bool has_length, chunked, closes;
    uint64_t length;
};

static void read_header(struct head *h, struct span line)
{
    struct span value = line, name = span_cut(&value, ':');
    if (!name.n || !value.p || memchr(name.p, ' ', name.n))
        fuzz_fail("a malformed header");
    for (size_t i = 0; i < value.n; i++)
        if ((unsigned char)value.p[i] < ' ' && value.p[i] != '\t')
            fuzz_fail("a control character in a header");
    value = span_trim(value);
    if (span_eq_nocase(name, SPAN("Content-Length"))) {
        if (h->has_length)
            fuzz_fail("two Content-Length headers");
        h->has_length = true;
        h->length = number_of(value, 10);
    } else if (span_eq_nocase(name, SPAN("Transfer-Encoding"))) {
        h->chunked = true;
    } else if (span_eq_nocase(name, SPAN("Connection"))) {
        h->closes = span_eq_nocase(value, SPAN("close"));
    }
}

static void read_head(struct span *rest, struct head *h)
{
    struct span line;
    *h = (struct head){0};
    if (!take_line(rest, &line))
        fuzz_fail("an unterminated status line");
    if (line.n < 13 ||
        !(span_starts(line, SPAN("HTTP/1.1 ")) || span_starts(line, SPAN("HTTP/1.0 "))))
        fuzz_fail("a malformed status line");
    h->status = (unsigned)number_of((struct span){line.p + 9, 3}, 10);
    if (h->status < 100 || h->status > 599 || line.p[12] != ' ')
        fuzz_fail("a malformed status");
    for (;;) {
        if (!take_line(rest, &line))
            fuzz_fail("unterminated headers");
        if (!line.n)
            break;
        read_header(h, line);
    }
    if (h->chunked && h->has_length)
        fuzz_fail("both Content-Length and Transfer-Encoding");
}

/* Returns false if the body ends between two chunks. */
static bool skip_chunks(struct span *rest)
{
    for (;;) {
        struct span line;
        if (!rest->n)
            return false;
        if (!take_line(rest, &line))
            fuzz_fail("a chunk without a length");
        uint64_t n = number_of(line, 16);
        if (rest->n < n + 2 || memcmp(rest->p + n, "\r\n", 2) != 0)
            fuzz_fail("an incomplete chunk");
        rest->p += n + 2;
        rest->n -= n + 2;
        if (!n)
            return true;
    }
}

/* A reply to HEAD has a length, but no body. */
static bool has_no_body(struct span rest, bool may_be_head)
{
    return may_be_head && (!rest.n || span_starts(rest, SPAN("HTTP/1.")));
}

/* libmicrohttpd 0.9.75 sends the head of its reply twice when it rejects a Content-Length
 * that is too large or not a number, and closes the connection. */
static bool is_sent_twice(const struct head *h, struct span head, struct span rest)
{
    return (h->status == 400 || h->status == 413) && h->closes && span_starts(rest, head);
}

void replies_check(struct span rest, bool may_be_head)
{
    while (rest.n) {
        struct head h;
        struct span head = rest;
        read_head(&rest, &h);
        head.n -= rest.n;
        if (is_sent_twice(&h, head, rest))
            read_head(&rest, &h);
        if (h.status < 200 || h.status == 204 || h.status == 304)
            continue;
        if (h.chunked) {
            if (!has_no_body(rest, may_be_head) && !skip_chunks(&rest))
                return;
        } else if (h.has_length) {
            if (has_no_body(rest, may_be_head))
                continue;
            if (rest.n < h.length)
                fuzz_fail("an incomplete body");
            rest.p += h.length;
            rest.n -= h.length;
        } else if (h.closes) {
            return; /* the body ends with the connection */
        } else {
            fuzz_fail("a body without a length");
        }
    }
}
