/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/unit.h"

#include "gpu/gpu_priv.h"
#include "node/podresources.h"

/* A sample of the cards in JSON with ' for ", as the file source reads them:
 * "{'uuid':'GPU-0'},{'uuid':'GPU-1'}". Valid until the next one. */
static inline const struct gpu_sample *sample_of(const char *cards)
{
    static struct gpu_sample sample;
    cleanup_buf struct buf text = {0};
    struct err err = {0};
    buf_printf(&text, "{'driverVersion':'535.129.03','cudaVersion':'12.2','cards':[%s]}",
               cards);
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] == '\'')
            text.p[i] = '"';
    ck_assert_done(gpu_file_parse(buf_span(&text), &sample, &err), err);
    return &sample;
}

/* A List: "ns/p/c aliyun.com/gpu-mem id id", one device a line. */
static inline struct podres_list list_of(const char *text, struct arena *a)
{
    struct span rest = span_of(text);
    struct podres_pod *pods = arena_zalloc(a, 64 * sizeof *pods);
    struct podres_list list = {pods, 0};
    while (rest.n) {
        struct span line = span_cut(&rest, '\n');
        struct podres_pod *pod = &pods[list.n++];
        struct podres_container *c = arena_zalloc(a, sizeof *c);
        struct podres_devices *d = arena_zalloc(a, sizeof *d);
        struct span *ids = arena_alloc(a, 64 * sizeof *ids);
        pod->ns = span_cut(&line, '/');
        pod->name = span_cut(&line, '/');
        pod->containers = c;
        pod->n_containers = 1;
        c->name = span_cut(&line, ' ');
        c->devices = d;
        c->n_devices = 1;
        d->resource = span_cut(&line, ' ');
        d->ids = ids;
        while (line.n)
            ids[d->n_ids++] = span_cut(&line, ' ');
    }
    return list;
}

/* The ids from..to-1 of aliyun.com/gpu-mem on a card. */
static inline struct span *ids_of(struct arena *a, const char *uuid, int64_t from,
                                  int64_t to)
{
    struct span *ids = arena_alloc(a, (size_t)(to - from + 1) * sizeof *ids);
    for (int64_t i = from; i < to; i++) {
        cleanup_buf struct buf id = {0};
        ids_write(&id, IDS_MEM, &(struct ids_id){ids_tag_of(span_of(uuid)), i});
        ids[i - from] = arena_copy(a, buf_span(&id));
    }
    return ids;
}
