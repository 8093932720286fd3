/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * What containers really hold. When a pod starts, the device plugin of its node gives it
 * the cards that its annotations name at that moment, and rejects it if they name none, a
 * card that the node lacks, or more than the limits. scv-agent publishes the result as the
 * podList of the Scv, some seconds later. An old scv-agent publishes no podList, and one
 * that cannot ask its kubelet drops it for a while.
 *
 * Pods that request by labels have no device ids, so no podList shows them.
 */

enum { LATE_MS = 4000 };

/* The podList of one version of an Scv. */
struct kubelet_list {
    char version[32];
    int node;
    bool published;
    size_t n;
    struct kubelet_item {
        char uid[64];
        int64_t mib[CARDS]; /* by card; 0: none, or the whole card */
        unsigned cards;
    } * items;
};

void kubelet_free(struct world *w)
{
    for (size_t i = 0; i < w->n_lists; i++)
        free(w->lists[i].items);
    free(w->lists);
}

static bool give(const struct world *w, struct oracle_pod *p, json_t *pod)
{
    struct oracle_notes notes = oracle_notes(pod, oracle_index(p->node));
    int64_t sum = 0;
    unsigned bits = 0;
    for (int i = 0; i < notes.n && notes.exact; i++) {
        bits |= 1u << notes.card[i];
        sum += notes.units[notes.card[i]];
        if (!oracle_exists(w, oracle_index(p->node), notes.card[i]))
            return false;
    }
    if (!notes.exact || !notes.valid || notes.bits & ~bits ||
        (p->raw_cards && (p->raw_mem || notes.n != p->raw_cards)) ||
        (p->raw_mem && sum > p->raw_mem) ||
        (p->raw_slots && sum > p->ask.mib * p->ask.cards))
        return false;
    int64_t even = (p->raw_mem + notes.n - 1) / notes.n;
    for (int i = 0; i < notes.n; i++) {
        int card = notes.card[i];
        int64_t units = notes.units[card];
        p->given_mib[card] = p->raw_cards   ? 0
                             : p->raw_slots ? p->ask.mib
                                            : (units > even || sum ? units : even) * 1024;
    }
    p->given = bits;
    return true;
}

static void on_publish(struct world *w, void *arg)
{
    put_scv(w, *(int *)arg, false);
    free(arg);
}

bool kubelet_starts(struct world *w, struct oracle_pod *p)
{
    if (p->started || p->devices || p->raw_hami || !oracle_limited(p))
        return true;
    cleanup_json_value json_t *pod = api_get(w, POD_PATH "%s", p->name);
    p->started = give(w, p, pod);
    w->stats.refused_by_plugin += !p->started;
    if (!p->started)
        return false;
    int *node = xmalloc(sizeof *node);
    *node = oracle_index(p->node);
    at(w, w->now_ms + between(w, 0, LATE_MS), on_publish, node, free);
    return true;
}

bool kubelet_publishes(struct world *w, int node)
{
    bool old_agent = node == NODES - 1 && w->seed % 5 == 0;
    if (chance(w, 60))
        w->silent_until[node] = w->now_ms + between(w, 1000, 30000);
    return !old_agent && (w->quiet || w->now_ms >= w->silent_until[node]);
}

void kubelet_add_list(struct world *w, struct buf *body, int node)
{
    const char *comma = "";
    EACH_POD(w, p)
    {
        unsigned cards = p->held | p->given;
        bool whole = p->raw_cards > 0;
        char uuid[32];
        if (oracle_index(p->node) != node || p->over || !cards)
            continue;
        buf_printf(body,
                   "%s{\"namespace\":\"default\",\"name\":\"%s\",\"container\":\"c\","
                   "\"resource\":\"%s\",\"units\":%lld,\"cards\":[",
                   comma, p->name,
                   p->held        ? "nvidia.com/gpu"
                   : whole        ? "aliyun.com/gpu-count"
                   : p->raw_slots ? "aliyun.com/gpu-share"
                                  : "aliyun.com/gpu-mem",
                   (long long)(p->held        ? p->devices
                               : whole        ? p->raw_cards
                               : p->raw_slots ? p->raw_slots
                                              : p->raw_mem));
        comma = "";
        for (int card = 0; card < oracle_cards(node); card++)
            if (cards & 1u << card) {
                buf_printf(body, "%s\"%s\"", comma, oracle_uuid(node, card, uuid));
                comma = ",";
            }
        buf_adds(body, "]}");
    }
}

void kubelet_published(struct world *w, int node, bool published, const char *version)
{
    MEM_GROW(w->lists, w->lists_cap, w->n_lists + 1);
    struct kubelet_list *list = &w->lists[w->n_lists++];
    size_t cap = 0;
    *list = (struct kubelet_list){.node = node, .published = published};
    snprintf(list->version, sizeof list->version, "%s", version);
    EACH_POD(w, p)
    {
        if (!published || oracle_index(p->node) != node || p->over || !p->given)
            continue;
        MEM_GROW(list->items, cap, list->n + 1);
        struct kubelet_item *item = &list->items[list->n++];
        snprintf(item->uid, sizeof item->uid, "%s", p->uid);
        memcpy(item->mib, p->given_mib, sizeof item->mib);
        item->cards = p->given;
        w->stats.listed++;
    }
}

enum kubelet_view kubelet_shows(const struct world *w, const char *version, int node,
                                const struct oracle_pod *p, int card, int64_t *mib)
{
    for (size_t i = w->n_lists; version && i > 0; i--) {
        const struct kubelet_list *list = &w->lists[i - 1];
        if (list->node != node || strcmp(list->version, version) != 0)
            continue;
        for (size_t n = 0; n < list->n; n++) {
            const struct kubelet_item *item = &list->items[n];
            if (strcmp(item->uid, p->uid) != 0)
                continue;
            *mib = item->mib[card];
            return item->cards & 1u << card ? KUBELET_GIVES : KUBELET_GIVES_OTHERS;
        }
        return list->published ? KUBELET_LACKS : KUBELET_SILENT;
    }
    return KUBELET_SILENT;
}
