/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "core/core.h"

/*
 * A model checker's view of the core: two pods of which one card takes only one, one
 * node, one or two processes, and every order in which what is under way can arrive.
 *
 * The world (world.c) is a tiny API server and the messages on the way to it and back,
 * each process a real core. All that can happen next is a choice; the walk (main.c)
 * takes every choice in every state and knows a state again by its fingerprint
 * (print.c). What bounds it is the allowance of a scenario: so many crashes, lost answers
 * and so on, and a time at which it ends. These are part of the state, so within them the
 * walk is complete.
 */

enum {
    WALK_PODS = 2,
    WALK_PROCS = 2,
    WALK_MESSAGES = 16,
    WALK_EVENTS = 8,
    WALK_TOKENS = 8,
    WALK_CHOICES = 64,
};

/* What may happen, and how often. */
struct scenario {
    const char *name, *about;
    bool standby;  /* a second process waits for the lease from the start */
    bool late_pod; /* pod A is created during the walk */
    int asks[2];   /* how often kube-scheduler asks for pod A, B */
    int cuts;      /* a caller's connection breaks; the request may go on */
    int unsent;    /* Bindings that do not leave */
    int gone;      /* watches that break, and their version is forgotten */
    int deletes;   /* of pod A */
    int crashes, starts;
    int holds;         /* lease calls that take as long as they like */
    int lease_cuts;    /* processes that reach the Lease no more */
    int lease_deletes; /* of the Lease, by hand */
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
enum message_way { WAY_OUT, WAY_BACK, WAY_LOST }; /* to the server; the answer; no more */

/* The Lease that says who may bind. */
struct walk_lease {
    char holder[8], renew[40], acquire[40];
    int64_t duration_s, transitions, version;
    bool absent;
    int64_t object; /* counts those that were made: its UID */
};

/* What the server had when it looked. */
struct answer {
    enum err_code code;
    bool exists[WALK_PODS], bound[WALK_PODS];
    int events;
    struct walk_lease lease;
};

/* A request and its answer. The fields after `type` mean nothing in a free slot. */
struct message {
    enum message_type type;
    enum message_way way;
    bool waiting;  /* does the caller wait? */
    bool deciding; /* what becomes of this lease call is not decided yet */
    bool denied;   /* BIND: kube-scheduler was told that the pod is not bound */
    int proc, life, pod;
    uint64_t call; /* or run */
    int64_t send_by_ms, arrive_by_ms, give_up_ms;
    bool create;             /* LEASE_WRITE */
    struct walk_lease wants; /* LEASE_WRITE: version is the one it is for */
    struct answer answer;
    char *notes; /* BIND: annotations; owned */
};

struct walk_pod {
    bool created, exists, bound;
    bool was_bound;
    char *notes; /* owned */
    int asked;
};

struct walk_event {
    int pod;
    enum { EVENT_ADDED, EVENT_BOUND, EVENT_DELETED } what;
};

struct proc {
    struct core *core; /* NULL: does not run */
    int lives;
    char identity[8];
    uint64_t list_run, watch_run; /* of the pods */
    bool watching;
    int next_event;
    bool lease_cut;
};

struct ask {
    bool waits; /* for an answer */
    int proc, pod;
};

/* All of a state. It lies in the region that heap.h copies. */
struct world {
    struct scenario left; /* what may still happen */
    int64_t now_ms;
    struct walk_pod pods[WALK_PODS];
    struct walk_event events[WALK_EVENTS];
    int n_events;
    struct walk_lease lease;
    struct message messages[WALK_MESSAGES];
    struct proc procs[WALK_PROCS];
    struct ask asks[WALK_TOKENS];
    int n_asks;
    bool calm;    /* nothing is decided any more: all goes through */
    bool verbose; /* print what the cores say */
    char violation[256];
};

enum what {
    DO_CREATE,
    DO_DELETE,
    DO_DELETE_LEASE,
    DO_ASK,
    DO_ARRIVE,
    DO_ANSWER,
    DO_CUT,
    DO_UNSENT,
    DO_EVENT,
    DO_GONE,
    DO_CRASH,
    DO_START,
    DO_LEASE_THROUGH,
    DO_LEASE_HOLD,
    DO_LEASE_CUT,
    DO_TIME,
};
struct choice {
    enum what what;
    int a, b;
};

/* world.c */
void world_begin(struct world *w, const struct scenario *s);
/* What can happen now. At rest, none. */
int world_choices(const struct world *w, struct choice choices[WALK_CHOICES]);
void world_take(struct world *w, struct choice c);
void world_describe(const struct world *w, struct choice c, char *text, size_t n);
/* Is nothing under way, and has everybody heard of everything? */
bool world_at_rest(const struct world *w);
/* Does every ledger say what the API objects say? For a world at rest. */
void world_compare(struct world *w);
/* Lets everything go its way until rest, and compares. */
void world_settle(struct world *w);
void world_free(struct world *w);

/* print.c: a number for all of the state that matters, with times as they are from now */
uint64_t world_print(const struct world *w);
