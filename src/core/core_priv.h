/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/hash.h"
#include "base/list.h"
#include "base/rng.h"
#include "core/core.h"
#include "domain/reflector.h"
#include "placement/gang.h"

/* A caller that waits for the outcome of a bind. */
struct waiter {
    uint64_t token;
    struct span node; /* of its request; in the op's strings */
};

enum bind_op_state {
    BIND_OP_FETCHING, /* the pod is unknown: a GET is in flight */
    BIND_OP_HELD,     /* a member of a gang that waits for others, without promise */
    BIND_OP_SENT,     /* the Binding is in flight */
    BIND_OP_UNKNOWN,  /* the Binding may or may not have taken effect */
    BIND_OP_CHECKING, /* a GET decides whether a bound pod still exists: a list lacks it, or a second
                       * bind has come */
};

/* A bind in flight. Its promise, if any, is in the ledger under the pod's UID. */
struct bind_op {
    enum bind_op_state state;
    struct arena strings;
    struct span uid, ns, name, node; /* NUL-terminated */
    uint64_t call;                   /* call in flight, or 0 */
    int64_t proof_ms; /* the second GET sent after this is proof; CORE_CHECK_AFTER_MS */
    int64_t get_ms;   /* when the GET in flight was sent */
    int64_t check_ms; /* UNKNOWN, CHECKING without a call: when to send the next GET */
    int64_t backoff_ms;
    bool deleted;      /* SENT: the pod was seen deleted or terminal */
    bool checked_late; /* a GET sent after proof_ms was answered */
    bool overtaken; /* a list that ended after the GET in flight was sent lacks the pod */
    struct span seen; /* SENT: an event shows the pod bound to this node */
    struct err why;   /* the error of the Binding */
    uint32_t minimum; /* of its gang, as in the input */
    struct core_gang
        *gang; /* HELD: by which; else NULL. It stays when its last held bind ends */
    struct waiter *waiters;
    size_t n_waiters, waiters_cap;
    struct list link;
};

/* A gang of which binds are held, or that takes turns (core_gang.c). */
struct core_gang {
    struct list link;      /* in the order of their turns */
    struct span key;       /* gang_key; owned */
    int64_t held_until_ms; /* the held binds fail then; INT64_MAX: none is held */
    int64_t look_ms;       /* core_gang_tick looks at it; INT64_MAX: no bind is held */
    bool woken;            /* the missing members, during this hold */
    bool expired;          /* it takes turns: its binds were held in vain */
    unsigned in_vain;      /* turns in a row */
    int64_t not_before_ms; /* its next turn */
};

struct core_gangs {
    struct map by_key;
    struct list list;
    struct core_gang *turn; /* whose turn it is; or NULL */
    bool came;              /* a member has been asked about since the turn began */
    int64_t turn_until_ms;  /* unless binds of it are held then */
    uint64_t failed;        /* holds and turns without Bindings */
};

/* A node that gained free memory: a change of the Node makes kube-scheduler retry. */
struct wakeup {
    struct list link;
    struct span node; /* owned, NUL-terminated */
    int64_t not_before_ms;
    uint64_t call; /* in flight, or 0 */
    bool due;
    /* UID of a pod to retry, whatever fits here by then; owned; or {0}. */
    struct span pod;
    bool several;     /* ... and others */
    int64_t retry_ms; /* when; INT64_MAX: `call` does it */
};

/* A pending pod that filter rejected. */
struct core_preempt_pod {
    struct list link;
    enum core_preempt_state state;
    struct span uid;  /* owned */
    struct buf nodes; /* names of the candidate nodes, each with its NUL */
    size_t n_nodes;
    int64_t since_ms, since_ns; /* the first rejection, by both clocks */
    int64_t due_ms; /* WAITING, EVICTING: when the next search or call is due */
    /* WAITING: position in `nodes` of the search in progress, and of the cheapest node so
     * far (if `found`), with the number and the highest priority of its victims. */
    size_t at, best, cost;
    int64_t priority;
    bool found;
    struct arena plan;              /* with node and victims */
    struct span node;               /* where it is nominated; DONE: may be empty */
    uint64_t cards;                 /* kept for the pod on that node; 0: none */
    struct span *victims;           /* UIDs */
    size_t n_victims, next;         /* `next`: the first whose eviction is not answered */
    uint64_t call;                  /* in flight, or 0 */
    unsigned attempts;              /* of the current eviction */
    bool evicted;                   /* an eviction was sent, and may have taken effect */
    int64_t until_ms;               /* DONE: when the pod is forgotten */
    enum core_preempt_found result; /* of the last search */
    unsigned refused;               /* evictions that the API server refused, in all */
    bool by_budget;                 /* a PodDisruptionBudget refused the last one */
};

struct core_preempt {
    struct list pods;
    size_t n;
    int64_t due_ms;
    struct core_preemptions counts; /* without `waiting` and `kept` */
};

/* A node whose podList has pods that the ledger does not know. */
struct holder_check {
    struct list link;
    struct span node; /* owned */
    uint64_t hash;    /* of these pods */
    size_t at;        /* of ledger_unknown_holder: those before have been asked for */
    int64_t due_ms;   /* in `later` */
};

/* Of all nodes (core_holder.c). */
struct holders {
    struct map by_node;
    struct list now, later;     /* nodes with pods to ask for; `later`: by due_ms */
    uint64_t call;              /* the GET in flight, or 0 */
    struct span node, ns, name; /* of that GET, or of the last; owned */
    bool overtaken;             /* a watch or list has shown a pod of that name since */
    int64_t not_before_ms, retry_ms;
};

enum leader_state {
    LEADER_IDLE,
    LEADER_GETTING,
    LEADER_WRITING,
};

/* Leader election: the Lease as last seen, and what this process may do with it. */
struct leader {
    enum leader_state state;
    uint64_t call;
    int64_t due_ms;        /* IDLE: when to act next */
    int64_t requested_ms;  /* when the last GET was sent */
    struct step_time sent; /* of the PATCH in flight */
    bool leading;
    bool settled;           /* the lease was acquired, or must be waited for */
    struct step_time valid; /* leading: when the last successful renewal was sent */
    int64_t acquired_ms;
    bool known;  /* the object exists */
    bool absent; /* it did not exist at the last GET */
    struct buf uid, version, holder, acquire_time;
    int64_t duration_s, transitions;
    int64_t
        longest_ms; /* of the durations in the Leases seen, at most CORE_LEASE_MAX_MS */
    int64_t observed_ms;  /* when this version of it was first seen */
    int64_t lead_from_ms; /* its holder must not lead earlier: the Lease was recreated,
                               and the holder of the previous one may not know that yet */
    struct buf logged_holder;
    struct step_failure failure; /* of calls */
};

/* The heartbeat of a node. */
struct heartbeat {
    struct span node;   /* owned, NUL-terminated */
    uint64_t renewed;   /* hash of its renewTime */
    int64_t renewed_ms; /* when this renewTime was first received */
    bool stale;
    int64_t scv_s; /* stale and without a Lease: updateTime of the Scv since; or 0 */
    struct list link;
};

struct heartbeats {
    struct map by_node;
    struct list fresh;         /* longest without renewal first */
    struct list stale;         /* nodes that get no new pods */
    int64_t listed_ms;         /* when the last list that decides was requested */
    int64_t doubted_ms;        /* when the last list arrived that does not decide */
    int64_t event_ms;          /* when the watch last delivered something */
    int64_t no_pause_since_ms; /* since then the watch had no long pause */
    int64_t last_ms;           /* when a list or watch last delivered any Lease */
    int64_t working_since_ms;  /* lists and watches work since then; grace starts here */
    bool broken;               /* the last list or watch failed; nothing arrived since */
};

struct core {
    struct core_settings settings;
    char *identity, *lease_namespace, *lease_name;
    struct ledger *ledger;
    struct rng rng;
    bool started, stopping;
    bool restored;    /* core_restored, in this step */
    uint64_t last_id; /* of runs and calls */
    int64_t last_assume_ns;
    struct reflector reflectors[CORE_ALL_KINDS];
    int64_t quotas_woken_ms; /* when pods were last retried because of quotas */
    struct map bind_ops_by_uid;
    struct list bind_ops; /* newest first */
    struct core_gangs gangs;
    bool wakeups_begun;    /* only while this process leads */
    size_t wakeup_classes; /* ... of pending pods, that begin() has still to look at */
    struct map wakeups_by_node;
    struct list wakeups; /* oldest first */
    struct leader leader;
    struct heartbeats heartbeats;
    struct core_preempt preempt;
    struct holders holders;
    /* Creation of the ConfigMap KEY_TAKEOVER; 0: there is none. The run that showed it. */
    int64_t takeover_s;
    uint64_t takeover_run;
    bool units_compared;    /* log_units is done */
    size_t n_overcommitted; /* cards that were overcommitted after the last step */
    uint64_t overcommits;
    struct arena scratch; /* for one step */
};

/* The kinds before this one are listed, and core_ready waits for them. */
static inline int core_kinds(const struct core *core)
{
    return core->settings.only_pods ? CORE_PODS + 1 : CORE_KINDS;
}
/* Those before this one are listed. */
static inline int core_all_kinds(const struct core *core)
{
    return core_kinds(core) + core->settings.quotas;
}

/* The arguments of core_step, which all functions of a step share. */
struct step {
    struct core *core;
    struct step_time now;
    const struct core_input *in;
    enum err_code code; /* of in->err; ERR_NONE: there is none */
    struct step_outputs *out;
};

/* core.c */
/* A log line; a warning unless the code is ERR_NONE. */
#define core_log(s, code, ...)                                                           \
    step_log((s)->out, (code) == ERR_NONE ? LOG_INFO : LOG_WARN, "core", (code),         \
             __VA_ARGS__)
/* The API server's state is older than what it showed before. At the end of the step the core
 * forgets everything; then it lists everything, and waits for every Lease to expire. */
void core_restored(struct step *s, const char *shows);
struct core_output *core_output_add(struct step *s, enum core_output_type type);
uint64_t core_next_id(struct core *core);
/* A copy, NUL-terminated; release it with core_disown. */
struct span core_own(struct span s);
void core_disown(struct span *s); /* sets it to {0} */
/* For "%s%s": the failure behind a colon, if there is one. */
#define CORE_FAILURE(f) (f).failures ? ": " : "", (f).err.msg
/* Adds an API call; *call is its number. */
struct core_output *core_call(struct step *s, enum core_output_type type, uint64_t *call,
                              struct span ns, struct span name, struct span uid);

/* core_sync.c: list + watch of each kind, and heartbeats of nodes */
void core_sync_fini(struct core *core);
void core_heartbeat_set_stale(struct step *s); /* CORE_HEARTBEAT_STALE */
void core_sync_start(struct step *s);
void core_sync_tick(struct step *s);
void core_sync_object(struct step *s);
void core_sync_watch_progress(struct step *s);
void core_sync_ended(struct step *s); /* a list or watch */
/* Another call shows that the API server works again: shortens the backoff of failed lists
 * and watches, because binds must not be decided from old state for long. */
void core_sync_retry_soon(struct step *s);
int64_t core_sync_due(const struct core *core);

/* What a request takes of these cards of the node in a quota; `node` NULL: of any. */
struct quota_amounts core_quota_amounts(const struct request *r,
                                        const struct ledger_node *node, uint64_t cards);

/* The state of a pod, as a list, watch or GET shows it. */
enum core_pod_source {
    CORE_POD_FROM_WATCH,
    CORE_POD_FROM_GET
}; /* a list counts as watch */
void core_sync_pod(struct step *s, const struct pod *pod, bool deleted,
                   enum core_pod_source from);
/* The pod of that UID no longer exists. */
void core_sync_pod_deleted(struct step *s, struct span uid);

/* core_bind.c: from the request to the outcome of the Binding */
struct bind_op *core_bind_find(const struct core *core, struct span uid);
void core_bind_fini(struct core *core);
void core_bind_requested(struct step *s);
void core_bind_fail_all(struct step *s); /* all callers try again */
bool core_bind_answered(struct step *s); /* false: not a call of a bind */
void core_bind_tick(struct step *s);
int64_t core_bind_due(const struct core *core);
/* Checks by GET whether a pod with a promise still exists. */
void core_bind_check(struct step *s, struct ledger_pod *pod);
/* A list of pods has ended. A GET in flight of a pod that the list lacks may be older than
 * the list, and the watch will not show that pod again: the GET is repeated. */
void core_bind_listed(struct step *s, uint64_t list);
/* The pod was seen bound to that node, or deleted. Ends the op; in state SENT it is noted, and the
 * answer ends it. */
void core_bind_bound(struct step *s, struct bind_op *op, struct span node);
void core_bind_deleted(struct step *s, struct bind_op *op);

/* The parts of a bind, for core_gang.c. Does the node have the cards for the pod? *cards: 0 for
 * nvidia.com/gpu. False with the reason. */
bool core_bind_judge(struct step *s, const struct ledger_pod *pod, struct span node_name,
                     const struct ledger_node **node, uint64_t *cards, struct err *err);
/* The same, and puts the promise into the ledger and appends the annotations. */
bool core_bind_promise(struct step *s, struct ledger_pod *pod, struct span node_name,
                       struct buf *annotations, struct err *err);
/* Gives a promise to the ledger, which ends the nomination of the pod; kube-scheduler is woken for
 * the node of that. */
void core_promise_place(struct step *s, struct ledger_pod *pod, struct span node,
                        const struct ledger_share *shares, uint32_t n);
/* Takes the promise back: no Binding was sent, or none can take effect. */
void core_bind_retract(struct step *s, const struct bind_op *op);
/* Sends the Binding, after the promise if there is one. */
void core_bind_send(struct step *s, struct bind_op *op, const struct buf *annotations);
/* Ends the op; its callers get the outcome with the error. */
void core_bind_end(struct step *s, struct bind_op *op, enum core_bind_outcome outcome,
                   const struct err *err);
/* The same, CORE_BIND_REJECTED. */
void core_bind_fail(struct step *s, struct bind_op *op, const struct err *err);
void core_bind_gone(struct step *s); /* CORE_BIND_GONE */
/* The pod is asked about again: ends its held bind. */
void core_bind_forgotten(struct step *s, struct span uid);

/* core_gang.c: binds of gangs are held until enough members can start */
void core_gang_fini(struct core *core);
/* Appends why a gang has to wait; the same for all members at all times. */
void core_gang_reason(struct buf *out, struct span name);
/* May members still be created? A gang of which the ledger has none begins now. */
bool core_gang_awaits(const struct step *s, const struct ledger_gang *gang);
/* May the gang be planned or held? Not while others have the turn. */
bool core_gang_may_try(struct step *s, const struct ledger_gang *gang);
/* Takes the bind of the pod over: holds it, fails it (then `op` is freed), or, if it was the last
 * that was missing, starts or fails all of the gang. False: the pod waits for nobody, and the
 * caller binds it. */
bool core_gang_holds(struct step *s, struct bind_op *op, struct ledger_pod *pod);
/* Starts the gang if enough members are there now. */
void core_gang_review(struct step *s, const struct ledger_gang *gang);
/* A member finds no place, or loses it: nothing is reserved or held for any. `gang` may be NULL. */
void core_gang_lost(struct step *s, const struct ledger_gang *gang, const char *why);
/* Ends what is reserved for members whose binds are not held: they are planned again. */
void core_gang_release(struct step *s, const struct ledger_gang *gang);
/* The pod, a member, ends: held binds fail. */
void core_gang_member_left(struct step *s, const struct ledger_pod *pod);
/* The pod was seen: if its bind is held and it is no member any more, held binds fail. */
void core_gang_member_seen(struct step *s, struct span uid);
void core_gang_drop_all(struct step *s); /* this process may not bind any more */
void core_gang_tick(struct step *s);
int64_t core_gang_due(const struct core *core);

/* core_reserve.c: reservations from filter to bind */
void core_reserve_requested(struct step *s);
/* Reserves for a member of a gang, or for the pod of the input (`pod` is NULL). */
void core_reserve_for(struct step *s, const struct gang_plan_member *member,
                      int64_t until_ms, bool joint);
void core_reserve_end_gang(struct step *s,
                           const struct ledger_gang *gang); /* may be NULL */
/* Ends what does not hold any more on nodes that have changed. */
void core_reserve_review(struct step *s);
/* Ends the reservation of the pod, if it has one. `node`: where the pod is placed next; if
 * its reservation is there too, nothing becomes free. {0}: nowhere. */
void core_reserve_end(struct step *s, struct span uid, struct span node);
/* A pod of that priority was given cards of the node: the weaker reservations that lost
 * theirs end. */
void core_reserve_yield(struct step *s, struct span node, int64_t priority);
void core_reserve_drop_all(struct step *s); /* this process stops leading */
void core_reserve_tick(struct step *s);
int64_t core_reserve_due(const struct core *core);

/* core_leader.c: leader election */
void core_leader_start(struct step *s);
void core_leader_check_expiry(struct step *s); /* first in every step */
void core_leader_tick(struct step *s);
void core_leader_refresh(struct step *s);
bool core_leader_answered(struct step *s);
int64_t core_leader_due(const struct core *core);
/* How long the holder of a new Lease must not lead: the longest duration that is known. */
int64_t core_leader_wait_ms(const struct core *core);
/* Until when a Binding may start; mono_ms INT64_MIN: this process does not lead. */
struct clock_deadline core_leader_bind_deadline(const struct core *core);

/* core_wakeup.c: kube-scheduler retries when filter says yes of a node where it said no */
struct wakeup_fit {
    /* Nominated to the node; NULL: all others of the class. */
    const struct ledger_pod *pod;
    uint64_t class;
    int64_t room; /* as room_for says */
};
struct wakeup_fits {
    struct wakeup_fit *fits; /* before the change; in scratch */
    size_t n;
    struct span node;
};
void core_wakeup_fini(struct core *core);
/* Around a change of the node; empty: none. */
struct wakeup_fits core_wakeup_before(struct step *s, struct span node);
void core_wakeup_after(struct step *s, const struct wakeup_fits *before);
/* The node to which the pod (or NULL) is nominated, or empty. */
static inline struct span core_nominated_to(const struct ledger_pod *pod)
{
    return pod && pod->nomination ? pod->nomination->node->name : (struct span){0};
}
/* A pod without GPU has left the node, or NULL: its CPU can be what a gang lacks. */
void core_wakeup_gangs(struct step *s, const struct ledger_node *node);
/* The node has room that was kept before. */
void core_wakeup_node(struct step *s, struct span node);
/* The pending members of the gang are to be tried now. */
void core_wakeup_gang(struct step *s, const struct ledger_gang *gang);
/* CORE_REJECTED: the pod is retried because of the node that was not offered. */
void core_wakeup_rejected(struct step *s);
void core_wakeup_tick(struct step *s);
bool core_wakeup_answered(struct step *s);
int64_t core_wakeup_due(const struct core *core);

/* core_preempt.c: layout preemption */
void core_preempt_rejected(struct step *s); /* CORE_REJECTED, after core_wakeup.c */
void core_preempt_tick(struct step *s);
bool core_preempt_answered(struct step *s);
int64_t core_preempt_due(const struct core *core);
void core_preempt_fini(struct core *core);

/* core_holder.c: has a pod ended that the podList still shows? */
void core_holder_fini(struct core *core);
/* The podList of the node has changed, or (`again`) a pod may have left it. */
void core_holder_review(struct step *s, struct span node, bool again);
/* A list, watch or GET shows the pod; `there`: on its node, and not ended. */
void core_holder_pod(struct step *s, const struct pod *pod, bool there);
void core_holder_tick(struct step *s);
bool core_holder_answered(struct step *s);
int64_t core_holder_due(const struct core *core);
