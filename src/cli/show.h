/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "cli/cluster_state.h"
#include "cli/table.h"

/*
 * A cluster_state as tables for users, and as JSON or YAML for programs. Nodes are sorted
 * by name, cards by index, pods by namespace and name.
 */

enum show_format { SHOW_TABLE, SHOW_WIDE, SHOW_JSON, SHOW_YAML };

struct show {
    enum show_format format;
    bool details; /* tables: also show pods */
    bool colors;
    bool usage;        /* tables: show only pods, with promises and use */
    struct span ns;    /* only pods of this namespace; empty: all */
    struct span node;  /* only this node; empty: all nodes with GPUs or promises */
    bool unit_assumed; /* say that the memory unit is an assumption */
    int64_t now_s;     /* since 1970, for ages */
};

/* The nodes to show, or the pods, sorted; allocated in the arena. Nodes without GPUs and
 * without promises are left out unless `only` names them. */
size_t show_nodes(const struct ledger *l, struct span only, struct arena *a,
                  const struct ledger_node ***out);
size_t show_pods_on(const struct ledger_node *node, struct arena *a,
                    const struct ledger_pod ***out);

/* Words and amounts that all formats share. */
/* Follows the health of a cordoned node's cards; kubectl's own word. */
#define SHOW_CORDONED "SchedulingDisabled"
const char *show_health(enum card_state out); /* "Healthy", "Unhealthy", ... */
/* MiB in units, with one decimal unless it is a whole number of units: "2", "1.8". */
void show_amount(struct buf *out, int64_t mib, int64_t unit_mib);
/* The same with the unit, "1.8 GiB", as the argument of one printf. */
struct show_units {
    char s[64];
};
struct show_units show_units(int64_t mib, int64_t unit_mib);
/* Appends the line which says that the unit is an assumption. */
void show_unit_assumed(struct buf *out, int64_t unit_mib);
/* Appends why the node is unusable for every pod; nothing if it is usable. */
void show_state(struct buf *out, const struct ledger_node *node);

/* False: no such node. */
bool show_write(struct buf *out, const struct cluster_state *cs, const struct show *show);
/* The value as indented JSON or as YAML. */
void show_dump(struct buf *out, const json_t *j, bool yaml);
