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
    int64_t requested_ms;   /* when the list or watch that is under way was asked for */
    int64_t last_event_ms;   /* last sign of life */
    int64_t listed_ms;  /* when the last complete list was asked for */
    bool synced;        /* was there a complete list at all */
    struct buf last_error; /* why the last list or watch failed; empty once one went well */
};

/* One who waits for the outcome of a bind. */
struct waiter {
    uint64_t token;
    struct span node; /* owned: the node it asked for */
};

enum bind_op_state {
    BIND_OP_FETCHING, /* the pod is not known: a GET is under way */
    BIND_OP_SENT,     /* the Binding is under way */
    BIND_OP_UNKNOWN,  /* it may or may not have taken effect */
    BIND_OP_CHECKING, /* bound long ago, but a list did not show it: a GET is under way */
};

/* A bind in flight. Its reservation, if any, is in the ledger under the pod's UID. */
struct bind_op {
    enum bind_op_state state;
    struct span uid, ns, name, node; /* owned, NUL-terminated */
    uint64_t call;                   /* outstanding call, or 0 */
    int64_t proof_ms; /* the second GET sent after this is proof; see CORE_CHECK_AFTER_MS
                       */
    int64_t get_ms;   /* when the outstanding GET was sent */
    int64_t check_ms; /* UNKNOWN, CHECKING without a call: when to send the next GET */
    int64_t backoff_ms;
    bool plain;       /* without reservation and annotations: it asks for nothing */
    bool gone;        /* SENT: news came that the pod is gone */
    bool checked_late; /* a GET sent after proof_ms has been answered */
    bool overtaken; /* a list that ended after the outstanding GET was sent lacks the pod
                     */
    struct span seen; /* SENT: news came that it is bound to that node; owned */
    struct err why;   /* what went wrong with the Binding */
    struct waiter *waiters;
    size_t n_waiters, waiters_cap;
    struct bind_op *next, *prev;
};

/* A node on which room was made: told to kube-scheduler by a change of the Node. */
struct wakeup {
    struct span node; /* owned, NUL-terminated */
    int64_t not_before_ms;
    uint64_t call; /* outstanding, or 0 */
    bool due;
};

enum leader_state {
    LEADER_IDLE,
    LEADER_GETTING,
    LEADER_WRITING,
};

/* The Lease that says who may bind, as it was seen last. */
struct leader {
    enum leader_state state;
    uint64_t call;
    int64_t due_ms;        /* IDLE: when to act next */
    int64_t requested_ms;      /* when it was refreshed at last */
    struct core_time sent; /* of the outstanding PATCH */
    bool leading;
    bool refreshed;            /* a GET has been answered */
    bool settled;           /* it has been acquired, or has to be waited for */
    struct core_time valid; /* leader: when the last successful renewal was sent */
    int64_t acquired_ms;
    bool known;  /* the object exists */
    bool absent; /* it did not when it was refreshed at last */
    struct buf uid, version, holder, renew_time, acquire_time;
    int64_t duration_s, transitions;
    int64_t observed_ms;  /* when this state of it was first seen */
    int64_t lead_from_ms; /* who holds it must not lead earlier: it was deleted, and the
                             holder of the one before may not know that yet */
    struct buf written;   /* renewTime of the outstanding PATCH */
    struct buf logged_holder; /* the holder that was told last */
    enum err_code logged_code;  /* the failure that was told last, and when */
    int64_t logged_ms;
    struct buf last_error; /* why the last call failed; empty once one went well */
};

/* The heartbeat of a node (core_heartbeat.c). */
struct heartbeat {
    struct span node; /* owned, NUL-terminated */
    uint64_t renewed; /* hash of its renewTime */
    int64_t renewed_ms; /* when that was new to us */
    bool silent;
    int64_t
        scv_s; /* silent, and the Lease is gone: updateTime of the Scv since; else 0 */
    struct heartbeat *next, *prev;
};
struct heartbeat_list {
    struct heartbeat *first, *last;
};

struct heartbeats {
    struct map by_node;
    struct heartbeat_list fresh;  /* longest not heard of first */
    struct heartbeat_list silent; /* those who get no new pods */
    int64_t listed_ms;   /* when the last complete list was asked for */
    int64_t event_ms;    /* when the watch delivered something last */
    int64_t no_pause_since_ms;   /* ... and since when without a long pause */
    int64_t last_ms;     /* when news of any Lease came last, by either */
    int64_t working_since_ms;    /* both work since then; before, nothing is missing */
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
    struct map bind_ops_by_uid;
    struct bind_op *bind_ops; /* newest first */
    size_t n_bind_ops;
    struct wakeup *wakeups;
    size_t n_wakeups, wakeups_cap;
    struct leader leader;
    struct heartbeats heartbeats;
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

/* core_output.c */
struct core_output *output_add(struct step *s, enum core_output_type type);
const char *output_str(struct step *s, struct span text);
void output_reply(struct step *s, uint64_t token, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void output_log(struct step *s, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
uint64_t core_next_id(struct core *core);
/* Keeps what went wrong, to be told to those who ask; NULL: nothing any more. */
void core_set_last_error(struct buf *last_error, const struct err *err);

/* core_sync.c: lists and watches */
void sync_start(struct step *s);
void sync_tick(struct step *s);
void sync_object(struct step *s);
void sync_list_ended(struct step *s);
void sync_list_failed(struct step *s);
void sync_watch_progress(struct step *s);
void sync_watch_ended(struct step *s);
/* Lists the kind again, from now on. */
void sync_relist(struct step *s, enum core_kind kind);
/* The API server answers again, as another call shows: lists and watches that it failed
 * are not put off much longer, or binds would be made by old news. */
void sync_retry_soon(struct step *s);
int64_t sync_due(const struct core *core);

/* core_pod.c: what news of a pod means */
enum core_pod_source {
    CORE_POD_FROM_WATCH,
    CORE_POD_FROM_GET
}; /* from a list or watch; from a GET just answered */
void core_pod_observed(struct step *s, const struct pod *pod, bool gone, enum core_pod_source from);
/* The pod of that UID does not exist any more. */
void core_pod_deleted(struct step *s, struct span uid);
/* A list or watch has shown the pod, but what it said could not be read. */
void core_pod_exists(struct step *s, struct span uid);
void core_pods_sweep(struct step *s, uint64_t list, int64_t requested_ms);

/* core_bind.c: binds in flight */
void bind_requested(struct step *s);
bool bind_answered(struct step *s); /* false: not a call of a bind */
void bind_tick(struct step *s);
int64_t bind_due(const struct core *core);
struct bind_op *bind_op_find(const struct core *core, struct span uid);
/* Finds out whether a pod with a promise still exists. */
void bind_check(struct step *s, struct ledger_pod *pod);
/* A list of pods has ended. A GET of a pod that it does not show may be older than it,
 * and the watch will not speak of that pod: the GET is asked again. */
void bind_listed(struct step *s, uint64_t list);
/* News: the pod is bound to that node; or it is gone. Ends an op whose outcome is
 * unknown. */
void bind_bound(struct step *s, struct bind_op *op, struct span node);
void bind_deleted(struct step *s, struct bind_op *op);
void bind_op_free(struct bind_op *op);

/* core_leader.c: who may bind */
void leader_start(struct step *s);
void leader_check_expiry(struct step *s); /* before anything else in a step */
void leader_tick(struct step *s);
void leader_refresh(struct step *s);
/* When the lease as it was seen ends; INT64_MIN: it is free. */
int64_t leader_lease_end(const struct core *core);
bool leader_answered(struct step *s);
int64_t leader_due(const struct core *core);
/* The monotonic time until which a Binding may be started; in the past: now none may. */
struct clock_deadline leader_bind_deadline(const struct core *core);

/* core_heartbeat.c: heartbeats of nodes */
void heartbeat_init(struct core *core);
void heartbeat_fini(struct core *core);
void heartbeat_seen(struct step *s, const struct lease *lease);
void heartbeat_set_stale(struct step *s); /* CORE_HEARTBEAT_STALE */
void heartbeat_scv_seen(struct step *s, const struct scv *scv);
void heartbeat_deleted(struct step *s, struct span node); /* its Scv or its Lease */
void heartbeat_swept(struct step *s);                  /* perhaps those of many nodes */
void heartbeat_watch_event(struct step *s);            /* an event or bookmark of Leases */
void heartbeat_listed(struct step *s, int64_t requested_ms);
void heartbeat_broken(struct step *s);
void heartbeat_tick(struct step *s);
int64_t heartbeat_due(const struct core *core);

/* core_wakeup.c: telling kube-scheduler that a node has more room */
struct wakeup_fits {
    bool *fits; /* each request of waiting pods, before the change; in scratch */
    size_t n;
    struct span node;
};
struct wakeup_fits wakeup_before(struct step *s, struct span node);
void wakeup_after(struct step *s, const struct wakeup_fits *before);
void wakeup_tick(struct step *s);
bool wakeup_answered(struct step *s);
int64_t wakeup_due(const struct core *core);
