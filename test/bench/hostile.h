/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Hostile clients of the extender, one thread each: silent, slow, huge, malformed and many
 * connections, with and without TLS. None of them has a credential. They run at the lowest
 * priority, so that on a small machine the server's work is measured and not theirs.
 */

struct hostile_config {
    unsigned main_port, observe_port;
    bool tls;
    size_t clients;   /* the kinds of clients take turns */
    size_t names;     /* node names in a large filter body */
    int64_t pause_ms; /* of a client between two attempts */
    const char *only; /* run clients of this kind; NULL: all kinds */
};

struct hostile;

/* New; all clients run until hostile_stop. NULL: `only` names no kind. */
struct hostile *hostile_start(const struct hostile_config *config);
/* Waits for all clients, which close their connections. Frees. */
void hostile_stop(struct hostile *h);

/* What the clients of one kind did. */
struct hostile_stats {
    const char *kind;
    uint64_t connects, refused; /* refused: connect or TLS handshake failed */
    uint64_t replies;           /* status lines read */
    uint64_t ok;                /* ... with status 200 */
};

/* Fills at most `max` entries; returns the number of kinds. From any thread. */
size_t hostile_stats(struct hostile *h, struct hostile_stats *stats, size_t max);
