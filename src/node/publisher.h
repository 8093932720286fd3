/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/step.h"
#include "kube/informer.h"
#include "node/card_inventory.h"
#include "node/podresources.h"
#include "node/usage.h"

/*
 * scv-agent as one deterministic step function:
 *
 *     publisher_step(publisher, now, input, outputs)
 *
 * No thread, lock, socket, clock or log is inside. Inputs are events (a sample, a watch
 * event, an answer, a tick). Outputs are actions (a call, a watch) and log lines.
 *
 * Three objects
 *
 * - The Node is only read, for its UID. It owns the other two objects, so that the
 *   garbage collector removes them with it. They are created only after a GET that was
 *   sent after they were found missing has returned the Node. No Node, no Scv.
 * - The Scv has the last sample. It is written when its content differs from the last
 *   write, or when another client changed a member that we write. Each write names the
 *   resourceVersion that it is based on; after a conflict the object is read and written
 *   again. Members and labels of other clients stay. spec.updateInterval is written at
 *   the creation and never again.
 *   What containers and processes use is in every write, and causes one only after
 *   `refresh_ms`, like other slow fields.
 * - The Lease is the heartbeat. It vouches for the Scv: it is renewed only while the
 *   driver responds, the Scv is watched, and no write is overdue. The health checks ask
 *   the same functions.
 */

/* Annotation of an Scv: its problems in words; absent when there is none. */
#define KEY_MESSAGE "gpushare/message"

enum {
    PUBLISHER_CALL_MS = 5000,        /* timeout of a call */
    PUBLISHER_STUCK_MS = 60 * 1000,  /* a call that takes longer hangs, and is given up */
    PUBLISHER_ABANDONED = 3,         /* such calls in a row: only a restart helps */
    PUBLISHER_HANGS_MS = 300 * 1000, /* the thread of the watch: it also connects */
    PUBLISHER_MIN_INTERVAL_MS = 100, /* bounds of spec.updateInterval */
    PUBLISHER_MAX_INTERVAL_MS = 3600 * 1000,
    PUBLISHER_MISSING_MS = 10 * 1000, /* interval of attempts to load a missing NVML */
};

struct publisher_settings {
    const char *node;           /* name of the Node, Scv and Lease */
    int64_t interval_ms;        /* spec.updateInterval of a new Scv */
    int64_t refresh_ms;         /* between two writes that only slow fields cause */
    int64_t renew_ms, grace_ms; /* of the Lease */
    int64_t late_ms;            /* tolerated failure of the API server */
    int64_t sampler_limit_ms;   /* beyond the interval: the driver does not respond */
    bool with_pods;             /* PUBLISHER_PODS inputs are expected */
    int64_t pods_limit_ms;      /* podList is dropped after this time without an answer */
    struct card_inventory_settings cards;
    uint64_t seed; /* for the jitter of retries */
};

/* Calls of different lanes run in parallel; a lane has one call at a time. */
enum publisher_lane {
    PUBLISHER_LANE_SCV,
    PUBLISHER_LANE_LEASE,
    PUBLISHER_LANE_NODE,
    PUBLISHER_LANES
};
extern const char *const publisher_lane_names[PUBLISHER_LANES];

enum publisher_input_type {
    PUBLISHER_TICK,         /* see publisher_due */
    PUBLISHER_SAMPLED,      /* `sample`, or `err` */
    PUBLISHER_EVENT,        /* `event` of a card */
    PUBLISHER_PODS,         /* `pods`, or `err`: the kubelet did not answer */
    PUBLISHER_USAGE,        /* `usage`; `err`: why some of it is unknown */
    PUBLISHER_OBJECT,       /* the Scv, of a list or watch; `gone`: deleted */
    PUBLISHER_LIST_STARTED, /* a complete list of the Scv begins ... */
    PUBLISHER_LIST_ENDED,   /* ... and ends: unless it has shown the Scv, there is none */
    PUBLISHER_ANSWER,       /* of a call */
};

/* Who owns an object, by its owner references. */
struct api_owner {
    bool other;    /* something that is no Node */
    uint64_t node; /* the hash of a Node's UID; 0: none */
};

/* The members that scv-agent reads of an Scv, a Lease and a Node. */
struct api_object {
    struct object_meta meta;
    struct api_owner owner;
    struct span message; /* annotation; {NULL, 0}: none */
    int64_t interval_ms; /* spec.updateInterval; 0 or less: none */
    struct span status;  /* its JSON */
    struct scv scv;      /* only the cards; none when the status is malformed */
};

/* Everything in an input is borrowed for the duration of the step. */
struct publisher_input {
    enum publisher_input_type type;
    const struct informer_status *watch; /* of the Scv; NULL: as in the input before */
    const struct gpu_sample *sample;
    uint8_t
        isolation; /* SAMPLED: what this node can enforce, for the Scv; 0: not known */
    struct span
        no_isolation; /* ... and why it cannot enforce what it must; empty: it can */
    /* SAMPLED: the dialect of this node, for the Scv; {NULL, 0}: what the Scv has is right */
    struct span dialect;
    bool unserved; /* ... if it has one: else it is unserved */
    const struct gpu_event *event;
    struct podresources *pods; /* the step adds a reference */
    struct usage *usage;       /* taken: left empty */
    bool gone;
    const struct api_object *object; /* OBJECT; ANSWER: the object, or NULL */
    uint64_t call;                   /* ANSWER */
    const struct err *err;           /* the failure; NULL or code ERR_NONE: none */
    int64_t retry_after_ms;          /* Retry-After of the answer; 0: none */
};

enum publisher_output_type {
    PUBLISHER_RELIST,   /* list the Scv instead of waiting for the watch */
    PUBLISHER_CREATE,   /* calls, with `lane` and `call`: POST the Scv `body` */
    PUBLISHER_PATCH,    /* merge patch of the Scv */
    PUBLISHER_GET_NODE, /* consistently */
    PUBLISHER_CREATE_LEASE,
    PUBLISHER_PATCH_LEASE,
    PUBLISHER_ABANDON, /* the call in flight in `lane` does not return: make later ones beside it */
};

/* Strings live until step_outputs_reset. */
struct publisher_output {
    enum publisher_output_type type;
    enum publisher_lane lane;
    uint64_t call; /* returned with the answer; every call gets exactly one answer */
    const char *body;
};

struct publisher;

/* New. The names in the settings are borrowed. */
struct publisher *publisher_new(const struct publisher_settings *settings,
                                struct step_time now);
void publisher_free(struct publisher *p); /* NULL is accepted */

/* Takes one input; appends to outputs, whose items are struct publisher_output. */
void publisher_step(struct publisher *p, struct step_time now,
                    const struct publisher_input *in, struct step_outputs *outputs);

/* Whether the answer of a call is still awaited. One that is not need not be made. */
bool publisher_awaits(const struct publisher *p, uint64_t call);

/* The monotonic time of the next PUBLISHER_TICK that has an effect. */
int64_t publisher_due(const struct publisher *p);

/* Milliseconds from one sample to the next. */
int64_t publisher_interval(const struct publisher *p);
/* Whether the source must be reopened to find a card that came back. */
bool publisher_any_lost(const struct publisher *p);
/* The published cards; borrowed, until the next step. */
const struct card_inventory *publisher_cards(const struct publisher *p);
/* What containers use, as measured last; empty when that is not current. Borrowed, until
 * the next step. */
const struct usage *publisher_usage(const struct publisher *p);

/* -- health checks -- */

enum publisher_check {
    PUBLISHER_CHECK_CARDS,     /* the cards are sampled */
    PUBLISHER_CHECK_WATCH,     /* the Scv is watched */
    PUBLISHER_CHECK_SCV,       /* no write of the Scv is overdue */
    PUBLISHER_CHECK_NODE,      /* the Node is known */
    PUBLISHER_CHECK_HEARTBEAT, /* the Lease is renewed */
    PUBLISHER_CHECK_PODS,      /* the kubelet answers podresources calls */
    PUBLISHER_CHECKS,
};
const char *publisher_check_name(enum publisher_check check);
/* Whether the driver responds, if only with a failure. The heartbeat vouches for no more. */
int publisher_check_driver(const struct publisher *p, struct step_time now,
                           struct err *err);
/* 0, or -1 with the reason. `required` NULL: for /healthz. Else for /readyz: 0 only once the API
 * server has accepted the Scv and the Lease and shown the Node. *required: whether a rolling update
 * must wait for the check. It must not wait for a driver that fails or hangs, and for the heartbeat
 * that stops with it: no version of the program repairs those. But for PUBLISHER_FIRST_MS it waits
 * for the first sample, so that a version that fails everywhere does not replace every pod at
 * once. */
enum { PUBLISHER_FIRST_MS = 2 * 60 * 1000 };
int publisher_check(const struct publisher *p, struct step_time now,
                    enum publisher_check check, bool *required, struct err *err);
/* For /livez: -1 when a thread hangs, which only a restart repairs. */
int publisher_live(const struct publisher *p, struct step_time now, struct err *err);
