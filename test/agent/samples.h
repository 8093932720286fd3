/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/unit.h"

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
