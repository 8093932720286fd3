/* SPDX-License-Identifier: Apache-2.0 */

#include "node/dispatcher.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "node/endpoints.h"
#include "node/limit_cdi.h"

enum { STOP_MS = 2000 };

struct dispatcher {
    const struct node_options *options;
    bool cdi_failed; /* a file of the driver's limits could not be written */
    void (*saved)(void *ctx, struct span state);
    void *ctx;
    struct calls *calls; /* NULL: not started */
    struct dispatcher_msg_queue queue;
    struct endpoints *endpoints;
    struct alloc *alloc;
    const struct alloc_state *state; /* of `alloc` */
    struct step_outputs out;         /* of struct alloc_output */
    int64_t stop_ms; /* when requests in flight are given up; 0: not stopping */
    struct dispatcher_stats stats;
    pthread_t thread;
    bool running;

    pthread_mutex_t lock; /* protects `published` */
    struct dispatcher_stats published;
};

struct dispatcher_msg_queue *dispatcher_queue(struct dispatcher *d)
{
    return &d->queue;
}

static void step_alloc(struct dispatcher *d, struct alloc_input *in)
{
    alloc_step(d->alloc, step_now(), in, &d->out);
}

/* The text of the state file, which others have first. */
static void write_allocations(struct dispatcher *d, struct buf *text)
{
    allocation_set_write(text, &d->state->allocations, span_of(d->options->node_name));
    d->saved(d->ctx, buf_span(text));
}

static void save_allocations(struct dispatcher *d)
{
    cleanup_buf struct buf text = {0};
    struct err err;
    write_allocations(d, &text);
    if (file_write(d->options->state, buf_span(&text), &err) == 0)
        return;
    log_error("state", "cannot save the allocation state; it is kept in memory",
              LOG_ERR(&err));
    d->stats.save_failed++;
}

/* Adds the allocations of the state file. An invalid file is renamed; its content is
 * recovered from the kubelet's view. */
static void load_allocations(struct dispatcher *d)
{
    cleanup_buf struct buf text = {0};
    struct allocation_set found = {0};
    struct err err;
    int rc = file_read(d->options->state, ALLOCATION_SET_BYTES_MAX, &text, &err);
    if (rc && err.code == ERR_NOT_FOUND)
        return;
    if (rc == 0)
        rc = allocation_set_read(&found, buf_span(&text), span_of(d->options->node_name),
                                 &err);
    if (rc == 0) {
        step_alloc(d, &(struct alloc_input){.type = ALLOC_IN_RESTORE, .set = &found});
        return;
    }
    cleanup_free char *aside = xasprintf("%s.damaged", d->options->state);
    log_error("state",
              "cannot use the state file; recovering from the kubelet's podresources",
              LOG_S("file", d->options->state), LOG_S("to", aside), LOG_ERR(&err));
    if (rename(d->options->state, aside))
        log_warn("state", "cannot rename the state file",
                 LOG_S("file", d->options->state));
}

/* Without its files the library does not limit, and a container starts nevertheless. */
static void drop_limit(struct dispatcher *d, const struct alloc_output *o,
                       struct response *r, const struct err *err)
{
    r->dp.n_envs -= r->n_limit_envs;
    r->dp.n_mounts -= r->n_limit_mounts;
    d->stats.limit_failed++;
    log_error("limit", "cannot write the limits of a pod; it starts without them",
              LOG_S("namespace", o->ns), LOG_S("pod", o->name), LOG_ERR(err));
    cleanup_free char *text =
        xasprintf("its containers have no limit on this node: %s", err->msg);
    dispatcher_msg_unlimited(&d->queue, o->uid, text);
}

/* Defines the devices of the pod of the allocation, unless an earlier one is of it too.
 * Where the driver refuses limits they have none, so that containers start which need none. */
static int write_limit_devices(struct dispatcher *d, const struct allocation *first,
                               struct err *err)
{
    const struct allocation_set *set = &d->state->allocations;
    const struct span uid = first->uid;
    const bool refuses = d->state->settings.response.view->refuses_limit;
    cleanup_arena struct arena a = {0};
    struct limit_cdi_container *of = arena_alloc(&a, set->n * sizeof *of);
    size_t n = 0;
    if (d->state->listed && !alloc_state_pod(d->state, uid)) /* it has gone */
        return 0;
    ALLOCATION_EACH(al, set)
    {
        if (!al->limit_device || !span_eq(al->uid, uid))
            continue;
        if (!n && al != first)
            return 0;
        of[n++] = (struct limit_cdi_container){
            al->container, refuses && !al->limit_needed ? 0 : al->driver_limit_mib};
    }
    return limit_cdi_write(d->options->driver.cdi_dir, uid, of, n, err);
}

static bool is_known(void *ctx, const char *uid)
{
    const struct dispatcher *d = ctx;
    return alloc_state_pod(d->state, span_of(uid)) != NULL;
}

/* Without a look at the driver it is not known whether the hook would let a container start. A
 * container whose device cannot be defined waits for it; this runs again in seconds. `uid`: of the
 * only pod that has changed; NULL: of all. */
static void sync_limit_devices(struct dispatcher *d, const char *uid)
{
    const struct driver_view *view = d->state->settings.response.view;
    struct err err = {0};
    ALLOCATION_EACH(al, &d->state->allocations)
    if (view && al->limit_device && (!uid || span_eq(al->uid, span_of(uid))))
        write_limit_devices(d, al, &err);
    if (err.code != ERR_NONE && !d->cdi_failed)
        log_error("limit", "cannot define limits, so that containers wait; retrying",
                  LOG_ERR(&err));
    d->cdi_failed = err.code != ERR_NONE || (uid && d->cdi_failed);
    if (d->state->listed && !uid)
        limit_cdi_sweep(d->options->driver.cdi_dir, is_known, d);
}

static void on_unlimited(void *ctx, const char *uid, uint32_t bits)
{
    cleanup_buf struct buf why = {0};
    limit_dir_explain(bits, &why);
    dispatcher_msg_unlimited(&((struct dispatcher *)ctx)->queue, uid, why.p);
}

static void carry_out(struct dispatcher *d, const struct alloc_output *o)
{
    const struct limit_dir_sink sink = {is_known, on_unlimited, d};
    struct response r;
    struct err err;
    switch (o->type) {
    case ALLOC_QUERY:
    case ALLOC_PATCH:
    case ALLOC_EVENT:
    case ALLOC_RELIST:
    case ALLOC_READ_NODE:
        calls_carry_out(d->calls, o);
        break;
    case ALLOC_SAVE:
        save_allocations(d);
        break;
    case ALLOC_PREFERRED:
        endpoints_prefer(d->endpoints, o->token, o->ids, o->n_ids);
        break;
    case ALLOC_ALLOCATED:
        r = *o->response;
        if (r.limit &&
            limit_dir_write(d->state->settings.response.limit_dir, r.limit, &err) == 0)
            d->stats.limited++;
        else if (r.limit)
            drop_limit(d, o, &r, &err);
        endpoints_allocate(d->endpoints, o->token, &r.dp);
        break;
    case ALLOC_REJECTED:
        endpoints_reject(d->endpoints, o->token, rejection_name(o->rejection), o->text);
        break;
    case ALLOC_LIMIT:
        if (limit_dir_has(d->state->settings.response.limit_dir,
                          o->response->limit->uid) &&
            limit_dir_write(d->state->settings.response.limit_dir, o->response->limit,
                            &err))
            log_error("limit", "cannot change the limits of a pod",
                      LOG_S("namespace", o->ns), LOG_S("pod", o->name), LOG_ERR(&err));
        break;
    case ALLOC_CHECK_LIMITS:
        limit_dir_check(d->state->settings.response.limit_dir, &sink);
        break;
    case ALLOC_LIMIT_DEVICES:
        sync_limit_devices(d, o->uid);
        break;
    case ALLOC_DEVICES:
        endpoints_send_devices(d->endpoints, d->state);
        break;
    }
}

static void handle_msg(struct dispatcher *d, struct dispatcher_msg *m)
{
    switch (m->kind) {
    case DISPATCHER_INPUT:
        if (m->call)
            endpoints_request(d->endpoints, m);
        step_alloc(d, &m->in);
        if (m->call)
            return;
        break;
    case DISPATCHER_STREAM_OPENED:
        /* Another plugin of this node may have served meanwhile; its allocations are in the
         * state file. */
        load_allocations(d);
        endpoints_stream_opened(d->endpoints, m, d->state);
        return;
    case DISPATCHER_CALL_CLOSED:
        if (!endpoints_stream_closed(d->endpoints, m->in.request.token))
            step_alloc(d, &m->in);
        break;
    case DISPATCHER_REGISTERED:
        endpoints_registered(d->endpoints, m);
        break;
    case DISPATCHER_STOP:
        d->stop_ms = clock_mono_ms() + STOP_MS;
        break;
    }
    dispatcher_msg_free(m);
}

static void publish_stats(struct dispatcher *d)
{
    const struct cards *cards = &d->state->cards;
    struct dispatcher_stats *s = &d->stats;
    s->alloc = d->state->stats;
    s->allocations = d->state->allocations.n;
    s->listed = d->state->listed;
    s->admits = d->state->admits;
    s->podresources = d->state->podresources;
    s->node = d->state->node;
    s->cards = cards->n;
    s->healthy = 0;
    for (size_t i = 0; i < cards->n; i++)
        s->healthy += cards->items[i].health.healthy;
    s->isolation = response_isolation(&d->state->settings.response);
    s->node_read = d->state->node_read;
    memcpy(s->dialect, d->state->dialect, sizeof s->dialect);
    memcpy(s->no_driver, d->state->no_driver, sizeof s->no_driver);
    s->alive_ms = clock_mono_ms();
    s->watch = d->calls ? calls_watch_status(d->calls)
                        : (struct informer_status){.alive_ms = s->alive_ms};
    s->cards_err = (struct err){0};
    cards_check(cards, s->alive_ms, &s->cards_err);
    for (int r = 0; r < IDS_RESOURCES; r++) {
        struct dispatcher_resource_stats *of = &s->resources[r];
        of->err = (struct err){0};
        endpoints_check(d->endpoints, (enum ids_resource)r, &of->wanted, &of->err);
    }
    pthread_mutex_lock(&d->lock);
    d->published = *s;
    pthread_mutex_unlock(&d->lock);
}

void dispatcher_stats(struct dispatcher *d, struct dispatcher_stats *stats)
{
    pthread_mutex_lock(&d->lock);
    *stats = d->published;
    pthread_mutex_unlock(&d->lock);
}

static void *run_dispatcher(void *arg)
{
    struct dispatcher *d = arg;
    for (;;) {
        if (clock_mono_ms() >= d->state->due_ms)
            step_alloc(d, &(struct alloc_input){.type = ALLOC_IN_TICK});
        step_write_logs(&d->out);
        STEP_EACH(struct alloc_output, o, &d->out)
        carry_out(d, o);
        step_outputs_reset(&d->out);
        if (d->stop_ms &&
            (!endpoints_are_busy(d->endpoints) || clock_mono_ms() >= d->stop_ms))
            break;
        if (endpoints_step(d->endpoints, d->calls))
            step_alloc(d, &(struct alloc_input){.type = ALLOC_IN_KUBELET_STARTED});
        publish_stats(d);
        int64_t due = endpoints_due(d->endpoints);
        step_due(&due, d->state->due_ms);
        struct dispatcher_msg *m = dispatcher_msg_next(&d->queue, due);
        if (m)
            handle_msg(d, m);
    }
    endpoints_free(steal(&d->endpoints));
    return NULL;
}

struct dispatcher *dispatcher_new(const struct node_options *options,
                                  const struct alloc_settings *settings, struct err *err)
{
    struct dispatcher *d = xcalloc(1, sizeof *d);
    dispatcher_msg_queue_init(&d->queue);
    pthread_mutex_init(&d->lock, NULL);
    d->endpoints = endpoints_new(options->plugin_dir, &d->queue, err);
    if (!d->endpoints) {
        dispatcher_free(d);
        return NULL;
    }
    d->options = options;
    d->alloc = alloc_new(settings);
    d->state = alloc_state(d->alloc);
    load_allocations(d);
    publish_stats(d); /* nothing is registered until the kubelet says so */
    return d;
}

void dispatcher_start(struct dispatcher *d, struct kube_client *client,
                      void (*saved)(void *ctx, struct span state), void *ctx)
{
    cleanup_buf struct buf text = {0};
    d->saved = saved;
    d->ctx = ctx;
    d->calls = calls_start(d->options, client, &d->queue);
    write_allocations(d, &text);
    if (pthread_create(&d->thread, NULL, run_dispatcher, d))
        abort();
    pthread_setname_np(d->thread, "dispatcher");
    d->running = true;
}

void dispatcher_stop(struct dispatcher *d)
{
    if (!d || !d->running)
        return;
    dispatcher_msg_post(&d->queue, dispatcher_msg_new(DISPATCHER_STOP));
    pthread_join(d->thread, NULL);
    d->running = false;
}

bool dispatcher_stop_calls(struct dispatcher *d, int64_t until_ms)
{
    return calls_stop(d->calls, until_ms);
}

void dispatcher_free(struct dispatcher *d)
{
    if (!d)
        return;
    calls_free(d->calls);
    endpoints_free(d->endpoints);
    dispatcher_msg_queue_fini(&d->queue); /* also calls that arrived at a stop */
    alloc_free(d->alloc);
    step_outputs_fini(&d->out);
    pthread_mutex_destroy(&d->lock);
    free(d);
}
