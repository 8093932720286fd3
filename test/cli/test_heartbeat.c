/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/session.h"

#include "cli/check.h"
#include "cli/explain.h"
#include "cli/lib.h"
#include "cli/show.h"
#include "lib/lib.h"
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
#define AT(time)      LEASE_OF("n1", RENEWED(time))
#define TWO_DAYS_AGO  RENEWED("2025-12-30T00:00:00.000000Z")
#define OLD           LEASE_OF("n1", TWO_DAYS_AGO)
#define FRESH         AT("2025-12-31T23:59:59.500000Z")
#define AHEAD         AT("2026-01-01T01:00:00.000000Z")

/* A node with this Lease, when lists have taken so many seconds. */
static void checked(const char *lease, int64_t seconds)
{
    CLUSTER(.nodes = NODE("n1", "15", "1"), .scvs = SCV_OF("n1", CARDS),
            .pods = POD_OF("w", "", "8", ""), .leases = lease);
    cluster_state_check_heartbeats(cs, NOW, seconds);
}

static bool is_silent(void)
{
    return ledger_node_find(cluster_state_ledger(cs), SPAN("n1"))->state == NODE_STALE;
}

static char *note_of(void)
{
    cleanup_buf struct buf out = {0};
    buf_adds(&out, "");
    cluster_state_note_heartbeat(&out, cs,
                                 ledger_node_find(cluster_state_ledger(cs), SPAN("n1")));
    return out.n ? buf_take(&out) : xstrdup("");
}

static char *table_of(enum show_format format)
{
    cleanup_buf struct buf out = {0};
    const struct show show = {.format = format, .now_s = NOW};
    ck_assert(show_write(&out, cs, &show));
    return buf_take(&out);
}

TEST(an_old_heartbeat_makes_the_node_unusable)
{
    cleanup_buf struct buf why = {0}, found = {0};
    struct err err = {0};
    CLUSTER(.nodes = NODE("n1", "15", "1"), .scvs = SCV_OF("n1", CARDS),
            .pods = POD_OF("w", "", "8", ""), .leases = OLD);
    ck_assert(!is_silent());
    uint64_t before = cluster_state_generation(cs);
    cluster_state_check_heartbeats(cs, NOW, 1);
    ck_assert(is_silent());
    ck_assert_uint_ne(cluster_state_generation(cs), before);
    cleanup_free char *table = table_of(SHOW_TABLE), *text = table_of(SHOW_JSON);
    ck_assert_contains(table, "0/15                 0     0     0\n");
    ck_assert_contains(table, "! n1: " REASON_NO_HEARTBEAT "172800 s\n");
    ck_assert_contains(
        table, "! n1: Lease last renewed at 2025-12-30T00:00:00.000000Z, 172800 s "
               "ago by the API server's clock, or the node's clock is behind\n");
    ck_assert_contains(table, " 0 free");
    ck_assert_done(
        explain_pod(&why, cs, SPAN("ns"), SPAN("w"), &(struct explain_facts){0}, &err),
        err);
    ck_assert_contains(why.p, "no heartbeat from scv-agent on this node for 172800 s\n");
    ck_assert_lacks(why.p, "The request fits");
    ck_assert_contains(why.p, "  - the pod fits on node n1 once this is resolved: no "
                              "heartbeat from scv-agent on this node for ");
    ck_assert_uint_eq(check_cluster(&found, cs, (struct span){0}), 1);
    ck_assert_contains(found.p, "node n1: no heartbeat from scv-agent on this node for ");
    const char *behind = ", or the node's clock is behind";
    ck_assert_contains(why.p, behind);
    ck_assert_contains(found.p, behind);
    ck_assert_contains(text, behind);
    cleanup_json json_t *j = lib_json(text);
    ck_assert_at(j, "nodes.0.heartbeat", "2025-12-30T00:00:00.000000Z");
    ck_assert_ptr_nonnull(lib_at(j, "nodes.0.heartbeatNote"));
}

TEST(a_terminating_pod_of_a_silent_node_does_not_end)
{
    cleanup_buf struct buf out = {0};
    struct err err = {0};
    CLUSTER(.nodes = NODE("n1", "15", "1"), .scvs = SCV_OF("n1", CARDS),
            .pods =
                "{\"metadata\":{\"name\":\"a\",\"namespace\":\"ns\",\"uid\":\"u-a\","
                "\"deletionTimestamp\":\"2026-01-01T00:00:00Z\",\"annotations\":{" IDX(
                    "0") "}},\"spec\":{\"nodeName\":\"n1\",\"containers\":[{"
                         "\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":\"2\"}}}]},"
                         "\"status\":{\"phase\":\"Running\"}}",
            .leases = OLD);
    cluster_state_check_heartbeats(cs, NOW, 1);
    ck_assert_done(
        explain_pod(&out, cs, SPAN("ns"), SPAN("a"), &(struct explain_facts){0}, &err),
        err);
    ck_assert_contains(out.p, "  node n1 does not answer: the pod ends when it does, or "
                              "when its Node is deleted\n");
}

/* The grace is 40 s. */
TEST(leases_that_do_and_do_not_prove_silence)
{
    static const struct {
        const char *lease;
        bool silent;
        const char *note;
    } cases[] = {
        {NULL, false, ""},
        {FRESH, false, ""},
        {AT("2025-12-31T23:59:20.900000Z"), false, ""}, /* 39.1 s */
        {AT("2025-12-31T23:59:19.000000Z"), true, "41 s ago"},
        {AT("2026-01-01T01:59:19+02:00"), true, "41 s ago"},
        {AT("2026-01-01T00:00:09.000000Z"), false, ""},
        {AHEAD, false,
         "3600 s ahead of the API server's clock; cannot tell whether scv-agent"},
        {AT("9999-12-31T23:59:59Z"), false, "ahead of"},
        {AT("0001-01-01T00:00:00Z"), true, "ago"},
        {LEASE_OF("n1", ""), false, "no valid renewTime"},
        {AT(""), false, "no valid renewTime"},
        {AT("\\u001b[2J"), false, "no valid renewTime"},
        {LEASE_OF("other", TWO_DAYS_AGO), false, ""},
    };
    array_indices(i, cases) {
        checked(cases[i].lease, 1);
        cleanup_free char *note = note_of(), *table = table_of(SHOW_TABLE);
        ck_assert_msg(is_silent() == cases[i].silent, "%zu: %s", i, table);
        ck_assert_msg(*cases[i].note ? strstr(note, cases[i].note) != NULL : !*note,
                      "%zu: %s", i, note);
        ck_assert_ptr_null(strchr(table, '\033'));
    }
}

/* The reason names the holder, as the extender's does. */
TEST(a_lease_of_another_system)
{
    checked(
        "{\"metadata\":{\"name\":\"n1\"},\"spec\":{\"holderIdentity\":\"n1\"" TWO_DAYS_AGO
        "}}",
        1);
    cleanup_free char *table = table_of(SHOW_TABLE);
    ck_assert_contains(table, " s; Lease nvidia-gpu-scheduler-node-lease/n1 does not "
                              "belong to scv-agent (holder: n1; ");
    ck_assert_lacks(table, "API server's clock");
}

TEST(a_slow_list_does_not_look_like_clock_skew)
{
    /* Renewed while the other kinds were listed. */
    checked(AT("2026-01-01T00:00:50.000000Z"), 45);
    cleanup_free char *note = note_of();
    ck_assert_str_eq(note, "");
    checked(AT("2026-01-01T00:00:50.000000Z"), 3);
    cleanup_free char *ahead = note_of();
    ck_assert_contains(ahead, "50 s ahead");
}

TEST(without_the_servers_time_nothing_is_concluded)
{
    CLUSTER(.nodes = NODE("n1", "15", "1"), .scvs = SCV_OF("n1", CARDS), .leases = OLD);
    cluster_state_check_heartbeats(cs, 0, 1);
    ck_assert(!is_silent());
    cleanup_free char *note = note_of();
    ck_assert_contains(note, "sent no Date header");
    ck_assert(cluster_state_needs_view(cs));
}

/* Delivers an event of the watch, which stays open. */
static void renew(const char *lease)
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
TEST(a_renewal_makes_the_node_usable_again)
{
    checked(OLD, 1);
    ck_assert(is_silent());
    renew(OLD); /* not a renewal */
    ck_assert(is_silent());
    renew(AHEAD);
    ck_assert(!is_silent());
    cleanup_free char *note = note_of();
    ck_assert_str_eq(note, "");
    uint64_t before = cluster_state_generation(cs);
    renew(AT("2026-01-01T01:00:10.000000Z"));
    ck_assert_uint_eq(cluster_state_generation(cs), before);
}

#define VIEW(node) "{\"nodes\":[{\"name\":\"n1\",\"devs\":[]" node "}],\"unit\":\"GiB\"}"
#define SILENT_40  ",\"reason\":\"any text\",\"heartbeatAgeSeconds\":40"

/* The extender watches Leases, so its view overrides the clocks. */
TEST(the_extenders_view_overrides_the_lease)
{
    static const struct {
        const char *lease, *view;
        bool silent;
        const char *note;
    } cases[] = {
        {OLD, VIEW(""), false, "check the node's clock"},
        {OLD, VIEW(SILENT_40), true, "172800 s ago"},
        {AHEAD, VIEW(SILENT_40), true, ""},
        {AHEAD, VIEW(""), false, "check the node's clock"},
        {LEASE_OF("n1", ""), VIEW(SILENT_40), true, ""},
        {LEASE_OF("n1", ""), VIEW(""), false, ""},
        {NULL, VIEW(SILENT_40), true, ""}, /* the Lease was deleted */
        {NULL, VIEW(""), false, ""},
        /* A fresh Lease: the extender may see the renewal a moment later. */
        {FRESH, VIEW(SILENT_40), false, ""},
        /* Views that say nothing of heartbeats. */
        {OLD, VIEW(",\"reason\":\"" REASON_NO_HEARTBEAT "9 s\""), true, "s ago"},
        {OLD, VIEW(",\"reason\":\"other\",\"heartbeatAgeSeconds\":\"40\""), true,
         "s ago"},
        {OLD, VIEW(",\"reason\":\"other\""), true, "s ago"},
        {OLD, "{\"nodes\":[{\"name\":\"n1\"}]}", true, "s ago"},
        {OLD, "{\"nodes\":[{\"name\":\"n1\"}],\"unit\":\"GiB\",\"error\":\"not ready\"}",
         true, "s ago"},
        {OLD, "{\"nodes\":[7,{\"name\":\"n9\"},{\"name\":1}],\"unit\":\"GiB\"}", true,
         ""},
        {OLD, "[]", true, ""},
        {OLD, NULL, true, ""}, /* the extender is unavailable */
    };
    array_indices(i, cases) {
        checked(cases[i].lease, 1);
        cleanup_json json_t *view = lib_json(cases[i].view);
        cluster_state_apply_view(cs, view);
        cleanup_free char *note = note_of();
        ck_assert_msg(is_silent() == cases[i].silent, "%zu", i);
        ck_assert_msg(strstr(note, cases[i].note) != NULL, "%zu: %s", i, note);
        ck_assert_msg(*cases[i].note || cases[i].silent || !*note, "%zu: %s", i, note);
    }
}

TEST(only_unclear_heartbeats_need_the_extender)
{
    checked(FRESH, 1);
    ck_assert(!cluster_state_needs_view(cs));
    checked(OLD, 1);
    ck_assert(cluster_state_needs_view(cs));
    checked(NULL, 1);
    ck_assert(cluster_state_needs_view(cs));
    CLUSTER(.nodes = NODE("n1", "15", "1"));
    cluster_state_check_heartbeats(cs, NOW, 1);
    ck_assert(!cluster_state_needs_view(cs)); /* without an Scv there is no agent */
}

/* As after an uninstallation. The SCV daemon has no Lease, and writes no driverVersion. */
TEST(an_scv_without_a_lease_is_dated)
{
    static const struct {
        int64_t now;
        const char *scv, *note;
    } cases[] = {
        {NOW + 41, SCV_OF("n1", CARDS),
         "no Lease of scv-agent; its Scv is of 2026-01-01T00:00:00Z"},
        {NOW + 40, SCV_OF("n1", CARDS), ""},
        {0, SCV_OF("n1", CARDS), ""},
        {NOW + 41, SCV_USED("n1", "15360", "0", "u", "0", "0"), ""},
    };
    array_items(c, cases) {
        CLUSTER(.nodes = NODE("n1", "15", "1"), .scvs = c->scv);
        cluster_state_check_heartbeats(cs, c->now, 1);
        cleanup_free char *note = note_of();
        ck_assert_str_eq(note, c->note);
    }
}
