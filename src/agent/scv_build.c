/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/scv_build.h"

#include "base/mem.h"

static int64_t mib(const struct gpu_card *c, enum gpu_metric m)
{
    return gpu_value(c, m, 0) >> 20;
}

static void fill_extra(const struct gpu_card *c, struct scv_extra *x)
{
    *x = (struct scv_extra){
        .temperature = gpu_value(c, GPU_TEMPERATURE, -1),
        .utilization = gpu_value(c, GPU_UTILIZATION, -1),
    };
    x->has_temperature = x->temperature >= 0 && x->temperature <= 1000;
    x->has_utilization = x->utilization >= 0 && x->utilization <= 100;
}

static struct scv_spec spec_of(const struct gpu_card *c)
{
    return (struct scv_spec){
        .power_w = gpu_value(c, GPU_POWER_LIMIT, 0) / 1000,
        .clock_mhz = gpu_value(c, GPU_CLOCK_MEM_MAX, 0),
        .core_mhz = gpu_value(c, GPU_CLOCK_SM_MAX, 0),
        .bandwidth = scv_bandwidth(gpu_value(c, GPU_PCIE_GEN_MAX, 0),
                                   gpu_value(c, GPU_PCIE_WIDTH_MAX, 0)),
    };
}

static void fill_card(const struct gpu_card *c, bool healthy, struct arena *a,
                      struct scv_card *card)
{
    *card = (struct scv_card){
        .id = c->index,
        .healthy = healthy,
        .has_used = gpu_knows(c, GPU_MEM_USED),
        .total_mib = mib(c, GPU_MEM_TOTAL),
        .free_mib = mib(c, GPU_MEM_FREE),
        .used_mib = mib(c, GPU_MEM_USED),
        .health = healthy ? SPAN("Healthy") : SPAN("Unhealthy"),
        .model = span_of(c->model),
        .uuid = span_of(c->uuid),
        .bus_id = span_of(c->bus_id),
        .spec = spec_of(c),
        .extra = arena_alloc(a, sizeof *card->extra),
    };
    fill_extra(c, card->extra);
}

static struct span cuda_version(const struct gpu_sample *s, struct arena *a)
{
    cleanup_buf struct buf text = {0};
    if (!s->cuda_major && !s->cuda_minor)
        return (struct span){0};
    buf_printf(&text, "%d.%d", s->cuda_major, s->cuda_minor);
    return arena_copy(a, buf_span(&text));
}

void scv_build_cards(const struct gpu_sample *s, const bool *healthy, struct arena *a,
                     struct scv *scv)
{
    scv->cards = arena_alloc(a, s->n_cards * sizeof *scv->cards);
    scv->n_cards = 0;
    for (size_t i = 0; i < s->n_cards; i++) {
        const struct gpu_card *c = &s->cards[i];
        if (c->state != GPU_MIG)
            fill_card(c, healthy ? healthy[i] : c->state == GPU_OK, a,
                      &scv->cards[scv->n_cards++]);
    }
    scv->driver_version = span_of(s->driver);
    scv->cuda_version = cuda_version(s, a);
}
