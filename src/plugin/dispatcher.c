/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/dispatcher.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "plugin/dispatcher_priv.h"

enum {
    POLL_MAX_MS = 1000,
    STOP_MS = 2000,
};

struct alloc_time dispatcher_now(void)
{
    return (struct alloc_time){clock_mono_ms(), clock_wall_ns()};
}

struct dispatcher_msg *dispatcher_msg_new(enum dispatcher_msg_kind kind)
{
    struct dispatcher_msg *m = xcalloc(1, sizeof *m);
    m->kind = kind;
    return m;
}

static void free_msg(struct dispatcher_msg *m)
{
    pod_allocation_free(m->pod);
    driver_view_free(m->driver);
    arena_fini(&m->arena);
    free(m);
}

static void wake(struct dispatcher *d)
{
    uint64_t one = 1;
    if (write(d->wake, &one, sizeof one) < 0 && errno != EAGAIN)
        abort();
}

void dispatcher_post(struct dispatcher *d, struct dispatcher_msg *m)
{
    pthread_mutex_lock(&d->lock);
    *d->end = m;
    d->end = &m->next;
    pthread_mutex_unlock(&d->lock);
    wake(d);
}

static void handle_cards(struct dispatcher *d, struct dispatcher_msg *m)
{
    if (m->driver)
        alloc_set_driver(d->alloc, steal(&m->driver), &d->out);
    bool changed =
        m->kind == DISPATCHER_CARD_EVENT
            ? alloc_card_event(d->alloc, dispatcher_now(), &m->card_event, &d->out)
            : alloc_cards_sampled(d->alloc, dispatcher_now(), m->seen, m->n, m->text,
                                  &d->out);
    if (changed)
        dispatcher_registration_cards_changed(d);
}

static void handle(struct dispatcher *d, struct dispatcher_msg *m)
{
    struct alloc_time now = dispatcher_now();
    switch (m->kind) {
    case DISPATCHER_POD:
        alloc_pod_seen(d->alloc, now, steal(&m->pod), &d->out);
        break;
    case DISPATCHER_POD_DELETED:
        alloc_pod_deleted(d->alloc, now, span_of(m->text), &d->out);
        break;
    case DISPATCHER_LIST:
        if (m->flag)
            alloc_list_ended(d->alloc, now, &d->out);
        else
            alloc_list_started(d->alloc);
        break;
    case DISPATCHER_CARDS:
    case DISPATCHER_CARD_EVENT:
        handle_cards(d, m);
        break;
    case DISPATCHER_REQUEST:
        alloc_request(d->alloc, now, &m->request, &d->out);
        break;
    case DISPATCHER_CANCEL:
        if (!dispatcher_registration_stream_closed(d, m->token))
            alloc_cancel(d->alloc, now, m->token, &d->out);
        break;
    case DISPATCHER_STREAM_OPENED:
        dispatcher_registration_stream_opened(d, m->resource, m->token);
        break;
    case DISPATCHER_PODRESOURCES:
        alloc_kubelet_answered(d->alloc, now, &m->view, &d->out);
        break;
    case DISPATCHER_REGISTERED:
        d->register_err[m->resource] = m->err;
        registration_answered(&d->registration[m->resource], now.mono_ms, m->flag);
        break;
    case DISPATCHER_NODE:
        alloc_node_read(d->alloc, now, m->flag, &m->node, &d->out);
        break;
    }
    dispatcher_output_run(d);
    free_msg(m);
}

/* Handles all queued messages. False: the thread shall stop. */
static bool handle_all(struct dispatcher *d)
{
    uint64_t count;
    if (read(d->wake, &count, sizeof count) < 0 && errno != EAGAIN)
        abort();
    pthread_mutex_lock(&d->lock);
    struct dispatcher_msg *m = d->first, *next;
    d->first = NULL;
    d->end = &d->first;
    bool stop = d->stop;
    pthread_mutex_unlock(&d->lock);
    for (; m; m = next) {
        next = m->next;
        handle(d, m);
    }
    return !stop;
}

static void publish(struct dispatcher *d)
{
    const struct cards *cards = alloc_cards(d->alloc);
    pthread_mutex_lock(&d->lock);
    struct dispatcher_stats *s = &d->stats;
    s->alloc = *alloc_stats(d->alloc);
    s->allocations = alloc_allocations(d->alloc)->n;
    s->listed = alloc_pods_listed(d->alloc);
    s->cards = cards->n;
    s->healthy = s->units = 0;
    for (size_t i = 0; i < cards->n; i++) {
        s->healthy += cards->items[i].health.healthy;
        s->units += cards->items[i].health.healthy ? (size_t)cards->items[i].units : 0;
    }
    s->cards_err = (struct err){0};
    cards_check(cards, clock_mono_ms(), &s->cards_err);
    s->podresources = *alloc_podresources_failure(d->alloc);
    for (int r = 0; r < IDS_RESOURCES; r++) {
        s->registered_err[r] = (struct err){0};
        dispatcher_registration_check(d, (enum ids_resource)r, &s->registered_err[r]);
        s->wanted[r] = d->registration[r].wanted;
        s->up[r] = d->registration[r].state == REGISTRATION_REGISTERED;
        s->registered[r] = d->registration[r].registered;
        s->lost[r] = d->registration[r].lost;
    }
    s->alive_ms = clock_mono_ms();
    pthread_mutex_unlock(&d->lock);
}

void dispatcher_stats(struct dispatcher *d, struct dispatcher_stats *stats)
{
    pthread_mutex_lock(&d->lock);
    *stats = d->stats;
    pthread_mutex_unlock(&d->lock);
}

static void wait_for_event(struct dispatcher *d)
{
    struct pollfd fds[] = {{d->wake, POLLIN, 0}, {plugin_dir_fd(d->dir), POLLIN, 0}};
    int64_t due = alloc_due(d->alloc), registration = dispatcher_registration_due(d),
            now = clock_mono_ms();
    int64_t ms = (registration < due ? registration : due) - now;
    ms = ms < 0 ? 0 : ms > POLL_MAX_MS ? POLL_MAX_MS : ms;
    poll(fds, ARRAY_LEN(fds), (int)ms);
    if (fds[1].revents)
        dispatcher_registration_scan(d);
}

/* At a stop, requests in flight get STOP_MS to be answered. */
static bool is_busy(struct dispatcher *d, int64_t *until_ms)
{
    bool busy = false;
    int64_t now = clock_mono_ms();
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->n_pending; i++)
        busy |= !d->pending[i].stream;
    pthread_mutex_unlock(&d->lock);
    if (!*until_ms)
        *until_ms = now + STOP_MS;
    return busy && now < *until_ms;
}

static void *run(void *arg)
{
    struct dispatcher *d = arg;
    int64_t until_ms = 0;
    dispatcher_registration_open(d);
    while (handle_all(d) || is_busy(d, &until_ms)) {
        struct alloc_time now = dispatcher_now();
        if (now.mono_ms >= alloc_due(d->alloc) && alloc_tick(d->alloc, now, &d->out))
            dispatcher_registration_cards_changed(d);
        dispatcher_output_check_limits(d, now.mono_ms);
        dispatcher_output_run(d);
        dispatcher_registration_step(d);
        publish(d);
        wait_for_event(d);
    }
    dispatcher_registration_close(d);
    return NULL;
}

struct dispatcher *dispatcher_new(const struct dispatcher_settings *settings,
                                  struct err *err)
{
    struct plugin_dir *dir = plugin_dir_open(settings->dir, err);
    if (!dir)
        return NULL;
    struct dispatcher *d = xcalloc(1, sizeof *d);
    d->settings = *settings;
    d->node = xstrdup(settings->alloc.node);
    d->dir = dir;
    d->alloc = alloc_new(&settings->alloc);
    d->end = &d->first;
    d->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    d->stats.alive_ms = clock_mono_ms();
    pthread_mutex_init(&d->lock, NULL);
    dispatcher_output_load(d);
    return d;
}

void dispatcher_start(struct dispatcher *d)
{
    if (pthread_create(&d->thread, NULL, run, d))
        abort();
    pthread_setname_np(d->thread, "dispatcher");
    d->running = true;
}

void dispatcher_stop(struct dispatcher *d)
{
    if (!d || !d->running)
        return;
    pthread_mutex_lock(&d->lock);
    d->stop = true;
    pthread_mutex_unlock(&d->lock);
    wake(d);
    pthread_join(d->thread, NULL);
    d->running = false;
}

void dispatcher_free(struct dispatcher *d)
{
    if (!d)
        return;
    for (struct dispatcher_msg *m = d->first, *next; m; m = next) {
        next = m->next;
        free_msg(m);
    }
    for (int r = 0; r < IDS_RESOURCES; r++)
        endpoint_free(d->endpoints[r]);
    alloc_free(d->alloc);
    alloc_outputs_fini(&d->out);
    plugin_dir_close(d->dir);
    close(d->wake);
    pthread_mutex_destroy(&d->lock);
    free(d->pending);
    free(d->node);
    free(d);
}
