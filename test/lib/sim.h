/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/extender.h"
#include "lib/lib.h"
#include "lib/oracle.h"
#include "lib/peer.h"

/*
 * The real programs, started by a test: kube-sim, and extenders in front of it. Whatever
 * goes wrong here fails the test.
 */

struct sim {
    struct program program;
    struct peer api;
    char *authorization; /* or NULL */
};

/* With further options, that end with NULL; then a free Lease and nothing else. */
void sim_start(struct sim *s, const char *const *more);
/* With TLS, by a certificate of lib_dir/CA.crt that tls_make_cert made as CERT, and a
 * token. `port` 0 takes a free one. */
struct sim_security {
    const char *ca, *cert, *token;
    unsigned port;
};
void sim_start_secure(struct sim *s, const struct sim_security *how,
                      const char *const *more);
void sim_stop(struct sim *s);

/* A JSON object, or an array of them; the same again replaces it. */
void sim_load(const struct sim *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void sim_add_lease(const struct sim *s); /* the extender's, free */
/* A Node and its Scv: cards of so many units (GiB), with UUIDs "GPU-<name>-<i>". */
void sim_add_node(const struct sim *s, const char *name, int cards, int units);
/* The Scv alone; card `unhealthy` is, -1: none. */
void sim_add_scv(const struct sim *s, const char *name, int cards, int units,
                 int unhealthy);
/* A pod in namespace default, with UID "uid-<name>", that waits for so many units. */
void sim_add_pod(const struct sim *s, const char *name, int units);
/* A pod that somebody else has bound; `annotations` is a JSON object. */
void sim_add_bound_pod(const struct sim *s, const char *name, int units, const char *node,
                       const char *annotations);
void sim_delete_pod(const struct sim *s, const char *name); /* at once */

/* Rules of failing (docs/kube-sim.md), and what became of them. */
void sim_fault(const struct sim *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void sim_no_faults(const struct sim *s);
int sim_fired(const struct sim *s); /* of all rules together */
/* "cut", "end", "stall", "release" to the watches of a resource, NULL: of all. */
void sim_watches(const struct sim *s, const char *action, const char *resource);
/* How many requests of a verb and resource there were. `sub`: subresource, or "". */
int sim_count(const struct sim *s, const char *verb, const char *resource,
              const char *sub);
int sim_watching(const struct sim *s, const char *resource); /* watches that are open */
int sim_bound(const struct sim *s);                          /* pods that have a node */

/* An extender in front of a kube-sim without token and TLS, until it is ready. */
void extender_start(struct extender *e, const struct sim *s, const char *const *more);
