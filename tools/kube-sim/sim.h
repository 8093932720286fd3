/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/list.h"
#include "base/rng.h"
#include "base/str.h"
#include "base/thread.h"
#include "wire/httpd.h"

/*
 * A Kubernetes API server in memory, pure: (request, now) -> reply, and events for
 * watches. It has no socket, thread, lock or clock, and the same requests give the same
 * replies. So the deterministic simulator can run it, and kube-sim puts HTTP in front.
 *
 * Our programs are tested against it, so it shares no code with domain, core or kube, and
 * parses with jansson. It keeps each object as serialized bytes and copies them into lists.
 *
 * Served: namespaces, nodes, pods, events, configmaps, secrets (v1), leases (coordination.k8s.io),
 * events (events.k8s.io; a separate resource here, while a real server shows the same
 * objects in both groups), scvs (core.run-linux.com), and discovery. docs/testing.md
 * lists the differences from a real server.
 */

struct api;
struct api_watch;

struct api_config {
    uint64_t seed;        /* of UIDs, generated names, watch timeouts */
    size_t history;       /* events kept per resource for watches; 0: 100,000 */
    size_t history_bytes; /* of old object states kept per resource; 0: 64 MiB */
    uint64_t version;     /* the first resourceVersion is the next one; versions
                                up to this one count as compacted */
    int64_t now_ms;       /* creation time of the initial namespaces */
    bool run_pods;        /* play the kubelet: run bound pods, remove deleted ones */
};

struct api_request {
    const char *method;       /* "GET", "POST", "PUT", "PATCH", "DELETE" */
    const char *path;         /* decoded, without query */
    const char *query;        /* raw, "" if none */
    const char *content_type; /* or NULL */
    struct span body;
};

struct api_reply {
    unsigned status;
    struct buf body;          /* JSON */
    const char *content_type; /* static; NULL: application/json */
    int64_t retry_after_s;    /* for a Retry-After header, if > 0 */
    struct api_watch *watch;  /* new, if the request opened a watch; body is empty then */
};
void api_reply_fini(struct api_reply *r); /* frees the watch too; steal it to keep it */

struct api *api_new(const struct api_config *config);
void api_free(struct api *api); /* all its watches must have been freed */

/* now_ms: milliseconds since 1970. `reply` is zeroed by the caller. */
void api_handle(struct api *api, int64_t now_ms, const struct api_request *req,
                struct api_reply *reply);
/* Does what is due by now_ms: removes pods after their grace period, starts pods. */
void api_tick(struct api *api, int64_t now_ms);

/* Appends the next line of the watch with its newline. Returns 1 if it appended a line, 0
 * if there is none now, -1 when the watch has ended (timeout, or 410 was delivered). */
int api_watch_next(struct api_watch *w, int64_t now_ms, struct buf *out);
void api_watch_free(struct api_watch *w);                  /* NULL is accepted */
const char *api_watch_resource(const struct api_watch *w); /* "pods"; static */

typedef void (*api_wake_fn)(void *ctx);
/* Calls `wake` at a change that this watch will deliver, at most once between two calls of
 * api_watch_next that return 0. Bookmarks and the timeout do not call it. */
void api_watch_on_ready(struct api_watch *w, api_wake_fn wake, void *ctx);
/* Calls `wake` after every change of any object. */
void api_on_change(struct api *api, api_wake_fn wake, void *ctx);

/* Discards the history like an etcd compaction: older watches and continue tokens get
 * 410. */
void api_compact(struct api *api);

/* Simulates a stale watch cache: while frozen, reads with resourceVersion=0 return the
 * state of this moment. Other reads return the current state. False: no such resource. */
bool api_freeze(struct api *api, const char *resource, bool frozen);

/* Creates or replaces the objects of a JSON array, or a single object, with their status,
 * UID and creation time. Creates missing namespaces. */
int api_load(struct api *api, int64_t now_ms, struct span json, struct err *err);

/* Sets who has which token and may do what, for TokenReview and SubjectAccessReview: the
 * JSON of docs/testing.md. */
int api_set_access(struct api *api, struct span json, struct err *err);

uint64_t api_version(const struct api *api); /* the newest resourceVersion */
size_t api_count(const struct api *api, const char *resource); /* number of objects */

/* The target of a request, for fault rules and counters. */
struct api_target {
    const char *verb; /* get list watch create update patch delete deletecollection, "" */
    const char *resource;      /* "pods", static */
    const char *group;         /* "" for core, static */
    struct span ns, name, sub; /* {NULL, 0} when not in the path; borrowed from it */
};
/* False: the path is not a served resource. */
bool api_classify(const struct api_request *req, struct api_target *target);

/*
 * Fault injection rules and request counters. Pure: it returns the fault, and the caller
 * applies it.
 *
 * Each request is checked against the rules in order; the first rule that matches and
 * fires applies. A reply can be lost before or after the change is made, so each fault
 * exists in both variants.
 *
 * A rule is a JSON object:
 *
 *   "method": "POST"          an absent member matches every request
 *   "verb": "create"          get list watch create update patch delete
 *   "resource": "pods"
 *   "group": "apps"           "" is the core group
 *   "subresource": "binding"  "" matches requests without a subresource
 *   "namespace": "default"
 *   "name": "p"               a prefix; never matches a request without a name
 *   "nth": 3                  fires from the third matching request on (1)
 *   "times": 2                for two requests (1 with "nth", else unlimited)
 *   "action": "answer"        answer: reply with `status`, do not execute
 *                             apply-answer: execute, then reply with `status`
 *                             cut: reset the connection, do not execute
 *                             apply-cut: execute, then reset the connection
 *                             hang: wait `hangMs`, then execute and reply
 *                             hang-cut: wait `hangMs`, then reset the connection
 *   "status": 503             of answer and apply-answer (500)
 *   "retryAfter": 1           seconds (no header)
 *   "hangMs": 2000            (until the request times out)
 */

enum fault_action {
    FAULT_NONE,
    FAULT_ANSWER,
    FAULT_APPLY_ANSWER,
    FAULT_CUT,
    FAULT_APPLY_CUT,
    FAULT_HANG,
    FAULT_HANG_CUT,
};

struct fault {
    enum fault_action action;
    unsigned status;
    int64_t retry_after_s; /* 0: none */
    int64_t hang_ms;       /* INT64_MAX: until the request times out */
};

struct faults;

struct faults *faults_new(void);
void faults_free(struct faults *f);

/* Adds a rule or an array of rules: all, or none on error. */
int faults_add(struct faults *f, struct span json, struct err *err);
void faults_clear(struct faults *f); /* all rules */

/* Counts the request and returns its fault. */
struct fault faults_check(struct faults *f, const char *method,
                          const struct api_target *target);

/* {"rules": [{..., "matched": n, "fired": n}]} */
void faults_write(const struct faults *f, struct buf *out);

/* {"requests": [{"method", "verb", "resource", "group", "subresource", "count"}]} in the
 * order of their first request. */
void faults_write_counters(const struct faults *f, struct buf *out);

/* Appends the Status body of a reply with this status. */
void faults_status(const struct fault *fault, struct buf *out);

/* Loads the objects of a YAML or JSON file: one or more documents, each an object or a
 * List. Skips objects of kinds that are not served with a warning; everything else that
 * cannot be loaded is an error. */
int manifest_load(struct api *api, int64_t now_ms, const char *path, struct err *err);

/*
 * Generates a cluster: nodes with cards, their Scv objects and Leases, and pods that hold
 * memory on the cards, all of realistic size. The same parameters give the same objects.
 */

struct generate {
    int64_t nodes, cards, pods; /* cards and pods: per node */
    int64_t mib;                /* per card */
    int64_t unit;               /* MiB of one aliyun.com/gpu-mem */
    int64_t full;               /* percent of the nodes that have no free GPU memory */
    int64_t node_bytes,
        pod_bytes; /* approximate size, padded with managedFields; 0: no padding */
    int64_t seed;
    bool uuid; /* write card UUIDs into Scv objects and pods */
    bool
        links; /* write what connects the cards: quads of NVLinks, each card linked to the next
                    quad */
    bool scvs;   /* create Scv objects */
    bool leases; /* create heartbeat Leases */
};

/* "nodes=100,cards=8,pods=4,mib=81920,full=30,uuid=1,...": absent
 * parameters keep their default (generate_defaults). */
int generate_parse(struct span text, struct generate *g, struct err *err);
extern const struct generate generate_defaults;

int generate_run(const struct generate *g, struct api *api, int64_t now_ms,
                 struct err *err);

/*
 * The HTTP server of the API: one lock, a thread per connection, watches that sleep until
 * an event arrives. Requests under /kube-sim/ inject faults (docs/testing.md).
 */

struct sim_server;

struct sim_server_config {
    const char *address;              /* "127.0.0.1" */
    unsigned port;                    /* 0: a free one */
    const char *token;                /* NULL: no authentication */
    const char *cert_file, *key_file; /* both NULL: plain HTTP */
    unsigned connections;             /* maximum; 0: 1024 */
};

/* Serves `api`, which is borrowed; only the server uses it until sim_server_stop. Sets
 * *port. NULL on error. */
struct sim_server *sim_server_start(struct api *api,
                                    const struct sim_server_config *config,
                                    unsigned *port, struct err *err);
/* api_tick under the lock. */
void sim_server_tick(struct sim_server *s, int64_t now_ms);
/* Ends all requests and watches, and frees the server. NULL is accepted. */
void sim_server_stop(struct sim_server *s);

/*
 * Additions to jansson: paths, release at the end of a scope, spans and buffers.
 */

void sim_jsonx_cleanup(json_t **j);
#define cleanup_json_value __attribute__((cleanup(sim_jsonx_cleanup)))

/* Parses exactly one JSON value. New; NULL on error. */
json_t *sim_jsonx_parse(struct span text, struct err *err);
/* Writes compact JSON, members in insertion order. */
void sim_jsonx_dump(struct buf *out, const json_t *j);

/* The value at a path of member names joined by dots ("spec.nodeName"); borrowed; NULL
 * when a step is missing, is no object, or the value is null. */
json_t *sim_jsonx_at(const json_t *j, const char *path);
/* The string at the path; {NULL, 0} when there is none. Borrowed. */
struct span sim_jsonx_span(const json_t *j, const char *path);
/* The string at the path, "" when there is none. Borrowed. */
const char *sim_jsonx_str(const json_t *j, const char *path);
int64_t sim_jsonx_int(const json_t *j, const char *path, int64_t otherwise);
struct span sim_jsonx_text(const json_t *string);

/* The object under the key; creates it, and replaces a value of another type. Borrowed. */
json_t *sim_jsonx_make(json_t *j, const char *key);
void sim_jsonx_set_str(json_t *object, const char *key, const char *value);
void sim_jsonx_set_int(json_t *object, const char *key, int64_t value);
/* Sets the string if there is nothing at the key. */
void sim_jsonx_default_str(json_t *object, const char *key, const char *value);

/* Removes members that are null, at every depth: absent and null mean the same. */
void sim_jsonx_strip_nulls(json_t *j);

/* "string", "number", ... for error messages. */
const char *sim_jsonx_type(const json_t *j);

/*
 * The served resources: one row each. Everything that differs between them is in the row or
 * in a function of the row.
 *
 * Private functions of this folder begin with sim_: test programs link kube-sim together
 * with the product, which has stores, pods and quantities too.
 */

struct faultlist;

enum { KINDS_N = 10 };

struct field {
    const char *name;      /* in the selector: "spec.nodeName" */
    const char *path;      /* of the value in the object; NULL: same as name */
    const char *otherwise; /* value if the member is absent; NULL: "" */
};

struct kind {
    const char *group; /* of version v1; "" is the core group */
    const char *plural, *singular, *kind;
    bool namespaced;
    bool status;      /* has a status subresource; other updates keep the status */
    bool binding;     /* has the binding subresource */
    bool graceful;    /* deleted with a grace period (pods) */
    bool custom;      /* a custom resource */
    bool versioned;   /* PUT needs metadata.resourceVersion */
    bool core_faults; /* validation errors name the kind without its group */
    const struct field *fields; /* for field selectors; ends with a NULL name */
    const char *shape;          /* types of known members, see sim_shape_check */

    /* Sets the defaults of the API server at creation. May be NULL. */
    void (*fill)(json_t *object);
    /* Validates the object. `old` is NULL at creation. May be NULL. */
    void (*check)(const json_t *object, const json_t *old, struct faultlist *f);
};

extern const struct kind sim_kinds[KINDS_N];

size_t sim_kind_index(const struct kind *k);
const struct kind *sim_kind_by_type(struct span group_version, struct span kind);
/* The first kind with this plural in any group. */
const struct kind *sim_kind_by_resource(struct span plural);
void sim_kind_add_group_version(const struct kind *k, struct buf *out);
/* Appends "/api/v1" or "/apis/GROUP/VERSION". */
void sim_kind_add_root(const struct kind *k, struct buf *out);
/* Does the path begin with a served group and version ("/api/v1/...")? */
bool sim_kind_knows_path(struct span path);
/* "pods", or "leases.coordination.k8s.io". */
void sim_kind_add_resource(const struct kind *k, struct buf *out);
/* The key of an object: "default/p1", or "n1" in cluster scope. Clears `out`. */
struct span sim_kind_key(const struct kind *k, struct span ns, struct span name,
                         struct buf *out);
/* Index of the path in kind->fields; -1: not a selectable field. */
int sim_kind_field(const struct kind *k, struct span path);

/*
 * One state of one object: its serialized bytes, and the values that selectors match.
 *
 * Immutable and reference-counted: the store, the history, lists that are being sent and
 * frozen snapshots share the bytes. The count is atomic, because a thread without the
 * API's lock may release a list.
 */

struct object_label {
    struct span key, value;
};

struct object {
    unsigned refs;
    const struct kind *kind;
    uint64_t rv;
    struct span key; /* "namespace/name", or "name" in cluster scope */
    struct span ns;  /* {NULL, 0} in cluster scope */
    struct span name;
    struct span uid;
    struct span bytes;  /* the object as JSON, starting with kind and apiVersion */
    size_t head;        /* bytes up to the end of "apiVersion":"...", */
    size_t rv_at, rv_n; /* the digits of metadata.resourceVersion in bytes */
    bool deleting;      /* metadata.deletionTimestamp is set */
    size_t n_labels;
    struct object_label *labels;
    struct span *fields; /* one for each of kind->fields */
};

/* Sets metadata.resourceVersion in `root` and serializes it, with members in this order:
 * kind, apiVersion, metadata (names, uid and version first), others. New. */
struct object *sim_object_new(const struct kind *kind, json_t *root, uint64_t rv);
struct object *sim_object_ref(struct object *o);
void sim_object_unref(struct object *o); /* NULL is accepted */

/* The object as a tree. New. */
json_t *sim_object_parse(const struct object *o);
/* Appends the bytes with this resourceVersion. */
void sim_object_add_bytes(const struct object *o, uint64_t rv, struct buf *out);
/* Appends the object as an item of a list: without kind and apiVersion for built-in
 * kinds. */
void sim_object_add_item(const struct object *o, struct buf *out);

/*
 * All objects of one kind, in the order of their keys, and the history of their changes.
 *
 * The history has two readers: a watch reads it forward from its position; a list of a past
 * version undoes the changes since that version. So the pages of a long list need no copy
 * of the store, only the version of the first page.
 */

enum change { CHANGE_ADDED, CHANGE_MODIFIED, CHANGE_DELETED };

struct sim_event {
    enum change change;
    uint64_t rv;
    struct object *now;  /* of a deletion: the last state, with the deletion's version */
    struct object *prev; /* NULL for an addition */
};

struct store {
    const struct kind *kind;
    struct object **items;
    size_t n, cap;
    struct sim_event *ring; /* event number s is at s & (ring_cap - 1) */
    size_t ring_cap;
    uint64_t first_seq, next_seq; /* events first_seq <= s < next_seq are kept */
    size_t max_events, max_bytes;
    size_t bytes;      /* of states that only the history references */
    uint64_t floor_rv; /* every change after this version is kept */
};

void sim_store_init(struct store *s, const struct kind *kind, size_t max_events,
                    size_t max_bytes);
void sim_store_fini(struct store *s);

struct object *sim_store_find(const struct store *s,
                              struct span key); /* borrowed; NULL */
/* Index of the first object with a key >= `key`. */
size_t sim_store_lower(const struct store *s, struct span key);

/* Adds the object, or replaces the object with the same key. Takes `o`. */
void sim_store_put(struct store *s, struct object *o);
/* Removes the object with last's key; `last` is its last state. Takes `last`. */
void sim_store_remove(struct store *s, struct object *last);

/* An event by its number, which must be in the history. */
const struct sim_event *sim_store_event(const struct store *s, uint64_t seq);
/* Number of the first event after the version. */
uint64_t sim_store_seq_after(const struct store *s, uint64_t rv);
/* Discards the history up to `rv`, the newest version. */
void sim_store_compact(struct store *s, uint64_t rv);

/* Walks the objects at version rv in key order, from the first key >= `from`, until `each`
 * returns false. Requires rv >= floor_rv. */
typedef bool (*store_each_fn)(void *ctx, struct object *o);
void sim_store_walk(const struct store *s, uint64_t rv, struct span from,
                    store_each_fn each, void *ctx);

/* The state of an API server. */

/* An action on an object at a later time, if the object still has the same UID then. */
struct timer {
    int64_t at_ms;
    enum timer_action { TIMER_REMOVE, TIMER_RUN } what;
    struct object *object; /* shared; kind, key and UID identify the object */
};

struct frozen {
    bool on;
    uint64_t rv;
    struct object **items; /* shared */
    size_t n;
};

struct api {
    struct api_config config;
    uint64_t rv; /* the newest version; each change increments it */
    struct rng rng;
    struct store stores[KINDS_N];
    struct frozen frozen[KINDS_N];
    struct list watches[KINDS_N]; /* of struct api_watch: open watches */
    struct timer *timers;
    size_t n_timers, cap_timers;
    json_t *access; /* rules of the reviews, or NULL */
    api_wake_fn wake;
    void *wake_ctx;
};

struct store *sim_api_store(struct api *api, const struct kind *kind);

/* The query of a URL, decoded. */

enum { QUERY_MAX = 32 };

struct query {
    char *text;
    struct {
        struct span key, value;
    } pairs[QUERY_MAX]; /* further pairs are ignored */
    size_t n;
};

void sim_query_init(struct query *q, const char *raw); /* NULL is an empty query */
void sim_query_fini(struct query *q);
#define cleanup_query __attribute__((cleanup(sim_query_fini)))

/* The first value of the key; {NULL, 0} if it is absent or empty. */
struct span sim_query_get(const struct query *q, const char *key);
bool sim_query_has(const struct query *q, const char *key);
/* As in the API server: absent, "false" and "0" are false; any other value is true. */
bool sim_query_bool(const struct query *q, const char *key);
/* Reads a whole number; `otherwise` if absent. ERR_INVALID: not a whole number. */
int sim_query_int(const struct query *q, const char *key, int64_t otherwise, int64_t *out,
                  struct err *err);
/* Reads ?timeout=, such as "3s" or "500ms". 0: absent, which means no limit. */
int sim_query_timeout_ms(const struct query *q, int64_t *ms, struct err *err);

/* The resource, object or subresource of a path. */
struct route {
    const struct kind *kind; /* NULL: not a served resource */
    struct span ns;          /* {NULL, 0}: cluster scope or all namespaces */
    struct span name;        /* {NULL, 0}: the collection */
    struct span sub;         /* {NULL, 0}: the object itself */
};

struct route sim_route_parse(const char *path);

/*
 * The Status object of error replies and successes without a body, and the validation
 * errors of an object (reason Invalid).
 */

struct status_about {
    const char *group; /* "" for core; may be NULL */
    const char *kind;  /* the resource ("pods"), or the kind, as Kubernetes has it */
    struct span name;
    const char *uid; /* or NULL */
    json_t *causes;  /* array or NULL; borrowed */
    int64_t retry_s; /* details.retryAfterSeconds, if > 0 */
};

/* Appends a Status object. `reason` may be NULL; `about` may be NULL. */
void sim_status_write(struct buf *out, unsigned code, const char *reason,
                      const char *message, const struct status_about *about);
/* The 504 of a real server's timeout handler, which writes a Status without kind as
 * text. */
void sim_status_write_timeout(struct buf *out);
#define SIM_STATUS_TIMEOUT_TYPE "text/plain; charset=utf-8"
void sim_status_write_success(struct buf *out, unsigned code,
                              const struct status_about *about);

/* The default reason of a code: "Conflict" for 409. */
const char *sim_status_reason(unsigned code);

/* Validation errors by field. {0} is empty. */
struct faultlist {
    json_t *causes; /* array of {reason, message, field} */
    struct buf text;
    size_t n;
};

void sim_faultlist_fini(struct faultlist *f);
#define cleanup_faultlist __attribute__((cleanup(sim_faultlist_fini)))

void sim_fault_invalid(struct faultlist *f, const char *field, struct span value,
                       const char *detail);
/* `message` is a format. */
void sim_fault(struct faultlist *f, const char *reason, const char *field,
               const char *message, ...) __attribute__((format(printf, 4, 5)));
void sim_fault_required(struct faultlist *f, const char *field, const char *detail);
void sim_fault_forbidden(struct faultlist *f, const char *field, const char *detail);
void sim_fault_too_long(struct faultlist *f, const char *field, size_t limit);

/* One request and its replies. */

struct call {
    struct api *api;
    int64_t now_ms;
    const struct api_request *req;
    struct api_reply *reply;
    struct route route;
    struct store *store; /* of route.kind */
    struct query query;
};

/* The object of the route, borrowed; NULL: the request has been refused with 404. */
struct object *sim_call_object(struct call *c);

/* Each sim_refuse function writes an error reply and returns -1. */

/* `reason` NULL: the default one of the code, and no `about`. */
int sim_refuse_with(struct call *c, unsigned code, const char *reason,
                    const struct status_about *about, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
#define sim_refuse(c, code, ...) sim_refuse_with(c, code, NULL, NULL, __VA_ARGS__)
/* 500 without a reason: the reply of a real server to an unexpected error. */
#define sim_refuse_unknown(c, ...) sim_refuse_with(c, 500, "", NULL, __VA_ARGS__)
#define SIM_ABOUT(k, n)                                                                  \
    &(struct status_about)                                                               \
    {                                                                                    \
        .group = (k)->group, .kind = (k)->plural, .name = (n)                            \
    }
int sim_refuse_not_found(struct call *c, const struct kind *kind, struct span name);
int sim_refuse_modified(struct call *c);  /* stale resourceVersion */
int sim_refuse_namespace(struct call *c); /* another one than in the URL */
/* A failed precondition: `what` is "UID" or "ResourceVersion". */
int sim_refuse_precondition(struct call *c, const char *what, struct span wanted,
                            struct span found);
/* Compares uid and resourceVersion, if `wanted` has them, with those of the object. */
int sim_check_preconditions(struct call *c, const json_t *wanted, const struct object *o,
                            bool deletion);
int sim_refuse_no_version(struct call *c); /* 422: the update lacks a resourceVersion */
/* 422: the patched object does not match the types of its kind. */
int sim_refuse_patch(struct call *c, const json_t *object, const char *why);
int sim_refuse_invalid(struct call *c, struct span name, const struct faultlist *f);
void sim_answer_object(struct call *c, unsigned code, const struct object *o);

/* Every change of an object: assigns the version, records the event, notifies watches. */

/* Stores a new state of an object (a tree). The result is borrowed until the next
 * change. */
const struct object *sim_change_put(struct api *api, const struct kind *kind,
                                    json_t *root);
/* Removes the object. Returns its last state, borrowed until the next change. */
const struct object *sim_change_remove(struct api *api, const struct object *o);
/* Schedules an action on the object for the first api_tick at or after at_ms. */
void sim_change_schedule(struct api *api, int64_t at_ms, enum timer_action what,
                         const struct object *o);

/* The defaults and validation of each kind except Pod, beyond types and metadata: functions
 * for struct kind. */

void sim_fill_namespace(json_t *object);
void sim_fill_node(json_t *object);
void sim_fill_event(json_t *object);
void sim_fill_lease(json_t *object);
void sim_fill_secret(json_t *object);
void sim_check_event(const json_t *object, const json_t *old, struct faultlist *f);
void sim_check_secret(const json_t *object, const json_t *old, struct faultlist *f);
void sim_check_scv(const json_t *object, const json_t *old, struct faultlist *f);

/* Shared by the files of the HTTP server. */

enum { RETRY_AFTER_MAX = 60 };

struct sim_server {
    struct tls *tls; /* NULL: plain HTTP */
    struct httpd *httpd;
    char *authorization;                  /* required Authorization header, or NULL */
    char seconds[RETRY_AFTER_MAX + 1][4]; /* "0".."60", for Retry-After headers */

    pthread_mutex_t lock; /* protects the members below and the API */
    pthread_cond_t stopped;
    bool is_stopping;
    struct api *api;
    struct faults *faults;
    struct list streams;   /* of struct stream: open watches */
    uint64_t compressed;   /* compressed replies so far */
    bool stalled[KINDS_N]; /* index: the first kind of that plural */
};

static inline int64_t front_now_ms(void)
{
    return clock_wall_ns() / 1000000;
}

/* The requests under /kube-sim/: fault rules, counters, history (docs/testing.md). */
void sim_control_handle(struct sim_server *s, const struct httpd_request *req,
                        struct httpd_reply *reply);

/* The objects of a generated cluster. */

/* The node that is being generated. */
struct gen_node {
    const struct generate *g;
    int64_t index;
    char name[32], uid[40];
    const char *now; /* RFC 3339 */
    int64_t now_ns;
    struct rng rng;    /* of this node alone */
    char (*uuids)[48]; /* of its cards */
};

/* A pod's cards on its node. */
struct gen_pod {
    int64_t index;       /* on the node */
    int64_t card, cards; /* first card, and how many */
    int64_t units;       /* on each of them */
};

/*
 * Compressed replies, by the rules of a real API server: replies of more than 128 KiB,
 * except watches, at level 1, if the client accepts gzip.
 */

enum { SIM_GZIP_ABOVE = 128 * 1024 };

/* Does the header (NULL: absent) name gzip? As in a real server, an entry with a weight
 * ("gzip;q=1") does not count. */
bool sim_gzip_wanted(const char *accept_encoding);

/*
 * The selection of a list or watch: namespace, label selector, field selector.
 */

struct selector_term;

struct selector {
    char *text; /* the selectors' text; the terms point into it */
    struct selector_term *terms;
    size_t n, cap;
    struct span ns; /* {NULL, 0}: every namespace; borrowed from text */
};

/* Spans may be {NULL, 0}. Returns -1 with ERR_INVALID if a selector is malformed or names
 * a field that is not selectable for the kind. */
int sim_selector_init(struct selector *s, const struct kind *kind, struct span ns,
                      struct span labels, struct span fields, struct err *err);
void sim_selector_fini(struct selector *s);
bool sim_selector_match(const struct selector *s, const struct object *o);

/* GET of a collection. */
void sim_list_handle(struct call *c);

/* Parses the selectors of the query. -1: the request has been refused. */
int sim_list_selector(struct call *c, struct selector *s);

/* The objects that match `s` at version rv, shared: the initial events of a watch. */
struct object **sim_list_collect(struct store *store, const struct selector *s,
                                 uint64_t rv, size_t *n);

/* api_load of a tree without nulls. Changes the tree. ERR_NOT_FOUND: its kind is not
 * served. */
int sim_load_tree(struct api *api, int64_t now_ms, json_t *object, struct err *err);

/* The metadata of every kind. */

/* Validates name, labels and annotations. Requires sim_shape_check of the metadata. */
void sim_meta_check(const struct kind *kind, const json_t *object, struct faultlist *f);

/* Prepares `object` to replace `old`: copies absent members that the server owns (uid,
 * creation time, deletion), and adds a fault if one differs. */
void sim_meta_carry_over(json_t *object, const json_t *old, struct faultlist *f);

/* The syntax of Kubernetes names. */

bool sim_name_is_dns_label(struct span s);     /* up to 63 of [a-z0-9-] */
bool sim_name_is_dns_subdomain(struct span s); /* labels joined by dots, up to 253 */
bool sim_name_is_qualified(
    struct span s); /* [subdomain/]name: label and annotation keys */
bool sim_name_is_label_value(struct span s); /* up to 63, may be empty */

extern const char sim_name_dns_label_rule[];
extern const char sim_name_dns_subdomain_rule[];
extern const char sim_name_qualified_rule[];
extern const char sim_name_label_value_rule[];

/* Pods. The first two are functions for struct kind. */

void sim_pod_fill(json_t *pod);
void sim_pod_check(const json_t *pod, const json_t *old, struct faultlist *f);

/* Grace period of a deletion in seconds: `asked`, or the pod's own if `asked` is negative.
 * 0 for pods without a node, and for pods that have ended. */
int64_t sim_pod_grace_s(const json_t *pod, int64_t asked);

/* Sets the condition SchedulingGated of a new pod with scheduling gates. */
void sim_pod_gate(json_t *pod, int64_t now_ms);
/* Sets a condition; lastTransitionTime changes only with the condition's status. */
void sim_pod_set_condition(json_t *pod, const char *type, const char *status,
                           int64_t now_ms);

/* Sets the status that the kubelet writes when all containers have started. */
void sim_pod_run(json_t *pod, int64_t now_ms);

/*
 * Resource quantities ("8", "500m", "2Gi", "1e3").
 *
 * An API server normalizes every quantity to its shortest exact form: "1000" becomes "1k",
 * and "1024Mi" becomes "1Gi".
 */

enum quantity_form { QUANTITY_DECIMAL, QUANTITY_BINARY, QUANTITY_EXPONENT };

struct quantity {
    __extension__ __int128 nano; /* in units of 1e-9; smaller parts are rounded up */
    enum quantity_form form;     /* notation of the input */
};

bool sim_quantity_parse(struct span s, struct quantity *q);
void sim_quantity_format(struct quantity q, struct buf *out);
bool sim_quantity_is_whole(struct quantity q);

/*
 * TokenReview and SubjectAccessReview, answered by rules that a test sets
 * (docs/testing.md). A review is not stored.
 */

/* The resource of a path, such as "tokenreviews", and its group; NULL: not a review. */
const char *sim_review_resource(const char *path, const char **group);
void sim_review_handle(struct call *c);

/*
 * The types of the known members of each kind. A real server decodes a body into typed
 * structs and refuses members of another type. Members that are not listed are kept
 * unchecked.
 */

/* The first member with a wrong type. */
struct shape_fault {
    char where[160];    /* "status.cardList[0].id" */
    const char *given;  /* the actual type, or the invalid text */
    const char *wanted; /* the schema's type: "integer" */
    struct err err;     /* with the message of Go's decoder */
};

/*
 * A shape has a line "path type" for each known member; [] in the path means each element.
 * The types: object, string, int, bool, objects and strings (arrays), texts (an object whose
 * values are strings), amounts (an object whose values are quantities, which are
 * normalized), time (RFC 3339), micro (with six decimals). -1: *fault is set.
 */
int sim_shape_check(const char *shape, json_t *object, struct shape_fault *fault);

/* Streamed bodies: watches and long lists. */

/* Applies the order to the watches of a resource, NULL for all. Returns their number. The
 * caller holds the lock. */
enum stream_order {
    STREAM_CUT,   /* reset the connections */
    STREAM_END,   /* end the watches cleanly, like a server that shuts down */
    STREAM_COUNT, /* count only */
    STREAM_WAKE,  /* check for events to send */
};
size_t sim_stream_order(struct sim_server *s, const char *resource,
                        enum stream_order order);

/* The continue token of a list: its version, and the last key of the page. */
void sim_token_write(struct buf *out, uint64_t rv, struct span last);
/* Appends the first key of the next page to `start`. False: not a valid token. */
bool sim_token_read(struct span text, uint64_t *rv, struct buf *start);

/* GET of a collection with ?watch. */
void sim_watch_handle(struct call *c);

/* Wakes the watches of a kind that deliver this event. */
void sim_watch_notify(struct api *api, size_t kind, const struct sim_event *e);

/* The requests that change objects. Each writes the reply. */

void sim_create_handle(struct call *c);   /* POST on a collection */
void sim_update_handle(struct call *c);   /* PUT and PATCH of an object or its status */
void sim_delete_handle(struct call *c);   /* DELETE of an object */
void sim_binding_handle(struct call *c);  /* POST on pods/NAME/binding */
void sim_eviction_handle(struct call *c); /* POST on pods/NAME/eviction */

/* Parses the body, checks its types and removes nulls. New; NULL: the request has been
 * refused. */
json_t *sim_body_object(struct call *c);
/* The same of a subresource of pods, which has a kind of its own. */
json_t *sim_body_of(struct call *c, const char *kind, const char *shape);
/* Refuses a body, or a patched object, that has members of the wrong type. */
int sim_body_check(struct call *c, json_t *object, bool patched);
/* Is this the content type, without parameters? An absent content type is JSON. */
bool sim_body_is(const struct call *c, const char *type);

/* Sets the members of a new object (UID, creation time, defaults) and validates it. `keep`
 * keeps the given UID, creation time and version (api_load). */
int sim_create_prepare(struct call *c, json_t *object, bool keep);
