/* SPDX-License-Identifier: Apache-2.0 */
/* Who uses more than promised, for how long, whom it hurts, and what is done. */
#include "node/overuse.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/mem.h"

/* A pod that overuses a card, or did so before. */
struct over {
    char *key;
    uint64_t uid;     /* hash of the pod's */
    int64_t seen_ms;  /* time of the last measurement that counts */
    int64_t since_ms; /* time of the first one that shows overuse of this UID */
    int64_t sum_ms;   /* full at the grace; below 0: empty for that long, drained */
    int64_t over_ms;  /* all time of overuse */
    size_t n;         /* its containers that overuse the card now */
    bool fresh;       /* over in this measurement */
};

/* An action that must not be repeated before `until_ms`. */
struct limit {
    char *key;
    int64_t until_ms, again_ms; /* the time and the length of the limit */
    unsigned rejections;        /* of evictions, in a row */
    bool pending;               /* the action was sent, and has not failed */
};

/* A container that overuses the card, of a pod whose sum is full. */
struct suspect {
    const struct usage_container *c;
    enum overuse_type most; /* the strongest action */
    int64_t over_ms, beyond_mib;
    int64_t frees_mib; /* what the card has more, once it was acted on */
    bool pending;
};

struct overuse {
    struct overuse_settings settings;
    struct over *overs;
    size_t n_overs, cap_overs;
    struct limit *limits;
    size_t n_limits, cap_limits;

    /* of the step that runs */
    const struct usage *u;
    int64_t now_ms;
    struct overuse_actions *actions;
    struct suspect *suspects; /* of one card */
    size_t n_suspects;
};

void overuse_actions_fini(struct overuse_actions *a)
{
    free(a->items);
    *a = (struct overuse_actions){0};
}

struct overuse *overuse_new(const struct overuse_settings *settings)
{
    struct overuse *o = xcalloc(1, sizeof *o);
    o->settings = *settings;
    return o;
}

void overuse_free(struct overuse *o)
{
    if (!o)
        return;
    for (size_t i = 0; i < o->n_overs; i++)
        free(o->overs[i].key);
    for (size_t i = 0; i < o->n_limits; i++)
        free(o->limits[i].key);
    free(o->overs);
    free(o->limits);
    free(o);
}

size_t overuse_count(const struct overuse *o)
{
    size_t n = 0;
    for (size_t i = 0; i < o->n_overs; i++)
        n += o->overs[i].n;
    return n;
}

/* -- keys -- */

/* UIDs, IDs and names have no '/'. */
#define CARD_KEY       "%.*s#%d/"
#define CARD_ARG(card) SPAN_ARG((card)->uuid), (card)->uuid.n ? 0 : (card)->index

/* Evictions concern the pod, the other actions a container and a card. The name of the
 * container, because its ID changes with each restart. */
static char *limit_key(const struct usage *u, const struct usage_container *c,
                       enum overuse_type type)
{
    if (type == OVERUSE_EVICT)
        return xasprintf("%.*s", SPAN_ARG(c->pod_uid));
    return xasprintf(CARD_KEY "%.*s/%.*s/%d", CARD_ARG(&u->cards[c->card]),
                     SPAN_ARG(c->pod_uid), SPAN_ARG(c->name), type);
}

/* -- limits -- */

static struct limit *find_limit(const struct overuse *o, const char *key)
{
    for (size_t i = 0; i < o->n_limits; i++)
        if (strcmp(o->limits[i].key, key) == 0)
            return &o->limits[i];
    return NULL;
}

static const int64_t again_ms[] = {[OVERUSE_REPORT] = OVERUSE_REPORT_AGAIN_MS,
                                   [OVERUSE_EVICT] = OVERUSE_EVICT_AGAIN_MS,
                                   [OVERUSE_KILL] = OVERUSE_KILL_AGAIN_MS};

/* Adds the action unless its limit forbids it. */
static void act(struct overuse *o, enum overuse_type type, const struct suspect *suspect,
                int64_t lacking_mib)
{
    const struct usage_container *c = suspect->c;
    cleanup_free char *key = limit_key(o->u, c, type);
    struct limit *l = find_limit(o, key);
    if ((l && o->now_ms < l->until_ms) || (!l && o->n_limits == OVERUSE_MAX_LIMITS))
        return;
    if (!l) {
        MEM_GROW(o->limits, o->cap_limits, o->n_limits + 1);
        l = &o->limits[o->n_limits++];
        *l = (struct limit){.key = steal(&key)};
    }
    l->again_ms = again_ms[type];
    l->until_ms = o->now_ms + l->again_ms;
    l->pending = true;
    MEM_GROW(o->actions->items, o->actions->cap, o->actions->n + 1);
    o->actions->items[o->actions->n++] =
        (struct overuse_action){.type = type,
                                .container = (size_t)(c - o->u->containers),
                                .used_mib = c->used_mib,
                                .lacking_mib = lacking_mib > 0 ? lacking_mib : 0,
                                .over_ms = suspect->over_ms};
}

static bool is_pending(const struct overuse *o, const struct suspect *suspect)
{
    cleanup_free char *key = limit_key(o->u, suspect->c, suspect->most);
    const struct limit *l = find_limit(o, key);
    return l && l->pending && o->now_ms < l->until_ms;
}

void overuse_evicted(struct overuse *o, int64_t now_ms, struct span pod_uid,
                     bool accepted, int64_t retry_after_ms)
{
    cleanup_free char *key =
        limit_key(NULL, &(struct usage_container){.pod_uid = pod_uid}, OVERUSE_EVICT);
    struct limit *l = find_limit(o, key);
    if (!l)
        return;
    l->again_ms = OVERUSE_EVICT_AGAIN_MS;
    l->pending = accepted;
    if (!accepted) {
        unsigned doublings = l->rejections < 16 ? l->rejections : 16;
        int64_t ms = (int64_t)OVERUSE_BACKOFF_MS << doublings;
        l->again_ms = ms < OVERUSE_BACKOFF_MAX_MS ? ms : OVERUSE_BACKOFF_MAX_MS;
        if (retry_after_ms > l->again_ms)
            l->again_ms = retry_after_ms < OVERUSE_EVICT_AGAIN_MS
                              ? retry_after_ms
                              : OVERUSE_EVICT_AGAIN_MS;
    }
    l->rejections = accepted ? 0 : l->rejections + 1;
    l->until_ms = now_ms + l->again_ms;
}

void overuse_kill_failed(struct overuse *o, const struct usage *u, size_t container)
{
    cleanup_free char *key = limit_key(u, &u->containers[container], OVERUSE_KILL);
    struct limit *l = find_limit(o, key);
    if (l)
        l->pending = false;
}

/* -- what pods use and were promised -- */

static bool has_name(const struct usage_container *c)
{
    return c->ns.n && c->pod.n && c->name.n;
}

static int64_t promise_of(const struct usage_container *c)
{
    return c->promised_mib > 0 ? c->promised_mib : 0;
}

static bool same_pod(const struct usage_container *a, const struct usage_container *b)
{
    return span_eq(a->pod, b->pod) && span_eq(a->ns, b->ns);
}

/* A container that restarts can be listed twice; its promise counts once. The containers
 * of a pod on a card are neighbors. */
static bool is_first_of_its_name(const struct usage *u, size_t i)
{
    const struct usage_container *all = u->containers;
    for (size_t k = i;
         k-- > 0 && all[k].card == all[i].card && same_pod(&all[k], &all[i]);)
        if (span_eq(all[k].name, all[i].name))
            return false;
    return true;
}

/* -- init containers -- */

/* What the pod is promised on the card of `c` while its init containers run, at most; -1:
 * not known. Sets *any if it has a promise for one of them. */
static int64_t init_promise(const struct usage *u, const struct usage_container *c,
                            bool *any)
{
    int64_t most = 0;
    ARRAY_EACH_ITEM(const struct usage_init_promise, init, u->inits, u->n_inits)
    {
        /* A container without a process has no UID. */
        if (!span_eq(init->pod, c->pod) || !span_eq(init->ns, c->ns) ||
            (c->pod_uid.n && !span_eq(init->pod_uid, c->pod_uid)))
            continue;
        *any = true;
        if (init->card != c->card)
            continue;
        if (init->mib < 0 || init->beside_mib < 0)
            return -1;
        if (init->mib + init->beside_mib > most)
            most = init->mib + init->beside_mib;
    }
    return most;
}

/* -- pods -- */

/* How a pod overuses a card; {0}: it does not, or is exempt. */
struct excess {
    int64_t held;      /* by all its containers, also by those without a name */
    int64_t mib;       /* beyond its promise */
    int64_t tolerance; /* MiB, of its processes */
    int64_t unlimited; /* MiB without its limit */
    bool unpromised;   /* it has no promise */
};

/* A container of another UID is of another pod of that name. */
static struct excess pod_excess(const struct overuse *o, const struct usage_container *c)
{
    const struct excess none = {0};
    const struct usage *u = o->u;
    const int64_t each = o->settings.tolerance_mib;
    int64_t held = 0, used = 0, promised = 0, unlimited = 0, n_slots = 0, context = 0;
    bool any_slotless = false, any_promise = false, others = false, measured = false;
    int64_t inits = init_promise(u, c, &any_promise);
    for (size_t k = 0; k < u->n_containers; k++) {
        const struct usage_container *other = &u->containers[k];
        if (other->card == c->card && span_eq(other->pod_uid, c->pod_uid) &&
            other->used_mib > 0)
            held += other->used_mib;
        if (!same_pod(other, c)) {
            others |= other->card == c->card && other->promised_mib > 0;
            continue;
        }
        const int64_t total_mib = u->cards[other->card].total_mib;
        if (total_mib < 0 ||
            (other->promised_mib > 0 && other->promised_mib >= total_mib))
            return none; /* all of the card, or its size is not known */
        any_promise |= other->promised_mib >= 0;
        if (other->card != c->card)
            continue;
        if ((other->used_mib < 0 && other->pod_uid.n) || other->promise_unclear)
            return none;
        if (span_eq(other->pod_uid, c->pod_uid)) {
            used += other->used_mib;
            unlimited += other->unlimited_mib;
            measured |= other->by_driver;
            any_slotless |= !other->by_driver && (size_t)other->n_slots < other->n_pids;
            n_slots += other->by_driver ? 0 : other->n_slots;
            context += other->by_driver ? 0 : other->context_mib;
        }
        if (!other->init && is_first_of_its_name(u, k))
            promised += promise_of(other);
    }
    if (inits > promised)
        promised = inits;
    if (inits < 0 || (!any_promise && !(others && o->settings.unpromised)))
        return none;
    int64_t tolerance = n_slots * each < context ? n_slots * each : context;
    if (any_slotless || (!n_slots && !measured))
        tolerance += each;
    if (tolerance > OVERUSE_TOLERANCES * each)
        tolerance = OVERUSE_TOLERANCES * each;
    if (tolerance > each && tolerance > promised / 2)
        tolerance = promised / 2 > each ? promised / 2 : each;
    return (struct excess){held, used > promised ? used - promised : 0, tolerance,
                           unlimited, !any_promise};
}

static int64_t excess_of(const struct usage_container *c)
{
    return c->used_mib - promise_of(c);
}

/* Does no other container of the pod use more of the card beyond its promise? */
static bool is_furthest_of_pod(const struct usage *u, size_t container)
{
    const struct usage_container *c = &u->containers[container];
    for (size_t k = 0; k < u->n_containers; k++) {
        const struct usage_container *other = &u->containers[k];
        if (other->card == c->card && span_eq(other->pod_uid, c->pod_uid) &&
            (excess_of(other) > excess_of(c) ||
             (excess_of(other) == excess_of(c) && k < container)))
            return false;
    }
    return true;
}

/* What the pods of a card were promised and cannot get, or less; INT64_MIN: not known. A
 * container without a name, or a process that was not mapped, may be of one that a promise
 * was made to, which then uses more of it than it seems to. */
static int64_t lacking_mib_of(const struct usage *u, size_t card)
{
    int64_t unused = 0;
    for (size_t i = 0; i < u->n_containers; i++)
        if (u->containers[i].card == card && u->containers[i].pod_uid.n &&
            u->containers[i].used_mib < 0)
            return INT64_MIN;
    ARRAY_EACH_ITEM(const struct usage_process, p, u->outside, u->n_outside)
    {
        if (p->card != card || !p->unmapped)
            continue;
        if (p->used_mib < 0)
            return INT64_MIN;
        unused -= p->used_mib;
    }
    for (size_t i = 0; i < u->n_containers;) {
        /* What the pod of the containers from i on does not use of its promise on the card. */
        const struct usage_container *c = &u->containers[i];
        bool any = false;
        int64_t promised = 0, used = 0, inits = init_promise(u, c, &any);
        for (; i < u->n_containers && u->containers[i].card == c->card &&
               same_pod(&u->containers[i], c);
             i++) {
            used += u->containers[i].used_mib > 0 ? u->containers[i].used_mib : 0;
            if (!u->containers[i].init && is_first_of_its_name(u, i))
                promised += promise_of(&u->containers[i]);
        }
        const int64_t left = (inits > promised ? inits : promised) - used;
        if (c->card == card && (left > 0 || !has_name(c)))
            unused += left;
    }
    return u->cards[card].free_mib < 0 ? INT64_MIN : unused - u->cards[card].free_mib;
}

/* -- how long -- */

/* The time since the last measurement, as far as it counts. */
static int64_t lapse(const struct overuse *o, struct over *over)
{
    int64_t ms = o->u->taken_ms - over->seen_ms;
    int64_t most_ms = (o->settings.grace_ms + 1) / 2;
    over->seen_ms = o->u->taken_ms;
    return ms < 0 ? 0 : ms < most_ms ? ms : most_ms;
}

/* Notes that the container overuses the card. */
static const struct over *note_over(struct overuse *o, size_t i,
                                    const struct excess *excess)
{
    double full_mib = OVERUSE_FULL_RATE * (double)excess->tolerance;
    const struct usage_container *c = &o->u->containers[i];
    /* By name where it is known: a pod that is deleted and made again has another UID. */
    cleanup_free char *key =
        xasprintf(CARD_KEY "%.*s/%.*s", CARD_ARG(&o->u->cards[c->card]), SPAN_ARG(c->ns),
                  SPAN_ARG(c->pod.n ? c->pod : c->pod_uid));
    uint64_t uid = hash_bytes(0, c->pod_uid.p, c->pod_uid.n);
    struct over *over = NULL;
    for (size_t k = 0; k < o->n_overs && !over; k++)
        if (strcmp(o->overs[k].key, key) == 0)
            over = &o->overs[k];
    if (!over) {
        MEM_GROW(o->overs, o->cap_overs, o->n_overs + 1);
        over = &o->overs[o->n_overs++];
        *over = (struct over){.key = steal(&key), .uid = ~uid, .seen_ms = o->u->taken_ms};
    }
    if (over->uid != uid) { /* its promise can be another */
        over->uid = uid;
        over->since_ms = o->u->taken_ms;
    }
    if (!over->fresh) {
        double ms = (double)lapse(o, over);
        double share = (double)excess->mib < full_mib && !excess->unlimited
                           ? (double)excess->mib / full_mib
                           : 1;
        int64_t sum_ms = (over->sum_ms > 0 ? over->sum_ms : 0) + (int64_t)(ms * share);
        over->sum_ms = sum_ms < o->settings.grace_ms ? sum_ms : o->settings.grace_ms;
        over->over_ms += (int64_t)ms;
        over->n = 0;
        over->fresh = true;
    }
    over->n++;
    return over;
}

/* Drains the sums of the pods of the card that are not over, and forgets them a grace after
 * they are empty. Their keys begin with that of the card. A process that was not mapped may
 * be of any of them. */
static void drain_others(struct overuse *o, size_t card)
{
    cleanup_free char *prefix = xasprintf(CARD_KEY, CARD_ARG(&o->u->cards[card]));
    for (size_t i = 0; i < o->n_overs;) {
        struct over *over = &o->overs[i];
        if (!over->fresh && strncmp(over->key, prefix, strlen(prefix)) == 0) {
            over->n = 0;
            int64_t ms = lapse(o, over);
            over->sum_ms -= o->u->cards[card].complete ? ms / OVERUSE_DRAIN : 0;
            if (over->sum_ms < -(o->settings.grace_ms / OVERUSE_DRAIN)) {
                free(over->key);
                *over = o->overs[--o->n_overs];
                continue;
            }
        }
        over->fresh = false;
        i++;
    }
}

/* -- one card -- */

/* Those that were acted on first, then the most beyond its promise. */
static int by_order(const void *a, const void *b)
{
    const struct suspect *x = a, *y = b;
    if (x->pending != y->pending)
        return x->pending ? -1 : 1;
    if (x->beyond_mib != y->beyond_mib)
        return x->beyond_mib > y->beyond_mib ? -1 : 1;
    return x->c < y->c ? -1 : 1;
}

static void judge_card(struct overuse *o, size_t card)
{
    const struct overuse_settings *settings = &o->settings;
    o->n_suspects = 0;
    for (size_t i = 0; i < o->u->n_containers; i++) {
        const struct usage_container *c = &o->u->containers[i];
        if (c->card != card || !c->pod_uid.n || !c->container_id.n || !has_name(c) ||
            c->used_mib < 0)
            continue;
        const struct excess excess = pod_excess(o, c);
        /* What is beyond the tolerance may be in many containers, with less in each. */
        const bool is_over =
            excess.mib > excess.tolerance &&
            (excess_of(c) > excess.tolerance || is_furthest_of_pod(o->u, i));
        if (!is_over && !(c->unlimited_mib && excess.unlimited))
            continue;
        const struct over *over = note_over(o, i, &excess);
        if (over->sum_ms < settings->grace_ms || o->u->promised_ms <= over->since_ms)
            continue;
        struct suspect *suspect = &o->suspects[o->n_suspects++];
        *suspect = (struct suspect){.c = c,
                                    .most = settings->most,
                                    .over_ms = over->over_ms,
                                    .beyond_mib = excess_of(c) > c->unlimited_mib
                                                      ? excess_of(c)
                                                      : c->unlimited_mib,
                                    .frees_mib = c->used_mib};
        if (excess.unpromised)
            suspect->most = (enum overuse_type)(settings->unpromised - 1);
        if (suspect->most == OVERUSE_EVICT)
            suspect->frees_mib = excess.held;
        suspect->pending = is_pending(o, suspect);
    }
    drain_others(o, card);
    if (!o->n_suspects)
        return;
    const int64_t lacking = lacking_mib_of(o->u, card);
    for (size_t i = 0; i < o->n_suspects; i++) {
        const struct usage_container *c = o->suspects[i].c;
        if (lacking > 0 || settings->always || c->unlimited_mib ||
            c->enforced_by & SCV_ISOLATION_MPS)
            act(o, OVERUSE_REPORT, &o->suspects[i], lacking);
    }
    qsort(o->suspects, o->n_suspects, sizeof *o->suspects, by_order);
    int64_t left = lacking > 0 ? lacking : 0;
    for (size_t i = 0; i < o->n_suspects && (left > 0 || settings->always); i++) {
        const struct suspect *suspect = &o->suspects[i];
        bool counted = false; /* its pod was evicted */
        for (size_t k = 0; k < i && suspect->most == OVERUSE_EVICT; k++)
            counted |= span_eq(o->suspects[k].c->pod_uid, suspect->c->pod_uid);
        if (suspect->most == OVERUSE_REPORT || counted)
            continue;
        if (!suspect->pending)
            act(o, suspect->most, suspect, lacking);
        if (is_pending(o, suspect))
            left -= suspect->frees_mib;
    }
}

void overuse_step(struct overuse *o, int64_t now_ms, const struct usage *u,
                  struct overuse_actions *actions)
{
    o->u = u;
    o->now_ms = now_ms;
    o->actions = actions;
    /* Drops the limits that have passed. Rejections are remembered for one more limit. After a
     * clock that went back, a limit lasts once more at most. */
    for (size_t i = 0; i < o->n_limits;) {
        struct limit *l = &o->limits[i];
        if (l->until_ms - now_ms > l->again_ms)
            l->until_ms = now_ms + l->again_ms;
        int64_t keep_ms = l->rejections ? l->again_ms : 0;
        if (now_ms < l->until_ms || now_ms - l->until_ms < keep_ms) {
            i++;
            continue;
        }
        free(l->key);
        *l = o->limits[--o->n_limits];
    }
    if (now_ms < u->taken_ms || now_ms - u->taken_ms > OVERUSE_MAX_AGE_MS)
        return;
    o->suspects = xcalloc(u->n_containers + 1, sizeof *o->suspects);
    for (size_t card = 0; card < u->n_cards; card++)
        if (u->cards[card].processes_known)
            judge_card(o, card);
    free(o->suspects);
}
