/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/beats.h"

#include "cli/check.h"
#include "cli/explain.h"
#include "cli/rig.h"
#include "cli/show.h"
#include "support/program.h"

/* Heartbeats, for one who looks for a moment. NOW is the API server's clock; that of this
 * machine counts for nothing. */

#define NOW   1767225600 /* 2026-01-01T00:00:00Z */
#define CARDS CARD_OF("0", "Healthy", "T4", "15360", "0")

#define LEASE_OF(name, spec)                                                             \
    "{\"metadata\":{\"name\":\"" name "\",\"ownerReferences\":[{\"kind\":\"Node\","      \
    "\"name\":\"" name "\"}]},\"spec\":{\"holderIdentity\":\"" name "\"" spec "}}"
#define RENEWED(time) ",\"renewTime\":\"" time "\""
#define TWO_DAYS_AGO  RENEWED("2025-12-30T00:00:00.000000Z")
#define AN_HOUR_ON    RENEWED("2026-01-01T01:00:00.000000Z")

static struct world *world_of(const char *lease)
{
    return rig_world(&(struct lists){.nodes = NODE("n1", "15", "1"),
                                     .scvs = SCV_OF("n1", CARDS),
                                     .pods = POD_OF("w", "", "8", ""),
                                     .leases = lease});
}

static bool is_silent(const struct world *w)
{
    return ledger_node_find(world_ledger(w), SPAN("n1"))->state == NODE_STALE;
}

static char *note_of(const struct world *w)
{
    cleanup_buf struct buf out = {0};
    buf_adds(&out, "");
    beats_note(&out, w, ledger_node_find(world_ledger(w), SPAN("n1")));
    return out.n ? buf_take(&out) : xstrdup("");
}

static char *table_of(const struct world *w)
{
    cleanup_buf struct buf out = {0};
    const struct show show = {.now_s = NOW};
    ck_assert(show_write(&out, w, &show));
    return buf_take(&out);
}

static void take(struct world *w, const char *view)
{
    json_t *j = json_loads(view, 0, NULL);
    ck_assert_ptr_nonnull(j);
    beats_take(w, j);
    json_decref(j);
}

START_TEST(an_old_heartbeat_is_a_dead_agent)
{
    struct world *w = world_of(LEASE_OF("n1", TWO_DAYS_AGO));
    cleanup_buf struct buf why = {0}, found = {0};
    struct err err = {0};
    ck_assert(!is_silent(w));
    uint64_t before = world_generation(w);
    world_judge(w, NOW, 1);
    ck_assert(is_silent(w));
    ck_assert_uint_ne(world_generation(w), before);
    cleanup_free char *table = table_of(w);
    ck_assert_says(table, "0/15                 0     0     0\n");
    ck_assert_says(table, "! n1: scv-agent on this node has not been heard of for 172800 "
                          "s\n");
    ck_assert_says(table, "! n1: its Lease is of 2025-12-30T00:00:00.000000Z, 172800 s "
                          "ago by the API server's clock\n");
    ck_assert_says(table, " 0 free");
    ck_assert_done(explain_pod(&why, w, SPAN("ns"), SPAN("w"), NULL, false, &err), err);
    ck_assert_says(why.p, "not been heard of for 172800 s\n");
    ck_assert_ptr_null(strstr(why.p, "It fits"));
    ck_assert_says(why.p, "  - it would fit on node n1, but scv-agent on this node");
    ck_assert_uint_eq(check_world(&found, w, (struct span){0}), 1);
    ck_assert_says(found.p, "node n1: scv-agent on this node has not been heard of for");
    json_t *j = show_json(w, &(struct show){.now_s = NOW}),
           *node = json_array_get(json_object_get(j, "nodes"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(node, "heartbeat")),
                     "2025-12-30T00:00:00.000000Z");
    ck_assert_ptr_nonnull(json_object_get(node, "heartbeatNote"));
    json_decref(j);
    world_free(w);
}
END_TEST

/* The grace is 40 s. */
START_TEST(what_a_lease_tells_and_what_not)
{
    static const struct {
        const char *lease;
        bool silent;
        const char *note;
    } cases[] = {
        {NULL, false, ""}, /* as another daemon has it */
        {LEASE_OF("n1", RENEWED("2025-12-31T23:59:59.500000Z")), false, ""},
        {LEASE_OF("n1", RENEWED("2025-12-31T23:59:20.900000Z")), false, ""}, /* 39.1 s */
        {LEASE_OF("n1", RENEWED("2025-12-31T23:59:19.000000Z")), true, "41 s ago"},
        {LEASE_OF("n1", RENEWED("2026-01-01T01:59:19+02:00")), true, "41 s ago"},
        {LEASE_OF("n1", RENEWED("2026-01-01T00:00:09.000000Z")), false, ""},
        {LEASE_OF("n1", AN_HOUR_ON), false,
         "3600 s ahead of the API server's clock, so that it does not tell"},
        {LEASE_OF("n1", RENEWED("9999-12-31T23:59:59Z")), false, "ahead of"},
        {LEASE_OF("n1", RENEWED("0001-01-01T00:00:00Z")), true, "ago"},
        {LEASE_OF("n1", ""), false, "no renewTime that can be read"},
        {LEASE_OF("n1", RENEWED("")), false, "no renewTime that can be read"},
        {LEASE_OF("n1", RENEWED("\\u001b[2J")), false, "no renewTime that can be read"},
        {LEASE_OF("other", TWO_DAYS_AGO), false, ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world *w = world_of(cases[i].lease);
        world_judge(w, NOW, 1);
        cleanup_free char *note = note_of(w), *table = table_of(w);
        ck_assert_msg(is_silent(w) == cases[i].silent, "%zu: %s", i, table);
        ck_assert_msg(*cases[i].note ? strstr(note, cases[i].note) != NULL : !*note,
                      "%zu: %s", i, note);
        ck_assert_ptr_null(strchr(table, '\033'));
        world_free(w);
    }
}
END_TEST

/* It is said whose it is, as the extender says it. */
START_TEST(a_lease_that_another_system_left_behind)
{
    struct world *w = world_of("{\"metadata\":{\"name\":\"n1\"},\"spec\":{"
                               "\"holderIdentity\":\"n1\"" TWO_DAYS_AGO "}}");
    world_judge(w, NOW, 1);
    cleanup_free char *table = table_of(w);
    ck_assert_says(table, " s; its Lease nvidia-gpu-scheduler-node-lease/n1 is not "
                          "scv-agent's (holder: n1; ");
    ck_assert_ptr_null(strstr(table, "API server's clock"));
    world_free(w);
}
END_TEST

START_TEST(who_listed_slowly_is_not_ahead)
{
    struct world *w = world_of(LEASE_OF("n1", RENEWED("2026-01-01T00:00:50.000000Z")));
    world_judge(w, NOW, 45); /* it was renewed while the rest was listed */
    cleanup_free char *note = note_of(w);
    ck_assert_str_eq(note, "");
    world_judge(w, NOW, 3);
    cleanup_free char *ahead = note_of(w);
    ck_assert_says(ahead, "50 s ahead");
    world_free(w);
}
END_TEST

START_TEST(without_a_clock_nothing_is_claimed)
{
    struct world *w = world_of(LEASE_OF("n1", TWO_DAYS_AGO));
    world_judge(w, 0, 1);
    ck_assert(!is_silent(w));
    cleanup_free char *note = note_of(w);
    ck_assert_says(note, "does not say what time it is");
    ck_assert(beats_doubtful(w));
    world_free(w);
}
END_TEST

/* An event of the watch, which goes on. */
static void renew(struct world *w, const char *lease)
{
    cleanup_free char *line = xasprintf("{\"type\":\"MODIFIED\",\"object\":%s}\n", lease);
    struct feed feed;
    feed_start(&feed, CORE_LEASES, true, rig_watches[CORE_LEASES], SPAN("1"), &world_sink,
               w);
    feed_begin(&feed, 200, -1);
    feed_data(&feed, line, strlen(line));
    feed_fini(&feed);
}

/* A renewal ends the doubt; that one came is nothing to redraw for. */
START_TEST(a_watch_sees_it_come_back)
{
    struct world *w = rig_world(&(struct lists){.nodes = NODE("n1", "15", "1"),
                                                .scvs = SCV_OF("n1", CARDS),
                                                .leases = LEASE_OF("n1", TWO_DAYS_AGO)});
    world_judge(w, NOW, 1);
    ck_assert(is_silent(w));
    renew(w, LEASE_OF("n1", TWO_DAYS_AGO)); /* no renewal */
    ck_assert(is_silent(w));
    renew(w, LEASE_OF("n1", AN_HOUR_ON));
    ck_assert(!is_silent(w));
    cleanup_free char *note = note_of(w);
    ck_assert_str_eq(note, "");
    uint64_t before = world_generation(w);
    renew(w, LEASE_OF("n1", RENEWED("2026-01-01T01:00:10.000000Z")));
    ck_assert_uint_eq(world_generation(w), before);
    world_free(w);
}
END_TEST

#define VIEW(node) "{\"nodes\":[{\"name\":\"n1\",\"devs\":[]" node "}],\"unit\":\"GiB\"}"
#define SILENT_40                                                                        \
    ",\"reason\":\"scv-agent on this node has not been heard of for 40 s; its Lease\""

/* It watches, and knows better, whatever the clocks say. */
START_TEST(what_the_extender_says_counts)
{
    static const struct {
        const char *lease, *view;
        bool silent;
        const char *note;
    } cases[] = {
        {LEASE_OF("n1", TWO_DAYS_AGO), VIEW(""), false, "is the node's clock right?"},
        {LEASE_OF("n1", TWO_DAYS_AGO), VIEW(SILENT_40), true, "172800 s ago"},
        {LEASE_OF("n1", AN_HOUR_ON), VIEW(SILENT_40), true, ""},
        {LEASE_OF("n1", AN_HOUR_ON), VIEW(""), false, "is the node's clock right?"},
        {LEASE_OF("n1", ""), VIEW(SILENT_40), true, ""},
        {LEASE_OF("n1", ""), VIEW(""), false, ""},
        {NULL, VIEW(SILENT_40), true, ""}, /* a Lease that was deleted */
        {NULL, VIEW(""), false, ""},
        /* Nothing to doubt: it may have seen the renewal a moment later than we. */
        {LEASE_OF("n1", RENEWED("2025-12-31T23:59:59.500000Z")), VIEW(SILENT_40), false,
         ""},
        /* What says nothing of heartbeats. */
        {LEASE_OF("n1", TWO_DAYS_AGO), VIEW(",\"reason\":\"other\""), true, "s ago"},
        {LEASE_OF("n1", TWO_DAYS_AGO), "{\"nodes\":[{\"name\":\"n1\"}]}", true, "s ago"},
        {LEASE_OF("n1", TWO_DAYS_AGO),
         "{\"nodes\":[{\"name\":\"n1\"}],\"unit\":\"GiB\",\"error\":\"not ready\"}", true,
         "s ago"},
        {LEASE_OF("n1", TWO_DAYS_AGO),
         "{\"nodes\":[7,{\"name\":\"n9\"},{\"name\":1}],\"unit\":\"GiB\"}", true, ""},
        {LEASE_OF("n1", TWO_DAYS_AGO), "[]", true, ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world *w = world_of(cases[i].lease);
        world_judge(w, NOW, 1);
        take(w, cases[i].view);
        cleanup_free char *note = note_of(w);
        ck_assert_msg(is_silent(w) == cases[i].silent, "%zu", i);
        ck_assert_msg(strstr(note, cases[i].note) != NULL, "%zu: %s", i, note);
        ck_assert_msg(*cases[i].note || cases[i].silent || !*note, "%zu: %s", i, note);
        world_free(w);
    }
    struct world *w = world_of(LEASE_OF("n1", TWO_DAYS_AGO));
    beats_take(w, NULL); /* it cannot be reached */
    world_free(w);
}
END_TEST

START_TEST(it_is_asked_only_where_that_helps)
{
    static const struct {
        const char *lease;
        bool doubtful;
    } cases[] = {
        {LEASE_OF("n1", RENEWED("2025-12-31T23:59:59.500000Z")), false},
        {LEASE_OF("n1", TWO_DAYS_AGO), true},
        {NULL, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world *w = world_of(cases[i].lease);
        world_judge(w, NOW, 1);
        ck_assert_msg(beats_doubtful(w) == cases[i].doubtful, "%zu", i);
        world_free(w);
    }
    struct world *w = rig_world(&(struct lists){.nodes = NODE("n1", "15", "1")});
    world_judge(w, NOW, 1);
    ck_assert(!beats_doubtful(w)); /* a node without an Scv has no agent */
    world_free(w);
}
END_TEST

UNIT_MAIN("beats", an_old_heartbeat_is_a_dead_agent, what_a_lease_tells_and_what_not,
          a_lease_that_another_system_left_behind, who_listed_slowly_is_not_ahead,
          without_a_clock_nothing_is_claimed, a_watch_sees_it_come_back,
          what_the_extender_says_counts, it_is_asked_only_where_that_helps)
