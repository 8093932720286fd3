/* SPDX-License-Identifier: Apache-2.0 */
#include "node/card_health.h"

#include <limits.h>

#include "base/mem.h"
#include "lib/unit.h"

/* One input of a card, and its health after that. */
enum input {
    END,
    GOOD,
    UNREADABLE,
    FAILED,
    XID_CARD, /* 79: the card fell off the bus */
    XID_APP,  /* 31: a page fault that the application causes */
    ECC,
};

struct step {
    int64_t at_ms;
    enum input input;
    bool healthy;
    const char *reason;
};

enum { STEPS = 10 };

static const struct transition {
    const char *name;
    struct card_health_settings settings;
    struct step steps[STEPS];
} transitions[] = {
#define USUAL                                                                            \
    {                                                                                    \
        3000, 30000, 600000                                                              \
    }
    {"a card that is good at first is healthy at once", USUAL, {{5, GOOD, true, ""}}},
    {"a card that is failed at first must recover",
     USUAL,
     {{0, FAILED, false, "failed"},
      {1000, GOOD, false, "failed"},
      {30999, GOOD, false, "failed"},
      {31000, GOOD, true, ""}}},
    {"a card that is unreadable at first is not tolerated",
     USUAL,
     {{0, UNREADABLE, false, "unreadable"}, {30000, GOOD, false, "unreadable"}}},
    {"a failed sample counts at once, recovery takes healthy_after_ms",
     USUAL,
     {{0, GOOD, true, ""},
      {1000, FAILED, false, "failed"},
      {2000, GOOD, false, "failed"},
      {31999, GOOD, false, "failed"},
      {32000, GOOD, true, ""}}},
    {"a failed sample restarts the recovery",
     USUAL,
     {{0, GOOD, true, ""},
      {1000, FAILED, false, "failed"},
      {2000, GOOD, false, "failed"},
      {31000, FAILED, false, "failed"},
      {32000, GOOD, false, "failed"},
      {61999, GOOD, false, "failed"},
      {62000, GOOD, true, ""}}},
    {"unreadable samples are tolerated for unhealthy_after_ms",
     USUAL,
     {{0, GOOD, true, ""},
      {1000, UNREADABLE, true, ""},
      {3999, UNREADABLE, true, ""},
      {4000, UNREADABLE, false, "unreadable"},
      {5000, GOOD, false, "unreadable"},
      {35000, GOOD, true, ""}}},
    {"a good sample ends the tolerated time",
     USUAL,
     {{0, GOOD, true, ""},
      {1000, UNREADABLE, true, ""},
      {3000, GOOD, true, ""},
      {5000, UNREADABLE, true, ""},
      {7999, UNREADABLE, true, ""},
      {8000, UNREADABLE, false, "unreadable"}}},
    {"a tolerated sample does not interrupt a recovery",
     USUAL,
     {{0, FAILED, false, "failed"},
      {1000, GOOD, false, "failed"},
      {15000, UNREADABLE, false, "failed"},
      {16000, GOOD, false, "failed"},
      {31000, GOOD, true, ""}}},
    {"without tolerance an unreadable sample counts at once",
     {0, 30000, 600000},
     {{0, GOOD, true, ""}, {1, UNREADABLE, false, "unreadable"}}},
    {"the newest reason counts",
     USUAL,
     {{0, GOOD, true, ""},
      {1, XID_CARD, false, "XID 79"},
      {2, GOOD, false, "XID 79"},
      {3, FAILED, false, "failed"},
      {4, ECC, false, "uncorrectable ECC error"},
      {5, UNREADABLE, false, "unreadable"}}},
    {"an event holds the card for xid_hold_ms",
     USUAL,
     {{0, GOOD, true, ""},
      {1000, XID_CARD, false, "XID 79"},
      {2000, GOOD, false, "XID 79"},
      {600999, GOOD, false, "XID 79"},
      {601000, GOOD, true, ""}}},
    {"every event restarts the hold",
     USUAL,
     {{0, GOOD, true, ""},
      {1000, XID_CARD, false, "XID 79"},
      {2000, GOOD, false, "XID 79"},
      {400000, ECC, false, "uncorrectable ECC error"},
      {401000, GOOD, false, "uncorrectable ECC error"},
      {999999, GOOD, false, "uncorrectable ECC error"},
      {1000000, GOOD, true, ""}}},
    {"an event counts as a failed sample where the hold is 0",
     {3000, 30000, 0},
     {{0, GOOD, true, ""},
      {1000, XID_CARD, false, "XID 79"},
      {2000, GOOD, false, "XID 79"},
      {31999, GOOD, false, "XID 79"},
      {32000, GOOD, true, ""}}},
    {"an event restarts a recovery",
     {3000, 30000, 0},
     {{0, FAILED, false, "failed"},
      {1000, GOOD, false, "failed"},
      {20000, ECC, false, "uncorrectable ECC error"},
      {21000, GOOD, false, "uncorrectable ECC error"},
      {50999, GOOD, false, "uncorrectable ECC error"},
      {51000, GOOD, true, ""}}},
    {"the hold does not replace the recovery",
     {3000, 30000, 10000},
     {{0, GOOD, true, ""},
      {1000, XID_CARD, false, "XID 79"},
      {9000, FAILED, false, "failed"},
      {12000, GOOD, false, "failed"},
      {41999, GOOD, false, "failed"},
      {42000, GOOD, true, ""}}},
    {"after an event an unreadable sample is not tolerated",
     {3000, 1000, 0},
     {{0, GOOD, true, ""},
      {1, ECC, false, "uncorrectable ECC error"},
      {2, UNREADABLE, false, "unreadable"},
      {3, GOOD, false, "unreadable"},
      {1003, GOOD, true, ""}}},
    {"an XID of an application changes nothing",
     USUAL,
     {{0, GOOD, true, ""},
      {1, XID_APP, true, ""},
      {2, FAILED, false, "failed"},
      {3, GOOD, false, "failed"},
      {4, XID_APP, false, "failed"},
      {30003, GOOD, true, ""}}},
    {"INT64_MAX holds as long as the process lives",
     {3000, 0, INT64_MAX},
     {{-5, GOOD, true, ""},
      {-3, XID_CARD, false, "XID 79"},
      {INT64_MAX / 2, GOOD, false, "XID 79"}}},
    {"without recovery time the first good sample is enough",
     {3000, 0, 0},
     {{0, GOOD, true, ""},
      {1, FAILED, false, "failed"},
      {1, GOOD, true, ""},
      {2, ECC, false, "uncorrectable ECC error"},
      {2, GOOD, true, ""}}},
};

static struct gpu_event event_of(enum input input)
{
    struct gpu_event e = {.kind = input == ECC ? GPU_EVENT_ECC : GPU_EVENT_XID,
                          .xid = input == XID_CARD  ? 79
                                 : input == XID_APP ? 31
                                                    : 0,
                          .uuid = "GPU-a",
                          .index = -1};
    return e;
}

static void take(struct card_health *h, const struct transition *t, const struct step *s)
{
    struct card_health_target target = {h, "GPU-a", 0, true};
    struct gpu_event e = event_of(s->input);
    if (s->input == GOOD)
        card_health_sample(h, &t->settings, s->at_ms, CARD_HEALTH_GOOD, NULL);
    else if (s->input == UNREADABLE)
        card_health_sample(h, &t->settings, s->at_ms, CARD_HEALTH_UNREADABLE,
                           "unreadable");
    else if (s->input == FAILED)
        card_health_sample(h, &t->settings, s->at_ms, CARD_HEALTH_FAILED, "failed");
    else
        ck_assert(card_health_event(&target, 1, s->at_ms, &e) == (s->input != XID_APP));
}

START_TEST(every_transition_of_one_card)
{
    for (size_t i = 0; i < ARRAY_LEN(transitions); i++) {
        const struct transition *t = &transitions[i];
        struct card_health h = {0};
        for (const struct step *s = t->steps; s < t->steps + STEPS && s->input; s++) {
            take(&h, t, s);
            ck_assert_msg(h.healthy == s->healthy && strcmp(h.reason, s->reason) == 0,
                          "%s: at %lld ms %s, \"%s\"", t->name, (long long)s->at_ms,
                          h.healthy ? "healthy" : "unhealthy", h.reason);
        }
    }
}
END_TEST

/* The cards of an event: GPU-0 at index 0, GPU-1 at index 1, a card without UUID at index
 * 2, and GPU-9, which had index 1 and is absent. "+" is healthy after the event. */
static const struct addressed {
    const char *name, *uuid;
    int32_t index;
    const char *health;
} events[] = {
    {"a UUID: that card", "GPU-1", -1, "+-++"},
    {"a UUID counts before the index", "GPU-0", 1, "-+++"},
    {"an absent card has its events, too", "GPU-9", -1, "+++-"},
    {"the UUID of no card, as of a MIG instance: none", "GPU-7", 0, "++++"},
    {"an index: the present card that has it", "", 1, "+-++"},
    {"an index of a card without UUID", "", 2, "++-+"},
    {"an index that no present card has: every card", "", 5, "----"},
    {"neither: every card", "", -1, "----"},
};

START_TEST(the_cards_that_an_event_concerns)
{
    const struct card_health_settings settings = USUAL;
    for (size_t i = 0; i < ARRAY_LEN(events); i++) {
        const struct addressed *a = &events[i];
        struct card_health h[4] = {0};
        const struct card_health_target cards[4] = {{&h[0], "GPU-0", 0, true},
                                                    {&h[1], "GPU-1", 1, true},
                                                    {&h[2], "", 2, true},
                                                    {&h[3], "GPU-9", 1, false}};
        struct gpu_event e = {.kind = GPU_EVENT_ECC, .index = a->index};
        char health[5] = "";
        strcpy(e.uuid, a->uuid);
        for (size_t k = 0; k < 4; k++)
            card_health_sample(&h[k], &settings, 0, CARD_HEALTH_GOOD, NULL);
        bool any = card_health_event(cards, 4, 1, &e);
        for (size_t k = 0; k < 4; k++)
            health[k] = h[k].healthy ? '+' : '-';
        ck_assert_msg(strcmp(health, a->health) == 0, "%s: %s", a->name, health);
        ck_assert(any == (strchr(health, '-') != NULL));
    }
}
END_TEST

START_TEST(no_event_is_none)
{
    struct card_health h = {.healthy = true};
    const struct card_health_target target = {&h, "", 0, true};
    ck_assert(
        !card_health_event(&target, 1, 0, &(struct gpu_event){.kind = GPU_EVENT_NONE}));
    ck_assert(!card_health_event(NULL, 0, 0, &(struct gpu_event){.kind = GPU_EVENT_ECC}));
    ck_assert(h.healthy);
}
END_TEST

static const struct {
    struct gpu_card card;
    enum card_health_reading reading;
    const char *reason;
} readings[] = {
    {{.state = GPU_OK, .known = 1 << GPU_MEM_TOTAL}, CARD_HEALTH_GOOD, NULL},
    {{.state = GPU_OK}, CARD_HEALTH_UNREADABLE, "memory size is unknown"},
    {{.state = GPU_UNREADABLE, .why = "no answer"}, CARD_HEALTH_UNREADABLE, "no answer"},
    {{.state = GPU_LOST, .why = "off the bus"}, CARD_HEALTH_FAILED, "off the bus"},
    {{.state = GPU_RESET}, CARD_HEALTH_FAILED, "reset"},
    {{.state = GPU_ECC, .why = "a row"}, CARD_HEALTH_FAILED, "a row"},
    {{.state = GPU_MIG}, CARD_HEALTH_FAILED, "mig"},
};

START_TEST(the_state_of_a_sample_as_a_reading)
{
    for (size_t i = 0; i < ARRAY_LEN(readings); i++) {
        const char *reason;
        ck_assert_int_eq(card_health_read(&readings[i].card, &reason),
                         readings[i].reading);
        if (readings[i].reason)
            ck_assert_str_eq(reason, readings[i].reason);
    }
}
END_TEST

UNIT_MAIN("card_health", every_transition_of_one_card, the_cards_that_an_event_concerns,
          no_event_is_none, the_state_of_a_sample_as_a_reading)
