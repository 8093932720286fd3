/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/node_scv.h"
#include "agent/publisher.h"
#include "base/jwrite.h"

/* One call at a time, and the time of the next. */
struct lane {
    bool busy;
    uint64_t call;
    enum publisher_output_type type;   /* of the call in flight, or the last one */
    enum publisher_output_type failed; /* of the last call that failed */
    int64_t sent_ms;
    int64_t due_ms;        /* the next call is not made before */
    unsigned conflicts;    /* in a row */
    struct step_failure failure;
};

/* The Scv of the last list, watch event or answer. */
struct observed {
    bool listed; /* at least once */
    bool exists;
    int64_t missing_since_ms;
    struct buf version;
    uint64_t hash; /* of the members that we write */
    bool has_message;
    bool owned;          /* has an owner reference */
    int64_t interval_ms; /* spec.updateInterval; 0: none */
};

/* The input of the last write. */
struct written {
    bool any;
    struct buf status; /* without the slow fields and the time */
    struct buf message;
    uint64_t hash; /* of the answer */
    bool hash_known;
    struct node_scv_numbers numbers;
    int64_t at_ms;
};

struct publisher {
    struct publisher_settings settings;
    struct rng rng;
    uint64_t last_id;
    int64_t stepped_ms; /* the time of the last step */
    struct lane lanes[PUBLISHER_LANES];

    /* the cards */
    struct card_inventory *cards;
    bool sampled;        /* a sample succeeded or failed at least once */
    bool sampling_works; /* the last sample succeeded */
    bool silent;         /* it was logged that the driver does not respond */
    int64_t started_ms, sampled_ms, taken_wall_ns;

    struct arena scratch;

    /* podList */
    struct podresources *pods; /* NULL: not known */
    bool pods_failure_logged;
    int64_t pods_ms;

    /* what containers use */
    struct usage usage;
    struct buf usage_failure; /* logged */

    /* the Scv */
    struct observed observed;
    struct written written;
    struct buf want, want_message; /* the content to write */
    int64_t pending_since_ms;      /* a write is pending since then; -1: none */
    bool want_list;
    int64_t list_due_ms; /* a broken watch causes no list before */
    bool published;      /* at least one write succeeded */
    int64_t owner_tried_ms;

    /* the watch */
    uint64_t run;
    bool watching;
    struct buf watch_version;
    int64_t alive_ms, broken_since_ms, watch_due_ms;
    int64_t watch_ms; /* when the watch was started */
    unsigned watch_failures;

    /* the Node and the Lease */
    struct buf node_uid;
    int64_t node_seen_ms;    /* when the last GET that found it was sent; -1: never */
    int64_t node_unknown_ms; /* unknown since; -1: known */
    bool lease_missing;
    int64_t lease_missing_ms;
    bool lease_owned;
    int64_t renewed_ms;
    bool withheld;      /* the Lease is deliberately not renewed */
    int64_t clamped_ms; /* the invalid interval that was logged */
};

struct step {
    struct publisher *p;
    struct step_time now;
    const struct publisher_input *in;
    struct step_outputs *out;
};

/* publisher.c */
/* A log line; a warning unless the code is ERR_NONE. */
#define publisher_log(s, subject, code, ...)                                             \
    step_log((s)->out, (code) == ERR_NONE ? LOG_INFO : LOG_WARN, subject, code,          \
             __VA_ARGS__)
void publisher_call(struct step *s, enum publisher_output_type type,
                    enum publisher_lane lane, const struct buf *body);
/* Notes a failed call and schedules the retry. The text is logged when the error is new,
 * then once a minute. */
void publisher_call_failed(struct step *s, enum publisher_lane lane, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void publisher_call_succeeded(struct step *s, enum publisher_lane lane, const char *call);
/* Milliseconds to wait after the n-th failure in a row. */
int64_t publisher_backoff(struct publisher *p, unsigned failures, int64_t retry_after_ms);
enum err_code publisher_error_code(const struct publisher_input *in);
/* Writes the owner reference to the Node. */
void publisher_write_owner(const struct publisher *p, struct jwrite *w);

/* Takes the cards of the Scv that the previous process published. */
void publisher_adopt(struct step *s, const struct scv *scv);
/* Whether a GET that was sent at `since_ms` or later returned the Node. If none was sent,
 * the step sends one. */
bool publisher_node_seen_since(const struct publisher *p, int64_t since_ms);

/* publisher_scv.c */
void publisher_scv_observe_answer(struct step *s);
void publisher_scv_observe_watch(struct step *s);
void publisher_scv_tick(struct step *s);
/* Renders the status and the message that the Scv should have. */
void publisher_scv_render(struct publisher *p);
