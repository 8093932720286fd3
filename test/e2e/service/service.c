/* SPDX-License-Identifier: Apache-2.0 */
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "wire/httpc.h"

/*
 * Acts as a Kubernetes Service with kube-proxy: one address for several pods. A new
 * connection goes to a random ready pod and stays there; the client has to notice when
 * the pod ends. Readiness follows GET /readyz every two seconds, with two failures in a
 * row, as the kubelet probes by manifests/deployment.yaml. Until then, connections to an
 * ended pod are refused.
 *
 *   e2e-service PORT BACKEND[:PROBED]...     on 127.0.0.1, all of them
 */

enum { PERIOD_MS = 2000, TIMEOUT_MS = 2000, FAILURES = 2, RELAY = 16384, BACKENDS = 16 };

struct backend {
    unsigned port, probed;
    atomic_bool ready;
};

static struct backend backends[BACKENDS];
static size_t n_backends;

static struct sockaddr_in loopback(unsigned port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

/* -- readiness -- */

static bool probe(struct httpc *http)
{
    struct httpc_request request = {
        .method = "GET", .path = "/readyz", .timeout_ms = TIMEOUT_MS};
    struct httpc_reply reply;
    struct err err;
    bool ready =
        httpc_call(http, &request, RELAY, &reply, &err) == 0 && reply.status == 200;
    httpc_reply_fini(&reply);
    return ready;
}

static void *watch(void *ctx)
{
    struct backend *b = ctx;
    struct err err;
    cleanup_free char *url = xasprintf("http://127.0.0.1:%u", b->probed);
    struct httpc_config config = {.url = url, .connect_ms = TIMEOUT_MS};
    struct httpc *http = httpc_new(&config, &err);
    for (int failures = 0; http; usleep(PERIOD_MS * 1000)) {
        failures = probe(http) ? 0 : failures + 1;
        if (failures == 0 || failures >= FAILURES)
            atomic_store(&b->ready, failures == 0);
    }
    fprintf(stderr, "%s: %s\n", url, err.msg);
    exit(1);
}

/* -- connections -- */

/* A random ready backend, or NULL. */
static struct backend *choose(void)
{
    static _Thread_local struct rng rng;
    static _Thread_local bool seeded;
    struct backend *ready[BACKENDS];
    size_t n = 0;
    if (!seeded)
        rng_init(&rng, rng_entropy());
    seeded = true;
    for (size_t i = 0; i < n_backends; i++)
        if (atomic_load(&backends[i].ready))
            ready[n++] = &backends[i];
    return n ? ready[rng_below(&rng, n)] : NULL;
}

/* False: this direction has ended. */
static bool carry(int from, int to)
{
    char bytes[RELAY];
    ssize_t n = recv(from, bytes, sizeof bytes, 0);
    for (ssize_t sent = 0, k; n > 0 && sent < n; sent += k)
        if ((k = send(to, bytes + sent, (size_t)(n - sent), MSG_NOSIGNAL)) <= 0)
            return false;
    if (n == 0)
        shutdown(to, SHUT_WR);
    return n > 0;
}

/* Copies in both directions until one side has failed or both have ended. */
static void relay(int client, int server)
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

static void *serve(void *ctx)
{
    int client = (int)(intptr_t)ctx;
    const struct backend *b = choose();
    int server = b ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
    struct sockaddr_in address = loopback(b ? b->port : 0);
    if (server >= 0 &&
        connect(server, (struct sockaddr *)&address, sizeof address) == 0) {
        relay(client, server);
    } else { /* the client sees a refused connection */
        struct linger now = {.l_onoff = 1, .l_linger = 0};
        setsockopt(client, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }
    if (server >= 0)
        close(server);
    close(client);
    return NULL;
}

static void start(void *(*run)(void *), void *ctx)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, ctx))
        abort();
    pthread_detach(thread);
}

static int listen_at(unsigned port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    struct sockaddr_in address = loopback(port);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 128)) {
        perror("listen");
        exit(1);
    }
    return fd;
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc - 2 > BACKENDS) {
        fprintf(stderr, "usage: %s PORT BACKEND[:PROBED]...\n", argv[0]);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    int fd = listen_at((unsigned)atoi(argv[1]));
    for (int i = 2; i < argc; i++) {
        struct backend *b = &backends[n_backends++];
        int n = sscanf(argv[i], "%u:%u", &b->port, &b->probed);
        if (n < 1) {
            fprintf(stderr, "%s is no port\n", argv[i]);
            return 2;
        }
        b->probed = n == 2 ? b->probed : b->port;
        start(watch, b);
    }
    for (;;) {
        int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (client >= 0)
            start(serve, (void *)(intptr_t)client);
    }
}
