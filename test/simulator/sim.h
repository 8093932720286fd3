/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "apisync/apisync.h"
#include "base/mem.h"
#include "base/rng.h"
#include "core/core.h"
#include "kube-sim/sim.h"

/*
 * The whole system in one thread, reproducible from a seed: several cores with the code
 * that encodes and decodes their messages, the API server of kube-sim, a model of
 * kube-scheduler, users who create and delete pods, and a network that delays, reorders,
 * duplicates and loses messages.
 *
 * Everything is an event with a time; the world executes the earliest one. An oracle that
 * shares no code with the ledger checks the API objects after every change.
 *
 * The assumptions about the network and their reasons: docs/architecture.md, "What a
 * Binding can take".
 */

enum {
    REPLICAS = 3,
    NODES = 4,
    GRACE_MS = 10000, /* of heartbeats */
    TRACE_LINES = 400,
    PREEMPT_AFTER_MS = 2000,
};

struct world;
struct replica;
struct oracle_pod;

/* Probabilities per mille. */
struct weather {
    int lose_request, lose_reply, duplicate, refuse, slow, not_sent, cut_call;
    int cut_list, cut_watch, lag, slow_list, stall;
    int last_gasp; /* a lease write succeeds late, then none for a while */
    int delay_ms;  /* typical, each way */
};

typedef void (*event_fn)(struct world *w, void *arg);

/* What happened, summed over the seeds. */
#define STATS(X)                                                                         \
    X(pods) X(deleted) X(binds) X(joined) X(bound) X(applied) X(lost) X(refused)         \
    X(duplicates) X(crashes) X(restarts) X(pauses) X(takeovers) X(relists)               \
    X(compactions) X(wakeups) X(quiets) X(freezes) X(clocks_set) X(foreign)              \
    X(forwarded) X(misdirected) X(cut_off)                                               \
    X(edits)              /* of users */                                                 \
    X(invalid)            /* bound pods with an invalid request */                       \
    X(must_be_stale)      /* stale nodes, by an independent count */                     \
    X(stale)              /* steps with a stale node */                                  \
    X(forged) X(tampered) X(denied) /* of tenants: pods, edits, denials */               \
    X(refused_by_plugin)  /* pods */                                                     \
    X(listed)             /* entries of podLists */                                      \
    X(evicted)            /* pods */                                                     \
    X(budgets)            /* evictions refused by a PodDisruptionBudget */               \
    X(reserved) X(reserved_bound) /* reservations made, and bound */                     \
    X(yielded) X(expired) /* ... ended by a higher priority, and by their time limit */  \
    X(gangs) X(gangs_bound) /* created; all members waited at Permit */                  \
    X(gangs_reserved) X(gangs_rejected)

struct stats {
#define STAT(name) uint64_t name;
    STATS(STAT)
#undef STAT
};

struct world {
    uint64_t seed;
    struct rng rng, plain_rng;
    int64_t now_ms; /* monotonic; wall time is base + now */
    uint64_t steps, max_steps, seq;
    struct event *heap;
    size_t n_events, events_cap;
    struct api *api;
    struct weather weather;
    struct replica *replicas[REPLICAS];
    int n_replicas;
    struct scheduler *scheduler;
    struct oracle *oracle;
    struct kubelets *kubelets;
    struct evictions *evictions;
    bool outsiders; /* outsiders bind pods */
    bool decides;   /* filter decides and reserves */
    bool gangs;     /* some pods are members of gangs */
    struct permit *permit;
    bool tenants;                            /* a hostile tenant is at work */
    bool policy;                             /* the admission policy is on */
    bool preempts;                           /* layout preemption is on */
    int64_t hangs_until;                     /* scv-agent of n1 is suspended */
    int64_t agents_cut_until;                /* scv-agents do not reach the API server */
    int64_t apart_until[REPLICAS][REPLICAS]; /* no forwarding between the two */
    bool quiet;
    int64_t quiet_since_ms;
    int reserved_node;   /* the last answer to CORE_RESERVE; -1: none */
    const char *binding; /* UID of the pod whose Binding is being applied */
    struct stats stats;
    char *trace[TRACE_LINES];
    size_t traced;
    bool verbose;
    bool failed;
};

/* world.c */
#define WALL_BASE_MS 1700000000000
int64_t wall_ms(const struct world *w);
bool chance(struct world *w, int per_mille);
int64_t between(struct world *w, int64_t lo, int64_t hi); /* inclusive */
/* Calls fn(w, arg) at that time; fn takes arg. At the end of the run: drop(arg). */
void at(struct world *w, int64_t when_ms, event_fn fn, void *arg, void (*drop)(void *));
void trace(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Reports a violated invariant, with seed and step. */
void violated(struct world *w, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* A request of other clients than the replicas, without the network; a PATCH is a merge
 * patch. Returns the status. */
unsigned api_call(struct world *w, const char *method, const char *body,
                  const char *path_fmt, ...) __attribute__((format(printf, 4, 5)));
/* The same with the answer in *reply: a new value, or NULL. */
unsigned api_reply_of(struct world *w, const char *method, const char *path,
                      const char *body, json_t **reply);
/* The object at the path, new; NULL: none. */
json_t *api_get(struct world *w, const char *path_fmt, ...)
    __attribute__((format(printf, 2, 3)));
#define POD_PATH "/api/v1/namespaces/default/pods/"
/* Runs one seed. True: no invariant was violated. */
bool world_run(uint64_t seed, uint64_t steps, int replicas, bool verbose,
               struct stats *stats);

/* replica.c */
struct replica *replica_new(struct world *w, int id);
void replica_free(struct replica *r);
void replica_boot(struct world *w, struct replica *r);
void replica_crash(struct world *w, struct replica *r);
void replica_pause(struct world *w, struct replica *r, int64_t ms);
/* Like pause, but the monotonic clock stops too: the host froze the virtual machine. The
 * wall clock is right when it continues. */
void replica_freeze(struct world *w, struct replica *r, int64_t ms);
/* Sets its wall clock. */
void replica_set_clock(struct world *w, struct replica *r);
/* A clean stop, then a new start. */
void replica_restart(struct world *w, struct replica *r);
/* For `ms`: its watches deliver nothing, or its lease calls fail. */
void replica_stall_watches(struct world *w, struct replica *r, int64_t ms);
void replica_fail_lease(struct world *w, struct replica *r, int64_t ms);
/* For at least `ms`: no connection between its machine and the API server; the other
 * replicas and kube-scheduler reach it. */
void replica_cut_off(struct world *w, struct replica *r, int64_t ms);
bool replica_up(const struct world *w, const struct replica *r); /* running, not paused */
/* Are all its watches open and up to date? */
bool replica_watches_all(const struct world *w, const struct replica *r);
int replica_id(const struct replica *r);
/* The number of the replica with that address; -1: none. */
int replica_at(struct span address);
bool replica_alive(const struct replica *r);
const struct core *replica_core(const struct replica *r);
const struct delivered *replica_delivered(const struct replica *r);
void replica_input(struct world *w, struct replica *r, const struct core_input *in);
struct step_time replica_time(const struct world *w, const struct replica *r);
void replica_cut_watches(struct world *w, struct replica *r);
/* The API objects have changed: watches have events to deliver. */
void replica_api_changed(struct world *w, struct replica *r);

/* scheduler.c: a model of kube-scheduler */
struct scheduler *scheduler_new(void);
void scheduler_free(struct scheduler *s);
void scheduler_start(struct world *w);
/* A replica replies to a bind. */
void scheduler_reply(struct world *w, uint64_t token, enum err_code code,
                     const char *text);
bool scheduler_idle(const struct world *w);
/* The pod of a bind without an answer; NULL: it was answered. */
const char *scheduler_uid(const struct world *w, uint64_t token);
void scheduler_bind(struct world *w, const struct oracle_pod *p, int node);
/* Is a bind of the pod without an answer? */
bool scheduler_binds(const struct world *w, const char *uid);
void scheduler_forget_backoff(struct world *w);
/* One scheduling cycle of the pod, if it is pending. */
void scheduler_try(struct world *w, const struct oracle_pod *p);

/* gangs.c: Permit plugins, and the checks of gangs */
struct permit *permit_new(void);
void permit_free(struct permit *p);
/* Is this the name of a member of a gang? */
bool gangs_has(const char *name);
/* Filter gave the member a node. The member waits, or all members are bound. */
void permit_add(struct world *w, const struct oracle_pod *p, int node);
/* The pod that has waited shortest; NULL: none. */
struct oracle_pod *permit_first(struct world *w);
bool permit_waits(const struct world *w, const char *uid);
/* kube-scheduler restarts soon: members that wait then are tried again. */
void permit_restart(struct world *w);
/* After a step of a replica: a gang has reservations for all its members, or for none. */
void gangs_check(struct world *w, const struct replica *r, const struct core_input *in,
                 const struct core_output *o);
/* At rest: may the pod be pending although it fits, because of another member? */
bool gangs_may_wait(const struct world *w, const struct oracle_pod *p);

/* decide.c: filters that decide, with their network */
/* The number of the node that filter answers; -1: none. `asked`: the replica that
 * kube-scheduler calls. */
int decide_node(struct world *w, struct replica *asked, const struct pod *pod);
/* The replica's answer to CORE_RESERVE. */
void decide_reserved(struct world *w, const char *node);

/* witness_reserve.c: checks the reservations of a replica, independently of the ledger's
 * free memory */
struct reserved {
    char uid[64];
    char name[64]; /* as the log has it */
    int64_t priority;
    int node, n;
    int card[8];
    int64_t mib[8];  /* of each card; 0: all of it */
    int64_t made_ms; /* by the replica's clock */
    bool in_gang;
};
struct witness_reserved {
    struct reserved *items;
    size_t n, cap;
};
void witness_reserved_fini(struct witness_reserved *list);
/* After each step of a replica. `seen`: its reservations before the step; replaced by those
 * after it. */
void witness_reserve(struct world *w, const struct replica *r,
                     struct witness_reserved *seen, const struct core_input *in,
                     const struct step_outputs *out);
/* Does the list have the pod on that node? */
bool witness_reserved_has(const struct witness_reserved *seen, const char *uid, int node);
/* MiB of the card, of this size, that is reserved for other pods of that priority or a
 * higher one. */
int64_t witness_reserved_mib(const struct witness_reserved *seen, const char *uid,
                             int64_t priority, int node, int card, int64_t size);
/* Before the current step. */
const struct witness_reserved *replica_reserved(const struct replica *r);

/* users.c: users and failures */
void users_start(struct world *w);
/* scv-agent writes the Scv of the node. */
void put_scv(struct world *w, int node, bool create);

/* tenants.c: a hostile tenant */
void tenants_act(struct world *w);

/* policy.c: requests of a namespace's user, through the admission policy. The status; 403:
 * denied. */
unsigned policy_create(struct world *w, const char *body);
unsigned policy_patch(struct world *w, const char *name, const char *body);

/* kubelet.c: what containers hold, and the podLists that show it */
struct kubelets *kubelets_new(void);
void kubelets_free(struct kubelets *k);
/* The pod starts and gets its cards. False: the device plugin rejects it. */
bool kubelet_starts(struct world *w, struct oracle_pod *p);
/* Does the node's Scv have a podList now? */
bool kubelet_publishes(struct world *w, int node);
void kubelet_add_list(struct world *w, struct buf *body, int node);
/* Remembers the podList of that version of the Scv. */
void kubelet_published(struct world *w, int node, bool published, const char *version);
/* What the podList of that version says about the pod; KUBELET_GIVES: *mib of the card, 0:
 * all of it. Version NULL: no Scv. */
enum kubelet_view {
    KUBELET_SILENT, /* no podList */
    KUBELET_LACKS,  /* the podList lacks the pod */
    KUBELET_GIVES,
    KUBELET_GIVES_OTHERS, /* the pod has other cards */
};
enum kubelet_view kubelet_shows(const struct world *w, const char *version, int node,
                                const struct oracle_pod *p, int card, int64_t *mib);

/* flaws.c: invalid specs, labels and annotations */
/* A member of `labels` or `annotations` that makes most requests invalid; *in_labels says
 * of which. */
const char *flaw_pick(struct world *w, bool *in_labels);
/* A user edits the labels or annotations of a pod, pending or bound. */
void flaws_edit(struct world *w);
/* The same of this pod, within half a second. */
void flaws_edit_soon(struct world *w, const char *uid);

/* agents.c: heartbeats of nodes */
void agents_start(struct world *w);
/* Checks after each step of a replica; and at rest. */
void agents_check(struct world *w, const struct replica *r);
void agents_settled(struct world *w, const struct replica *r);

/* outsiders.c: programs that bind pods without the extender */
void outsiders_act(struct world *w);

/* plain.c: pods without GPU, in kube-system */
bool plain_is(json_t *meta);
void plain_act(struct world *w);
void plain_settled(struct world *w); /* compares the sums of each node */

/* delivered.c: the state of nodes as delivered to a replica */
struct delivered *delivered_new(void);
void delivered_free(struct delivered *h);
void delivered_forget(struct delivered *h); /* after a restart */
/* A list or watch is requested: deliveries of the previous one no longer count. */
void delivered_asked(struct delivered *h, const struct core_output *o, int64_t now_ms);
/* Records an input before its delivery. False: not of the current list or watch. */
bool delivered_take(struct delivered *h, const struct core_input *in, int64_t now_ms);
/* After the delivery: marks the nodes that must be stale by now. They stay stale until a
 * heartbeat arrives. */
void delivered_check_heartbeats(struct delivered *h, const struct core_input *in);
bool delivered_stale(const struct delivered *h, int node);
/* Number of cards in its Scv; 0: also without an Scv. */
int delivered_cards(const struct delivered *h, int node);
int64_t delivered_mib(const struct delivered *h, int node,
                      int card); /* -1: no such card */
/* Bits of the available cards: healthy, in no ConfigMap, in no podList. */
unsigned delivered_available(const struct delivered *h, int node);
/* resourceVersion of its Scv; NULL: none. */
const char *delivered_scv(const struct delivered *h, int node);
/* Number of devices of the pod in the podList. */
int delivered_devices(const struct delivered *h, int node, struct span pod);

/* witness.c: checks a Binding that a replica sends */
void witness_bind(struct world *w, const struct replica *r, const struct core_output *o);
/* After each step: does its ledger match the latest deliveries? */
void witness_check(struct world *w, const struct replica *r);

/* evictions.c: checks layout preemption */
struct evictions *evictions_new(void);
void evictions_free(struct evictions *e);
/* kube-scheduler found no node for the pod: the leaders learn the candidate nodes. */
void evictions_rejected(struct world *w, struct replica *r, const struct pod *pod);
/* Before a replica sends a nomination or an eviction; and when that is answered. */
void evictions_sent(struct world *w, const struct replica *r,
                    const struct core_output *o);
void evictions_answered(struct world *w, const struct replica *r,
                        const struct core_output *o, const struct core_input *answer);
/* A replica has crashed: its memory of evictions is lost. */
void evictions_forget(struct world *w, int replica);
/* Before each step of a replica. */
void evictions_before(struct world *w, const struct replica *r);
/* The replica promised the pod a card: it must not have been kept for another pod. */
void evictions_check_kept(struct world *w, int node, const struct ledger_pod *pod,
                          const struct card *card);
/* MiB of the card that were kept for other pods of at least this priority. */
int64_t evictions_kept_mib(const struct world *w, int node, const struct ledger_pod *pod,
                           const struct card *card);
/* Were cards of the node kept before the step, or are pods nominated to it now? */
bool evictions_nominated(const struct world *w, const struct ledger_node *node);
/* Does no replica keep cards for a pending pod? */
bool evictions_idle(const struct world *w);

/* ask.c: requests of pods */
/* The request of a pod before its labels or annotations were edited. */
struct oracle_ask {
    int64_t units, mib, least;
    int cards, clock;
    char *models;
    bool whole, invalid, nothing;
    struct oracle_ask *next;
};

const char *ask_text(json_t *object, const char *a, const char *b); /* object.a.b */
/* Reads the current request. Until the pod is bound, older versions are kept, because a
 * replica may bind by one of them; a promise of the extender never changes. */
void ask_update(struct oracle_pod *p, bool known, json_t *meta, json_t *spec);
/* Makes an older version the request. */
void ask_take(struct oracle_pod *p, const struct oracle_ask *a);
void ask_fini(struct oracle_pod *p);

/* oracle.c */
struct oracle_card {
    int64_t mib;
    bool healthy, listed;
};
struct oracle *oracle_new(struct world *w);
void oracle_free(struct oracle *o);
int oracle_cards(int node); /* how many cards the node has */
const char *oracle_model(int node, int card);
int oracle_clock(int node, int card);
/* Size in its Scv: less than the true size while it is shrunk. */
int64_t oracle_card_mib(const struct oracle *o, int node, int card);
void oracle_shrink(struct oracle *o, int node, int card, bool shrunk);
bool oracle_is_shrunk(const struct oracle *o, int node, int card);
void oracle_set_health(struct oracle *o, int node, int card, bool healthy);
bool oracle_health(const struct oracle *o, int node, int card);
/* Processes all pod changes since the last call. */
void oracle_update(struct world *w);
/* At rest: every ledger must match the API objects, and every pod that fits must be bound. */
void oracle_settled(struct world *w);
/* A pod, by the oracle's own reading. */
struct oracle_pod {
    char *uid, *name, *node;
    int64_t units; /* per card; whole cards: 0 */
    int64_t mib;   /* per card, exactly */
    int cards;     /* nvidia.com/gpu: 0 */
    int devices;   /* of nvidia.com/gpu */
    unsigned held; /* bits of the cards that the kubelet allocated for those */
    char *models;  /* comma-separated; NULL: any */
    int clock;     /* minimum */
    int64_t least; /* minimum MiB of each whole card */
    int card[8];
    int n_cards;          /* promised */
    bool foreign;         /* bound by another program: on any number of cards, or none */
    char *promise;        /* the annotations with which it was bound */
    bool tampered;        /* they have changed since */
    bool odd;             /* they do not name their cards clearly */
    bool complete;        /* all keys were present once, as of a request by labels */
    bool strange;         /* they named a UUID once that the node lacks */
    unsigned known_by;    /* bits of the replicas that know that it is bound, */
    unsigned sure_by;     /* that know its promise as it was bound, */
    unsigned doubted_by;  /* that learned another promise from a GET, */
    unsigned carded_by;   /* and that saw it with a card, true or not */
    bool started;         /* its containers run */
    unsigned given;       /* bits of the cards that they hold */
    int64_t given_mib[8]; /* 0: the whole card */
    bool shown;           /* the last podList had its nvidia.com/gpu */
    bool whole, over, deleting;
    int64_t priority;
    bool never_preempts, daemon;
    /* The raw limits, by the oracle's own arithmetic; they never change. */
    int64_t raw_mem, raw_cards, raw_core;
    bool invalid; /* only other programs may bind it; it counts for its raw limits */
    bool labeled; /* no limits: requests by labels, now or before */
    bool nothing; /* it requests nothing */
    bool edited;  /* its labels or annotations have changed since it was created */
    char resource_version[32];
    unsigned kept[REPLICAS]; /* cards of the last podList that each replica got */
    int version;             /* of its request: rises with every change */
    int delivered[REPLICAS]; /* the version that each replica got last */
    struct oracle_ask *asks; /* older requests, newest first */
    struct oracle_pod *next;
};
/* Does the pod request memory or cards of ours by its limits? */
static inline bool oracle_limited(const struct oracle_pod *p)
{
    return p->raw_mem || p->raw_cards;
}
struct oracle_pod *oracle_pick(struct world *w, bool bound);
struct oracle_pod *oracle_first(const struct world *w);
/* MiB that the pod holds of the card; 0: all of it; -1: nothing. */
int64_t oracle_holds(const struct oracle_pod *p, int node, int card);
/* MiB that bound pods leave free on a card; negative if outsiders overcommit it.
 * *untouched (may be NULL): no pod is on it. */
int64_t oracle_free_mib(const struct oracle *o, int node, int card, bool *untouched);
/* Percent of the card's compute that bound pods leave free; negative as above. */
int oracle_free_core(const struct oracle *o, int node, int card);
/* A pod was delivered to a replica; a restarted replica has got nothing yet. */
void oracle_delivered(struct world *w, int replica, const struct pod *pod);
/* The API server answers a Binding of the replica with success. */
void oracle_bind_answered(struct world *w, int replica, const char *uid);
/* A bind of the replica has failed; NULL: of a pod that is not known any more. */
void oracle_bind_failed(struct world *w, const struct replica *r, const char *uid);
/* The replica got Scvs, or a list without some. */
void oracle_scvs_delivered(struct world *w, int replica);
/* A GET shows the pod to the replica, maybe before its watch does. */
void oracle_answered(struct world *w, int replica, const struct pod *pod);
void oracle_restarted(struct world *w, int replica);
/* A replica promises the pod a card of `mib` MiB: must fit beside all pods that it must
 * know. */
void oracle_promised(struct world *w, int replica, const struct ledger_pod *pod, int node,
                     int card, int64_t mib);
/* Has the pod only labels, and was it bound without any card? It counts nowhere. */
bool oracle_has_no_card(const struct world *w, struct span uid);
/* MiB of the card that the replica must count for the bound pod; 0: all of it; -1:
 * nothing. */
int64_t oracle_must_count(const struct world *w, const struct oracle_pod *p, int replica,
                          int node, int card);
/* What the bound pods that the replica knows hold of the card. */
struct oracle_sum {
    int64_t mib;
    int core;          /* percent of the compute */
    int whole, shared; /* number of pods */
};
struct oracle_sum oracle_known_sum(const struct world *w, int replica, int node,
                                   int card);
int oracle_index(const char *node); /* -1: unknown name */
/* Like oracle_promised, for a pod that gets cards from NVIDIA's device plugin. */
void oracle_sent(struct world *w, int replica, const char *uid, const char *node);
/* The kubelet allocates the devices of the pod. False: not enough. */
bool oracle_allocate(struct world *w, struct oracle_pod *p);
/* Bits of the cards in the podList of the Scv; and updates it. */
unsigned oracle_pod_list(const struct oracle *o, int node);
void oracle_update_pod_list(struct oracle *o, int node, bool published);
int oracle_node(const struct oracle_pod *p); /* -1: none */
size_t oracle_pending(const struct world *w);
struct oracle_pod *oracle_find(const struct world *w, const char *uid);
