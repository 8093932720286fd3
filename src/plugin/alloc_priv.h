/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "plugin/alloc.h"

/*
 * The machine, in pieces: alloc.c (cards, the kubelet, time), alloc_pod.c, alloc_ask.c
 * (the life of a question), alloc_grant.c (a good answer), alloc_who.c (which pod),
 * alloc_pick.c (which ids), alloc_audit.c (is what the kubelet shows what was promised),
 * alloc_out.c.
 */

/* A pod of this node. */
struct pupil {
    struct plan *plan;
    uint64_t list;        /* in which it was seen last */
    uint64_t refused_era; /* of the kubelet in which it was refused */
    bool given;           /* its cards are our choice, nobody promised them */
    bool written;         /* and its annotations were sent */
    bool own_env_told, mismatch_told;
    int64_t patched_ms; /* when it was last marked as assigned; 0: not yet */
    int64_t audited_ms;
    int64_t since_ms; /* when it was first seen */
    struct pupil *next;
};

/* An id that the kubelet named. */
struct unit {
    const struct plugin_card *card;
    int64_t number; /* -1: the whole card */
};

enum ask_state {
    ASK_NEW,
    ASK_LOOKING, /* podresources was asked */
    ASK_WAITING, /* for news, or until retry_ms */
};

/* A question of the kubelet that is not answered yet. */
struct ask {
    enum alloc_ask_type type;
    enum ids_resource resource;
    uint64_t token, serial;
    int64_t size;
    struct unit *ids, *must;
    size_t n_ids, n_must;
    size_t n_unknown; /* ids that are none of ours */
    char unknown[64]; /* one of them */
    enum ask_state state;
    bool waited, cancelled, get_done;
    bool pressed; /* for news, by a list */
    int64_t began_ms, until_ms, retry_ms;
    uint64_t query;
    uint64_t news; /* of the API server, when it was looked at last */
    enum alloc_refusal why;
    char text[400];
    struct arena arena;
    struct ask *next;
};

/* What was found out of an ask: which container of which pod. */
struct found {
    struct pupil *pupil;
    size_t container;
};

/* What GetPreferredAllocation was answered, until the Allocate that follows. */
struct offer {
    bool valid;
    enum ids_resource resource;
    char uid[80];
    size_t container;
};

/* A pod of the kubelet that the API server did not tell of. */
struct stranger {
    char *ns, *name;
    uint64_t serial; /* of the ask that met it first; 0: none yet */
    bool former;     /* the API server did tell, and that it is gone */
    struct stranger *next;
};

struct alloc {
    struct alloc_settings settings;
    char *node;
    struct cards cards;
    struct grants grants;
    struct pupil *pupils; /* in the order in which they came */
    uint64_t list, news, era, serial, queries;
    bool listed;
    bool no_get;      /* the kubelet has no Get */
    struct ask *asks; /* oldest first */
    struct offer offer;
    struct stranger *strangers;
    int64_t due_ms;
    uint64_t audit_query, audit_serial; /* 0: none is out */
    bool audit_all;                     /* it was a List */
    int64_t audit_asked_ms, audit_next_ms;
    int64_t heard_ms;       /* of podresources, be it an error */
    struct trouble kubelet; /* with podresources */
    bool dirty;             /* grants have changed since the last SAVE */
    struct alloc_stats stats;
};

/* alloc_out.c */
struct alloc_output *alloc_out_add(struct alloc_outputs *out,
                                   enum alloc_output_type type);
const char *alloc_out_text(struct alloc_outputs *out, struct span s);
const char *alloc_out_printf(struct alloc_outputs *out, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void alloc_out_note(struct alloc_outputs *out, enum log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void alloc_out_event(struct alloc_outputs *out, const struct plan *pod,
                     const char *reason, const char *text);
void alloc_out_patch(struct alloc_outputs *out, const struct plan *pod,
                     const char *annotations);
void alloc_out_save(struct alloc *a,
                    struct alloc_outputs *out); /* if something changed */
void alloc_out_id(struct buf *out, const struct unit *unit);
/* "GPU-... (index 0)", for messages. In the outputs' arena. */
const char *alloc_out_card(struct alloc_outputs *out, const struct plugin_card *card);

/* alloc_pod.c */
void pupil_free(struct pupil *p);
struct pupil *pupil_find(const struct alloc *a, struct span uid);
struct pupil *pupil_named(const struct alloc *a, struct span ns, struct span name);
/* Has every container of the pod been handed out? */
bool pupil_is_complete(const struct alloc *a, const struct pupil *p);
/* Marks it in the API when it has, and is not marked yet. */
void pupil_mark(struct alloc *a, struct alloc_time now, struct pupil *p,
                struct alloc_outputs *out);
/* For one without a promise that has been handed ids (by us, before a restart): its cards
 * are what it was given. */
void pupil_give_from_grants(struct alloc *a, struct pupil *p);
/* Writes annotations that say what it was given. */
void pupil_write_given(struct alloc *a, struct alloc_time now, struct pupil *p,
                       struct alloc_outputs *out);

/* alloc.c */
bool read_unit(const struct alloc *a, enum ids_resource r, struct span text,
               struct unit *unit);
void alloc_hurry(struct alloc *a, int64_t at_ms); /* a tick matters then */

/* alloc_ask.c */
void ask_retry_all(struct alloc *a, struct alloc_time now, struct alloc_outputs *out);
void ask_tick(struct alloc *a, struct alloc_time now, struct alloc_outputs *out);
void ask_shown(struct alloc *a, struct alloc_time now, struct ask *ask,
               const struct alloc_shown *shown, struct alloc_outputs *out);
void ask_free(struct ask *ask);

/* What to do with an ask. */
enum verdict { VERDICT_YES, VERDICT_WAIT, VERDICT_NO };
/* Sets reason and words. Returns `verdict`. */
enum verdict ask_say(struct ask *ask, enum verdict verdict, enum alloc_refusal why,
                     const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* alloc_grant.c */
/* Writes down that the container has the ids of the ask, and answers. */
void grant_ask(struct alloc *a, struct alloc_time now, struct ask *ask,
               const struct found *f, struct alloc_outputs *out);

/* alloc_who.c */
/* Of what List shows: which container is it? */
enum verdict who_of_list(struct alloc *a, int64_t now_ms, struct ask *ask,
                         const struct alloc_shown *shown, struct found *found);
/* The newest ones are kept. */
struct stranger *who_add_stranger(struct alloc *a, struct span ns, struct span name);
void who_forget_strangers(struct alloc *a);
/* The pod has had its answer: it is not the one that later asks are about. */
void who_met(struct alloc *a, const struct plan *pod, uint64_t serial);
/* The pod whose plain init container holds all these ids, and its next container. */
bool who_reuses(const struct alloc *a, const struct ask *ask, struct found *found);
/* Does the kubelet show that the pod lacks something of ours, and which container is
 * next? */
bool who_lacks(const struct alloc *a, const struct pupil *p,
               const struct shown_pod *shown, size_t *next);

/* alloc_pick.c */
/* Ids for the container: of its cards, that nobody holds. */
enum verdict pick_ids(struct alloc *a, struct ask *ask, const struct found *f,
                      struct unit **ids, size_t *n);
/* Are the ids of the ask what the container may have? */
enum verdict pick_check(struct alloc *a, struct ask *ask, const struct found *f);
/* Can the container be given anything at all: is there a promise, a card ... */
enum verdict pick_promise(struct alloc *a, struct ask *ask, const struct found *f);
const struct plugin_card *pick_card(const struct alloc *a, const struct plan_share *s);
/* How many units of the card the container may have. */
size_t pick_may_have(const struct alloc *a, const struct found *f,
                     const struct plugin_card *card);
/* The grant that stands in the way of giving the unit to container `f`; NULL: none. */
const struct grant *pick_holder(const struct alloc *a, const struct found *f,
                                const struct unit *unit);

/* alloc_audit.c */
/* Takes in what the kubelet shows of some pods, or of all. */
void audit_shown(struct alloc *a, struct alloc_time now, const struct alloc_shown *shown,
                 bool all, struct alloc_outputs *out);
void audit_tick(struct alloc *a, struct alloc_time now, struct alloc_outputs *out);
void audit_answer(struct alloc *a, struct alloc_time now, const struct alloc_shown *shown,
                  struct alloc_outputs *out);
