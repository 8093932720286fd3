/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e/service/relay.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"

enum { PIECE = 16384 };

struct connection {
    int client;
    int (*open)(void *ctx);
    void *ctx;
};

static struct sockaddr_in loopback(unsigned port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

int relay_listen(unsigned port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    struct sockaddr_in address = loopback(port);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (fd < 0 || (bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
                   listen(fd, 128) == 0))
        return fd;
    close(fd);
    return -1;
}

int relay_connect(unsigned port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = loopback(port);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

/* False: this direction has ended. */
static bool carry(int from, int to)
{
    char bytes[PIECE];
    ssize_t n = recv(from, bytes, sizeof bytes, 0);
    for (ssize_t sent = 0, k; n > 0 && sent < n; sent += k)
        if ((k = send(to, bytes + sent, (size_t)(n - sent), MSG_NOSIGNAL)) <= 0)
            return false;
    if (n == 0)
        shutdown(to, SHUT_WR);
    return n > 0;
}

/* Copies in both directions until one side has failed or both have ended. */
static void copy(int client, int server)
{
    struct pollfd fds[2] = {{.fd = client, .events = POLLIN},
                            {.fd = server, .events = POLLIN}};
    const int other[2] = {server, client};
    while ((fds[0].fd >= 0 || fds[1].fd >= 0) && poll(fds, 2, -1) > 0) {
        for (int i = 0; i < 2; i++)
            if (fds[i].fd >= 0 && fds[i].revents && !carry(fds[i].fd, other[i]))
                fds[i].fd = -1;
        if (fds[1].fd < 0) /* the complete answer was sent */
            return;
    }
}

static void *serve(void *arg)
{
    struct connection *c = arg;
    int server = c->open(c->ctx);
    if (server >= 0) {
        copy(c->client, server);
        close(server);
    } else { /* the client sees a refused connection */
        struct linger now = {.l_onoff = 1, .l_linger = 0};
        setsockopt(c->client, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }
    close(c->client);
    free(c);
    return NULL;
}

void relay_serve(int listener, int (*open)(void *ctx), void *ctx)
{
    for (;;) {
        pthread_t thread;
        int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (client < 0)
            continue;
        struct connection *c = xcalloc(1, sizeof *c);
        *c = (struct connection){client, open, ctx};
        if (pthread_create(&thread, NULL, serve, c))
            abort();
        pthread_detach(thread);
    }
}
