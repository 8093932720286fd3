/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "plugin/alloc.h"

/*
 * The machine, in pieces: alloc.c (cards, the kubelet, time), alloc_pod.c,
 * alloc_request.c (the life of a question), alloc_grant.c (a good answer), alloc_who.c
 * (which pod), alloc_pick.c (which ids), alloc_audit.c (is what the kubelet shows what
 * was promised), alloc_out.c.
 */

/* A pod of this node. */
struct local_pod {
    struct pod_allocation *pod;
    uint64_t list;           /* in which it was seen last */
    uint64_t rejected_epoch; /* of the kubelet in which it was refused */
    bool assigned_here;      /* its cards are our choice, nobody promised them */
    bool annotated;          /* and its annotations were sent */
    bool env_override_reported, mismatch_reported;
    int64_t patched_ms; /* when it was last marked as assigned; 0: not yet */
    int64_t reconciled_ms;
    int64_t since_ms; /* when it was first seen */
    struct local_pod *next;
};

/* An id that the kubelet named. */
struct device_id {
    const struct plugin_card *card;
    int64_t number; /* -1: the whole card */
};

enum pending_state {
    PENDING_NEW,
    PENDING_QUERY, /* podresources was asked */
    PENDING_RETRY, /* for news, or until retry_ms */
};

/* A question of the kubelet that is not answered yet. */
struct pending_request {
    enum alloc_request_type type;
    enum ids_resource resource;
    uint64_t token, serial;
    int64_t size;
    struct device_id *ids, *must;
    size_t n_ids, n_must;
    size_t n_unknown; /* ids that are none of ours */
    char unknown[64]; /* one of them */
    enum pending_state state;
    bool waited, cancelled, get_confirmed;
    bool relist_sent; /* for news, by a list */
    int64_t began_ms, until_ms, retry_ms;
    uint64_t query;
    uint64_t api_changes; /* of the API server, when it was looked at last */
    enum alloc_rejection why;
    char text[400];
    struct arena arena;
    struct pending_request *next;
};

/* What was target out of an req: which container of which pod. */
struct alloc_target {
    struct local_pod *local;
    size_t container;
};

/* What GetPreferredAllocation was answered, until the Allocate that follows. */
struct preference {
    bool valid;
    enum ids_resource resource;
    char uid[80];
    size_t container;
};

/* A pod of the kubelet that the API server did not tell of. */
struct unknown_pod {
    char *ns, *name;
    uint64_t serial; /* of the req that met it first; 0: none yet */
    bool former;     /* the API server did tell, and that it is gone */
    struct unknown_pod *next;
};

struct alloc {
    struct alloc_settings settings;
    char *node;
    struct cards cards;
    struct allocation_set allocations;
    struct local_pod *local_pods; /* in the order in which they came */
    uint64_t list, api_changes, kubelet_epoch, serial, queries;
    bool listed;
    bool no_get;                      /* the kubelet has no Get */
    struct pending_request *requests; /* oldest first */
    struct preference preference;
    struct unknown_pod *unknown_pods;
    int64_t due_ms;
    uint64_t reconcile_query, reconcile_serial; /* 0: none is out */
    bool reconcile_all;                         /* it was a List */
    int64_t reconcile_asked_ms, reconcile_next_ms;
    int64_t answered_ms;                 /* of podresources, be it an error */
    struct failure podresources_failure; /* with podresources */
    bool dirty;                          /* grants have changed since the last SAVE */
    struct alloc_stats stats;
};

/* alloc_out.c */
struct alloc_output *alloc_output_add(struct alloc_outputs *out,
                                      enum alloc_output_type type);
const char *alloc_output_text(struct alloc_outputs *out, struct span s);
const char *alloc_output_printf(struct alloc_outputs *out, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void alloc_output_log(struct alloc_outputs *out, enum log_level level, const char *fmt,
                      ...) __attribute__((format(printf, 3, 4)));
void alloc_output_event(struct alloc_outputs *out, const struct pod_allocation *pod,
                        const char *reason, const char *text);
void alloc_output_patch(struct alloc_outputs *out, const struct pod_allocation *pod,
                        const char *annotations);
void alloc_output_save(struct alloc *a,
                       struct alloc_outputs *out); /* if something changed */
void alloc_output_id(struct buf *out, const struct device_id *unit);
/* "GPU-... (index 0)", for messages. In the outputs' arena. */
const char *alloc_output_card(struct alloc_outputs *out, const struct plugin_card *card);

/* alloc_pod.c */
void alloc_pod_free(struct local_pod *p);
struct local_pod *alloc_pod_find(const struct alloc *a, struct span uid);
struct local_pod *alloc_pod_by_name(const struct alloc *a, struct span ns,
                                    struct span name);
/* Has every container of the pod been handed out? */
bool alloc_pod_is_complete(const struct alloc *a, const struct local_pod *p);
/* Marks it in the API when it has, and is not marked yet. */
void alloc_pod_mark_assigned(struct alloc *a, struct alloc_time now, struct local_pod *p,
                             struct alloc_outputs *out);
/* For one without a promise that has been handed ids (by us, before a restart): its cards
 * are what it was given. */
void alloc_pod_assign_from_allocations(struct alloc *a, struct local_pod *p);
/* Writes annotations that say what it was given. */
void alloc_pod_annotate_assigned(struct alloc *a, struct alloc_time now,
                                 struct local_pod *p, struct alloc_outputs *out);

/* alloc.c */
bool alloc_read_id(const struct alloc *a, enum ids_resource r, struct span text,
                   struct device_id *unit);
void alloc_wake_at(struct alloc *a, int64_t at_ms); /* a tick matters then */

/* alloc_request.c */
void alloc_request_retry_all(struct alloc *a, struct alloc_time now,
                             struct alloc_outputs *out);
void alloc_request_tick(struct alloc *a, struct alloc_time now,
                        struct alloc_outputs *out);
void alloc_request_kubelet_answered(struct alloc *a, struct alloc_time now,
                                    struct pending_request *req,
                                    const struct alloc_kubelet_view *view,
                                    struct alloc_outputs *out);
void alloc_request_free(struct pending_request *req);

/* What to do with an req. */
enum verdict { VERDICT_YES, VERDICT_WAIT, VERDICT_NO };
/* Sets reason and words. Returns `verdict`. */
enum verdict alloc_request_explain(struct pending_request *req, enum verdict verdict,
                                   enum alloc_rejection why, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* alloc_grant.c */
/* Writes down that the container has the ids of the req, and answers. */
void alloc_commit(struct alloc *a, struct alloc_time now, struct pending_request *req,
                  const struct alloc_target *t, struct alloc_outputs *out);

/* alloc_who.c */
/* Of what List shows: which container is it? */
enum verdict alloc_identify_from_list(struct alloc *a, int64_t now_ms,
                                      struct pending_request *req,
                                      const struct alloc_kubelet_view *view,
                                      struct alloc_target *target);
/* The newest ones are kept. */
struct unknown_pod *alloc_identify_add_unknown(struct alloc *a, struct span ns,
                                               struct span name);
void alloc_identify_forget_unknown(struct alloc *a);
/* The pod has had its answer: it is not the one that later requests are about. */
void alloc_identify_answered(struct alloc *a, const struct pod_allocation *pod,
                             uint64_t serial);
/* The pod whose plain init container holds all these ids, and its next container. */
bool alloc_identify_reuse(const struct alloc *a, const struct pending_request *req,
                          struct alloc_target *target);
/* Does the kubelet show that the pod lacks something of ours, and which container is
 * next? */
bool alloc_identify_next_container(const struct alloc *a, const struct local_pod *p,
                                   const struct alloc_kubelet_pod *view, size_t *next);

/* alloc_pick.c */
/* Ids for the container: of its cards, that nobody holds. */
enum verdict alloc_select_ids(struct alloc *a, struct pending_request *req,
                              const struct alloc_target *t, struct device_id **ids,
                              size_t *n);
/* Are the ids of the req what the container may have? */
enum verdict alloc_select_check(struct alloc *a, struct pending_request *req,
                                const struct alloc_target *t);
/* Can the container be given anything at all: is there a promise, a card ... */
enum verdict alloc_select_check_promise(struct alloc *a, struct pending_request *req,
                                        const struct alloc_target *t);
const struct plugin_card *alloc_select_card(const struct alloc *a,
                                            const struct pod_allocation_share *s);
/* How many units of the card the container may have. */
size_t alloc_select_limit(const struct alloc *a, const struct alloc_target *t,
                          const struct plugin_card *card);
/* The grant that stands in the way of giving the unit to container `t`; NULL: none. */
const struct allocation *alloc_select_holder(const struct alloc *a,
                                             const struct alloc_target *t,
                                             const struct device_id *unit);

/* alloc_audit.c */
/* Takes in what the kubelet shows of some pods, or of all. */
void alloc_reconcile_view(struct alloc *a, struct alloc_time now,
                          const struct alloc_kubelet_view *view, bool all,
                          struct alloc_outputs *out);
void alloc_reconcile_tick(struct alloc *a, struct alloc_time now,
                          struct alloc_outputs *out);
void alloc_reconcile_answered(struct alloc *a, struct alloc_time now,
                              const struct alloc_kubelet_view *view,
                              struct alloc_outputs *out);
