/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "plugin/dispatcher_priv.h"

enum { SCAN_MS = 30 * 1000 }; /* inotify events can get lost */

void dispatcher_registration_open(struct dispatcher *d)
{
    for (int r = 0; r < IDS_RESOURCES; r++)
        registration_init(&d->registration[r]);
    dispatcher_registration_scan(d);
}

void dispatcher_registration_scan(struct dispatcher *d)
{
    int64_t now = clock_mono_ms();
    plugin_dir_drain(d->dir);
    uint64_t kubelet = plugin_dir_kubelet_id(d->dir);
    d->scanned_ms = now;
    if (kubelet && kubelet != d->registration[0].kubelet) {
        log_info("kubelet", "found its registration socket",
                 LOG_S("socket", plugin_dir_kubelet(d->dir)));
        alloc_kubelet_started(d->alloc, dispatcher_now(), &d->out);
    }
    for (int r = 0; r < IDS_RESOURCES; r++) {
        if (d->endpoints[r] && d->registration[r].reachable)
            registration_serving(&d->registration[r], now,
                                 endpoint_is_reachable(d->endpoints[r]));
        registration_kubelet_socket(&d->registration[r], now, kubelet);
    }
}

static void serve(struct dispatcher *d, enum ids_resource r)
{
    struct endpoint_handlers handlers = dispatcher_calls_handlers(d);
    endpoint_free(d->endpoints[r]);
    d->endpoints[r] =
        endpoint_start(plugin_dir_socket(d->dir, r), r, &handlers, &d->register_err[r]);
    if (!d->endpoints[r])
        log_error("endpoint", "cannot serve the device plugin socket; retrying",
                  LOG_S("resource", ids_resource_name(r)), LOG_ERR(&d->register_err[r]));
    registration_serving(&d->registration[r], clock_mono_ms(), d->endpoints[r] != NULL);
}

static void step(struct dispatcher *d, enum ids_resource r)
{
    const struct dispatcher_callbacks *callbacks = &d->settings.callbacks;
    struct registration *reg = &d->registration[r];
    int64_t now = clock_mono_ms();
    if (registration_checks_newer_plugin(reg, now))
        registration_newer_plugin(reg, now, plugin_dir_has_newer(d->dir, r));
    for (;;) {
        enum registration_action action = registration_next(reg, now);
        if (action == REGISTRATION_SERVE)
            serve(d, r);
        else if (action == REGISTRATION_REGISTER)
            callbacks->register_resource(callbacks->ctx, r,
                                         plugin_dir_endpoint(d->dir, r));
        else
            return;
    }
}

void dispatcher_registration_step(struct dispatcher *d)
{
    if (clock_mono_ms() - d->scanned_ms >= SCAN_MS)
        dispatcher_registration_scan(d);
    for (int r = 0; r < IDS_RESOURCES; r++)
        step(d, (enum ids_resource)r);
}

int64_t dispatcher_registration_due(const struct dispatcher *d)
{
    int64_t due = d->scanned_ms + SCAN_MS;
    for (int r = 0; r < IDS_RESOURCES; r++)
        if (registration_due(&d->registration[r]) < due)
            due = registration_due(&d->registration[r]);
    return due;
}

/* The open ListAndWatch streams of the resource, in the arena. They stay pending. */
static size_t streams_of(struct dispatcher *d, enum ids_resource r, struct arena *a,
                         struct grpcd_call ***calls)
{
    size_t n = 0;
    pthread_mutex_lock(&d->lock);
    *calls = arena_alloc(a, (d->n_pending + 1) * sizeof **calls);
    for (size_t i = 0; i < d->n_pending; i++)
        if (d->pending[i].stream && d->pending[i].resource == r)
            (*calls)[n++] = d->pending[i].call;
    pthread_mutex_unlock(&d->lock);
    return n;
}

static void send_list(struct dispatcher *d, enum ids_resource r,
                      struct grpcd_call *const *calls, size_t n)
{
    cleanup_buf struct buf list = {0};
    struct err err;
    if (endpoint_list(alloc_cards(d->alloc), r, &list, &err)) {
        log_error("endpoint", "cannot encode the device list", LOG_ERR(&err));
        return;
    }
    for (size_t i = 0; i < n; i++) {
        struct buf copy = {0};
        buf_add_span(&copy, buf_span(&list));
        grpcd_send(calls[i], &copy);
        buf_fini(&copy);
    }
}

/* A resource whose device list exceeds a message is not registered. A registered one
 * stays registered: ids are never withdrawn. */
static bool is_wanted(struct dispatcher *d, enum ids_resource r)
{
    const struct cards *cards = alloc_cards(d->alloc);
    struct err err;
    if (d->registration[r].wanted || !cards->n)
        return d->registration[r].wanted;
    if (r != IDS_MEM || cards_fit(cards, &err) == 0)
        return true;
    if (!d->size_reported)
        log_error("registration", "aliyun.com/gpu-mem is not registered", LOG_ERR(&err));
    d->size_reported = true;
    return false;
}

void dispatcher_registration_cards_changed(struct dispatcher *d)
{
    for (int r = 0; r < IDS_RESOURCES; r++) {
        cleanup_arena struct arena a = {0};
        struct grpcd_call **calls;
        registration_set_wanted(&d->registration[r], is_wanted(d, (enum ids_resource)r));
        size_t n = streams_of(d, (enum ids_resource)r, &a, &calls);
        if (n)
            send_list(d, (enum ids_resource)r, calls, n);
    }
}

static int why_not_wanted(const struct dispatcher *d, struct err *err)
{
    const struct cards *cards = alloc_cards(d->alloc);
    if (cards->n && cards_fit(cards, err))
        return err_wrap(err, "not registered");
    return err_set(err, ERR_UNAVAILABLE, "not registered: no card found yet");
}

int dispatcher_registration_check(const struct dispatcher *d, enum ids_resource r,
                                  struct err *err)
{
    const struct registration *reg = &d->registration[r];
    const struct err *last = &d->register_err[r];
    const char *missing = registration_missing(reg);
    if (!reg->wanted)
        return why_not_wanted(d, err);
    if (!missing)
        return 0;
    if (!reg->kubelet)
        return err_set(err, ERR_UNAVAILABLE, "not registered: %s: no socket %s", missing,
                       plugin_dir_kubelet(d->dir));
    return err_set(err, ERR_UNAVAILABLE, "not registered: %s%s%s", missing,
                   last->code ? ": " : "", last->code ? last->msg : "");
}

/* Another plugin of this node may have served meanwhile; its allocations are in the state
 * file. */
void dispatcher_registration_stream_opened(struct dispatcher *d, enum ids_resource r,
                                           uint64_t token)
{
    struct grpcd_call *call = NULL;
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->n_pending; i++)
        if (d->pending[i].token == token) {
            call = d->pending[i].call;
            d->pending[i].stream = true;
            d->pending[i].resource = r;
        }
    pthread_mutex_unlock(&d->lock);
    dispatcher_output_load(d);
    log_info("registration", "ListAndWatch stream opened",
             LOG_S("resource", ids_resource_name(r)));
    registration_stream(&d->registration[r], clock_mono_ms(), true, false);
    send_list(d, r, &call, 1);
}

bool dispatcher_registration_stream_closed(struct dispatcher *d, uint64_t token)
{
    bool stream = false;
    enum ids_resource r = IDS_MEM;
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->n_pending; i++)
        if (d->pending[i].token == token) {
            stream = d->pending[i].stream;
            r = d->pending[i].resource;
        }
    pthread_mutex_unlock(&d->lock);
    if (!stream)
        return false;
    struct grpcd_call *call = dispatcher_calls_take(d, token);
    grpcd_end(call, GRPC_CANCELLED, "ListAndWatch stream closed");
    bool newer = plugin_dir_has_newer(d->dir, r);
    log_info("registration",
             newer ? "ListAndWatch stream closed; a newer plugin of this node serves it"
                   : "ListAndWatch stream closed; registering again",
             LOG_S("resource", ids_resource_name(r)));
    registration_stream(&d->registration[r], clock_mono_ms(), false, newer);
    return true;
}

/* A call's handle must be ended here even if the kubelet has closed the call. */
static void end_calls(struct dispatcher *d)
{
    for (;;) {
        uint64_t token = 0;
        pthread_mutex_lock(&d->lock);
        if (d->n_pending)
            token = d->pending[0].token;
        pthread_mutex_unlock(&d->lock);
        if (!token)
            return;
        grpcd_end(dispatcher_calls_take(d, token), GRPC_UNAVAILABLE,
                  "the device plugin is stopping");
    }
}

void dispatcher_registration_close(struct dispatcher *d)
{
    end_calls(d);
    for (int r = 0; r < IDS_RESOURCES; r++)
        if (d->endpoints[r])
            endpoint_stop(d->endpoints[r]);
    end_calls(d); /* calls that arrived meanwhile */
}
