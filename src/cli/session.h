/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "apisync/apisync.h"
#include "cli/config.h"
#include "core/core.h"
#include "domain/dialect.h"
#include "domain/ledger.h"
#include "kube/client.h"
#include "kube/jpath.h"
#include "view/inspect.h"

/*
 * A snapshot of the cluster that follows its lists and watches: the extender's core in
 * observer mode, and copies of what the core's ledger does not keep but users want to
 * see. It reads the clocks and opens no connection: its owner makes the requests for
 * lists and watches, and delivers the bytes to cluster_state_sink.
 */

struct cluster_state;

struct cluster_state_node {
    struct span name, address;                   /* first InternalIP; may be empty */
    struct node_resources capacity, allocatable; /* -1: not stated */
    struct node_cards named;                     /* by gpushare.io/cards */
    bool named_invalid;                          /* ... which cannot be parsed */
};

/* Fields of a pod's object. Absent annotations are {NULL, 0}. */
struct cluster_state_pod {
    struct span uid, ns, name, node;
    struct span idx, allocation, assigned;
    int64_t go_units;   /* sum of its containers' limits, as the Go plugin counts */
    bool finished;      /* phase Succeeded or Failed */
    struct span reason; /* why its request or its annotations are malformed; or empty */
};

/* Age of a node's heartbeat: the renewTime of its Lease against the API server's clock.
 */
enum cluster_state_freshness {
    HEARTBEAT_FRESH,    /* younger than the grace period, or renewed since the list */
    HEARTBEAT_OLD,      /* older: the heartbeat counts as lost, unless `confirmed` */
    HEARTBEAT_AHEAD,    /* in the future: the node's own clock is wrong */
    HEARTBEAT_UNDATED,  /* no valid renewTime */
    HEARTBEAT_NO_CLOCK, /* the API server sent no Date */
};

struct cluster_state_heartbeat {
    struct span renewed; /* renewTime verbatim; may be empty */
    enum cluster_state_freshness freshness;
    int64_t age_s;  /* at cluster_state_check_heartbeats; for OLD and AHEAD */
    bool confirmed; /* the extender receives renewals in spite of the Lease's time */
};

struct cluster_state_config {
    struct core_settings core; /* of an observer */
    /* Starts a CORE_LIST or CORE_WATCH; it replaces the running one of its kind. Does not
     * deliver anything before it returns. */
    void (*request)(void *ctx, const struct core_output *request);
    void *ctx;
};

struct cluster_state *
cluster_state_new(const struct cluster_state_config *config); /* new */
void cluster_state_free(struct cluster_state *cs);

/* For apisync_start; its ctx is the cluster_state. */
extern const struct apisync_sink cluster_state_sink;
/* Advances time. To be called first, and then when core_due says so. */
void cluster_state_tick(struct cluster_state *cs);

/* 0: everything is listed. -1: not yet; err->code is ERR_NONE unless a list failed. */
int cluster_state_check_ready(const struct cluster_state *cs, struct err *err);
/* Compares the Leases with the API server's clock, `server_s` (since 1970; 0: unknown),
 * read at most `since_s` seconds ago. A node whose heartbeat is older than the grace
 * period gets no new pods until its Lease is renewed. */
void cluster_state_check_heartbeats(struct cluster_state *cs, int64_t server_s,
                                    int64_t since_s);

/* Everything returned is borrowed until the next input. */
/* The ledger, also for other threads, as long as the state exists. */
struct view_source cluster_state_source(const struct cluster_state *cs);
const struct ledger *cluster_state_ledger(const struct cluster_state *cs);
/* Changes whenever anything visible changes. */
uint64_t cluster_state_generation(const struct cluster_state *cs);
/* The struct cluster_state_node, cluster_state_heartbeat (CORE_LEASES) or scv, which is
 * complete, of a node by its name; the struct cluster_state_pod by its UID. NULL: not
 * found. */
const void *cluster_state_find(const struct cluster_state *cs, enum core_kind kind,
                               struct span key);
/* All, sorted by name (pods: namespace, name, UID). Allocated in the arena. */
size_t cluster_state_nodes(const struct cluster_state *cs, struct arena *a,
                           const struct cluster_state_node ***out);
size_t cluster_state_pods(const struct cluster_state *cs, struct arena *a,
                          const struct cluster_state_pod ***out);
/* Why objects were ignored: distinct messages, at most 256; then NULL. */
const char *const *cluster_state_errors(const struct cluster_state *cs);

/*
 * Whether scv-agent renews the Lease of each node. The extender watches Leases and knows.
 * A single list shows only the times in the Leases, which depend on the nodes' clocks:
 * where they are not conclusive, the extender's view overrides them.
 */
/* Is there a node whose state only the extender knows? */
bool cluster_state_needs_view(const struct cluster_state *cs);
/* Applies the extender's view (GET /gpushare-scheduler/inspect) to those nodes. The view
 * of the Go extender, and of an extender that is not current, change nothing. */
void cluster_state_apply_view(struct cluster_state *cs, const json_t *view);
/* Appends what is unusual about the node's heartbeat, as one sentence without control
 * characters; nothing otherwise. */
void cluster_state_note_heartbeat(struct buf *out, const struct cluster_state *cs,
                                  const struct ledger_node *node);

/*
 * One run of the plugin against a cluster, as the options configure it: the API server of
 * the kubeconfig and, where its objects are not conclusive, the extender.
 */

struct session {
    const struct cli_config *config; /* borrowed */
    struct kube_client *client;
    struct cluster_state *state; /* what is listed and watched */
    struct err view_error; /* session_view failed; ERR_NONE: not called, or no extender */
    struct buf stale;      /* "as of HH:MM:SS: REASON"; empty: current */
    struct kubectl *kubectl; /* carries the login; NULL: the client has it */

    /* private to session.c */
    char *ns;         /* session_namespace; NULL: not asked for */
    int64_t until_ms; /* end of --request-timeout */
    struct apisync_streams streams;
    struct list_watch_loop *loop;
    json_t *view;
    bool view_fetched;
    struct dialect hami; /* by the view; of its text */
};

/* Lists everything, then determines the memory unit (unless configured) and the nodes whose
 * heartbeat is missing. `s` is zeroed except for its config; release it with
 * session_fini, also after -1. */
int session_load(struct session *s, struct err *err);
/* The first part of session_load: the client. */
int session_connect(struct session *s, struct err *err);
/* Starts kubectl again, for calls alone: the state is dropped. -1: it has not ended, which is no
 * error, or does not start. */
int session_reconnect(struct session *s, struct err *err);
/* The namespace of --namespace, or else of the kubeconfig's context. NULL: unknown. */
const char *session_namespace(struct session *s, struct err *err);
void session_fini(struct session *s);
/* Appends the API server's path of the pod. */
void session_pod_path(struct buf *path, struct span ns, struct span name);

/* The extender's view, fetched once. NULL: --extender names none, or the call failed, see
 * view_error. Borrowed. */
const json_t *session_view(struct session *s);

/* Watches for `ms`, or until something visible changes. */
void session_wait(struct session *s, int64_t ms);
/* Sets `stale`, and writes each change of it to standard error. 1: it has changed. -1: the API
 * server has not accepted the credentials for seconds (ERR_UNAUTHORIZED), or kubectl has ended. */
int session_check_current(struct session *s, struct err *err);

/*
 * The extender's view of its ledger, GET /gpushare-scheduler/inspect. --extender is
 *
 *     http://HOST:PORT          or https://, with the files of a bearer token and a CA
 *     NAMESPACE/SERVICE:PORT    a Service, through the API server's proxy
 *
 * The API server removes the Authorization header of a request that it proxies and has no
 * client certificate for a Service. So an extender with HTTPS, which wants credentials,
 * is read by its URL.
 */

/* New. NULL: --extender names none (`err` is left alone), the call failed, or the response is
 * not JSON. */
json_t *session_call_extender(struct kube_client *client, const struct cli_config *c,
                              int64_t timeout_ms, struct err *err);
/* -1: the address has neither form, or there is a token for plain HTTP. */
int session_check_extender(const struct cli_config *c, struct err *err);

/* New. NULL: the call failed. What the API server asks for with Retry-After is waited for, within
 * --request-timeout. */
json_t *session_get(const struct session *s, const char *path, struct err *err);

/* The same of a list, with the items of all its pages. */
json_t *session_list(const struct session *s, const char *path, struct err *err);

/* What a user can read of the extender; NULL: not known, or not allowed. */
struct session_extender {
    struct span ns; /* of the Lease and the Service; empty: no Lease is known */
    json_t *lease, *slices;
    json_t *rejected; /* Events GPUAllocationFailed */
    const json_t *view;
    bool no_lease;
};
/* Why no pod of this cluster can get a card: no extender runs, none leads, one was not asked about
 * a pod within the last hour, nor about a pod that is still there since (true), or kube-scheduler
 * does not call it, which it need not where no node passes its own filters. Appends a line for
 * each, which begins with "! "; nothing: none is known. */
bool cluster_state_write_outage(struct buf *out, const struct cluster_state *cs,
                                const struct session_extender *extender, int64_t now_s);
/* The same, read from the API server and the view (NULL: none). */
bool session_write_outage(struct buf *out, struct session *s, const json_t *view);

/*
 * The unit of aliyun.com/gpu-mem when no option sets it: MiB if the capacity of a node has
 * more units per card than any GPU has GiB, else GiB. Works with a state of any unit.
 */
bool session_counts_mib(const struct node_resources *capacity);
int64_t session_unit_of_cluster(const struct cluster_state *cs);
