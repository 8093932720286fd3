/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/extender.h"
#include "lib/lib.h"
#include "lib/oracle.h"
#include "lib/peer.h"

/*
 * kube-sim as a process, requests that change its objects, and extenders in front of it.
 */

struct sim {
    struct program program;
    struct peer api;
    const char *authorization; /* or NULL */
};

/* An Authorization header that every kube-sim accepts in reviews, for all views. */
#define SIM_BEARER "Bearer test-token"

/* Starts kube-sim with the options `more` (ends with NULL). It contains only the extender's
 * Lease, without a holder. */
void sim_start(struct sim *s, const char *const *more);
/* The same with these options, a port and TLS among them. `ca`: file of the authority of the
 * certificate; `bearer`: the Authorization header, which must live as long as it runs. */
void sim_start_secure(struct sim *s, const char *ca, const char *bearer,
                      const char *const *options);
void sim_stop(struct sim *s);

/* Creates or replaces a JSON object, or an array of objects. */
void sim_load(const struct sim *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void sim_load_quoted(const struct sim *s, const char *fmt, ...) /* with ' for " */
    __attribute__((format(printf, 2, 3)));
/* Adds a Node and its Scv: `cards` cards of `units` GiB, with UUIDs "GPU-<name>-<i>". */
void sim_add_node(const struct sim *s, const char *name, int cards, int units);
/* Adds only the Scv. `unhealthy`: the index of an unhealthy card, -1: none. */
void sim_add_scv(const struct sim *s, const char *name, int cards, int units,
                 int unhealthy);
/* Adds a pending pod in namespace default that requests `units`, with UID "uid-<name>". */
void sim_add_pod(const struct sim *s, const char *name, int units);
/* Adds a bound pod; `annotations` is a JSON object. */
void sim_add_bound_pod(const struct sim *s, const char *name, int units, const char *node,
                       const char *annotations);
void sim_delete_pod(const struct sim *s, const char *name); /* with grace period 0 */

/* Fault rules (docs/testing.md). */
void sim_fault(const struct sim *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void sim_no_faults(const struct sim *s);
int sim_fired(const struct sim *s); /* how often all rules together have fired */
/* Applies "cut", "end", "stall" or "release" to the watches of a resource, NULL for all. */
void sim_watches(const struct sim *s, const char *action, const char *resource);
/* Number of requests with this verb and resource so far. `sub`: subresource, or "". */
int sim_count(const struct sim *s, const char *verb, const char *resource,
              const char *sub);
int sim_watching(const struct sim *s, const char *resource); /* number of open watches */
int sim_bound(const struct sim *s);                          /* number of bound pods */
/* Number of events of namespace default with that reason and `note` in their note, about the
 * pod; NULL: about any object. */
int sim_events(const struct sim *s, const char *pod, const char *reason,
               const char *note);

char *sim_kubeconfig(const struct sim *s); /* path of a kubeconfig for it, kept */
/* Starts an extender for a kube-sim without token and TLS, and waits until it is ready. */
void extender_start(struct extender *e, const struct sim *s, const char *const *more);
/* The same without the wait. */
void extender_begin(struct extender *e, const struct sim *s, const char *const *more);
