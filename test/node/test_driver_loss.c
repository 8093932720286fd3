/* SPDX-License-Identifier: Apache-2.0 */
#include "node/driver_loss.h"

#include "lib/unit.h"

enum { S = 1000, MAX = 8 };

/* Outcomes of samples, and after which of them the process ends; -1: none. */
static const struct {
    const char *name;
    int ends;
    struct {
        int64_t at_s;
        enum err_code outcome;
    } samples[MAX];
} cases[] = {
    {"a driver that works", -1, {{0, ERR_NONE}, {900, ERR_NONE}}},
    {"lost after a sample",
     3,
     {{0, ERR_NONE}, {1, ERR_GONE}, {180, ERR_GONE}, {181, ERR_GONE}}},
    {"lost from the start", 2, {{0, ERR_GONE}, {599, ERR_GONE}, {600, ERR_GONE}}},
    {"it comes back",
     -1,
     {{0, ERR_NONE}, {1, ERR_GONE}, {180, ERR_NONE}, {181, ERR_GONE}, {360, ERR_GONE}}},
    {"an update: 18, not loaded, 18",
     -1,
     {{0, ERR_NONE},
      {1, ERR_GONE},
      {100, ERR_UNAVAILABLE},
      {101, ERR_GONE},
      {280, ERR_GONE}}},
    {"not loaded for hours",
     -1,
     {{0, ERR_NONE}, {1, ERR_UNAVAILABLE}, {9000, ERR_UNAVAILABLE}}},
    {"no library for hours", -1, {{0, ERR_NOT_FOUND}, {9000, ERR_NOT_FOUND}}},
    {"the process was suspended", 1, {{0, ERR_GONE}, {7200, ERR_GONE}}},
};

TEST(the_process_ends_after_minutes_without_its_driver)
{
    array_items(c, cases) {
        struct driver_loss loss = {0};
        int ends = -1;
        for (int i = 0; i < MAX && ends < 0 && (i == 0 || c->samples[i].at_s); i++)
            if (driver_loss_step(&loss, 7 * S + c->samples[i].at_s * S,
                                 c->samples[i].outcome))
                ends = i;
        ck_assert_msg(ends == c->ends, "%s: after sample %d", c->name, ends);
    }
}
