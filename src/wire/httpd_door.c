/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "wire/httpd_priv.h"

/*
 * A TLS handshake costs the server a millisecond of a processor before it knows anything
 * about the client. With a thread for each new connection, a thousand clients would have a
 * thousand threads compete with the one that serves kube-scheduler. So a connection gets
 * its thread only when its first TLS record has arrived, and one after the other: the next
 * when the server's part of the handshake before it is computed, or after SETUP_MS, because
 * the record can be an incomplete ClientHello.
 *
 * Everything here but httpd_door_began and httpd_door_leave is called by the acceptor.
 */

enum {
    GUESTS = 512, /* at most; about as many as are served in half a second */
    EVENTS = 64,
    SETUP_MS = 5,
    /* RFC 8446, 5.1: a record has a type, a version and a length. */
    RECORD_HEADER = 5,
    RECORD_HANDSHAKE = 22,
    RECORD_MAX = 16384 + 256,
};

struct visitor {
    struct httpd_guest guest; /* first: the lobby returns it */
    int fd;
    struct sockaddr_storage addr;
    socklen_t addr_n;
};

enum state { WAITS, READY, GONE };

void httpd_door_open(struct httpd_listener *listener)
{
    struct httpd_door *door = &listener->door;
    atomic_init(&door->setup_fd, -1);
    door->fd = -1;
    door->lobby.max = httpd_door_guests(&listener->conf, listener->has_tls);
    if (door->lobby.max)
        door->fd = epoll_create1(EPOLL_CLOEXEC);
}

unsigned httpd_door_guests(const struct httpd_listener_config *conf, bool has_tls)
{
    if (conf->mode != HTTPD_THREADS || !has_tls || !conf->tls)
        return 0;
    return conf->connections < GUESTS ? conf->connections : GUESTS;
}

static enum state look(int fd)
{
    unsigned char head[RECORD_HEADER];
    int unread = 0;
    ssize_t n = recv(fd, head, sizeof head, MSG_PEEK | MSG_DONTWAIT);
    if (n <= 0)
        return n < 0 && errno == EAGAIN ? WAITS : GONE;
    if (head[0] != RECORD_HANDSHAKE) /* GnuTLS rejects it */
        return READY;
    if (n < RECORD_HEADER || ioctl(fd, FIONREAD, &unread) != 0)
        return WAITS;
    int length = head[3] << 8 | head[4];
    return unread >= RECORD_HEADER + length || length > RECORD_MAX ? READY : WAITS;
}

static void count(struct httpd_listener *listener, int n)
{
    pthread_mutex_lock(&listener->d->lock);
    listener->d->connections += (unsigned)n;
    pthread_cond_signal(&listener->d->gone);
    pthread_mutex_unlock(&listener->d->lock);
}

/* The visitor has left the lobby. */
static void turn_away(struct httpd_listener *listener, struct visitor *v)
{
    close(v->fd); /* also leaves the epoll */
    free(v);
    count(listener, -1);
}

void httpd_door_add(struct httpd_listener *listener, int fd,
                    const struct sockaddr_storage *addr, socklen_t n)
{
    struct httpd_door *door = &listener->door;
    struct visitor *v = xcalloc(1, sizeof *v);
    struct httpd_address address;
    v->fd = fd;
    v->addr = *addr;
    v->addr_n = n;
    httpd_address_of((const struct sockaddr *)addr, &address);
    count(listener, 1);
    httpd_lobby_add(&door->lobby, &v->guest, &address, clock_mono_ms());
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.ptr = v};
    if (epoll_ctl(door->fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        httpd_lobby_remove(&door->lobby, &v->guest);
        turn_away(listener, v);
        return;
    }
    if (look(fd) == READY)
        httpd_lobby_ready(&door->lobby, &v->guest);
    for (struct httpd_guest *g = httpd_lobby_excess(&door->lobby), *next; g; g = next) {
        next = g->next;
        atomic_fetch_add(&listener->d->evicted, 1);
        turn_away(listener, (struct visitor *)g);
    }
}

static void read_events(struct httpd_listener *listener)
{
    struct httpd_door *door = &listener->door;
    struct epoll_event events[EVENTS];
    int n = epoll_wait(door->fd, events, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        struct visitor *v = events[i].data.ptr;
        enum state state = look(v->fd);
        bool closed = events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);
        if (state == READY) {
            httpd_lobby_ready(&door->lobby, &v->guest);
        } else if (state == GONE || closed) {
            httpd_lobby_remove(&door->lobby, &v->guest);
            turn_away(listener, v);
        }
    }
}

static void let_in(struct httpd_listener *listener, struct visitor *v)
{
    struct httpd_door *door = &listener->door;
    epoll_ctl(door->fd, EPOLL_CTL_DEL, v->fd, NULL);
    door->setup_until_ms = clock_mono_ms() + SETUP_MS;
    atomic_store(&door->setup_fd, v->fd);
    count(listener, -1); /* httpd_accept_pass counts it */
    if (!httpd_accept_pass(listener, v->fd, &v->addr, v->addr_n))
        atomic_store(&door->setup_fd, -1);
    free(v);
}

static bool is_free(struct httpd_door *door, int64_t now)
{
    return atomic_load(&door->setup_fd) < 0 || now >= door->setup_until_ms;
}

void httpd_door_run(struct httpd_listener *listener)
{
    struct httpd_door *door = &listener->door;
    struct httpd_guest *g;
    read_events(listener);
    int64_t limit = listener->d->limits.first_request_ms;
    while ((g = httpd_lobby_expired(&door->lobby, clock_mono_ms(), limit))) {
        atomic_fetch_add(&listener->d->timed_out, 1);
        turn_away(listener, (struct visitor *)g);
    }
    while (door->lobby.ready && listener->retry_ms <= clock_mono_ms() &&
           is_free(door, clock_mono_ms()) && httpd_accept_has_room(listener))
        let_in(listener, (struct visitor *)httpd_lobby_next(&door->lobby));
}

int64_t httpd_door_due(const struct httpd_listener *listener, int64_t now)
{
    const struct httpd_door *door = &listener->door;
    if (!door->lobby.n)
        return INT64_MAX;
    int64_t due = door->lobby.first->since_ms + listener->d->limits.first_request_ms + 1;
    if (!door->lobby.ready)
        return due;
    int64_t next = atomic_load(&door->setup_fd) < 0 ? now : door->setup_until_ms;
    if (next < listener->retry_ms)
        next = listener->retry_ms;
    return next < due ? next : due;
}

/* Those that wait become connections, which a drain handles. */
void httpd_door_drain(struct httpd_listener *listener)
{
    struct httpd_door *door = &listener->door;
    while (door->lobby.first) {
        struct visitor *v = (struct visitor *)door->lobby.first;
        httpd_lobby_remove(&door->lobby, &v->guest);
        if (httpd_accept_has_room(listener))
            let_in(listener, v);
        else
            turn_away(listener, v);
    }
}

void httpd_door_close(struct httpd_listener *listener)
{
    struct httpd_door *door = &listener->door;
    while (door->lobby.first) {
        struct visitor *v = (struct visitor *)door->lobby.first;
        httpd_lobby_remove(&door->lobby, &v->guest);
        turn_away(listener, v);
    }
    if (door->fd >= 0)
        close(door->fd);
}

void httpd_door_leave(struct httpd_conn *p)
{
    int fd = p->fd;
    if (p->in_setup &&
        atomic_compare_exchange_strong(&p->listener->door.setup_fd, &fd, -1))
        httpd_acceptor_wake(p->listener->d);
    p->in_setup = false;
}

/* Before each message of the handshake is sent: those after which the server has nothing
 * more to do until the client answers. */
static int on_message(gnutls_session_t session, unsigned type, unsigned when,
                      unsigned incoming, const gnutls_datum_t *message)
{
    (void)when, (void)message;
    struct tls_client *client = gnutls_session_get_ptr(session);
    if (!incoming && (type == GNUTLS_HANDSHAKE_FINISHED ||
                      type == GNUTLS_HANDSHAKE_SERVER_HELLO_DONE ||
                      type == GNUTLS_HANDSHAKE_HELLO_RETRY_REQUEST))
        httpd_door_leave(
            (struct httpd_conn *)((char *)client - offsetof(struct httpd_conn, client)));
    return 0;
}

void httpd_door_began(struct httpd_conn *p, gnutls_session_t session)
{
    p->in_setup = atomic_load(&p->listener->door.setup_fd) == p->fd;
    if (p->in_setup)
        gnutls_handshake_set_hook_function(session, GNUTLS_HANDSHAKE_ANY, GNUTLS_HOOK_PRE,
                                           on_message);
}
