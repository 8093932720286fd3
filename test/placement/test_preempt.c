/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/preempt.h"

#include "base/clock.h"
#include "base/rng.h"
#include "domain/objects.h"

/*
 * What is chosen is compared with every set there is, on small nodes: by cost, worked out
 * here from the shares of the pods.
 */

enum { CARDS_MAX = 4, PODS_MAX = 9, CARD_MIB = 16 };

static struct arena arena;
static struct ledger *ledger;

struct put {
    int priority;
    int mib[CARDS_MAX]; /* on each card; 0: nothing */
    bool whole, unsure;
    int devices; /* asks for so many through nvidia.com/gpu; mib: which are shown as its
                  */
};

static void start(int cards)
{
    struct ledger_settings s = {.unit_mib = 1, .external_tolerance_mib = 1024};
    ledger = ledger_new(&s, 1);
    struct scv scv = object_scv_even(&arena, "n1", cards, CARD_MIB);
    ledger_scv_seen(ledger, &scv, 0);
}

static void stop(void)
{
    ledger_free(ledger);
    arena_fini(&arena);
}

static const char *uid_of(int i)
{
    static char uid[8];
    snprintf(uid, sizeof uid, "p%d", i);
    return uid;
}

static void put(int i, const struct put *p)
{
    struct pod pod = object_pod_mem(&arena, uid_of(i), 1);
    struct request r = object_request(&arena, &pod, 1);
    struct ledger_share shares[CARDS_MAX];
    uint32_t n = 0;
    for (int c = 0; c < CARDS_MAX && !p->devices; c++)
        if (p->mib[c])
            shares[n++] = (struct ledger_share){.card = c, .mib = p->mib[c]};
    r.kind = p->devices ? REQUEST_DEVICES : p->whole ? REQUEST_CARDS : REQUEST_MEMORY;
    r.cards = p->devices ? (uint32_t)p->devices : r.cards;
    pod.priority = p->priority;
    struct ledger_pod *entry = ledger_pod_add(ledger, &pod, &r, NULL);
    ledger_pod_place(ledger, entry, SPAN("n1"), shares, n);
    entry->final = !p->unsure;
}

static struct request ask_memory(int mib, int cards)
{
    return (struct request){.kind = REQUEST_MEMORY,
                            .cards = (uint32_t)cards,
                            .units = mib * cards,
                            .mib_per_card = mib};
}

static struct request ask_whole(int cards)
{
    return (struct request){.kind = REQUEST_CARDS, .cards = (uint32_t)cards};
}

/* The UIDs chosen, with a space behind each; "never" when nothing helps. */
static const char *chosen(struct request r, int priority, const char *leaving)
{
    struct preempt_ask ask = {&r, priority, SPAN("me")};
    struct preempt_set set;
    struct span uid = span_of(leaving);
    cleanup_buf struct buf out = {0};
    if (!preempt_choose(&ask, ledger_node_find(ledger, SPAN("n1")), &uid,
                        *leaving ? 1 : 0, &arena, &set))
        return "never";
    for (size_t i = 0; i < set.n; i++)
        buf_printf(&out, "%.*s ", SPAN_ARG(set.pods[i]->uid));
    return arena_copy(&arena, buf_span(&out)).p;
}

#define PUT(i, prio, ...) put(i, &(struct put){.priority = (prio), .mib = __VA_ARGS__})

START_TEST(one_card_not_the_sum_of_several)
{
    start(2);
    PUT(1, 0, {8});
    PUT(2, 0, {0, 8});
    PUT(3, 0, {4});
    PUT(4, 0, {0, 4});
    /* 4 are free on each: 12 need 8 more on one of them. */
    ck_assert_str_eq(chosen(ask_memory(12, 1), 1, ""), "p1 ");
    ck_assert_str_eq(chosen(ask_memory(4, 1), 1, ""), "");
    ck_assert_str_eq(chosen(ask_memory(16, 1), 1, ""), "p1 p3 ");
    ck_assert_str_eq(chosen(ask_memory(17, 1), 1, ""), "never");
    /* What leaves in any case counts. */
    ck_assert_str_eq(chosen(ask_memory(16, 1), 1, "p2"), "p4 ");
    ck_assert_str_eq(chosen(ask_memory(12, 1), 1, "p2"), "");
    ck_assert_str_eq(chosen(ask_memory(12, 1), 1, "elsewhere"), "p1 ");
    stop();
}
END_TEST

/* The first card is of another model than the others. */
static void start_mixed(void)
{
    start(3);
    struct scv scv = object_scv_even(&arena, "n1", 3, CARD_MIB);
    scv.cards[0].model = SPAN("Tesla V100");
    ledger_scv_seen(ledger, &scv, 0);
}

START_TEST(only_cards_of_the_model_are_freed)
{
    start_mixed();
    PUT(1, 0, {8});
    PUT(2, 0, {0, 12});
    PUT(3, 1, {0, 0, 12});
    struct request r = ask_memory(12, 1);
    r.models = SPAN("Tesla T4");
    ck_assert_str_eq(chosen(r, 5, ""), "p2 ");
    r.cards = 2;
    ck_assert_str_eq(chosen(r, 5, ""), "p3 p2 ");
    r = ask_whole(2);
    r.models = SPAN("Tesla V100");
    ck_assert_str_eq(chosen(r, 5, ""), "never");
    r.cards = 1;
    ck_assert_str_eq(chosen(r, 5, ""), "p1 ");
    stop();
}
END_TEST

/* Tells the ledger of the cards that these pods have through nvidia.com/gpu, and of one
 * that somebody has of whom it knows nothing (-1: none). The first `v100` are of that
 * model. */
static void show_held(const struct put *puts, int n, int cards, int v100, int stranger)
{
    struct scv scv = object_scv_even(&arena, "n1", cards, CARD_MIB);
    for (int c = 0; c < v100; c++)
        scv.cards[c].model = SPAN("Tesla V100");
    scv.held = arena_zalloc(&arena, (size_t)(n + 1) * sizeof *scv.held);
    for (int i = 0; i <= n; i++) {
        struct scv_held held = {.ns = SPAN("default"),
                                .pod = i == n ? SPAN("other")
                                              : quoted(&arena, "pod-%s", uid_of(i)),
                                .container = SPAN("c"),
                                .resource = SPAN(KEY_NVIDIA_GPU)};
        held.uuids = arena_alloc(&arena, CARDS_MAX * sizeof *held.uuids);
        for (int c = 0; c < cards; c++)
            if (i == n ? c == stranger : puts[i].devices && puts[i].mib[c])
                held.uuids[held.n_uuids++] = scv.cards[c].uuid;
        held.units = (int64_t)held.n_uuids;
        if (held.units)
            scv.held[scv.n_held++] = held;
    }
    ledger_scv_seen(ledger, &scv, 0);
}

static void start_held(const struct put *puts, int n, int stranger)
{
    start(4);
    for (int i = 0; i < n; i++)
        put(i, &puts[i]);
    show_held(puts, n, 4, 2, stranger);
}

static struct request ask_devices(int n, const char *model)
{
    return (struct request){
        .kind = REQUEST_DEVICES, .cards = (uint32_t)n, .models = span_of(model)};
}

/* The podList says who has which card: two of the first model, two of the second. */
START_TEST(holders_leave_the_cards_that_the_pod_list_shows)
{
    static const struct put puts[] = {{.priority = 0, .mib = {1}, .devices = 1},
                                      {.priority = 3, .mib = {0, 1}, .devices = 1},
                                      {.priority = 9, .mib = {0, 0, 1}, .devices = 1},
                                      {.priority = 9, .mib = {0, 0, 0, 1}, .devices = 1}};
    start_held(puts, 4, -1);
    struct request r = ask_devices(1, "Tesla T4");
    ck_assert_str_eq(chosen(r, 9, "p0"), "never"); /* of no use: it is a V100 */
    ck_assert_str_eq(chosen(r, 9, "web"), "never");
    ck_assert_str_eq(chosen(r, 9, "p2"), "");
    r = ask_devices(1, "Tesla V100");
    ck_assert_str_eq(chosen(r, 9, "p0"), "");
    ck_assert_str_eq(chosen(r, 9, "p2"), "p0 ");
    ck_assert_str_eq(chosen(r, 0, "p2"), "never");
    r.cards = 2;
    ck_assert_str_eq(chosen(r, 9, "p0"), "p1 ");
    ck_assert_str_eq(chosen(r, 3, "p0"), "never");
    ck_assert_str_eq(chosen(ask_devices(1, "A100"), 99, ""), "never");
    stop();
}
END_TEST

/* Who is bound and not shown yet has one of the cards that nobody is shown to have. */
START_TEST(what_a_card_less_holder_leaves_is_not_known)
{
    static const struct put claims[] = {{.priority = 9, .devices = 1},
                                        {.priority = 9, .devices = 1},
                                        {.priority = 9, .devices = 1},
                                        {.priority = 0, .devices = 1}};
    static const struct put shown[] = {{.priority = 0, .mib = {1}, .devices = 1},
                                       {.priority = 0, .mib = {0, 1}, .devices = 1},
                                       {.priority = 9, .devices = 2}};
    start_held(claims, 4, -1);
    /* The others may have the V100s and one T4. */
    ck_assert_str_eq(chosen(ask_devices(1, "Tesla T4"), 9, "p3"), "");
    ck_assert_str_eq(chosen(ask_devices(1, "Tesla T4"), 9, ""), "never");
    ck_assert_str_eq(chosen(ask_devices(2, "Tesla T4"), 9, "p3"), "never");
    stop();
    start_held(shown, 3, -1);
    /* p2 can have nothing but the T4s. */
    ck_assert_str_eq(chosen(ask_devices(1, "Tesla T4"), 9, "p0"), "never");
    ck_assert_str_eq(chosen(ask_devices(1, "Tesla V100"), 9, "p0"), "");
    ck_assert_str_eq(chosen(ask_devices(2, "Tesla V100"), 9, "p0"), "p1 ");
    stop();
}
END_TEST

/* A pod that the ledger has not heard of may be the one that has the card, and may not.
 */
START_TEST(a_stranger_may_be_who_has_the_card)
{
    static const struct put puts[] = {{.priority = 0, .mib = {1, 1}, .devices = 2},
                                      {.priority = 9, .mib = {0, 0, 1}, .devices = 1}};
    start_held(puts, 2, 3);
    ck_assert_str_eq(chosen(ask_devices(1, "Tesla T4"), 9, "p0"), "never");
    ck_assert_str_eq(chosen(ask_devices(1, "Tesla T4"), 9, "who"), "");
    ck_assert_str_eq(chosen(ask_devices(2, "Tesla T4"), 9, "who"), "never");
    stop();
}
END_TEST

START_TEST(who_shares_a_card_is_in_the_way_of_nvidias_plugin)
{
    static const struct put puts[] = {{.priority = 0, .mib = {8}},
                                      {.priority = 1, .mib = {8}},
                                      {.priority = 0, .mib = {0, 1}, .devices = 1}};
    start_held(puts, 3, -1);
    ck_assert_str_eq(chosen(ask_devices(1, "Tesla V100"), 9, ""), "p2 ");
    ck_assert_str_eq(chosen(ask_devices(1, "Tesla V100"), 9, "p0"), "p2 ");
    ck_assert_str_eq(chosen(ask_devices(2, "Tesla V100"), 9, ""), "p1 p2 p0 ");
    struct scv scv = object_scv_even(&arena, "n1", 4, CARD_MIB);
    scv.cards[0].healthy = scv.cards[1].healthy = false;
    ledger_scv_seen(ledger, &scv, 0);
    ck_assert_str_eq(chosen(ask_devices(3, "Tesla T4"), 9, ""), "never");
    stop();
}
END_TEST

/* As in filter: what a pod in line for the node will get is not there for others. */
START_TEST(who_is_in_line_takes_a_card_of_nvidias_plugin)
{
    static const struct put puts[] = {{.priority = 0, .mib = {0, 0, 1}, .devices = 1},
                                      {.priority = 0, .mib = {0, 0, 0, 1}, .devices = 1}};
    start_held(puts, 2, -1);
    struct pod pod = object_pod_mem(&arena, "first", 1);
    struct request r = ask_devices(1, "Tesla T4");
    pod.priority = 7;
    pod.nominated_node = SPAN("n1");
    ledger_pod_add(ledger, &pod, &r, NULL);
    ck_assert_str_eq(chosen(r, 5, "p0"), "p1 ");
    ck_assert_str_eq(chosen(r, 8, "p0"), "");
    stop();
}
END_TEST

START_TEST(lowest_priority_then_fewest_then_least)
{
    start(2);
    PUT(1, 5, {16});
    PUT(2, 1, {0, 6});
    PUT(3, 1, {0, 5});
    PUT(4, 3, {0, 5});
    /* One pod of priority 5, or two of at most 1. */
    ck_assert_str_eq(chosen(ask_memory(9, 1), 9, ""), "p2 p3 ");
    /* One of priority 1 is enough: the smaller of them is too. */
    ck_assert_str_eq(chosen(ask_memory(5, 1), 9, ""), "p3 ");
    ck_assert_str_eq(chosen(ask_memory(6, 1), 9, ""), "p2 ");
    ck_assert_str_eq(chosen(ask_memory(12, 1), 9, ""), "p4 p2 p3 ");
    ck_assert_str_eq(chosen(ask_memory(12, 1), 3, ""), "never");
    stop();
}
END_TEST

START_TEST(nobody_of_equal_priority_and_nobody_in_doubt)
{
    start(1);
    PUT(1, 3, {8});
    PUT(2, 0, {8}, .unsure = true);
    ck_assert_str_eq(chosen(ask_memory(8, 1), 3, ""), "never");
    ck_assert_str_eq(chosen(ask_memory(8, 1), 4, ""), "p1 ");
    ck_assert_str_eq(chosen(ask_memory(9, 1), 4, ""), "never");
    stop();
}
END_TEST

START_TEST(whole_cards_and_those_who_hold_them)
{
    start(3);
    PUT(1, 0, {16}, .whole = true);
    PUT(2, 0, {0, 3});
    PUT(3, 0, {0, 3});
    PUT(4, 0, {0, 0, 9});
    PUT(5, 2, {0, 0, 1});
    ck_assert_str_eq(chosen(ask_whole(1), 1, ""), "p1 ");
    ck_assert_str_eq(chosen(ask_whole(2), 1, ""), "p1 p3 p2 ");
    ck_assert_str_eq(chosen(ask_whole(3), 1, ""), "never");
    ck_assert_str_eq(chosen(ask_whole(3), 9, ""), "p5 p1 p4 p3 p2 ");
    /* Who shares can take the card of one that had it whole. */
    ck_assert_str_eq(chosen(ask_memory(16, 1), 1, ""), "p1 ");
    ck_assert_str_eq(chosen(ask_memory(15, 2), 1, ""), "p1 p4 ");
    stop();
}
END_TEST

START_TEST(who_is_nominated_to_the_node_comes_first)
{
    start(1);
    PUT(1, 0, {8});
    PUT(2, 0, {8});
    struct pod pod = object_pod_mem(&arena, "first", 8);
    struct request r = object_request(&arena, &pod, 1);
    pod.priority = 7;
    pod.nominated_node = SPAN("n1");
    ledger_pod_add(ledger, &pod, &r, NULL);
    /* One leaves for the other pod, so that both have to. */
    ck_assert_str_eq(chosen(ask_memory(8, 1), 5, ""), "p2 p1 ");
    ck_assert_str_eq(chosen(ask_memory(8, 1), 5, "p1"), "p2 ");
    ck_assert_str_eq(chosen(ask_memory(9, 1), 5, ""), "never");
    ck_assert_str_eq(chosen(ask_memory(9, 1), 8, ""), "p2 p1 ");
    stop();
}
END_TEST

START_TEST(a_node_that_gives_nothing_out_is_not_helped)
{
    start(1);
    PUT(1, 0, {16});
    struct scv scv = object_scv_even(&arena, "n1", 1, CARD_MIB);
    scv.damaged = true;
    ledger_scv_seen(ledger, &scv, 0);
    ck_assert_str_eq(chosen(ask_memory(1, 1), 1, ""), "never");
    stop();
}
END_TEST

/* Many pods on one card: the search has to end, and still find the few. */
START_TEST(a_full_card_is_searched_in_time)
{
    start(1);
    struct scv scv = object_scv_even(&arena, "n1", 1, 1 << 20);
    ledger_scv_seen(ledger, &scv, 0);
    struct rng rng;
    rng_init(&rng, 3);
    int left = 1 << 20, n = 0;
    while (left) {
        int mib = 1000 + (int)rng_below(&rng, 4000);
        mib = mib < left ? mib : left;
        left -= mib;
        PUT(n++, (int)rng_below(&rng, 3), {mib});
    }
    for (int need = 1; need < 1 << 20; need += 104729)
        ck_assert_str_ne(chosen(ask_memory(need, 1), 5, ""), "never");
    stop();
}
END_TEST

/* So many pods who hold two cards each come into question, among as many others as a
 * kubelet takes. The best time of some rounds. */
static int64_t us_with(int spanning)
{
    enum { CARDS = 8, OTHERS = 240, ROUNDS = 10 };
    int64_t best = INT64_MAX;
    start(CARDS);
    struct scv scv = object_scv_even(&arena, "n1", CARDS, 1000);
    ledger_scv_seen(ledger, &scv, 0);
    for (int i = 0; i < spanning; i++)
        PUT(i, 0, {90, 90});
    for (int i = 0; i < OTHERS; i++)
        PUT(spanning + i, 9, {0, 0, 1});
    for (int i = 0; i < ROUNDS; i++) {
        int64_t at = clock_mono_us();
        ck_assert(strlen(chosen(ask_memory(700, CARDS), 5, "")) >= strlen("p1 ") * 7);
        at = clock_mono_us() - at;
        best = at < best ? at : best;
    }
    stop();
    return best;
}

/* A thousand sets, each a look at all pods and cards, would be too many. */
START_TEST(a_node_with_many_pods_is_not_tried_in_every_way)
{
    int64_t ten = us_with(10), eleven = us_with(11);
    ck_assert_msg(ten < 5 * eleven + 200, "ten %d us, eleven %d us", (int)ten,
                  (int)eleven);
}
END_TEST

/* All sets, by brute force. */

struct cost {
    int top, n, beyond;
};

static bool cheaper(struct cost a, struct cost b)
{
    if (a.top != b.top)
        return a.top < b.top;
    return a.n != b.n ? a.n < b.n : a.beyond < b.beyond;
}

struct world {
    struct put puts[PODS_MAX];
    int n, cards;
    struct request ask;
    int priority;
};

static int sum_on(const struct world *w, unsigned gone, int card, bool *whole)
{
    int mib = 0;
    *whole = false;
    for (int i = 0; i < w->n; i++) {
        if (gone >> i & 1 || !w->puts[i].mib[card])
            continue;
        mib += w->puts[i].whole || w->puts[i].devices ? CARD_MIB : w->puts[i].mib[card];
        *whole |= w->puts[i].whole;
    }
    return mib;
}

/* What is given up beyond what was missing, at best; -1: it does not fit. */
static int beyond_of(const struct world *w, unsigned gone)
{
    bool whole, all = w->ask.kind != REQUEST_MEMORY;
    int missing[CARDS_MAX], n = 0, given = 0;
    for (int c = 0; c < w->cards; c++) {
        int after = sum_on(w, gone, c, &whole);
        if (all ? after > 0 : whole || CARD_MIB - after < w->ask.mib_per_card)
            continue;
        int before = sum_on(w, 0, c, &whole);
        int lacks = all ? before : before + (int)w->ask.mib_per_card - CARD_MIB;
        missing[n++] = lacks > 0 ? lacks : 0;
    }
    if (n < (int)w->ask.cards)
        return -1;
    for (int i = 0; i < w->n; i++)
        for (int c = 0; c < w->cards && gone >> i & 1; c++)
            if (w->puts[i].mib[c])
                given += w->puts[i].whole ? CARD_MIB : w->puts[i].mib[c];
    for (uint32_t k = 0; k < w->ask.cards; k++) {
        int best = 0;
        for (int c = 1; c < n; c++)
            best = missing[c] > missing[best] ? c : best;
        given -= missing[best];
        missing[best] = -1;
    }
    return given;
}

static bool cost_of(const struct world *w, unsigned gone, struct cost *cost)
{
    *cost = (struct cost){.top = -1, .n = __builtin_popcount(gone)};
    for (int i = 0; i < w->n; i++) {
        if (!(gone >> i & 1))
            continue;
        if (w->puts[i].priority >= w->priority)
            return false;
        if (w->puts[i].priority > cost->top)
            cost->top = w->puts[i].priority;
    }
    cost->beyond = beyond_of(w, gone);
    return cost->beyond >= 0;
}

/* `nvidia`: those of whole cards have them through nvidia.com/gpu, and one more wants
 * some. */
static void fill_world(struct world *w, struct rng *rng, bool spanning, bool nvidia)
{
    int used[CARDS_MAX] = {0};
    *w = (struct world){.cards = 1 + (int)rng_below(rng, CARDS_MAX),
                        .priority = 1 + (int)rng_below(rng, 4)};
    int wish = (int)rng_below(rng, PODS_MAX + 1);
    for (int i = 0; i < wish; i++) {
        struct put p = {.priority = (int)rng_below(rng, 4)};
        int c = (int)rng_below(rng, (uint64_t)w->cards);
        int d = spanning ? (int)rng_below(rng, (uint64_t)w->cards) : c;
        int mib = 1 + (int)rng_below(rng, 9);
        if (rng_below(rng, nvidia ? 2 : 8) == 0 && !used[c] && !used[d]) {
            p.whole = !nvidia;
            p.devices = nvidia ? 1 + (c != d) : 0;
            mib = CARD_MIB;
        }
        if (used[c] + mib > CARD_MIB || used[d] + mib > CARD_MIB)
            continue;
        p.mib[c] = p.mib[d] = mib;
        used[c] += mib;
        used[d] += d == c ? 0 : mib;
        w->puts[w->n++] = p;
    }
    int cards = 1 + (int)rng_below(rng, (uint64_t)w->cards);
    w->ask = rng_below(rng, 3) ? ask_memory(1 + (int)rng_below(rng, CARD_MIB), cards)
                               : ask_whole(cards);
    if (nvidia)
        w->ask = ask_devices(cards, "Tesla T4");
}

static unsigned chosen_set(const struct world *w, bool *found)
{
    struct preempt_ask ask = {&w->ask, w->priority, SPAN("me")};
    struct preempt_set set;
    unsigned gone = 0;
    *found =
        preempt_choose(&ask, ledger_node_find(ledger, SPAN("n1")), NULL, 0, &arena, &set);
    for (size_t i = 0; i < set.n; i++) {
        gone |= 1U << (set.pods[i]->uid.p[1] - '0');
        ck_assert(i == 0 || set.pods[i]->priority <= set.pods[i - 1]->priority);
    }
    return gone;
}

static void compare(const struct world *w, uint64_t round)
{
    struct cost best = {0}, cost, got;
    bool possible = false, found;
    for (unsigned gone = 0; gone < 1U << w->n; gone++) {
        if (!cost_of(w, gone, &cost) || (possible && !cheaper(cost, best)))
            continue;
        best = cost;
        possible = true;
        if (!gone)
            break; /* it fits */
    }
    unsigned set = chosen_set(w, &found);
    ck_assert_msg(found == possible, "round %d: %s", (int)round,
                  found ? "found one" : "found none");
    if (!possible)
        return;
    ck_assert_msg(cost_of(w, set, &got), "round %d: %x does not help", (int)round, set);
    ck_assert_msg(!cheaper(best, got) && (best.n > 0) == (set > 0),
                  "round %d: %x costs %d,%d,%d, the best %d,%d,%d", (int)round, set,
                  got.top, got.n, got.beyond, best.top, best.n, best.beyond);
}

static void compare_many(bool spanning, bool nvidia, uint64_t rounds)
{
    struct rng rng;
    rng_init(&rng, 7);
    for (uint64_t round = 0; round < rounds; round++) {
        struct world w;
        fill_world(&w, &rng, spanning, nvidia);
        start(w.cards);
        for (int i = 0; i < w.n; i++)
            put(i, &w.puts[i]);
        show_held(w.puts, w.n, w.cards, 0, -1);
        compare(&w, round);
        stop();
    }
}

START_TEST(no_set_is_cheaper)
{
    compare_many(false, false, 4000);
}
END_TEST

START_TEST(no_set_is_cheaper_where_pods_hold_several_cards)
{
    compare_many(true, false, 4000);
}
END_TEST

START_TEST(no_set_is_cheaper_where_nvidias_plugin_gave_cards_out)
{
    compare_many(false, true, 2000);
    compare_many(true, true, 2000);
}
END_TEST

UNIT_MAIN("preempt", one_card_not_the_sum_of_several,
          lowest_priority_then_fewest_then_least, only_cards_of_the_model_are_freed,
          holders_leave_the_cards_that_the_pod_list_shows,
          what_a_card_less_holder_leaves_is_not_known, a_stranger_may_be_who_has_the_card,
          who_shares_a_card_is_in_the_way_of_nvidias_plugin,
          who_is_in_line_takes_a_card_of_nvidias_plugin,
          nobody_of_equal_priority_and_nobody_in_doubt,
          whole_cards_and_those_who_hold_them, who_is_nominated_to_the_node_comes_first,
          a_node_that_gives_nothing_out_is_not_helped, a_full_card_is_searched_in_time,
          a_node_with_many_pods_is_not_tried_in_every_way, no_set_is_cheaper,
          no_set_is_cheaper_where_pods_hold_several_cards,
          no_set_is_cheaper_where_nvidias_plugin_gave_cards_out)
