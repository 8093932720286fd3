/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/alloc_priv.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

enum {
    RETRY_MS = 100, /* between two podresources calls of a waiting request */
    RELIST_AFTER_MS = 1000,
};

enum verdict alloc_request_explain(struct pending_request *req, enum verdict verdict,
                                   enum alloc_rejection why, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(req->text, sizeof req->text, fmt, ap);
    va_end(ap);
    req->names[0] = '\0';
    req->why = why;
    return verdict;
}

void alloc_request_free(struct pending_request *req)
{
    struct arena arena = req->arena;
    free(req);
    arena_fini(&arena);
}

static void finish(struct alloc *a, struct pending_request *req)
{
    struct pending_request **at = &a->requests;
    while (*at != req)
        at = &(*at)->next;
    *at = req->next;
    alloc_request_free(req);
}

static struct alloc_output *answer(struct alloc_outputs *out,
                                   const struct pending_request *req,
                                   enum alloc_output_type type)
{
    struct alloc_output *o = alloc_output_add(out, type);
    o->token = req->token;
    return o;
}

const char *alloc_request_name(enum alloc_request_type type)
{
    static const char *const names[ALLOC_REQUEST_TYPES] = {
        "GetPreferredAllocation", "Allocate", "PreStartContainer"};
    return names[type];
}

/* With --legacy-no-gpu-env a rejection is a success that names no card, or an empty
 * preference. */
static void answer_rejection(struct alloc *a, const struct pending_request *req,
                             struct alloc_outputs *out)
{
    bool legacy = a->settings.legacy_env && req->type != ALLOC_REQUEST_START;
    if (!legacy) {
        const char *text = alloc_output_text(out, span_of(req->text));
        struct alloc_output *o = answer(out, req, ALLOC_REJECTED);
        o->rejection = req->why;
        o->text = text;
    } else if (req->type == ALLOC_REQUEST_PREFERRED) {
        answer(out, req, ALLOC_PREFERRED);
    } else {
        const struct response *r =
            response_without(&a->settings.response, req->size, &out->arena);
        answer(out, req, ALLOC_ALLOCATED)->response = r;
    }
}

static void reject(struct alloc *a, struct pending_request *req, struct local_pod *p,
                   struct alloc_outputs *out)
{
    a->stats.rejected[req->why]++;
    alloc_output_log(out, LOG_WARN, "%s of %lld %s rejected (%s): %s%s",
                     alloc_request_name(req->type), (long long)req->size,
                     ids_resource_name(req->resource), alloc_rejection_name(req->why),
                     req->text, req->names);
    if (p) {
        p->rejected_epoch = a->kubelet_epoch;
        alloc_identify_answered(a, p->pod, req->serial);
        alloc_output_event(out, p->pod, "GPUAllocationFailed",
                           alloc_output_text(out, span_of(req->text)));
    }
    answer_rejection(a, req, out);
    if (req->type == ALLOC_REQUEST_ALLOCATE)
        a->preference.valid = false;
    finish(a, req);
}

/* A watch on a dead connection stays silent for a long time; a list uses a new one. */
static void wait_for_change(struct alloc *a, struct alloc_time now,
                            struct pending_request *req, struct alloc_outputs *out)
{
    if (!req->waited)
        a->stats.deferred++;
    req->waited = true;
    if (!req->relist_sent && now.mono_ms - req->began_ms >= RELIST_AFTER_MS &&
        req->why != REJECTED_PODRESOURCES) {
        req->relist_sent = true;
        alloc_output_add(out, ALLOC_RELIST);
    }
    req->state = PENDING_RETRY;
    req->retry_ms = now.mono_ms + RETRY_MS;
    alloc_wake_at(a, req->retry_ms);
}

/* Waits for a change, or rejects the request when its time is up. */
static void conclude(struct alloc *a, struct alloc_time now, struct pending_request *req,
                     enum verdict v, struct local_pod *p, struct alloc_outputs *out)
{
    if (v == VERDICT_WAIT && now.mono_ms < req->until_ms && !req->canceled)
        wait_for_change(a, now, req, out);
    else
        reject(a, req, p, out);
}

static void prefer(struct alloc *a, struct alloc_time now, struct pending_request *req,
                   const struct alloc_target *t, struct alloc_outputs *out)
{
    struct device_id *ids = NULL;
    size_t n = 0;
    enum verdict v = alloc_select_check_promise(a, req, t);
    if (v == VERDICT_YES)
        v = alloc_select_ids(a, req, t, &ids, &n);
    if (v != VERDICT_YES) {
        conclude(a, now, req, v, t->local, out);
        return;
    }
    const char **texts = arena_alloc(&out->arena, n * sizeof *texts);
    for (size_t i = 0; i < n; i++) {
        cleanup_buf struct buf b = {0};
        alloc_output_id(&b, &ids[i]);
        texts[i] = alloc_output_text(out, buf_span(&b));
    }
    struct alloc_output *o = answer(out, req, ALLOC_PREFERRED);
    o->ids = texts;
    o->n_ids = n;
    a->preference = (struct preference){
        .valid = true, .resource = req->resource, .container = t->container};
    snprintf(a->preference.uid, sizeof a->preference.uid, "%.*s",
             SPAN_ARG(t->local->pod->uid));
    finish(a, req);
}

static void allocate(struct alloc *a, struct alloc_time now, struct pending_request *req,
                     const struct alloc_target *t, struct alloc_outputs *out)
{
    enum verdict v = alloc_select_check_promise(a, req, t);
    if (v == VERDICT_YES)
        v = alloc_select_check(a, req, t);
    if (v == VERDICT_YES)
        v = alloc_commit(a, now, req, t, out);
    if (v != VERDICT_YES) {
        conclude(a, now, req, v, t->local, out);
        return;
    }
    a->preference.valid = false;
    finish(a, req);
}

/* The container of the preceding GetPreferredAllocation. Only without one can the request
 * be for reused ids of an init container. */
static bool find_for_allocate(struct alloc *a, const struct pending_request *req,
                              struct alloc_target *t)
{
    const struct preference *o = &a->preference;
    if (!o->valid)
        return alloc_identify_reuse(a, req, t);
    if (o->resource != req->resource)
        return false;
    t->local = alloc_pod_find(a, span_of(o->uid));
    t->container = o->container;
    return t->local && t->container < t->local->pod->n_containers;
}

static void send_query(struct alloc *a, struct pending_request *req,
                       struct alloc_output *o)
{
    o->query = req->query = ++a->queries;
    req->state = PENDING_QUERY;
}

static void try_prefer(struct alloc *a, struct pending_request *req,
                       struct alloc_outputs *out)
{
    send_query(a, req, alloc_output_add(out, ALLOC_LIST));
}

static void try_allocate(struct alloc *a, struct alloc_time now,
                         struct pending_request *req, struct alloc_outputs *out)
{
    struct alloc_target t = {0};
    enum verdict v = VERDICT_NO;
    if (!find_for_allocate(a, req, &t)) {
        alloc_request_explain(
            req, v, REJECTED_NOT_PREFERRED,
            "Allocate without a GetPreferredAllocation before: cannot identify the pod");
        conclude(a, now, req, v, NULL, out);
    } else if (!a->node_read) {
        v = alloc_request_explain(
            req, VERDICT_WAIT, REJECTED_NOT_SYNCED,
            "the API server has not yet sent the Node, whose labels the container needs");
        conclude(a, now, req, v, t.local, out);
    } else if (a->no_get || req->get_confirmed) {
        allocate(a, now, req, &t, out);
    } else {
        const char *ns = alloc_output_text(out, t.local->pod->ns);
        const char *name = alloc_output_text(out, t.local->pod->name);
        struct alloc_output *o = alloc_output_add(out, ALLOC_GET);
        o->ns = ns;
        o->name = name;
        send_query(a, req, o);
    }
}

/* A container may start if one container holds all of its ids. */
static void try_start(struct alloc *a, struct alloc_time now, struct pending_request *req,
                      struct alloc_outputs *out)
{
    for (size_t i = 0; i < a->allocations.n; i++) {
        const struct allocation *al = a->allocations.items[i];
        size_t k = 0;
        while (k < req->n_ids &&
               allocation_holds(al, span_of(req->ids[k].card->uuid), req->ids[k].number))
            k++;
        if (al->resource == req->resource && k == req->n_ids && !req->n_unknown) {
            answer(out, req, ALLOC_START);
            finish(a, req);
            return;
        }
    }
    alloc_request_explain(req, VERDICT_NO, REJECTED_NOT_PREFERRED,
                          "no container holds these ids");
    conclude(a, now, req, VERDICT_NO, NULL, out);
}

static void try(struct alloc *a, struct alloc_time now, struct pending_request *req,
                struct alloc_outputs *out)
{
    if (req->type == ALLOC_REQUEST_START) {
        try_start(a, now, req, out);
    } else if (req->n_unknown) {
        alloc_request_explain(req, VERDICT_NO, REJECTED_UNKNOWN_ID,
                              "%s is not a device id of this node", req->unknown);
        conclude(a, now, req, VERDICT_NO, NULL, out);
    } else if (req->type == ALLOC_REQUEST_PREFERRED) {
        try_prefer(a, req, out);
    } else {
        try_allocate(a, now, req, out);
    }
}

/* What identified the container at GetPreferredAllocation must still hold: the kubelet
 * has the pod, and this container is the next one without ids. */
static void confirm_allocate(struct alloc *a, struct alloc_time now,
                             struct pending_request *req,
                             const struct alloc_kubelet_view *view,
                             struct alloc_outputs *out)
{
    struct alloc_target t;
    size_t next = 0;
    enum verdict v = VERDICT_YES;
    if (!find_for_allocate(a, req, &t)) {
        try_allocate(a, now, req, out); /* the pod was deleted meanwhile */
        return;
    }
    const struct pod_allocation *pod = t.local->pod;
    if (view->n_pods == 0)
        v = alloc_request_explain(req, VERDICT_WAIT, REJECTED_NO_PENDING_POD,
                                  "the kubelet no longer has pod %.*s/%.*s",
                                  SPAN_ARG(pod->ns), SPAN_ARG(pod->name));
    else if (!alloc_identify_next_container(a, t.local, view->pods, &next) ||
             next != t.container)
        v = alloc_request_explain(
            req, VERDICT_WAIT, REJECTED_NO_PENDING_POD,
            "container %.*s of pod %.*s/%.*s is not the next one without ids in the "
            "kubelet's view",
            SPAN_ARG(pod->containers[t.container].name), SPAN_ARG(pod->ns),
            SPAN_ARG(pod->name));
    if (v != VERDICT_YES) {
        conclude(a, now, req, v, NULL, out);
        return;
    }
    req->get_confirmed = true;
    allocate(a, now, req, &t, out);
}

void alloc_request_kubelet_answered(struct alloc *a, struct alloc_time now,
                                    struct pending_request *req,
                                    const struct alloc_kubelet_view *view,
                                    struct alloc_outputs *out)
{
    struct alloc_target t = {0};
    req->query = 0;
    if (view->err && view->unsupported && req->type == ALLOC_REQUEST_ALLOCATE) {
        a->no_get = true;
        try_allocate(a, now, req, out);
    } else if (view->err) {
        enum verdict v = alloc_request_explain(req, VERDICT_WAIT, REJECTED_PODRESOURCES,
                                               "podresources: %s", view->err->msg);
        conclude(a, now, req, v, NULL, out);
    } else if (req->type == ALLOC_REQUEST_ALLOCATE) {
        confirm_allocate(a, now, req, view, out);
    } else {
        alloc_reconcile_view(a, now, view, true, out);
        enum verdict v = alloc_identify_from_list(a, now.mono_ms, req, view, &t);
        if (v == VERDICT_YES)
            prefer(a, now, req, &t, out);
        else
            conclude(a, now, req, v, NULL, out);
    }
    alloc_output_save(a, out);
}

void alloc_request_retry_all(struct alloc *a, struct alloc_time now,
                             struct alloc_outputs *out)
{
    for (struct pending_request *req = a->requests, *next; req; req = next) {
        next = req->next;
        if (req->state == PENDING_RETRY)
            try(a, now, req, out);
    }
}

void alloc_request_tick(struct alloc *a, struct alloc_time now, struct alloc_outputs *out)
{
    for (struct pending_request *req = a->requests, *next; req; req = next) {
        next = req->next;
        if (req->state == PENDING_RETRY && now.mono_ms >= req->retry_ms)
            try(a, now, req, out);
        else if (req->state == PENDING_RETRY)
            alloc_wake_at(a, req->retry_ms);
    }
}

static void read_ids(struct alloc *a, struct pending_request *to, const struct span *ids,
                     size_t n, struct device_id **units, size_t *n_units)
{
    *units = arena_alloc(&to->arena, n * sizeof **units);
    for (size_t i = 0; i < n; i++) {
        if (alloc_read_id(a, to->resource, ids[i], &(*units)[*n_units])) {
            ++*n_units;
        } else if (to->n_unknown++ == 0) {
            snprintf(to->unknown, sizeof to->unknown, "\"%.*s\"",
                     ids[i].n < 60 ? (int)ids[i].n : 60, ids[i].p);
        }
    }
}

void alloc_request(struct alloc *a, struct alloc_time now, const struct alloc_request *in,
                   struct alloc_outputs *out)
{
    struct pending_request *req = xcalloc(1, sizeof *req), **at = &a->requests;
    req->type = in->type;
    req->resource = in->resource;
    req->token = in->token;
    req->serial = ++a->serial;
    req->began_ms = now.mono_ms;
    req->until_ms = now.mono_ms + a->settings.wait_ms;
    read_ids(a, req, in->ids, in->n_ids, &req->ids, &req->n_ids);
    /* Available ids of a card that is no longer here can be ignored; ids that must be
     * included cannot. */
    if (in->type == ALLOC_REQUEST_PREFERRED)
        req->n_unknown = 0;
    read_ids(a, req, in->must, in->n_must, &req->must, &req->n_must);
    req->size = in->type == ALLOC_REQUEST_PREFERRED ? in->size : (int64_t)in->n_ids;
    while (*at)
        at = &(*at)->next;
    *at = req;
    /* A new GetPreferredAllocation means that the last one's Allocate will not come. */
    if (in->type == ALLOC_REQUEST_PREFERRED)
        a->preference.valid = false;
    try(a, now, req, out);
}

void alloc_cancel(struct alloc *a, struct alloc_time now, uint64_t token,
                  struct alloc_outputs *out)
{
    for (struct pending_request *req = a->requests; req; req = req->next) {
        if (req->token != token)
            continue;
        req->canceled = true;
        if (req->state == PENDING_RETRY)
            try(a, now, req, out);
        return;
    }
}
