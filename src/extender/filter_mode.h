/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/*
 * How a call of filter is answered, by what is known of the call: a table, pure.
 */

/* What is known: one value of each column. A row of the table has several. */
enum { FILTER_LIVE = 1, FILTER_SIMULATED = 2 }; /* SIMULATED: by template Nodes */
enum {
    FILTER_WANTS_ALL = 1,  /* by option or report, or no policy ranks nodes for the pod */
    FILTER_WANTS_BEST = 2, /* several */
    FILTER_WANTS_ONE = 4,  /* the best */
    FILTER_WANTS_PREFERRED = 8, /* one, and the pod has preferences of kube-scheduler */
};
enum { FILTER_SINGLE = 1, FILTER_WAITS = 2 }; /* WAITS: its gang needs places, too */
enum { FILTER_UNRESERVABLE = 1, FILTER_RESERVABLE = 2 };
enum { FILTER_FOLLOWER = 1, FILTER_LEADER = 2 };
struct filter_facts {
    unsigned char call, wants, gang, pod, replica;
};

/* One answer for all combinations of the facts of its row. */
struct filter_row {
    struct filter_facts facts;
    enum { FILTER_ALL, FILTER_BEST } answer;
    /* For whom cards are reserved; or why a gang gets none: on template Nodes each node is
     * rejected, a follower without its leader answers with 503. */
    enum {
        FILTER_RESERVE_NONE,
        FILTER_RESERVE_POD,
        FILTER_RESERVE_GANG,
        FILTER_GANG_SIMULATED,
        FILTER_GANG_UNLED,
    } reserve;
    /* Nodes where evictions could help are collected if none fits. Not for a gang that waits:
     * its other members need places, too. */
    bool find_victims;
};

enum { FILTER_ROWS = 10 };
extern const struct filter_row filter_rows[FILTER_ROWS];

/* The first row that has all of the facts. */
const struct filter_row *filter_row_of(const struct filter_facts *facts);
