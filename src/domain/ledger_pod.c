/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/ledger_priv.h"

#include <stdlib.h>

#include "base/mem.h"

static void request_free(struct request *r)
{
    free(r->parts);
    free((char *)r->models.p);
}

static void edit_free(struct ledger_pod_edit *edit)
{
    if (!edit)
        return;
    request_free(&edit->request);
    free((char *)edit->invalid_reason.p);
    free((char *)edit->nominated.p);
    free(edit);
}

static void pod_free(struct ledger_pod *pod)
{
    free(pod->strings);
    edit_free(pod->edit);
    free((char *)pod->invalid_reason.p);
    free((char *)pod->differences.p);
    request_free(&pod->request);
    free(pod->shares);
    free(pod);
}

void ledger_pods_free(struct ledger *l)
{
    for (struct ledger_pod *pod = l->pods, *next; pod; pod = next) {
        next = pod->next_all;
        ledger_gang_leave(l, pod);
        pod_free(pod);
    }
}

struct ledger_pod *ledger_pod_find(const struct ledger *l, struct span uid)
{
    return map_get(&l->pods_by_uid, uid);
}

/* Replaces *text by a copy. */
static void own(struct span *text)
{
    if (text->n)
        text->p = xmemdup0(text->p, text->n);
    else
        *text = (struct span){0};
}

const struct mix *ledger_mix(const struct ledger *l)
{
    return &l->mix;
}

size_t ledger_pending(const struct ledger *l)
{
    return l->n_pending;
}

size_t ledger_pending_members(const struct ledger *l)
{
    return l->n_pending_members;
}

struct ledger_pod *ledger_first_pending(const struct ledger *l)
{
    return l->pending;
}

struct ledger_pod *ledger_first_pod(const struct ledger *l)
{
    return l->pods;
}

static void list_push(struct ledger_pod **head, struct ledger_pod *pod)
{
    pod->prev = NULL;
    pod->next = *head;
    if (*head)
        (*head)->prev = pod;
    *head = pod;
}

static void list_remove(struct ledger_pod **head, struct ledger_pod *pod)
{
    if (pod->prev)
        pod->prev->next = pod->next;
    else
        *head = pod->next;
    if (pod->next)
        pod->next->prev = pod->prev;
    pod->next = pod->prev = NULL;
}

static void nominate(struct ledger *l, struct ledger_pod *pod, struct span node_name)
{
    struct ledger_node *old = pod->nominated_node;
    struct ledger_node *node = node_name.n ? ledger_node_need(l, node_name) : NULL;
    if (old == node)
        return;
    if (old) {
        if (pod->prev_nominated)
            pod->prev_nominated->next_nominated = pod->next_nominated;
        else
            old->nominated = pod->next_nominated;
        old->has_nominated = old->nominated != NULL;
        if (pod->next_nominated)
            pod->next_nominated->prev_nominated = pod->prev_nominated;
        pod->next_nominated = pod->prev_nominated = NULL;
    }
    pod->nominated_node = node;
    if (node) {
        pod->next_nominated = node->nominated;
        if (node->nominated)
            node->nominated->prev_nominated = pod;
        node->nominated = pod;
        node->has_nominated = true;
        node->generation = ++l->generation;
    }
    if (old) {
        old->generation = ++l->generation;
        ledger_node_drop_if_unused(l, old);
    }
}

/* The nomination that the API shows. It does not end one of ledger_pod_keep: kube-scheduler
 * clears nominatedNodeName when it retries the pod before the victims are gone. */
static void nominate_as_shown(struct ledger *l, struct ledger_pod *pod, struct span name)
{
    bool other = name.n && pod->kept && !span_eq(name, pod->nominated_node->name);
    pod->kept = other ? 0 : pod->kept;
    pod->kept_in_api = pod->kept && name.n;
    if (!pod->kept)
        nominate(l, pod, name);
}

void ledger_pod_keep(struct ledger *l, struct ledger_pod *pod, struct span node,
                     uint64_t cards)
{
    struct ledger_node *nominated = pod->nominated_node;
    if (cards) {
        pod->kept_in_api = nominated && span_eq(nominated->name, node);
        pod->kept = cards;
        nominate(l, pod, node);
        pod->nominated_node->generation = ++l->generation;
    } else if (pod->kept) {
        pod->kept = 0;
        nominated->generation = ++l->generation;
        if (!pod->kept_in_api)
            nominate(l, pod, (struct span){0});
    }
}

/* New, in one block with the names. */
static struct request_part *parts_copy(const struct request_part *parts, size_t n)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += parts[i].name.n;
    struct request_part *copy = xmalloc(n * sizeof *copy + bytes);
    char *at = (char *)(copy + n);
    for (size_t i = 0; i < n; i++) {
        copy[i] = parts[i];
        copy[i].name.p = at;
        if (parts[i].name.n)
            memcpy(at, parts[i].name.p, parts[i].name.n);
        at += parts[i].name.n;
    }
    return copy;
}

/* Replaces both with copies. */
static void set_request(struct request *old, struct span *old_why_not,
                        const struct request *request, const char *why_not)
{
    request_free(old);
    free((char *)old_why_not->p);
    *old = *request;
    own(&old->models);
    old->parts = parts_copy(request->parts, request->n_parts);
    *old_why_not = (struct span){0};
    if (why_not)
        *old_why_not = (struct span){xstrdup(why_not), strlen(why_not)};
}

static void edit_store(struct ledger_pod *p, const struct pod *pod,
                       const struct request *request, const char *why_not)
{
    edit_free(p->edit);
    p->edit = xcalloc(1, sizeof *p->edit);
    p->edit->priority = pod->priority;
    p->edit->nominated = pod->nominated_node;
    own(&p->edit->nominated);
    set_request(&p->edit->request, &p->edit->invalid_reason, request, why_not);
}

/* The pod is pending, and not yet counted in a class. */
static void edit_apply(struct ledger *l, struct ledger_pod *pod)
{
    struct ledger_pod_edit *edit = pod->edit;
    if (!edit)
        return;
    pod->edit = NULL;
    pod->priority = edit->priority;
    set_request(&pod->request, &pod->invalid_reason, &edit->request,
                edit->invalid_reason.p);
    nominate_as_shown(l, pod, edit->nominated);
    edit_free(edit);
}

static void pending_add(struct ledger *l, struct ledger_pod *pod)
{
    list_push(&l->pending, pod);
    l->n_pending++;
    l->n_pending_members += pod->member != NULL;
    l->pending_generation++;
    ledger_class_add(l, pod);
}

static struct ledger_pod *pod_new(struct ledger *l, const struct object_meta *meta)
{
    struct ledger_pod *pod = xcalloc(1, sizeof *pod);
    cleanup_buf struct buf strings = {0};
    buf_add_span(&strings, meta->uid);
    buf_addc(&strings, '\0');
    buf_add_span(&strings, meta->ns);
    buf_addc(&strings, '\0');
    buf_add_span(&strings, meta->name);
    pod->strings = xmemdup0(strings.p, strings.n);
    pod->created_s = meta->created_s;
    pod->uid = (struct span){pod->strings, meta->uid.n};
    pod->ns = (struct span){pod->uid.p + meta->uid.n + 1, meta->ns.n};
    pod->name = (struct span){pod->ns.p + meta->ns.n + 1, meta->name.n};
    pod->hash = scv_pod_hash(pod->ns, pod->name);
    map_set(&l->pods_by_uid, pod);

    pod->next_all = l->pods;
    if (l->pods)
        l->pods->prev_all = pod;
    l->pods = pod;
    pending_add(l, pod);
    return pod;
}

static void set_amounts(struct ledger *l, struct ledger_pod *pod,
                        const struct resources *requests)
{
    if (pod->cpu_milli == requests->cpu_milli && pod->memory == requests->memory)
        return;
    pod->cpu_milli = requests->cpu_milli;
    pod->memory = requests->memory;
    if (pod->node)
        ledger_view(l, pod->node);
}

struct ledger_pod *ledger_pod_add(struct ledger *l, const struct pod *pod,
                                  const struct request *request, const char *why_not)
{
    struct ledger_pod *p = ledger_pod_find(l, pod->meta.uid);
    bool known = p != NULL;
    if (!p)
        p = pod_new(l, &pod->meta);
    p->terminating |= pod->meta.deleting;
    p->mirror = pod->mirror;
    p->daemon = pod->daemon;
    p->never_preempts = pod->never_preempts;
    set_amounts(l, p, &pod->requests);
    ledger_gang_update(l, p, pod);
    if (p->node && !pod->node.n)
        edit_store(p, pod, request, why_not);
    if (p->node)
        return p;
    l->pending_generation += p->priority != pod->priority;
    p->priority = pod->priority;
    if (!known || !request_equal(&p->request, request) || p->invalid_reason.p ||
        why_not) {
        if (p->request.kind == REQUEST_NONE && request->kind != REQUEST_NONE && !why_not)
            mix_add(&l->mix, request, pod->requests.cpu_milli);
        l->pending_generation++;
        ledger_class_remove(l, p);
        set_request(&p->request, &p->invalid_reason, request, why_not);
        ledger_class_add(l, p);
    }
    nominate_as_shown(l, p, pod->nominated_node);
    return p;
}

void ledger_pod_set_request(struct ledger *l, struct ledger_pod *pod,
                            const struct request *request, const char *why_not)
{
    set_request(&pod->request, &pod->invalid_reason, request, why_not);
    ledger_view(l, pod->node);
}

void ledger_pod_set_differences(struct ledger *l, struct ledger_pod *pod,
                                struct span text)
{
    if (span_eq(pod->differences, text))
        return;
    free((char *)pod->differences.p);
    pod->differences = text;
    own(&pod->differences);
    if (pod->node)
        pod->node->generation = ++l->generation;
}

struct ledger_share *ledger_shares_copy(const struct ledger_share *shares, uint32_t n)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += shares[i].uuid.n;
    struct ledger_share *copy = xmalloc(n * sizeof *copy + bytes);
    char *at = (char *)(copy + n);
    for (uint32_t i = 0; i < n; i++) {
        copy[i] = shares[i];
        copy[i].on = NULL;
        copy[i].uuid.p = at;
        if (shares[i].uuid.n)
            memcpy(at, shares[i].uuid.p, shares[i].uuid.n);
        at += shares[i].uuid.n;
    }
    return copy;
}

/* Removes the pod from its list: of a node, or of pending pods. */
static struct ledger_node *unlist(struct ledger *l, struct ledger_pod *pod)
{
    struct ledger_node *node = pod->node;
    list_remove(node ? &node->pods : &l->pending, pod);
    if (!node) {
        l->n_pending--;
        l->n_pending_members -= pod->member != NULL;
        l->pending_generation++;
        ledger_class_remove(l, pod);
    }
    pod->node = NULL;
    pod->other_cards = 0;
    return node;
}

static void refresh_after_removal(struct ledger *l, struct ledger_node *node)
{
    if (!node)
        return;
    ledger_view(l, node);
    ledger_node_drop_if_unused(l, node);
}

static bool same_shares(const struct ledger_pod *pod, const struct ledger_share *shares,
                        uint32_t n)
{
    if (pod->n_shares != n)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const struct ledger_share *a = &pod->shares[i], *b = &shares[i];
        if (a->card != b->card || a->mib != b->mib || !span_eq(a->uuid, b->uuid))
            return false;
    }
    return true;
}

void ledger_pod_place(struct ledger *l, struct ledger_pod *pod, struct span name,
                      const struct ledger_share *shares, uint32_t n)
{
    if (pod->node && span_eq(pod->node->name, name) && same_shares(pod, shares, n))
        return;
    struct ledger_share *copy = ledger_shares_copy(shares, n);
    struct ledger_node *node = ledger_node_need(l, name);
    struct ledger_node *old = unlist(l, pod);
    free(pod->shares);
    pod->shares = copy;
    pod->n_shares = n;
    pod->node = node;
    list_push(&node->pods, pod);
    pod->kept = 0;
    nominate(l, pod, (struct span){0});
    if (old != node)
        refresh_after_removal(l, old);
    ledger_view(l, node);
}

void ledger_pod_running(struct ledger *l, struct ledger_pod *pod, bool before)
{
    if (pod->running)
        return;
    pod->running = true;
    pod->first_sample = before || !pod->node ? 0 : pod->node->facts->samples + 1;
    if (pod->node)
        ledger_view(l, pod->node);
}

void ledger_pod_unplace(struct ledger *l, struct ledger_pod *pod)
{
    if (!pod->node)
        return;
    struct ledger_node *node = unlist(l, pod);
    free(pod->shares);
    pod->shares = NULL;
    pod->n_shares = 0;
    edit_apply(l, pod);
    pending_add(l, pod);
    refresh_after_removal(l, node);
}

/* Memory that the sample shows must not count as external use. */
static void depart(struct ledger_node *node, const struct ledger_pod *pod)
{
    uint64_t used = ledger_pod_used_cards(node, pod);
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct card *card = &node->cards[i];
        int64_t mib = used >> i & 1 ? ledger_pod_mib(pod, card) : 0;
        const struct departure departure = {.card = card->index,
                                            .mib = mib > 0 ? mib : 0,
                                            .promised = ledger_use_allowed(node, pod, i),
                                            .pod = scv_uid_hash(pod->uid),
                                            .uuid = card->uuid};
        if (mib > 0 || ledger_use_of_pod(node->facts, pod, i))
            ledger_departures_add(node->facts, &departure);
    }
}

void ledger_pod_remove(struct ledger *l, struct ledger_pod *pod)
{
    struct ledger_node *node = pod->node;
    if (node) {
        depart(node, pod);
        ledger_facts_forget(node->facts, pod);
    }
    nominate(l, pod, (struct span){0});
    ledger_gang_leave(l, pod);
    unlist(l, pod);
    if (pod->prev_all)
        pod->prev_all->next_all = pod->next_all;
    else
        l->pods = pod->next_all;
    if (pod->next_all)
        pod->next_all->prev_all = pod->prev_all;
    map_remove(&l->pods_by_uid, pod->uid);
    refresh_after_removal(l, node);
    pod_free(pod);
}
