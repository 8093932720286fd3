/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The server and its listeners: start, drain, stop, metrics.
 */

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/prom.h"
#include "base/thread.h"
#include "wire/httpd.h"
#include "wire/httpd_priv.h"

/* -- The server -- */

enum {
    /* libmicrohttpd's buffer per connection. It limits the size of the headers; a body
     * arrives in pieces of up to half of it. */
    POOL_THREADS = 64 * 1024,
    POOL_EVENTS = 16 * 1024,
    /* glibc keeps stacks of 40 MiB together for later threads, and a burst of binds is
     * some thirty connections. The largest frame of a handler has 74 KiB (metrics). */
    STACK_BYTES = 1 << 20,
    /* libmicrohttpd still counts a connection for a moment after on_closed. */
    SPARE_CONNECTIONS = HTTPD_SPARE + 16,
    CONNECTIONS = 1024,
    CONNECTIONS_MIN = 8, /* whatever the limit of descriptors is */
};

static const char tls_priorities[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";

struct httpd *httpd_new(const struct httpd_limits *limits)
{
    struct httpd *d = xcalloc(1, sizeof *d);
    if (limits)
        d->limits = *limits;
    if (!d->limits.max_bodies)
        d->limits.max_bodies = (size_t)256 << 20;
    if (d->limits.first_request_ms <= 0)
        d->limits.first_request_ms = 10 * 1000;
    if (d->limits.idle_ms <= 0)
        d->limits.idle_ms = 120 * 1000;
    d->send_ms = d->limits.idle_ms < d->limits.first_request_ms
                     ? d->limits.idle_ms
                     : d->limits.first_request_ms;
    d->wake_fd = d->hup_fd = -1;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->gone, NULL);
    list_init(&d->conns);
    return d;
}

/* Log lines of libmicrohttpd: at its start why it fails, later mostly about what a client did. */
static void on_log(void *cls, const char *fmt, va_list ap)
{
    const struct httpd_listener *listener = cls;
    char text[256];
    enum log_level level = atomic_load(&listener->started) ? LOG_DEBUG : LOG_WARN;
    if (!log_enabled(level))
        return;
    int n = vsnprintf(text, sizeof text, fmt, ap);
    LOG_AT(level, "httpd", "libmicrohttpd", LOG_S("listener", listener->conf.name),
           LOG_SPAN("text", span_trim((struct span){text, n < 0 ? 0 : strlen(text)})));
}

static void listener_free(struct httpd_listener *listener)
{
    if (!listener)
        return;
    if (listener->fd >= 0)
        close(listener->fd);
    free((char *)listener->conf.name);
    pthread_cond_destroy(&listener->handed);
    free(listener);
}

/* A kernel without IPv6 has the wildcard of IPv4 alone. */
static int open_listener(struct httpd_listener *listener, const char *address,
                         struct err *err)
{
    const int on = 1, off = 0;
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_PASSIVE,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *at = NULL;
    char port[8];
    if (listener->conf.port > UINT16_MAX)
        return err_set(err, ERR_INVALID, "port: expected at most %d", UINT16_MAX);
    snprintf(port, sizeof port, "%u", listener->conf.port);
    if (getaddrinfo(address, port, &hints, &at) != 0)
        return err_set(err, ERR_INVALID, "expected an IP address");
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc = 0;
    listener->fd = fd;
    if (fd < 0 && errno == EAFNOSUPPORT && !strcmp(address, "::")) {
        freeaddrinfo(at);
        return open_listener(listener, "0.0.0.0", err);
    }
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
        (at->ai_family == AF_INET6 &&
         setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off)) ||
        bind(fd, at->ai_addr, at->ai_addrlen) || listen(fd, SOMAXCONN))
        rc = err_set(err, ERR_UNAVAILABLE, "%s", strerrordesc_np(errno));
    freeaddrinfo(at);
    return rc;
}

static int start_mhd(struct httpd_listener *listener, struct err *err)
{
    const struct httpd_listener_config *config = &listener->conf;
    const struct sched_param none = {0}; /* threads inherit how they are scheduled */
    cleanup_buf struct buf cert = {0};
    cleanup_buf_wipe struct buf key = {0};
    if (config->tls) /* libmicrohttpd requires a pair, although tls_client_init replaces
                        it */
        tls_copy_pair(config->tls, &cert, &key);
    bool threads = config->mode == HTTPD_THREADS, tls = config->tls;
    unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_NO_LISTEN_SOCKET |
                     MHD_USE_ITC | MHD_USE_ERROR_LOG;
    flags |= threads ? (unsigned)(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_AUTO)
                     : (unsigned)(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME);
    flags |= tls ? (unsigned)MHD_USE_TLS : 0;
    /* The acceptor enforces the real limit. */
    intptr_t limit = (intptr_t)config->connections + SPARE_CONNECTIONS;
    const struct MHD_OptionItem end = {MHD_OPTION_END, 0, NULL};
    const struct MHD_OptionItem options[] = {
        {MHD_OPTION_EXTERNAL_LOGGER, (intptr_t)on_log, listener},
        {MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)httpd_on_connection, listener},
        {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)httpd_on_completed, listener},
        {MHD_OPTION_URI_LOG_CALLBACK, (intptr_t)httpd_on_line, listener},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, threads ? POOL_THREADS : POOL_EVENTS, NULL},
        {MHD_OPTION_CONNECTION_LIMIT, limit < INT32_MAX ? limit : INT32_MAX, NULL},
        {MHD_OPTION_THREAD_STACK_SIZE, STACK_BYTES, NULL},
        tls ? (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_CERT, 0, cert.p} : end,
        {MHD_OPTION_HTTPS_MEM_KEY, 0, key.p},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)tls_priorities},
        end,
    };
    if (config->yields)
        pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
    listener->mhd = MHD_start_daemon(flags, 0, NULL, NULL, httpd_on_request, listener,
                                     MHD_OPTION_ARRAY, options, MHD_OPTION_END);
    if (config->yields)
        pthread_setschedparam(pthread_self(), SCHED_OTHER, &none);
    atomic_store(&listener->started, true);
    if (listener->mhd)
        return 0;
    return err_set(err, ERR_UNAVAILABLE, "libmicrohttpd cannot start; the log says why");
}

int httpd_listen(struct httpd *d, const struct httpd_listener_config *config,
                 unsigned *port, struct err *err)
{
    struct httpd_listener *listener = xcalloc(1, sizeof *listener);
    listener->d = d;
    listener->fd = -1;
    atomic_init(&listener->setup_fd, -1);
    listener->conf = *config;
    listener->conf.name = xstrdup(config->name ? config->name : "http");
    listener->conf.address = NULL; /* borrowed until here */
    pthread_cond_init(&listener->handed, NULL);
    /* Each listener gets at most a quarter of the descriptors. A handler may need one of
     * its own, for a call to another server. */
    struct httpd_listener_config *conf = &listener->conf;
    struct rlimit limit = {.rlim_cur = CONNECTIONS};
    getrlimit(RLIMIT_NOFILE, &limit);
    uint64_t most = limit.rlim_cur / 4;
    if (!conf->connections)
        conf->connections = CONNECTIONS;
    if (conf->connections > most && conf->connections > CONNECTIONS_MIN) {
        log_warn("httpd", "connections: reduced, too few descriptors (RLIMIT_NOFILE)",
                 LOG_S("listener", conf->name), LOG_I("wanted", conf->connections),
                 LOG_I("connections", (int64_t)most));
        conf->connections = most > CONNECTIONS_MIN ? (unsigned)most : CONNECTIONS_MIN;
    }
    if (!conf->handlers || conf->handlers > conf->connections)
        conf->handlers = conf->connections - conf->connections / 8;
    int rc = -1;
    if (atomic_load(&d->state) != HTTPD_RUNNING)
        err_set(err, ERR_UNAVAILABLE, "server is stopping");
    else if (d->n_listeners == HTTPD_LISTENERS)
        err_set(err, ERR_UNAVAILABLE, "too many listeners");
    else if (open_listener(listener, config->address, err) == 0 &&
             start_mhd(listener, err) == 0)
        rc = httpd_acceptor_start(d, err);
    if (rc != 0) {
        if (listener->mhd)
            MHD_stop_daemon(listener->mhd);
        listener_free(listener);
        return err_wrap(err, "listen on " STR_HOST ":%u", STR_HOST_ARG(config->address),
                        config->port);
    }
    if (port) {
        struct sockaddr_in6 at = {
            0}; /* struct sockaddr_in has its port in the same place */
        socklen_t n = sizeof at;
        getsockname(listener->fd, (struct sockaddr *)&at, &n);
        *port = ntohs(at.sin6_port);
    }
    pthread_mutex_lock(&d->lock);
    d->listeners[d->n_listeners++] = listener;
    pthread_mutex_unlock(&d->lock);
    httpd_acceptor_wake(d);
    return 0;
}

bool httpd_drain(struct httpd *d, int64_t timeout_ms)
{
    int64_t until_ms = clock_mono_ms() + timeout_ms;
    atomic_store(&d->state, HTTPD_DRAINING);
    if (d->has_acceptor) {
        httpd_acceptor_wake(d);
        pthread_mutex_lock(&d->lock);
        while (!d->closed || d->connections)
            if (!thread_wait_until(&d->gone, &d->lock, until_ms))
                break;
        pthread_mutex_unlock(&d->lock);
    }
    return atomic_load(&d->in_flight) == 0;
}

void httpd_free(struct httpd *d)
{
    if (!d)
        return;
    atomic_store(&d->state, HTTPD_STOPPING);
    if (d->has_acceptor) {
        httpd_acceptor_wake(d);
        pthread_join(d->acceptor, NULL);
    }
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->n_listeners; i++) /* requests that wait for a handler */
        pthread_cond_broadcast(&d->listeners[i]->handed);
    httpd_conn_wake_all(d); /* libmicrohttpd must not stop while one is suspended */
    pthread_mutex_unlock(&d->lock);
    for (size_t i = 0; i < d->n_listeners; i++)
        MHD_stop_daemon(d->listeners[i]->mhd);
    for (size_t i = 0; i < d->n_listeners; i++)
        listener_free(d->listeners[i]);
    for (size_t i = 0; i < d->n_lingers; i++)
        close(d->linger[i].fd);
    if (d->wake_fd >= 0)
        close(d->wake_fd);
    if (d->hup_fd >= 0)
        close(d->hup_fd);
    pthread_cond_destroy(&d->gone);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

void httpd_metrics(struct httpd *d, struct buf *out)
{
    pthread_mutex_lock(&d->lock);
    unsigned connections = d->connections, held = 0;
    for (size_t i = 0; i < d->n_listeners; i++)
        held += d->listeners[i]->held;
    pthread_mutex_unlock(&d->lock);
    prom_one(out, "gpushare_http_connections", "Connections on all ports.", connections);
    prom_one(out, "gpushare_http_requests_in_flight", "Requests being read or answered.",
             atomic_load(&d->in_flight));
    prom_one(out, "gpushare_http_requests_held",
             "Requests that wait for others, without a place among the handlers.", held);
    prom_one(out, "gpushare_http_request_body_bytes",
             "Bytes of request bodies in memory.", (int64_t)atomic_load(&d->body_bytes));
    prom_one(out, "gpushare_http_slow_connections_closed_total",
             "Connections closed because the client was too slow.",
             (int64_t)atomic_load(&d->timed_out));
    prom_one(out, "gpushare_http_connections_evicted_total",
             "Connections closed in favor of others, because a port or the memory for "
             "request bodies was full.",
             (int64_t)atomic_load(&d->evicted));
    prom_one(out, "gpushare_http_requests_rejected_total",
             "Requests answered with 503 because too many others waited for a handler.",
             (int64_t)atomic_load(&d->rejected));
}
