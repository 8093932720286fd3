/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "core/core_priv.h"

/*
 * A model checker for the core: one node with one card, or with two that are connected, two
 * pods of which only one fits, one or two processes, and every order in which messages in
 * flight can arrive.
 *
 * The world (world.c) is a tiny API server, the messages in flight, and a real core per
 * process. Everything that can happen next is a choice; the walk (main.c) takes every
 * choice in every state, and recognizes a visited state by its fingerprint (print.c). A
 * scenario bounds it: a number of crashes, lost answers and so on, and an end time. These
 * are part of the state, so the walk is exhaustive within them.
 */

enum {
    WALK_PODS = 2,
    WALK_PROCS = 2,
    WALK_MESSAGES = 16,
    WALK_EVENTS = 8,
    WALK_TOKENS = 8,
    WALK_CHOICES = 64,
};

/* A choice. Those from LIMITED happen a limited number of times in a scenario. */
enum what {
    DO_ASK,
    DO_ARRIVE,
    DO_ANSWER,
    DO_EVENT,
    DO_TIME,
    DO_LEASE_THROUGH,
    LIMITED,
    DO_LEASE_HOLD = LIMITED, /* a lease call has any delay */
    DO_LEASE_CUT,            /* a process loses its connection to the Lease */
    DO_CREATE,               /* pod A */
    DO_DELETE,               /* pod A */
    DO_DELETE_LEASE,         /* by hand */
    DO_CUT,    /* the caller's connection breaks; the request may still arrive */
    DO_UNSENT, /* a Binding is not sent */
    DO_GONE,   /* a watch breaks, with a resource version that is too old (410) */
    DO_SCV,    /* a process sees other cards in the Scv */
    DO_CRASH,  /* a process */
    DO_START,
    WHATS
};
/* What the Scv of a node with two cards says. */
enum cards {
    CARDS_CONNECTED,
    CARDS_APART, /* the link is lost */
    CARDS_SPLIT, /* one of them is in MIG mode: an instance in its place */
    CARDS,
};
struct choice {
    enum what what;
    int a, b;
};

struct scenario {
    const char *name, *about;
    bool standby;        /* a second process waits for the lease from the start */
    bool linked;         /* two cards: each pod requests both, connected by NVLink */
    int asks[2];         /* bind requests of kube-scheduler for pod A, B */
    int64_t lease_ms[2]; /* of each process; 0: the default */
    int n[WHATS];        /* how often each limited choice is left */
    int64_t end_ms;
};

enum message_type {
    MSG_NONE,
    MSG_BIND,
    MSG_GET,
    MSG_LIST,
    MSG_LEASE_GET,
    MSG_LEASE_WRITE
};
/* A request on its way to the server; its answer on the way back; either one lost. */
enum message_way { WAY_OUT, WAY_BACK, WAY_LOST };

/* The Lease of the leader election. */
struct walk_lease {
    char holder[8], renew[40], acquire[40];
    int64_t duration_s, transitions, version;
    bool absent;
    int64_t object; /* counts creations: its UID */
};

struct walk_pod {
    bool created, exists, bound, was_bound;
    char *annotations; /* annotations, as JSON; owned */
};

/* The answer to a request: the state of the server when it answered. */
struct answer {
    enum err_code code;
    struct walk_pod pods[WALK_PODS]; /* without their annotations */
    int events;
    struct walk_lease lease;
};

/* A request and its answer. The fields after `type` mean nothing in a free slot. */
struct message {
    enum message_type type;
    enum message_way way;
    bool waiting;  /* the caller waits */
    bool deciding; /* the outcome of this lease call is not chosen yet */
    bool denied;   /* BIND: kube-scheduler got the reply that the pod is not bound */
    int proc;      /* the process that sent the request, and */
    int life;      /* its `lives` at that time */
    int pod;
    uint64_t call; /* LIST: the run */
    int64_t send_by_ms, arrive_by_ms, give_up_ms;
    bool create;             /* LEASE_WRITE */
    struct walk_lease wants; /* LEASE_WRITE: version is the expected one */
    struct answer answer;
    char *annotations; /* BIND: annotations, as JSON; owned */
};
static inline bool is_lease(const struct message *m)
{
    return m->type >= MSG_LEASE_GET;
}

struct walk_event {
    int pod;
    enum { EVENT_ADDED, EVENT_BOUND, EVENT_DELETED } what;
};

struct proc {
    struct core *core; /* NULL: not running */
    int lives;         /* number of starts */
    char identity[8];
    uint64_t list_run, watch_run; /* of the pods */
    uint64_t scv_run;
    enum cards cards; /* as it sees them */
    bool watching;
    int next_event;
    bool lease_cut; /* its lease calls no longer reach the server */
};

/* A bind request of kube-scheduler. */
struct ask {
    bool waits; /* for an answer */
    int proc, pod;
};

/* A complete state. It is in the region that heap.h copies. */
struct world {
    struct scenario left; /* remaining events */
    bool linked;
    int64_t lease_ms[2]; /* as in the scenario */
    int64_t now_ms;
    struct walk_pod pods[WALK_PODS];
    struct walk_event events[WALK_EVENTS];
    int n_events;
    struct walk_lease lease;
    struct message messages[WALK_MESSAGES];
    struct proc procs[WALK_PROCS];
    struct ask asks[WALK_TOKENS];
    int n_asks;
    bool calm;    /* no more choices: every message arrives */
    bool verbose; /* print outputs of the cores */
    char violation[256];
};

#define EACH_MESSAGE(m, w)                                                               \
    for (__typeof__(&(w)->messages[0]) m = (w)->messages;                                \
         m < (w)->messages + WALK_MESSAGES; m++)                                         \
        if (m->type)

/* world.c */
extern const char *const uids[WALK_PODS];
void world_begin(struct world *w, const struct scenario *s);
/* The possible choices; at rest, none. */
int world_choices(const struct world *w, struct choice choices[WALK_CHOICES]);
void world_take(struct world *w, struct choice c);
void world_describe(const struct world *w, struct choice c);
/* Is no message in flight, and is every event delivered? */
bool world_at_rest(const struct world *w);
/* Compares every ledger with the API objects. For a world at rest. */
void world_compare(struct world *w);
/* Delivers everything until rest, and compares. */
void world_settle(struct world *w);
void world_free(struct world *w);

/* print.c: a hash of the relevant state, with times relative to now */
uint64_t world_print(const struct world *w);
