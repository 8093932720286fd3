/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/filter_mode.h"
#include "lib/unit.h"

/* The table of filter's answers, row by row: which calls are a row's, and what they get. */

/* Letters of `facts`, one for each column, as the table of cases below spells them. */
static struct filter_facts facts_of(const char *s)
{
    static const char letters[][5] = {"LS", "ABOP", "aw", "ur", "FL"};
    unsigned char bits[5];
    for (int i = 0; i < 5; i++)
        bits[i] = (unsigned char)(1 << (strchr(letters[i], s[i]) - letters[i]));
    return (struct filter_facts){bits[0], bits[1], bits[2], bits[3], bits[4]};
}

/* call: Live, Simulated; wants: All, Best, One, Preferred; alone, waits; unreservable,
 * reservable; Follower, Leader. */
static const struct {
    const char *calls[8];
    int answer, reserve;
    bool find_victims;
} cases[FILTER_ROWS] = {
    {{"SOwrL", "SOwuF", "SPwrF", "SPwuL"}, FILTER_ALL, FILTER_GANG_SIMULATED, false},
    {{"SAarL", "SAwrL", "SBauF", "SBwrF", "SOarL", "SPauF"},
     FILTER_ALL,
     FILTER_RESERVE_NONE,
     false},
    {{"LOwrL", "LOwuL", "LPwrL", "LPwuL"}, FILTER_BEST, FILTER_RESERVE_GANG, false},
    {{"LOwrF", "LOwuF", "LPwrF", "LPwuF"}, FILTER_BEST, FILTER_GANG_UNLED, false},
    {{"LAwrL", "LAwuF"}, FILTER_ALL, FILTER_RESERVE_NONE, false},
    {{"LAarL", "LAauF", "LParL", "LPauF"}, FILTER_ALL, FILTER_RESERVE_NONE, true},
    {{"LBwrL", "LBwuF"}, FILTER_BEST, FILTER_RESERVE_NONE, false},
    {{"LBarL", "LBauF"}, FILTER_BEST, FILTER_RESERVE_NONE, true},
    {{"LOarL", "LOarF"}, FILTER_BEST, FILTER_RESERVE_POD, true},
    {{"LOauL", "LOauF"}, FILTER_BEST, FILTER_RESERVE_NONE, true},
};

TEST(each_row_answers_its_calls)
{
    array_indices(row, cases)
        for (size_t i = 0; i < ARRAY_LEN(cases[row].calls) && cases[row].calls[i]; i++) {
            const struct filter_facts facts = facts_of(cases[row].calls[i]);
            const struct filter_row *got = filter_row_of(&facts);
            ck_assert_msg(got == &filter_rows[row], "%s: row %td, not %zu",
                          cases[row].calls[i], got - filter_rows, row);
            ck_assert_int_eq(got->answer, cases[row].answer);
            ck_assert_int_eq(got->reserve, cases[row].reserve);
            ck_assert_int_eq(got->find_victims, cases[row].find_victims);
        }
}

/* Whatever the facts: cards are reserved only by the leader or the core that asks it, no
 * simulation leaves anything, and no pod is evicted for a gang that waits. */
TEST(no_combination_breaks_a_rule)
{
    for (int k = 0; k < 64; k++) {
        const struct filter_facts facts = {
            (unsigned char)(1 << (k & 1)), (unsigned char)(1 << (k >> 4)),
            (unsigned char)(1 << (k >> 1 & 1)), (unsigned char)(1 << (k >> 2 & 1)),
            (unsigned char)(1 << (k >> 3 & 1))};
        const struct filter_row *row = filter_row_of(&facts);
        bool simulated = facts.call == FILTER_SIMULATED,
             waits = facts.gang == FILTER_WAITS, one = facts.wants >= FILTER_WANTS_ONE;
        ck_assert(row < filter_rows + FILTER_ROWS);
        ck_assert(!simulated ||
                  (row->answer == FILTER_ALL && row->reserve != FILTER_RESERVE_POD &&
                   row->reserve != FILTER_RESERVE_GANG));
        ck_assert_int_eq(row->find_victims, !simulated && !waits);
        ck_assert_int_eq(row->reserve == FILTER_RESERVE_GANG,
                         !simulated && waits && one && facts.replica == FILTER_LEADER);
        ck_assert(row->reserve != FILTER_RESERVE_POD || facts.pod == FILTER_RESERVABLE);
        ck_assert(facts.wants != FILTER_WANTS_ALL || row->answer == FILTER_ALL);
    }
}
