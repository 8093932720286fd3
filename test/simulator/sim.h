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
 * The assumptions about the network and their reasons: docs/architecture.md, "How long a
 * Binding can take effect".
 */

enum {
    REPLICAS = 3,
    NODES = 4,
    YARD_NODES = 6, /* further ones, of the worlds of yard.c alone */
    ALL_NODES = NODES + YARD_NODES,
    CARDS = 8,        /* of a node at most */
    GRACE_MS = 10000, /* of heartbeats */
    TRACE_LINES = 400,
    PREEMPT_AFTER_MS = 2000,
};
extern const char *const node_names[ALL_NODES]; /* "n0", ... */

struct world;
struct replica;
struct oracle_pod;

/* Probabilities per mille. */
struct weather {
    int delay_ms; /* typical, each way */
    int lose_request, lose_reply, duplicate, refuse, slow, not_sent, cut_call;
    int cut_list, cut_watch, lag, slow_list, stall;
    int last_gasp; /* a lease write succeeds late, then none for a while */
};

typedef void (*event_fn)(struct world *w, void *arg);

/* What happened, summed over the seeds. A long run fails unless all of it happened. */
#define STATS(X)                                                                            \
    X(pods)                                                                                 \
    X(deleted)                                                                              \
    X(binds)                                                                                \
    X(joined)                                                                               \
    X(bound)                                                                                \
    X(applied)                                                                              \
    X(lost)                                                                                 \
    X(refused)                                                                              \
    X(duplicates)                                                                           \
    X(crashes)                                                                              \
    X(restarts)                                                                             \
    X(pauses)                                                                               \
    X(takeovers)                                                                            \
    X(relists)                                                                              \
    X(compactions)                                                                          \
    X(wakeups)                                                                              \
    X(quiets)                                                                               \
    X(freezes)                                                                              \
    X(clocks_set)                                                                           \
    X(foreign)                                                                              \
    X(forwarded)                                                                            \
    X(misdirected)                                                                          \
    X(cut_off) X(edits)                 /* of users */                                      \
        X(invalid)                      /* bound pods with an invalid request */            \
        X(given_back)                   /* views with cards of pods that have ended */      \
        X(must_be_stale)                /* stale nodes, by an independent count */          \
        X(stale)                        /* steps with a stale node */                       \
        X(forged) X(tampered) X(denied) /* of tenants: pods, edits, denials */              \
        X(refused_by_plugin)            /* pods */                                          \
        X(listed)                       /* entries of podLists */                           \
        X(evicted)                      /* pods */                                          \
        X(budgets)                      /* evictions refused by a PodDisruptionBudget */    \
        X(restored) X(noticed)        /* restores of etcd; replicas that noticed one */     \
        X(reserved) X(reserved_bound) /* reservations made, and bound */                    \
        X(yielded)                                                                          \
            X(expired) /* ... ended by a higher priority, and by their time limit */        \
        X(gangs) X(gangs_bound) /* created; all members waited at Permit */                 \
        X(gangs_reserved) X(gangs_rejected)                                                 \
            X(gangs_held)  /* ... as members are missing */                                 \
        X(gang_waits)      /* for a PodGroup */                                             \
        X(mig) X(stranded) /* changes of MIG mode; pods whose card was lost by it */        \
        X(links_lost)      /* changes of links for the worse */                             \
        X(isolated)        /* pods bound that only some nodes can isolate */                \
        X(isolations_lost) /* nodes that can no longer isolate so */                        \
        X(asleep)          /* attempts that a rejected pod missed */                        \
        X(gangs_started) /* Bindings with which a gang has as many members as must start */ \
        X(yards)         /* gangs that have run in a yard */                                \
        X(slots) X(percent) /* pods of slots bound; ... of a percentage */                  \
        X(hami)                                                                             \
            X(damaged) /* pods that HAMi has bound; ... whose annotation is damaged */      \
        X(in_words) X(                                                                      \
            in_parts) /* pods bound in HAMi's words; ... with a percentage of a card */     \
        X(unreserved) /* single pods that filter gave a node without a reservation */

struct stats {
#define STAT(name) uint64_t name;
    STATS(STAT)
#undef STAT
};

/* -- delivered.c: the state of nodes as delivered to a replica -- */

/* The links of a node's Scv, by card: an index of oracle_links. The higher, the better; the worse
 * half of a pair counts. */
struct link_table {
    bool known;
    int8_t row[CARDS][CARDS];
};

/* A node. An Scv or a ConfigMap counts from its delivery until the next version, its deletion,
 * or the end of a list that lacks it. */
struct node_copy {
    bool scv, list;             /* it exists */
    uint64_t scv_run, list_run; /* the last list or watch that had it */
    char scv_version[32];
    bool damaged;
    unsigned there, healthy, held, listed; /* bits of cards */
    unsigned in_mig_mode;                  /* ... of which a healthy instance is there */
    int64_t mib[CARDS];
    struct holder { /* a pod that has cards through nvidia.com/gpu */
        char pod[64];
        int devices;
        unsigned cards; /* bits */
    } holders[CARDS];
    int n_holders;
    struct link_table links;
    uint8_t isolation; /* bits of the Scv's list */
    bool lease;
    bool stale; /* must be, by now; until a heartbeat arrives */
    uint64_t lease_run;
    char renewed[40];
    int64_t renewed_ms; /* when that was delivered */
};

/* The heartbeats of all nodes. */
struct heartbeats {
    bool watched, broken;
    int64_t asked_ms;  /* when the list or watch was requested */
    int64_t since_ms;  /* no failure since then */
    int64_t steady_ms; /* no pause of the watch since then */
    int64_t came_ms;   /* last event of the watch; 0: none since it failed */
    int64_t last_ms;   /* last event of a watch, or end of a list */
    bool decides;      /* the last list */
};

struct delivered {
    uint64_t runs[CORE_KINDS]; /* of the current list or watch */
    struct node_copy nodes[ALL_NODES];
    struct heartbeats heartbeats;
};

/* A list or watch is requested: deliveries of the previous one no longer count. */
void delivered_asked(struct delivered *d, const struct core_output *o, int64_t now_ms);
/* Records an input before its delivery. False: not of the current list or watch. */
bool delivered_take(struct delivered *d, const struct core_input *in, int64_t now_ms);
/* After the delivery: marks the nodes that must be stale by now. */
void delivered_check_heartbeats(struct delivered *d, const struct core_input *in);
/* Number of cards in the Scv; 0: also without an Scv. */
int delivered_cards(const struct node_copy *n);
int64_t delivered_mib(const struct node_copy *n, int card); /* -1: no such card */
/* Bits of the available cards: healthy, in no ConfigMap, in no podList but for
 * those `given_back`. */
unsigned delivered_available(const struct node_copy *n, unsigned given_back);
/* resourceVersion of the Scv; NULL: none. */
const char *delivered_scv(const struct node_copy *n);

/* -- replica.c: an extender process -- */

/* The list or watch of one kind. */
struct line {
    struct apisync feed;
    bool fed;
    uint64_t conn; /* counts connections: messages of an old one are dropped */
    struct api_watch *watch;
    struct buf waiting; /* undelivered bytes of the watch */
    int64_t last_ms;    /* bytes of a connection keep their order */
    bool pumping;
};

/* A reservation, as witness.c has seen it. */
struct reserved {
    char uid[64];
    char name[64]; /* as the log has it */
    int64_t priority;
    int node, n;
    int card[CARDS];
    int64_t mib[CARDS]; /* of each card; 0: all of it */
    int64_t made_ms;    /* by the replica's clock */
    bool in_gang;
};

struct replica {
    struct world *world;
    int id;
    bool alive;
    uint64_t epoch; /* counts starts: messages for an earlier start are dropped */
    struct delivered delivered;
    int64_t paused_until, watches_stall_until, lease_trouble_until;
    int64_t cut_until; /* no connection between its machine and the API server */
    int64_t behind_ms; /* its monotonic clock stopped for so long */
    int64_t wall_off_ms;
    int64_t last_gasp_ms; /* the next write of the lease gets through, and then for so
                             long none; its answer comes late */
    bool stopping;
    int64_t next_tick;
    struct core *core;
    struct tried *tried; /* what filter has answered */
    struct line lines[CORE_KINDS];
    bool was_leader;
    unsigned before; /* bits of the kinds not listed since a restore of etcd */
    bool may_notice; /* ... which it has not noticed yet */
    bool evicts;     /* an eviction without an answer */
    struct preemption *preemptions;
    struct reserved *reserved; /* before the current step */
    size_t n_reserved;
};

void replica_free(struct replica *r);
void replica_boot(struct world *w, struct replica *r);
/* Do the replicas have leases of different durations? */
bool replicas_differ(const struct world *w);
void replica_crash(struct world *w, struct replica *r);
void replica_pause(struct world *w, struct replica *r, int64_t ms);
/* Like pause, but the monotonic clock stops too: the host froze the virtual machine. The
 * wall clock is right when it continues. */
void replica_freeze(struct world *w, struct replica *r, int64_t ms);
/* A clean stop, then a new start. */
void replica_restart(struct world *w, struct replica *r);
/* For at least `ms`: no connection between its machine and the API server; the other
 * replicas and kube-scheduler reach it. */
void replica_cut_off(struct world *w, struct replica *r, int64_t ms);
bool replica_up(const struct world *w, const struct replica *r); /* running, not paused */
/* Are all its watches open and up to date? */
bool replica_watches_all(const struct world *w, const struct replica *r);
void replica_input(struct world *w, struct replica *r, const struct core_input *in);
struct step_time replica_time(const struct world *w, const struct replica *r);
void replica_cut_watches(struct world *w, struct replica *r);
/* The API objects have changed: watches have events to deliver. */
void replica_api_changed(struct world *w, struct replica *r);
const struct ledger_node *replica_node(const struct replica *r, int node);
const struct ledger_pod *replica_pod(const struct replica *r, const char *uid);
/* etcd was restored: all its connections break. */
void replica_restored(struct world *w, struct replica *r);
/* May it bind and reserve now? */
bool replica_leads(const struct world *w, const struct replica *r);

/* -- the world (world.c) -- */

struct world {
    uint64_t seed, last_step;
    struct rng rng, plain_rng;
    int64_t now_ms; /* monotonic; wall time is base + now */
    uint64_t steps, seq;
    struct event *heap;
    size_t n_events, events_cap;
    struct api *api;
    struct weather weather;
    struct replica replicas[REPLICAS];
    int n_replicas;
    int first_node, end_node;
    uint64_t *ended; /* of oracle_has_ended; in a growing array */
    size_t n_ended, ended_cap;
    struct yard *yard; /* or NULL */
    bool outsiders;    /* outsiders bind pods */
    bool decides;      /* filter decides and reserves */
    bool gangs;        /* some pods are members of gangs */
    bool samples; /* kube-scheduler offers two of the nodes, and rejected pods sleep */
    int offered_from; /* ... the first of them */
    int64_t woken_ms; /* ... until an event of a pod, or a wakeup */
    char gang[48];    /* name of the last one */
    bool tenants;     /* a hostile tenant is at work */
    bool policy;      /* the admission policy is on */
    bool preempts;    /* layout preemption is on */

    bool backups;          /* etcd is restored sometimes */
    uint64_t restores;     /* ... so far */
    int64_t down_until;    /* nobody reaches the API server */
    struct backup *backup; /* or NULL */

    struct ask *asks; /* of kube-scheduler, without an answer */
    uint64_t last_token;
    int64_t last_news_ms;         /* of the last bind or attempt */
    struct waiting *permit;       /* members of gangs that wait */
    struct core_output *reserved; /* the last answer to CORE_RESERVE, until it is taken */
    enum core_reserve_outcome reserve; /* ... and its outcome */
    struct core_driver *filter;        /* the innermost call of filter; NULL: none */
    char refusal[512];                 /* what the last one said of the first node */
    struct queued *queued;             /* by queue.c */
    size_t bindings;                   /* that the step sends */
    struct held *held;                 /* by barrier.c */
    bool was_pending;                  /* the pod of the input, before the step */
    struct gang_text *gang_texts;      /* by barrier.c */
    int64_t apart_until[REPLICAS][REPLICAS]; /* no forwarding between the two */

    int64_t silent_until[ALL_NODES]; /* no podList from its scv-agent */
    struct kubelet_list *lists;      /* podLists of all versions of Scvs */
    size_t n_lists, lists_cap;
    int64_t hangs_until;      /* scv-agent of n1 is suspended */
    int64_t agents_cut_until; /* scv-agents do not reach the API server */

    struct api_watch *pod_watch; /* of the oracle */
    struct oracle_pod *pods;
    unsigned listed[ALL_NODES]; /* held by the podList of the Scv written last */
    bool unhealthy[ALL_NODES][CARDS], shrunk[ALL_NODES][CARDS];
    struct link_table links[ALL_NODES];
    uint8_t isolation[ALL_NODES]; /* what each Scv lists, by bits; 0: no list */
    bool in_words; /* pods ask in HAMi's words; without outsiders and preemption */
    bool left;     /* HAMI_NODE does not have the dialect now */
    /* Of the one card that has MIG mode: its Scv has the card; the card and its instances, by a
     * careless agent; the instances; and the card, with the instances as Unhealthy. */
    enum { MIG_OFF, MIG_CARELESS, MIG_ON, MIG_ENDS, MIG_STATES } mig;
    const char *binding; /* UID of the pod whose Binding is being applied */
    struct kept *kept;   /* cards that the replica keeps, before its step */
    size_t n_kept, kept_cap;

    bool quiet;
    int64_t quiet_since_ms;
    struct stats stats;
    char *trace[TRACE_LINES];
    size_t traced;
    bool verbose;
    bool failed;
};

/* The nodes of this world. */
#define EACH_NODE(w, i) for (int i = (w)->first_node; i < (w)->end_node; i++)
#define EACH_REPLICA(w, r)                                                               \
    for (struct replica *r = (w)->replicas; r < (w)->replicas + (w)->n_replicas; r++)
#define EACH_POD(w, p) for (struct oracle_pod *p = (w)->pods; p; p = p->next)

#define WALL_BASE_MS 1700000000000
int64_t wall_ms(const struct world *w);
void world_set_api(struct world *w, struct api *api);
bool chance(struct world *w, int per_mille); /* false at rest */
int any(struct world *w, uint64_t n);        /* of 0 .. n-1 */
#define ONE_OF(w, array) ((array)[any((w), ARRAY_LEN(array))])
int64_t between(struct world *w, int64_t lo, int64_t hi); /* inclusive */
/* Executes the events until that time. False: the run is over. */
bool world_run(struct world *w, int64_t until_ms);
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

/* -- scheduler.c: a model of kube-scheduler, with Permit plugins for gangs -- */

void scheduler_start(struct world *w);
void scheduler_free(struct world *w);
/* A replica replies to a bind, or to CORE_RESERVE. */
void scheduler_reply(struct world *w, const struct core_output *o);
bool scheduler_idle(const struct world *w);
/* The pod of a bind without an answer; NULL: it was answered. */
const char *scheduler_uid(const struct world *w, uint64_t token);
/* Is a bind of the pod without an answer? */
bool scheduler_binds(const struct world *w, const char *uid);
/* Calls bind of a replica. Returns the token; queue_answered follows in a yard. */
uint64_t scheduler_send_bind(struct world *w, const struct oracle_pod *p, int node,
                             int64_t from_ms);
/* The connection of that bind has broken. */
void scheduler_lost(struct world *w, uint64_t token);
/* Is this the name of a member of a gang? */
bool gangs_has(const char *name);
enum { GANG_WAIT_MS = 5000 };
/* By the name of a gang or a member: how many members its object asks for; 0: there is none. */
uint32_t gangs_minimum(const struct world *w, const char *name);
bool gangs_same(const char *a, const char *b);
/* The pod that has waited shortest at Permit; NULL: none. */
struct oracle_pod *permit_first(struct world *w);
/* kube-scheduler restarts soon: members that wait then are tried again. */
void permit_restart(struct world *w);
/* After a step of a replica: a gang has reservations for all its members, or for none; if it has
 * a minimum, for so many, also while members can still be created. */
void gangs_check(struct world *w, const struct replica *r, const struct core_input *in,
                 const struct core_output *o);
/* At rest: may the pod be pending although it fits, because of another member? */
bool gangs_may_wait(const struct world *w, const struct oracle_pod *p);

/* The number of the replica with that address; REPLICAS: none. */
int replica_at(struct span address);

/* -- filter.c: the verb, for worlds where filter decides -- */

/* Calls filter of the replica. Returns the node; -1: none fits; -2: no answer. Time may pass.
 * `reservable`: the pod requests memory or cards of ours. */
int filter_call(struct world *w, struct replica *asked, const char *uid, struct span pod,
                bool reservable);
/* The same for these nodes alone. */
int filter_call_on(struct world *w, struct replica *asked, const char *uid,
                   struct span pod, bool reservable, const int *nodes, size_t n);
/* Is the core that of a running call? The call then frees it. */
bool filter_keeps(const struct world *w, const struct core *core);

/* -- users.c: users, scv-agents and failures -- */

void users_start(struct world *w);
/* scv-agent writes the Scv of the node. */
void put_scv(struct world *w, int node, bool create);
/* A member of `labels` or `annotations` that makes most requests invalid; *in_labels says
 * of which. */
const char *flaw_pick(struct world *w, bool *in_labels);
/* A user edits the labels or annotations of this pod, within half a second. */
void flaws_edit_soon(struct world *w, const char *uid);
/* The heartbeats of nodes, and their checks: after each step of a replica, and at rest. */
void agents_start(struct world *w);
void agents_check(struct world *w, const struct replica *r);

/* Neither replicas nor agents reach the API server. */
void cut_off_all(struct world *w, int64_t ms, int64_t agents_ms);
/* etcd was restored: the agents write what nodes have. */
void agents_restored(struct world *w);

/* -- restore.c: etcd is restored from a backup -- */

/* Plans one. Returns how long it takes at most. */
int64_t restores_start(struct world *w);
void restores_free(struct world *w);

/* -- tenants.c: a hostile tenant, and the admission policy -- */

/* The annotations of a promise. ALIYUN_COM_GPU_MEM_ASSIGNED changes its value. */
enum {
    KEY_IDX,
    KEY_ALLOCATION,
    KEY_UUID,
    KEY_MEMORY,
    KEY_DEV,
    KEY_POD,
    KEY_ASSIGNED,
    KEY_TIME,
    PROMISE_KEYS
};
extern const char *const promise_keys[PROMISE_KEYS];
void tenants_act(struct world *w);
/* Requests of a namespace's user, through the admission policy. The status; 403: denied. */
unsigned policy_create(struct world *w, const char *body);
unsigned policy_patch(struct world *w, const char *name, const char *body);

/* -- outsiders.c: programs that bind pods without the extender, and pods without GPU -- */

/* Annotations, copied from the manifest of a previous pod: they are no promise. */
extern const char old_promise[];
void outsiders_act(struct world *w);
/* A program binds the pod, with these annotations or NULL. */
void outsiders_bind(struct world *w, const char *name, int node, const char *annotations);
bool plain_is(json_t *pod); /* a pod without GPU, in kube-system */
/* Compares the sums of each node. */
void plain_settled(struct world *w);

/* -- kubelet.c: what containers hold, and the podLists that show it -- */

void kubelet_free(struct world *w);
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

/* -- oracle.c: the independent judge of the API objects -- */

/* A request. No padding, so that two are equal if their bytes are. */
struct oracle_ask {
    int64_t units; /* per card; whole cards: 0; slots: MiB */
    int64_t mib;   /* per card, exactly */
    int64_t least; /* minimum MiB of each whole card */
    int32_t cards; /* nvidia.com/gpu: 0 */
    int32_t clock; /* minimum */
    /* Of slots: on each card, and percent of the card, until it is bound; 0: in MiB. */
    int32_t slots, percent;
    bool whole;
    bool invalid;      /* only other programs may bind it; it counts for its raw limits */
    bool nothing;      /* it requests nothing */
    uint8_t min_link;  /* of each pair, as link_table has it; 0: any */
    uint8_t isolation; /* bits, one of which the node needs; 0: none */
    bool in_words;     /* HAMi's: for HAMI_NODE */
    uint8_t parts[3];  /* ... percent of a card, of its containers, beside mib */
    char models[55];   /* comma-separated; "": any */
};

/* What kube-scheduler's own filters require, and who schedules the pod. */
enum { SCHEDULERS = 2 };
struct pod_terms {
    bool gated;
    uint8_t scheduler; /* SCHEDULERS: of nobody here */
    uint8_t once;      /* bits: at most one pod with this bit per node */
    int8_t pool;       /* of nodes; -1: any */
};
enum { ONCE_PORT = 1, ONCE_PORT_2 = 2, ONCE_ANTI = 4, ONCE_HCA = 8 };

/* A pod, by the oracle's own reading. */
struct oracle_pod {
    char *uid, *name, *node;
    /* Until the pod is bound, older versions are kept, because a replica may bind by one of
     * them; a promise of the extender never changes. */
    struct oracle_ask ask, *older; /* the newest is the last */
    size_t n_older, older_cap;
    int devices;   /* of nvidia.com/gpu */
    unsigned held; /* bits of the cards that the kubelet allocated for those */
    int card[CARDS];
    int n_cards;   /* promised */
    int narrowest; /* of the best set that a replica, by its view, ever chose for it */
    /* What the nodes could enforce, by its view, for which a replica ever chose cards. */
    uint8_t enforced;
    bool foreign;   /* bound by another program: on any number of cards, or none */
    char *promise;  /* the annotations with which it was bound */
    bool tampered;  /* they have changed since */
    bool odd;       /* they do not name their cards clearly */
    bool recorded;  /* its annotations had the record of a bind for it once */
    bool strange;   /* they named a UUID once that the node lacks */
    bool started;   /* its containers run */
    unsigned given; /* bits of the cards that they hold */
    int64_t given_mib[CARDS]; /* 0: the whole card */
    bool shown;               /* the last podList had its nvidia.com/gpu */
    bool over, deleting;
    struct pod_terms terms;
    int64_t rejected_ms; /* when filter last rejected it; 0: never */
    int64_t priority;
    bool never_preempts, daemon;
    /* The raw limits, by the oracle's own arithmetic; they never change. */
    int64_t raw_mem, raw_cards, raw_core, raw_slots;
    int64_t raw_hami; /* in HAMi's words: MiB on each of its cards, at least 1 */
    bool labeled;     /* no limits: requests by labels, now or before */
    bool edited;      /* its labels or annotations have changed since it was created */
    char resource_version[32];
    int version; /* of its request: rises with every change */
    /* What each replica knows. */
    struct oracle_view {
        bool known;    /* that it is bound, */
        bool sure;     /* its promise as it was bound, */
        bool doubted;  /* another promise, from a GET, */
        bool carded;   /* and a card, true or not */
        unsigned kept; /* cards of the last podList that it got */
        int delivered; /* the version of the request that it got last */
    } of[REPLICAS];
    struct oracle_pod *next;
};

void oracle_start(struct world *w);
void oracle_free(struct world *w);
/* All pods as they are now; new. */
struct oracle_pod *oracle_copy_pods(const struct world *w);
void oracle_free_pods(struct oracle_pod *pods);
/* These are the pods of the API now; takes them. Ends the watch. */
void oracle_restored(struct world *w, struct oracle_pod *pods);
int oracle_index(const char *node); /* -1: unknown name, or NULL */
int oracle_cards(int node);         /* how many cards the node has */
/* The last card of this node has MIG mode; the numbers behind it are its instances, which have
 * ids of their own. */
enum { MIG_NODE = 1, MIG_CARD = 1 };
/* The node whose Scv has the dialect of HAMi, in worlds that have one. */
enum { HAMI_NODE = 2 };
bool oracle_is_instance(int node, int card);
int oracle_id(int node, int card);
int oracle_card(int node, int64_t id); /* from CARDS on: the node has no such id */
const char *oracle_uuid(int node, int card, char uuid[static 32]);
/* Is it a card now: no instance that is gone, no card in MIG mode? And healthy? */
bool oracle_exists(const struct world *w, int node, int card);
bool oracle_available(const struct world *w, int node, int card);
const char *oracle_model(int node, int card);
const char *oracle_profile(int node, int card); /* "": a full card */
int oracle_clock(int node, int card);
/* Of the node when no link is lost. */
void oracle_all_links(int node, struct link_table *t);
/* The words by bit, and what a node with that list can enforce, as far as filter is concerned. */
extern const char *const oracle_enforcers[3];
uint8_t oracle_enforces(uint8_t listed);
enum { ORACLE_NV = 5 }; /* from here on: NVLinks */
extern const char *const oracle_links[ORACLE_NV + 3];
/* The narrowest pair of the cards; of up to three cards, that is their best ring. -1: unknown. */
int oracle_narrowest(const struct link_table *t, unsigned bits);
/* Are there so many among the cards of which each pair is connected by that or better? */
bool oracle_connects(const struct link_table *t, unsigned bits, int n, int least);
/* Size in its Scv: less than the true size while it is shrunk. */
int64_t oracle_card_mib(const struct world *w, int node, int card);
/* Processes all pod changes since the last call. */
void oracle_update(struct world *w);
struct oracle_pod *oracle_find(const struct world *w, const char *uid);
/* One at random; NULL: none. */
struct oracle_pod *oracle_pick(struct world *w, bool bound);
bool oracle_pending(const struct oracle_pod *p);
/* Does the pod request memory or cards of ours by its limits? */
bool oracle_limited(const struct oracle_pod *p);
/* Is its request unknown: its labels changed after another program bound it? */
bool oracle_is_vague(const struct oracle_pod *p);
/* Does the card have the model, clock and size that the pod requests? */
bool oracle_card_matches(const struct oracle_pod *p, int node, int card);
/* MiB that a replica has to find for the request on a card of that size. */
int64_t oracle_ask_mib(const struct oracle_ask *ask, int64_t size);
int64_t oracle_part(const struct request *r, int64_t size);
/* MiB that the pod holds on each of its cards. */
int64_t oracle_pod_mib(const struct oracle_pod *p);
/* MiB that the pod holds of the card; 0: all of it; -1: nothing. */
int64_t oracle_holds(const struct oracle_pod *p, int node, int card);
/* Was a pod of that name on the node once Succeeded or Failed? */
bool oracle_has_ended(const struct world *w, int node, const char *name);
/* What pods hold of a card. */
struct oracle_sum {
    int64_t mib;
    int core;          /* percent of the compute */
    int whole, shared; /* number of pods */
};
void oracle_add(struct oracle_sum *sum, const struct oracle_pod *p, int64_t mib);
/* Of all bound pods; outsiders can overcommit it. */
struct oracle_sum oracle_sum(const struct world *w, int node, int card);
/* Does the pod fit on the card, beside all bound pods? */
bool oracle_fits(const struct world *w, const struct oracle_pod *p, int node, int card);
/* A replica promises the pod a card of `mib` MiB: must fit beside all pods that it must
 * know. */
void oracle_promised(struct world *w, const struct replica *r,
                     const struct ledger_pod *pod, int node, int card, int64_t mib);
/* Like oracle_promised, for a pod that gets cards from NVIDIA's device plugin. */
void oracle_sent(struct world *w, const struct replica *r, const char *uid,
                 const char *node);
/* Cards that match and are free, less those that the kubelet has not allocated yet. By what
 * was delivered to the replica; NULL: by the API objects. */
int oracle_devices_left(const struct world *w, const struct oracle_pod *asking, int node,
                        const struct replica *r);
/* The kubelet allocates the devices of the pod. False: not enough. */
bool oracle_allocate(struct world *w, struct oracle_pod *p);
/* The Scv of the node is written, with a podList or without. */
void oracle_update_pod_list(struct world *w, int node, bool published);
/* The annotation of a promise. NULL: none. */
const char *oracle_note(json_t *pod, int key);
/* The cards and amounts that annotations name. */
struct oracle_notes {
    int n, card[CARDS];   /* in the order of the indexes */
    bool exact;           /* the indexes are cards of the node, each once */
    bool allocated;       /* there is an allocation */
    bool valid;           /* ... or none: of whole numbers */
    unsigned bits;        /* of the cards in it */
    int64_t units[CARDS]; /* of each card in it */
};
struct oracle_notes oracle_notes(json_t *pod, int node);

/* -- oracle_replica.c: the judge of what replicas know -- */

/* A pod was bound, or its annotations may have changed since. */
void truth_bound(struct oracle_pod *p, json_t *pod);
void truth_changed(struct world *w, struct oracle_pod *p, json_t *pod);
/* A pod was delivered to a replica; a restarted replica has got nothing yet. */
void oracle_delivered(struct world *w, const struct replica *r, const struct pod *pod);
void oracle_restarted(struct world *w, const struct replica *r);
/* The replica got Scvs, or a list without some. */
void oracle_scvs_delivered(struct world *w, const struct replica *r);
/* A GET shows the pod to the replica, maybe before its watch does. */
void oracle_answered(struct world *w, const struct replica *r, const struct pod *pod);
/* The API server answers a Binding of the replica with success. */
void oracle_bind_answered(struct world *w, const struct replica *r, const char *uid);
/* A bind of the replica has failed; NULL: of a pod that is not known any more. */
void oracle_bind_failed(struct world *w, const struct replica *r, const char *uid);
/* MiB of the card that the replica must count for the bound pod; 0: all of it; -1:
 * nothing. */
int64_t oracle_must_count(const struct world *w, const struct oracle_pod *p,
                          const struct replica *r, int node, int card);
/* What the bound pods that the replica knows hold of the card. */
struct oracle_sum oracle_known_sum(const struct world *w, const struct replica *r,
                                   int node, int card);
/* Has the pod only labels, and was it bound without any card? It counts nowhere. */
bool oracle_has_no_card(const struct world *w, const char *uid);
/* At rest: every ledger must match the API objects, and every pod that fits must be bound. */
void oracle_settled(struct world *w);

/* -- witness.c: checks a replica at each step -- */

/* A Binding that it sends. */
void witness_bind(struct world *w, const struct replica *r, const struct core_output *o);
/* Does its ledger match the latest deliveries? */
void witness_check(struct world *w, const struct replica *r);
/* Its reservations; r->reserved becomes those after the step. */
void witness_reserve(struct world *w, struct replica *r, const struct core_input *in,
                     const struct step_outputs *out);

/* -- queue.c: kube-scheduler's queue and its own filters, in yards -- */

struct pod_terms terms_read(json_t *pod);
void queue_start(struct world *w);
void queue_free(struct world *w);
/* A bind was answered, or its time has passed. */
void queue_answered(struct world *w, uint64_t token, bool bound);
/* A replica has changed the node's annotation gpushare/room-since. */
void queue_woken(struct world *w);
/* A pod has left its node, or a node has changed. */
void queue_freed(struct world *w);
/* kube-scheduler restarts: it remembers no pod. */
void queue_restart(struct world *w);

/* -- yard.c: worlds of gangs whose members have required terms -- */

struct yard_node {
    bool gone, cordoned, refuses; /* the API server refuses Bindings to it */
    int cards, pool;
};
struct yard_gang {
    int size, minimum;
    bool hopeless;      /* it can never start */
    int64_t run_ms;     /* so long its members run */
    int64_t started_ms; /* when so many were bound as must start; 0: never */
    int64_t part_ms;    /* since when fewer are bound; 0: they are not */
    bool excused;       /* members ended or were refused meanwhile */
};
enum { YARD_GANGS = 8 };
struct yard {
    struct yard_node nodes[ALL_NODES];
    struct yard_gang gangs[YARD_GANGS + 1]; /* from 1 on */
    bool second;                            /* there is a second kube-scheduler */
    bool pops;    /* a pod that was woken need not wait for the end of its back-off */
    bool samples; /* half of the nodes are offered */
    bool stopped; /* kube-scheduler does nothing */
    int next;     /* the node from which on they are offered */
};
/* Runs the yard of this seed: a directed scenario or a random one. */
void yard_run(struct world *w);
/* The name of the scenario of the seed; NULL: a random one. */
const char *yard_name(uint64_t seed);
uint64_t yard_seed(const char *name); /* 0: there is none */
struct yard_gang *yard_gang(const struct world *w, const char *name); /* or NULL */

/* -- barrier.c: checks of the barrier of gangs -- */

/* Before and after each step of a replica. */
void barrier_before(struct world *w, const struct replica *r,
                    const struct core_input *in);
void barrier_after(struct world *w, const struct replica *r, const struct core_input *in,
                   const struct step_outputs *out);
/* The replica has crashed: nobody waits for it. */
void barrier_crashed(struct world *w, const struct replica *r);
void barrier_free(struct world *w);
/* Has the replica a bind of the pod without an answer, and no promise? */
bool barrier_holds(const struct world *w, const struct replica *r, const char *uid);
/* The members of the gang, as the replica's ledger has them. */
struct gang_count {
    uint32_t total, bound; /* live members; with a node */
    uint32_t gated,
        foreign; /* of the others: no scheduler tries them; or another than of `uid` */
    uint32_t needed; /* so many must have a place; 0: unknown, all */
};
struct gang_count gang_count(const struct world *w, const struct replica *r,
                             const char *name, const char *uid);

/* -- evictions.c: checks layout preemption -- */

/* kube-scheduler found no node for the pod: the leaders learn the candidate nodes. */
void evictions_rejected(struct world *w, struct replica *r, const struct pod *pod);
/* Before each step of a replica; before it sends a nomination or an eviction; and when that
 * is answered. */
void evictions_before(struct world *w, const struct replica *r);
void evictions_sent(struct world *w, struct replica *r, const struct core_output *o);
void evictions_answered(struct world *w, struct replica *r, const struct core_output *o,
                        const struct core_input *answer);
/* A replica has crashed: its memory of evictions is lost. */
void evictions_forget(struct replica *r);
/* The replica promised the pod a card: it must not have been kept for another pod. */
void evictions_check_kept(struct world *w, int node, const struct ledger_pod *pod,
                          const struct card *card);
/* MiB of the card that were kept for other pods of at least this priority. */
int64_t evictions_kept_mib(const struct world *w, int node, const char *uid,
                           int64_t priority, const struct card *card);
/* Were cards of the node kept before the step, or are pods nominated to it now? */
bool evictions_nominated(const struct world *w, const struct ledger_node *node);
/* Does no replica keep cards for a pending pod? */
bool evictions_idle(struct world *w);
