/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_priv.h"

static void add_text(struct buf *out, const char *key, const char *text)
{
    if (!*text)
        return;
    buf_adds(out, key);
    buf_add_json(out, span_of(text));
}

static void write_card(struct buf *out, const struct gpu_card *c)
{
    buf_adds(out, "{\"index\":");
    buf_add_i64(out, c->index);
    add_text(out, ",\"uuid\":", c->uuid);
    add_text(out, ",\"model\":", c->model);
    add_text(out, ",\"busId\":", c->bus_id);
    add_text(out, ",\"state\":", gpu_state_name(c->state));
    add_text(out, ",\"why\":", c->why);
    for (int m = 0; m < GPU_N_METRICS; m++) {
        if (!gpu_knows(c, m))
            continue;
        buf_addc(out, ',');
        buf_add_json(out, span_of(gpu_metric_name(m)));
        buf_addc(out, ':');
        buf_add_i64(out, c->value[m]);
    }
    if (c->processes_known) {
        buf_adds(out, ",\"processes\":[");
        for (size_t i = 0; i < c->n_processes; i++) {
            buf_adds(out, i ? ",{\"pid\":" : "{\"pid\":");
            buf_add_i64(out, c->processes[i].pid);
            buf_adds(out, ",\"bytes\":");
            buf_add_i64(out, c->processes[i].bytes);
            if (c->processes[i].sm_percent >= 0) {
                buf_adds(out, ",\"sm\":");
                buf_add_i64(out, c->processes[i].sm_percent);
            }
            buf_addc(out, '}');
        }
        buf_addc(out, ']');
    }
    buf_addc(out, '}');
}

void gpu_sample_write(struct buf *out, const struct gpu_sample *s)
{
    buf_adds(out, "{\"driverVersion\":");
    buf_add_json(out, span_of(s->driver));
    buf_printf(out, ",\"cudaVersion\":\"%d.%d\",\n \"cards\":[", s->cuda_major,
               s->cuda_minor);
    for (size_t i = 0; i < s->n_cards; i++) {
        buf_adds(out, i ? ",\n  " : "\n  ");
        write_card(out, &s->cards[i]);
    }
    buf_adds(out, "]}\n");
}
