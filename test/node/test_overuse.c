/* SPDX-License-Identifier: Apache-2.0 */
#include "node/overuse.h"

#include "lib/unit.h"

/* Examples of what test_overuse_random.c has not: names, boundaries, Retry-After. */

/*
 * The containers on card 0, as measured: "POD UID NAME ID USED PROMISED", separated by commas.
 * "." is empty: without UID and ID it has no process. An init container has the name "i". A "?"
 * behind the promise: there may be more; a "!": the driver measures it; an "m": MPS limits it.
 */

enum { ROWS = 6, TOTAL = 16000, GRACE = 10000 };

static struct overuse *overuse;

static void begin_with(bool always)
{
    overuse_free(overuse);
    overuse = overuse_new(&(struct overuse_settings){.most = OVERUSE_EVICT,
                                                     .always = always,
                                                     .grace_ms = GRACE,
                                                     .tolerance_mib = 100});
}

static void begin(void)
{
    begin_with(false);
}

static void end(void)
{
    overuse_free(overuse);
}

static struct usage_card card;
static struct usage_container containers[ROWS];
static int64_t promised_ms; /* 0: the promises are as new as the measurement */

static struct span cut_word(struct span *row)
{
    struct span word = span_cut(row, ' ');
    return span_eq(word, SPAN(".")) ? SPAN("") : word;
}

static struct usage usage_of(const char *rows, int64_t at_ms, int64_t free_mib)
{
    struct usage u = {.taken_ms = at_ms,
                      .promised_ms = promised_ms ? promised_ms : at_ms,
                      .cards = &card,
                      .n_cards = 1,
                      .containers = containers};
    card = (struct usage_card){.uuid = SPAN("GPU-0"),
                               .total_mib = TOTAL,
                               .free_mib = free_mib,
                               .processes_known = true,
                               .complete = true};
    for (struct span rest = span_of(rows); rest.n;) {
        struct span row = span_trim(span_cut(&rest, ','));
        struct usage_container *c = &containers[u.n_containers++];
        *c = (struct usage_container){.ns = SPAN("ns"), .sm_percent = -1};
        c->pod = cut_word(&row);
        c->pod_uid = cut_word(&row);
        c->name = cut_word(&row);
        c->container_id = cut_word(&row);
        c->used_mib = atoll(cut_word(&row).p);
        c->promised_mib = atoll(row.p);
        c->promise_unclear = row.p[row.n - 1] == '?';
        c->by_driver = row.p[row.n - 1] == '!';
        c->enforced_by = row.p[row.n - 1] == 'm' ? SCV_ISOLATION_MPS : 0;
        c->n_pids = c->pod_uid.n > 0;
        c->init = span_eq(c->name, SPAN("i"));
    }
    return u;
}

/* The actions of one measurement, such as "report a/c, evict a". */
static const char *step(struct usage *u, int64_t now_ms)
{
    static const char *const names[] = {"report", "evict", "kill"};
    cleanup_overuse_actions struct overuse_actions actions = {0};
    static struct buf out;
    buf_set(&out, SPAN(""));
    overuse_step(overuse, now_ms, u, &actions);
    for (size_t i = 0; i < actions.n; i++) {
        const struct usage_container *c = &u->containers[actions.items[i].container];
        buf_printf(&out, "%s%s %.*s", i ? ", " : "", names[actions.items[i].type],
                   SPAN_ARG(c->pod));
        if (actions.items[i].type != OVERUSE_EVICT)
            buf_printf(&out, "/%.*s", SPAN_ARG(c->name));
    }
    return out.p;
}

#define ck_step(rows, at_ms, free_mib, want)                                             \
    do {                                                                                 \
        int64_t at_ = (at_ms);                                                           \
        struct usage u_ = usage_of(rows, at_, free_mib);                                 \
        ck_assert_str_eq(step(&u_, at_), want);                                          \
    } while (0)

/* Measures the same every 2 s, until just before the grace has passed. */
static void wait_out(const char *rows, int64_t from_ms, int64_t free_mib)
{
    for (int64_t at_ms = from_ms; at_ms < from_ms + GRACE; at_ms += 2000)
        ck_step(rows, at_ms, free_mib, "");
}

/* -- who overuses the card: with `always`, after the grace -- */

static const struct who {
    const char *name, *rows, *actions;
    struct usage_init_promise init; /* of pod "a", if it has a UID */
} whos[] = {
#define NONE INIT("", 0, 0)
#define INIT(uid, mib, beside)                                                           \
    {                                                                                    \
        {uid, sizeof(uid) - 1}, {"ns", 2}, {"a", 1}, {"i", 1}, {0}, mib, beside, 0       \
    }
    {"beyond the promise and the tolerance", "a u c i 4101 4000", "report a/c, evict a",
     NONE},
    {"inside the tolerance", "a u c i 4100 4000", "", NONE},
    {"without a tolerance, as contexts are inside the driver's limit",
     "a u c i 4001 4000!", "report a/c, evict a", NONE},
    {"all that the driver allows", "a u c i 4000 4000!", "", NONE},
    {"another process of the pod has a context", "a u c i 4001 4000!, a u d j 90 0", "",
     NONE},
    {"a container without a promise in a pod that has one",
     "a u c i 0 4000, a u d j 5000 -1", "report a/d, evict a", NONE},
    {"an init container, which the kubelet does not list",
     "a u c i 8000 -1?, a . d . 0 2000", "", NONE},
    {"a sibling whose promise is not clear", "a u c i 8000 2000, a u d j 100 -1?", "",
     NONE},
    {"the use is unknown", "a u c i -1 4000", "", NONE},
    {"the name is unknown", "a u . i 5000 4000", "", NONE},
    {"a container without a process belongs to the pod, too",
     "a u c i 5000 4000, a . d . 0 4000", "", NONE},
    {"the use of a sibling is unknown", "a u c i 9000 4000, a u d j -1 4000", "", NONE},
    {"both containers overuse, and the pod is evicted once",
     "a u c i 5000 4000, a u d j 5000 4000", "report a/c, report a/d, evict a", NONE},
    {"a little more in each of many containers", "a u c i 4100 4000, a u d j 4080 4000",
     "report a/c, evict a", NONE},
    {"a pod of the same name that is not gone yet does not count",
     "a old c i 4000 4000, a new c j 4000 4000", "", NONE},
    {"the container before the restart counts, its promise does not",
     "a u c i 5000 4000, a u c j 100 4000", "report a/c, evict a", NONE},
    /* Init containers, whose promises the kubelet does not list. */
    {"an init container beyond its own promise and that of the containers after it",
     "a u i i 4101 4000, a . c . 0 2000", "report a/i, evict a", INIT("u", 4000, 0)},
    {"within its promise", "a u i i 4100 4000, a . c . 0 2000", "", INIT("u", 4000, 0)},
    {"an init container with less than the containers after it uses their promise",
     "a u i i 4100 1000, a . c . 0 4000", "", INIT("u", 1000, 0)},
    {"and no more", "a u i i 4101 1000, a . c . 0 4000", "report a/i, evict a",
     INIT("u", 1000, 0)},
    {"a sidecar beside it keeps its own promise", "a u i i 4000 4000, a u s s 2100 2000",
     "", INIT("u", 4000, 2000)},
    {"both are beyond what they have together", "a u i i 6101 4000, a u s s 0 2000",
     "report a/i, evict a", INIT("u", 4000, 2000)},
    {"the pod keeps the promise after its init container", "a u c c 4100 1000", "",
     INIT("u", 4000, 0)},
    {"the amount is not known", "a u c c 4101 1000", "", INIT("u", -1, 0)},
    {"that of the sidecars is not known", "a u c c 4101 1000", "", INIT("u", 4000, -1)},
    {"the promise of a former pod of that name", "a u c c 4101 1000",
     "report a/c, evict a", INIT("v", 8000, 0)},
    {"no container has a promise but the init container", "a u i i 4101 4000",
     "report a/i, evict a", INIT("u", 4000, 0)},
    {"one after it, without any promise, uses what the pod has", "a u d d 4100 -1", "",
     INIT("u", 4000, 0)},
};

/* Overuse just beyond the tolerance takes longer than the grace, but not twice as long. */
TEST(who_is_over)
{
    for (const struct who *who = whos; who < whos + ARRAY_LEN(whos); who++) {
        cleanup_buf struct buf got = {0};
        buf_set(&got, SPAN(""));
        begin_with(true);
        for (int64_t at_ms = 0; at_ms < 2 * GRACE; at_ms += 2000) {
            struct usage u = usage_of(who->rows, at_ms, 8000);
            u.inits = &who->init;
            u.n_inits = who->init.pod_uid.n;
            buf_adds(&got, step(&u, at_ms));
            ck_assert_msg(at_ms >= GRACE || !got.n, "%s: \"%s\"", who->name, got.p);
        }
        ck_assert_msg(strcmp(got.p, who->actions) == 0, "%s: \"%s\"", who->name, got.p);
    }
}

/* The tolerance of a process is 100 MiB. */
TEST(the_tolerance_of_processes)
{
    static const struct {
        int64_t used, promised, slots, context;
        size_t pids;
        bool over;
    } rows[] = {
        /* None, or one of many, has a slot: one tolerance for all that have none. */
        {4100, 4000, 0, 0, 1, false},
        {4101, 4000, 0, 0, 20, true},
        {4160, 4000, 1, 60, 3, false},
        {4161, 4000, 1, 60, 3, true},
        /* Each process that has one: its context. */
        {4060, 4000, 1, 60, 1, false},
        {4061, 4000, 1, 60, 1, true},
        {4280, 4000, 4, 280, 4, false},
        {4281, 4000, 4, 280, 4, true},
        /* A pod that forges its slots. */
        {4101, 4000, 1, 9000, 1, true},
        {4400, 4000, 20, 9000, 20, false},
        {4401, 4000, 20, 9000, 20, true},
        {450, 300, 4, 400, 4, false},
        {451, 300, 4, 400, 4, true},
        {200, 100, 4, 400, 4, false},
        {201, 100, 4, 400, 4, true},
    };
    static const struct usage_pid pids[20];
    array_indices(i, rows) {
        struct usage u = usage_of("a u c i 0 0", 0, 8000);
        begin_with(true);
        containers[0].used_mib = rows[i].used;
        containers[0].promised_mib = rows[i].promised;
        containers[0].n_slots = rows[i].slots;
        containers[0].context_mib = rows[i].context;
        containers[0].pids = pids;
        containers[0].n_pids = rows[i].pids;
        step(&u, 0);
        ck_assert_msg(overuse_count(overuse) == rows[i].over, "row %zu", i);
    }
}

/* -- measurements -- */

static const char over[] = "a u c i 6000 4000, b v c j 1000 8000";
static const char inside[] = "a u c i 4000 4000, b v c j 1000 8000";

TEST(a_measurement_that_does_not_count_neither_accuses_nor_acquits)
{
    wait_out(over, 0, 500);
    struct usage u = usage_of(over, GRACE, 500);
    card.processes_known = card.complete = false;
    ck_assert_str_eq(step(&u, GRACE), "");
    u = usage_of(inside, GRACE, 500);
    ck_assert_str_eq(step(&u, GRACE + OVERUSE_MAX_AGE_MS + 1), "");
    ck_assert_str_eq(step(&u, GRACE - 1), "");
    u.n_cards = u.n_containers = 0; /* the sample failed */
    ck_assert_str_eq(step(&u, GRACE), "");
    ck_assert_uint_eq(overuse_count(overuse), 1);
    ck_step(over, GRACE + 100, 500, "report a/c, evict a");
}

/* What it was promised is not known yet: what its predecessor was promised is. */
TEST(a_new_pod_of_the_same_name_is_not_judged_by_the_promise_before)
{
    static const char again[] = "a new c i 6000 4000, b v c j 1000 8000";
    wait_out(over, 0, 500);
    promised_ms = GRACE - 1;
    ck_step(again, GRACE, 500, "");
    ck_step(again, GRACE + 2000, 500, "");
    promised_ms = GRACE + 2001;
    ck_step(again, GRACE + 2002, 500, "report a/c, evict a"); /* the sum stays */
}

/* Half a second of each six is less than what drains. */
TEST(short_peaks_fill_nothing)
{
    for (int64_t at_ms = 0; at_ms < 200 * GRACE; at_ms += 500)
        ck_step(at_ms % 6000 ? inside : over, at_ms, 500, "");
}

/* -- where it hurts -- */

TEST(a_container_that_mps_should_limit_is_reported_where_it_hurts_nobody)
{
    wait_out("a u c i 5000 4000", 1000, TOTAL);
    ck_step("a u c i 5000 4000", 13000, TOTAL, "");
    end();
    overuse = NULL;
    begin();
    wait_out("a u c i 5000 4000m", 1000, TOTAL);
    ck_step("a u c i 5000 4000m", 13000, TOTAL, "report a/c");
}

TEST(a_container_without_a_name_may_be_the_one_of_an_idle_promise)
{
    static const char nameless[] = ". w . k 7000 -1, a u c i 6000 4000, b . c . 0 8000";
    wait_out(nameless, 0, 1000);
    ck_step(nameless, GRACE, 1000, "");
    ck_step(nameless, GRACE + 1, 999, "report a/c, evict a");
}

/* -- limits -- */

TEST(a_rejected_eviction_is_repeated_with_back_off_while_it_is_due)
{
    int64_t at = GRACE;
    wait_out(over, 0, 500);
    ck_step(over, at, 500, "report a/c, evict a");
    overuse_evicted(overuse, at, SPAN("u"), false, -1);
    ck_step(over, at + OVERUSE_BACKOFF_MS - 1, 500, "");
    ck_step(over, at += OVERUSE_BACKOFF_MS, 500, "evict a");
    overuse_evicted(overuse, at, SPAN("u"), false, -1);
    ck_step(over, at + 2 * OVERUSE_BACKOFF_MS - 1, 500, "");
    ck_step(over, at += 2 * OVERUSE_BACKOFF_MS, 500, "evict a");
    overuse_evicted(overuse, at, SPAN("u"), false, 90 * 1000); /* Retry-After */
    ck_step(over, at + 90 * 1000 - 1, 500, "");
    ck_step(inside, at += 90 * 1000, 500, ""); /* the pod has returned the memory */
    overuse_evicted(overuse, at, SPAN("another"), true, -1);
}

UNIT_MAIN_AROUND(begin, end)
