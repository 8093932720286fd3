/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/oracle_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * What a replica must count for a bound pod, although its annotations may have been edited.
 * It knows the promise as it was made if it sent the Binding, or if the first version of
 * the bound pod that it got since its start had the annotations of the Binding. Of other
 * pods it knows what the podList of the node shows, as delivered to it. A pod with limits
 * that names no card must count on every card of a node without a podList.
 */

static const char *const keys[] = {"ALIYUN_COM_GPU_MEM_IDX",
                                   "scheduler.framework.gpushare.allocation",
                                   "gpushare/card-uuid",
                                   "gpushare/card-memory",
                                   "ALIYUN_COM_GPU_MEM_DEV",
                                   "ALIYUN_COM_GPU_MEM_POD",
                                   "ALIYUN_COM_GPU_MEM_ASSUME_TIME"};
static const char assigned[] = "ALIYUN_COM_GPU_MEM_ASSIGNED"; /* its value changes */

char *truth_text(json_t *meta)
{
    cleanup_buf struct buf text = {0};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const char *value = ask_text(meta, "annotations", keys[i]);
        buf_printf(&text, "%s%s\n", value ? "=" : "", value ? value : "");
    }
    buf_adds(&text, ask_text(meta, "annotations", assigned) ? "=" : "");
    return buf_take(&text);
}

static bool is_complete(json_t *meta)
{
    bool complete = ask_text(meta, "annotations", assigned);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        complete = complete && ask_text(meta, "annotations", keys[i]);
    return complete;
}

/* The same of a pod as delivered. */
static bool is_intact(const struct oracle_pod *p, const struct pod *pod)
{
    cleanup_buf struct buf text = {0};
    const struct span values[] = {pod->idx,         pod->allocation, pod->card_uuid,
                                  pod->card_memory, pod->card_units, pod->units,
                                  pod->assume_time};
    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        buf_printf(&text, "%s%.*s\n", values[i].p ? "=" : "", SPAN_ARG(values[i]));
    buf_adds(&text, pod->assigned.p ? "=" : "");
    return p->promise && !strcmp(text.p, p->promise);
}

static struct oracle_pod *pod_of(const struct world *w, const struct pod *pod)
{
    cleanup_free char *uid = xmemdup0(pod->meta.uid.p, pod->meta.uid.n);
    return oracle_find(w, uid);
}

static void set(unsigned *bits, int replica, bool on)
{
    *bits = on ? *bits | 1u << replica : *bits & ~(1u << replica);
}

/* The first cards that a replica sees are the promise, for it. */
static void see_cards(struct oracle_pod *p, int replica, const struct pod *pod)
{
    if (pod->idx.p || pod->allocation.p)
        set(&p->carded_by, replica, true);
}

/* A podList stays until the next one, while the agent has none. It does not outlive its
 * Scv. */
static void keep_listed(const struct world *w, struct oracle_pod *p, int replica)
{
    int64_t mib;
    int node = oracle_index(p->node);
    const struct delivered *d = replica_delivered(w->replicas[replica]);
    const char *version = node < 0 ? NULL : delivered_scv(d, node);
    enum kubelet_view view = kubelet_shows(w, version, node, p, 0, &mib);
    if (!version || view == KUBELET_LACKS || !(p->known_by & 1u << replica))
        p->kept[replica] = 0;
    else if (view != KUBELET_SILENT)
        p->kept[replica] = p->given;
}

void oracle_scvs_delivered(struct world *w, int replica)
{
    for (struct oracle_pod *p = w->oracle->pods; p; p = p->next)
        keep_listed(w, p, replica);
}

void oracle_delivered(struct world *w, int replica, const struct pod *pod)
{
    cleanup_free char *version = xmemdup0(pod->meta.version.p, pod->meta.version.n);
    struct oracle_pod *p = pod_of(w, pod);
    if (p && !strcmp(p->resource_version, version))
        p->delivered[replica] = p->version;
    if (!p || !p->node || !pod->node.n)
        return;
    unsigned bit = 1u << replica;
    bool first = !(p->known_by & bit), intact = is_intact(p, pod);
    bool was_sure = p->sure_by & bit;
    see_cards(p, replica, pod);
    if (p->n_cards == 0) /* nothing is final yet */
        set(&p->sure_by, replica, intact && !((p->doubted_by | p->carded_by) & bit));
    else
        set(&p->sure_by, replica,
            was_sure || (intact && first && !(p->doubted_by & bit)));
    set(&p->known_by, replica, true);
    keep_listed(w, p, replica);
}

void oracle_answered(struct world *w, int replica, const struct pod *pod)
{
    struct oracle_pod *p = pod_of(w, pod);
    if (!p || !p->node || !pod->node.n)
        return;
    see_cards(p, replica, pod);
    if (!(p->sure_by & 1u << replica) && !is_intact(p, pod))
        set(&p->doubted_by, replica, true);
}

void oracle_bind_answered(struct world *w, int replica, const char *uid)
{
    struct oracle_pod *p = oracle_find(w, uid);
    if (p && p->node && !p->foreign && !(p->carded_by & 1u << replica))
        set(&p->sure_by, replica, true);
}

void oracle_restarted(struct world *w, int replica)
{
    for (struct oracle_pod *p = w->oracle->pods; p; p = p->next) {
        set(&p->known_by, replica, false);
        set(&p->sure_by, replica, false);
        set(&p->doubted_by, replica, false);
        set(&p->carded_by, replica, false);
        p->delivered[replica] = 0;
        p->kept[replica] = 0;
    }
}

/* The larger amount; 0 is the whole card. */
static int64_t larger(const struct oracle_pod *p, int64_t a, int64_t b)
{
    return p->whole && (a >= 0 || b >= 0) ? 0 : a > b ? a : b;
}

/* What a pod without any card counts for on each card. Labels alone get no card. */
static int64_t cardless_mib(const struct oracle_pod *p)
{
    return p->labeled || (!p->whole && p->mib == 0) ? -1 : p->mib;
}

bool oracle_has_no_card(const struct world *w, struct span uid)
{
    cleanup_free char *name = xmemdup0(uid.p, uid.n);
    const struct oracle_pod *p = oracle_find(w, name);
    return p && p->labeled && p->foreign && !p->n_cards && !p->tampered && !p->odd;
}

int64_t oracle_must_count(const struct world *w, const struct oracle_pod *p, int replica,
                          int node, int card)
{
    unsigned bit = 1u << replica;
    int64_t mib = -1, listed = 0;
    if (oracle_index(p->node) != node || p->over)
        return -1;
    const char *version = delivered_scv(replica_delivered(w->replicas[replica]), node);
    enum kubelet_view view = kubelet_shows(w, version, node, p, card, &listed);
    /* A promise without a card ends where the kubelet gave one. */
    bool elsewhere = p->n_cards == 0 && view == KUBELET_GIVES_OTHERS;
    if (p->sure_by & bit && !p->odd && !elsewhere)
        mib = oracle_holds(p, node, card);
    if (!(p->known_by & bit))
        return mib;
    if (view == KUBELET_GIVES)
        mib = larger(p, mib, listed);
    if (view == KUBELET_SILENT && p->kept[replica] & 1u << card)
        mib = larger(p, mib, p->given_mib[card]);
    bool hidden = view == KUBELET_SILENT && !p->kept[replica];
    bool sure = p->sure_by & bit && p->n_cards;
    if (!sure && !(p->carded_by & bit) && hidden)
        mib = larger(p, mib, cardless_mib(p));
    /* Labels may ask for less by now; then the annotations count, as far as the card goes. */
    int64_t size = delivered_mib(replica_delivered(w->replicas[replica]), node, card);
    return p->labeled && size > 0 && mib > size ? size : mib;
}

static bool is_strict(const char *text, int n)
{
    for (const char *at = text; *at; at++)
        if (!strchr("0123456789,", *at))
            return false;
    return n > 0 && strlen(text) == (size_t)(2 * n - 1);
}

/* Do all keys name the same cards of the node, each once? */
static bool is_clear(const struct oracle_pod *p, json_t *meta, int node)
{
    const char *idx = ask_text(meta, "annotations", keys[0]);
    const char *allocation = ask_text(meta, "annotations", keys[1]);
    const char *uuids = ask_text(meta, "annotations", keys[2]);
    cleanup_buf struct buf expected = {0};
    unsigned bits = 0, in = 0;
    if (!idx)
        return !allocation;
    if (!is_strict(idx, p->n_cards))
        return false;
    for (int i = 0; i < p->n_cards; i++) {
        buf_printf(&expected, "%sGPU-%d-%d", i ? "," : "", node, p->card[i]);
        if (bits & 1u << p->card[i] || p->card[i] >= oracle_cards(node))
            return false;
        bits |= 1u << p->card[i];
    }
    if (uuids && *uuids && strcmp(uuids, expected.p) != 0)
        return false;
    json_t *all = allocation ? json_loads(allocation, 0, NULL) : NULL, *of, *amount;
    const char *container, *card;
    bool clear = !allocation || json_is_object(all);
    json_object_foreach(all, container, of) json_object_foreach(of, card, amount)
    {
        in |= 1u << (atoi(card) & 31);
        clear = clear && json_is_integer(amount);
    }
    json_decref(all);
    return clear && (!allocation || in == bits);
}

/* Does a UUID belong to no card of the node? */
static bool names_strange_card(json_t *meta, int node)
{
    const char *text = ask_text(meta, "annotations", keys[2]);
    cleanup_free char *copy = text ? xstrdup(text) : NULL;
    bool strange = false;
    for (char *rest = copy, *uuid; rest && (uuid = strsep(&rest, ","));) {
        bool here = *uuid == '\0';
        for (int card = 0; card < oracle_cards(node); card++) {
            char name[32];
            snprintf(name, sizeof name, "GPU-%d-%d", node, card);
            here |= !strcmp(name, uuid);
        }
        strange |= !here;
    }
    return strange;
}

void truth_bound(struct oracle_pod *p, json_t *meta)
{
    p->promise = truth_text(meta);
    p->complete = is_complete(meta);
    p->strange = names_strange_card(meta, oracle_index(p->node));
    p->odd = p->foreign && !is_clear(p, meta, oracle_index(p->node));
}

void truth_changed(struct world *w, struct oracle_pod *p, json_t *meta)
{
    cleanup_free char *text = truth_text(meta);
    bool changed = strcmp(text, p->promise) != 0;
    if (changed && !p->foreign && w->policy)
        violated(w, "the promise of %s has changed although the policy is on", p->uid);
    p->tampered |= changed;
    p->complete |= is_complete(meta);
    p->strange |= names_strange_card(meta, oracle_index(p->node));
}

bool truth_is_unclear(const struct oracle_pod *p)
{
    bool others = p->foreign && p->n_cards && p->n_cards != p->cards;
    return p->tampered || others || p->odd;
}

/* MiB on cards of the node that the ledger counts for the pod, and the most on one. */
static int64_t counted(const struct ledger_pod *mine, int64_t *most)
{
    int64_t sum = 0;
    *most = 0;
    for (uint32_t i = 0; i < mine->node->n_cards; i++) {
        int64_t mib = ledger_pod_mib(mine, &mine->node->cards[i]);
        sum += mib > 0 ? mib : 0;
        *most = mib > *most ? mib : *most;
    }
    return sum;
}

void truth_compare(struct world *w, const struct replica *r, const struct oracle_pod *p,
                   const struct ledger_pod *mine)
{
    int64_t most, sum = counted(mine, &most), listed;
    int node = oracle_index(p->node);
    const char *version = delivered_scv(replica_delivered(r), node);
    enum kubelet_view view = kubelet_shows(w, version, node, p, 0, &listed);
    bool never_asked = p->labeled && p->nothing && !p->edited && !p->complete;
    if (never_asked && sum)
        violated(w, "r%d counts %lld MiB for pod %s, which requests nothing",
                 replica_id(r), (long long)sum, p->uid);
    if (!p->raw_mem || p->raw_cards || p->devices)
        return;
    if (most > p->raw_mem * 1024)
        violated(w, "r%d counts %lld MiB of one card for pod %s, which requests %lld",
                 replica_id(r), (long long)most, p->uid, (long long)p->raw_mem * 1024);
    if (view != KUBELET_LACKS && !p->strange && sum < p->raw_mem * 1024)
        violated(w, "r%d counts %lld MiB for pod %s, which requests %lld", replica_id(r),
                 (long long)sum, p->uid, (long long)p->raw_mem * 1024);
}
