/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "base/log.h"
#include "plugin/allocation.h"
#include "plugin/cards.h"
#include "plugin/pod_allocation.h"
#include "plugin/response.h"

/*
 * Who gets which ids: the device plugin's decisions, as one deterministic machine. Inputs
 * are what has happened (a pod was seen, the kubelet asks, it showed what it has given
 * out, time went by); outputs are what is to be done. No thread, lock, socket, clock or
 * log is inside.
 *
 * The kubelet asks for ids without saying for which pod, so the machine has to find out.
 * It never guesses by amount. What it relies on:
 *
 * - The kubelet admits one pod after the other, and puts each into the set that its
 *   podresources service shows just before that pod's admission. While it waits for
 *   GetPreferredAllocation, the pod in question is therefore in what podresources List
 *   shows, with fewer ids than it asks for. A pod that was refused for another reason may
 *   be too, for a moment; and one that the API server has not told us of yet may be the
 *   one. So: exactly one pod may lack exactly this container, and none may be view that
 *   is not known here. Otherwise the answer waits for news.
 * - A List drops what the kubelet has handed out and not yet written down. It is used
 *   while the kubelet waits for GetPreferredAllocation, when there is nothing of the
 * kind, and never during an Allocate.
 * - Allocate follows its GetPreferredAllocation. It is checked again: the pod by
 *   podresources Get (where the kubelet has it, since 1.34), each id by its card and its
 *   holder. Ids of a plain init container that are used again come without being asked
 *   for before; their holder says which pod it is.
 *
 * What cannot be told for certain is refused, with the reason, after waiting for news of
 * the API server for `wait_ms`. A promise is never rewritten to fit what happened.
 *
 * What was handed out is kept in grants: ids that a container holds are never handed to
 * another one, and neither is a card that is held through the other resource. The
 * kubelet's view is taken over where it shows more (a lost state file), and compared with
 * the promises all the time; ids of the Go plugin say nothing and are skipped.
 */

enum alloc_rejection {
    REJECTED_NOT_SYNCED,     /* nothing was heard of the API server yet */
    REJECTED_NO_PENDING_POD, /* no pod of this node waits for that */
    REJECTED_AMBIGUOUS,      /* it could be more than one */
    REJECTED_UNKNOWN_POD, /* the kubelet has a pod that the API server did not tell of */
    REJECTED_NO_PROMISE,  /* nobody promised the pod a card */
    REJECTED_INVALID_REQUEST,  /* its request or its annotations cannot be meant */
    REJECTED_WRONG_CARD,       /* the ids are not those of its card */
    REJECTED_IN_USE,           /* another container holds them, or the card */
    REJECTED_UNHEALTHY_CARD,   /* its card is lost or ill */
    REJECTED_INSUFFICIENT_IDS, /* the kubelet has not enough ids of its card */
    REJECTED_UNKNOWN_ID,       /* not one of ours */
    REJECTED_NOT_PREFERRED,    /* the kubelet did not req for a preference before */
    REJECTED_ENV_OVERRIDE,     /* --strict-env */
    REJECTED_PODRESOURCES,     /* podresources does not answer */
    REJECTED_CANCELED,         /* nobody waits for the answer any more */
    REJECTIONS,
};
const char *alloc_rejection_name(enum alloc_rejection r); /* "no-news", ... */

struct alloc_settings {
    const char *node; /* copied */
    int64_t unit_mib;
    int64_t wait_ms;
    int64_t reconcile_interval_ms;       /* between two looks at all pods; 0: none */
    int64_t well_ms, hold_ms, silent_ms; /* as in struct cards */
    bool allow_unpromised, strict_env, legacy_env;
    struct response_settings response; /* its strings are borrowed */
};

struct alloc;
struct alloc *alloc_new(const struct alloc_settings *settings); /* new */
void alloc_free(struct alloc *a);

struct alloc_time {
    int64_t mono_ms, wall_ns;
};

/* Outputs. Everything in one lives until alloc_outputs_reset. They are in the order in
 * which they must be carried out: what was granted is saved before it is answered. */

enum alloc_output_type {
    ALLOC_LIST,      /* req podresources for all pods; answer with alloc_kubelet_view */
    ALLOC_GET,       /* ... for the pod ns/name */
    ALLOC_PREFERRED, /* answer of token: ids */
    ALLOC_ALLOCATED, /* answer of token: response */
    ALLOC_START,     /* answer of token: go on */
    ALLOC_REJECTED,  /* answer of token: an error, `text` */
    ALLOC_SAVE,      /* write the grants to the state file */
    ALLOC_PATCH,     /* set the annotations (JSON) of pod ns/name with this uid */
    ALLOC_EVENT,     /* a Warning of pod ns/name: `reason`, `text` */
    ALLOC_RELIST,    /* list the pods anew: what is awaited does not come */
    ALLOC_LOG,       /* for the log, at `level` */
};

struct alloc_output {
    enum alloc_output_type type;
    uint64_t query;
    uint64_t token;
    enum alloc_rejection rejection;
    enum log_level level;
    const char *ns, *name, *uid;
    const char *reason, *text, *annotations;
    const char **ids;
    size_t n_ids;
    const struct response *response;
};

struct alloc_outputs {
    struct alloc_output *items;
    size_t n, cap;
    struct arena arena;
};
void alloc_outputs_reset(struct alloc_outputs *out);
void alloc_outputs_fini(struct alloc_outputs *out);

/* Inputs. Each takes one thing that happened and appends to `out`. */

/* Grants of the state file; taken over from `from`, which is empty afterwards. */
void alloc_restore(struct alloc *a, struct allocation_set *from);
/* The label of the Node. */
void alloc_set_cgpu_disable(struct alloc *a, bool on);
/* Cards were looked at (n of them, or `failed` says why not), or one was struck by
 * something. True when what is listed to the kubelet has changed. */
bool alloc_cards_sampled(struct alloc *a, struct alloc_time now,
                         const struct card_seen *seen, size_t n, const char *failed,
                         struct alloc_outputs *out);
bool alloc_card_failed(struct alloc *a, struct alloc_time now, struct span uuid,
                       const char *what, struct alloc_outputs *out);

/* A pod of this node; the pod is taken over. */
void alloc_pod_seen(struct alloc *a, struct alloc_time now, struct pod_allocation *pod,
                    struct alloc_outputs *out);
void alloc_pod_deleted(struct alloc *a, struct alloc_time now, struct span uid,
                       struct alloc_outputs *out);
/* A list of this node's pods begins; it has ended: pods that it did not show are gone. */
void alloc_list_started(struct alloc *a);
void alloc_list_ended(struct alloc *a, struct alloc_time now, struct alloc_outputs *out);

/* A kubelet has started: nothing that was in its memory counts any more. */
void alloc_kubelet_started(struct alloc *a, struct alloc_time now,
                           struct alloc_outputs *out);

enum alloc_request_type {
    ALLOC_REQUEST_PREFERRED,
    ALLOC_REQUEST_ALLOCATE,
    ALLOC_REQUEST_START,
    ALLOC_REQUEST_TYPES
};
const char *alloc_request_name(enum alloc_request_type type); /* "Allocate", ... */
struct alloc_request {
    enum alloc_request_type type;
    uint64_t token; /* comes back with the answer, of which there is exactly one */
    enum ids_resource resource;
    const struct span *ids; /* PREFER: that are free; else: that it is about */
    size_t n_ids;
    const struct span *must; /* PREFER: that it takes in any case (they are in ids too) */
    size_t n_must;
    int64_t size; /* PREFER: how many it needs */
};
void alloc_request(struct alloc *a, struct alloc_time now,
                   const struct alloc_request *req, struct alloc_outputs *out);
/* Nobody waits for that answer any more; it is given all the same. */
void alloc_cancel(struct alloc *a, struct alloc_time now, uint64_t token,
                  struct alloc_outputs *out);

/* What the kubelet's podresources service shows. */
struct alloc_kubelet_container {
    struct span name;
    const struct span *ids[IDS_RESOURCES];
    size_t n_ids[IDS_RESOURCES];
};
struct alloc_kubelet_pod {
    struct span ns, name;
    const struct alloc_kubelet_container *containers;
    size_t n_containers;
};
struct alloc_kubelet_view {
    uint64_t query;
    const struct alloc_kubelet_pod *pods; /* GET: one, or none when it is not there */
    size_t n_pods;
    const struct err *err; /* NULL: as above; else it did not answer */
    bool unsupported;      /* GET: the kubelet has no such call */
};
void alloc_kubelet_answered(struct alloc *a, struct alloc_time now,
                            const struct alloc_kubelet_view *view,
                            struct alloc_outputs *out);

/* Time went by. True when what is listed to the kubelet has changed. */
bool alloc_tick(struct alloc *a, struct alloc_time now, struct alloc_outputs *out);
int64_t alloc_due(const struct alloc *a); /* when the next tick matters */

/* Reading. */
const struct cards *alloc_cards(const struct alloc *a);
const struct allocation_set *alloc_allocations(const struct alloc *a);
bool alloc_pods_listed(const struct alloc *a); /* the pods of this node are known */
/* With podresources. Where --audit-interval is 0 only a container's asking finds it; that
 * it is over is found out in any case. */
const struct failure *alloc_podresources_failure(const struct alloc *a);

struct alloc_stats {
    uint64_t allocated[IDS_RESOURCES];
    uint64_t rejected[REJECTIONS]; /* Allocate and GetPreferredAllocation together */
    uint64_t mismatches;           /* containers on another card than was promised */
    uint64_t recovered;            /* containers that only the kubelet knew of */
    uint64_t deferred;             /* asks that had to wait for news */
    uint64_t reconciled;           /* looks at a pod */
};
const struct alloc_stats *alloc_stats(const struct alloc *a);
