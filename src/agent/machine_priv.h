/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/machine.h"
#include "base/rng.h"

/* One call at a time, and when the next may be made. */
struct lane {
    bool busy;
    uint64_t call;
    enum machine_output_type type;   /* of the call under way, or the last one */
    enum machine_output_type failed; /* of the last call that failed */
    int64_t sent_ms;
    int64_t due_ms;     /* not before */
    unsigned failures;  /* in a row */
    struct err trouble; /* the last failure; code ERR_NONE: there is none */
    int64_t noted_ms;   /* when it was told */
};

/* The Scv as it was seen last. */
struct seen {
    bool listed; /* at least once */
    bool exists;
    int64_t missing_since_ms; /* when it was found missing */
    struct buf uid, version;
    uint64_t shown; /* of what we write: a hash */
    bool has_message;
    bool owned;          /* by our Node */
    struct buf owners;   /* the references to others, with commas between them */
    int64_t interval_ms; /* that it asks for; 0: none */
};

/* What the last write was made of. */
struct written {
    bool any;
    struct buf status; /* without the slow fields and the time */
    struct buf message;
    uint64_t shown; /* of the answer */
    bool shown_known;
    int32_t slow[GPU_MAX_CARDS][2];
    int64_t at_ms;
};

/* Of which card the log has said what. */
struct health_seen {
    char uuid[96];
    int32_t index;
    bool healthy;
};

struct machine {
    struct machine_settings settings;
    char *node, *lease_namespace;
    struct rng rng;
    uint64_t last_id;
    int64_t stepped_ms; /* the time of the last step */
    struct lane lanes[MACHINE_LANES];

    /* the cards */
    struct inventory *cards;
    struct health_seen *told; /* what was said of each card */
    size_t n_told;
    bool sampled;        /* at least once, well or not */
    bool sampling_works; /* the last time */
    bool silent;         /* it was told that the sampler hangs */
    int64_t started_ms, sampled_ms, taken_wall_ms;

    /* who holds what: the texts are in the arena */
    struct pods pods;
    struct arena pods_arena, scratch;
    bool has_pods, pods_noted;
    int64_t pods_ms;

    /* the Scv */
    struct seen seen;
    struct written written;
    struct buf want, want_message; /* what should be written */
    int64_t waiting_since_ms;      /* something is to be written since then; -1: no */
    bool want_list;
    bool published; /* a write of ours has succeeded */
    int64_t owner_tried_ms;

    /* the watch */
    uint64_t run;
    bool watching, open;
    struct buf watch_version;
    int64_t alive_ms, broken_since_ms, watch_due_ms;
    int64_t watch_ms; /* when the watch was started */
    unsigned watch_failures;

    /* the Node and the Lease */
    struct buf node_uid;
    int64_t node_seen_ms;    /* when the last look that found it was sent; -1: never */
    int64_t node_unknown_ms; /* since when it is not known */
    bool lease_missing;
    int64_t lease_missing_ms;
    bool lease_owned;
    struct buf lease_owners;
    int64_t renewed_ms;
    bool withheld;
    int64_t clamped_ms; /* the interval about which was complained */
};

struct step {
    struct machine *m;
    struct machine_time now;
    const struct machine_input *in;
    struct machine_outputs *out;
};

/* machine.c */
void machine_note(struct step *s, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
struct machine_output *machine_call(struct step *s, enum machine_output_type type,
                                    enum machine_lane lane, const struct buf *body);
/* The failure of a call: told when it is new, or once a minute. */
void machine_failed(struct step *s, enum machine_lane lane, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void machine_worked(struct step *s, enum machine_lane lane, const char *what);
/* For the n-th failure in a row. */
int64_t machine_pause(struct machine *m, unsigned failures, int64_t retry_after_ms);
enum err_code machine_code(const struct machine_input *in);
/* A list of owner references: those of others and ours. */
void machine_add_owners(const struct machine *m, struct buf *out,
                        const struct buf *others);
/* Takes the references to others out of an object; answers whether ours is there. */
bool machine_read_owners(const struct machine *m, const struct agent_object *o,
                         struct buf *others);

/* machine_gpu.c */
void gpu_sampled(struct step *s);
void gpu_happened(struct step *s);
void gpu_pods(struct step *s);
void gpu_time(struct step *s);
void gpu_adopt(struct step *s, const struct scv *scv);

/* machine_scv.c */
void scv_answered(struct step *s);
void scv_object(struct step *s);
void scv_time(struct step *s);
void scv_render(struct step *s);

/* machine_watch.c */
void watch_alive(struct step *s);
void watch_ended(struct step *s);
void watch_again(struct step *s);
void watch_time(struct step *s);

/* machine_node.c */
void node_answered(struct step *s);
void node_time(struct step *s);
/* Was the Node there at a look that was sent later than that? If not, one is sent. */
bool node_seen_since(struct step *s, int64_t since_ms);

/* machine_lease.c */
void lease_answered(struct step *s);
void lease_time(struct step *s);
