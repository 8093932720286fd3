/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/hash.h"
#include "base/rng.h"
#include "core/core.h"

/* Where the watching of one kind of object stands. */
enum cursor_state { CURSOR_LIST_DUE, CURSOR_LISTING, CURSOR_WATCH_DUE, CURSOR_WATCHING };

struct cursor {
    enum cursor_state state;
    uint64_t run;       /* of the list or watch that is under way */
    struct buf version; /* to watch from */
    int64_t due_ms;     /* LIST_DUE, WATCH_DUE: when to start */
    int64_t backoff_ms; /* of failed lists and broken watches */
    int64_t relist_ms;  /* back-off of lists that a watch made necessary */
    int64_t asked_ms;   /* when the list or watch that is under way was asked for */
    int64_t alive_ms;   /* last sign of life */
    int64_t listed_ms;  /* when the last complete list was asked for */
    bool synced;        /* was there a complete list at all */
    struct buf trouble; /* why the last list or watch failed; empty once one went well */
};

/* One who waits for the outcome of a bind. */
struct waiter {
    uint64_t token;
    struct span node; /* owned: the node it asked for */
};

enum op_state {
    OP_FETCHING, /* the pod is not known: a GET is under way */
    OP_SENT,     /* the Binding is under way */
    OP_UNKNOWN,  /* it may or may not have taken effect */
    OP_CHECKING, /* bound long ago, but a list did not show it: a GET is under way */
};

/* A bind in flight. Its reservation, if any, is in the ledger under the pod's UID. */
struct op {
    enum op_state state;
    struct span uid, ns, name, node; /* owned, NUL-terminated */
    uint64_t call;                   /* outstanding call, or 0 */
    int64_t proof_ms; /* the second GET sent after this is proof; see CORE_CHECK_AFTER_MS
                       */
    int64_t get_ms;   /* when the outstanding GET was sent */
    int64_t check_ms; /* UNKNOWN, CHECKING without a call: when to send the next GET */
    int64_t backoff_ms;
    bool plain;       /* without reservation and annotations: it asks for nothing */
    bool gone;        /* SENT: news came that the pod is gone */
    bool looked_late; /* a GET sent after proof_ms has been answered */
    bool overtaken; /* a list that ended after the outstanding GET was sent lacks the pod
                     */
    struct span seen; /* SENT: news came that it is bound to that node; owned */
    struct err why;   /* what went wrong with the Binding */
    struct waiter *waiters;
    size_t n_waiters, waiters_cap;
    struct op *next, *prev;
};

/* A node on which room was made: told to kube-scheduler by a change of the Node. */
struct mark {
    struct span node; /* owned, NUL-terminated */
    int64_t not_before_ms;
    uint64_t call; /* outstanding, or 0 */
    bool due;
};

enum lock_state {
    LOCK_IDLE,
    LOCK_GETTING,
    LOCK_WRITING,
};

/* The Lease that says who may bind, as it was seen last. */
struct lock {
    enum lock_state state;
    uint64_t call;
    int64_t due_ms;        /* IDLE: when to act next */
    int64_t asked_ms;      /* when it was looked at last */
    struct core_time sent; /* of the outstanding PATCH */
    bool leader;
    bool looked;            /* a GET has been answered */
    bool settled;           /* it has been acquired, or has to be waited for */
    struct core_time valid; /* leader: when the last successful renewal was sent */
    int64_t acquired_ms;
    bool known;  /* the object exists */
    bool absent; /* it did not when it was looked at last */
    struct buf uid, version, holder, renew_time, acquire_time;
    int64_t duration_s, transitions;
    int64_t observed_ms;  /* when this state of it was first seen */
    int64_t lead_from_ms; /* who holds it must not lead earlier: it was deleted, and the
                             holder of the one before may not know that yet */
    struct buf written;   /* renewTime of the outstanding PATCH */
    struct buf waits_for; /* the holder that was told last */
    enum err_code noted;  /* the failure that was told last, and when */
    int64_t noted_ms;
    struct buf trouble; /* why the last call failed; empty once one went well */
};

/* The heartbeat of a node (core_alive.c). */
struct beat {
    struct span node; /* owned, NUL-terminated */
    uint64_t renewed; /* hash of its renewTime */
    int64_t heard_ms; /* when that was new to us */
    bool silent;
    int64_t
        scv_s; /* silent, and the Lease is gone: updateTime of the Scv since; else 0 */
    struct beat *next, *prev;
};
struct beats {
    struct beat *first, *last;
};

struct alive {
    struct map by_node;
    struct beats fresh;  /* longest not heard of first */
    struct beats silent; /* those who get no new pods */
    int64_t listed_ms;   /* when the last complete list was asked for */
    int64_t spoke_ms;    /* when the watch delivered something last */
    int64_t lively_ms;   /* ... and since when without a long pause */
    int64_t came_ms;     /* when news of any Lease came last, by either */
    int64_t since_ms;    /* both work since then; before, nothing is missing */
    bool broken;         /* the last list or watch failed, and nothing came since */
};

struct core {
    struct core_settings settings;
    char *identity, *lease_namespace, *lease_name;
    struct ledger *ledger;
    struct rng rng;
    bool started, stopping;
    uint64_t last_id; /* of runs and calls */
    int64_t last_assume_ns;
    struct cursor cursors[CORE_KINDS];
    struct map ops_by_uid;
    struct op *ops; /* newest first */
    size_t n_ops;
    struct mark *marks;
    size_t n_marks, marks_cap;
    struct lock lock;
    struct alive alive;
    size_t n_over; /* cards that were found to be over their size, and told of */
    uint64_t overcommits;
    struct arena scratch; /* for one step */
};

/* What one step works with. */
struct step {
    struct core *core;
    struct core_time now;
    const struct core_input *in;
    struct core_outputs *out;
};

/* core_out.c */
struct core_output *out_add(struct step *s, enum core_output_type type);
const char *out_str(struct step *s, struct span text);
void out_reply(struct step *s, uint64_t token, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void out_note(struct step *s, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
uint64_t next_id(struct core *core);
/* Keeps what went wrong, to be told to those who ask; NULL: nothing any more. */
void keep_trouble(struct buf *trouble, const struct err *err);

/* core_sync.c: lists and watches */
void sync_start(struct step *s);
void sync_tick(struct step *s);
void sync_object(struct step *s);
void sync_list_ended(struct step *s);
void sync_list_failed(struct step *s);
void sync_watch_alive(struct step *s);
void sync_watch_ended(struct step *s);
/* Lists the kind again, from now on. */
void sync_relist(struct step *s, enum core_kind kind);
/* The API server answers again, as another call shows: lists and watches that it failed
 * are not put off much longer, or binds would be made by old news. */
void sync_hurry(struct step *s);
int64_t sync_due(const struct core *core);

/* core_pod.c: what news of a pod means */
enum pod_news {
    NEWS_STREAM,
    NEWS_GET
}; /* from a list or watch; from a GET just answered */
void pod_news(struct step *s, const struct pod *pod, bool gone, enum pod_news from);
/* The pod of that UID does not exist any more. */
void pod_gone(struct step *s, struct span uid);
/* A list or watch has shown the pod, but what it said could not be read. */
void pod_is_there(struct step *s, struct span uid);
void pods_sweep(struct step *s, uint64_t list, int64_t asked_ms);

/* core_bind.c: binds in flight */
void bind_asked(struct step *s);
bool bind_answered(struct step *s); /* false: not a call of a bind */
void bind_tick(struct step *s);
int64_t bind_due(const struct core *core);
struct op *op_find(const struct core *core, struct span uid);
/* Finds out whether a pod with a promise still exists. */
void bind_check(struct step *s, struct ledger_pod *pod);
/* A list of pods has ended. A GET of a pod that it does not show may be older than it,
 * and the watch will not speak of that pod: the GET is asked again. */
void bind_listed(struct step *s, uint64_t list);
/* News: the pod is bound to that node; or it is gone. Ends an op whose outcome is
 * unknown. */
void bind_seen(struct step *s, struct op *op, struct span node);
void bind_gone(struct step *s, struct op *op);
void op_free(struct op *op);

/* core_lease.c: who may bind */
void lock_start(struct step *s);
void lock_lapse(struct step *s); /* before anything else in a step */
void lock_tick(struct step *s);
void lock_look(struct step *s);
/* When the lease as it was seen ends; INT64_MIN: it is free. */
int64_t lock_free_at(const struct core *core);
bool lock_answered(struct step *s);
int64_t lock_due(const struct core *core);
/* The monotonic time until which a Binding may be started; in the past: now none may. */
struct clock_deadline lock_bind_until(const struct core *core);

/* core_alive.c: heartbeats of nodes */
void alive_init(struct core *core);
void alive_fini(struct core *core);
void alive_seen(struct step *s, const struct lease *lease);
void alive_told(struct step *s); /* CORE_SILENT */
void alive_scv_seen(struct step *s, const struct scv *scv);
void alive_gone(struct step *s, struct span node); /* its Scv or its Lease */
void alive_swept(struct step *s);                  /* perhaps those of many nodes */
void alive_watch_spoke(struct step *s);            /* an event or bookmark of Leases */
void alive_listed(struct step *s, int64_t asked_ms);
void alive_broken(struct step *s);
void alive_tick(struct step *s);
int64_t alive_due(const struct core *core);

/* core_room.c: telling kube-scheduler that a node has more room */
struct room {
    bool *fits; /* each request of waiting pods, before the change; in scratch */
    size_t n;
    struct span node;
};
struct room room_before(struct step *s, struct span node);
void room_after(struct step *s, const struct room *before);
void room_tick(struct step *s);
bool room_answered(struct step *s);
int64_t room_due(const struct core *core);
