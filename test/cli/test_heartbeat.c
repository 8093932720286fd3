/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/session.h"

#include "cli/check.h"
#include "cli/explain.h"
#include "cli/lib.h"
#include "cli/show.h"
#include "lib/program.h"
#include "placement/reason.h"

/* Heartbeats of a snapshot. NOW is the API server's clock; the clock of this machine must
 * not matter. */

#define NOW   1767225600 /* 2026-01-01T00:00:00Z */
#define CARDS CARD_OF("0", "Healthy", "T4", "15360", "0")

#define LEASE_OF(name, spec)                                                             \
    "{\"metadata\":{\"name\":\"" name "\",\"ownerReferences\":[{\"kind\":\"Node\","      \
    "\"name\":\"" name "\"}]},\"spec\":{\"holderIdentity\":\"" name "\"" spec "}}"
#define RENEWED(time) ",\"renewTime\":\"" time "\""
#define TWO_DAYS_AGO  RENEWED("2025-12-30T00:00:00.000000Z")
#define AN_HOUR_ON    RENEWED("2026-01-01T01:00:00.000000Z")

static struct cluster_state *state_of(const char *lease)
{
    return lib_cluster_state(&(struct lists){.nodes = NODE("n1", "15", "1"),
                                             .scvs = SCV_OF("n1", CARDS),
                                             .pods = POD_OF("w", "", "8", ""),
                                             .leases = lease});
}

static bool is_silent(const struct cluster_state *cs)
{
    return ledger_node_find(cluster_state_ledger(cs), SPAN("n1"))->state == NODE_STALE;
}

static char *note_of(const struct cluster_state *cs)
{
    cleanup_buf struct buf out = {0};
    buf_adds(&out, "");
    cluster_state_note_heartbeat(&out, cs,
                                 ledger_node_find(cluster_state_ledger(cs), SPAN("n1")));
    return out.n ? buf_take(&out) : xstrdup("");
}

static char *table_of(const struct cluster_state *cs)
{
    cleanup_buf struct buf out = {0};
    const struct show show = {.now_s = NOW};
    ck_assert(show_write(&out, cs, &show));
    return buf_take(&out);
}

static void apply_view(struct cluster_state *cs, const char *view)
{
    json_t *j = json_loads(view, 0, NULL);
    ck_assert_ptr_nonnull(j);
    cluster_state_apply_view(cs, j);
    json_decref(j);
}

START_TEST(an_old_heartbeat_makes_the_node_unusable)
{
    struct cluster_state *cs = state_of(LEASE_OF("n1", TWO_DAYS_AGO));
    cleanup_buf struct buf why = {0}, found = {0};
    struct err err = {0};
    ck_assert(!is_silent(cs));
    uint64_t before = cluster_state_generation(cs);
    cluster_state_check_heartbeats(cs, NOW, 1);
    ck_assert(is_silent(cs));
    ck_assert_uint_ne(cluster_state_generation(cs), before);
    cleanup_free char *table = table_of(cs);
    ck_assert_contains(table, "0/15                 0     0     0\n");
    ck_assert_contains(table, "! n1: " REASON_NO_HEARTBEAT "172800 s\n");
    ck_assert_contains(
        table, "! n1: Lease last renewed at 2025-12-30T00:00:00.000000Z, 172800 s "
               "ago by the API server's clock\n");
    ck_assert_contains(table, " 0 free");
    ck_assert_done(
        explain_pod(&why, cs, SPAN("ns"), SPAN("w"), &(struct explain_facts){0}, &err),
        err);
    ck_assert_contains(why.p, "no heartbeat from scv-agent on this node for 172800 s\n");
    ck_assert_ptr_null(strstr(why.p, "The request fits"));
    ck_assert_contains(why.p, "  - the pod fits on node n1 once this is resolved: no "
                              "heartbeat from scv-agent on this node for ");
    ck_assert_uint_eq(check_cluster(&found, cs, (struct span){0}), 1);
    ck_assert_contains(found.p, "node n1: no heartbeat from scv-agent on this node for ");
    cleanup_buf struct buf text = {0};
    ck_assert(show_write(&text, cs, &(struct show){.format = SHOW_JSON, .now_s = NOW}));
    json_t *j = json_loads(text.p, 0, NULL),
           *node = json_array_get(json_object_get(j, "nodes"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(node, "heartbeat")),
                     "2025-12-30T00:00:00.000000Z");
    ck_assert_ptr_nonnull(json_object_get(node, "heartbeatNote"));
    json_decref(j);
    cluster_state_free(cs);
}
END_TEST

/* The grace is 40 s. */
START_TEST(leases_that_do_and_do_not_prove_silence)
{
    static const struct {
        const char *lease;
        bool silent;
        const char *note;
    } cases[] = {
        {NULL, false, ""}, /* an Scv of the SCV daemon, which has no Lease */
        {LEASE_OF("n1", RENEWED("2025-12-31T23:59:59.500000Z")), false, ""},
        {LEASE_OF("n1", RENEWED("2025-12-31T23:59:20.900000Z")), false, ""}, /* 39.1 s */
        {LEASE_OF("n1", RENEWED("2025-12-31T23:59:19.000000Z")), true, "41 s ago"},
        {LEASE_OF("n1", RENEWED("2026-01-01T01:59:19+02:00")), true, "41 s ago"},
        {LEASE_OF("n1", RENEWED("2026-01-01T00:00:09.000000Z")), false, ""},
        {LEASE_OF("n1", AN_HOUR_ON), false,
         "3600 s ahead of the API server's clock; cannot tell whether scv-agent"},
        {LEASE_OF("n1", RENEWED("9999-12-31T23:59:59Z")), false, "ahead of"},
        {LEASE_OF("n1", RENEWED("0001-01-01T00:00:00Z")), true, "ago"},
        {LEASE_OF("n1", ""), false, "no valid renewTime"},
        {LEASE_OF("n1", RENEWED("")), false, "no valid renewTime"},
        {LEASE_OF("n1", RENEWED("\\u001b[2J")), false, "no valid renewTime"},
        {LEASE_OF("other", TWO_DAYS_AGO), false, ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct cluster_state *cs = state_of(cases[i].lease);
        cluster_state_check_heartbeats(cs, NOW, 1);
        cleanup_free char *note = note_of(cs), *table = table_of(cs);
        ck_assert_msg(is_silent(cs) == cases[i].silent, "%zu: %s", i, table);
        ck_assert_msg(*cases[i].note ? strstr(note, cases[i].note) != NULL : !*note,
                      "%zu: %s", i, note);
        ck_assert_ptr_null(strchr(table, '\033'));
        cluster_state_free(cs);
    }
}
END_TEST

/* The reason names the holder, as the extender's does. */
START_TEST(a_lease_of_another_system)
{
    struct cluster_state *cs = state_of("{\"metadata\":{\"name\":\"n1\"},\"spec\":{"
                                        "\"holderIdentity\":\"n1\"" TWO_DAYS_AGO "}}");
    cluster_state_check_heartbeats(cs, NOW, 1);
    cleanup_free char *table = table_of(cs);
    ck_assert_contains(table, " s; Lease nvidia-gpu-scheduler-node-lease/n1 does not "
                              "belong to scv-agent (holder: n1; ");
    ck_assert_ptr_null(strstr(table, "API server's clock"));
    cluster_state_free(cs);
}
END_TEST

START_TEST(a_slow_list_does_not_look_like_clock_skew)
{
    struct cluster_state *cs =
        state_of(LEASE_OF("n1", RENEWED("2026-01-01T00:00:50.000000Z")));
    cluster_state_check_heartbeats(cs, NOW,
                                   45); /* renewed while the other kinds were listed */
    cleanup_free char *note = note_of(cs);
    ck_assert_str_eq(note, "");
    cluster_state_check_heartbeats(cs, NOW, 3);
    cleanup_free char *ahead = note_of(cs);
    ck_assert_contains(ahead, "50 s ahead");
    cluster_state_free(cs);
}
END_TEST

START_TEST(without_the_servers_time_nothing_is_concluded)
{
    struct cluster_state *cs = state_of(LEASE_OF("n1", TWO_DAYS_AGO));
    cluster_state_check_heartbeats(cs, 0, 1);
    ck_assert(!is_silent(cs));
    cleanup_free char *note = note_of(cs);
    ck_assert_contains(note, "sent no Date header");
    ck_assert(cluster_state_needs_view(cs));
    cluster_state_free(cs);
}
END_TEST

/* Delivers an event of the watch, which stays open. */
static void renew(struct cluster_state *cs, const char *lease)
{
    cleanup_free char *line = xasprintf("{\"type\":\"MODIFIED\",\"object\":%s}\n", lease);
    struct apisync feed;
    apisync_start(&feed, CORE_LEASES, true, lib_watches[CORE_LEASES], SPAN("1"),
                  &cluster_state_sink, cs);
    list_watch_begin(&feed.in, 200, -1);
    list_watch_data(&feed.in, line, strlen(line));
    apisync_fini(&feed);
}

/* A renewal makes the node usable; further renewals change nothing visible. */
START_TEST(a_renewal_makes_the_node_usable_again)
{
    struct cluster_state *cs =
        lib_cluster_state(&(struct lists){.nodes = NODE("n1", "15", "1"),
                                          .scvs = SCV_OF("n1", CARDS),
                                          .leases = LEASE_OF("n1", TWO_DAYS_AGO)});
    cluster_state_check_heartbeats(cs, NOW, 1);
    ck_assert(is_silent(cs));
    renew(cs, LEASE_OF("n1", TWO_DAYS_AGO)); /* not a renewal */
    ck_assert(is_silent(cs));
    renew(cs, LEASE_OF("n1", AN_HOUR_ON));
    ck_assert(!is_silent(cs));
    cleanup_free char *note = note_of(cs);
    ck_assert_str_eq(note, "");
    uint64_t before = cluster_state_generation(cs);
    renew(cs, LEASE_OF("n1", RENEWED("2026-01-01T01:00:10.000000Z")));
    ck_assert_uint_eq(cluster_state_generation(cs), before);
    cluster_state_free(cs);
}
END_TEST

#define VIEW(node) "{\"nodes\":[{\"name\":\"n1\",\"devs\":[]" node "}],\"unit\":\"GiB\"}"
#define SILENT_40  ",\"reason\":\"any text\",\"heartbeatAgeSeconds\":40"

/* The extender watches Leases, so its view overrides the clocks. */
START_TEST(the_extenders_view_overrides_the_lease)
{
    static const struct {
        const char *lease, *view;
        bool silent;
        const char *note;
    } cases[] = {
        {LEASE_OF("n1", TWO_DAYS_AGO), VIEW(""), false, "check the node's clock"},
        {LEASE_OF("n1", TWO_DAYS_AGO), VIEW(SILENT_40), true, "172800 s ago"},
        {LEASE_OF("n1", AN_HOUR_ON), VIEW(SILENT_40), true, ""},
        {LEASE_OF("n1", AN_HOUR_ON), VIEW(""), false, "check the node's clock"},
        {LEASE_OF("n1", ""), VIEW(SILENT_40), true, ""},
        {LEASE_OF("n1", ""), VIEW(""), false, ""},
        {NULL, VIEW(SILENT_40), true, ""}, /* the Lease was deleted */
        {NULL, VIEW(""), false, ""},
        /* A fresh Lease: the extender may see the renewal a moment later. */
        {LEASE_OF("n1", RENEWED("2025-12-31T23:59:59.500000Z")), VIEW(SILENT_40), false,
         ""},
        /* Views that say nothing of heartbeats. */
        {LEASE_OF("n1", TWO_DAYS_AGO), VIEW(",\"reason\":\"" REASON_NO_HEARTBEAT "9 s\""),
         true, "s ago"},
        {LEASE_OF("n1", TWO_DAYS_AGO),
         VIEW(",\"reason\":\"other\",\"heartbeatAgeSeconds\":\"40\""), true, "s ago"},
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
        struct cluster_state *cs = state_of(cases[i].lease);
        cluster_state_check_heartbeats(cs, NOW, 1);
        apply_view(cs, cases[i].view);
        cleanup_free char *note = note_of(cs);
        ck_assert_msg(is_silent(cs) == cases[i].silent, "%zu", i);
        ck_assert_msg(strstr(note, cases[i].note) != NULL, "%zu: %s", i, note);
        ck_assert_msg(*cases[i].note || cases[i].silent || !*note, "%zu: %s", i, note);
        cluster_state_free(cs);
    }
    struct cluster_state *cs = state_of(LEASE_OF("n1", TWO_DAYS_AGO));
    cluster_state_apply_view(cs, NULL); /* the extender is unavailable */
    cluster_state_free(cs);
}
END_TEST

START_TEST(only_unclear_heartbeats_need_the_extender)
{
    static const struct {
        const char *lease;
        bool unclear;
    } cases[] = {
        {LEASE_OF("n1", RENEWED("2025-12-31T23:59:59.500000Z")), false},
        {LEASE_OF("n1", TWO_DAYS_AGO), true},
        {NULL, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct cluster_state *cs = state_of(cases[i].lease);
        cluster_state_check_heartbeats(cs, NOW, 1);
        ck_assert_msg(cluster_state_needs_view(cs) == cases[i].unclear, "%zu", i);
        cluster_state_free(cs);
    }
    struct cluster_state *cs =
        lib_cluster_state(&(struct lists){.nodes = NODE("n1", "15", "1")});
    cluster_state_check_heartbeats(cs, NOW, 1);
    ck_assert(!cluster_state_needs_view(cs)); /* without an Scv there is no agent */
    cluster_state_free(cs);
}
END_TEST

UNIT_MAIN("heartbeat", an_old_heartbeat_makes_the_node_unusable,
          leases_that_do_and_do_not_prove_silence, a_lease_of_another_system,
          a_slow_list_does_not_look_like_clock_skew,
          without_the_servers_time_nothing_is_concluded,
          a_renewal_makes_the_node_usable_again, the_extenders_view_overrides_the_lease,
          only_unclear_heartbeats_need_the_extender)
