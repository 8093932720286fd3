/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "lib/unit.h"
#include "node/overuse.h"

/*
 * Random nodes against a judge. The judge keeps every measurement and derives from them,
 * by the sentences of node/overuse.h and without any state of its own but the actions so
 * far, what must be done at each step; the module must do exactly that. The planted faults
 * show that the judge notices: with each of them the module is fed a small lie, and the
 * judge must find a difference.
 */

enum { CARDS = 2, PODS = 4, PARTS = 2, STEPS = 400, SEEDS = 300, TOTAL = 16000 };

enum fault {
    NO_FAULT,
    INCOMPLETE_IS_COMPLETE,
    STALE_IS_FRESH,
    RESTARTED_CONTAINER_IS_THE_OLD_ONE,
    UNKNOWN_PROMISE_IS_SMALL,
    WHOLE_CARD_IS_SHARED,
    SIBLINGS_ARE_OTHER_PODS,
    GRACE_IS_HALF,
    NO_TOLERANCE,
    ALWAYS_HURTS,
    NO_FREE_MEMORY,
    UNKNOWN_FREE_IS_ZERO,
    REJECTED_IS_ACCEPTED,
    ACCEPTED_IS_REJECTED,
    RESTART_KEEPS_THE_GRACE,
    NOTHING_IS_REMEMBERED,
    EVICTS_INSTEAD_OF_REPORTING,
    IDLE_PROMISES_ARE_FORGOTTEN,
    OLD_PROMISES_ARE_NEW,
    UNCLEAR_PROMISES_ARE_CLEAR,
    FAILED_KILLS_ARE_PENDING,
    INIT_CONTAINERS_ADD_UP,
    INIT_CONTAINERS_ARE_FORGOTTEN,
    FAULTS,
};

/* One container on one card, as measured. */
struct part {
    bool present;
    int generation; /* of the container; -1: it has no process */
    int64_t used, promised;
    bool unclear; /* the promise: there may be more */
    bool init;
};

/* What the pod was promised on the card for an init container. While `known`, the last
 * part of the pod is that container. */
struct init {
    bool known;
    int64_t own, beside; /* -1: the amount is unknown */
};

struct measurement {
    int64_t taken, now, promised;
    bool failed, complete[CARDS];
    int64_t free[CARDS];
    struct part part[CARDS][PODS][PARTS];
    struct init init[CARDS][PODS];
};

/* An action, by number of card, pod and container. Evictions have no card and part. */
struct deed {
    enum overuse_type type;
    int card, pod, part;
};

struct limit {
    bool pending;
    int rejections;
    int64_t until, again;
};

struct world {
    struct rng rng;
    enum fault fault;
    struct overuse_settings settings;
    int64_t now, promised;
    struct measurement *log;
    size_t n_log;
    struct part part[CARDS][PODS][PARTS];
    struct init init[CARDS][PODS];
    struct limit reports[CARDS][PODS][PARTS], kills[CARDS][PODS][PARTS], evictions[PODS];
    struct overuse *module;
    size_t begin; /* the first measurement of this process */
};

static bool one_in(struct world *w, uint64_t n)
{
    return rng_below(&w->rng, n) == 0;
}

/* -- the world -- */

static void change(struct world *w, struct part *p)
{
    static const int64_t promises[] = {0, 1000, 2000, 4000, 4000, 8000};
    if (one_in(w, 40))
        p->promised = one_in(w, 12)   ? -1
                      : one_in(w, 12) ? TOTAL
                                      : promises[rng_below(&w->rng, 6)];
    if (one_in(w, p->unclear ? 20 : 400))
        p->unclear = !p->unclear;
    if (one_in(w, 30))
        p->generation++;
    if (one_in(w, 30))
        p->present = !p->present;
    if (!one_in(w, 15))
        return;
    int64_t base = p->promised > 0 ? p->promised : 0;
    int64_t more = (int64_t)rng_below(&w->rng, 6) * 100 - 200;
    p->used = one_in(w, 4) ? 0 : one_in(w, 4) ? base + 3000 : base + more;
    if (p->used < 0)
        p->used = 0;
}

static void change_init(struct world *w, struct init *init)
{
    if (one_in(w, init->known ? 30 : 60))
        init->known = !init->known;
    if (one_in(w, 40))
        init->own = one_in(w, 8) ? -1 : (int64_t)rng_below(&w->rng, 5) * 1500;
    if (one_in(w, 40))
        init->beside = one_in(w, 8) ? -1 : (int64_t)rng_below(&w->rng, 3) * 1000;
}

static void advance(struct world *w)
{
    static const int64_t steps[] = {100, 500, 1000, 1000, 1000, 2500, 7000};
    w->now += steps[rng_below(&w->rng, ARRAY_LEN(steps))];
    if (one_in(w, 80))
        w->now += ((int64_t)rng_below(&w->rng, 3) - 1) * 3600 * 1000;
    for (int c = 0; c < CARDS; c++)
        for (int p = 0; p < PODS; p++)
            for (int i = 0; i < PARTS; i++)
                change(w, &w->part[c][p][i]);
    for (int c = 0; c < CARDS; c++)
        for (int p = 0; p < PODS; p++) {
            const struct init *init = &w->init[c][p];
            change_init(w, &w->init[c][p]);
            w->part[c][p][PARTS - 1].init = init->known;
            if (!init->known)
                continue;
            w->part[c][p][PARTS - 1].promised = init->own;
            w->part[c][p][PARTS - 1].unclear = init->own < 0;
        }
    for (int p = 0; p < PODS; p++) /* a container has one ID on all cards */
        for (int i = 0; i < PARTS; i++)
            w->part[1][p][i].generation = w->part[0][p][i].generation;
}

static struct measurement *measure(struct world *w)
{
    struct measurement *m = &w->log[w->n_log++];
    memset(m, 0, sizeof *m);
    m->now = m->taken = w->now;
    if (one_in(w, 6))
        w->promised = w->now;
    m->promised = w->promised;
    if (one_in(w, 15))
        m->taken -= (int64_t)rng_below(&w->rng, 8000) - 100;
    m->failed = one_in(w, 25);
    memcpy(m->part, w->part, sizeof m->part);
    memcpy(m->init, w->init, sizeof m->init);
    for (int c = 0; c < CARDS; c++) {
        int64_t used = (int64_t)rng_below(&w->rng, 4) * 2000; /* outside Kubernetes */
        for (int p = 0; p < PODS; p++)
            for (int i = 0; i < PARTS; i++) {
                struct part *part = &m->part[c][p][i];
                if (!part->used)
                    part->generation = -1;
                used += part->present ? part->used : 0;
            }
        m->complete[c] = !one_in(w, 10);
        m->free[c] = one_in(w, 20) ? -1 : used < TOTAL ? TOTAL - used : 0;
    }
    return m;
}

/* -- the module -- */

#define text(...) span_of(arena_printf(__VA_ARGS__))

static struct usage_container container_of(const struct world *w, struct arena *a,
                                           const struct part *part, int card, int pod,
                                           int i)
{
    enum fault f = w->fault;
    int generation = f == RESTARTED_CONTAINER_IS_THE_OLD_ONE ? 0 : part->generation;
    int apart = f == SIBLINGS_ARE_OTHER_PODS ? i : 0;
    struct usage_container c = {.card = (size_t)card,
                                .ns = SPAN("ns"),
                                .pod = text(a, "p%d%d", pod, apart),
                                .name = text(a, "c%d", i),
                                .used_mib = part->used,
                                .promised_mib = part->promised,
                                .promise_unclear =
                                    part->unclear && f != UNCLEAR_PROMISES_ARE_CLEAR,
                                .init = part->init && f != INIT_CONTAINERS_ADD_UP,
                                .sm_percent = -1};
    if (part->generation >= 0) {
        c.pod_uid = text(a, "u%d", pod);
        c.container_id = text(a, "id-%d-%d-%d", pod, i, generation);
    }
    if (f == UNKNOWN_PROMISE_IS_SMALL && part->promised < 0)
        c.promised_mib = 500;
    if (f == WHOLE_CARD_IS_SHARED && part->promised == TOTAL)
        c.promised_mib = TOTAL - 1;
    return c;
}

static void add_inits(const struct world *w, const struct measurement *m, int card,
                      struct usage *u, struct usage_init_promise *inits)
{
    for (int p = 0; p < PODS; p++) {
        const struct init *init = &m->init[card][p];
        if (init->known && w->fault != INIT_CONTAINERS_ARE_FORGOTTEN)
            inits[u->n_inits++] = (struct usage_init_promise){
                .card = (size_t)card,
                .pod_uid = text(&u->arena, "u%d", p),
                .ns = SPAN("ns"),
                .pod = text(&u->arena, "p%d0", p),
                .container = text(&u->arena, "c%d", PARTS - 1),
                .mib = init->own,
                .beside_mib = init->beside};
    }
}

static void usage_of(const struct world *w, const struct measurement *m, struct usage *u)
{
    enum fault f = w->fault;
    struct usage_card *cards = arena_zalloc(&u->arena, CARDS * sizeof *cards);
    struct usage_container *all =
        arena_zalloc(&u->arena, CARDS * PODS * PARTS * sizeof *all);
    struct usage_init_promise *inits =
        arena_zalloc(&u->arena, CARDS * PODS * sizeof *inits);
    u->cards = cards;
    u->containers = all;
    u->inits = inits;
    u->taken_ms = f == STALE_IS_FRESH ? m->now : m->taken;
    u->promised_ms = f == OLD_PROMISES_ARE_NEW ? m->now : m->promised;
    for (int c = 0; c < CARDS && !m->failed; c++) {
        cards[u->n_cards++] = (struct usage_card){
            .index = c,
            .uuid = c ? SPAN("GPU-1") : (struct span){0},
            .total_mib = f == WHOLE_CARD_IS_SHARED ? 2 * TOTAL : TOTAL,
            .free_mib =
                f == NO_FREE_MEMORY || (f == UNKNOWN_FREE_IS_ZERO && m->free[c] < 0)
                    ? 0
                    : m->free[c],
            .complete = m->complete[c] || f == INCOMPLETE_IS_COMPLETE};
        add_inits(w, m, c, u, inits);
        for (int p = 0; p < PODS; p++)
            for (int i = 0; i < PARTS; i++) {
                const struct part *part = &m->part[c][p][i];
                bool left_out = f == IDLE_PROMISES_ARE_FORGOTTEN && part->generation < 0;
                if (part->present && !left_out)
                    all[u->n_containers++] = container_of(w, &u->arena, part, c, p, i);
            }
    }
}

static void restart(struct world *w, bool keep)
{
    struct overuse_settings s = w->settings;
    if (w->fault == GRACE_IS_HALF)
        s.grace_ms /= 2;
    if (w->fault == NO_TOLERANCE)
        s.tolerance_mib = 0;
    if (w->fault == ALWAYS_HURTS)
        s.always = true;
    if (w->fault == EVICTS_INSTEAD_OF_REPORTING && s.most == OVERUSE_REPORT)
        s.most = OVERUSE_EVICT;
    if (keep && w->fault == RESTART_KEEPS_THE_GRACE)
        return;
    overuse_free(w->module);
    w->module = overuse_new(&s);
}

static int number(struct span s, size_t at)
{
    return s.p[at] - '0';
}

static size_t ask_module(struct world *w, const struct measurement *m, struct deed *deeds)
{
    cleanup_overuse_actions struct overuse_actions actions = {0};
    struct usage u = {0};
    usage_of(w, m, &u);
    if (w->fault == NOTHING_IS_REMEMBERED)
        restart(w, false);
    overuse_step(w->module, w->now, &u, &actions);
    for (size_t i = 0; i < actions.n; i++) {
        const struct usage_container *c = &u.containers[actions.items[i].container];
        bool pod = actions.items[i].type == OVERUSE_EVICT;
        deeds[i] = (struct deed){actions.items[i].type, pod ? 0 : (int)c->card,
                                 number(c->pod_uid, 1), pod ? 0 : number(c->name, 1)};
        ck_assert_int_eq(actions.items[i].used_mib, c->used_mib);
    }
    arena_fini(&u.arena);
    return actions.n;
}

/* -- the judge -- */

static bool counts(const struct measurement *m, int card)
{
    return !m->failed && m->complete[card] && m->now >= m->taken &&
           m->now - m->taken <= 5000;
}

/* What the pod was promised on the card: for its other containers, or for the init
 * container with the sidecars; -1: not known. */
static int64_t promise_of(const struct measurement *m, int card, int pod)
{
    const struct init *init = &m->init[card][pod];
    int64_t sum = 0;
    for (int k = 0; k < PARTS; k++) {
        const struct part *p = &m->part[card][pod][k];
        sum += p->present && !p->init && p->promised > 0 ? p->promised : 0;
    }
    if (init->known && (init->own < 0 || init->beside < 0))
        return -1;
    return init->known && init->own + init->beside > sum ? init->own + init->beside : sum;
}

static bool is_over(const struct world *w, const struct measurement *m, int card, int pod,
                    int i)
{
    const struct part *me = &m->part[card][pod][i];
    int64_t used = 0, own = me->promised > 0 ? me->promised : 0;
    int64_t promised = promise_of(m, card, pod);
    bool any_promise = false;
    for (int c = 0; c < CARDS; c++)
        any_promise |= m->init[c][pod].known;
    for (int c = 0; c < CARDS; c++)
        for (int k = 0; k < PARTS; k++) {
            const struct part *p = &m->part[c][pod][k];
            if (p->present && p->promised == TOTAL)
                return false;
            any_promise |= p->present && p->promised >= 0;
            if (!p->present || c != card)
                continue;
            if (p->unclear)
                return false;
            used += p->used;
        }
    return promised >= 0 && me->present && me->generation >= 0 && any_promise &&
           me->used > own + w->settings.tolerance_mib &&
           used > promised + w->settings.tolerance_mib;
}

/* How long the container has been over, from all measurements; -1: it is not, or the
 * promises are not newer than the first of these measurements. */
static int64_t over_for(const struct world *w, int card, int pod, int i)
{
    const struct measurement *next = NULL;
    int64_t sum = 0;
    for (size_t k = w->n_log; k-- > w->begin;) {
        const struct measurement *m = &w->log[k];
        if (!counts(m, card))
            continue;
        if (!is_over(w, m, card, pod, i) ||
            (next &&
             m->part[card][pod][i].generation != next->part[card][pod][i].generation))
            break;
        int64_t gap = next ? next->taken - m->taken : 0;
        int64_t half = (w->settings.grace_ms + 1) / 2;
        sum += gap < 0 ? 0 : gap > half ? half : gap;
        next = m;
    }
    return next && w->promised > next->taken ? sum : -1;
}

/* Without the promises that are not known. */
static int64_t promise_at_least(const struct measurement *m, int card, int pod)
{
    struct measurement known = *m;
    if (promise_of(m, card, pod) < 0)
        known.init[card][pod].known = false;
    return promise_of(&known, card, pod);
}

static int64_t lacking(const struct measurement *m, int card)
{
    int64_t sum = 0;
    for (int p = 0; p < PODS; p++) {
        int64_t left = 0;
        bool any = false;
        for (int i = 0; i < PARTS; i++) {
            const struct part *part = &m->part[card][p][i];
            if (!part->present)
                continue;
            any = true;
            left -= part->used;
        }
        left += any ? promise_at_least(m, card, p) : 0;
        sum += left > 0 ? left : 0;
    }
    return m->free[card] < 0 ? INT64_MIN : sum - m->free[card];
}

/* Has the limit passed? One that has passed is over for good, also where the clock goes
 * back later; rejections are remembered for as long again. */
static bool is_free(struct limit *l, int64_t now)
{
    if (!l->again)
        return true;
    if (l->until > now + l->again)
        l->until = now + l->again; /* the clock went back */
    bool passed = now >= l->until;
    if (passed && (!l->rejections || now >= l->until + l->again))
        *l = (struct limit){0};
    return passed;
}

static void hold(struct limit *l, int64_t now, int64_t ms)
{
    l->pending = true;
    l->until = now + ms;
    l->again = ms;
}

static bool do_once(struct world *w, struct limit *l, struct deed deed, int64_t ms,
                    struct deed *deeds, size_t *n)
{
    if (!is_free(l, w->now))
        return false;
    hold(l, w->now, ms);
    deeds[(*n)++] = deed;
    return true;
}

struct candidate {
    int pod, part;
    int64_t beyond, frees;
    bool pending;
};

static struct limit *limit_of(struct world *w, int card, const struct candidate *c)
{
    return w->settings.most == OVERUSE_EVICT ? &w->evictions[c->pod]
                                             : &w->kills[card][c->pod][c->part];
}

/* The one that comes before all others, by selection; -1: none is left. */
static int first_of(const struct candidate *c, const bool *taken, int n)
{
    int best = -1;
    for (int i = 0; i < n; i++) {
        if (taken[i])
            continue;
        if (best < 0 || c[i].pending > c[best].pending ||
            (c[i].pending == c[best].pending && c[i].beyond > c[best].beyond))
            best = i;
    }
    return best;
}

static void act_strongly(struct world *w, int card, struct candidate *c, int n,
                         int64_t left, struct deed *deeds, size_t *n_deeds)
{
    bool evicts = w->settings.most == OVERUSE_EVICT;
    bool taken[PODS * PARTS] = {0};
    left = left > 0 ? left : 0; /* not known what the card lacks */
    for (int k; (k = first_of(c, taken, n)) >= 0;) {
        struct limit *l = limit_of(w, card, &c[k]);
        if (left <= 0 && !w->settings.always)
            return;
        for (int i = 0; i < n; i++)
            taken[i] |= i == k || (evicts && c[i].pod == c[k].pod);
        if (evicts)
            do_once(w, l, (struct deed){OVERUSE_EVICT, 0, c[k].pod, 0}, 300000, deeds,
                    n_deeds);
        else
            do_once(w, l, (struct deed){OVERUSE_KILL, card, c[k].pod, c[k].part}, 60000,
                    deeds, n_deeds);
        left -= l->pending ? c[k].frees : 0;
    }
}

static void judge_card(struct world *w, const struct measurement *m, int card,
                       struct deed *deeds, size_t *n)
{
    struct candidate c[PODS * PARTS];
    int n_c = 0;
    int64_t lack = lacking(m, card);
    if (lack <= 0 && !w->settings.always)
        return;
    for (int p = 0; p < PODS; p++)
        for (int i = 0; i < PARTS; i++) {
            const struct part *part = &m->part[card][p][i];
            if (over_for(w, card, p, i) < w->settings.grace_ms)
                continue;
            struct candidate *new = &c[n_c++];
            *new = (struct candidate){
                p, i, part->used - (part->promised > 0 ? part->promised : 0), part->used,
                false};
            if (w->settings.most == OVERUSE_EVICT)
                for (int k = 0; k < PARTS; k++)
                    new->frees += k != i && m->part[card][p][k].present
                                      ? m->part[card][p][k].used
                                      : 0;
            struct limit *l = limit_of(w, card, new);
            new->pending = !is_free(l, w->now) && l->pending;
            do_once(w, &w->reports[card][p][i], (struct deed){OVERUSE_REPORT, card, p, i},
                    600000, deeds, n);
        }
    if (w->settings.most != OVERUSE_REPORT)
        act_strongly(w, card, c, n_c, lack, deeds, n);
}

static size_t ask_judge(struct world *w, const struct measurement *m, struct deed *deeds)
{
    size_t n = 0;
    for (int p = 0; p < PODS; p++) {
        is_free(&w->evictions[p], w->now);
        for (int c = 0; c < CARDS; c++)
            for (int i = 0; i < PARTS; i++) {
                is_free(&w->reports[c][p][i], w->now);
                is_free(&w->kills[c][p][i], w->now);
            }
    }
    for (int c = 0; c < CARDS; c++)
        if (counts(m, c))
            judge_card(w, m, c, deeds, &n);
    return n;
}

/* -- both -- */

static void fail_kill(struct world *w, const struct measurement *m, const struct deed *d)
{
    struct usage u = {0};
    w->kills[d->card][d->pod][d->part].pending = false;
    if (w->fault == FAILED_KILLS_ARE_PENDING)
        return;
    usage_of(w, m, &u);
    for (size_t i = 0; i < u.n_containers; i++) {
        const struct usage_container *c = &u.containers[i];
        if (c->card == (size_t)d->card && c->pod_uid.n &&
            number(c->pod_uid, 1) == d->pod && number(c->name, 1) == d->part)
            overuse_kill_failed(w->module, &u, i);
    }
    arena_fini(&u.arena);
}

/* Some kills reach no process. */
static void answer_kills(struct world *w, const struct measurement *m,
                         const struct deed *deeds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (deeds[i].type == OVERUSE_KILL && one_in(w, 4))
            fail_kill(w, m, &deeds[i]);
}

static void answer(struct world *w, const struct deed *deeds, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char uid[] = {'u', (char)('0' + deeds[i].pod), '\0'};
        struct limit *l = &w->evictions[deeds[i].pod];
        bool accepted = !one_in(w, 3);
        if (deeds[i].type != OVERUSE_EVICT || one_in(w, 20)) /* 20: no answer */
            continue;
        int64_t ms = 1000;
        for (int k = 0; k < l->rejections && ms < 300000; k++)
            ms *= 2;
        hold(l, w->now, accepted ? 300000 : ms < 300000 ? ms : 300000);
        l->pending = accepted;
        l->rejections = accepted ? 0 : l->rejections + 1;
        bool reported = w->fault == REJECTED_IS_ACCEPTED   ? true
                        : w->fault == ACCEPTED_IS_REJECTED ? false
                                                           : accepted;
        overuse_evicted(w->module, w->now, span_of(uid), reported, -1);
    }
}

static int by_value(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct deed));
}

static bool agree(struct deed *a, size_t n, struct deed *b, size_t m)
{
    qsort(a, n, sizeof *a, by_value);
    qsort(b, m, sizeof *b, by_value);
    return n == m && memcmp(a, b, n * sizeof *a) == 0;
}

static void begin(struct world *w, uint64_t seed, enum fault fault)
{
    static const int64_t graces[] = {1000, 5000, 30000};
    *w = (struct world){.fault = fault, .now = 1000000};
    rng_init(&w->rng, seed);
    w->log = xcalloc(STEPS, sizeof *w->log);
    w->settings = (struct overuse_settings){.most = (enum overuse_type)(seed % 3),
                                            .always = one_in(w, 4),
                                            .grace_ms = graces[rng_below(&w->rng, 3)],
                                            .tolerance_mib = one_in(w, 2) ? 150 : 0};
    for (int i = 0; i < 200; i++)
        advance(w);
    restart(w, false);
}

static void restart_at_random(struct world *w)
{
    if (!one_in(w, 100))
        return;
    restart(w, true);
    w->begin = w->n_log;
    memset(w->reports, 0, sizeof w->reports);
    memset(w->kills, 0, sizeof w->kills);
    memset(w->evictions, 0, sizeof w->evictions);
}

/* The first step at which module and judge differ; -1: none. Adds the actions. */
static int run(uint64_t seed, enum fault fault, size_t *actions)
{
    struct world w;
    int differs = -1;
    begin(&w, seed, fault);
    for (int step = 0; step < STEPS && differs < 0; step++) {
        struct deed of_module[64], of_judge[64];
        advance(&w);
        restart_at_random(&w);
        const struct measurement *m = measure(&w);
        memset(of_module, 0, sizeof of_module);
        memset(of_judge, 0, sizeof of_judge);
        size_t n = ask_module(&w, m, of_module), k = ask_judge(&w, m, of_judge);
        for (size_t i = 0; i < k; i++)
            actions[of_judge[i].type]++;
        if (!agree(of_module, n, of_judge, k))
            differs = step;
        answer(&w, of_judge, k);
        answer_kills(&w, m, of_judge, k);
    }
    overuse_free(w.module);
    free(w.log);
    return differs;
}

START_TEST(the_module_does_what_the_judge_derives)
{
    size_t actions[3] = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        int step = run(seed, NO_FAULT, actions);
        ck_assert_msg(step < 0, "seed %d: they differ at step %d", (int)seed, step);
    }
    /* Agreement about nothing proves nothing. */
    for (int type = OVERUSE_REPORT; type <= OVERUSE_KILL; type++)
        ck_assert_msg(actions[type] > 50, "only %zu actions of type %d", actions[type],
                      type);
}

START_TEST(the_judge_finds_each_planted_fault)
{
    for (int fault = NO_FAULT + 1; fault < FAULTS; fault++) {
        size_t actions[3] = {0};
        uint64_t seed = 1;
        while (seed <= SEEDS && run(seed, (enum fault)fault, actions) < 0)
            seed++;
        ck_assert_msg(seed <= SEEDS, "fault %d is not found", fault);
    }
}

UNIT_MAIN("overuse_random", the_module_does_what_the_judge_derives,
          the_judge_finds_each_planted_fault)
