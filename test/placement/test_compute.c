/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "domain/promise.h"
#include "placement/fixture.h"
#include "placement/preempt.h"

/*
 * Shares of compute: each card has 100 percent, and a request needs its memory and its
 * share on the same card.
 */

enum { CARD_MIB = 100 };

/* A node n1 with cards of 100 MiB; `core`: what its Node offers, -1: no such resource. */
static void start(int cards, int core)
{
    restart();
    cleanup_buf struct buf offer = {0};
    if (core >= 0)
        buf_printf(&offer, ",'" KEY_GPU_CORE "':'%d'", core);
    struct node node = object_node(
        &arena, quoted(&arena,
                       "{'metadata':{'name':'n1'},'status':{'capacity':{'" KEY_GPU_MEM
                       "':'%d'%s}}}",
                       cards * CARD_MIB, offer.n ? offer.p : ""));
    even_node("n1", cards, CARD_MIB);
    ledger_node_seen(ledger, &node, 0);
}

static const struct ledger_node *n1(void)
{
    return node_of("n1");
}

static const struct card *card(int i)
{
    return &n1()->cards[i];
}

static struct request ask(int mib, int core, uint32_t cards)
{
    struct request r = memory(mib, cards);
    r.compute_percent = (uint8_t)core;
    return r;
}

static struct ledger_pod *place(const char *uid, struct request r, int first)
{
    return bound_pod("n1", uid, r, first);
}

/* The first card for the request; -1: none. */
static int choose(struct request r)
{
    uint64_t chosen = chosen_cards(n1(), &r);
    ck_assert_int_eq(chosen != 0, select_fit(n1(), &r) == FIT_YES);
    return chosen ? __builtin_ctzll(chosen) : -1;
}

TEST(two_shares_on_one_card_add_up)
{
    start(1, 100);
    const struct ledger_share shares[] = {{.card = 0, .mib = 10}, {.card = 0, .mib = 10}};
    struct ledger_pod *a = place("a", ask(10, 60, 2), -1);
    ledger_pod_place(ledger, a, SPAN("n1"), shares, ARRAY_LEN(shares));
    ck_assert_uint_eq(card(0)->compute_promised, 120);
    ck_assert_uint_eq(ledger_pod_core(a, card(0)), 120);
    struct request one = ask(10, 50, 1);
    const struct preemptor who = {.pod = {&one, 9, SPAN("high"), NULL}};
    struct preempt_victims set;
    ck_assert(preempt_select(&who, n1(), NULL, 0, &arena, &set));
    ck_assert_uint_eq(set.n, 1);
}

TEST(a_rejection_names_the_compute)
{
    start(2, 200);
    place("a", ask(20, 70, 1), 0);
    place("b", ask(80, 40, 1), 1);
    expect_reason(n1(), ask(30, 50, 1), FIT_LATER,
                  "needs 30 MiB and 50 % of the compute on one card; most free: 80 of "
                  "100 MiB on GPU0; most free compute beside that memory: 30 % on GPU0");
    expect_reason(n1(), ask(90, 50, 1), FIT_LATER,
                  "needs 90 MiB and 50 % of the compute on one card; most free: 80 of "
                  "100 MiB on GPU0");
    expect_reason(n1(), ask(10, 31, 2), FIT_LATER,
                  "needs 10 MiB and 31 % of the compute on each of 2 cards; cards with "
                  "enough free memory and compute: 1; most free: 80 of 100 MiB on GPU0; "
                  "most free compute beside that memory: 60 % on GPU1");
    struct request r = ask(30, 50, 1);
    ck_assert_int_eq(reason_class_of(n1(), &r, FIT_LATER), REASON_COMPUTE);
    r.mib_per_card = 90;
    ck_assert_int_eq(reason_class_of(n1(), &r, FIT_LATER), REASON_MEMORY);
    /* Memory on one card is not enough for two. */
    r = ask(30, 10, 2);
    ck_assert_int_eq(reason_class_of(n1(), &r, select_fit(n1(), &r)), REASON_MEMORY);
    r = ask(10, 31, 2);
    ck_assert_int_eq(reason_class_of(n1(), &r, select_fit(n1(), &r)), REASON_COMPUTE);
}

/* Compute is the reason only if a card that the request accepts has the memory. */
TEST(compute_is_judged_on_cards_that_suit)
{
    start(2, 200);
    struct scv scv = object_scv_even(&arena, "n1", 2, CARD_MIB);
    scv.cards[0].model = SPAN("Tesla T4");
    scv.cards[1].model = SPAN("Tesla V100");
    ledger_scv_seen(ledger, &scv, 0);
    place("a", ask(80, 0, 1), 0);
    place("b", ask(10, 80, 1), 1);
    struct request r = ask(50, 30, 1);
    r.models = SPAN("Tesla T4");
    ck_assert_int_eq(reason_class_of(n1(), &r, select_fit(n1(), &r)), REASON_MEMORY);
    r.models = SPAN("Tesla V100");
    ck_assert_int_eq(reason_class_of(n1(), &r, select_fit(n1(), &r)), REASON_COMPUTE);
}

/* kube-scheduler rejects the pod there, and the kubelet would count nothing. */
TEST(a_node_has_to_offer_the_resource)
{
    start(1, -1);
    ck_assert_int_eq(choose(ask(10, 1, 1)), -1);
    ck_assert_int_eq(choose(ask(10, 0, 1)), 0);
    expect_reason(n1(), ask(10, 1, 1), FIT_LATER,
                  "needs 10 MiB and 1 % of the compute on one card; the node's device "
                  "plugin does not offer " KEY_GPU_CORE);
    place("a", ask(10, 60, 1), 0); /* it is bound: it counts nevertheless */
    ck_assert_uint_eq(card_core_left(card(0)), 40);
    start(1, 0);
    ck_assert_int_eq(choose(ask(10, 1, 1)), -1);
}

/* A bound pod whose annotations or podList name other cards may have all of it there. */
TEST(unclear_cards_count_in_full)
{
    start(3, 300);
    struct ledger_share one = {.card = 1, .mib = 20};
    struct ledger_pod *p = place("a", ask(10, 30, 2), -1);
    ledger_pod_place(ledger, p, SPAN("n1"), &one, 1);
    ck_assert_uint_eq(card(1)->compute_promised, 60);
    ledger_pod_place(ledger, p, SPAN("n1"), NULL, 0); /* no card is known */
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_eq(card(i)->compute_promised, 60);
        ck_assert_uint_eq(ledger_pod_core(p, card(i)), 60);
    }
    ledger_pod_remove(ledger, p);
    /* Without the extender: two pods on one card. */
    place("b", ask(10, 80, 1), 0);
    place("c", ask(10, 80, 1), 0);
    ck_assert_uint_eq(ledger_totals(ledger).overcommitted, 1);
    ck_assert_uint_eq(card_core_left(card(0)), 0);
}

/* What a pod counts for after a restart: limits cannot be edited, so they have it all. */
TEST(a_bound_pod_counts_for_its_limits)
{
    static const struct {
        const char *meta, *containers;
        uint8_t core;
        int kind;
    } cases[] = {
        {"", "{'" KEY_GPU_MEM "':'10','" KEY_GPU_CORE "':'30'}", 30, REQUEST_MEMORY},
        {"'annotations':{'" KEY_GPU_COUNT "':'2'}",
         "{'" KEY_GPU_MEM "':'10','" KEY_GPU_CORE "':'30'}", 15, REQUEST_MEMORY},
        /* an edited label makes the request invalid: all of it on one card */
        {"'annotations':{'" KEY_GPU_COUNT "':'x'}",
         "{'" KEY_GPU_MEM "':'10','" KEY_GPU_CORE "':'130'}", 100, REQUEST_MEMORY},
        {"", "{'" KEY_GPU_MEM "':'10','" KEY_GPU_CORE "':'-5'}", 100, REQUEST_MEMORY},
        {"", "{'" KEY_GPU_CORE "':'50'}", 0, REQUEST_NONE},
        /* bound by labels before the rule that compute needs memory */
        {"'labels':{'" KEY_SCV_MEMORY "':'10'}", "{'" KEY_GPU_CORE "':'50'}", 50,
         REQUEST_MEMORY},
        {"'labels':{'" KEY_SCV_MEMORY "':'10'}", "{'" KEY_GPU_CORE "':'-5'}", 100,
         REQUEST_MEMORY},
        {"'labels':{'" KEY_SCV_NUMBER "':'1'}", "{'" KEY_GPU_CORE "':'50'}", 0,
         REQUEST_CARDS},
        {"", "{'" KEY_GPU_COUNT "':'1','" KEY_GPU_CORE "':'50'}", 0, REQUEST_CARDS},
    };
    const struct request_rules rules = {.unit_mib = 1};
    array_indices(i, cases) {
        struct pod pod = object_pod(
            &arena,
            quoted(&arena,
                   "{'metadata':{'name':'p','uid':'p'%s%s},'spec':{'nodeName':"
                   "'n1','containers':[{'resources':{'limits':%s}}]}}",
                   cases[i].meta[0] ? "," : "", cases[i].meta, cases[i].containers));
        struct promise none = {0};
        struct request r;
        struct err err = {0};
        promise_of_bound(&pod, &none, &rules, &arena, &r, &err);
        ck_assert_int_eq(r.kind, cases[i].kind);
        ck_assert_msg(r.compute_percent == cases[i].core, "case %zu: %u", i,
                      r.compute_percent);
    }
}

static void reserve(const char *uid, struct request r, int64_t priority)
{
    struct ledger_share share = {.card = 0, .mib = r.mib_per_card};
    const struct ledger_reservation one = {.uid = span_of(uid),
                                           .priority = priority,
                                           .request = &r,
                                           .shares = &share,
                                           .n_shares = 1};
    ledger_reserve(ledger, &one, SPAN("n1"));
}

TEST(reservations_keep_compute)
{
    start(1, 100);
    reserve("r", ask(10, 70, 1), 5);
    struct request r = ask(10, 31, 1);
    ck_assert_uint_eq(card(0)->compute_reserved, 70);
    ck_assert_int_eq(choose(ask(10, 30, 1)), 0);
    ck_assert_int_eq(choose(r), -1);
    /* Its own pod, and one of higher priority, see it as free. */
    ck_assert_uint_ne(bind_cards(n1(), &r, 5, SPAN("r")), 0);
    ck_assert_uint_ne(bind_cards(n1(), &r, 6, SPAN("x")), 0);
    expect_bind(n1(), &r, 5, "x", 0);
    ck_assert_ptr_null(ledger_reservation_lost(n1(), 100));
    reserve("other", ask(10, 0, 1), 1);
    place("taken", r, 0);
    struct ledger_reservation *lost = ledger_reservation_lost(n1(), 100);
    ck_assert_ptr_nonnull(lost); /* not the one without compute */
    ck_assert(span_eq(lost->uid, SPAN("r")));
    ledger_reservation_end(ledger, lost);
    ck_assert_ptr_null(ledger_reservation_lost(n1(), 100));
}

/* -- at random -- */

enum { CARDS = 3, PODS = 8, ROUNDS = 3000 };

struct model {
    int cards, mib[CARDS], core[CARDS];
    struct {
        int card, cards, mib, core, priority;
    } pods[PODS];
    int n;
};

static bool model_fits(const struct model *m, const bool *gone, const struct request *r)
{
    uint32_t fit = 0;
    for (int c = 0; c < m->cards; c++) {
        int mib = CARD_MIB, core = 100;
        for (int i = 0; i < m->n; i++)
            if (!gone[i] && c >= m->pods[i].card &&
                c < m->pods[i].card + m->pods[i].cards) {
                mib -= m->pods[i].mib;
                core -= m->pods[i].core;
            }
        fit += mib >= (int)r->mib_per_card && core >= r->compute_percent;
    }
    return fit >= r->cards;
}

static void add_random(struct model *m, struct rng *rng, const struct request *r, int at)
{
    int priority = (int)rng_below(rng, 4);
    uint64_t chosen = chosen_cards(n1(), r);
    int first = chosen ? __builtin_ctzll(chosen) : 0;
    if (chosen >> first != (UINT64_C(1) << r->cards) - 1)
        return;
    place(quoted(&arena, "p%d", at).p, *r, first)->priority = priority;
    m->pods[m->n].card = first;
    m->pods[m->n].cards = (int)r->cards;
    m->pods[m->n].mib = (int)r->mib_per_card;
    m->pods[m->n].core = r->compute_percent;
    m->pods[m->n++].priority = priority;
}

/* Victims have a lower priority, suffice, and none of them is without need. */
static void check_victims(const struct model *m, const struct request *r, int priority)
{
    struct preemptor who = {.pod = {r, priority, SPAN("me"), NULL}};
    struct preempt_victims victims;
    bool gone[PODS] = {false}, all[PODS] = {false};
    bool found = preempt_select(&who, n1(), NULL, 0, &arena, &victims);
    for (int i = 0; i < m->n; i++)
        all[i] = m->pods[i].priority < priority;
    ck_assert_int_eq(found, model_fits(m, all, r));
    for (size_t k = 0; found && k < victims.n; k++)
        ck_assert_int_lt((int)victims.pods[k]->priority, priority);
    if (!found)
        return;
    size_t n = 0;
    for (const struct ledger_pod *p = n1()->pods; p; p = p->next)
        n++;
    ck_assert_uint_eq(n, (size_t)m->n);
    /* The list of the node is newest first, as the model is oldest first. */
    int i = m->n - 1;
    for (const struct ledger_pod *p = n1()->pods; p; p = p->next, i--)
        for (size_t k = 0; k < victims.n; k++)
            gone[i] |= victims.pods[k] == p;
    ck_assert(model_fits(m, gone, r));
    for (int k = 0; k < m->n; k++) {
        if (!gone[k])
            continue;
        gone[k] = false;
        ck_assert_msg(!model_fits(m, gone, r), "a victim is not needed");
        gone[k] = true;
    }
}

TEST(fit_choice_and_victims_agree_with_a_model)
{
    struct rng rng = {0};
    rng_init(&rng, 7);
    uint64_t rejected = 0, preempted = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct model m = {.cards = 1 + (int)rng_below(&rng, CARDS)};
        bool none[PODS] = {false};
        start(m.cards, m.cards * 100);
        for (int i = 0; i < PODS; i++) {
            struct request r = ask(5 * (1 + (int)rng_below(&rng, 10)),
                                   rng_below(&rng, 3) ? 10 * (int)rng_below(&rng, 11) : 0,
                                   rng_below(&rng, 4) || m.cards < 2 ? 1 : 2);
            bool fits = model_fits(&m, none, &r);
            ck_assert_int_eq(select_fit(n1(), &r) == FIT_YES, fits);
            rejected += !fits;
            add_random(&m, &rng, &r, i);
            ck_assert_uint_eq(ledger_totals(ledger).overcommitted, 0);
        }
        struct request r = ask(5 * (1 + (int)rng_below(&rng, 12)),
                               10 * (1 + (int)rng_below(&rng, 10)), 1);
        preempted += !model_fits(&m, none, &r);
        check_victims(&m, &r, 1 + (int)rng_below(&rng, 4));
    }
    ck_assert_uint_gt(rejected, ROUNDS / 10);
    ck_assert_uint_gt(preempted, ROUNDS / 10);
}

UNIT_MAIN_AROUND(begin, end)
