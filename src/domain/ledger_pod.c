/* SPDX-License-Identifier: Apache-2.0 */
/* The pods of the ledger that request GPUs: pending or placed, nominated, in a gang, with a
 * request that is stored once for all pods with an equal one. A pod is in exactly one list:
 * of its node, or of pending pods. */
#include "domain/ledger_priv.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "domain/quantity.h"

/* So many more pods, and members of gangs, are pending as this one is, or fewer. */
static void count_pending(struct ledger *l, struct ledger_pod *pod, int pods, int members)
{
    l->n_pending += (size_t)pods;
    pod->class = requests_pend(&l->requests, pod->request, pod->priority, pods, members);
}

/* -- gangs -- */

/* New, with its key in the same block. */
static struct ledger_gang *gang_new(struct span key, struct span ns, size_t name_n)
{
    struct ledger_gang *g = xcalloc(1, sizeof *g + key.n);
    memcpy(g + 1, key.p, key.n);
    g->key = (struct span){(char *)(g + 1), key.n};
    g->ns = (struct span){g->key.p + 2, ns.n}; /* gang_key: kind/namespace/name/... */
    g->name = (struct span){g->ns.p + ns.n + 1, name_n};
    return g;
}

static void gang_leave(struct ledger *l, struct ledger_pod *p)
{
    struct ledger_member *m = p->member;
    if (!m)
        return;
    struct ledger_gang *g = m->gang;
    if (!p->node)
        count_pending(l, p, 0, -1);
    LEDGER_UNLINK(m, next, from);
    if (!g->members) {
        map_remove(&l->gangs, g->key);
        free(g);
    }
    p->member = NULL;
    free(m);
}

static void gang_join(struct ledger *l, struct ledger_pod *p, struct span key,
                      size_t name_n)
{
    struct ledger_gang *g = map_get(&l->gangs, key);
    if (!g) {
        g = gang_new(key, p->ns, name_n);
        map_set(&l->gangs, g);
    }
    struct ledger_member *m = xcalloc(1, sizeof *m);
    m->gang = g;
    m->pod = p;
    m->since_ms = INT64_MAX;
    LEDGER_LINK(g->members, m, next, from);
    p->member = m;
    if (!p->node)
        count_pending(l, p, 0, 1);
}

static void gang_update(struct ledger *l, struct ledger_pod *p, const struct pod *pod)
{
    cleanup_buf struct buf key = {0};
    struct gang gang;
    if (!gang_of(pod, &gang)) {
        gang_leave(l, p);
        return;
    }
    gang_key(&key, p->ns, &gang);
    if (!p->member || !span_eq(p->member->gang->key, buf_span(&key))) {
        gang_leave(l, p);
        gang_join(l, p, buf_span(&key), gang.name.n);
    }
    p->member->minimum = gang.minimum;
}

const struct ledger_gang *ledger_gang_find(const struct ledger *l, struct span ns,
                                           const struct gang *gang)
{
    cleanup_buf struct buf key = {0};
    gang_key(&key, ns, gang);
    return map_get(&l->gangs, buf_span(&key));
}

const struct ledger_gang *ledger_gang_at(const struct ledger *l, struct span key)
{
    return map_get(&l->gangs, key);
}

/* -- pods -- */

static void edit_free(struct ledger *l, struct ledger_pod_edit *edit)
{
    if (!edit)
        return;
    requests_release(&l->requests, edit->request);
    free(edit->invalid_reason);
    free((char *)edit->nominated.p);
    free(edit);
}

static void pod_free(struct ledger *l, struct ledger_pod *pod)
{
    edit_free(l, pod->edit);
    requests_release(&l->requests, pod->asks);
    free((char *)pod->invalid_reason);
    free((char *)pod->differences);
    free(pod->nomination);
    free(pod->shares);
    free(pod->terms);
    free(pod);
}

void ledger_pods_init(struct ledger *l, uint64_t seed)
{
    map_init(&l->pods_by_uid, seed ^ 0x5bd1e995, offsetof(struct ledger_pod, uid));
    map_init(&l->gangs, seed ^ 0x3c6ef372, offsetof(struct ledger_gang, key));
}

void ledger_pods_free(struct ledger *l)
{
    for (struct ledger_pod *pod = ledger_first_pod(l), *next; pod; pod = next) {
        next = ledger_next_pod(l, pod);
        gang_leave(l, pod);
        pod_free(l, pod);
    }
    map_fini(&l->gangs);
    map_fini(&l->pods_by_uid);
}

struct resources ledger_pod_requests(const struct ledger_pod *pod)
{
    return *requests_resources(pod->asks);
}

struct ledger_pod *ledger_pod_find(const struct ledger *l, struct span uid)
{
    return map_get(&l->pods_by_uid, uid);
}

const struct requests *ledger_requests(const struct ledger *l)
{
    return &l->requests;
}

struct ledger_pod *ledger_last_pending(const struct ledger *l)
{
    return l->last_pending;
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

static void list_push_pod(struct ledger_pod **head, struct ledger_pod *pod)
{
    pod->prev = NULL;
    pod->next = *head;
    if (*head)
        (*head)->prev = pod;
    *head = pod;
}

static void list_remove_pod(struct ledger_pod **head, struct ledger_pod *pod)
{
    *(pod->prev ? &pod->prev->next : head) = pod->next;
    if (pod->next)
        pod->next->prev = pod->prev;
    pod->next = pod->prev = NULL;
}

static void nomination_end(struct ledger *l, struct ledger_pod *pod)
{
    struct ledger_nomination *m = pod->nomination;
    struct ledger_node *node = m->node;
    LEDGER_UNLINK(m, next, from);
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
    LEDGER_LINK(node->nominated, m, next, from);
    pod->nomination = m;
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

/* What the pod asks for where it is. One that a bind in the dialect has given cards keeps them when
 * its node leaves the dialect. */
static const struct request *request_here(const struct ledger_pod *pod)
{
    return request_on(pod->asks, !pod->node ? SCV_DIALECT_NONE
                                 : pod->n_shares && !MUTANT(promise_ends_with_dialect)
                                     ? SCV_DIALECT_HAMI
                                     : pod->node->dialect);
}

/* `resources`: what it requests of its node. */
static void share_request(struct ledger *l, struct ledger_pod *pod,
                          const struct request *request,
                          const struct resources *resources)
{
    const struct request *old = pod->asks;
    pod->asks = requests_take(&l->requests, request, resources);
    pod->request = request_here(pod);
    if (old)
        requests_release(&l->requests, old);
}

/* Replaces both with copies. */
static void set_request(struct ledger *l, struct ledger_pod *pod,
                        const struct request *request, const char *why_not)
{
    share_request(l, pod, request, requests_resources(pod->asks));
    free((char *)pod->invalid_reason);
    pod->invalid_reason = why_not ? xstrdup(why_not) : NULL;
}

static void edit_store(struct ledger *l, struct ledger_pod *p, const struct pod *pod,
                       const struct request *request, const char *why_not)
{
    edit_free(l, p->edit);
    p->edit = xcalloc(1, sizeof *p->edit);
    p->edit->priority = ledger_saturated(pod->priority);
    p->edit->nominated = (struct span){
        xmemdup0(pod->nominated_node.p, pod->nominated_node.n), pod->nominated_node.n};
    p->edit->request = requests_take(&l->requests, request, requests_resources(p->asks));
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
    list_push_pod(&l->pending, pod);
    if (!pod->next)
        l->last_pending = pod;
    l->pending_generation++;
    count_pending(l, pod, 1, pod->member != NULL);
}

static struct ledger_pod *pod_new(struct ledger *l, const struct pod *from)
{
    const struct object_meta *meta = &from->meta;
    size_t bytes = meta->uid.n + meta->ns.n + meta->name.n + 3;
    struct ledger_pod *pod = xcalloc(1, sizeof *pod + bytes);
    char *at = pod->strings;
    pod->uid = ledger_put_string(meta->uid, &at);
    pod->ns = ledger_put_string(meta->ns, &at);
    pod->name = ledger_put_string(meta->name, &at);
    pod->created_s = (uint32_t)quantity_at_most(meta->created_s, UINT32_MAX);
    share_request(l, pod, &(struct request){0}, &from->requests);
    map_set(&l->pods_by_uid, pod);
    pending_add(l, pod);
    return pod;
}

uint32_t ledger_scheduler(struct span name)
{
    if (!name.n)
        name = SPAN("default-scheduler"); /* as the API server has it */
    return (uint32_t)hash_bytes(0, name.p, name.n);
}

struct ledger_pod *ledger_pod_add(struct ledger *l, const struct pod *pod,
                                  const struct request *request, const char *why_not)
{
    struct ledger_pod *p = ledger_pod_find(l, pod->meta.uid);
    bool known = p != NULL;
    if (!p)
        p = pod_new(l, pod);
    if (pod->meta.deleting && !p->terminating &&
        p->node) /* nominated pods get its cards */
        p->node->generation = ++l->generation;
    if (pod->object.n) {
        struct terms *old = p->terms;
        p->terms = pod->node.n && !l->settings.keep_terms ? NULL : terms_new(pod->terms);
        l->pending_generation += !p->node && !terms_equal(old, p->terms);
        free(old);
    }
    p->terminating |= pod->meta.deleting;
    p->mirror = pod->mirror;
    p->daemon = pod->daemon;
    p->never_preempts = pod->never_preempts;
    p->gated = pod->gated;
    bool seen = pod->bound_s || pod->phase != POD_PENDING || pod->mirror;
    bool admitted = p->unseen && seen;
    p->unseen = pod->node.n && !seen && (!p->node || p->unseen);
    p->scheduler = ledger_scheduler(pod->scheduler);
    bool resized = !resources_equal(requests_resources(p->asks), &pod->requests);
    if (resized)
        share_request(l, p, p->asks, &pod->requests);
    if (p->node && (resized || admitted))
        ledger_derive(l, p->node);
    gang_update(l, p, pod);
    if (p->node && !pod->node.n)
        edit_store(l, p, pod, request, why_not);
    if (p->node)
        return p;
    int32_t priority = ledger_saturated(pod->priority);
    if (!known || p->priority != priority || !request_equal(p->request, request) ||
        p->invalid_reason || why_not) {
        if (p->request->kind == REQUEST_NONE && request->kind != REQUEST_NONE && !why_not)
            requests_weigh(&l->requests, request, pod->requests.cpu_milli);
        l->pending_generation++;
        count_pending(l, p, -1, -(p->member != NULL));
        p->priority = priority;
        set_request(l, p, request, why_not);
        count_pending(l, p, 1, p->member != NULL);
    }
    nominate_as_shown(l, p, pod->nominated_node);
    return p;
}

void ledger_pod_settle(struct ledger *l, struct ledger_pod *pod)
{
    struct quota_amounts before = pod->quota;
    pod->request = request_here(pod);
    pod->quota = pod->node ? ledger_quota_amounts(pod->request, pod->shares,
                                                  pod->n_shares, pod->node)
                           : (struct quota_amounts){0};
    if (!memcmp(&before, &pod->quota, sizeof before))
        return;
    quotas_use(&l->quotas, pod->ns, pod->quota, 1);
    quotas_use(&l->quotas, pod->ns, before, -1);
}

void ledger_pod_set_request(struct ledger *l, struct ledger_pod *pod,
                            const struct request *request, const char *why_not)
{
    set_request(l, pod, request, why_not);
    ledger_derive(l, pod->node);
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
    if (l->last_pending == pod)
        l->last_pending = pod->prev;
    list_remove_pod(node ? &node->pods : &l->pending, pod);
    if (!node) {
        l->pending_generation++;
        count_pending(l, pod, -1, -(pod->member != NULL));
    }
    pod->node = NULL;
    pod->other_cards = 0;
    ledger_pod_settle(l, pod);
    return node;
}

static void refresh_after_removal(struct ledger *l, struct ledger_node *node)
{
    if (!node)
        return;
    ledger_derive(l, node);
    ledger_node_drop_if_unused(l, node);
}

static bool same_shares(const struct ledger_pod *pod, const struct ledger_share *shares,
                        uint32_t n)
{
    if (pod->n_shares != n)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const struct ledger_share *a = &pod->shares[i], *b = &shares[i];
        if (a->card != b->card || a->mib != b->mib || a->unit_mib != b->unit_mib ||
            a->card_units != b->card_units || a->percent != b->percent ||
            a->compute_percent != b->compute_percent || !span_eq(a->uuid, b->uuid))
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
    pod->n_shares = (uint8_t)n;
    pod->node = node;
    pod->request = request_here(pod);
    list_push_pod(&node->pods, pod);
    nominate(l, pod, (struct span){0});
    if (old != node)
        refresh_after_removal(l, old);
    ledger_derive(l, node);
}

void ledger_pod_running(struct ledger *l, struct ledger_pod *pod, bool before)
{
    if (pod->running)
        return;
    pod->running = true;
    pod->first_sample = before || !pod->node ? 0 : pod->node->facts->samples + 1;
    if (pod->node)
        ledger_derive(l, pod->node);
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

void ledger_pod_remove(struct ledger *l, struct ledger_pod *pod)
{
    struct ledger_node *node = pod->node;
    if (node)
        ledger_facts_depart(node, pod);
    nominate(l, pod, (struct span){0});
    gang_leave(l, pod);
    unlist(l, pod);
    map_remove(&l->pods_by_uid, pod->uid);
    refresh_after_removal(l, node);
    pod_free(l, pod);
}
