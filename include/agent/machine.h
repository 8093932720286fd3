/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/inventory.h"
#include "agent/object.h"
#include "agent/pods.h"

/*
 * scv-agent as one deterministic machine:
 *
 *     machine_step(machine, now, input, outputs)
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
 * written for too long. Health (machine_check) is asked the same question.
 */

enum {
    MACHINE_CALL_MS = 5000,       /* the time limit of a call */
    MACHINE_STUCK_MS = 60 * 1000, /* a call that is not even given up: its thread hangs */
    MACHINE_SILENT_MS = 150 * 1000, /* an open watch without a sign of life */
    MACHINE_MIN_INTERVAL_MS = 100,  /* bounds of spec.updateInterval */
    MACHINE_MAX_INTERVAL_MS = 3600 * 1000,
    MACHINE_MISSING_MS = 10 * 1000, /* between two looks for an NVML that is missing */
};

struct machine_settings {
    const char *node; /* name of the Node, Scv and Lease */
    const char *lease_namespace;
    int64_t interval_ms;        /* spec.updateInterval of a new Scv */
    int64_t refresh_ms;         /* between two writes for the slow fields alone */
    int64_t renew_ms, grace_ms; /* of the Lease */
    int64_t late_ms;            /* trouble with the API server that is let pass */
    int64_t sampler_limit_ms;   /* beyond the interval: then the sampler hangs */
    bool with_pods;             /* inputs MACHINE_PODS will come */
    int64_t pods_limit_ms;      /* without news: the list of pods is not published */
    struct inventory_settings cards;
    uint64_t seed; /* for the jitter of retries */
};

struct machine_time {
    int64_t mono_ms, wall_ms;
};

/* Calls that must not wait behind each other; one at a time in each lane. */
enum machine_lane {
    MACHINE_LANE_SCV,
    MACHINE_LANE_LEASE,
    MACHINE_LANE_NODE,
    MACHINE_LANES
};

enum machine_input_type {
    MACHINE_TICK,        /* time went by; see machine_due */
    MACHINE_SAMPLED,     /* `sample`, or `err` */
    MACHINE_EVENT,       /* `event` of a card */
    MACHINE_PODS,        /* `pods`, or `err` */
    MACHINE_OBJECT,      /* the watch shows the Scv; `gone`: it was deleted */
    MACHINE_WATCH_ALIVE, /* it was opened, or a bookmark came */
    MACHINE_WATCH_ENDED,
    MACHINE_ANSWER, /* of a call */
};

/* Everything in an input is borrowed for the duration of the step. */
struct machine_input {
    enum machine_input_type type;
    const struct gpu_sample *sample;
    const struct gpu_event *event;
    const struct pods *pods;
    uint64_t run;        /* of the watch; inputs of an older one are ignored */
    struct span version; /* WATCH_ALIVE: resourceVersion, or empty; ANSWER of a list */
    bool gone;
    const struct agent_object *object; /* OBJECT; ANSWER: what came back, or NULL */
    uint64_t call;                     /* ANSWER */
    const struct err *err;  /* what went wrong; NULL or code ERR_NONE: nothing */
    int64_t retry_after_ms; /* -1: the server did not say */
};

enum machine_output_type {
    MACHINE_WATCH,    /* watch the Scv from `version`; ends the watch before */
    MACHINE_LIST,     /* calls, with `lane` and `call`: the Scv, consistently */
    MACHINE_CREATE,   /* POST the Scv `body` */
    MACHINE_PATCH,    /* merge patch of the Scv */
    MACHINE_GET_NODE, /* consistently */
    MACHINE_CREATE_LEASE,
    MACHINE_PATCH_LEASE,
    MACHINE_NOTE, /* for the log: `text`; ERR_NONE is good news */
};

/* Strings live until machine_outputs_reset. */
struct machine_output {
    enum machine_output_type type;
    uint64_t run;
    const char *version;
    enum machine_lane lane;
    uint64_t call; /* to be given back with the answer; every call gets exactly one */
    const char *body;
    enum err_code code;
    const char *text;
};

struct machine_outputs {
    struct machine_output *items;
    size_t n, cap;
    struct arena arena;
};
void machine_outputs_fini(struct machine_outputs *outputs);
static inline bool machine_is_call(const struct machine_output *o)
{
    return o->type != MACHINE_WATCH && o->type != MACHINE_NOTE;
}

struct machine;

/* New. The settings are copied. */
struct machine *machine_new(const struct machine_settings *settings,
                            struct machine_time now);
void machine_free(struct machine *m); /* NULL is fine */

/* Takes one input; appends to outputs. */
void machine_step(struct machine *m, struct machine_time now,
                  const struct machine_input *in, struct machine_outputs *outputs);

/* The monotonic time at which the next MACHINE_TICK matters. */
int64_t machine_due(const struct machine *m);

/* How long the sampler waits from one sample to the next. */
int64_t machine_interval(const struct machine *m);
/* Should the source begin anew, to see cards that came back? */
bool machine_any_lost(const struct machine *m);
/* The cards as they are published; borrowed, until the next step. */
const struct inventory *machine_cards(const struct machine *m);

/* -- how it goes -- */

enum machine_part {
    MACHINE_PART_CARDS,     /* the sampler answers */
    MACHINE_PART_WATCH,     /* the Scv is watched */
    MACHINE_PART_SCV,       /* what is to be written is written */
    MACHINE_PART_NODE,      /* the Node is known */
    MACHINE_PART_HEARTBEAT, /* the Lease is renewed */
    MACHINE_PART_PODS,      /* the kubelet says who holds what */
    MACHINE_PARTS,
};
const char *machine_part_name(enum machine_part part);
/* 0, or -1 with what is wrong with it. */
int machine_check(const struct machine *m, struct machine_time now,
                  enum machine_part part, struct err *err);
/* The same for a rolling update: 1 where there is nothing to wait for. It goes on past a
 * node whose driver hangs, with which the heartbeat stops, too: no version can do
 * anything about that. But for MACHINE_FIRST_MS it waits for the first answer of the
 * driver, because a version that gets none anywhere must not run through the cluster at
 * once. */
enum { MACHINE_FIRST_MS = 2 * 60 * 1000 };
int machine_ready(const struct machine *m, struct machine_time now,
                  enum machine_part part, struct err *err);
/* -1: a thread does not move any more, and only a new process can help. */
int machine_alive(const struct machine *m, struct machine_time now, struct err *err);
