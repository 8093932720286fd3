/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/filter_mode.h"

enum {
    ANY = 0xff,
    SIM = FILTER_SIMULATED,
    ALL = FILTER_WANTS_ALL,
    BEST = FILTER_WANTS_BEST,
    ONE = FILTER_WANTS_ONE,
    PREF = FILTER_WANTS_PREFERRED,
    WAITS = FILTER_WAITS,
    CAN = FILTER_RESERVABLE,
    LEADS = FILTER_LEADER,
};

/* RESERVE_POD is also the answer of a follower whose leader did not answer: its core reserves
 * nothing (CORE_RESERVE_NOT_NOW), and the node is answered without a reservation. Preferences of a
 * pod are kept by answering with all nodes, except for a member of a gang that waits: its gang
 * would start half. */
const struct filter_row filter_rows[FILTER_ROWS] = {
    /* call, wants, gang, pod, replica */
    {{SIM, ONE | PREF, WAITS, ANY, ANY}, FILTER_ALL, FILTER_GANG_SIMULATED, false},
    {{SIM, ANY, ANY, ANY, ANY}, FILTER_ALL, FILTER_RESERVE_NONE, false},
    {{ANY, ONE | PREF, WAITS, ANY, LEADS}, FILTER_BEST, FILTER_RESERVE_GANG, false},
    {{ANY, ONE | PREF, WAITS, ANY, ANY}, FILTER_BEST, FILTER_GANG_UNLED, false},
    {{ANY, ALL, WAITS, ANY, ANY}, FILTER_ALL, FILTER_RESERVE_NONE, false},
    {{ANY, ALL | PREF, ANY, ANY, ANY}, FILTER_ALL, FILTER_RESERVE_NONE, true},
    {{ANY, BEST, WAITS, ANY, ANY}, FILTER_BEST, FILTER_RESERVE_NONE, false},
    {{ANY, BEST, ANY, ANY, ANY}, FILTER_BEST, FILTER_RESERVE_NONE, true},
    {{ANY, ONE, ANY, CAN, ANY}, FILTER_BEST, FILTER_RESERVE_POD, true},
    {{ANY, ANY, ANY, ANY, ANY}, FILTER_BEST, FILTER_RESERVE_NONE, true},
};

const struct filter_row *filter_row_of(const struct filter_facts *facts)
{
    const struct filter_row *row = filter_rows;
    while (!(row->facts.call & facts->call && row->facts.wants & facts->wants &&
             row->facts.gang & facts->gang && row->facts.pod & facts->pod &&
             row->facts.replica & facts->replica))
        row++;
    return row;
}
