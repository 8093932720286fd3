/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/gzip_priv.h"

#include <stdlib.h>
#include <zlib.h>

#include "base/mem.h"

enum {
    LEVEL = 1,
    WINDOW = 15 + 16, /* 15: the largest; 16: gzip format */
    MEMORY = 8,       /* zlib's default */
    ROOM = 16 * 1024, /* output bytes reserved at a time */
    INPUT_MAX = 1 << 30,
};

struct gzip {
    z_stream z;
};

bool sim_gzip_wanted(const char *accept_encoding)
{
    struct span rest = span_of(accept_encoding);
    while (rest.n)
        if (span_eq(span_trim(span_cut(&rest, ',')), SPAN("gzip")))
            return true;
    return false;
}

static void *take(void *opaque, unsigned n, unsigned size)
{
    (void)opaque;
    return xcalloc(n, size);
}

static void give(void *opaque, void *p)
{
    (void)opaque;
    free(p);
}

struct gzip *sim_gzip_new(void)
{
    struct gzip *z = xcalloc(1, sizeof *z);
    z->z.zalloc = take;
    z->z.zfree = give;
    /* Fails only if zlib's version differs from its header's. */
    if (deflateInit2(&z->z, LEVEL, Z_DEFLATED, WINDOW, MEMORY, Z_DEFAULT_STRATEGY) !=
        Z_OK)
        abort();
    return z;
}

static void add_some(struct gzip *z, struct span bytes, int flush, struct buf *out)
{
    z->z.next_in = (Bytef *)(uintptr_t)bytes.p;
    z->z.avail_in = (uInt)bytes.n;
    do {
        buf_reserve(out, ROOM);
        size_t room = out->cap - out->n - 1;
        z->z.next_out = (Bytef *)out->p + out->n;
        z->z.avail_out = room < INPUT_MAX ? (uInt)room : INPUT_MAX;
        uInt before = z->z.avail_out;
        deflate(&z->z, flush);
        out->n += before - z->z.avail_out;
    } while (z->z.avail_out == 0);
    out->p[out->n] = '\0';
}

void sim_gzip_add(struct gzip *z, struct span bytes, bool last, struct buf *out)
{
    for (; bytes.n > INPUT_MAX; bytes.p += INPUT_MAX, bytes.n -= INPUT_MAX)
        add_some(z, (struct span){bytes.p, INPUT_MAX}, Z_NO_FLUSH, out);
    add_some(z, bytes, last ? Z_FINISH : Z_NO_FLUSH, out);
}

void sim_gzip_free(struct gzip *z)
{
    if (z)
        deflateEnd(&z->z);
    free(z);
}
