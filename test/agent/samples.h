/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/unit.h"

#include "agent/podresources.h"
#include "base/mem.h"
#include "gpu/gpu_priv.h"

/* A sample of the cards in JSON with ' for ", as the file source reads them:
 * "{'uuid':'GPU-0'},{'uuid':'GPU-1'}". Valid until the next one. */
static inline const struct gpu_sample *sample_of(const char *cards)
{
    static struct gpu_file_data data;
    cleanup_buf struct buf text = {0};
    struct err err = {0};
    buf_printf(&text, "{'driverVersion':'535.129.03','cudaVersion':'12.2','cards':[%s]}",
               cards);
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] == '\'')
            text.p[i] = '"';
    ck_assert_done(gpu_file_parse(buf_span(&text), &data, &err), err);
    return &data.sample;
}

/* "ns/p/c aliyun.com/gpu-mem id id", one a line. */
static inline void read_entries(const char *text, struct arena *a,
                                struct podresources *pods)
{
    struct span rest = span_of(text);
    struct podresources_entry *entries = arena_zalloc(a, 64 * sizeof *entries);
    *pods = (struct podresources){.entries = entries};
    while (rest.n) {
        struct span line = span_cut(&rest, '\n');
        struct podresources_entry *e = &entries[pods->n++];
        struct span *ids = arena_alloc(a, 64 * sizeof *ids);
        e->ns = span_cut(&line, '/');
        e->pod = span_cut(&line, '/');
        e->container = span_cut(&line, ' ');
        e->resource = span_cut(&line, ' ');
        e->ids = ids;
        while (line.n)
            ids[e->n_ids++] = span_cut(&line, ' ');
    }
}
