/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/clock.h"
#include "base/err.h"
#include "domain/lease.h"
#include "domain/ledger.h"

/*
 * What the extender knows and promises, as one deterministic machine:
 *
 *     core_step(core, now, input, outputs)
 *
 * No thread, lock, socket, clock or log is inside. Inputs are what has happened (an
 * object was seen, a list ended, somebody asks to bind, a call was answered or lost, time
 * went by); outputs are what is to be done (a call, an answer). Whoever drives it carries
 * the ones in and the others out: threads in the extender, a loop with a seed in the
 * simulator. The same inputs give the same outputs, whatever the addresses and the hash
 * seed.
 *
 * Life of a promise
 *
 *     (waiting) -> sent -> bound
 *                   \-> unknown -> bound, or waiting again, or gone
 *
 * A bind reserves the cards in the ledger and sends one Binding that carries the
 * annotations. Every answer but success leaves the outcome unknown, because an older copy
 * of the request may still be on its way. What is unknown counts, until two consistent
 * GETs, one after the other, that were sent later than anything of the Binding can take
 * effect say what became of the pod. (Two, because a database that stood still works off
 * what it finds in its queue in any order: the first one may pass the Binding there.)
 * What this process reserved or bound is freed only by news that the pod of that UID is
 * gone or over, or by these GETs: never by time, never by an event or list that shows the
 * pod unbound (it may be older), nor by absence from a list that was asked for before the
 * answer.
 *
 * Who may bind
 *
 * One Lease. Its holder may start a Binding only while the Binding must have ended before
 * the lease can be over, counted from when the last successful renewal was sent, and only
 * while its two clocks agree on how long ago that was (base/clock.h). A new
 * holder asks for a list of all pods after it got the lease and waits for its end before
 * the first bind. A Lease that was absent and has been made binds nobody before its
 * time is over.
 *
 * Which nodes are alive
 *
 * A node whose heartbeat Lease was seen gets no new pods when it has not been renewed for
 * the grace, until it is. The age is measured here, from when a change of renewTime was
 * seen; only while the Leases can be watched or listed.
 */

enum {
    CORE_LEASE_MS = 5000,
    CORE_RENEW_MS = 500,
    CORE_DELIVERY_MS =
        500, /* for a Binding to reach the API server; then it is given up */
    CORE_SERVER_MS = 3000, /* for the API server to apply it (?timeout=3s) */
    CORE_BIND_LIMIT_MS = CORE_DELIVERY_MS + CORE_SERVER_MS, /* nothing happens later */
    CORE_SLACK_MS = 150, /* timers and the clocks of two machines are not exact, and
                            CLOCK_APART_MS is not noticed: so long before the lease can be
                            over a Binding must have ended */
    CORE_CHECK_AFTER_MS = 1000, /* beyond that limit, before a GET counts */
    CORE_STALE_MS = 150 * 1000, /* without a sign of life from a watch: not ready */
    CORE_WAKEUP_INTERVAL_MS = 1000,        /* between two marks of a node */
};

struct core_time {
    int64_t mono_ms; /* for intervals; never goes back */
    int64_t wall_ns; /* since 1970; may jump */
};

enum core_kind {
    CORE_NODES,
    CORE_PODS,
    CORE_SCVS,
    CORE_LEASES,     /* heartbeats of scv-agent */
    CORE_CONFIGMAPS, /* of kube-system */
    CORE_KINDS,
};
const char *core_kind_name(enum core_kind kind); /* "nodes", ... as in the API's paths */

struct core_settings {
    struct ledger_settings ledger;
    const char *identity;        /* of this process, like no other's */
    const char *lease_namespace; /* of the Lease that says who may bind */
    const char *lease_name;
    int64_t node_grace_ms; /* a heartbeat may be so old; 0: however old */
    bool bind_any;         /* bind pods that ask for none of our resources too */
    bool observer; /* only look: the Lease is left alone and nothing is bound; the three
                      names above may be NULL */
    uint64_t seed; /* for tables and for the jitter of retries */
};

struct core;
struct core_output;

/* New. The settings are copied. Nothing happens before the first step. */
struct core *core_new(const struct core_settings *settings);
void core_free(struct core *core);
/* Where others can send binds to while this process holds the lease: "10.0.0.7:12345".
 * Becomes a part of the identity, so it has to be told before the first step. */
void core_advertise(struct core *core, const char *address);

/* Inputs. Everything in an input is borrowed for the duration of the step. */

enum core_input_type {
    CORE_TICK,       /* time went by; see core_due */
    CORE_OBJECT,     /* an object of a list or watch */
    CORE_LIST_ENDED, /* all items of a list have been delivered */
    CORE_LIST_FAILED,
    CORE_WATCH_PROGRESS, /* it was opened, or a bookmark came */
    CORE_WATCH_ENDED,
    CORE_BIND,   /* kube-scheduler asks */
    CORE_ANSWER, /* of a call */
    CORE_STOP,   /* take no more binds; give the lease back when none is in flight */
    CORE_REFRESH_LEASE,   /* the lease may have changed hands: look now, not in half a second */
    CORE_HEARTBEAT_STALE, /* somebody who looks for a moment only knows how old a heartbeat is */
};

struct core_input {
    enum core_input_type type;

    /* Lists and watches. `run` is the number that the output CORE_LIST or CORE_WATCH
     * gave; inputs of a run that is over are ignored. */
    enum core_kind kind;
    uint64_t run;
    bool deleted;   /* OBJECT: DELETED, or it no longer matches */
    bool invalid; /* OBJECT, a pod: only that it is there, or gone, can be made out */
    struct span
        version; /* OBJECT of a watch, LIST_ENDED, ALIVE: resourceVersion, or empty */
    union {
        const struct node *node;
        const struct pod *pod;
        const struct scv *scv;
        const struct lease *lease;
        const struct unhealthy_cards *unhealthy;
    };

    /* LIST_FAILED, WATCH_ENDED, ANSWER: what went wrong; code ERR_NONE: nothing. */
    const struct err *err;
    int64_t retry_after_ms; /* -1: the server did not say */

    /* BIND */
    uint64_t token; /* comes back in the answer */
    struct span ns, name, uid, node_name;

    /* SILENT, with `node_name`: nothing was heard of scv-agent there for so long, as
     * others say; 0: it is heard of. A renewal that comes later counts as ever. */
    int64_t stale_s;

    /* ANSWER */
    uint64_t call;
    bool not_sent; /* certainly not a byte has left */
    /* ... with `pod` (GET_POD) or `lease` (LEASE_GET, LEASE_WRITE) when there is one */
};

/* Outputs. Strings live until core_outputs_reset. */

enum core_output_type {
    CORE_LIST,  /* list `kind`, consistently (no resourceVersion); ends a watch of it */
    CORE_WATCH, /* watch `kind` from `version` */
    CORE_CALL_BIND,        /* POST the Binding */
    CORE_CALL_GET_POD,     /* GET, consistently */
    CORE_CALL_LEASE_GET,   /* GET, consistently */
    CORE_CALL_LEASE_WRITE, /* merge patch, or POST when `create` */
    CORE_CALL_WAKEUP, /* PATCH the Node's annotation gpushare/room-since to `value` */
    CORE_REPLY,          /* answer of a bind */
    CORE_LOG,           /* something an operator may want to know */
};

struct core_output {
    enum core_output_type type;
    enum core_kind kind;
    uint64_t run;
    const char *version;

    uint64_t call; /* to be given back with the answer; every call gets exactly one */
    const char *ns, *name, *uid, *node;
    const char *annotations;       /* CALL_BIND: a JSON object, or NULL */
    struct clock_deadline send_by; /* CALL_BIND: later it must not be sent */
    const char *body;              /* LEASE_WRITE: the Lease as JSON */
    bool create;
    const char *value;

    uint64_t token;
    enum err_code code; /* REPLY: ERR_NONE is success. NOTE: ERR_NONE is good news */
    const char *text;
};

struct core_outputs {
    struct core_output *items;
    size_t n, cap;
    struct arena arena;
};
void core_outputs_reset(struct core_outputs *outputs);
void core_outputs_fini(struct core_outputs *outputs);
/* A copy that stands alone, to be released with free. New. */
struct core_output *core_output_dup(const struct core_output *output);

/* Takes one input; appends to outputs. */
void core_step(struct core *core, struct core_time now, const struct core_input *input,
               struct core_outputs *outputs);

/* The monotonic time at which the next CORE_TICK matters. */
int64_t core_due(const struct core *core);

/* Reading */

const struct ledger *core_ledger(const struct core *core);
/* May the verbs answer? -1 with the reason: a kind has not been listed yet, or its watch
 * has been broken for too long. */
int core_ready(const struct core *core, struct core_time now, struct err *err);
/* May a bind be started now? -1 with the reason. */
int core_may_bind(const struct core *core, struct core_time now, struct err *err);
bool core_is_leader(const struct core *core);
bool core_is_stopping(const struct core *core);
struct span core_lease_holder(const struct core *core); /* of the lease, as seen last */
/* When another process was last seen to take or renew the lease, on the monotonic clock;
 * 0: nobody else holds it. */
int64_t core_other_leader_ms(const struct core *core);

/* Where a bind is to be done. */
enum bind_route_kind {
    BIND_ROUTE_LOCAL,
    BIND_ROUTE_FORWARD, /* by the holder of the lease, who says where it can be reached */
    BIND_ROUTE_WAIT,    /* here or there soon: nobody holds the lease, or we do and must not
                      use it yet */
    BIND_ROUTE_REJECT,  /* it was forwarded to here, and we are not the holder */
};
struct bind_route {
    enum bind_route_kind route;
    struct span address; /* FORWARD; borrowed from the core */
    int64_t until_ms;    /* FORWARD: the lease that was seen ends then, unless renewed; in
                            the past when the API server cannot be asked */
};
/* `forwarded`: another process has sent it here. err (may be NULL) says why not here. */
struct bind_route core_bind_route(const struct core *core, struct core_time now, bool forwarded,
                         struct err *err);
/* After CORE_STOP: is nothing in flight and the lease given back (or not ours)? */
bool core_stopped(const struct core *core);
/* How often a card was found to be promised beyond its size: by others than us, because
 * it became smaller, or because what is assumed of clocks and networks did not hold. */
uint64_t core_overcommits(const struct core *core);
size_t core_binds_in_flight(const struct core *core);
size_t core_binds_unknown(const struct core *core); /* those whose outcome is not known */
/* For how long nothing was heard of a kind, by list or watch; -1: it was never listed. */
int64_t core_watch_age_ms(const struct core *core, struct core_time now,
                       enum core_kind kind);
