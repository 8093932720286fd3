/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/ledger_priv.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/mutant.h"

static void edit_free(struct ledger *l, struct ledger_pod_edit *edit)
{
    if (!edit)
        return;
    request_pool_release(&l->requests, edit->request);
    free(edit->invalid_reason);
    free((char *)edit->nominated.p);
    free(edit);
}

static void drop_shares(struct ledger_pod *pod)
{
    for (uint32_t i = 0; i < pod->n_shares; i++)
        card_uuid_fini(&pod->shares[i].uuid);
    free(pod->shares);
    pod->shares = NULL;
    pod->n_shares = 0;
}

static struct ledger_pod_share *shares_copy(const struct ledger_share *shares, uint32_t n)
{
    struct ledger_pod_share *copy = n ? xcalloc(n, sizeof *copy) : NULL;
    for (uint32_t i = 0; i < n; i++)
        copy[i] = (struct ledger_pod_share){.mib = shares[i].mib,
                                            .card = shares[i].card,
                                            .uuid = card_uuid_of(shares[i].uuid)};
    return copy;
}

static void pod_free(struct ledger *l, struct ledger_pod *pod)
{
    edit_free(l, pod->edit);
    request_pool_release(&l->requests, pod->request);
    free((char *)pod->invalid_reason);
    free((char *)pod->differences);
    free(pod->nomination);
    drop_shares(pod);
    free(pod);
}

void ledger_pods_free(struct ledger *l)
{
    for (struct ledger_pod *pod = ledger_first_pod(l), *next; pod; pod = next) {
        next = ledger_next_pod(l, pod);
        ledger_gang_leave(l, pod);
        pod_free(l, pod);
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

/* The first pod of the nodes from this slot on. */
static struct ledger_pod *first_placed(const struct ledger *l, size_t slot)
{
    for (; slot < l->n_nodes; slot++)
        if (ledger_node_slot(l, slot)->pods)
            return ledger_node_slot(l, slot)->pods;
    return NULL;
}

struct ledger_pod *ledger_first_pod(const struct ledger *l)
{
    return l->pending ? l->pending : first_placed(l, 0);
}

struct ledger_pod *ledger_next_pod(const struct ledger *l, const struct ledger_pod *pod)
{
    if (pod->next)
        return pod->next;
    return first_placed(l, pod->node ? pod->node->id + 1 : 0);
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

static void nomination_end(struct ledger *l, struct ledger_pod *pod)
{
    struct ledger_nomination *m = pod->nomination;
    struct ledger_node *node = m->node;
    *(m->prev ? &m->prev->next : &node->nominated) = m->next;
    if (m->next)
        m->next->prev = m->prev;
    pod->nomination = NULL;
    free(m);
    node->has_nominated = node->nominated != NULL;
    node->generation = ++l->generation;
    ledger_node_drop_if_unused(l, node);
}

/* Ends the nomination if the name is empty. */
static void nominate(struct ledger *l, struct ledger_pod *pod, struct span node_name)
{
    struct ledger_node *node = node_name.n ? ledger_node_need(l, node_name) : NULL;
    if (pod->nomination && pod->nomination->node == node)
        return;
    if (pod->nomination)
        nomination_end(l, pod);
    if (!node)
        return;
    struct ledger_nomination *m = xcalloc(1, sizeof *m);
    m->pod = pod;
    m->node = node;
    m->next = node->nominated;
    if (m->next)
        m->next->prev = m;
    node->nominated = pod->nomination = m;
    node->has_nominated = true;
    node->generation = ++l->generation;
}

/* The nomination that the API shows. It does not end one of ledger_pod_keep: kube-scheduler
 * clears nominatedNodeName when it retries the pod before the victims are gone. */
static void nominate_as_shown(struct ledger *l, struct ledger_pod *pod, struct span name)
{
    struct ledger_nomination *m = pod->nomination;
    bool kept = m && m->kept && (!name.n || span_eq(name, m->node->name));
    if (kept)
        m->kept_in_api = name.n > 0;
    else if (m)
        m->kept = 0;
    if (!kept)
        nominate(l, pod, name);
}

void ledger_pod_keep(struct ledger *l, struct ledger_pod *pod, struct span node,
                     uint64_t cards)
{
    struct ledger_nomination *m = pod->nomination;
    if (cards) {
        bool in_api = m && span_eq(m->node->name, node);
        nominate(l, pod, node);
        m = pod->nomination;
        m->kept = cards;
        m->kept_in_api = in_api;
        m->node->generation = ++l->generation;
    } else if (m && m->kept) {
        m->kept = 0;
        m->node->generation = ++l->generation;
        if (!m->kept_in_api)
            nominate(l, pod, (struct span){0});
    }
}

/* `resources`: what it requests of its node. */
static void share_request(struct ledger *l, struct ledger_pod *pod,
                          const struct request *request,
                          const struct resources *resources)
{
    const struct request *old = pod->request;
    pod->request = request_pool_take(&l->requests, request, resources);
    if (old)
        request_pool_release(&l->requests, old);
}

/* Replaces both with copies. */
static void set_request(struct ledger *l, struct ledger_pod *pod,
                        const struct request *request, const char *why_not)
{
    share_request(l, pod, request, request_pool_resources(pod->request));
    free((char *)pod->invalid_reason);
    pod->invalid_reason = why_not ? xstrdup(why_not) : NULL;
}

static void edit_store(struct ledger *l, struct ledger_pod *p, const struct pod *pod,
                       const struct request *request, const char *why_not)
{
    edit_free(l, p->edit);
    p->edit = xcalloc(1, sizeof *p->edit);
    p->edit->priority = ledger_saturated(pod->priority);
    p->edit->nominated = pod->nominated_node;
    own(&p->edit->nominated);
    p->edit->request =
        request_pool_take(&l->requests, request, request_pool_resources(p->request));
    p->edit->invalid_reason = why_not ? xstrdup(why_not) : NULL;
}

/* The pod is pending, and not yet counted in a class. */
static void edit_apply(struct ledger *l, struct ledger_pod *pod)
{
    struct ledger_pod_edit *edit = pod->edit;
    if (!edit)
        return;
    pod->edit = NULL;
    if (MUTANT(edit_during_bind_lost)) {
        edit_free(l, edit);
        return;
    }
    pod->priority = edit->priority;
    set_request(l, pod, edit->request, edit->invalid_reason);
    nominate_as_shown(l, pod, edit->nominated);
    edit_free(l, edit);
}

static void pending_add(struct ledger *l, struct ledger_pod *pod)
{
    list_push(&l->pending, pod);
    l->n_pending++;
    l->n_pending_members += pod->member != NULL;
    l->pending_generation++;
    ledger_class_add(l, pod);
}

/* As span_put, with a NUL. */
static struct span put_string(struct span text, char **at)
{
    struct span copy = span_put(text, at);
    *(*at)++ = '\0';
    return copy;
}

static struct resources resources_of(const struct pod *pod)
{
    return (struct resources){pod->requests.cpu_milli, pod->requests.memory, 1};
}

static struct ledger_pod *pod_new(struct ledger *l, const struct pod *from)
{
    const struct object_meta *meta = &from->meta;
    const struct resources resources = resources_of(from);
    size_t bytes = meta->uid.n + meta->ns.n + meta->name.n + 3;
    struct ledger_pod *pod = xcalloc(1, sizeof *pod + bytes);
    char *at = pod->strings;
    pod->uid = put_string(meta->uid, &at);
    pod->ns = put_string(meta->ns, &at);
    pod->name = put_string(meta->name, &at);
    pod->created_s = meta->created_s;
    pod->hash = scv_pod_hash(pod->ns, pod->name);
    share_request(l, pod, &(struct request){0}, &resources);
    map_set(&l->pods_by_uid, pod);
    pending_add(l, pod);
    return pod;
}

static void set_resources(struct ledger *l, struct ledger_pod *pod,
                          const struct resources *resources)
{
    if (resources_equal(request_pool_resources(pod->request), resources))
        return;
    share_request(l, pod, pod->request, resources);
    if (pod->node)
        ledger_view(l, pod->node);
}

struct ledger_pod *ledger_pod_add(struct ledger *l, const struct pod *pod,
                                  const struct request *request, const char *why_not)
{
    struct ledger_pod *p = ledger_pod_find(l, pod->meta.uid);
    bool known = p != NULL;
    if (!p)
        p = pod_new(l, pod);
    p->terminating |= pod->meta.deleting;
    p->mirror = pod->mirror;
    p->daemon = pod->daemon;
    p->never_preempts = pod->never_preempts;
    const struct resources resources = resources_of(pod);
    set_resources(l, p, &resources);
    ledger_gang_update(l, p, pod);
    if (p->node && !pod->node.n)
        edit_store(l, p, pod, request, why_not);
    if (p->node)
        return p;
    int32_t priority = ledger_saturated(pod->priority);
    l->pending_generation += p->priority != priority;
    p->priority = priority;
    if (!known || !request_equal(p->request, request) || p->invalid_reason || why_not) {
        if (p->request->kind == REQUEST_NONE && request->kind != REQUEST_NONE && !why_not)
            mix_add(&l->mix, request, pod->requests.cpu_milli);
        l->pending_generation++;
        ledger_class_remove(l, p);
        set_request(l, p, request, why_not);
        ledger_class_add(l, p);
    }
    nominate_as_shown(l, p, pod->nominated_node);
    return p;
}

void ledger_pod_set_request(struct ledger *l, struct ledger_pod *pod,
                            const struct request *request, const char *why_not)
{
    set_request(l, pod, request, why_not);
    ledger_view(l, pod->node);
}

void ledger_pod_set_differences(struct ledger *l, struct ledger_pod *pod,
                                struct span text)
{
    const char *old = pod->differences;
    if (old ? span_eq(span_of(old), text) : !text.n)
        return;
    pod->differences = text.n ? xmemdup0(text.p, text.n) : NULL;
    free((char *)old);
    if (pod->node)
        pod->node->generation = ++l->generation;
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
        const struct ledger_pod_share *a = &pod->shares[i];
        const struct ledger_share *b = &shares[i];
        char text[CARD_UUID_TEXT];
        if (a->card != b->card || a->mib != b->mib ||
            !span_eq(card_uuid_text(&a->uuid, text), b->uuid))
            return false;
    }
    return true;
}

void ledger_pod_place(struct ledger *l, struct ledger_pod *pod, struct span name,
                      const struct ledger_share *shares, uint32_t n)
{
    if (pod->node && span_eq(pod->node->name, name) && same_shares(pod, shares, n))
        return;
    struct ledger_pod_share *copy = shares_copy(shares, n);
    struct ledger_node *node = ledger_node_need(l, name);
    struct ledger_node *old = unlist(l, pod);
    drop_shares(pod);
    pod->shares = copy;
    pod->n_shares = n;
    pod->node = node;
    list_push(&node->pods, pod);
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
    drop_shares(pod);
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
                                            .pod = scv_hash(pod->uid),
                                            .uuid = card->uuid};
        if (mib > 0 || ledger_use_shows(node->facts, pod, i))
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
    map_remove(&l->pods_by_uid, pod->uid);
    refresh_after_removal(l, node);
    pod_free(l, pod);
}
