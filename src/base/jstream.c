/* SPDX-License-Identifier: Apache-2.0 */
#include "base/jstream.h"

#include <string.h>

void jstream_init(struct jstream *l, enum jstream_shape shape, size_t max_item,
                  const struct jstream_handler *handler, void *ctx)
{
    *l = (struct jstream){
        .shape = shape, .handler = handler, .ctx = ctx, .max_item = max_item};
    jread_init_partial(&l->j, NULL, 0);
}

void jstream_fini(struct jstream *l)
{
    buf_fini(&l->tail);
}

static bool skip_space(struct jread *j)
{
    while (j->pos < j->n && memchr(" \n\r\t", j->data[j->pos], 4))
        j->pos++;
    return j->pos < j->n;
}

/* Reads the next item, member or bracket. False if the input holds none. */
static bool step(struct jstream *l)
{
    struct jread *j = &l->j;
    struct jread_str key;

    if (l->shape == JSTREAM_WATCH) {
        if (!skip_space(j))
            return false;
        l->handler->item(l->ctx, j);
        return true;
    }
    switch (l->state) {
    case JSTREAM_START:
        if (jread_peek(j) == JREAD_NULL)
            jread_fail(j, "list", "expected an object");
        jread_object(j, "list");
        l->state = JSTREAM_MEMBERS;
        return true;
    case JSTREAM_MEMBERS:
        if (!jread_member(j, &key)) {
            l->state = JSTREAM_END;
        } else if (jread_key_is(key, "items")) {
            jread_array(j, "items");
            l->state = JSTREAM_ITEMS;
        } else if (l->handler->member) {
            l->handler->member(l->ctx, key, j);
        } else {
            jread_skip(j);
        }
        return true;
    case JSTREAM_ITEMS:
        if (jread_item(j))
            l->handler->item(l->ctx, j);
        else
            l->state = JSTREAM_MEMBERS;
        return true;
    default:
        return false;
    }
}

/* Reads every complete item from j's position on. */
static int read_all(struct jstream *l, struct err *err)
{
    for (;;) {
        struct jread before = l->j;
        int state = l->state;
        bool more = step(l);
        if (l->j.state == JREAD_TRUNCATED) {
            l->j = before;
            l->state = state;
            return 0;
        }
        if (jread_check(&l->j, err) || jread_fault(&l->j, err))
            return -1;
        if (!more)
            return 0;
    }
}

/* Keeps the bytes from j's position on in the tail; j then points to their start. */
static void carry(struct jstream *l, const char *data, size_t n)
{
    size_t pos = l->j.pos, left = n - pos;
    if (l->tail.n) {
        memmove(l->tail.p, l->tail.p + pos, left);
        l->tail.n = left;
    } else {
        buf_add(&l->tail, data + pos, left);
    }
    l->j.pos = 0;
    /* A truncated item is read again from its start. Waiting until it has grown by an
     * eighth keeps the work linear, however small the pieces are. */
    l->retry_at = left + left / 8 + 1;
}

int jstream_feed(struct jstream *l, const char *data, size_t n, struct err *err)
{
    if (n == 0)
        return 0;
    if (l->tail.n) {
        /* The API server ends each watch event with a newline: deliver it at once. */
        bool try_now = l->shape == JSTREAM_WATCH && memchr(data, '\n', n);
        buf_add(&l->tail, data, n);
        if (l->tail.n < l->retry_at && !try_now)
            return 0;
        data = l->tail.p;
        n = l->tail.n;
    }
    jread_continue(&l->j, data, n, false);
    if (read_all(l, err))
        return -1;
    carry(l, data, n);
    if (l->tail.n > l->max_item)
        return err_set(err, ERR_TOO_LARGE, "item is larger than %zu bytes", l->max_item);
    return 0;
}

int jstream_end_truncated(struct jstream *l, struct err *err)
{
    jread_continue(&l->j, l->tail.p, l->tail.n, false);
    return read_all(l, err);
}

int jstream_end(struct jstream *l, struct err *err)
{
    jread_continue(&l->j, l->tail.p, l->tail.n, true);
    if (read_all(l, err))
        return -1;
    if (l->shape == JSTREAM_LIST && l->state != JSTREAM_END)
        return err_set(err, ERR_INVALID, "unexpected end of the list");
    return jread_finish(&l->j, err);
}
