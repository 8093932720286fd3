/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "wire/grpcd_priv.h"

static struct grpcd_limits with_defaults(struct grpcd_limits l)
{
    const struct grpcd_limits defaults = {
        .max_message = GRPC_MESSAGE_MAX,
        .max_requests = 32 << 20,
        .max_output = 64 << 20,
        .connections = 8,
        .calls = 64,
        .request_ms = 10 * 1000,
        .idle_ms = 5 * 60 * 1000,
        .stall_ms = 30 * 1000,
    };
    l.max_message = l.max_message ? l.max_message : defaults.max_message;
    l.max_requests = l.max_requests ? l.max_requests : defaults.max_requests;
    l.max_output = l.max_output ? l.max_output : defaults.max_output;
    l.connections = l.connections ? l.connections : defaults.connections;
    l.calls = l.calls ? l.calls : defaults.calls;
    l.request_ms = l.request_ms ? l.request_ms : defaults.request_ms;
    l.idle_ms = l.idle_ms ? l.idle_ms : defaults.idle_ms;
    l.stall_ms = l.stall_ms ? l.stall_ms : defaults.stall_ms;
    return l;
}

struct grpcd *grpcd_new(const struct grpcd_config *config)
{
    struct grpcd *d = xcalloc(1, sizeof *d);
    pthread_condattr_t attr;
    d->limits = with_defaults(config->limits);
    d->methods = config->methods;
    d->ctx = config->ctx;
    d->socket.fd = d->wake_fd = -1;
    d->refs = 1;
    pthread_mutex_init(&d->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&d->drained, &attr);
    pthread_condattr_destroy(&attr);
    return d;
}

void grpcd_unref_locked(struct grpcd *d)
{
    bool is_last = --d->refs == 0;
    pthread_mutex_unlock(&d->lock);
    if (!is_last)
        return;
    if (d->wake_fd >= 0)
        close(d->wake_fd);
    pthread_cond_destroy(&d->drained);
    pthread_mutex_destroy(&d->lock);
    free(d->socket.path);
    free(d);
}

void grpcd_wake_locked(struct grpcd *d)
{
    if (d->is_awake || d->wake_fd < 0)
        return;
    d->is_awake = true;
    ssize_t n = write(d->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
    (void)n; /* fails only if a wake-up is already pending */
}

void grpcd_count_rejected(struct grpcd *d)
{
    pthread_mutex_lock(&d->lock);
    d->stats.rejected++;
    pthread_mutex_unlock(&d->lock);
}

static int start_thread(struct grpcd *d, struct err *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&d->thread, NULL, grpcd_loop, d);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        return err_set(err, ERR_UNAVAILABLE, "pthread_create: %s", strerrordesc_np(rc));
    d->has_thread = true;
    pthread_setname_np(d->thread, "grpcd");
    return 0;
}

struct grpcd *grpcd_start(const struct grpcd_config *config, struct err *err)
{
    struct grpcd *d = grpcd_new(config);
    d->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (d->wake_fd < 0)
        err_set(err, ERR_UNAVAILABLE, "eventfd: %s", strerrordesc_np(errno));
    else if (grpcd_socket_open(&d->socket, config->path, err) == 0 &&
             start_thread(d, err) == 0)
        return d;
    grpcd_free(d);
    return NULL;
}

bool grpcd_is_reachable(const struct grpcd *d)
{
    return grpcd_socket_is_ours(&d->socket);
}

bool grpcd_stop(struct grpcd *d, int64_t timeout_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + timeout_ms % 1000 * 1000000;
    until.tv_sec += timeout_ms / 1000 + ns / 1000000000;
    until.tv_nsec = ns % 1000000000;

    pthread_mutex_lock(&d->lock);
    if (d->state == GRPCD_RUNNING)
        d->state = GRPCD_DRAINING;
    grpcd_wake_locked(d);
    while (!d->is_drained &&
           pthread_cond_timedwait(&d->drained, &d->lock, &until) != ETIMEDOUT)
        ;
    bool is_drained = d->is_drained;
    pthread_mutex_unlock(&d->lock);
    return is_drained;
}

/* Frees what the thread has left. */
static void close_all(struct grpcd *d)
{
    while (d->conns) {
        struct grpcd_conn *c = d->conns;
        d->conns = c->next;
        grpcd_conn_free(c);
    }
    grpcd_call_flush(d, 0);
    grpcd_socket_close(&d->socket);
}

void grpcd_free(struct grpcd *d)
{
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    d->state = GRPCD_STOPPING;
    grpcd_wake_locked(d);
    pthread_mutex_unlock(&d->lock);
    if (d->has_thread)
        pthread_join(d->thread, NULL);
    close_all(d);
    pthread_mutex_lock(&d->lock);
    grpcd_unref_locked(d);
}

void grpcd_stats(struct grpcd *d, struct grpcd_stats *stats)
{
    pthread_mutex_lock(&d->lock);
    *stats = d->stats;
    pthread_mutex_unlock(&d->lock);
}
