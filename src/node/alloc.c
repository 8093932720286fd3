/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The allocator's step: the cards and pods of this node, and the life of a kubelet's request.
 */

#include "node/alloc.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/mem.h"
#include "domain/keys.h"
#include "domain/scv.h"
#include "node/device_ids.h"
#include "node/identify.h"
#include "node/reconcile.h"

enum {
    TICK_MS = 1000,
    LIMITS_MS = 3000,     /* time between two checks of the files of the limits */
    NODE_RETRY_MS = 2000, /* shorter than an Allocate waits for the first read */
    RETRY_MS = 100,       /* between two podresources calls of a waiting request */
    RELIST_AFTER_MS = 1000,
};

/* A request of the kubelet that is not answered yet. */
struct pending_request {
    struct list link;
    enum alloc_request_type type;
    uint64_t token;
    struct kubelet_request asked;
    bool canceled, is_confirmed, relist_sent;
    int64_t until_ms;
    uint64_t query;   /* outstanding podresources call; 0: it waits for a change ... */
    int64_t retry_ms; /* ... until then */
};

struct alloc {
    struct alloc_state state;
    struct identify *identify;
    struct reconcile reconcile;
    enum driver_strategy wanted_strategy;
    struct driver_view *driver; /* of the newest sample; NULL: none yet */
    int64_t node_due_ms, limits_due_ms;
    uint64_t serial;      /* number of requests */
    struct list requests; /* oldest first */
    uint64_t others;      /* hash of what ALLOC_DEVICES sent of other plugins' ids */
};

/* A request */

/* One event is written for the pod; for a static pod, when it has a mirror pod. */
static void report_unlimited(struct alloc_state *s, struct local_pod *p, const char *why)
{
    if (alloc_state_is_static(p->pod->uid)) {
        alloc_state_log(s, LOG_WARN, "pod %s: %s", p->pod->full_name, why);
        return;
    }
    if (!p->isolation_reported)
        alloc_state_event(s, p->pod, "GPUIsolationFailed", "%s", why);
    p->isolation_reported = true;
}

/* Records that the container holds the ids of the request, saves that, and answers. */
static bool record_allocation(struct alloc_state *s, struct pending_request *req,
                              const struct alloc_target *t)
{
    struct local_pod *p = t->local;
    const struct pod_allocation *pod = p->pod;
    const struct pod_allocation_container *c = alloc_target_container(t);
    struct err err;
    struct allocation *al =
        allocation_new(pod->uid, pod->ns, pod->name, c->name, c->role, c->resource);
    al->slot_mib = pod_allocation_slot_mib(c, 0);
    /* The container sees its cards in the order of the promise. */
    for (size_t k = 0; k < c->n_shares; k++) {
        const struct plugin_card *card = pod_allocation_card(&s->cards, &c->shares[k]);
        for (size_t i = 0; i < req->asked.n_ids; i++)
            if (req->asked.ids[i].card == card)
                allocation_add(al, span_of(card->uuid), card->index,
                               req->asked.ids[i].number);
    }
    const struct response *r =
        response_of(&s->settings.response, &s->cards, pod, c, al, &s->out->arena, &err);
    if (!r) {
        allocation_free(al);
        return rejection_set(&req->asked.rejection,
                             err.code == ERR_UNAVAILABLE ? REJECTED_NO_CDI_NAME
                             : err.code == ERR_FORBIDDEN ? REJECTED_NO_DRIVER_LIMIT
                                                         : REJECTED_UNHEALTHY_CARD,
                             "%s", err.msg);
    }
    al->driver_limit_mib = r->driver_limit_mib;
    al->limit_device = r->limit_device;
    al->limit_needed = r->limit_needed;
    /* If the kubelet lost its checkpoint it admits the pod's containers again from the
     * first: allocations of this container and later ones are void, unless one has what it
     * was given. */
    for (size_t i = t->container; i < pod->n_containers; i++) {
        const struct pod_allocation_container *each = &pod->containers[i];
        struct allocation *later = alloc_state_allocation(s, pod, each);
        if (later && (each == c || !identify_is_settled(s, pod, each)))
            alloc_state_drop(s, later);
    }
    allocation_set_put(&s->allocations, al);
    s->dirty = true;
    s->stats.allocated[c->resource]++;
    alloc_state_save(s);
    if (al->limit_device)
        alloc_state_output_of(s, ALLOC_LIMIT_DEVICES, pod);
    struct alloc_output *o = alloc_state_output_of(s, ALLOC_ALLOCATED, pod);
    o->token = req->token;
    o->response = r;
    alloc_state_log(s, LOG_INFO, "pod %s: container %.*s got %lld %s of %s%s",
                    pod->full_name, SPAN_ARG(al->container), (long long)req->asked.size,
                    ids_resource_name(c->resource), al->cards[0].uuid.p,
                    al->n_cards > 1 ? " and others" : "");
    bool overrides = c->own_devices && s->settings.response.strategy <= DRIVER_ENVVAR;
    if ((overrides || c->privileged) && !p->env_override_reported) {
        p->env_override_reported = true;
        alloc_state_event(
            s, pod, "GPUEnvOverridden", "container %.*s %s", SPAN_ARG(c->name),
            overrides ? "sets NVIDIA_VISIBLE_DEVICES itself, which overrides the "
                        "card allocated to it"
                      : "is privileged: it has every card of the node, and only "
                        "CUDA_VISIBLE_DEVICES names its own");
    }
    if (r->not_isolated) {
        report_unlimited(s, p, r->not_isolated);
        s->stats.not_isolated++;
    }
    alloc_state_annotate(s, p);
    return true;
}

static void free_request(struct pending_request *req)
{
    list_remove(&req->link);
    arena_fini(&req->asked.arena);
    free(req);
}

/* Waits for a change if that can help, or rejects the request. The extender writes node and
 * annotations at once: a bound pod without them never gets a promise, but where it may have
 * any card another one may become free. A watch on a dead connection stays silent for a long
 * time; a list uses a new one. */
static void wait_or_reject(struct alloc *a, struct pending_request *req,
                           struct local_pod *p)
{
    struct alloc_state *s = &a->state;
    const struct kubelet_request *asked = &req->asked;
    const struct rejection *r = &asked->rejection;
    int64_t now_ms = s->now.mono_ms;
    bool any_card = s->settings.allow_unpromised || (p && p->pod->mirror);
    if ((r->reason < REJECTIONS_TEMPORARY ||
         (r->reason == REJECTED_NO_PROMISE && any_card)) &&
        now_ms < req->until_ms && !req->canceled) {
        if (!req->relist_sent && now_ms - asked->began_ms >= RELIST_AFTER_MS &&
            r->reason != REJECTED_PODRESOURCES) {
            req->relist_sent = true;
            alloc_state_relist(s);
        }
        req->retry_ms = now_ms + RETRY_MS;
        step_due(&s->due_ms, req->retry_ms);
        return;
    }
    s->stats.rejected[r->reason]++;
    alloc_state_log(s, LOG_WARN, "%s of %lld %s rejected (%s): %s%s",
                    req->type == ALLOC_REQUEST_ALLOCATE ? "Allocate"
                                                        : "GetPreferredAllocation",
                    (long long)asked->size, ids_resource_name(asked->resource),
                    rejection_name(r->reason), r->text, r->names);
    if (p) {
        identify_rejected(a->identify, p, asked->serial);
        alloc_state_event(s, p->pod, "GPUAllocationFailed", "%s", r->text);
    }
    struct alloc_output *o = alloc_state_output(s, ALLOC_REJECTED);
    o->token = req->token;
    o->rejection = r->reason;
    o->text = step_text(s->out, span_of(r->text));
    if (req->type == ALLOC_REQUEST_ALLOCATE)
        identify_set_preferred(a->identify, asked, NULL);
    free_request(req);
}

/* The life of a request: identify its container, choose or check the ids, record, answer. It
 * begins without the kubelet's view, asks for it (req->query), and goes on with it. Returns
 * false with the rejection; t->local is then the pod, if it is certain. */
static bool advance_request(struct alloc *a, struct pending_request *req,
                            const struct alloc_kubelet_view *view, struct alloc_target *t)
{
    struct alloc_state *s = &a->state;
    struct kubelet_request *asked = &req->asked;
    struct rejection *r = &asked->rejection;
    bool is_allocate = req->type == ALLOC_REQUEST_ALLOCATE;
    bool unsupported = is_allocate && view && view->unsupported;
    s->no_get |= unsupported;
    if (view && view->err && !unsupported)
        return rejection_set(r, REJECTED_PODRESOURCES, "podresources: %s",
                             view->err->msg);
    if (!is_allocate && !view) {
        req->query = alloc_state_query(s, NULL);
        return true;
    }
    if (!is_allocate) {
        reconcile_view(s, view, true);
        if (!identify_by_list(a->identify, asked, view, t) ||
            !device_ids_check_promise(s, t, r) || !device_ids_select(s, t, asked))
            return false;
        struct span *texts = arena_alloc(&s->out->arena, asked->n_ids * sizeof *texts);
        for (size_t i = 0; i < asked->n_ids; i++)
            texts[i] = span_of(device_ids_text(s, &asked->ids[i]));
        struct alloc_output *o = alloc_state_output(s, ALLOC_PREFERRED);
        o->token = req->token;
        o->ids = texts;
        o->n_ids = asked->n_ids;
        identify_set_preferred(a->identify, asked, t);
        return true;
    }
    if (!identify_by_preference(a->identify, asked, t))
        return false;
    if (!s->node_read)
        return rejection_set(r, REJECTED_NOT_SYNCED,
                             "the API server has not yet sent the Node, whose labels the "
                             "container needs");
    if (!s->no_get && !req->is_confirmed) {
        if (!view) {
            req->query = alloc_state_query(s, t->local->pod);
            return true;
        }
        req->is_confirmed = identify_confirm(a->identify, asked, t, view);
        if (!req->is_confirmed) {
            t->local = NULL;
            return false;
        }
    }
    if (!device_ids_check_promise(s, t, r) ||
        !device_ids_check(s, t, asked->ids, asked->n_ids, r) ||
        !record_allocation(s, req, t))
        return false;
    identify_set_preferred(a->identify, asked, NULL);
    return true;
}

static void try_request(struct alloc *a, struct pending_request *req,
                        const struct alloc_kubelet_view *view)
{
    struct alloc_target t = {0};
    req->query = 0;
    if (!advance_request(a, req, view, &t))
        wait_or_reject(a, req, t.local);
    else if (!req->query)
        free_request(req);
}

/* Tries the waiting requests again: `all`, or those whose time has come. */
static void retry_requests(struct alloc *a, bool all)
{
    LIST_EACH(struct pending_request, req, &a->requests, link)
    {
        if (!req->query && (all || a->state.now.mono_ms >= req->retry_ms))
            try_request(a, req, NULL);
        else if (!req->query)
            step_due(&a->state.due_ms, req->retry_ms);
    }
}

/* `all`: every id must belong to a card of this node; else the others are left out. */
static bool read_ids(const struct alloc_state *s, struct kubelet_request *asked, bool all,
                     const struct span *ids, size_t n, struct device_id **units,
                     size_t *n_units)
{
    *units = arena_alloc(&asked->arena, n * sizeof **units);
    for (size_t i = 0; i < n; i++) {
        if (device_ids_read(s, asked->resource, ids[i], &(*units)[*n_units]))
            ++*n_units;
        else if (all)
            return rejection_set(&asked->rejection, REJECTED_UNKNOWN_ID,
                                 "\"%.*s\" is not a device id of this node",
                                 ids[i].n < 60 ? (int)ids[i].n : 60, ids[i].p);
    }
    return true;
}

static void on_request(struct alloc *a, const struct alloc_request *in)
{
    struct alloc_state *s = &a->state;
    struct pending_request *req = xcalloc(1, sizeof *req);
    struct kubelet_request *asked = &req->asked;
    bool is_allocate = in->type == ALLOC_REQUEST_ALLOCATE;
    list_append(&a->requests, &req->link);
    req->type = in->type;
    req->token = in->token;
    req->until_ms = s->now.mono_ms + s->settings.wait_ms;
    asked->resource = in->resource;
    asked->serial = ++a->serial;
    asked->began_ms = s->now.mono_ms;
    asked->size = is_allocate ? (int64_t)in->n_ids : in->size;
    /* A new GetPreferredAllocation means that the last one's Allocate will not come. */
    if (!is_allocate)
        identify_set_preferred(a->identify, asked, NULL);
    if (read_ids(s, asked, is_allocate, in->ids, in->n_ids, &asked->ids, &asked->n_ids) &&
        read_ids(s, asked, true, in->must, in->n_must, &asked->must, &asked->n_must))
        try_request(a, req, NULL);
    else
        wait_or_reject(a, req, NULL);
}

static void on_cancel(struct alloc *a, uint64_t token)
{
    LIST_EACH(struct pending_request, req, &a->requests, link)
    {
        if (req->token != token)
            continue;
        req->canceled = true;
        if (!req->query)
            try_request(a, req, NULL);
        return;
    }
}

static void on_podresources(struct alloc *a, const struct alloc_kubelet_view *view)
{
    struct alloc_state *s = &a->state;
    a->reconcile.answered_ms = s->now.mono_ms;
    if (view->err && !view->unsupported)
        step_failed(&s->podresources, s->now.mono_ms, view->err);
    else
        step_succeeded(&s->podresources);
    LIST_EACH(struct pending_request, req, &a->requests, link)
    {
        if (req->query != view->query)
            continue;
        try_request(a, req, view);
        return;
    }
    if (view->query == a->reconcile.query)
        reconcile_answered(&a->reconcile, s, a->serial, view);
}

/* Cards and the Node */

/* Sends the list when the ids of other plugins in it have changed, or are known at last. */
static void follow_others(struct alloc *a)
{
    struct alloc_state *s = &a->state;
    uint64_t hash = s->surveyed;
    ALLOCATION_EACH(al, &s->allocations)
    ARRAY_EACH_ITEM(const struct span, id, al->others, al->n_others)
    hash = hash_bytes(hash, id->p, id->n);
    if (hash != a->others)
        alloc_state_output(s, ALLOC_DEVICES);
    a->others = hash;
}

static void report_devices(struct alloc_state *s)
{
    alloc_state_output(s, ALLOC_DEVICES);
    ARRAY_EACH_ITEM(const struct plugin_card, c, s->cards.items, s->cards.n)
    {
        alloc_state_log(
            s, c->health.healthy ? LOG_INFO : LOG_WARN,
            "card %s (index %d): %lld units%s%s", c->uuid, c->index, (long long)c->units,
            c->health.healthy ? ", healthy" : ", unhealthy: ", c->health.reason);
    }
}

/* Logs the strategy when it changes, because nothing else tells what `auto` is. */
static void choose_strategy(struct alloc *a)
{
    cleanup_buf struct buf why = {0};
    struct response_settings *r = &a->state.settings.response;
    r->view = a->driver;
    if (a->wanted_strategy != DRIVER_AUTO || !a->state.node_read || !a->driver)
        return;
    enum driver_strategy chosen =
        driver_view_choose(a->driver, &a->state.driver_node, &why);
    if (chosen != r->strategy)
        alloc_state_log(&a->state, LOG_INFO,
                        "--device-list-strategy=auto stands for %s: %s",
                        driver_strategy_name(chosen), why.p);
    r->strategy = chosen;
}

/* Logs whether containers get the driver's limit, when that changes. */
static void report_driver_limit(struct alloc *a)
{
    struct alloc_state *s = &a->state;
    const struct response_settings *r = &s->settings.response;
    const char *why = response_no_driver(r) ?: "";
    if (!s->node_read || !a->driver || (s->driver_known && !strcmp(why, s->no_driver)))
        return;
    s->driver_known = true;
    snprintf(s->no_driver, sizeof s->no_driver, "%s", why);
    alloc_state_log(s, *why && r->isolation == ISOLATION_DRIVER ? LOG_WARN : LOG_INFO,
                    *why ? "the driver cannot limit the memory of containers: %s"
                         : "the driver limits the memory of containers%s",
                    why);
}

static void on_cards(struct alloc *a, struct alloc_input *in)
{
    struct alloc_state *s = &a->state;
    int64_t now_ms = s->now.mono_ms;
    struct err say;
    if (in->driver) {
        const char *unfit = in->driver->unfit;
        if (*unfit && strcmp(unfit, a->driver ? a->driver->unfit : ""))
            alloc_state_log(
                s, LOG_WARN,
                "names of the kind nvidia.com/gpu are not used: %s. Run `nvidia-ctk "
                "cdi generate`, and remove what is left of a former driver",
                unfit);
        bool is_same = a->driver && a->driver->refuses_limit == in->driver->refuses_limit;
        driver_view_free(a->driver);
        a->driver = steal(&in->driver);
        choose_strategy(a);
        report_driver_limit(a);
        /* The hook keeps a container with these variables from starting where the driver has no
         * limits. After a boot the files are gone. */
        if (!is_same)
            alloc_state_output(s, ALLOC_LIMIT_DEVICES);
    }
    bool changed = cards_take(&s->cards, now_ms, in->seen, in->n, in->err, &say);
    if (say.code != ERR_NONE)
        alloc_state_log(s, LOG_WARN, "%s", say.msg);
    /* A lost card counts only while a container has it, so that the card that replaces it adds
     * no compute to the node. It may have been lost before this process started. Ids are never
     * withdrawn. */
    struct promise_share allocated[CARDS_MAX];
    size_t n = 0, n_allocated = alloc_state_cards_of(s, (struct span){0}, allocated);
    for (size_t i = 0; i < s->cards.n; i++)
        n += s->cards.items[i].present;
    for (size_t i = 0; i < n_allocated; i++) {
        const struct plugin_card *card = cards_by_uuid(&s->cards, allocated[i].uuid);
        n += !card || !card->present;
    }
    if (n > s->cards.most_in_use) {
        s->cards.most_in_use = n;
        changed = true;
    }
    if (changed) {
        report_devices(s);
        step_due(&s->due_ms, now_ms);
    }
}

/* A label that this version does not know may mean that another plugin serves nvidia.com/gpu. The
 * Scv repeats it, so that no pod comes for it. */
static void on_node(struct alloc *a, const struct alloc_input *in)
{
    struct alloc_state *s = &a->state;
    bool first = !s->node_read;
    if (in->err) {
        step_failed(&s->node, s->now.mono_ms, in->err);
        step_due(&a->node_due_ms, s->now.mono_ms + NODE_RETRY_MS);
        return;
    }
    step_succeeded(&s->node);
    s->settings.response.cgpu_disable = in->cgpu_disable;
    s->driver_node = in->node;
    struct span word = in->dialect.n ? in->dialect : span_of(s->settings.dialect);
    if (!s->settings.dialect || span_eq(word, SPAN("none")))
        word = (struct span){0};
    const enum scv_dialect dialect = scv_dialect_of(word);
    if (!span_eq(word, span_of(s->dialect)) && dialect > SCV_DIALECT_HAMI)
        alloc_state_log(s, LOG_ERROR,
                        "the Node's label " KEY_DIALECT " is \"%.*s\", neither hami nor "
                        "none: " KEY_NVIDIA_GPU " is not served",
                        SPAN_ARG(word));
    snprintf(s->dialect, sizeof s->dialect, "%.*s", SPAN_ARG(word));
    if (!s->cards.settings.dialect != (dialect != SCV_DIALECT_HAMI)) {
        s->cards.settings.dialect = s->cards.settings.dialect ? NULL : s->settings.hami;
        alloc_state_log(s, LOG_INFO, KEY_NVIDIA_GPU " is %s HAMi's",
                        s->cards.settings.dialect ? "now" : "no longer");
        /* What pods ask for and containers hold of it is not known yet. */
        if (s->cards.settings.dialect)
            s->listed = s->surveyed = false;
        alloc_state_relist(s);
        alloc_state_output(s, ALLOC_DEVICES);
    }
    s->node_read = true;
    choose_strategy(a);
    report_driver_limit(a);
    if (first)
        retry_requests(a, true);
}

/* Pods */

static void free_pod(struct local_pod *p)
{
    list_remove(&p->link);
    pod_allocation_free(p->pod);
    free(p);
}

/* Containers can outlive their deleted pod: their ids stay held until they leave the
 * kubelet's view. */
static void mark_deleted(struct alloc_state *s, struct span uid)
{
    ALLOCATION_EACH(al, &s->allocations)
    if (span_eq(al->uid, uid))
        al->pod_deleted = true;
}

/* A promise that changed is the driver's limit from the container's next start on. */
static void follow_promise(struct alloc_state *s, const struct pod_allocation *pod)
{
    const struct driver_view *view = s->settings.response.view;
    const bool sets = view && view->sets_limits; /* also those of containers that run */
    bool changed = false;
    ARRAY_EACH_ITEM(const struct pod_allocation_container, c, pod->containers,
                    pod->n_containers)
    {
        struct allocation *al = alloc_state_allocation(s, pod, c);
        if (al && pod_allocation_slot_mib(c, al->slot_mib) != al->slot_mib) {
            al->slot_mib = pod_allocation_slot_mib(c, 0);
            s->dirty = true; /* its step saves it */
        }
        if (!al || !(al->limit_device || (sets && al->driver_limit_mib)))
            continue;
        int64_t mib = response_driver_limit(&s->settings.response, &s->cards, pod, c, al);
        if (mib < 0 || mib == al->driver_limit_mib)
            continue;
        al->driver_limit_mib = mib;
        s->dirty = changed = true;
    }
    if (!changed)
        return;
    alloc_state_save(s);
    alloc_state_output_of(s, ALLOC_LIMIT_DEVICES, pod);
}

static void on_pod(struct alloc *a, struct pod_allocation *pod)
{
    struct alloc_state *s = &a->state;
    struct local_pod *p = alloc_state_pod(s, pod->uid);
    bool was_static = false;
    /* A static pod is admitted before its mirror pod exists. The mirror pod inherits its
     * allocations, also those of the state file, and its description. */
    if (!p && pod->mirror) {
        cleanup_free char *uid = alloc_state_static_uid(pod->ns, pod->name);
        ALLOCATION_EACH(al, &s->allocations)
        {
            if (!span_eq(al->uid, span_of(uid)) ||
                allocation_set_find(&s->allocations, pod->uid, al->container,
                                    al->resource))
                continue;
            al->uid = arena_copy(&al->arena, pod->uid);
            s->dirty = was_static = true;
        }
        p = alloc_state_pod(s, span_of(uid));
    }
    if (!p) {
        p = xcalloc(1, sizeof *p);
        list_append(&s->pods, &p->link);
        p->first_seen_ms = s->now.mono_ms;
    }
    /* Cards chosen here for an unpromised pod stay until its annotations name them. */
    if (p->pod && p->pod->is_chosen && pod->promise == POD_ALLOCATION_UNPROMISED)
        pod_allocation_assign(pod, p->pod->cards, p->pod->n_cards);
    if (p->pod && p->pod->n_containers != pod->n_containers) /* another dialect */
        p->reconciled_ms = 0;
    pod_allocation_free(p->pod);
    p->pod = pod;
    p->list = s->list;
    for (size_t i = s->allocations.n; pod->terminal && i-- > 0;)
        if (span_eq(s->allocations.items[i]->uid, pod->uid))
            alloc_state_drop(s, s->allocations.items[i]);
    alloc_state_assign_held(s, pod);
    follow_promise(s, pod);
    if (alloc_state_is_complete(s, pod)) {
        /* A promise that changed is the limit from now on. */
        const struct response *r =
            response_changed_limit(&s->settings.response, &s->cards, pod, &s->out->arena);
        if (r->limit && was_static)
            report_unlimited(s, p, RESPONSE_STATIC_POD);
        else if (r->limit)
            alloc_state_output_of(s, ALLOC_LIMIT, pod)->response = r;
    }
    alloc_state_annotate(s, p);
    retry_requests(a, true);
}

static void remove_pod(struct alloc *a, struct local_pod *p)
{
    mark_deleted(&a->state, p->pod->uid);
    identify_removed(a->identify, p);
    free_pod(p);
}

/* Static pods that have no mirror pod yet are in no list: one leaves with its allocation. */
static void on_list_ended(struct alloc *a)
{
    struct alloc_state *s = &a->state;
    LIST_EACH(struct local_pod, p, &s->pods, link)
    {
        bool stays = alloc_state_is_static(p->pod->uid) &&
                     (s->admits || alloc_state_is_complete(s, p->pod));
        if (p->list != s->list && !stays)
            remove_pod(a, p);
    }
    s->listed = true;
    ALLOCATION_EACH(al, &s->allocations)
    if (!alloc_state_pod(s, al->uid) && !alloc_state_is_static(al->uid))
        al->pod_deleted = true;
    retry_requests(a, true);
    step_due(&s->due_ms, s->now.mono_ms);
}

/* The step */

/* A tick that is late because the process was stopped or the disk was slow must not count
 * as silence of the driver. */
static void on_tick(struct alloc *a)
{
    struct alloc_state *s = &a->state;
    int64_t now_ms = s->now.mono_ms, late = now_ms - s->due_ms;
    if (cards_tick(&s->cards, now_ms, late > TICK_MS ? late : 0))
        report_devices(s);
    s->due_ms = now_ms + TICK_MS;
    if (now_ms >= a->node_due_ms) {
        alloc_state_output(s, ALLOC_READ_NODE);
        a->node_due_ms = now_ms + s->settings.node_ms;
    }
    if (s->listed && now_ms >= a->limits_due_ms) {
        if (s->settings.response.limit_dir)
            alloc_state_output(s, ALLOC_CHECK_LIMITS);
        alloc_state_output(s, ALLOC_LIMIT_DEVICES);
        a->limits_due_ms = now_ms + LIMITS_MS;
    }
    retry_requests(a, false);
    LIST_EACH(struct local_pod, p, &s->pods, link)
    alloc_state_annotate(s, p);
    if (list_is_empty(&a->requests))
        reconcile_tick(&a->reconcile, s, a->serial);
}

void alloc_step(struct alloc *a, struct step_time now, struct alloc_input *in,
                struct step_outputs *out)
{
    struct alloc_state *s = &a->state;
    struct local_pod *p = in->uid.p ? alloc_state_pod(s, in->uid) : NULL;
    s->now = now;
    s->out = out;
    switch (in->type) {
    case ALLOC_IN_RESTORE:
        ALLOCATION_EACH(al, in->set)
        if (allocation_set_find(&s->allocations, al->uid, al->container, al->resource))
            allocation_free(al);
        else
            allocation_set_put(&s->allocations, al);
        in->set->n = 0;
        allocation_set_fini(in->set);
        break;
    case ALLOC_IN_NODE:
        on_node(a, in);
        break;
    case ALLOC_IN_CARDS:
        on_cards(a, in);
        break;
    case ALLOC_IN_POD:
        on_pod(a, steal(&in->pod));
        break;
    case ALLOC_IN_POD_DELETED:
        if (p)
            remove_pod(a, p);
        else
            mark_deleted(s, in->uid);
        retry_requests(a, true);
        break;
    case ALLOC_IN_LIST_STARTED:
        s->list++;
        break;
    case ALLOC_IN_LIST_ENDED:
        on_list_ended(a);
        break;
    case ALLOC_IN_KUBELET_STARTED:
        identify_kubelet_started(a->identify);
        s->no_get = false;
        LIST_EACH(struct local_pod, each, &s->pods, link)
        each->reconciled_ms = 0;
        step_due(&s->due_ms, now.mono_ms);
        break;
    case ALLOC_IN_REQUEST:
        on_request(a, &in->request);
        break;
    case ALLOC_IN_CANCEL:
        on_cancel(a, in->request.token);
        break;
    case ALLOC_IN_PODRESOURCES:
        on_podresources(a, &in->view);
        break;
    case ALLOC_IN_UNLIMITED:
        if (p)
            report_unlimited(s, p, in->text);
        break;
    case ALLOC_IN_TICK:
        on_tick(a);
        break;
    }
    alloc_state_save(s);
    follow_others(a);
    s->admits = !list_is_empty(&a->requests) || identify_awaits_allocate(a->identify);
}

struct alloc *alloc_new(const struct alloc_settings *settings)
{
    struct alloc *a = xcalloc(1, sizeof *a);
    struct alloc_state *s = &a->state;
    s->settings = *settings;
    s->settings.response.unit_mib = settings->cards.unit_mib;
    list_init(&s->pods);
    list_init(&a->requests);
    a->identify = identify_new(s);
    a->wanted_strategy = settings->response.strategy;
    cards_init(&s->cards, &settings->cards);
    return a;
}

void alloc_free(struct alloc *a)
{
    if (!a)
        return;
    LIST_EACH(struct local_pod, p, &a->state.pods, link)
    {
        free_pod(p);
    }
    LIST_EACH(struct pending_request, req, &a->requests, link)
    {
        free_request(req);
    }
    identify_free(a->identify);
    allocation_set_fini(&a->state.allocations);
    driver_view_free(a->driver);
    free(a);
}

const struct alloc_state *alloc_state(const struct alloc *a)
{
    return &a->state;
}
