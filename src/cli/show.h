/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "cli/session.h"
#include "cli/table.h"

/*
 * A cluster_state as tables for users, and as JSON for programs: that of inspect
 * (view/inspect.h) with more members. Nodes are sorted by name, cards by index, pods by
 * namespace and name.
 */

struct show {
    enum show_format format;
    bool details;  /* tables: also show pods */
    bool topology; /* tables: also show what connects the cards */
    bool colors;
    bool usage;       /* tables: show only pods, with promises and use */
    struct span ns;   /* only pods of this namespace; empty: all */
    struct span node; /* only this node; empty: all nodes with GPUs or promises */
    int64_t now_s;    /* since 1970, for ages */
};

/* The nodes to show, sorted; allocated in the arena. Nodes without GPUs and without promises
 * are left out unless `only` names them. */
size_t show_nodes(const struct ledger *l, struct span only, struct arena *a,
                  const struct ledger_node ***out);

/* Words and amounts that all formats share. */
/* The arguments of "%.*s/%.*s", for what has a namespace and a name. */
#define SHOW_POD(p) SPAN_ARG((p)->ns), SPAN_ARG((p)->name)
/* Follows the health of a cordoned node's cards; kubectl's own word. */
#define SHOW_CORDONED "SchedulingDisabled"
/* The argument of one printf. */
struct show_text {
    char s[64];
};
/* MiB in units, with one decimal unless it is a whole number of units: "2", "1.8"; below 0:
 * "-". */
struct show_text show_amount(int64_t mib, int64_t unit_mib);
struct show_text show_units(int64_t mib, int64_t unit_mib); /* "1.8 GiB" */
const char *show_plural(size_t n);                          /* "s" unless n is 1 */
/* Of the list, the pod with this name; NULL: none. */
const struct ledger_pod *show_find_pod(const struct ledger_pod *first, struct span ns,
                                       struct span name);
/* Appends what enforces a promise, of SCV_ISOLATION_ bits: "driver,library", "nobody"; nothing if
 * that is unknown. */
void show_enforced(struct buf *out, uint8_t bits);

/* False: no such node. */
bool show_write(struct buf *out, const struct cluster_state *cs, const struct show *show);
json_t *show_json_text(struct span text);            /* new */
json_t *show_json_pod(const struct ledger_pod *pod); /* new: namespace, name, uid */
void show_dump(struct buf *out, json_t *j);          /* indented; consumes the value */
