/* SPDX-License-Identifier: Apache-2.0 */
#include "node/card_health.h"

#include "lib/unit.h"

/* Each line: the time, an input, and what the card is after it: healthy, or the reason. */
static const struct transition {
    const char *name;
    struct card_health_settings settings;
    const char *steps;
} transitions[] = {
#define SETTINGS(unhealthy, healthy, hold)                                               \
    {                                                                                    \
        .unhealthy_after_ms = unhealthy, .healthy_after_ms = healthy,                    \
        .xid_hold_ms = hold                                                              \
    }
#define USUAL SETTINGS(3000, 30000, 600000)
    {"a card that is good at first is healthy at once", USUAL, "5 good: healthy"},
    {"a card that is failed at first must recover", USUAL,
     "0 failed: failed\n"
     "1000 good: failed\n"
     "30999 good: failed\n"
     "31000 good: healthy"},
    {"a card that is unreadable at first is not tolerated", USUAL,
     "0 unreadable: unreadable\n"
     "30000 good: unreadable"},
    {"a failed sample counts at once, recovery takes healthy_after_ms", USUAL,
     "0 good: healthy\n"
     "1000 failed: failed\n"
     "2000 good: failed\n"
     "31999 good: failed\n"
     "32000 good: healthy"},
    {"a failed sample restarts the recovery", USUAL,
     "0 good: healthy\n"
     "1000 failed: failed\n"
     "2000 good: failed\n"
     "31000 failed: failed\n"
     "32000 good: failed\n"
     "61999 good: failed\n"
     "62000 good: healthy"},
    {"unreadable samples are tolerated for unhealthy_after_ms", USUAL,
     "0 good: healthy\n"
     "1000 unreadable: healthy\n"
     "3999 unreadable: healthy\n"
     "4000 unreadable: unreadable\n"
     "5000 good: unreadable\n"
     "35000 good: healthy"},
    {"a good sample ends the tolerated time", USUAL,
     "0 good: healthy\n"
     "1000 unreadable: healthy\n"
     "3000 good: healthy\n"
     "5000 unreadable: healthy\n"
     "7999 unreadable: healthy\n"
     "8000 unreadable: unreadable"},
    {"a tolerated sample does not interrupt a recovery", USUAL,
     "0 failed: failed\n"
     "1000 good: failed\n"
     "15000 unreadable: failed\n"
     "16000 good: failed\n"
     "31000 good: healthy"},
    {"without tolerance an unreadable sample counts at once", SETTINGS(0, 30000, 600000),
     "0 good: healthy\n"
     "1 unreadable: unreadable"},
    {"the newest reason counts", USUAL,
     "0 good: healthy\n"
     "1 xid79: XID 79\n"
     "2 good: XID 79\n"
     "3 failed: failed\n"
     "4 ecc: uncorrectable ECC error\n"
     "5 unreadable: unreadable"},
    {"an event holds the card for xid_hold_ms", USUAL,
     "0 good: healthy\n"
     "1000 xid79: XID 79\n"
     "2000 good: XID 79\n"
     "600999 good: XID 79\n"
     "601000 good: healthy"},
    {"every event restarts the hold", USUAL,
     "0 good: healthy\n"
     "1000 xid79: XID 79\n"
     "2000 good: XID 79\n"
     "400000 ecc: uncorrectable ECC error\n"
     "401000 good: uncorrectable ECC error\n"
     "999999 good: uncorrectable ECC error\n"
     "1000000 good: healthy"},
    {"an event counts as a failed sample where the hold is 0", SETTINGS(3000, 30000, 0),
     "0 good: healthy\n"
     "1000 xid79: XID 79\n"
     "2000 good: XID 79\n"
     "31999 good: XID 79\n"
     "32000 good: healthy"},
    {"an event restarts a recovery", SETTINGS(3000, 30000, 0),
     "0 failed: failed\n"
     "1000 good: failed\n"
     "20000 ecc: uncorrectable ECC error\n"
     "21000 good: uncorrectable ECC error\n"
     "50999 good: uncorrectable ECC error\n"
     "51000 good: healthy"},
    {"the hold does not replace the recovery", SETTINGS(3000, 30000, 10000),
     "0 good: healthy\n"
     "1000 xid79: XID 79\n"
     "9000 failed: failed\n"
     "12000 good: failed\n"
     "41999 good: failed\n"
     "42000 good: healthy"},
    {"after an event an unreadable sample is not tolerated", SETTINGS(3000, 1000, 0),
     "0 good: healthy\n"
     "1 ecc: uncorrectable ECC error\n"
     "2 unreadable: unreadable\n"
     "3 good: unreadable\n"
     "1003 good: healthy"},
    {"an XID of an application changes nothing", USUAL,
     "0 good: healthy\n"
     "1 xid31: healthy\n"
     "2 failed: failed\n"
     "3 good: failed\n"
     "4 xid31: failed\n"
     "30003 good: healthy"},
    {"INT64_MAX holds as long as the process lives", SETTINGS(3000, 0, INT64_MAX),
     "-5 good: healthy\n"
     "-3 xid79: XID 79\n"
     "4611686018427387903 good: XID 79"},
    {"without recovery time the first good sample is enough", SETTINGS(3000, 0, 0),
     "0 good: healthy\n"
     "1 failed: failed\n"
     "1 good: healthy\n"
     "2 ecc: uncorrectable ECC error\n"
     "2 good: healthy"},
};

static void check_step(const struct transition *t, struct card_health *h,
                       struct span line)
{
    struct span input, rest = line;
    int64_t at_ms;
    ck_assert(span_i64(span_cut(&rest, ' '), &at_ms));
    input = span_cut(&rest, ':');
    struct gpu_event e = {.kind = GPU_EVENT_XID, .uuid = "GPU-a", .index = -1};
    if (span_eq(input, SPAN("ecc")))
        e.kind = GPU_EVENT_ECC;
    else if (span_starts(input, SPAN("xid")))
        e.xid = atoi(input.p + 3);
    else
        e.kind = GPU_EVENT_NONE;
    if (e.kind != GPU_EVENT_NONE)
        ck_assert(card_health_event(h, &t->settings, at_ms, &e) == (e.xid != 31));
    else if (span_eq(input, SPAN("good")))
        card_health_sample(h, &t->settings, at_ms, CARD_HEALTH_GOOD, NULL);
    else if (span_eq(input, SPAN("failed")))
        card_health_sample(h, &t->settings, at_ms, CARD_HEALTH_FAILED, "failed");
    else
        card_health_sample(h, &t->settings, at_ms, CARD_HEALTH_UNREADABLE, "unreadable");
    span_cut(&rest, ' ');
    ck_assert_msg(span_eq(rest, span_of(h->healthy ? "healthy" : h->reason)),
                  "%s: %.*s, got %s", t->name, SPAN_ARG(line),
                  h->healthy ? "healthy" : h->reason);
}

TEST(every_transition_of_one_card)
{
    array_items(t, transitions) {
        struct card_health h = {0};
        struct span rest = span_of(t->steps);
        while (rest.n)
            check_step(t, &h, span_cut(&rest, '\n'));
    }
}

TEST(no_event_is_none)
{
    struct card_health h = {.healthy = true};
    const struct card_health_settings s = USUAL;
    ck_assert(!card_health_event(&h, &s, 0, &(struct gpu_event){.kind = GPU_EVENT_NONE}));
    ck_assert(h.healthy);
}

/* Which XIDs of those listed make the card unhealthy, under these options. */
TEST(a_site_says_which_xids_are_application_errors)
{
    static const struct {
        const char *ignore, *fatal, *unhealthy;
    } cases[] = {
        {"", "", "48 69 79 999 2000"},
        {"69", "", "48 79 999 2000"},
        {" 69 , 79", "", "48 999 2000"},
        {"", "45", "45 48 69 79 999 2000"},
        {"69", "69,31", "31 48 69 79 999 2000"},
        {"all", "", ""},
        {"ALL", "79", "79"},
        {"69", "all", "13 31 45 48 69 79 999 2000"},
        {"all", "all", "13 31 45 48 69 79 999 2000"},
        {"1023", "1,1023", "48 69 79 999 2000"},
    };
    static const int64_t xids[] = {13, 31, 45, 48, 69, 79, 999, 2000};
    array_items(c, cases) {
        struct card_health_settings s = USUAL;
        cleanup_buf struct buf got = {0};
        struct err err;
        ck_assert_done(card_health_parse_xids(span_of(c->ignore), &s.xid_ignore, &err),
                       err);
        ck_assert_done(card_health_parse_xids(span_of(c->fatal), &s.xid_fatal, &err),
                       err);
        array_items(xid, xids) {
            struct card_health h = {.healthy = true};
            struct gpu_event e = {.kind = GPU_EVENT_XID, .index = -1, .xid = *xid};
            if (card_health_event(&h, &s, 0, &e))
                buf_printf(&got, "%s%d", got.n ? " " : "", (int)*xid);
        }
        ck_assert_span_eq(buf_span(&got), c->unhealthy);
        struct card_health h = {.healthy = true};
        ck_assert(
            card_health_event(&h, &s, 0, &(struct gpu_event){.kind = GPU_EVENT_ECC}));
    }
}

TEST(a_bad_list_of_xids_is_an_error)
{
    static const struct {
        const char *list, *why;
    } cases[] = {
        {"13,x", "\"13,x\": \"x\" at character 4 is no XID"},
        {"13,,31", "\"\" at character 4"},
        {"13,", "\"\" at character 4"},
        {",", "\"\" at character 1"},
        {"0", "\"0\" at character 1"},
        {"31,-1", "\"-1\" at character 4"},
        {"1024", "numbers of 1 to 1023"},
        {"99999999999999999999", "is no XID"},
        {"13 31", "\"13 31\" at character 1"},
        {"all,31", "\"all\" at character 1"},
        {"0x1f", "is no XID"},
    };
    array_items(c, cases) {
        struct card_health_xids xids;
        struct err err = {0};
        ck_assert_int_eq(card_health_parse_xids(span_of(c->list), &xids, &err), -1);
        ck_assert_int_eq(err.code, ERR_INVALID);
        ck_assert_msg(strstr(err.msg, c->why), "%s: %s", c->list, err.msg);
    }
}

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
    {{.state = GPU_WARN, .known = 1 << GPU_MEM_TOTAL, .why = "a row is pending"},
     CARD_HEALTH_GOOD,
     NULL},
    {{.state = GPU_NOT_READY, .why = "no fabric"}, CARD_HEALTH_FAILED, "no fabric"},
    {{.state = GPU_ECC, .why = "a row"}, CARD_HEALTH_FAILED, "a row"},
    {{.state = GPU_MIG}, CARD_HEALTH_FAILED, "mig"},
};

TEST(the_state_of_a_sample_as_a_reading)
{
    array_items(c, readings) {
        const char *reason;
        ck_assert_int_eq(card_health_read(&c->card, &reason), c->reading);
        if (c->reason)
            ck_assert_str_eq(reason, c->reason);
    }
}
