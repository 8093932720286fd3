/* SPDX-License-Identifier: Apache-2.0 */

/*
 * make test-gpu: reads the cards of this machine through the real NVML, shows them and
 * the Scv that scv-agent makes of them, and compares with nvidia-smi. Skipped, with the
 * reason, where there is no card.
 *
 *     test-gpu [LIBRARY [NVIDIA-SMI]]
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "gpu/gpu.h"

/* What a command prints; its exit status, or -1. */
static int run(const char *command, struct buf *out)
{
    char part[4096];
    FILE *f = popen(command, "re");
    if (!f)
        return -1;
    for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;)
        buf_add(out, part, n);
    return pclose(f);
}

/* As scv-agent, which is beside this program, publishes it. */
static bool show_scv(const char *self, const char *library)
{
    const char *slash = strrchr(self, '/');
    int dir = slash ? (int)(slash - self + 1) : 0;
    cleanup_buf struct buf out = {0};
    cleanup_free char *command =
        xasprintf("'%.*sscv-agent' --once --node-name this-node --gpu-source 'nvml%s%s'",
                  dir, self, library ? ":" : "", library ? library : "");
    int rc = run(command, &out);
    printf("scv-agent --once:\n%s\n", rc == 0 && out.n ? out.p : "does not work here\n");
    return rc == 0 && out.n;
}

/* What an idle card has less than its size. */
static void show_reserve(const struct gpu_sample *s)
{
    for (size_t i = 0; i < s->n_cards; i++) {
        const struct gpu_card *c = &s->cards[i];
        printf("card %d (%s, %s%s%s): %lld MiB reserved by the driver, %lld in use, "
               "%zu processes\n",
               c->index, c->model, gpu_state_name(c->state), *c->why ? ": " : "", c->why,
               (long long)(gpu_value(c, GPU_MEM_RESERVED, -1) >> 20),
               (long long)(gpu_value(c, GPU_MEM_USED, -1) >> 20), c->n_processes);
    }
}

struct result {
    unsigned same, different, unknown; /* unknown: to one of the two */
};

/* Prints a row. Numbers may differ by `tolerance`; -1: it is a text. */
static void compare(struct result *r, const char *card, const char *what,
                    const char *ours, struct span theirs, double tolerance)
{
    cleanup_free char *copy = xmemdup0(theirs.p ? theirs.p : "", theirs.n);
    char *end;
    double mine = strtod(ours, NULL), value = strtod(copy, &end);
    bool known =
        *ours && (tolerance < 0 ? theirs.n && !strstr(copy, "N/A") : end != copy);
    bool same = tolerance < 0 ? span_eq_nocase(span_of(ours), theirs)
                              : value - mine <= tolerance && mine - value <= tolerance;
    *(!known ? &r->unknown : same ? &r->same : &r->different) += 1;
    printf("%-10s %-12s %-28s %s | %s\n",
           !known ? "unknown"
           : same ? "same"
                  : "DIFFERENT",
           card, what, ours, copy);
}

/* The columns that nvidia-smi is asked for, behind uuid, driver_version, name and pci.bus_id. */
static const struct {
    const char *column;
    enum gpu_metric metric;
    double unit, tolerance; /* how many of ours are one of theirs; in theirs */
} numbers[] = {
    {"memory.total", GPU_MEM_TOTAL, 1048576, 1},
    {"memory.reserved", GPU_MEM_RESERVED, 1048576, 1},
    {"memory.used", GPU_MEM_USED, 1048576, 64},
    {"memory.free", GPU_MEM_FREE, 1048576, 64},
    {"clocks.max.sm", GPU_CLOCK_SM_MAX, 1, 0},
    {"clocks.max.memory", GPU_CLOCK_MEM_MAX, 1, 0},
    {"pcie.link.gen.max", GPU_PCIE_GEN_MAX, 1, 0},
    {"pcie.link.width.max", GPU_PCIE_WIDTH_MAX, 1, 0},
    {"power.limit", GPU_POWER_LIMIT, 1000, 0.01},
    {"temperature.gpu", GPU_TEMPERATURE, 1, 5},
    {"utilization.gpu", GPU_UTILIZATION, 1, 100},
};

/* A line of nvidia-smi: the card with its UUID is in our sample, and its values are ours. */
static void compare_card(struct result *r, const struct gpu_sample *s, struct span line)
{
    struct span uuid = span_trim(span_cut(&line, ','));
    const struct gpu_card *c = NULL;
    for (size_t i = 0; i < s->n_cards; i++)
        if (span_eq(span_of(s->cards[i].uuid), uuid))
            c = &s->cards[i];
    compare(r, c ? c->uuid : "none", "uuid", c ? c->uuid : "none", uuid, -1);
    if (!c)
        return;
    compare(r, c->uuid, "driver", s->driver, span_trim(span_cut(&line, ',')), -1);
    compare(r, c->uuid, "model", c->model, span_trim(span_cut(&line, ',')), -1);
    compare(r, c->uuid, "bus", c->bus_id, span_trim(span_cut(&line, ',')), -1);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        enum gpu_metric m = numbers[i].metric;
        cleanup_free char *ours =
            gpu_knows(c, m) ? xasprintf("%.10g", (double)c->value[m] / numbers[i].unit)
                            : xstrdup("");
        compare(r, c->uuid, gpu_metric_name(m), ours, span_trim(span_cut(&line, ',')),
                numbers[i].tolerance);
    }
}

/* The first word of the text, which is cut off. */
static struct span cut_word(struct span *rest)
{
    size_t n = 0, space = 0;
    while (space < rest->n && strchr(" \t\r", rest->p[space]))
        space++;
    while (space + n < rest->n && !strchr(" \t\r", rest->p[space + n]))
        n++;
    struct span word = {rest->p + space, n};
    *rest = (struct span){word.p + n, rest->n - space - n};
    return word;
}

/* What connects each two cards. Rows of network cards follow those of the cards. */
static void compare_links(struct result *r, const struct gpu_sample *s, const char *smi)
{
    cleanup_free char *command = xasprintf("%s topo -m", smi);
    cleanup_buf struct buf out = {0};
    size_t n = 0;
    if (run(command, &out))
        printf("%s does not work here\n", command);
    printf("\n%s\n", out.n ? out.p : "");
    for (struct span rest = buf_span(&out); rest.n && n < s->n_cards;) {
        struct span line = span_cut(&rest, '\n'), name = cut_word(&line);
        cleanup_buf struct buf row = {0};
        cleanup_free char *wanted = xasprintf("GPU%zu", n);
        struct span first = line;
        if (!span_eq(name, span_of(wanted)) || span_starts(cut_word(&first), SPAN("GPU")))
            continue;
        for (size_t i = 0; i < s->n_cards; i++) {
            buf_adds(&row, i ? " " : "");
            buf_add_span(&row, cut_word(&line));
        }
        cleanup_free char *ours =
            xmemdup0(s->cards[n].links.p ? s->cards[n].links.p : "", s->cards[n].links.n);
        compare(r, s->cards[n++].uuid, "links", ours, buf_span(&row), -1);
    }
    for (; n < s->n_cards; n++)
        compare(r, s->cards[n].uuid, "links", "", SPAN(""), -1);
}

static bool compare_all(const struct gpu_sample *s, const char *smi)
{
    cleanup_buf struct buf command = {0}, out = {0};
    struct result r = {0};
    buf_printf(&command,
               "%s --format=csv,noheader,nounits --query-gpu=uuid,"
               "driver_version,name,pci.bus_id",
               smi);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        buf_printf(&command, ",%s", numbers[i].column);
    if (run(command.p, &out)) {
        printf("test-gpu: %s does not work here\n", command.p);
        return false;
    }
    printf("\nours | nvidia-smi's:\n");
    size_t cards = 0;
    for (struct span rest = buf_span(&out); rest.n; cards++)
        compare_card(&r, s, span_cut(&rest, '\n'));
    cleanup_free char *ours = xasprintf("%zu", s->n_cards);
    cleanup_free char *theirs = xasprintf("%zu", cards);
    compare(&r, "node", "cards", ours, span_of(theirs), 0);
    if (s->n_cards > 1)
        compare_links(&r, s, smi);
    printf("%u unknown to one of them\n%u passed, %u failed\n", r.unknown, r.same,
           r.different);
    return !r.different;
}

int main(int argc, char **argv)
{
    cleanup_gpu_sample struct gpu_sample s = {0};
    struct err err = {0};
    struct gpu *g = gpu_nvml_new(argc > 1 ? argv[1] : NULL, 0);
    int64_t start = clock_mono_ms(), first;
    int rc = gpu_sample(g, &s, &err);
    first = clock_mono_ms() - start;
    start = clock_mono_ms();
    for (int i = 0; !rc && i < 10; i++)
        rc = gpu_sample(g, &s, &err);
    gpu_free(g);
    if (rc || !s.n_cards) {
        printf("test-gpu: skipped, because there is no card to test with: %s\n",
               rc ? err.msg : "NVML knows of none");
        return 0;
    }
    printf("the first sample took %lld ms, ten more %lld ms\n\n", (long long)first,
           (long long)(clock_mono_ms() - start));
    bool published = show_scv(argv[0], argc > 1 ? argv[1] : NULL);
    show_reserve(&s);
    return !(compare_all(&s, argc > 2 ? argv[2] : "nvidia-smi") && published);
}
