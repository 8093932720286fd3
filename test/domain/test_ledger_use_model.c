/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/use_sample.h"

#include "base/rng.h"

/*
 * The ledger's external use and overuse, measured and estimated, against a model that knows
 * what is true; and Scvs that lie.
 */

/* -- a model -- */

enum { PODS = 6, CARDS = 2, ROUNDS = 4000 };

struct model_pod {
    char uid[8];
    struct ledger_pod *pod; /* NULL: not in the ledger */
    int card, promise;
    long in_sample;   /* the first one that shows it; 0: not running */
    long used[CARDS]; /* as the newest sample shows it */
};

static struct model {
    struct rng rng;
    struct model_pod pods[PODS];
    long outside[CARDS], unlisted[CARDS];
    /* Of pods that left since the sample: used, beyond their promises, and not used. */
    long left_used[CARDS], left_beyond[CARDS], left_unused[CARDS];
    long left_promise[CARDS]; /* of those that the sample shows */
    long samples;
    bool exact;
    int next;
    long bounded, estimated, overused; /* cards that were judged by each rule */
} model;

static long below(uint64_t n)
{
    return (long)rng_below(&model.rng, n);
}

static void model_place(struct model_pod *p)
{
    snprintf(p->uid, sizeof p->uid, "p%d", model.next++ % 100000);
    p->card = (int)below(CARDS);
    p->promise = 500 + (int)below(3000);
    p->pod = place(p->uid, p->promise, p->card);
    p->in_sample = 0;
    p->used[0] = p->used[1] = 0;
}

static long at_most(long a, long b)
{
    return a < b ? a : b;
}

static void model_remove(struct model_pod *p)
{
    for (int c = 0; c < CARDS; c++) {
        long promise = c == p->card ? p->promise : 0;
        model.left_used[c] += p->used[c];
        model.left_beyond[c] += p->used[c] - at_most(p->used[c], promise);
        if (p->in_sample && p->in_sample <= model.samples)
            model.left_promise[c] += promise;
        if (p->used[c])
            model.left_unused[c] += promise - at_most(p->used[c], promise);
    }
    ledger_pod_remove(ledger, p->pod);
    p->pod = NULL;
}

static long some_use(void)
{
    return below(3) ? below(3) * (100 + below(1500)) : 0;
}

static void model_sample(void)
{
    struct sample s = {.incomplete = below(4) == 0};
    model.exact = !s.incomplete;
    model.samples++;
    for (int c = 0; c < CARDS; c++) {
        long processes = 1 + below(3);
        model.outside[c] = model.left_promise[c] = 0;
        model.left_used[c] = model.left_beyond[c] = model.left_unused[c] = 0;
        for (long i = 0; i < processes; i++) {
            long mib = some_use();
            other_process(&s, c, mib);
            model.outside[c] += mib;
        }
        model.unlisted[c] = below(2) ? below(800) : 0;
        s.used[c] += model.unlisted[c];
    }
    for (int i = 0; i < PODS; i++)
        for (int c = 0; c < CARDS && model.pods[i].pod; c++) {
            struct model_pod *p = &model.pods[i];
            p->used[c] = c == p->card || !below(8) ? some_use() : 0;
            if (p->used[c] && c == p->card && below(2))
                uses(&s, p->uid, c, p->used[c]);
            else if (p->used[c])
                uses_without_device(&s, p->uid, c, p->used[c]);
        }
    see(&s);
}

/* Computed from what is true, not from what the Scv says. */
static void model_check(int c)
{
    long outside = model.outside[c] + model.left_beyond[c], overuse = 0;
    long unused = model.left_unused[c], own = model.left_promise[c];
    long used = model.outside[c] + model.unlisted[c] + model.left_used[c];
    long promised = 0, must = model.outside[c] + model.unlisted[c];
    const struct card *card = card_of(c);
    for (int i = 0; i < PODS; i++) {
        const struct model_pod *p = &model.pods[i];
        long promise = p->pod && p->card == c ? p->promise : 0;
        if (!p->pod)
            continue;
        promised += promise;
        used += p->used[c];
        own += p->in_sample && p->in_sample <= model.samples ? promise : 0;
        must += p->used[c] > promise ? p->used[c] : promise;
        overuse += p->used[c] > promise ? p->used[c] - promise : 0;
        unused += p->used[c] && p->used[c] < promise ? promise - p->used[c] : 0;
    }
    ck_assert_int_eq(card->promised_mib, promised);
    /* No new pod can make the card overcommitted in fact: each pod gets its promise or
     * what it uses. Managed memory may be inside a promise. */
    long hidden = at_most(model.unlisted[c], unused);
    if (model.exact && card->free_mib) {
        ck_assert_int_le(card->free_mib, TOTAL - must + TOLERANCE + hidden);
        model.bounded++;
    }
    ck_assert_int_eq(card->use_known, model.exact);
    if (!model.exact) {
        long estimate = at_most(used - own - TOLERANCE, TOTAL);
        ck_assert_int_eq(card->withheld_mib, estimate < 0 ? 0 : estimate);
        ck_assert_int_eq(card->overuse_mib, 0);
        model.estimated += estimate > 0;
        return;
    }
    outside += model.unlisted[c] - hidden;
    long withheld = outside + overuse - TOLERANCE;
    withheld = withheld < 0 ? 0 : at_most(withheld, TOTAL);
    ck_assert_int_eq(card->withheld_mib, withheld);
    ck_assert_int_eq(card->overuse_mib, at_most(overuse, withheld));
    model.overused += card->overuse_mib > 0;
}

TEST(both_parts_are_those_of_the_model)
{
    start();
    rng_init(&model.rng, 20261123);
    model_sample();
    for (int round = 0; round < ROUNDS; round++) {
        struct model_pod *p = &model.pods[below(PODS)];
        long what = below(4);
        if (what == 0 && !p->pod) {
            model_place(p);
        } else if (what == 1 && p->pod) {
            model_remove(p);
        } else if (what == 2 && p->pod) {
            bool before = below(2);
            ledger_pod_running(ledger, p->pod, before);
            p->in_sample = p->in_sample ? p->in_sample : before ? 1 : model.samples + 1;
        } else if (what == 3) {
            model_sample();
        }
        for (int c = 0; c < CARDS; c++)
            model_check(c);
        arena_reset(&arena);
    }
    ck_assert_int_gt(model.bounded, ROUNDS / 10);
    ck_assert_int_gt(model.estimated, ROUNDS / 10);
    ck_assert_int_gt(model.overused, ROUNDS / 10);
    ledger_free(ledger);
}

/* Whatever a node's credentials write: the card gives new pods no more than what NVML
 * showed as free, and the tolerance; and what pods were promised stays theirs. */
TEST(a_lying_podlist_frees_nothing_that_is_used)
{
    static const char *const lies[] = {"p0", "p1", "p2", "other", "p0", ""};
    long bounded = 0;
    rng_init(&model.rng, 7);
    for (int round = 0; round < ROUNDS; round++) {
        struct sample s = {0};
        long used = below(TOTAL + 1), promised = 0;
        start();
        see(&s);
        for (int i = 0; i < 3; i++) {
            static const char *const uids[] = {"p0", "p1", "p2"};
            int mib = 1 + (int)below(4000);
            struct ledger_pod *p = place(uids[i], mib, 0);
            promised += mib;
            if (below(2))
                ledger_pod_running(ledger, p, below(2));
        }
        for (long n = below(8); n > 0; n--) {
            long mib = below(3) ? below(4000) : below(INT64_C(1) << 41);
            if (below(3))
                uses(&s, lies[below(ARRAY_LEN(lies))], (int)below(2), mib);
            else
                other_process(&s, (int)below(2), mib);
        }
        s.used[0] = used; /* NVML's */
        s.used[1] = below(TOTAL);
        see(&s);
        const struct card *card = card_of(0);
        ck_assert_int_eq(card->promised_mib, promised);
        ck_assert_int_le(card->free_mib, TOTAL - promised);
        ck_assert_int_ge(card->withheld_mib, 0);
        ck_assert_int_ge(card_external_mib(card), 0);
        ck_assert_int_le(card->withheld_mib, TOTAL);
        if (card->use_known && card->free_mib) {
            ck_assert_int_le(card->free_mib, TOTAL - used + TOLERANCE);
            bounded++;
        }
        ledger_free(ledger);
        arena_reset(&arena);
    }
    ck_assert_int_gt(bounded, ROUNDS / 10);
}
