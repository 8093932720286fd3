/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "wire/httpd_priv.h"

enum {
    ACCEPT_BURST = 64, /* connections per listener and round, for fairness */
    ACCEPT_RETRY_MS = 100,
    ACCEPT_WARN_MS = 60 * 1000,
};

/* Detects a dead client after 90 s, also on a stream without data. */
static void set_keepalive(int fd)
{
    const int on = 1, idle_s = 60, interval_s = 10, probes = 3;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

/* Whether the next connection can be passed on. If the listener is full and a connection
 * is pending, others are closed in favor of it. Only the acceptor adds connections, so
 * the result cannot become false meanwhile. */
static bool has_room_for_next(struct httpd_listener *listener)
{
    struct pollfd pending = {.fd = listener->fd, .events = POLLIN};
    unsigned limit = listener->conf.connections;
    pthread_mutex_lock(&listener->d->lock);
    bool has_room = listener->open - listener->leaving < limit,
         has_spare = listener->open < limit + HTTPD_SPARE;
    pthread_mutex_unlock(&listener->d->lock);
    if (has_room || !has_spare)
        return has_spare;
    if (poll(&pending, 1, 0) <= 0)
        return false;
    if (httpd_evict_some(listener)) {
        httpd_acceptor_check_soon(listener->d);
        return true;
    }
    listener->retry_ms = clock_mono_ms() + HTTPD_ROUND_MIN_MS;
    return false;
}

static void count(struct httpd_listener *listener, int n)
{
    pthread_mutex_lock(&listener->d->lock);
    listener->open += (unsigned)n;
    listener->d->connections += (unsigned)n;
    pthread_mutex_unlock(&listener->d->lock);
}

/* Whether to call accept again at once after it has failed. */
static bool accept_again(struct httpd_listener *listener, int error)
{
    if (error == EAGAIN)
        return false;
    if (error == ECONNABORTED || error == EPROTO || error == EINTR || error == EPERM)
        return true; /* that connection was reset */
    int64_t now = clock_mono_ms();
    listener->retry_ms = now + ACCEPT_RETRY_MS;
    if (now >= listener->warned_ms) {
        log_warn(
            "httpd", "accept: failed; retrying", LOG_S("listener", listener->conf.name),
            LOG_S("err", strerrordesc_np(error)), LOG_I("retry_ms", ACCEPT_RETRY_MS));
        listener->warned_ms = now + ACCEPT_WARN_MS;
    }
    return false;
}

/* Whether the client has reset the connection in the backlog. In a storm of these, other
 * clients would wait for each to begin and end. */
static bool was_reset(int fd)
{
    struct pollfd at = {.fd = fd};
    return poll(&at, 1, 0) > 0 && at.revents & POLLERR;
}

/* Accepts one connection. False: none is pending, or there is no room for it. */
static bool accept_one(struct httpd_listener *listener)
{
    struct sockaddr_storage addr;
    socklen_t n = sizeof addr;
    if (!has_room_for_next(listener))
        return false;
    int fd =
        accept4(listener->fd, (struct sockaddr *)&addr, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return accept_again(listener, errno);
    if (was_reset(fd)) {
        close(fd);
        return true;
    }
    set_keepalive(fd);
    count(listener, 1);
    if (MHD_add_connection(listener->mhd, fd, (const struct sockaddr *)&addr, n) !=
        MHD_YES)
        count(listener, -1); /* it has closed fd */
    return true;
}

void httpd_accept_some(struct httpd_listener *listener)
{
    for (int i = 0; i < ACCEPT_BURST && accept_one(listener); i++)
        ;
}

void httpd_accept_all(struct httpd_listener *listener)
{
    while (accept_one(listener))
        ;
}
