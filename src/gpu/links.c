/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What connects the cards of a node, as NVML tells it and as `nvidia-smi topo -m` prints it.
 *
 * Two cards have as many NVLinks as are up between them. If both are connected to switches, it is
 * the smaller number of their links. Without any, the word says where their paths over PCIe meet.
 *
 * The NUMA node is that of the memory close to the card. (nvmlDeviceGetNumaNodeId is another one:
 * that of the card's own memory, where it is a node of the system.)
 */
#include "gpu/nvml_priv.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"

enum { INTERVAL_MS = 10 * 60 * 1000 };

/* The NVLinks of a card that are up. */
struct nvlinks {
    unsigned to_card[GPU_MAX_LINKED]; /* directly */
    unsigned to_switch, down;
};

static void count_links(const struct nvml_calls *call, void *device,
                        const struct gpu_sample *s, struct nvlinks *out)
{
    *out = (struct nvlinks){0};
    if (!call->link_state || !call->link_remote)
        return;
    for (unsigned link = 0; link < NVML_LINKS; link++) {
        int up = 0, type = -1;
        struct nvml_pci remote = {0};
        if (call->link_state(device, link, &up))
            continue; /* the card has no such link */
        if (!up) {
            out->down++;
            continue;
        }
        if (call->link_type && !call->link_type(device, link, &type) &&
            type == NVML_LINK_SWITCH) {
            out->to_switch++;
            continue;
        }
        if (call->link_remote(device, link, &remote))
            continue;
        remote.bus_id[sizeof remote.bus_id - 1] = '\0';
        for (size_t i = 0; i < s->n_cards; i++)
            out->to_card[i] +=
                *remote.bus_id && !strcasecmp(remote.bus_id, s->cards[i].bus_id);
    }
}

/* The word of a pair without NVLinks. NULL: NVML does not know. */
static const char *pcie_word(const struct nvml_calls *call, void *a, void *b)
{
    int level = 0;
    if (!call->ancestor || call->ancestor(a, b, &level))
        return NULL;
    return level <= NVML_TOPOLOGY_SINGLE       ? "PIX"
           : level <= NVML_TOPOLOGY_MULTIPLE   ? "PXB"
           : level <= NVML_TOPOLOGY_HOSTBRIDGE ? "PHB"
           : level <= NVML_TOPOLOGY_NODE       ? "NODE"
                                               : "SYS";
}

/* -1: unknown. The kernel names a device by four digits of its domain, in lower case. */
static int32_t numa_of(const struct nvml_calls *call, void *device, const char *bus_id,
                       const char *sysfs)
{
    const char *colon = strchr(bus_id, ':');
    unsigned long nodes[16] = {0};
    cleanup_buf struct buf text = {0};
    int32_t node = -1;
    if (device && call->affinity &&
        !call->affinity(device, ARRAY_LEN(nodes), nodes, NVML_AFFINITY_NODE))
        for (unsigned i = 0; i < ARRAY_LEN(nodes) * 64; i++)
            if (nodes[i / 64] >> i % 64 & 1)
                node = node == -1 ? (int32_t)i : -2; /* of several, none is the card's */
    if (node >= 0 || !colon || colon - bus_id < 4)
        return node < 0 ? -1 : node;
    cleanup_free char *path =
        xasprintf("%s/bus/pci/devices/%s/numa_node", sysfs, colon - 4);
    for (char *p = path + strlen(sysfs); *p; p++)
        *p = (char)tolower((unsigned char)*p);
    if (file_read(path, 64, &text, NULL) || !text.n)
        return -1;
    char *end;
    long read = strtol(text.p, &end, 10);
    return end != text.p && read >= 0 && read < 1 << 16 ? (int32_t)read : -1;
}

/* The word at this position of a row, in `word`; SYS if there is none. */
static const char *word_at(const char *row, size_t at, char word[static 8])
{
    for (; at && row; at--)
        row = (row = strchr(row, ' ')) ? row + 1 : NULL;
    snprintf(word, 8, "%.*s", row && *row ? (int)strcspn(row, " ") : 3,
             row && *row ? row : "SYS");
    return word;
}

void nvml_links_set(struct nvml_links *links, const struct nvml_calls *call,
                    void *const *devices, struct gpu_sample *s, const char *sysfs)
{
    uint64_t readable = 0;
    int64_t now_ms = clock_mono_ms();
    if (s->n_cards > GPU_MAX_LINKED)
        return;
    for (size_t i = 0; i < s->n_cards; i++)
        readable |= (uint64_t)(devices[i] != NULL) << i;
    if (s->n_cards != links->n)
        *links = (struct nvml_links){.n = s->n_cards};
    if ((readable & ~links->cards) || now_ms >= links->due_ms) {
        cleanup_free struct nvlinks *nv = xcalloc(s->n_cards, sizeof *nv);
        for (size_t i = 0; i < s->n_cards; i++)
            if (devices[i])
                count_links(call, devices[i], s, &nv[i]);
        for (size_t i = 0; i < s->n_cards; i++) {
            struct nvml_linked *of = &links->card[i];
            const struct nvlinks *own = &nv[i];
            cleanup_buf struct buf row = {0};
            unsigned up = own->to_switch;
            bool known = true;
            for (size_t k = 0; k < s->n_cards; k++) {
                unsigned other = nv[k].to_switch;
                unsigned shared = own->to_switch < other ? own->to_switch : other;
                unsigned n = own->to_card[k] ?: shared;
                /* A card that cannot be read keeps its words, because it may return. */
                bool both = devices[i] && devices[k];
                char old[8];
                const char *pcie = i == k || (n && both) ? ""
                                   : both ? pcie_word(call, devices[i], devices[k])
                                          : word_at(of->row, k, old);
                up += own->to_card[k];
                known &= pcie != NULL;
                buf_adds(&row, k ? " " : "");
                if (i == k)
                    buf_adds(&row, "X");
                else if (n && both)
                    buf_printf(&row, "NV%u", n);
                else
                    buf_adds(&row, pcie ?: "");
            }
            snprintf(of->row, sizeof of->row, "%s", known ? row.p : "");
            of->numa = numa_of(call, devices[i], s->cards[i].bus_id, sysfs);
            of->linked |= up > 0;
            of->down = of->linked ? (int32_t)own->down : -1;
        }
        links->due_ms = now_ms + INTERVAL_MS;
    }
    links->cards = readable;
    for (size_t i = 0; i < s->n_cards; i++) {
        const struct nvml_linked *of = &links->card[i];
        if (s->n_cards > 1)
            s->cards[i].links = arena_copy(&s->arena, span_of(of->row));
        if (of->numa >= 0)
            gpu_set(&s->cards[i], GPU_NUMA_NODE, (uint64_t)of->numa);
        if (devices[i] && of->down >= 0)
            gpu_set(&s->cards[i], GPU_LINKS_DOWN, (uint64_t)of->down);
    }
}
