/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/oracle_priv.h"

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
        int64_t mib[8]; /* by card; 0: none, or the whole card */
        unsigned cards;
    } * items;
};

struct kubelets {
    struct kubelet_list *lists;
    size_t n, cap;
    int64_t silent_until[NODES];
};

struct kubelets *kubelets_new(void)
{
    return xcalloc(1, sizeof(struct kubelets));
}

void kubelets_free(struct kubelets *k)
{
    for (size_t i = 0; i < k->n; i++)
        free(k->lists[i].items);
    free(k->lists);
    free(k);
}

/* The cards of the annotation; -1: damaged, or none. */
static int read_indexes(json_t *meta, int node, int cards[8])
{
    const char *text = ask_text(meta, "annotations", "ALIYUN_COM_GPU_MEM_IDX");
    int n = 0;
    while (text && *text) {
        char *end;
        long card = strtol(text, &end, 10);
        if (end == text || (*end && *end != ',') || card < 0 ||
            card >= oracle_cards(node) || n == 8)
            return -1;
        for (int i = 0; i < n; i++)
            if (cards[i] == card)
                return -1;
        cards[n++] = (int)card;
        text = *end ? end + 1 : end;
    }
    return n ? n : -1;
}

/* Adds the units that the allocation has on each card. False: damaged, or on a card that
 * the index lacks. */
static bool read_units(json_t *meta, const int *cards, int n, int64_t units[8])
{
    const char *text =
        ask_text(meta, "annotations", "scheduler.framework.gpushare.allocation");
    json_t *all = text ? json_loads(text, 0, NULL) : NULL, *of, *amount;
    const char *container, *card;
    bool good = !text || json_is_object(all);
    json_object_foreach(all, container, of) json_object_foreach(of, card, amount)
    {
        int at = -1;
        for (int i = 0; i < n; i++)
            at = cards[i] == atoi(card) ? i : at;
        good = good && at >= 0 && json_integer_value(amount) >= 0;
        if (good)
            units[at] += json_integer_value(amount);
    }
    json_decref(all);
    return good;
}

static bool give(struct oracle_pod *p, json_t *meta)
{
    int cards[8], node = oracle_node(p), n = read_indexes(meta, node, cards);
    int64_t units[8] = {0}, sum = 0;
    if (n < 0 || !read_units(meta, cards, n, units) ||
        (p->raw_cards && (p->raw_mem || n != p->raw_cards)))
        return false;
    for (int i = 0; i < n; i++)
        sum += units[i];
    if (p->raw_mem && sum > p->raw_mem)
        return false;
    for (int i = 0; i < n; i++) {
        int64_t even = (p->raw_mem + n - 1) / n;
        p->given |= 1u << cards[i];
        p->given_mib[cards[i]] = (units[i] > even || sum ? units[i] : even) * 1024;
        if (p->raw_cards)
            p->given_mib[cards[i]] = 0;
    }
    return true;
}

static void on_publish(struct world *w, void *arg)
{
    put_scv(w, *(int *)arg, false);
    free(arg);
}

bool kubelet_starts(struct world *w, struct oracle_pod *p)
{
    if (p->started || p->devices || !oracle_limited(p))
        return true;
    json_t *pod = api_get(w, POD_PATH "%s", p->name);
    p->started = give(p, json_object_get(pod, "metadata"));
    json_decref(pod);
    w->stats.refused_by_plugin += !p->started;
    if (!p->started)
        return false;
    int *node = xmalloc(sizeof *node);
    *node = oracle_node(p);
    at(w, w->now_ms + between(w, 0, LATE_MS), on_publish, node, free);
    return true;
}

bool kubelet_publishes(struct world *w, int node)
{
    struct kubelets *k = w->kubelets;
    bool old_agent = node == NODES - 1 && w->seed % 5 == 0;
    if (chance(w, 20))
        k->silent_until[node] = w->now_ms + between(w, 1000, 30000);
    return !old_agent && (w->quiet || w->now_ms >= k->silent_until[node]);
}

static void add_item(struct buf *b, const struct oracle_pod *p, int node, unsigned cards,
                     bool first)
{
    bool whole = p->raw_cards > 0, comma = false;
    buf_printf(b,
               "%s{\"namespace\":\"default\",\"name\":\"%s\",\"container\":\"c\","
               "\"resource\":\"%s\",\"units\":%lld,\"cards\":[",
               first ? "" : ",", p->name,
               p->held ? "nvidia.com/gpu"
               : whole ? "aliyun.com/gpu-count"
                       : "aliyun.com/gpu-mem",
               (long long)(p->held ? p->devices
                           : whole ? p->raw_cards
                                   : p->raw_mem));
    for (int card = 0; card < oracle_cards(node); card++)
        if (cards & 1u << card) {
            buf_printf(b, "%s\"GPU-%d-%d\"", comma ? "," : "", node, card);
            comma = true;
        }
    buf_adds(b, "]}");
}

void kubelet_add_list(struct world *w, struct buf *body, int node)
{
    bool first = true;
    for (const struct oracle_pod *p = oracle_first(w); p; p = p->next) {
        unsigned cards = p->held | p->given;
        if (oracle_node(p) != node || p->over || !cards)
            continue;
        add_item(body, p, node, cards, first);
        first = false;
    }
}

void kubelet_published(struct world *w, int node, bool published, const char *version)
{
    struct kubelets *k = w->kubelets;
    MEM_GROW(k->lists, k->cap, k->n + 1);
    struct kubelet_list *list = &k->lists[k->n++];
    *list = (struct kubelet_list){.node = node, .published = published};
    snprintf(list->version, sizeof list->version, "%s", version);
    size_t n = 0;
    for (const struct oracle_pod *p = oracle_first(w); p; p = p->next)
        n += oracle_node(p) == node && !p->over && p->given;
    list->items = xcalloc(n, sizeof *list->items);
    for (const struct oracle_pod *p = oracle_first(w); published && p; p = p->next) {
        if (oracle_node(p) != node || p->over || !p->given)
            continue;
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
    const struct kubelets *k = w->kubelets;
    for (size_t i = k->n; version && i > 0; i--) {
        const struct kubelet_list *list = &k->lists[i - 1];
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
