/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "e2e/service/relay.h"
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

enum {
    PERIOD_MS = 2000,
    TIMEOUT_MS = 2000,
    FAILURES = 2,
    REPLY_MAX = 16384,
    BACKENDS = 16
};

struct backend {
    unsigned port, probed;
    atomic_bool ready;
};

static struct backend backends[BACKENDS];
static size_t n_backends;

/* -- readiness -- */

static bool probe(struct httpc *http)
{
    struct httpc_request request = {
        .method = "GET", .path = "/readyz", .timeout_ms = TIMEOUT_MS};
    struct httpc_reply reply;
    struct err err;
    bool ready =
        httpc_call(http, &request, REPLY_MAX, &reply, &err) == 0 && reply.status == 200;
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

static int open_backend(void *ctx)
{
    (void)ctx;
    const struct backend *b = choose();
    return b ? relay_connect(b->port) : -1;
}

static void start_watch(struct backend *b)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, watch, b))
        abort();
    pthread_detach(thread);
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc - 2 > BACKENDS) {
        fprintf(stderr, "usage: %s PORT BACKEND[:PROBED]...\n", argv[0]);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    int fd = relay_listen((unsigned)atoi(argv[1]));
    if (fd < 0) {
        perror("listen");
        return 1;
    }
    for (int i = 2; i < argc; i++) {
        struct backend *b = &backends[n_backends++];
        int n = sscanf(argv[i], "%u:%u", &b->port, &b->probed);
        if (n < 1) {
            fprintf(stderr, "%s is no port\n", argv[i]);
            return 2;
        }
        b->probed = n == 2 ? b->probed : b->port;
        start_watch(b);
    }
    relay_serve(fd, open_backend, NULL);
}
