/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/card_inventory.h"
#include "agent/agent_object.h"
#include "agent/container_devices.h"

/*
 * scv-agent as one deterministic publisher:
 *
 *     publisher_step(publisher, now, input, outputs)
 *
 * No thread, lock, socket, clock or log is inside. Inputs are what has happened (the
 * cards were sampled, the object was seen or is gone, a call was answered, time went by);
 * outputs are what is to be done (a call, a watch, a line of the log).
 *
 * Three objects
 *
 * - The Node is only read, for its UID. It owns the other two, so that nothing is left
 *   behind when it is removed; and they are only created when a look that was taken after
 *   they were found missing has shown the Node. No Node, no Scv.
 * - The Scv is what the last sample says. It is written when that differs from what was
 *   written last, or when somebody else has changed what we write. Each write names the
 *   version it is for; who meets a conflict reads the object and writes again. Members
 *   and labels of others stay. spec.updateInterval is written when the object is created
 *   and never again.
 * - The Lease is the heartbeat. It vouches for the Scv, so it is renewed only while the
 *   cards answer, the watch of the Scv is alive, and nothing has been waiting to be
 * written for too long. Health (publisher_check) is asked the same question.
 */

enum {
    PUBLISHER_CALL_MS = 5000,       /* the time limit of a call */
    PUBLISHER_STUCK_MS = 60 * 1000, /* a call that is not even given up: its thread hangs */
    PUBLISHER_SILENT_MS = 150 * 1000, /* an open watch without a sign of life */
    PUBLISHER_MIN_INTERVAL_MS = 100,  /* bounds of spec.updateInterval */
    PUBLISHER_MAX_INTERVAL_MS = 3600 * 1000,
    PUBLISHER_MISSING_MS = 10 * 1000, /* between two looks for an NVML that is missing */
};

struct publisher_settings {
    const char *node; /* name of the Node, Scv and Lease */
    const char *lease_namespace;
    int64_t interval_ms;        /* spec.updateInterval of a new Scv */
    int64_t refresh_ms;         /* between two writes for the slow fields alone */
    int64_t renew_ms, grace_ms; /* of the Lease */
    int64_t late_ms;            /* trouble with the API server that is let pass */
    int64_t sampler_limit_ms;   /* beyond the interval: then the sampler hangs */
    bool with_pods;             /* inputs PUBLISHER_PODS will come */
    int64_t pods_limit_ms;      /* without news: the list of pods is not published */
    struct card_inventory_settings cards;
    uint64_t seed; /* for the jitter of retries */
};

struct publisher_time {
    int64_t mono_ms, wall_ms;
};

/* Calls that must not wait behind each other; one at a time in each lane. */
enum publisher_lane {
    PUBLISHER_LANE_SCV,
    PUBLISHER_LANE_LEASE,
    PUBLISHER_LANE_NODE,
    PUBLISHER_LANES
};

enum publisher_input_type {
    PUBLISHER_TICK,        /* time went by; see publisher_due */
    PUBLISHER_SAMPLED,     /* `sample`, or `err` */
    PUBLISHER_EVENT,       /* `event` of a card */
    PUBLISHER_PODS,        /* `pods`, or `err` */
    PUBLISHER_OBJECT,      /* the watch shows the Scv; `gone`: it was deleted */
    PUBLISHER_WATCH_ALIVE, /* it was opened, or a bookmark came */
    PUBLISHER_WATCH_ENDED,
    PUBLISHER_ANSWER, /* of a call */
};

/* Everything in an input is borrowed for the duration of the step. */
struct publisher_input {
    enum publisher_input_type type;
    const struct gpu_sample *sample;
    const struct gpu_event *event;
    const struct container_devices *pods;
    uint64_t run;        /* of the watch; inputs of an older one are ignored */
    struct span version; /* WATCH_ALIVE: resourceVersion, or empty; ANSWER of a list */
    bool gone;
    const struct agent_object *object; /* OBJECT; ANSWER: what came back, or NULL */
    uint64_t call;                     /* ANSWER */
    const struct err *err;  /* what went wrong; NULL or code ERR_NONE: nothing */
    int64_t retry_after_ms; /* -1: the server did not say */
};

enum publisher_output_type {
    PUBLISHER_WATCH,    /* watch the Scv from `version`; ends the watch before */
    PUBLISHER_LIST,     /* calls, with `lane` and `call`: the Scv, consistently */
    PUBLISHER_CREATE,   /* POST the Scv `body` */
    PUBLISHER_PATCH,    /* merge patch of the Scv */
    PUBLISHER_GET_NODE, /* consistently */
    PUBLISHER_CREATE_LEASE,
    PUBLISHER_PATCH_LEASE,
    PUBLISHER_LOG, /* for the log: `text`; ERR_NONE is good news */
};

/* Strings live until publisher_outputs_reset. */
struct publisher_output {
    enum publisher_output_type type;
    uint64_t run;
    const char *version;
    enum publisher_lane lane;
    uint64_t call; /* to be given back with the answer; every call gets exactly one */
    const char *body;
    enum err_code code;
    const char *text;
};

struct publisher_outputs {
    struct publisher_output *items;
    size_t n, cap;
    struct arena arena;
};
void publisher_outputs_fini(struct publisher_outputs *outputs);
static inline bool publisher_is_call(const struct publisher_output *o)
{
    return o->type != PUBLISHER_WATCH && o->type != PUBLISHER_LOG;
}

struct publisher;

/* New. The settings are copied. */
struct publisher *publisher_new(const struct publisher_settings *settings,
                            struct publisher_time now);
void publisher_free(struct publisher *m); /* NULL is fine */

/* Takes one input; appends to outputs. */
void publisher_step(struct publisher *m, struct publisher_time now,
                  const struct publisher_input *in, struct publisher_outputs *outputs);

/* The monotonic time at which the next PUBLISHER_TICK matters. */
int64_t publisher_due(const struct publisher *m);

/* How long the sampler waits from one sample to the next. */
int64_t publisher_interval(const struct publisher *m);
/* Should the source begin anew, to see cards that came back? */
bool publisher_any_lost(const struct publisher *m);
/* The cards as they are published; borrowed, until the next step. */
const struct card_inventory *publisher_cards(const struct publisher *m);

/* -- how it goes -- */

enum publisher_check {
    PUBLISHER_CHECK_CARDS,     /* the sampler answers */
    PUBLISHER_CHECK_WATCH,     /* the Scv is watched */
    PUBLISHER_CHECK_SCV,       /* what is to be written is written */
    PUBLISHER_CHECK_NODE,      /* the Node is known */
    PUBLISHER_CHECK_HEARTBEAT, /* the Lease is renewed */
    PUBLISHER_CHECK_PODS,      /* the kubelet says who holds what */
    PUBLISHER_CHECKS,
};
const char *publisher_check_name(enum publisher_check part);
/* 0, or -1 with what is wrong with it. */
int publisher_check(const struct publisher *m, struct publisher_time now,
                  enum publisher_check part, struct err *err);
/* The same for a rolling update: 1 where there is nothing to wait for. It goes on past a
 * node whose driver hangs, with which the heartbeat stops, too: no version can do
 * anything about that. But for PUBLISHER_FIRST_MS it waits for the first answer of the
 * driver, because a version that gets none anywhere must not run through the cluster at
 * once. */
enum { PUBLISHER_FIRST_MS = 2 * 60 * 1000 };
int publisher_ready(const struct publisher *m, struct publisher_time now,
                  enum publisher_check part, struct err *err);
/* -1: a thread does not move any more, and only a new process can help. */
int publisher_live(const struct publisher *m, struct publisher_time now, struct err *err);
