/* SPDX-License-Identifier: Apache-2.0 */
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

enum {
    CARDS = 2,
    PODS = 4,
    PARTS = 2,
    ALL = CARDS * PODS * PARTS,
    STEPS = 400,
    SEEDS = 300,
    TOTAL = 16000,
    TYPES = OVERUSE_KILL + 1,
};

enum fault {
    NO_FAULT,
    UNLISTED_PROCESSES_ARE_NONE,
    UNMAPPED_PROCESSES_ARE_NONE,
    UNMAPPED_PROCESSES_ARE_OUTSIDE,
    UNMAPPED_PROCESSES_EXEMPT,
    STALE_IS_FRESH,
    RESTARTED_CONTAINER_IS_OF_ANOTHER_POD,
    UNKNOWN_PROMISE_IS_SMALL,
    WHOLE_CARD_IS_SHARED,
    SIBLINGS_ARE_OTHER_PODS,
    GRACE_IS_HALF,
    NO_TOLERANCE,
    CONTEXTS_ARE_FORGOTTEN,
    ALWAYS_HURTS,
    NO_FREE_MEMORY,
    UNKNOWN_FREE_IS_ZERO,
    REJECTED_IS_ACCEPTED,
    ACCEPTED_IS_REJECTED,
    RESTART_KEEPS_THE_GRACE,
    INSIDE_DOES_NOT_DRAIN,
    INSIDE_EMPTIES,
    NOTHING_IS_REMEMBERED,
    EVICTS_INSTEAD_OF_REPORTING,
    IDLE_PROMISES_ARE_FORGOTTEN,
    OLD_PROMISES_ARE_NEW,
    UNCLEAR_PROMISES_ARE_CLEAR,
    FAILED_KILLS_ARE_PENDING,
    UNLIMITED_PROCESSES_ARE_LIMITED,
    UNPROMISED_PODS_ARE_EXEMPT,
    UNPROMISED_PODS_GET_AN_EVENT,
    INIT_CONTAINERS_ADD_UP,
    INIT_CONTAINERS_ARE_FORGOTTEN,
    FAULTS,
};

/* One container on one card, as measured. */
struct part {
    int card, pod, number;
    bool present;
    int generation; /* of the container; -1: it has no process */
    int64_t used, promised, unlimited;
    int64_t processes, slots, contexts;
    bool unclear; /* the promise: there may be more */
    /* The last part of a pod: it is an init container, and the pod was promised this on the
     * card for it, and for the sidecars beside it; -1: the amount is unknown. */
    bool init;
    int64_t own, beside;
};

struct measurement {
    int64_t taken, now, promised;
    bool failed, listed[CARDS]; /* NVML lists the processes of the card */
    int64_t free[CARDS];
    int64_t
        unmapped[CARDS]; /* by a process that may be in any pod; 0: none; -1: unknown */
    struct part parts[ALL];
    /* Of the judge. */
    bool over[ALL];
    int64_t excess[CARDS][PODS]; /* of the pods that are over; or 0 */
    int64_t tolerance[CARDS][PODS];
    bool unlimited[CARDS][PODS];
};

/* How often each part gets an action. Evictions are of pods. */
struct deeds {
    unsigned char of[TYPES][ALL];
};

struct limit {
    bool pending;
    int rejections;
    int64_t until, again;
};

static struct rng rng;
static enum fault fault;
static struct overuse_settings settings;
static int64_t now, promised;
static struct measurement measurements[STEPS];
static size_t n_measurements, first; /* of this process */
static struct part parts[ALL];
static struct limit limits[TYPES][ALL];
static struct overuse *module;
static struct usage usage;
static int part_of[ALL]; /* of a container of `usage` */

static int64_t below(int64_t n)
{
    return (int64_t)rng_below(&rng, (uint64_t)n);
}

static bool one_in(int64_t n)
{
    return below(n) == 0;
}

static int64_t positive(int64_t n)
{
    return n > 0 ? n : 0;
}

#define EACH_PART(p, all) for (__typeof__(&*(all)) p = all; p < (all) + ALL; p++)

/* -- the world -- */

static void change(struct part *p)
{
    static const int64_t promises[] = {0, 1000, 2000, 4000, 4000, 8000};
    if (one_in(40))
        p->promised = one_in(12) ? -1 : one_in(12) ? TOTAL : promises[below(6)];
    if (one_in(p->unclear ? 20 : 400))
        p->unclear = !p->unclear;
    if (one_in(30))
        p->generation++;
    if (one_in(30))
        p->present = !p->present;
    if (!one_in(15))
        return;
    int64_t base = positive(p->promised), more = below(6) * 100 - 200;
    p->unlimited = one_in(12);
    p->processes = 1 + below(4);
    p->slots = one_in(3) ? p->processes : 0;
    p->slots -= p->slots && one_in(4);
    p->contexts = p->slots * below(4) * 60;
    p->used = one_in(4) ? 0 : one_in(4) ? base + 3000 : positive(base + more);
}

static void change_init(struct part *p)
{
    if (one_in(p->init ? 30 : 60))
        p->init = !p->init;
    if (one_in(40))
        p->own = one_in(8) ? -1 : below(5) * 1500;
    if (one_in(40))
        p->beside = one_in(8) ? -1 : below(3) * 1000;
    if (!p->init)
        return;
    p->promised = p->own;
    p->unclear = p->own < 0;
}

static void advance(void)
{
    static const int64_t steps[] = {100, 500, 1000, 1000, 1000, 2500, 7000};
    now += steps[below(ARRAY_LEN(steps))];
    if (one_in(80))
        now += (below(3) - 1) * 3600 * 1000;
    EACH_PART(p, parts)
    {
        change(p);
        if (p->number == PARTS - 1)
            change_init(p);
    }
    if (one_in(80)) {
        int pod = (int)below(PODS);
        EACH_PART(p, parts)
        p->promised = p->pod == pod ? -1 : p->promised;
    }
    for (int k = 0; k < ALL / 2; k++) /* a container has one ID on both cards */
        parts[ALL / 2 + k].generation = parts[k].generation;
}

static struct measurement *measure(void)
{
    struct measurement *m = &measurements[n_measurements++];
    if (one_in(6))
        promised = now;
    *m = (struct measurement){.taken = now, .now = now, .promised = promised};
    if (one_in(15))
        m->taken -= below(8000) - 100;
    m->failed = one_in(25);
    memcpy(m->parts, parts, sizeof parts);
    for (int c = 0; c < CARDS; c++) {
        m->listed[c] = !one_in(10);
        m->free[c] = TOTAL - below(4) * 2000; /* the rest is used outside Kubernetes */
        m->unmapped[c] = one_in(5) ? 1 + below(4) * 1000 : 0;
        m->free[c] -= m->unmapped[c];
        if (m->unmapped[c] && one_in(8))
            m->unmapped[c] = -1;
    }
    EACH_PART(p, m->parts)
    {
        if (!p->used) {
            p->generation = -1;
            p->processes = p->slots = p->contexts = 0;
        }
        p->unlimited = p->unlimited && p->used ? 1 + p->used / 2 : 0;
        m->free[p->card] -= p->present ? p->used : 0;
    }
    for (int c = 0; c < CARDS; c++)
        m->free[c] = one_in(20) ? -1 : positive(m->free[c]);
    return m;
}

/* -- the module -- */

#define text(...) span_of(arena_printf(&usage.arena, __VA_ARGS__))

static struct usage_container container_of(const struct part *p, bool unmapped)
{
    int apart = fault == SIBLINGS_ARE_OTHER_PODS ? p->number : 0;
    struct usage_container c = {
        .card = (size_t)p->card,
        .ns = SPAN("ns"),
        .pod = text("p%d%d", p->pod, apart),
        .name = text("c%d", p->number),
        .used_mib = p->used,
        .unlimited_mib = fault == UNLIMITED_PROCESSES_ARE_LIMITED ? 0 : p->unlimited,
        .n_pids = (size_t)p->processes,
        .n_slots = fault == CONTEXTS_ARE_FORGOTTEN ? 0 : p->slots,
        .context_mib = fault == CONTEXTS_ARE_FORGOTTEN ? 0 : p->contexts,
        .promised_mib = p->promised,
        .promise_unclear = p->unclear && fault != UNCLEAR_PROMISES_ARE_CLEAR,
        .init = p->init && fault != INIT_CONTAINERS_ADD_UP,
        .sm_percent = -1};
    if (p->generation < 0 && unmapped) /* its processes may be those */
        c.used_mib = -1;
    if (p->generation >= 0) {
        c.pod_uid = text("u%d", p->pod);
        c.container_id = text("id-%d-%d-%d", p->pod, p->number, p->generation);
        if (fault == RESTARTED_CONTAINER_IS_OF_ANOTHER_POD)
            c.pod_uid = text("u%d-%d", p->pod, p->generation);
    }
    if (fault == UNKNOWN_PROMISE_IS_SMALL && p->promised < 0)
        c.promised_mib = 500;
    if (fault == WHOLE_CARD_IS_SHARED && p->promised == TOTAL)
        c.promised_mib = TOTAL - 1;
    return c;
}

static void fill_usage(const struct measurement *m)
{
    struct usage *u = &usage;
    arena_reset(&u->arena);
    struct usage_card *cards = arena_zalloc(&u->arena, CARDS * sizeof *cards);
    struct usage_container *containers =
        arena_zalloc(&u->arena, ALL * sizeof *containers);
    struct usage_init_promise *inits = arena_zalloc(&u->arena, ALL * sizeof *inits);
    struct usage_process *outside = arena_zalloc(&u->arena, CARDS * sizeof *outside);
    u->cards = cards;
    u->containers = containers;
    u->inits = inits;
    u->outside = outside;
    u->n_cards = u->n_containers = u->n_inits = u->n_outside = 0;
    u->taken_ms = fault == STALE_IS_FRESH ? m->now : m->taken;
    u->promised_ms = fault == OLD_PROMISES_ARE_NEW ? m->now : m->promised;
    if (m->failed)
        return;
    for (int c = 0; c < CARDS; c++) {
        bool zero =
            fault == NO_FREE_MEMORY || (fault == UNKNOWN_FREE_IS_ZERO && m->free[c] < 0);
        cards[u->n_cards++] = (struct usage_card){
            .index = c,
            .uuid = c ? SPAN("GPU-1") : (struct span){0},
            .total_mib = fault == WHOLE_CARD_IS_SHARED ? 2 * TOTAL : TOTAL,
            .free_mib = zero ? 0 : m->free[c],
            .processes_known = (m->listed[c] || fault == UNLISTED_PROCESSES_ARE_NONE) &&
                               !(m->unmapped[c] && fault == UNMAPPED_PROCESSES_EXEMPT),
            .complete = m->listed[c] &&
                        (!m->unmapped[c] || fault == UNMAPPED_PROCESSES_ARE_OUTSIDE)};
        if (m->unmapped[c] && fault != UNMAPPED_PROCESSES_ARE_NONE)
            outside[u->n_outside++] = (struct usage_process){
                .card = (size_t)c, .unmapped = true, .used_mib = m->unmapped[c]};
    }
    EACH_PART(p, m->parts)
    {
        if (p->init && fault != INIT_CONTAINERS_ARE_FORGOTTEN)
            inits[u->n_inits++] =
                (struct usage_init_promise){.card = (size_t)p->card,
                                            .pod_uid = text("u%d", p->pod),
                                            .ns = SPAN("ns"),
                                            .pod = text("p%d0", p->pod),
                                            .container = text("c%d", p->number),
                                            .mib = p->own,
                                            .beside_mib = p->beside};
        if (!p->present || (fault == IDLE_PROMISES_ARE_FORGOTTEN && p->generation < 0))
            continue;
        part_of[u->n_containers] = (int)(p - m->parts);
        containers[u->n_containers++] = container_of(p, m->unmapped[p->card] != 0);
    }
}

static void restart(bool keep)
{
    struct overuse_settings s = settings;
    if (fault == GRACE_IS_HALF)
        s.grace_ms /= 2;
    if (fault == NO_TOLERANCE)
        s.tolerance_mib = 0;
    if (fault == ALWAYS_HURTS)
        s.always = true;
    if (fault == EVICTS_INSTEAD_OF_REPORTING && s.most == OVERUSE_REPORT)
        s.most = OVERUSE_EVICT;
    if (fault == UNPROMISED_PODS_ARE_EXEMPT)
        s.unpromised = 0;
    if (fault == UNPROMISED_PODS_GET_AN_EVENT && s.unpromised)
        s.unpromised = 1 + OVERUSE_REPORT;
    if (keep && fault == RESTART_KEEPS_THE_GRACE)
        return;
    overuse_free(module);
    module = overuse_new(&s);
}

/* -- the judge -- */

static bool counts(const struct measurement *m, int card)
{
    return !m->failed && m->listed[card] && m->now >= m->taken &&
           m->now - m->taken <= 5000;
}

/* What the pod was promised on the card: for its other containers, or for the init
 * container with the sidecars. If that is not known: -1, or the least that it can be. */
static int64_t promise_of(const struct measurement *m, int card, int pod, bool at_least)
{
    const struct part *last = &m->parts[(card * PODS + pod) * PARTS + PARTS - 1];
    int64_t sum = 0, both = last->own + last->beside;
    EACH_PART(p, m->parts)
    {
        if (p->card == card && p->pod == pod && p->present && !p->init)
            sum += positive(p->promised);
    }
    if (last->init && (last->own < 0 || last->beside < 0))
        return at_least ? sum : -1;
    return last->init && both > sum ? both : sum;
}

/* What the containers of the pod use on the card; -1: there are none. */
static int64_t use_of(const struct measurement *m, int card, int pod)
{
    int64_t used = -1;
    EACH_PART(p, m->parts)
    {
        if (p->card == card && p->pod == pod && p->present)
            used = positive(used) + p->used;
    }
    return used;
}

static int64_t beyond(const struct part *p)
{
    return p->used - positive(p->promised);
}

/* Is no container of the pod promised anything, on any card? */
static bool is_unpromised(const struct measurement *m, int pod)
{
    EACH_PART(p, m->parts)
    {
        if (p->pod == pod && (p->init || (p->present && p->promised >= 0)))
            return false;
    }
    return true;
}

/* What the processes of the pod may use beyond its promise. */
static int64_t tolerance(const struct measurement *m, int card, int pod)
{
    int64_t each = settings.tolerance_mib, most = promise_of(m, card, pod, false) / 2;
    int64_t slots = 0, others = 0, contexts = 0, all;
    EACH_PART(p, m->parts)
    {
        if (p->pod != pod || p->card != card || !p->present)
            continue;
        slots += p->slots;
        others += p->processes - p->slots;
        contexts += p->contexts;
    }
    all = contexts > slots * each ? slots * each : contexts;
    all += others || !slots ? each : 0;
    most = most > 4 * each ? 4 * each : most;
    most = most < each ? each : most;
    return all > most ? most : all;
}

/* What the pod uses of the card beyond its promise; 0: within the tolerance, or exempt. Without
 * its limit, 1 at least. */
static int64_t excess(const struct measurement *m, int card, int pod, bool *unlimited)
{
    int64_t allowed = promise_of(m, card, pod, false);
    bool others = false;
    *unlimited = false;
    EACH_PART(p, m->parts)
    {
        others |= p->pod != pod && p->card == card && p->present && p->promised > 0;
        if (p->pod == pod && p->present &&
            (p->promised == TOTAL || (p->unclear && p->card == card)))
            return 0;
    }
    int64_t more = use_of(m, card, pod) - allowed;
    EACH_PART(p, m->parts)
    *unlimited |= p->pod == pod && p->card == card && p->present && p->unlimited;
    if (is_unpromised(m, pod) && !(others && settings.unpromised))
        return 0;
    if (allowed < 0)
        return 0;
    return more > m->tolerance[card][pod] ? more : *unlimited;
}

/* Does the container have a part in the excess: more than the tolerance, or the most? */
static bool is_over(const struct measurement *m, const struct part *me)
{
    if (!me->present || me->generation < 0 || !m->excess[me->card][me->pod])
        return false;
    if (me->unlimited)
        return true;
    int64_t most = m->tolerance[me->card][me->pod];
    if (use_of(m, me->card, me->pod) - promise_of(m, me->card, me->pod, false) <= most)
        return false;
    if (beyond(me) > most)
        return true;
    EACH_PART(p, m->parts)
    {
        if (p->card == me->card && p->pod == me->pod && p->present &&
            p->generation >= 0 && p != me &&
            (beyond(p) > beyond(me) || (beyond(p) == beyond(me) && p < me)))
            return false;
    }
    return true;
}

static void find_who_is_over(struct measurement *m)
{
    for (int k = 0; k < CARDS * PODS; k++) {
        m->tolerance[k / PODS][k % PODS] = tolerance(m, k / PODS, k % PODS);
        m->excess[k / PODS][k % PODS] =
            excess(m, k / PODS, k % PODS, &m->unlimited[k / PODS][k % PODS]);
    }
    EACH_PART(p, m->parts)
    m->over[p - m->parts] = is_over(m, p);
}

/* Has the pod overused the card for the grace, from all measurements? Not if the promises
 * are not newer than the begin. */
static bool is_full(int card, int pod)
{
    int64_t grace = settings.grace_ms, half = (grace + 1) / 2, sum = 0;
    const struct measurement *last = NULL, *begin = NULL; /* NULL: nothing is known */
    for (size_t k = first; k < n_measurements; k++) {
        const struct measurement *m = &measurements[k];
        if (!counts(m, card))
            continue;
        int64_t gap = last ? positive(m->taken - last->taken) : 0;
        gap = gap > half ? half : gap;
        last = m;
        if (m->excess[card][pod]) {
            double full_rate = 1.5 * (double)m->tolerance[card][pod];
            double rate = (double)m->excess[card][pod] / full_rate;
            rate = m->unlimited[card][pod] ? 1 : rate;
            begin = begin ? begin : m;
            if (begin != m)
                sum = positive(sum) + (int64_t)((double)gap * (rate < 1 ? rate : 1));
            sum = sum > grace ? grace : sum;
        } else if (begin) {
            sum -= m->unmapped[card] ? 0 : gap / 10;
            if (sum < -(grace / 10)) {
                begin = NULL;
                sum = 0;
            }
        }
    }
    return begin && promised > begin->taken && sum >= grace;
}

static int64_t lacking(const struct measurement *m, int card)
{
    int64_t sum = -m->free[card] - m->unmapped[card];
    for (int pod = 0; pod < PODS; pod++) {
        int64_t used = use_of(m, card, pod);
        if (used >= 0)
            sum += positive(promise_of(m, card, pod, true) - used);
    }
    return m->free[card] < 0 || m->unmapped[card] < 0 ? INT64_MIN : sum;
}

/* Has the limit passed? One that has passed is gone for good, also where the clock goes
 * back later; rejections are remembered for as long again. */
static bool is_free(struct limit *l)
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

static void hold(struct limit *l, bool pending, int64_t ms)
{
    l->pending = pending;
    l->until = now + ms;
    l->again = ms;
}

static void do_once(enum overuse_type type, int at, struct deeds *deeds)
{
    static const int64_t ms[] = {
        [OVERUSE_REPORT] = 600000, [OVERUSE_EVICT] = 300000, [OVERUSE_KILL] = 60000};
    if (!is_free(&limits[type][at]))
        return;
    hold(&limits[type][at], true, ms[type]);
    deeds->of[type][at]++;
}

struct candidate {
    int at, target; /* the part; what is acted on: the part or its pod */
    enum overuse_type most;
    int64_t beyond, frees;
    bool pending;
};

static int by_turn(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->pending != y->pending)
        return y->pending - x->pending;
    if (x->beyond != y->beyond)
        return x->beyond < y->beyond ? 1 : -1;
    return x->at - y->at;
}

static void judge_card(const struct measurement *m, int card, struct deeds *deeds)
{
    struct candidate c[ALL];
    size_t n = 0;
    bool done[TYPES][ALL] = {0};
    int64_t lack = lacking(m, card);
    bool hurts = lack > 0 || settings.always;
    EACH_PART(p, m->parts)
    {
        bool has_promise = !is_unpromised(m, p->pod);
        enum overuse_type most =
            has_promise ? settings.most : (enum overuse_type)(settings.unpromised - 1);
        bool evicts = most == OVERUSE_EVICT;
        int at = (int)(p - m->parts), target = evicts ? p->pod : at;
        if (p->card != card || !m->over[at] || !is_full(card, p->pod))
            continue;
        struct limit *l = &limits[most][target];
        int64_t most_beyond = beyond(p) > p->unlimited ? beyond(p) : p->unlimited;
        c[n++] = (struct candidate){at,
                                    target,
                                    most,
                                    most_beyond,
                                    evicts ? use_of(m, card, p->pod) : p->used,
                                    !is_free(l) && l->pending};
        if (hurts || p->unlimited)
            do_once(OVERUSE_REPORT, at, deeds);
    }
    qsort(c, n, sizeof *c, by_turn);
    int64_t left = positive(lack); /* not known what the card lacks */
    for (size_t i = 0; i < n; i++) {
        enum overuse_type most = c[i].most;
        if ((left <= 0 && !settings.always) || most == OVERUSE_REPORT ||
            done[most][c[i].target])
            continue;
        done[most][c[i].target] = true;
        do_once(most, c[i].target, deeds);
        left -= limits[most][c[i].target].pending ? c[i].frees : 0;
    }
}

static struct deeds ask_judge(struct measurement *m)
{
    struct deeds deeds = {0};
    find_who_is_over(m);
    for (int type = 0; type < TYPES; type++)
        for (int at = 0; at < ALL; at++)
            is_free(&limits[type][at]);
    for (int c = 0; c < CARDS; c++)
        if (counts(m, c))
            judge_card(m, c, &deeds);
    return deeds;
}

/* -- both -- */

/* Is pod 0 inside its promise on the first card? */
static bool is_inside(const struct measurement *m)
{
    return !m->failed && m->listed[0] && !m->excess[0][0];
}

static struct deeds ask_module(const struct measurement *m)
{
    cleanup_overuse_actions struct overuse_actions actions = {0};
    struct deeds deeds = {0};
    fill_usage(m);
    if (fault == INSIDE_DOES_NOT_DRAIN && is_inside(m))
        usage.n_cards = 0;
    if (fault == INSIDE_EMPTIES && is_inside(m))
        restart(false);
    if (fault == NOTHING_IS_REMEMBERED)
        restart(false);
    overuse_step(module, now, &usage, &actions);
    for (size_t i = 0; i < actions.n; i++) {
        enum overuse_type type = actions.items[i].type;
        int at = part_of[actions.items[i].container];
        deeds.of[type][type == OVERUSE_EVICT ? parts[at].pod : at]++;
        ck_assert_int_eq(actions.items[i].used_mib, m->parts[at].used);
    }
    return deeds;
}

/* Some kills reach no process. */
static void answer_kills(const struct deeds *deeds)
{
    for (size_t i = 0; i < usage.n_containers; i++) {
        if (!deeds->of[OVERUSE_KILL][part_of[i]] || !one_in(4))
            continue;
        limits[OVERUSE_KILL][part_of[i]].pending = false;
        if (fault != FAILED_KILLS_ARE_PENDING)
            overuse_kill_failed(module, &usage, i);
    }
}

static void answer_evictions(const struct deeds *deeds)
{
    for (int pod = 0; pod < PODS; pod++) {
        char uid[] = {'u', (char)('0' + pod), '\0'};
        struct limit *l = &limits[OVERUSE_EVICT][pod];
        bool accepted = !one_in(3);
        if (!deeds->of[OVERUSE_EVICT][pod] || one_in(20)) /* 20: no answer */
            continue;
        int64_t ms = 1000;
        for (int k = 0; k < l->rejections && ms < 300000; k++)
            ms *= 2;
        hold(l, accepted, accepted || ms > 300000 ? 300000 : ms);
        l->rejections = accepted ? 0 : l->rejections + 1;
        bool reported = fault == REJECTED_IS_ACCEPTED   ? true
                        : fault == ACCEPTED_IS_REJECTED ? false
                                                        : accepted;
        overuse_evicted(module, now, span_of(uid), reported, -1);
    }
}

static void begin(uint64_t seed, enum fault planted)
{
    static const int64_t graces[] = {1000, 5000, 30000};
    fault = planted;
    now = 1000000;
    promised = 0;
    n_measurements = first = 0;
    rng_init(&rng, seed);
    memset(limits, 0, sizeof limits);
    for (int k = 0; k < ALL; k++)
        parts[k] = (struct part){
            .card = k / PARTS / PODS, .pod = k / PARTS % PODS, .number = k % PARTS};
    settings = (struct overuse_settings){.most = (enum overuse_type)(seed % TYPES),
                                         .unpromised = (int)below(TYPES + 1),
                                         .always = one_in(4),
                                         .grace_ms = graces[below(3)],
                                         .tolerance_mib = one_in(2) ? 150 : 0};
    for (int i = 0; i < 200; i++)
        advance();
    restart(false);
}

/* The first step at which module and judge differ; -1: none. Adds the actions. */
static int run(uint64_t seed, enum fault planted, size_t *actions)
{
    begin(seed, planted);
    for (int step = 0; step < STEPS; step++) {
        advance();
        if (one_in(100)) {
            restart(true);
            first = n_measurements;
            memset(limits, 0, sizeof limits);
        }
        struct measurement *m = measure();
        const struct deeds of_judge = ask_judge(m), of_module = ask_module(m);
        for (int type = 0; type < TYPES; type++)
            for (int at = 0; at < ALL; at++)
                actions[type] += of_judge.of[type][at];
        if (memcmp(&of_module, &of_judge, sizeof of_judge) != 0)
            return step;
        answer_evictions(&of_judge);
        answer_kills(&of_judge);
    }
    return -1;
}

static void end(void)
{
    overuse_free(module);
    arena_fini(&usage.arena);
}

TEST(the_module_does_what_the_judge_derives)
{
    size_t actions[TYPES] = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        int step = run(seed, NO_FAULT, actions);
        ck_assert_msg(step < 0, "seed %d: they differ at step %d", (int)seed, step);
    }
    /* Agreement about nothing proves nothing. */
    for (int type = 0; type < TYPES; type++)
        ck_assert_msg(actions[type] > 50, "only %zu actions of type %d", actions[type],
                      type);
}

TEST(the_judge_finds_each_planted_fault)
{
    for (int planted = NO_FAULT + 1; planted < FAULTS; planted++) {
        size_t actions[TYPES] = {0};
        uint64_t seed = 1;
        while (seed <= SEEDS && run(seed, (enum fault)planted, actions) < 0)
            seed++;
        ck_assert_msg(seed <= SEEDS, "fault %d is not found", planted);
    }
}

UNIT_MAIN_AROUND(NULL, end)
