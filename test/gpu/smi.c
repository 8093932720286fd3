/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/smi.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

/* What stands between <tag> or <tag ...> and </tag>, the first time; *rest goes on behind
 * it. nvidia-smi nests no tag in one of the same name. */
static struct span element(struct span *rest, struct span tag)
{
    cleanup_free char *open = xasprintf("<%.*s", SPAN_ARG(tag));
    cleanup_free char *close = xasprintf("</%.*s>", SPAN_ARG(tag));
    size_t n = strlen(open);
    for (const char *end = rest->p + rest->n, *p = rest->p;
         p && (p = memmem(p, (size_t)(end - p), open, n)); p += n) {
        const char *inside = memchr(p, '>', (size_t)(end - p));
        if (!inside || (p[n] != '>' && p[n] != ' '))
            continue;
        inside++;
        const char *stop = memmem(inside, (size_t)(end - inside), close, n + 2);
        if (!stop)
            break;
        *rest = (struct span){stop, (size_t)(end - stop)};
        return (struct span){inside, (size_t)(stop - inside)};
    }
    *rest = (struct span){0};
    return (struct span){0};
}

/* The text at "outer/inner", trimmed; {0} when there is none or it is N/A. */
static struct span at(struct span xml, const char *path)
{
    struct span names = span_of(path);
    while (names.n) {
        struct span rest = xml;
        xml = element(&rest, span_cut(&names, '/'));
    }
    xml = span_trim(xml);
    return memmem(xml.p ? xml.p : "", xml.n, "N/A", 3) ? (struct span){0} : xml;
}

struct comparison {
    struct buf *out;
    struct smi_result result;
    const char *card;
};

static void verdict(struct comparison *c, const char *what, const char *word,
                    const char *ours, struct span theirs)
{
    buf_printf(c->out, "%-10s %-12s %-28s %s | %.*s\n", word, c->card, what, ours,
               SPAN_ARG(theirs));
}

static void text(struct comparison *c, const char *what, const char *ours,
                 struct span theirs)
{
    bool same = span_eq_nocase(span_of(ours), theirs);
    bool known = *ours && theirs.n;
    *(!known ? &c->result.unknown : same ? &c->result.same : &c->result.different) += 1;
    verdict(c, what, !known ? "unknown" : same ? "same" : "DIFFERENT", ours, theirs);
}

static void number(struct comparison *c, const char *what, bool known, double ours,
                   struct span theirs, double tolerance)
{
    cleanup_free char *mine = known ? xasprintf("%.10g", ours) : xstrdup("");
    cleanup_free char *copy = xmemdup0(theirs.p ? theirs.p : "", theirs.n);
    char *end;
    double value = strtod(copy, &end);
    bool both = known && end != copy;
    bool same = both && value - ours <= tolerance && ours - value <= tolerance;
    *(!both ? &c->result.unknown : same ? &c->result.same : &c->result.different) += 1;
    verdict(c, what, !both ? "unknown" : same ? "same" : "DIFFERENT", mine, theirs);
}

static const struct {
    const char *path, *newer; /* where nvidia-smi has it */
    enum gpu_metric metric;
    double unit, tolerance; /* how many of ours are one of theirs; in theirs */
} numbers[] = {
    {"minor_number", NULL, GPU_MINOR, 1, 0},
    {"fb_memory_usage/total", NULL, GPU_MEM_TOTAL, 1048576, 1},
    {"fb_memory_usage/reserved", NULL, GPU_MEM_RESERVED, 1048576, 1},
    {"fb_memory_usage/used", NULL, GPU_MEM_USED, 1048576, 64},
    {"fb_memory_usage/free", NULL, GPU_MEM_FREE, 1048576, 64},
    {"max_clocks/sm_clock", NULL, GPU_CLOCK_SM_MAX, 1, 0},
    {"max_clocks/mem_clock", NULL, GPU_CLOCK_MEM_MAX, 1, 0},
    {"pci/pci_gpu_link_info/pcie_gen/max_link_gen", NULL, GPU_PCIE_GEN_MAX, 1, 0},
    {"pci/pci_gpu_link_info/link_widths/max_link_width", NULL, GPU_PCIE_WIDTH_MAX, 1, 0},
    {"power_readings/power_limit", "gpu_power_readings/current_power_limit",
     GPU_POWER_LIMIT, 1000, 0.01},
    {"temperature/gpu_temp", NULL, GPU_TEMPERATURE, 1, 5},
    {"utilization/gpu_util", NULL, GPU_UTILIZATION, 1, 100},
};

static void compare_card(struct comparison *c, const struct gpu_card *card,
                         struct span xml)
{
    struct span mig = at(xml, "mig_mode/current_mig");
    c->card = card->uuid;
    text(c, "model", card->model, at(xml, "product_name"));
    text(c, "bus", card->bus_id, at(xml, "pci/pci_bus_id"));
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        enum gpu_metric m = numbers[i].metric;
        struct span theirs = at(xml, numbers[i].path);
        if (!theirs.n && numbers[i].newer)
            theirs = at(xml, numbers[i].newer);
        number(c, gpu_metric_name(m), gpu_knows(card, m),
               (double)gpu_value(card, m, 0) / numbers[i].unit, theirs,
               numbers[i].tolerance);
    }
    if (gpu_knows(card, GPU_MIG_MODE))
        text(c, "MIG", card->value[GPU_MIG_MODE] ? "Enabled" : "Disabled", mig);
}

static struct span find_card(struct span xml, const char *uuid)
{
    struct span rest = xml, card;
    while ((card = element(&rest, SPAN("gpu"))).p)
        if (span_eq(at(card, "uuid"), span_of(uuid)))
            return card;
    return (struct span){0};
}

struct smi_result smi_compare(struct buf *out, const struct gpu_sample *s,
                              struct span xml)
{
    struct comparison c = {.out = out, .card = "node"};
    struct span rest = xml, cuda = at(xml, "cuda_version");
    unsigned theirs = 0;
    while (element(&rest, SPAN("gpu")).p)
        theirs++;
    cleanup_free char *ours = xasprintf("%d.%d", s->cuda_major, s->cuda_minor);
    cleanup_free char *count = xasprintf("%u", theirs);
    text(&c, "driver", s->driver, at(xml, "driver_version"));
    text(&c, "CUDA", ours, cuda);
    number(&c, "cards", true, (double)s->n_cards, span_of(count), 0);
    for (size_t i = 0; i < s->n_cards; i++) {
        struct span card = find_card(xml, s->cards[i].uuid);
        c.card = s->cards[i].uuid;
        if (card.p) {
            compare_card(&c, &s->cards[i], card);
            continue;
        }
        c.result.different++;
        verdict(&c, "uuid", "DIFFERENT", s->cards[i].uuid, SPAN("nothing"));
    }
    return c.result;
}
