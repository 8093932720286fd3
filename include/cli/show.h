/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "cli/table.h"
#include "cli/world.h"

/*
 * A world for people (tables) and for programs (JSON, which YAML is made of). Nodes by
 * name, cards by index, pods by namespace and name.
 */

enum show_form { SHOW_TABLE, SHOW_WIDE, SHOW_JSON, SHOW_YAML };

struct show {
    enum show_form form;
    bool details; /* tables: the pods, too */
    bool colours;
    struct span node; /* only that; empty: all that have, or had, something to do with
                         GPUs */
    bool guessed;     /* the unit; say so */
    int64_t now_s;    /* since 1970, for ages */
};

/* What is shown of a ledger, sorted; in the arena. Nodes without a GPU on which nothing
 * of ours is are left out unless named. */
size_t show_nodes(const struct ledger *l, struct span only, struct arena *a,
                  const struct ledger_node ***out);
size_t show_pods_on(const struct ledger_node *node, struct arena *a,
                    const struct ledger_pod ***out);
size_t show_waiting(const struct ledger *l, struct arena *a,
                    const struct ledger_pod ***out);

/* Words and amounts that all forms use. */
/* Of a cordoned node, behind the health of its cards: kubectl's word for it. */
#define SHOW_CORDONED "SchedulingDisabled"
const char *show_health(enum card_state out); /* "Healthy", "Unhealthy", ... */
/* MiB in units, with one decimal where it is no whole number of them: "2", "1.8". */
void show_amount(struct buf *out, int64_t mib, int64_t unit_mib);
/* That the unit is no more than likely: a line. */
void show_guess(struct buf *out, int64_t unit_mib);
/* Why the node gives nothing out at all; nothing is appended when it does. */
void show_state(struct buf *out, const struct ledger_node *node);

/* False: there is no such node. */
bool show_write(struct buf *out, const struct world *w, const struct show *show);
bool show_table(struct buf *out, const struct world *w, const struct show *show);
/* New; NULL: no such node. */
json_t *show_json(const struct world *w, const struct show *show);
/* The same text as JSON (indented) or as YAML. */
void show_dump(struct buf *out, const json_t *j, bool yaml);
/* A string of foreign bytes, new. */
json_t *show_string(struct span text);
