/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "apisync/api_call.h"
#include "apisync/apisync.h"
#include "base/mem.h"
#include "base/rng.h"
#include "core/core.h"
#include "kube-sim/api.h"

/*
 * The whole system in one thread, repeatable from a seed: several cores with the code
 * that reads and writes their bytes, the API server of tools/kube-sim, a model of
 * kube-scheduler, people who create and delete pods, and a network that delays, reorders,
 * duplicates and loses.
 *
 * Everything that happens is an event with a time; the world takes the earliest one. An
 * oracle that shares no code with the ledger looks at the API objects after every change.
 *
 * What is assumed of the network, and why it may be: docs/architecture.md, "What a
 * Binding can take".
 */

enum {
    REPLICAS = 3,
    NODES = 4,
    GRACE_MS = 10000, /* of heartbeats */
    TRACE_LINES = 400,
};

struct world;
struct replica;
struct oracle_pod;

/* Chances are in 1/1000. */
struct weather {
    int lose_request, lose_reply, duplicate, refuse, slow, not_sent, cut_call;
    int cut_list, cut_watch, lag, slow_list, stall;
    int last_gasp; /* a write of the lease is the last for a while, with a late answer */
    int delay_ms;  /* usual, each way */
};

typedef void (*event_fn)(struct world *w, void *arg);

struct stats {
    uint64_t must_be_silent; /* nodes, by our own count */
    uint64_t edits, invalid; /* of users; pods with an invalid request that are bound */
    uint64_t binds, bound, lost, refused, duplicates, crashes, pauses, takeovers, relists,
        compactions, quiets, pods, deleted, joined, marks, applied, restarts, freezes,
        clocks_set, foreign, silent, handed_on, misdirected, cut_off;
};

struct world {
    uint64_t seed;
    struct rng rng;
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
    bool outsiders;                          /* there are some */
    int64_t hangs_until;                     /* the scv-agent of n1 does */
    int64_t agents_cut_until;                /* no scv-agent reaches the API server */
    int64_t apart_until[REPLICAS][REPLICAS]; /* binds do not get from one to the other */
    bool quiet;
    const char *binding; /* UID of the pod whose Binding of ours is being carried out */
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
/* Calls fn(w, arg) at that time; fn takes arg over. When it never comes to it, drop(arg).
 */
void at(struct world *w, int64_t when_ms, event_fn fn, void *arg, void (*drop)(void *));
void trace(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Something that must always hold does not: says what, with seed and step. */
void violated(struct world *w, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* A request by somebody other than the replicas; no network in between. Returns the
 * status; *body (may be NULL) is a new value or NULL. */
unsigned api_call(struct world *w, const char *method, const char *path, const char *type,
                  const char *body, json_t **reply);
/* Runs one seed. Returns whether everything held. */
bool world_run(uint64_t seed, uint64_t steps, int replicas, bool verbose,
               struct stats *stats);

/* replica.c */
struct replica *replica_new(struct world *w, int id);
void replica_free(struct replica *r);
void replica_boot(struct world *w, struct replica *r);
void replica_crash(struct world *w, struct replica *r);
void replica_pause(struct world *w, struct replica *r, int64_t ms);
/* The same, and its clock for intervals does not notice: a virtual machine that its host
 * froze. The wall clock is right again when it goes on. */
void replica_freeze(struct world *w, struct replica *r, int64_t ms);
/* Somebody sets its wall clock. */
void replica_set_clock(struct world *w, struct replica *r);
/* A clean stop, then a new life. */
void replica_restart(struct world *w, struct replica *r);
/* For so long its watches deliver nothing, or its lease calls do not come through. */
void replica_stall_watches(struct world *w, struct replica *r, int64_t ms);
void replica_trouble_lease(struct world *w, struct replica *r, int64_t ms);
/* For so long at least nothing gets from its machine to the API server, nor back; the
 * other replicas and kube-scheduler do reach it. */
void replica_cut_off(struct world *w, struct replica *r, int64_t ms);
bool replica_up(const struct world *w,
                const struct replica *r); /* not dead, not paused */
/* Are all its watches open and up to date? */
bool replica_watches_all(const struct world *w, const struct replica *r);
int replica_id(const struct replica *r);
/* Its number if that is the address of a replica; -1. */
int replica_at(struct span address);
bool replica_alive(const struct replica *r);
const struct core *replica_core(const struct replica *r);
const struct delivered *replica_delivered(const struct replica *r);
void replica_input(struct world *w, struct replica *r, const struct core_input *in);
struct core_time replica_time(const struct world *w, const struct replica *r);
void replica_cut_watches(struct world *w, struct replica *r);
/* The API server has changed: watches have something to deliver. */
void replica_api_changed(struct world *w, struct replica *r);

/* scheduler.c: a model of kube-scheduler, and the people who use it */
struct scheduler *scheduler_new(void);
void scheduler_free(struct scheduler *s);
void scheduler_start(struct world *w);
/* A replica answers a bind. */
void scheduler_reply(struct world *w, uint64_t token, enum err_code code,
                     const char *text);
bool scheduler_idle(const struct world *w);
void scheduler_forget_backoff(struct world *w);

/* users.c: those who create and delete, and what breaks */
void users_start(struct world *w);

/* flaws.c: what is wrong with specs, labels and annotations */
/* A member of `labels` or `annotations` that makes most requests invalid; *in_labels says
 * of which. */
const char *flaw_pick(struct world *w, bool *in_labels);
/* A user edits the labels or annotations of a pod, pending or bound. */
void flaws_edit(struct world *w);

/* agents.c: heartbeats of nodes */
void agents_start(struct world *w);
/* After each step of a replica; and at rest. */
void agents_look(struct world *w, const struct replica *r);
void agents_settled(struct world *w, const struct replica *r);

/* outsiders.c: those who bind pods without asking the extender */
void outsiders_act(struct world *w);

/* delivered.c: what the API server has told a replica of nodes */
struct delivered *delivered_new(void);
void delivered_free(struct delivered *h);
void delivered_forget(struct delivered *h); /* a new life */
/* A list or watch is asked for: what comes of the one before is not taken any more. */
void delivered_asked(struct delivered *h, const struct core_output *o, int64_t now_ms);
/* Takes down what is about to be delivered. False: nothing of the list or watch that was
 * asked for last. */
bool delivered_take(struct delivered *h, const struct core_input *in, int64_t now_ms);
/* After the core has taken it: which nodes have to be silent by now? Those that were stay
 * it until a heartbeat comes. */
void delivered_judge(struct delivered *h, const struct core_input *in);
bool delivered_silent(const struct delivered *h, int node);
/* How many cards its Scv lists; 0: also when there is none. */
int delivered_cards(const struct delivered *h, int node);
int64_t delivered_mib(const struct delivered *h, int node,
                      int card); /* -1: no such card */
/* The cards, as bits, that are healthy, on no operator's list, and in no podList. */
unsigned delivered_in(const struct delivered *h, int node);
/* How many cards the podList gives to the pod. */
int delivered_devices(const struct delivered *h, int node, struct span pod);

/* witness.c: a replica has put out this Binding */
void witness_bind(struct world *w, const struct replica *r, const struct core_output *o);
/* After each step: is its ledger what it was told last? */
void witness_look(struct world *w, const struct replica *r);

/* ask.c: what a pod asks for */
/* What a pod asked for, before its labels or annotations were edited. */
struct oracle_ask {
    int64_t units, mib, least;
    int cards, clock;
    char *models;
    bool whole, invalid, nothing;
    struct oracle_ask *next;
};

const char *ask_text(json_t *object, const char *a, const char *b); /* object.a.b */
/* Reads what the pod asks for now. What it asked for before is kept as long as it is not
 * bound, because a replica may bind it by that; what we promised to it stays. */
void ask_update(struct oracle_pod *p, bool known, json_t *meta, json_t *spec);
/* Makes an older version what the pod asks for. */
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
/* What its Scv says it has now: less than its true size while it is shrunk. */
int64_t oracle_card_mib(const struct oracle *o, int node, int card);
void oracle_shrink(struct oracle *o, int node, int card, bool shrunk);
bool oracle_is_shrunk(const struct oracle *o, int node, int card);
void oracle_set_health(struct oracle *o, int node, int card, bool healthy);
bool oracle_health(const struct oracle *o, int node, int card);
/* Looks at all pod changes since the last time. */
void oracle_look(struct world *w);
/* After quiet: every replica's ledger is what the objects say, and what fits is bound. */
void oracle_settled(struct world *w);
/* A pod that waits, at random; NULL: none. The strings are the oracle's. */
struct oracle_pod {
    char *uid, *name, *node;
    int64_t units; /* per card; whole cards: 0 */
    int64_t mib;   /* the same, exactly */
    int cards;     /* nvidia.com/gpu: 0 */
    int devices;   /* of nvidia.com/gpu */
    unsigned held; /* bits of the cards that the kubelet gave it through that */
    char *models;  /* any of these; NULL: any at all */
    int clock;     /* at least */
    int64_t least; /* MiB that each whole card has to have at least */
    int card[8];
    int n_cards;   /* promised */
    bool foreign;  /* bound by somebody else: on cards of any number, or on none */
    unsigned told; /* bits of the replicas that have heard that it is bound */
    bool whole, over, deleting;
    /* The raw limits, by the judge's own arithmetic; they never change. */
    int64_t raw_mem, raw_cards;
    bool invalid; /* only others may bind it now; what it asks for is its raw limits */
    bool labeled; /* no limits: labels ask, or asked */
    bool nothing; /* it asks for nothing */
    bool edited;  /* its labels or annotations have changed since it was created */
    struct oracle_ask *asks; /* what it asked for before, newest first */
    struct oracle_pod *next;
};
/* Does the pod ask for memory or cards of ours, by its limits? */
static inline bool oracle_limited(const struct oracle_pod *p)
{
    return p->raw_mem || p->raw_cards;
}
struct oracle_pod *oracle_pick(struct world *w, bool bound);
struct oracle_pod *oracle_first(const struct world *w);
/* What the pod holds of the card in MiB, 0 for a whole one; -1: nothing. */
int64_t oracle_holds(const struct oracle_pod *p, int node, int card);
/* What pods that are bound leave of a card, in MiB: below 0 when outsiders took too much.
 * *untouched (may be NULL): nobody is on it. */
int64_t oracle_free_mib(const struct oracle *o, int node, int card, bool *untouched);
/* News of a pod reached a replica; a new life of a replica has heard nothing. */
void oracle_told(struct world *w, int replica, const struct pod *pod);
void oracle_untold(struct world *w, int replica);
/* A replica promises the pod a card of so many MiB: with all that it had to know of, does
 * it fit? */
void oracle_promised(struct world *w, int replica, const struct ledger_pod *pod, int node,
                     int card, int64_t mib);
/* What pods of which the replica has heard that they are bound hold of the card. */
struct oracle_sum {
    int64_t mib;
    int whole, shared; /* how many of them */
};
struct oracle_sum oracle_told_of(const struct world *w, int replica, int node, int card);
int oracle_index(const char *node); /* -1: there is none of that name */
/* The same for a pod that NVIDIA's device plugin is to give cards to. */
void oracle_sent(struct world *w, int replica, const char *uid, const char *node);
/* The kubelet gives the pod its devices. False when there are not enough. */
bool oracle_give(struct world *w, struct oracle_pod *p);
/* The cards of the node that the podList of its Scv names, as bits; and to set it. */
unsigned oracle_listed(const struct oracle *o, int node);
void oracle_list(struct oracle *o, int node);
int oracle_node(const struct oracle_pod *p); /* -1: none */
size_t oracle_waiting(const struct world *w);
struct oracle_pod *oracle_find(const struct world *w, const char *uid);
