/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The allocator's step: its inputs, the cards and pods of this node, and its outputs.
 */

#include "plugin/alloc.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/jwrite.h"
#include "base/mem.h"
#include "domain/keys.h"
#include "plugin/alloc_priv.h"

enum {
    TICK_MS = 1000,
    /* If the pod watch has not shown the patch: the first repeat and later ones. */
    PATCH_REPEAT_MS = 1000,
    PATCH_RETRY_MS = 30 * 1000,
    NODE_RETRY_MS = 2000, /* shorter than an Allocate waits for the first read */
};

/* Outputs */

struct alloc_output *alloc_add(struct alloc *a, enum alloc_output_type type)
{
    struct alloc_output *o = step_add(a->out, sizeof *o);
    o->type = type;
    return o;
}

struct alloc_output *alloc_add_of_pod(struct alloc *a, enum alloc_output_type type,
                                      const struct pod_allocation *pod)
{
    struct alloc_output *o = alloc_add(a, type);
    o->ns = step_text(a->out, pod->ns);
    o->name = step_text(a->out, pod->name);
    o->uid = step_text(a->out, pod->uid);
    return o;
}

uint64_t alloc_query(struct alloc *a, const struct pod_allocation *pod)
{
    struct alloc_output *o =
        pod ? alloc_add_of_pod(a, ALLOC_QUERY, pod) : alloc_add(a, ALLOC_QUERY);
    return o->query = ++a->queries;
}

void alloc_event(struct alloc *a, const struct pod_allocation *pod, const char *reason,
                 const char *fmt, ...)
{
    va_list ap;
    struct alloc_output *o = alloc_add_of_pod(a, ALLOC_EVENT, pod);
    va_start(ap, fmt);
    o->reason = reason;
    o->text = arena_vprintf(&a->out->arena, fmt, ap);
    va_end(ap);
}

void alloc_save(struct alloc *a)
{
    if (a->dirty)
        alloc_add(a, ALLOC_SAVE);
    a->dirty = false;
}

void alloc_drop(struct alloc *a, struct allocation *al)
{
    allocation_set_drop(&a->state.allocations, al);
    a->dirty = true;
}

/* Cards */

bool alloc_read_id(const struct alloc *a, enum ids_resource r, struct span text,
                   struct device_id *unit)
{
    struct ids_id id;
    if (!ids_read(r, text, &id))
        return false;
    *unit = (struct device_id){cards_by_tag(&a->state.cards, &id.tag), id.unit};
    return unit->card && id.unit < unit->card->most_units;
}

/* The cards that allocations of the pod have, each once; without a UID those of all pods.
 * Returns their number. */
static size_t cards_of(const struct alloc *a, struct span uid,
                       struct promise_share cards[CARDS_MAX])
{
    size_t n = 0;
    for (size_t i = 0; i < a->state.allocations.n; i++) {
        const struct allocation *al = a->state.allocations.items[i];
        for (size_t k = 0; k < al->n_cards && (!uid.p || span_eq(al->uid, uid)); k++) {
            size_t at = 0;
            while (at < n && !span_eq(cards[at].uuid, al->cards[k].uuid))
                at++;
            if (at == n && n < CARDS_MAX)
                cards[n++] = (struct promise_share){.uuid = al->cards[k].uuid,
                                                    .card = al->cards[k].index};
        }
    }
    return n;
}

/* A lost card counts only while a container has it, so that the card that replaces it adds
 * no compute to the node. It may have been lost before this process started. Returns whether
 * there are more now: ids are never withdrawn. */
static bool count_cards(struct alloc *a)
{
    struct cards *cards = &a->state.cards;
    struct promise_share allocated[CARDS_MAX];
    size_t n = 0, n_allocated = cards_of(a, (struct span){0}, allocated);
    for (size_t i = 0; i < cards->n; i++)
        n += cards->items[i].present;
    for (size_t i = 0; i < n_allocated; i++) {
        const struct plugin_card *card = cards_by_uuid(cards, allocated[i].uuid);
        n += !card || !card->present;
    }
    bool more = n > cards->most_in_use;
    if (more)
        cards->most_in_use = n;
    return more;
}

static void report_devices(struct alloc *a)
{
    alloc_add(a, ALLOC_DEVICES);
    ARRAY_EACH_ITEM(const struct plugin_card, c, a->state.cards.items, a->state.cards.n)
    {
        alloc_log(a, c->health.healthy ? LOG_INFO : LOG_WARN,
                  "card %s (index %d): %lld units%s%s", c->uuid, c->index,
                  (long long)c->units,
                  c->health.healthy ? ", healthy" : ", unhealthy: ", c->health.reason);
    }
}

/* Logs the strategy when it changes, because nothing else tells what `auto` is. */
static void choose_strategy(struct alloc *a)
{
    cleanup_buf struct buf why = {0};
    struct response_settings *r = &a->settings.response;
    r->view = a->driver;
    if (a->wanted_strategy != DRIVER_AUTO || !a->node_read || !a->driver)
        return;
    enum driver_strategy chosen = driver_view_choose(a->driver, &a->driver_node, &why);
    if (chosen != r->strategy)
        alloc_log(a, LOG_INFO, "--device-list-strategy=auto stands for %s: %s",
                  driver_strategy_name(chosen), why.p);
    r->strategy = chosen;
}

static void on_cards(struct alloc *a, struct alloc_input *in)
{
    struct cards *cards = &a->state.cards;
    int64_t now_ms = a->now.mono_ms;
    struct err left_out;
    bool changed, log = false;
    if (in->driver) {
        driver_view_free(a->driver);
        a->driver = steal(&in->driver);
        choose_strategy(a);
    }
    if (in->err) {
        changed = cards_sample_failed(cards, now_ms, in->err, &log);
        if (log)
            alloc_log(a, LOG_WARN, "cannot sample the cards; retrying: %s", in->err->msg);
    } else {
        changed = cards_sampled(cards, now_ms, in->seen, in->n, &left_out);
        if (left_out.code != ERR_NONE && changed)
            alloc_log(a, LOG_ERROR, "%s", left_out.msg);
    }
    changed |= count_cards(a);
    if (changed) {
        report_devices(a);
        step_due(&a->state.due_ms, now_ms);
    }
}

static void on_node(struct alloc *a, const struct alloc_input *in)
{
    bool first = !a->node_read;
    if (in->err) {
        step_failed(&a->state.node, a->now.mono_ms, in->err);
        step_due(&a->node_due_ms, a->now.mono_ms + NODE_RETRY_MS);
        return;
    }
    step_succeeded(&a->state.node);
    a->settings.response.cgpu_disable = in->cgpu_disable;
    a->driver_node = in->node;
    a->node_read = true;
    choose_strategy(a);
    if (first)
        alloc_request_retry(a, true);
}

/* Pods */

static void free_pod(struct alloc *a, struct local_pod *p)
{
    if (a->preferred.local == p)
        a->preferred.local = NULL;
    list_remove(&p->link);
    pod_allocation_free(p->pod);
    free(p);
}

struct local_pod *alloc_pod_find(const struct alloc *a, struct span uid)
{
    LIST_EACH(struct local_pod, p, &a->local_pods, link)
    if (span_eq(p->pod->uid, uid))
        return p;
    return NULL;
}

/* Of several pods with this name: the one that is not terminal, else the newest. */
struct local_pod *alloc_pod_by_name(const struct alloc *a, struct span ns,
                                    struct span name)
{
    struct local_pod *found = NULL;
    LIST_EACH(struct local_pod, p, &a->local_pods, link)
    if (span_eq(p->pod->name, name) && span_eq(p->pod->ns, ns) &&
        (!found || !p->pod->terminal))
        found = p;
    return found;
}

struct allocation *alloc_of_container(const struct alloc *a,
                                      const struct pod_allocation *pod,
                                      const struct pod_allocation_container *c)
{
    return allocation_set_find(&a->state.allocations, pod->uid, c->name, c->resource);
}

/* Has every container of the pod an allocation? */
static bool is_complete(const struct alloc *a, const struct pod_allocation *pod)
{
    for (size_t i = 0; i < pod->n_containers; i++)
        if (!alloc_of_container(a, pod, &pod->containers[i]))
            return false;
    return pod->n_containers > 0;
}

/* It has no mirror pod yet that could be annotated. */
static bool is_static(struct span uid)
{
    return span_starts(uid, SPAN("static:"));
}

void alloc_pod_assign_from_allocations(struct alloc *a, struct pod_allocation *pod)
{
    struct promise_share cards[CARDS_MAX];
    size_t n = 0;
    /* What the kubelet shows by name may be of a former pod, until this one has started. */
    bool may = pod->started || pod->mirror || a->settings.allow_unpromised;
    if (pod->promise == POD_ALLOCATION_UNPROMISED && may)
        n = cards_of(a, pod->uid, cards);
    if (n)
        pod_allocation_assign(pod, cards, n);
}

/* Returns whether the annotations are due, and counts them as sent. */
static bool take_turn(const struct alloc *a, struct pod_patch *patch)
{
    int64_t wait_ms = patch->n == 1 ? PATCH_REPEAT_MS : PATCH_RETRY_MS;
    if (patch->n && a->now.mono_ms - patch->sent_ms < wait_ms)
        return false;
    *patch = (struct pod_patch){a->now.mono_ms, patch->n + 1};
    return true;
}

static void annotate_cards(struct alloc *a, const struct pod_allocation *pod)
{
    struct promise_share shares[CARDS_MAX];
    const struct promise promise = {
        .shares = shares, .n = pod->n_cards, .unit_mib = a->settings.response.unit_mib};
    cleanup_buf struct buf b = {0};
    for (size_t i = 0; i < pod->n_cards; i++) {
        const struct plugin_card *card =
            pod_allocation_card(&a->state.cards, &pod->cards[i]);
        shares[i] = pod->cards[i];
        shares[i].card_units = card ? card->units : 0;
        if (!card || !card->has_uuid)
            shares[i].uuid = (struct span){0};
    }
    promise_write(&b, &promise, &pod->request, pod->uid, a->now.wall_ns);
    alloc_add_of_pod(a, ALLOC_PATCH, pod)->text = step_text(a->out, buf_span(&b));
}

/* Appends the UUIDs of the pod's cards. False: one has none. */
static bool write_uuids(const struct alloc *a, const struct pod_allocation *pod,
                        struct buf *out)
{
    for (size_t i = 0; i < pod->n_cards; i++) {
        const struct plugin_card *card =
            pod_allocation_card(&a->state.cards, &pod->cards[i]);
        if (!card || !card->has_uuid)
            return false;
        buf_printf(out, "%s%s", i ? "," : "", card->uuid);
    }
    return true;
}

void alloc_pod_annotate(struct alloc *a, struct local_pod *p)
{
    const struct pod_allocation *pod = p->pod;
    cleanup_buf struct buf uuids = {0}, text = {0};
    struct jwrite w = {.out = &text};
    if (pod->terminal || is_static(pod->uid) || !pod->n_containers)
        return;
    if (pod->is_chosen && alloc_of_container(a, pod, &pod->containers[0]) &&
        take_turn(a, &p->cards)) {
        annotate_cards(a, pod);
        p->assigned = (struct pod_patch){0}; /* the promise has it as false */
    }
    bool lacks_uuids = pod->lacks_uuids && write_uuids(a, pod, &uuids);
    if ((pod->assigned && !lacks_uuids) || pod->promise != POD_ALLOCATION_PROMISED ||
        !is_complete(a, pod) || !take_turn(a, &p->assigned))
        return;
    jwrite_object(&w, NULL);
    jwrite_str(&w, KEY_MEM_ASSIGNED, SPAN("true"));
    if (lacks_uuids)
        jwrite_str(&w, KEY_CARD_UUID, buf_span(&uuids));
    jwrite_object_end(&w);
    alloc_add_of_pod(a, ALLOC_PATCH, pod)->text = step_text(a->out, buf_span(&text));
}

/* Containers can outlive their deleted pod: their ids stay held until they leave the
 * kubelet's view. */
static void mark_deleted(struct alloc *a, struct span uid)
{
    for (size_t i = 0; i < a->state.allocations.n; i++)
        if (span_eq(a->state.allocations.items[i]->uid, uid))
            a->state.allocations.items[i]->pod_deleted = true;
}

/* A static pod is admitted before its mirror pod exists. The mirror pod inherits its
 * allocations. */
static struct local_pod *adopt_static(struct alloc *a, const struct pod_allocation *pod)
{
    struct local_pod *p = alloc_pod_by_name(a, pod->ns, pod->name);
    if (!pod->mirror || !p || !is_static(p->pod->uid))
        return NULL;
    for (size_t i = 0; i < a->state.allocations.n; i++) {
        struct allocation *al = a->state.allocations.items[i];
        if (span_eq(al->uid, p->pod->uid)) {
            al->uid = arena_copy(&al->arena, pod->uid);
            a->dirty = true;
        }
    }
    return p;
}

static struct local_pod *new_pod(struct alloc *a)
{
    struct local_pod *p = xcalloc(1, sizeof *p);
    list_append(&a->local_pods, &p->link);
    p->first_seen_ms = a->now.mono_ms;
    return p;
}

static void on_pod(struct alloc *a, struct pod_allocation *pod)
{
    struct local_pod *p = alloc_pod_find(a, pod->uid);
    if (!p)
        p = adopt_static(a, pod);
    if (!p)
        p = new_pod(a);
    /* Cards chosen here for an unpromised pod stay until its annotations name them. */
    if (p->pod && p->pod->is_chosen && pod->promise == POD_ALLOCATION_UNPROMISED)
        pod_allocation_assign(pod, p->pod->cards, p->pod->n_cards);
    pod_allocation_free(p->pod);
    p->pod = pod;
    p->list = a->list;
    for (size_t i = a->state.allocations.n; pod->terminal && i-- > 0;)
        if (span_eq(a->state.allocations.items[i]->uid, pod->uid))
            alloc_drop(a, a->state.allocations.items[i]);
    alloc_pod_assign_from_allocations(a, pod);
    if (is_complete(a, pod)) {
        /* A promise that changed is the limit from now on. */
        const struct response *r = response_changed_limit(
            &a->settings.response, &a->state.cards, pod, &a->out->arena);
        if (r->limit)
            alloc_add_of_pod(a, ALLOC_LIMIT, pod)->response = r;
    }
    alloc_pod_annotate(a, p);
    alloc_save(a);
    alloc_request_retry(a, true);
}

static void remove_pod(struct alloc *a, struct local_pod *p)
{
    mark_deleted(a, p->pod->uid);
    alloc_podresources_rule_out(a, p->pod, 0);
    free_pod(a, p);
}

static void on_pod_deleted(struct alloc *a, struct span uid)
{
    struct local_pod *p = alloc_pod_find(a, uid);
    if (p)
        remove_pod(a, p);
    else
        mark_deleted(a, uid);
    alloc_save(a);
    alloc_request_retry(a, true);
}

/* Static pods that have no mirror pod yet are in no list. */
static void on_list_ended(struct alloc *a)
{
    LIST_EACH(struct local_pod, p, &a->local_pods, link)
    {
        if (p->list != a->list && !is_static(p->pod->uid))
            remove_pod(a, p);
    }
    a->state.listed = true;
    for (size_t i = 0; i < a->state.allocations.n; i++) {
        struct allocation *al = a->state.allocations.items[i];
        if (!alloc_pod_find(a, al->uid) && !is_static(al->uid))
            al->pod_deleted = true;
    }
    alloc_save(a);
    alloc_request_retry(a, true);
    step_due(&a->state.due_ms, a->now.mono_ms);
}

/* The step */

static void on_restore(struct alloc *a, struct allocation_set *from)
{
    for (size_t i = 0; i < from->n; i++) {
        struct allocation *al = from->items[i];
        if (allocation_set_find(&a->state.allocations, al->uid, al->container,
                                al->resource))
            allocation_free(al);
        else
            allocation_set_put(&a->state.allocations, al);
    }
    from->n = 0;
    allocation_set_fini(from);
}

static void on_kubelet_started(struct alloc *a)
{
    a->kubelet_epoch++;
    a->preferred.local = NULL;
    a->no_get = false;
    alloc_podresources_forget(a);
    LIST_EACH(struct local_pod, p, &a->local_pods, link)
    p->reconciled_ms = 0;
    step_due(&a->state.due_ms, a->now.mono_ms);
}

static void on_podresources(struct alloc *a, const struct alloc_kubelet_view *view)
{
    a->answered_ms = a->now.mono_ms;
    if (view->err && !view->unsupported)
        step_failed(&a->state.podresources, a->now.mono_ms, view->err);
    else
        step_succeeded(&a->state.podresources);
    struct pending_request *asker = NULL;
    LIST_EACH(struct pending_request, req, &a->requests, link)
    if (req->query == view->query)
        asker = req;
    if (asker)
        alloc_request_kubelet_answered(a, asker, view);
    else if (view->query == a->reconcile_query)
        alloc_podresources_answered(a, view);
    alloc_save(a);
}

static void on_unlimited(struct alloc *a, struct span uid, const char *why)
{
    struct local_pod *p = alloc_pod_find(a, uid);
    if (!p || p->isolation_reported)
        return;
    p->isolation_reported = true;
    alloc_event(a, p->pod, "GPUIsolationFailed", "%s", why);
}

/* A tick that is late because the process was stopped or the disk was slow must not count
 * as silence of the driver. */
static void on_tick(struct alloc *a)
{
    int64_t late = a->now.mono_ms - a->state.due_ms;
    if (cards_tick(&a->state.cards, a->now.mono_ms, late > TICK_MS ? late : 0))
        report_devices(a);
    a->state.due_ms = a->now.mono_ms + TICK_MS;
    if (a->now.mono_ms >= a->node_due_ms) {
        alloc_add(a, ALLOC_READ_NODE);
        a->node_due_ms = a->now.mono_ms + a->settings.node_ms;
    }
    alloc_request_retry(a, false);
    LIST_EACH(struct local_pod, p, &a->local_pods, link)
    alloc_pod_annotate(a, p);
    alloc_podresources_tick(a);
    alloc_save(a);
}

void alloc_step(struct alloc *a, struct step_time now, struct alloc_input *in,
                struct step_outputs *out)
{
    a->now = now;
    a->out = out;
    switch (in->type) {
    case ALLOC_IN_RESTORE:
        on_restore(a, in->set);
        break;
    case ALLOC_IN_NODE:
        on_node(a, in);
        break;
    case ALLOC_IN_CARDS:
        on_cards(a, in);
        break;
    case ALLOC_IN_CARD_EVENT:
        if (cards_event(&a->state.cards, now.mono_ms, &in->event))
            report_devices(a);
        break;
    case ALLOC_IN_POD:
        on_pod(a, steal(&in->pod));
        break;
    case ALLOC_IN_POD_DELETED:
        on_pod_deleted(a, in->uid);
        break;
    case ALLOC_IN_LIST_STARTED:
        a->list++;
        break;
    case ALLOC_IN_LIST_ENDED:
        on_list_ended(a);
        break;
    case ALLOC_IN_KUBELET_STARTED:
        on_kubelet_started(a);
        break;
    case ALLOC_IN_REQUEST:
        alloc_request_take(a, &in->request);
        break;
    case ALLOC_IN_CANCEL:
        alloc_request_cancel(a, in->request.token);
        break;
    case ALLOC_IN_PODRESOURCES:
        on_podresources(a, &in->view);
        break;
    case ALLOC_IN_UNLIMITED:
        on_unlimited(a, in->uid, in->text);
        break;
    case ALLOC_IN_TICK:
        on_tick(a);
        break;
    }
}

struct alloc *alloc_new(const struct alloc_settings *settings)
{
    struct alloc *a = xcalloc(1, sizeof *a);
    a->settings = *settings;
    a->kubelet_epoch = 1;
    list_init(&a->local_pods);
    list_init(&a->requests);
    list_init(&a->unknown_pods);
    a->settings.response.unit_mib = settings->unit_mib;
    a->wanted_strategy = settings->response.strategy;
    cards_init(&a->state.cards, &(struct cards_settings){.unit_mib = settings->unit_mib,
                                                         .silent_ms = settings->silent_ms,
                                                         .health = settings->health});
    return a;
}

void alloc_free(struct alloc *a)
{
    if (!a)
        return;
    LIST_EACH(struct local_pod, p, &a->local_pods, link)
    {
        free_pod(a, p);
    }
    LIST_EACH(struct pending_request, req, &a->requests, link)
    {
        alloc_request_free(req);
    }
    alloc_podresources_forget(a);
    allocation_set_fini(&a->state.allocations);
    driver_view_free(a->driver);
    free(a);
}

bool alloc_has_pod(const struct alloc *a, struct span uid)
{
    return alloc_pod_find(a, uid) != NULL;
}

const struct alloc_state *alloc_state(const struct alloc *a)
{
    return &a->state;
}
