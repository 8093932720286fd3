/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/clock.h"
#include "base/err.h"
#include "base/step.h"
#include "domain/gang.h"
#include "domain/lease.h"
#include "domain/ledger.h"

/*
 * The extender's state as one deterministic state machine:
 *
 *     core_step(core, now, input, outputs)
 *
 * The core has no threads, locks, sockets, clock or log. An input is something that
 * happened: an object was received, a list ended, a bind was requested, an API call
 * succeeded or failed, time passed. An output is something to do: an API call, a reply,
 * a log line. The driver carries inputs in and outputs out: threads in the extender, an
 * event loop with a seed in the simulator. The same inputs give the same outputs; no
 * order depends on addresses or on the hash seed.
 *
 * Life of a promise
 *
 *     pending -> sent -> bound, pending again (it was not sent), or deleted
 *                  \-> unknown -> bound, pending again, or deleted
 *
 * A bind puts the promise into the ledger and sends one Binding that carries the
 * annotations. Success binds the pod, and so does any answer after the watch showed it bound.
 * If no byte of the Binding left this machine, the promise is free again. Any other answer, or
 * none, leaves the outcome unknown, because an older copy of the request may still be in flight.
 * An unknown bind keeps its promise until two consistent GETs in a row have shown the pod
 * unbound, both sent after the Binding can no longer take effect. (Two, because a database that
 * was stalled may process its queue in any order: the first GET can overtake the Binding.) What
 * this process promised or bound is freed only when the pod of that UID is known to be deleted
 * or terminal, when its Binding was never sent, or by these GETs. It is never freed by a
 * timeout, by an event or list that shows the pod unbound (it may be older), or by absence from
 * a list that was requested before the answer. The promises of a gang are made in one step:
 * if one fails, all are taken back in that step, before any Binding is sent.
 *
 * Life of a reservation
 *
 *     filter -> reserved -> bind (becomes the promise), or ended
 *
 * Cards can be reserved for a pod between filter and bind. A reservation is weaker than a
 * promise: it is only in the memory of the leader. It ends when the pod is bound or deleted
 * or fits nowhere any more, when its time limit passes, when a pod of higher priority takes
 * its cards, when its node or cards do not serve it any more (select_reservation_lost), and when
 * this process stops leading. A later filter of the pod can move it,
 * but does not renew the time limit. Pods of the same or lower priority get
 * none of its memory, neither by a reservation nor by a bind.
 *
 * Gangs
 *
 *     bind -> held -> sent with the binds of as many members as must start, or failed
 *
 * The bind of a member of a gang is held until enough members are held or bound, for
 * CORE_HOLD_MS from the first at most. It then gets its reply with all others of the gang. It
 * fails at once when a member ends, finds no place or loses its cards, and when another
 * CORE_RESERVE or CORE_BIND shows that the caller has forgotten it. CORE_BIND_GONE takes a
 * caller away. Gangs that were held in vain take turns (core_gang.c).
 *
 * Who may bind
 *
 * One Lease elects a leader. The leader starts a Binding only while the Binding must have
 * ended before the lease can expire, counted from when the last successful renewal was
 * sent, and only while its two clocks agree on how long ago that was (base/clock.h). A
 * new leader lists all pods after it acquired the lease, before its first bind. A process
 * that holds a newly created Lease waits for one lease duration before it leads.
 *
 * Replicas may have different durations (lease_ms), as during a rollout. No two bind at once,
 * because one number decides on both sides, the leaseDurationSeconds D of the renewal:
 *   - Its holder sent it at t, and starts a Binding until t + D - CORE_BIND_LIMIT_MS -
 *     CORE_SLACK_MS. The Binding has ended at t + D - CORE_SLACK_MS, or never takes effect.
 *   - Another process sees this version after t, and acquires the lease D after that, whatever
 *     its own duration.
 * The slack need not grow with D: without a jump (CLOCK_SKEW_MAX_MS) 100 ms are left, 1,600 ppm
 * of CORE_LEASE_MAX_MS; two clocks that NTP slews differ by at most 1,000 ppm.
 * Only a deleted Lease does not say D. The process that creates it waits for the longest of its
 * own duration and those that it has seen. So the Lease must not be deleted, or
 * restored from a backup, while the duration is being reduced.
 *
 * Heartbeats
 *
 * A node whose heartbeat Lease was not renewed for the grace period gets no new pods
 * until it is renewed. The age is measured here, from when a change of renewTime was
 * received, and only while Leases can be listed and watched.
 *
 * Layout preemption
 *
 * kube-scheduler's preemption finds no victims on a node whose total suffices, although no
 * card has enough free memory. With `preempt_after_ms`, the leader remembers pods that
 * filter rejected (CORE_REJECTED). When one has been pending for that long, and is not retried
 * for a node that was not offered (CORE_RETRIES), it chooses the cheapest victims on one of the
 * candidate nodes (placement/preempt.h), nominates the pod to that node, keeps the cards for it,
 * and evicts the victims one after the other, each after the answer about the previous one.
 * The Eviction API respects PodDisruptionBudgets: a refused pod is not chosen again for a
 * while. Mirror pods and pods of DaemonSets are never victims. A terminating pod counts as
 * leaving: nothing is evicted beside it.
 */

enum {
    CORE_LEASE_MS = 5000, /* the default, and the shortest */
    CORE_LEASE_MAX_MS = 60 * 1000,
    CORE_RENEW_MS = 500,
    /* A Binding reaches the API server within the first time or never, and is applied within
     * the second (?timeout=3s) or never. */
    CORE_DELIVERY_MS = 500,
    CORE_SERVER_MS = 3000,
    CORE_BIND_LIMIT_MS = CORE_DELIVERY_MS + CORE_SERVER_MS,
    /* A Binding must have ended this long before the lease can expire: timers and the
     * clocks of two machines are not exact, and a jump below CLOCK_SKEW_MAX_MS is not seen. */
    CORE_SLACK_MS = 150,
    CORE_CHECK_AFTER_MS = 1000, /* a GET is proof so long after CORE_BIND_LIMIT_MS */
    CORE_STALE_MS = 150 * 1000, /* not ready after so long without watch events */
    CORE_OUTDATED_MS =
        3000, /* not current after a list or watch has failed for so long */
    CORE_WAKEUP_INTERVAL_MS = 1000, /* minimum between two wakeups for one node */
    /* kube-scheduler is woken at most so often for a pod that fits on a node that it does not
     * offer, until there was no such wakeup for the second time. */
    CORE_RETRIES = 24,
    CORE_RETRIES_MS = 10 * 60 * 1000,
    CORE_RESERVATION_MS = 30 * 1000, /* time limit of a reservation, not renewed */
    CORE_GANG_RESERVATION_MS = 120 * 1000,
    CORE_HOLD_MS = 10 * 1000,        /* a bind waits for other members of the gang */
    CORE_RESERVATIONS_MAX = 1 << 16, /* at one time: names of pods come from callers */
    CORE_PREEMPT_PODS = 256,         /* rejected pods that layout preemption remembers, */
    CORE_PREEMPT_NODES = 64,         /* and candidate nodes of each */
    /* So long after the last eviction for a pod, the cards are kept for it, and no further
     * pod is evicted for it. */
    CORE_PREEMPT_LIMIT_MS = 5 * 60 * 1000,
};

enum core_kind {
    CORE_NODES,
    CORE_PODS,
    CORE_SCVS,
    CORE_LEASES,              /* heartbeats of scv-agent */
    CORE_CONFIGMAPS,          /* of kube-system */
    CORE_KINDS,               /* of those above, which the verbs wait for */
    CORE_QUOTAS = CORE_KINDS, /* of all namespaces; only with core_settings.quotas */
    CORE_ALL_KINDS,
};
const char *core_kind_name(enum core_kind kind); /* "nodes", ... as in the API's paths */

struct core_settings {
    struct ledger_settings ledger;
    const char *identity;        /* unique to this process */
    const char *lease_namespace; /* of the Lease that elects the leader */
    const char *lease_name;
    int64_t lease_ms;      /* duration of the lease, in whole seconds; 0: CORE_LEASE_MS */
    int64_t node_grace_ms; /* maximum age of a heartbeat; 0: unlimited */
    bool bind_any;         /* also bind pods that request none of our resources */
    bool observer;         /* never touch the Lease, never bind; the three names above may
                              be NULL */
    bool only_pods;        /* list and watch nodes and pods only; the rest is empty */
    bool quotas;           /* list and watch ResourceQuotas, and enforce them */
    int64_t gang_wait_ms;  /* so long, members of a gang may still be created */
    int64_t preempt_after_ms; /* layout preemption for pods pending so long; 0: never */
    uint64_t seed;            /* for hash tables and for the jitter of retries */
};

struct core;
struct core_output;

/* New. Copies the settings. The first step starts lists and the leader election. */
struct core *core_new(const struct core_settings *settings);
void core_free(struct core *core);
/* Sets the address where other replicas send binds while this process leads:
 * "10.0.0.7:12345". It becomes part of the identity: call it before the first step. */
void core_advertise(struct core *core, const char *address);

/* Inputs. Everything in an input is borrowed for the duration of the step. */

enum core_input_type {
    CORE_TICK,       /* time passed; see core_due */
    CORE_OBJECT,     /* an object of a list or watch */
    CORE_LIST_ENDED, /* all items of a list have been delivered */
    CORE_LIST_FAILED,
    CORE_WATCH_PROGRESS, /* the watch was opened, or a bookmark arrived */
    CORE_WATCH_ENDED,
    CORE_BIND,            /* kube-scheduler requests a bind */
    CORE_BIND_GONE,       /* the caller of the bind `token` has gone */
    CORE_RESERVE,         /* filter has chosen nodes for a pod */
    CORE_ANSWER,          /* an API call ended */
    CORE_STOP,            /* reject new binds; release the lease when none is in flight */
    CORE_REFRESH_LEASE,   /* the lease may have changed hands: GET it now */
    CORE_REJECTED,        /* filter found no node for a pod */
    CORE_HEARTBEAT_STALE, /* the driver knows the age of a heartbeat (kubectl plugin) */
};

struct core_input {
    enum core_input_type type;

    /* Lists and watches. `run` is the number from the output CORE_LIST or CORE_WATCH.
     * Inputs of any other run of the kind are ignored. */
    enum core_kind kind;
    uint64_t run;
    bool deleted; /* OBJECT: DELETED, or it no longer matches the selector */
    bool invalid; /* OBJECT, a pod: nothing but its UID could be decoded */
    /* resourceVersion of OBJECT of a watch, LIST_ENDED, WATCH_PROGRESS; or empty */
    struct span version;
    union {
        const struct node *node;
        const struct pod *pod;
        const struct scv *scv;
        const struct lease *lease;
        const struct unhealthy_cards *unhealthy;
        const struct quota *quota;
    };

    /* LIST_FAILED, WATCH_ENDED, ANSWER: the failure; NULL or code ERR_NONE: none. */
    const struct err *err;
    int64_t retry_after_ms; /* from the server's Retry-After; -1: none */

    /* BIND, RESERVE */
    uint64_t token; /* returned in the reply */
    struct span ns, name, uid;
    struct span node_name; /* BIND */
    /* BIND: the minimum of the pod's gang, as the pod and the gang's object say; 0: unknown, so
     * all members; 1: its members do not wait for each other. */
    uint32_t gang_minimum;

    /* RESERVE: cards are reserved on the first of the nodes that fits, instead of those of
     * an earlier reservation of the pod, whose time limit stays. No node: that one is
     * ended. */
    const struct request *request;
    int64_t priority;
    struct resources requests; /* CPU and memory of the pod, 0: unknown; its slot */
    /* The pod's gang, if its members wait for each other; else NULL. All of them get
     * reservations, on any of the nodes, or none does (placement/gang.h). */
    const struct gang *gang;
    struct span scheduler; /* spec.schedulerName of the pod */

    /* REJECTED, with `uid`: candidate nodes where the eviction of pods of lower priority
     * could help; all other filters of kube-scheduler accept them. The first
     * CORE_PREEMPT_NODES count. Also `node_name`: a node on which the pod fits, although
     * kube-scheduler did not offer it; empty: none. */
    const struct span *nodes;
    size_t n_nodes;
    /* RESERVE: the last so many of `nodes` were answered to the pod before, without a bind. An
     * earlier reservation there does not make them better. */
    size_t n_last;

    /* HEARTBEAT_STALE, with `node_name`: age of the heartbeat of scv-agent; 0: fresh. A
     * later renewal counts as usual. */
    int64_t stale_s;

    /* ANSWER */
    uint64_t call;
    bool not_sent;          /* no byte of the request left this machine */
    bool disruption_budget; /* EVICT: a PodDisruptionBudget does not allow it */
    /* ... with `pod` (GET_POD) or `lease` (LEASE_GET, LEASE_WRITE) when there is one */
};

/* Outputs: the items of step_outputs (base/step.h), beside its log lines. */

/* The outcome of CORE_RESERVE. */
enum core_reserve_outcome {
    /* Cards of `node` are reserved, and those of the other members of the gang. A member that
     * requests nvidia.com/gpu has its node, and no cards. */
    CORE_RESERVE_DONE,
    CORE_RESERVE_NO_NODE,       /* the pod fits on none of the nodes any more */
    CORE_RESERVE_GANG_REJECTED, /* the gang cannot start: `text` says why */
    CORE_RESERVE_GANG_WAITS,    /* members do not exist yet: `text` says how many */
    CORE_RESERVE_NOT_NOW,       /* this process may not bind now: `text` says why */
    CORE_RESERVE_FULL,          /* CORE_RESERVATIONS_MAX are reached */
    CORE_RESERVE_PROMISED, /* the pod is bound to `node`, or its bind there is in flight */
};

/* The outcome of CORE_BIND. */
enum core_bind_outcome {
    CORE_BOUND,
    CORE_BIND_REJECTED, /* `code` and `text` say why */
    /* The same, and this process may not bind now (core_check_may_bind). The caller asks
     * core_bind_route again: another process leads, or this one renews its lease. */
    CORE_BIND_NOT_NOW,
};

enum core_output_type {
    CORE_LIST,  /* list `kind`, consistently (no resourceVersion); ends a watch of it */
    CORE_WATCH, /* watch `kind` from `version` */
    CORE_CALL_BIND,        /* POST the Binding */
    CORE_CALL_GET_POD,     /* GET, consistently */
    CORE_CALL_LEASE_GET,   /* GET, consistently */
    CORE_CALL_LEASE_WRITE, /* merge patch, or POST when `create` */
    CORE_CALL_WAKEUP,   /* PATCH annotation gpushare/room-since of the Node to `value` */
    CORE_CALL_NOMINATE, /* PATCH status.nominatedNodeName of the pod; `node` NULL: none */
    CORE_CALL_EVICT, /* POST an Eviction of the pod, on behalf of the pod `preemptor` */
    CORE_REPLY,      /* reply to a bind: `bind` */
    CORE_RESERVED,   /* reply to RESERVE, in the same step: `reserve` */
};

struct core_output {
    enum core_output_type type;
    enum core_kind kind;
    uint64_t run;
    const char *version;

    uint64_t call; /* returned in the ANSWER; every call gets exactly one */
    const char *ns, *name, *uid, *node; /* RESERVED: node of DONE and PROMISED */
    const char *annotations;            /* CALL_BIND: a JSON object, or NULL */
    struct clock_deadline send_by;      /* CALL_BIND: must not be sent after this time */
    const char *body;                   /* LEASE_WRITE: the Lease as JSON */
    bool create;
    int64_t limit_ms; /* LEASE_GET, LEASE_WRITE: time limit of the request */
    const char *value;
    const char *preemptor; /* EVICT: UID of the pod that gets the memory */

    uint64_t token;
    enum core_reserve_outcome reserve; /* RESERVED */
    enum core_bind_outcome bind;       /* REPLY */
    enum err_code code;                /* REPLY: ERR_NONE is success */
    const char *text; /* REPLY, RESERVED; NOMINATE, EVICT: for an Event of the pod */
};

/* New: a deep copy in one block; release it with free. */
struct core_output *core_output_dup(const struct core_output *output);

/* Processes one input; appends to outputs. */
void core_step(struct core *core, struct step_time now, const struct core_input *input,
               struct step_outputs *outputs);

/* The monotonic time at which the next CORE_TICK has something to do. */
int64_t core_due(const struct core *core);

/* Queries */

const struct ledger *core_ledger(const struct core *core);
/* May the verbs answer? -1 with the reason: a kind has not been listed yet, or its watch
 * has delivered nothing for too long. */
int core_ready(const struct core *core, struct step_time now, struct err *err);
/* Does the ledger show what is? -1: a list or watch fails, or core_ready is -1; err (may be NULL)
 * says which and why. *since_ns: the ledger is of that time (wall clock; 0: never listed). */
int core_current(const struct core *core, struct step_time now, int64_t *since_ns,
                 struct err *err);
/* The quotas of the namespaces; NULL without core_settings.quotas. */
const struct quotas *core_quotas(const struct core *core);
/* Are they known? As core_ready, which leaves them out: only pods that they count wait for them.
 * Also 0 without core_settings.quotas. */
int core_quotas_ready(const struct core *core, struct step_time now, struct err *err);
/* Do the quotas of its namespace allow that the pod has these cards of the node, instead of what is
 * reserved for it? `node` NULL: as far as that is known of all nodes. -1 with the reason. */
int core_quota_check(const struct core *core, struct step_time now, struct span ns,
                     struct span uid, const struct request *request,
                     const struct ledger_node *node, uint64_t cards, struct err *err);
/* May a bind start now? -1 with the reason. */
int core_check_may_bind(const struct core *core, struct step_time now, struct err *err);
bool core_is_leader(const struct core *core);
/* The lease's holder, as last seen; empty: none, or unknown. Borrowed. */
struct span core_lease_holder(const struct core *core);
/* When another process was last seen to acquire or renew the lease (monotonic); 0: no
 * other process holds it. */
int64_t core_other_leader_ms(const struct core *core);

/* Which process executes a bind. */
enum bind_route_kind {
    BIND_ROUTE_LOCAL,
    BIND_ROUTE_FORWARD, /* the lease's holder, at `address` */
    BIND_ROUTE_WAIT,    /* nobody holds the lease, or we do and must not use it yet */
    BIND_ROUTE_REJECT,  /* another replica forwarded it here, and we are not the leader */
};
struct bind_route {
    enum bind_route_kind route;
    struct span address; /* FORWARD; borrowed from the core */
    int64_t until_ms; /* FORWARD: when the lease expires unless renewed; in the past when
                            the API server is unreachable */
};
/* `forwarded`: another replica sent this bind. `err` (may be NULL) says why the route is
 * not local. */
struct bind_route core_bind_route(const struct core *core, struct step_time now,
                                  bool forwarded, struct err *err);
bool core_stopping(const struct core *core); /* CORE_STOP has arrived */
/* After CORE_STOP: nothing is in flight and the lease is released (or not ours). */
bool core_stopped(const struct core *core);
/* For metrics and views: counts all binds, gangs and preemptions. */
struct core_stats {
    /* Cards that became overcommitted: by pods that other programs bound, by a card that
     * shrank, or because an assumption about clocks and networks did not hold. */
    uint64_t overcommits;
    size_t binds_in_flight, binds_unknown; /* unknown: those with an unknown outcome */
    size_t binds_held;        /* ... that wait for other members of their gang */
    size_t gangs_in_turn;     /* gangs that take turns */
    uint64_t gangs_failed;    /* holds and turns that ended without a Binding */
    int64_t preempt_after_ms; /* as in the settings */
    struct core_preemptions {
        size_t waiting; /* rejected pods that evictions could help */
        size_t kept;    /* pods for which cards are kept, or evictions are in progress */
        uint64_t started;   /* preemptions */
        uint64_t evicted;   /* pods */
        uint64_t refused;   /* evictions that a PodDisruptionBudget did not allow */
        uint64_t abandoned; /* preemptions that ended without all evictions */
    } preemptions;
};
struct core_stats core_stats(const struct core *core);

enum core_preempt_state {
    CORE_PREEMPT_WAITING,    /* no victims are chosen yet */
    CORE_PREEMPT_NOMINATING, /* the PATCH of its status is in flight */
    CORE_PREEMPT_EVICTING,   /* one eviction is in flight, or will be retried */
    CORE_PREEMPT_DONE,       /* no further eviction for it until `until_ns` */
};
enum core_preempt_found { /* by the last search for victims */
                          CORE_PREEMPT_UNSEARCHED,
                          CORE_PREEMPT_NO_VICTIMS,
                          CORE_PREEMPT_NOT_NEEDED, /* it fits, now or when terminating pods have left */
                          CORE_PREEMPT_VICTIMS,
};
/* What layout preemption does for a pending pod. Times are of the wall clock as of the
 * first rejection, whatever that clock does later. */
struct core_preempt_status {
    struct span uid;
    enum core_preempt_state state;
    enum core_preempt_found found;
    int64_t since_ns;  /* the first rejection that evictions could help */
    int64_t search_ns; /* WAITING: no search before */
    int64_t until_ns;  /* DONE: the cards are kept, and nothing is evicted, until then */
    size_t candidates; /* nodes where evictions could help */
    struct span node;  /* where it is nominated; empty: nowhere */
    size_t victims;    /* chosen there */
    size_t left;       /* ... of which so many are not evicted yet */
    unsigned refused;  /* evictions for it that the API server refused */
    bool by_budget;    /* ... the last one because of a PodDisruptionBudget */
};
/* New, in the arena, with its strings, ordered by UID: the pods that the leader
 * remembers. */
size_t core_preempt_list(const struct core *core, struct arena *a,
                         struct core_preempt_status **list);
/* A number that changes whenever that list does. */
uint64_t core_preempt_generation(const struct core *core);
/* Does the bind of the pod wait for other members of its gang? */
bool core_is_held(const struct core *core, struct span uid);
/* Appends which members of the gang (NULL: none) are there: "2 of 3 members are bound or held;
 * not here yet: a, b (scheduling gates)". Only the leader knows held ones. */
void core_gang_members(const struct core *core, const struct ledger_gang *gang,
                       struct buf *out);
/* Time since a list or watch of the kind last delivered anything; -1: never listed. */
int64_t core_watch_age_ms(const struct core *core, struct step_time now,
                          enum core_kind kind);
