/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/reflector.h"
#include "lib/unit.h"

/*
 * A script, and what the reflector does. The words of a script:
 *
 *     LIST=5   the list is complete, at version 5
 *     open     the watch was opened
 *     at=7     an object or bookmark of version 7
 *     closed   the server ended the watch
 *     410 404 403   the list or watch failed so;  lost: no answer, or the connection broke;
 *              stalled: nothing came for too long
 *     429=5    the same, with Retry-After: 5 s
 *     relist soon   the owner calls reflector_relist, reflector_retry_soon
 *     +900     so many ms pass
 *     wait=0..1600  a request is due in so many ms, which pass
 *     idle     nothing is due
 *     known, unknown=900   as reflector_unknown_since says: for how long
 *
 * What it does: "list", "watch@5", and the ends of requests that are not plain.
 */

static const struct reflector_kind plain = {.watch_s = REFLECTOR_WATCH_S};
static const struct reflector_kind of_nodes = {.watch_s = REFLECTOR_POD_WATCH_S,
                                               .spread_ms = 10000};
static const struct reflector_kind optional = {.watch_s = 50, .optional = true};

static struct reflector r;
static struct rng rng;
static int64_t now_ms;
static struct buf did;

static void note(const char *word)
{
    buf_printf(&did, "%s%s", did.n ? " " : "", word);
}

static void tick(void)
{
    enum reflector_request request = reflector_tick(&r, now_ms, r.run + 1);
    if (request == REFLECTOR_LIST)
        note("list");
    if (request == REFLECTOR_WATCH)
        buf_printf(&did, "%swatch@%.*s", did.n ? " " : "",
                   SPAN_ARG(buf_span(&r.version)));
}

static void end(struct span version, enum err_code code, int64_t retry_after_s)
{
    static const char *const words[] = {[REFLECTOR_RESTORED] = "restored",
                                        [REFLECTOR_ABSENT] = "absent",
                                        [REFLECTOR_FAILED] = "failed",
                                        [REFLECTOR_FAILED_AGAIN] = "again"};
    struct err err = {.code = code, .msg = "why"};
    ck_assert(reflector_is_current(&r, r.run));
    enum reflector_end is =
        reflector_ended(&r, now_ms, &rng, version, code ? &err : NULL,
                        retry_after_s < 0 ? -1 : retry_after_s * 1000);
    ck_assert(!reflector_is_current(&r, r.run));
    if (words[is])
        note(words[is]);
}

static void wait_between(struct span range)
{
    int64_t least, most, due = reflector_due(&r) - now_ms;
    struct span from = span_cut(&range, '.');
    span_cut(&range, '.');
    ck_assert(span_i64(from, &least) && span_i64(range, &most));
    ck_assert_msg(due >= least && due <= most, "due in %lld ms, after: %s",
                  (long long)due, did.p);
    now_ms += due;
}

static void word(struct span text)
{
    static const struct {
        const char *word;
        enum err_code code;
    } ends[] = {{"closed", ERR_NONE},      {"410", ERR_GONE},
                {"404", ERR_NOT_FOUND},    {"403", ERR_FORBIDDEN},
                {"lost", ERR_UNAVAILABLE}, {"429", ERR_UNAVAILABLE},
                {"stalled", ERR_TIMEOUT}};
    struct span value = text, name = span_cut(&value, '=');
    int64_t n = -1;
    bool number = span_i64(value, &n);
    array_items(e, ends) {
        if (!span_eq(name, span_of(e->word)))
            continue;
        end((struct span){0}, e->code, number ? n : -1);
        return;
    }
    if (span_eq(name, SPAN("LIST")))
        end(value, ERR_NONE, -1);
    else if (span_eq(name, SPAN("open")) || span_eq(name, SPAN("at")))
        reflector_delivered(&r, now_ms, &rng, value);
    else if (span_eq(name, SPAN("relist")))
        reflector_relist(&r, now_ms);
    else if (span_eq(name, SPAN("soon")))
        reflector_retry_soon(&r, now_ms);
    else if (span_eq(name, SPAN("wait")))
        wait_between(value);
    else if (span_eq(name, SPAN("idle")))
        ck_assert_int_eq(reflector_due(&r), INT64_MAX);
    else if (span_eq(name, SPAN("known")))
        ck_assert_int_eq(reflector_unknown_since(&r, now_ms), -1);
    else if (span_eq(name, SPAN("unknown")))
        ck_assert_int_eq(now_ms - reflector_unknown_since(&r, now_ms), n);
    else if (span_starts(name, SPAN("+")) &&
             span_i64((struct span){name.p + 1, name.n - 1}, &n))
        now_ms += n;
    else
        ck_abort_msg("what is %.*s?", SPAN_ARG(name));
}

#define WATCHED "LIST=5 open "
#define BEGIN   "list watch@5 "

static const struct row {
    const struct reflector_kind *kind;
    const char *rule, *script, *does;
} rows[] = {
    {&plain, "a list, then watches from the last version",
     WATCHED "at=7 +60000 closed open +60000 closed at=9 +60000 closed",
     BEGIN "watch@7 watch@7 watch@9"},
    {&plain, "watches that end at once are a second apart",
     WATCHED "+10 closed wait=990..990 +10 closed wait=990..990",
     BEGIN "watch@5 watch@5"},
    {&plain, "a list that goes back shows a restore", WATCHED "at=7 410 LIST=6",
     BEGIN "failed list restored watch@6"},
    {&plain, "... and so does one after a list that was interrupted",
     WATCHED "at=7 relist lost wait=0..1600 LIST=6",
     BEGIN "list failed list restored watch@6"},
    {&plain, "a watch that goes back needs a list", WATCHED "at=7 +2000 at=6 LIST=7",
     BEGIN "list watch@7"},
    {&plain, "... at growing intervals",
     WATCHED
     "at=7 +2000 at=6 LIST=7 open at=6 wait=1600..3200 LIST=7 open at=6 wait=3200..6400",
     BEGIN "list watch@7 list watch@7 list"},
    {&plain, "no version shows nothing",
     WATCHED "at=7 open relist LIST=", BEGIN "list watch@7"},
    {&plain, "a broken watch is not resumed", WATCHED "at=7 lost wait=800..1600",
     BEGIN "failed list"},
    {&plain, "... and a watch that was denied neither",
     WATCHED "closed +1000 403 wait=800..1600", BEGIN "watch@5 failed list"},
    {&of_nodes, "lists of all nodes are spread",
     WATCHED "lost wait=0..10000 LIST=5 lost wait=1600..3200",
     BEGIN "failed list watch@5 again list"},
    {&plain, "an expired version is listed at once, and then at growing intervals",
     WATCHED "410 LIST=6 410 wait=1600..3200 LIST=7 open 410 wait=3200..6400 LIST=8 410 "
             "wait=6400..12800 "
             "LIST=8 410 wait=12800..25600 LIST=8 410 wait=15000..30000 LIST=8 410 "
             "wait=15000..30000",
     BEGIN "failed list watch@6 again list watch@7 failed list watch@8 again list "
           "watch@8 again list watch@8 again "
           "list watch@8 failed list"}, /* a minute later */
    {&of_nodes, "... also on nodes", WATCHED "410 LIST=6 410 wait=1600..3200",
     BEGIN "failed list watch@6 again list"},
    {&plain, "a watch that lasted resets the intervals",
     WATCHED "lost wait=800..1600 LIST=6 lost wait=1600..3200 LIST=7 open +30000 lost "
             "wait=800..1600",
     BEGIN "failed list watch@6 again list watch@7 failed list"},
    {&plain, "an expired continue token: the first page at once, but not for ever",
     "410 410 wait=1600..3200 410 wait=3200..6400 LIST=5 relist 410",
     "list failed list again list again list watch@5 list again list"},
    {&of_nodes, "failed lists back off",
     "403 wait=800..1600 403 wait=1600..3200 lost wait=3200..6400 lost wait=6400..12800 "
     "lost "
     "wait=12800..25600 lost wait=15000..30000 LIST=5 open relist lost wait=800..1600",
     "list failed list again list failed list again list again list again list watch@5 "
     "list failed list"},
    {&plain, "Retry-After is obeyed, and spreads",
     "429=5 wait=5800..6600 429=5 wait=6600..8200", "list failed list again list"},
    {&of_nodes, "... by a broken watch", WATCHED "429=5 wait=5000..15000",
     BEGIN "failed list"},
    {&plain, "... whatever the owner needs",
     "429=5 relist wait=5000..5000 429=5 soon wait=5000..5000",
     "list failed list again list"},
    {&plain, "... for a minute", "429=3600 wait=60800..61600", "list failed list"},
    {&plain, "Retry-After: 0 is none", "429=0 wait=800..1600", "list failed list"},
    {&optional, "a kind that is not served is an empty list",
     "404 known wait=30000..30000 404 wait=30000..30000 LIST=5 open at=6 404 "
     "wait=800..1600",
     "list absent list absent list watch@5 failed list"},
    {&plain, "... unless it must be served", "404 wait=800..1600", "list failed list"},
    {&plain, "a relist ends the watch, and not a list of the same moment",
     WATCHED "+9 relist relist idle +1 relist LIST=6", BEGIN "list list watch@6"},
    {&plain, "sooner: what failed, and nothing else",
     "403 wait=0..9999 403 wait=0..9999 403 wait=0..9999 403 soon wait=0..1000 LIST=5 "
     "open closed soon wait=1000..1000",
     "list failed list again list again list again list watch@5 watch@5"},
    {&plain, "what is known",
     "+900 unknown=900 LIST=5 known +500 403 unknown=0 +99 unknown=99 +1600 LIST=5 "
     "unknown=1699 +1 403 unknown=1700 +3200 LIST=5 open known",
     BEGIN "failed list watch@5 again list watch@5"},
    {&plain, "a watch that stalls shows nothing since its last delivery",
     WATCHED "+20000 at=6 +65000 known stalled unknown=65000 +1600 stalled unknown=66600",
     BEGIN "failed list again"},
    {&plain, "... or since the end of the one before",
     WATCHED "+60000 closed +5000 known stalled unknown=5000", BEGIN "watch@5 failed"},
    {&plain, "... but a watch that breaks was in order until then",
     WATCHED "+65000 lost unknown=0 +1600 stalled unknown=1600",
     BEGIN "failed list failed"},
    {&plain, "watches that end prove that they work",
     WATCHED "+75000 closed +75000 closed +75000 closed known",
     BEGIN "watch@5 watch@5 watch@5"},
    {&plain, "a long silence", WATCHED "+150000 known +1 unknown=150001 at=6 known",
     "list watch@5"},
};

TEST(each_rule)
{
    array_items(row, rows) {
        struct span rest = span_of(row->script);
        reflector_fini(&r);
        buf_clear(&did);
        now_ms = 1000000;
        reflector_start(&r, row->kind, now_ms);
        tick();
        while (rest.n) {
            word(span_cut(&rest, ' '));
            tick();
        }
        ck_assert_msg(!strcmp(did.p, row->does), "%s:\n%s\n%s", row->rule, did.p,
                      row->does);
    }
    reflector_fini(&r);
    buf_fini(&did);
}

TEST(the_length_of_a_watch_is_spread)
{
    int64_t least = INT64_MAX, most = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        int64_t s = reflector_watch_s(REFLECTOR_POD_WATCH_S, i * 7919);
        least = s < least ? s : least;
        most = s > most ? s : most;
    }
    ck_assert_int_eq(least, 240);
    ck_assert_int_eq(most, 359);
}
