/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/watch.h"

#include "lib/unit.h"

void watch_open(struct watch *w, unsigned port, const char *target)
{
    *w = (struct watch){0};
    raw_open(&w->c, port);
    raw_sendf(&w->c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", target);
    ck_assert_int_eq(raw_read_head(&w->c, &w->r), RAW_OK);
}

void watch_close(struct watch *w)
{
    raw_reply_fini(&w->r);
    raw_close(&w->c);
}

char *watch_line(struct watch *w)
{
    for (;;) {
        struct buf *b = &w->r.body;
        char *end = b->n ? memchr(b->p, '\n', b->n) : NULL;
        bool last = false;
        if (end) {
            char *line = lib_fmt("%.*s", (int)(end - b->p), b->p);
            b->n -= (size_t)(end + 1 - b->p);
            memmove(b->p, end + 1, b->n + 1);
            return line;
        }
        w->cut = raw_read_chunk(&w->c, &w->r, &last) != RAW_OK;
        if (w->cut || last)
            return NULL;
    }
}

char *watch_until(struct watch *w, const char *text)
{
    char *line;
    do {
        line = watch_line(w);
        ck_assert_msg(line, "the watch ended without \"%s\"", text);
    } while (*text ? !strstr(line, text) : *line);
    return line;
}
