/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/gang.h"
#include "extender/verbs_priv.h"
#include "placement/reason.h"

/* Internals of filter: verb_filter.c judges the candidates, verb_filter_template.c those
 * that do not exist yet, verb_filter_best.c chooses among those that fit. */

struct verb_filter {
    const struct verb_args *args;
    const struct ledger *ledger;
    const struct ledger_node *promised; /* node of the pod's promise, or NULL */
    bool has_promise;                   /* of any of the reads so far */
    bool simulated;                     /* unknown candidates are template Nodes */
    int64_t least_mib; /* of select_least_mib */
    struct prepared_reason reasons;
    uint32_t rejected[REASON_CLASSES]; /* number of nodes, by reason */
    struct buf *passed, *failed, *never;
    uint32_t *fitting; /* instead of `passed`: indexes of the nodes that fit; or NULL */
    struct score_node *nodes; /* ... and their nodes: NULL if not looked up */
    size_t n_fitting;
    bool found;                /* all of `nodes` are looked up */
    uint64_t generation;       /* the ledger's when the first of them was looked up */
    struct verbs_work *report; /* gets the nodes with victims; NULL: not wanted */
    const char
        *gang; /* why the pod's gang cannot start: rejects the nodes that fit; or NULL */
};

/* Everything is borrowed. `passed` gets the nodes that fit. */
struct verb_filter verb_filter_begin(const struct verbs *v, struct verbs_work *w,
                                     struct buf *passed);
/* Judges all candidates. Returns 200, or the status of the error reply. */
unsigned verb_filter_check(struct verbs *v, struct verbs_work *w, struct verb_filter *f);
/* Counts the verdict, and writes an event if the pod fits on no node. Of a simulation:
 * neither. */
void verb_filter_record(struct verbs *v, struct verbs_work *w,
                        const struct verb_filter *f, bool fits);

/* verb_filter_reply.c */

/* The candidates c[0..n) have been judged. Those that fit are passed, or collected in
 * f->fitting, or rejected because of the gang. nodes[k]: NULL if not looked up. */
void verb_filter_pass(struct verb_filter *f, const struct verb_candidate *c,
                      const struct ledger_node *const *nodes, const bool *fits, size_t n);
/* Passes one, whatever f->fitting and f->gang are. */
void verb_filter_answer(struct verb_filter *f, const struct verb_candidate *c);
/* `out` is f->failed or f->never. */
void verb_filter_reject(struct verb_filter *f, struct buf *out,
                        const struct verb_candidate *c, enum reason_class class,
                        const char *text);
/* The reason of reason_add_prepared. */
void verb_filter_explain(struct verb_filter *f, struct buf *out,
                         const struct verb_candidate *c, const struct ledger_node *node,
                         enum fit alone);
/* The reply before and after the nodes that fit. */
void verb_filter_begin_reply(const struct verbs_work *w, struct buf *reply);
void verb_filter_end_reply(const struct verbs_work *w, struct buf *reply);

/* verb_filter_template.c */

/* Does the ledger know no candidate, and is one a Node object that names its cards? */
bool verb_filter_is_simulation(struct verbs *v, const struct verb_args *args);
/* Judges a candidate of a simulation by its Node object: true if the pod fits. */
bool verb_filter_template(struct verb_filter *f, const struct verb_candidate *c);

/* verb_filter_best.c */

/* Answers with the best nodes. Returns 200, or the status of the error reply. `reserve`:
 * this process is to reserve cards on the first one. */
unsigned verb_filter_best(struct verbs *v, struct verbs_work *w, bool reserve,
                          struct buf *reply);
/* Answers for a member of a gang: with the node where its cards are reserved, beside
 * reservations for all other members, or with none, because the gang does not fit
 * together. */
unsigned verb_filter_gang(struct verbs *v, struct verbs_work *w, const struct gang *gang,
                          struct buf *reply);
/* The error reply for a member of a gang for which nothing can be reserved now. */
unsigned verb_filter_no_gang(const struct gang *gang, const char *why, struct buf *reply);
#define VERB_FILTER_NO_LEADER                                                             \
    "only the leader reserves cards for all members, and no leader answers"
