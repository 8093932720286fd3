/* SPDX-License-Identifier: Apache-2.0 */
#include "node/status.h"

#include "lib/unit.h"

enum { NOW = 1000 * 1000, LATE = 15 * 1000 };

static struct status_facts facts;

/* Every check passes. */
static void start(void)
{
    facts = (struct status_facts){
        .dispatcher = {.cards = 2,
                       .healthy = 2,
                       .listed = true,
                       .resources = {{.wanted = true}, {.wanted = true}},
                       .alive_ms = NOW,
                       .watch = {.alive_ms = NOW}},
        .now_ms = NOW,
        .started_ms = NOW,
        .late_ms = LATE};
}

static struct step_failure failure(int64_t since_ms, const char *reason)
{
    struct step_failure t = {.failures = 1, .since_ms = since_ms};
    err_set(&t.err, ERR_UNAVAILABLE, "%s", reason);
    return t;
}

/* `reason` NULL: the check passes. */
static void says(enum status_check check, const char *reason)
{
    struct err err = {0};
    bool required;
    int rc = status_check(&facts, check, &required, &err);
    ck_assert_int_eq(rc, reason ? -1 : 0);
    ck_assert_str_eq(err.msg, reason ? reason : "");
}

static bool is_required(enum status_check check)
{
    bool required;
    status_check(&facts, check, &required, NULL);
    return required;
}

TEST(every_check_passes)
{
    start();
    for (int i = 0; i < STATUS_CHECKS; i++)
        says((enum status_check)i, NULL);
}

TEST(threads_that_hang)
{
    start();
    facts.dispatcher.alive_ms = NOW - 31000;
    says(STATUS_DISPATCHER, "thread hangs for 31s");
    says(STATUS_CARDS, "thread hangs for 31s"); /* it is not known to be ok */
    says(STATUS_REGISTRATIONS, "thread hangs for 31s");
    says(STATUS_WATCH, "thread hangs for 31s");
    cleanup_buf struct buf text = {0};
    status_write_metrics(&text, &facts);
    static const char *const stale[] = {"plugin_cards", "plugin_registered{",
                                        "plugin_healthcheck{name=\"cards\"} 1"};
    array_items(metric, stale)
        ck_assert_lacks(text.p, *metric);
    facts.dispatcher.alive_ms = NOW;
    facts.dispatcher.watch.alive_ms = NOW - 31000; /* it blocks in DNS and connects */
    says(STATUS_WATCH, NULL);
    facts.dispatcher.watch.alive_ms = NOW - 300000;
    says(STATUS_WATCH, "thread hangs for 300s");
}

TEST(failures_count_after_late_ms)
{
    start();
    facts.dispatcher.watch.failure = failure(NOW - LATE + 1, "503");
    facts.dispatcher.node = failure(NOW - LATE + 1, "404");
    facts.dispatcher.podresources = failure(NOW - LATE + 1, "refused");
    for (int i = 0; i < STATUS_CHECKS; i++)
        says((enum status_check)i, NULL);
    facts.now_ms++;
    says(STATUS_PODS, "the pod watch fails for 15s: 503");
    says(STATUS_NODE, "GET of the Node fails for 15s: 404");
    says(STATUS_PODRESOURCES, "podresources calls fail for 15s: refused");
    says(STATUS_CARDS, NULL);
    err_set(&facts.dispatcher.cards_err, ERR_TIMEOUT, "blind");
    says(STATUS_CARDS, "blind");
    err_set(&facts.dispatcher.resources[IDS_COUNT].err, ERR_TIMEOUT, "not registered");
    says(STATUS_REGISTRATIONS + IDS_COUNT, "not registered");
    says(STATUS_REGISTRATIONS + IDS_MEM, NULL);
}

TEST(the_first_list_is_required)
{
    start();
    facts.dispatcher.listed = false;
    says(STATUS_PODS, "the pods are not listed yet");
    facts.dispatcher.watch.failure = failure(NOW - 1, "HTTP 403");
    says(STATUS_PODS, "the pods are not listed yet: HTTP 403");
}

TEST(readiness_does_not_require_a_driver)
{
    start();
    ck_assert(is_required(STATUS_PODS) && is_required(STATUS_PODRESOURCES));
    ck_assert(!is_required(STATUS_NODE) && !is_required(STATUS_CARDS));
    /* A version that sees no cards must not replace every pod at once. */
    facts.dispatcher.cards = 0;
    ck_assert(is_required(STATUS_CARDS));
    facts.now_ms += STATUS_CARDS_MS - 1;
    facts.dispatcher.alive_ms = facts.now_ms;
    ck_assert(is_required(STATUS_CARDS));
    facts.now_ms++;
    ck_assert(!is_required(STATUS_CARDS));
    ck_assert(is_required(STATUS_REGISTRATIONS + IDS_MEM));
    facts.dispatcher.resources[IDS_MEM].wanted = false;
    ck_assert(!is_required(STATUS_REGISTRATIONS + IDS_MEM));
}

/* While HAMi's plugin serves nvidia.com/gpu, `helm --wait` must not wait for its end. */
TEST(readiness_does_not_require_the_end_of_a_takeover)
{
    static const struct {
        enum ids_resource resource;
        enum err_code code;
        bool required;
    } cases[] = {
        {IDS_DIALECT, ERR_CONFLICT, false},
        {IDS_DIALECT, ERR_UNAVAILABLE, true},
        {IDS_MEM, ERR_CONFLICT, true}}; /* nothing else says that nobody gets it */
    array_items(c, cases) {
        struct dispatcher_resource_stats *of = &facts.dispatcher.resources[c->resource];
        start();
        of->wanted = true;
        err_set(&of->err, c->code, "not registered");
        says(STATUS_REGISTRATIONS + c->resource, "not registered");
        ck_assert(is_required(STATUS_REGISTRATIONS + c->resource) == c->required);
    }
}

TEST(metrics_agree)
{
    cleanup_buf struct buf text = {0};
    start();
    facts.dispatcher.watch.failure = failure(NOW - LATE, "503");
    status_write_metrics(&text, &facts);
    static const char *const lines[] = {"cards\"} 1\n", "pods\"} 0\n", "node\"} 1\n",
                                        "podresources\"} 1\n"};
    array_items(c, lines) {
        cleanup_free char *line =
            xasprintf("\ngpushare_plugin_healthcheck{name=\"%s", *c);
        ck_assert_msg(strstr(text.p, line) != NULL, "%s is not in %s", line, text.p);
    }
}

/* {NULL, 0}: it is not known. */
TEST(a_dialect_counts_while_its_resource_is_registered)
{
    static const struct {
        bool node_read;
        const char *dialect;
        enum err_code code; /* of nvidia.com/gpu */
        struct span says;
    } cases[] = {
        {false, "", ERR_UNAVAILABLE, {NULL, 0}},
        {false, "hami", ERR_UNAVAILABLE, {NULL, 0}},
        {true, "hami", ERR_UNAVAILABLE, {NULL, 0}}, /* nobody knows who serves it */
        {true, "hami", ERR_CONFLICT, SPAN("unserved")},
        {true, "hami", ERR_NONE, SPAN("hami")},
        {true, "hami", ERR_NOT_FOUND, SPAN("unserved")}, /* --slots=0 */
        {true, "kai", ERR_NOT_FOUND, SPAN("kai")},
        {true, "kai", ERR_UNAVAILABLE, SPAN("kai")},
        {true, "", ERR_NOT_FOUND, SPAN("")},
    };
    array_items(c, cases) {
        start();
        struct dispatcher_stats *d = &facts.dispatcher;
        d->node_read = c->node_read;
        snprintf(d->dialect, sizeof d->dialect, "%s", c->dialect);
        d->resources[IDS_DIALECT].err.code = c->code;
        bool waits;
        const struct span says = status_dialect(d, &waits);
        ck_assert_msg(!says.p == !c->says.p && span_eq(says, c->says) &&
                          waits == (c->node_read && !c->says.p),
                      "case %td: \"%.*s\"", c - cases, SPAN_ARG(says));
    }
}

TEST(a_resource_that_is_switched_off_is_not_missing)
{
    cleanup_buf struct buf text = {0};
    start();
    err_set(&facts.dispatcher.resources[IDS_SHARE].err, ERR_NOT_FOUND, "--slots is 0");
    err_set(&facts.dispatcher.resources[IDS_MEM].err, ERR_TOO_LARGE, "use another unit");
    status_write_metrics(&text, &facts);
    ck_assert_contains(text.p, "registered{resource=\"aliyun.com/gpu-mem\"} 0\n");
    ck_assert_contains(text.p, "registered{resource=\"aliyun.com/gpu-count\"} 1\n");
    ck_assert_lacks(text.p, "registered{resource=\"aliyun.com/gpu-share\"}");
}
