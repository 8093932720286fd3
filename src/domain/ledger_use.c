/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/ledger_priv.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/mem.h"

/*
 * What containers and processes use of the cards, by the Scv, and what of it is inside
 * promises.
 *
 * An entry names its pod by the UID, which a later pod of the same name does not share. An
 * entry with a name alone is only shown.
 */

enum {
    /* The memory of a card and its processes are read one after the other, so their sums
     * can differ by what was allocated in between. */
    READING_MIB = 64,
};

void ledger_use_drop(struct ledger_node_facts *f)
{
    free(f->uses);
    f->uses = NULL;
    f->n_uses = 0;
}

static int by_user(const void *a, const void *b)
{
    const struct ledger_use_entry *x = a, *y = b;
    if (x->user != y->user)
        return x->user < y->user ? -1 : 1;
    if (x->pod != y->pod)
        return x->pod < y->pod ? -1 : 1;
    return x->card < y->card ? -1 : x->card > y->card;
}

void ledger_use_copy(struct ledger_node_facts *f, const struct scv *scv)
{
    uint64_t cards[SCV_MAX_CARDS];
    if (!scv->n_uses)
        return;
    f->uses = xcalloc(scv->n_uses, sizeof *f->uses);
    for (size_t c = 0; c < f->n_scv_cards; c++)
        cards[c] = scv_hash(f->scv_cards[c].uuid);
    for (size_t i = 0; i < scv->n_uses; i++) {
        const struct scv_pod_use *from = &scv->uses[i];
        size_t c = 0;
        while (c < f->n_scv_cards && (cards[c] != from->card || !f->scv_cards[c].uuid.n))
            c++;
        if (c < f->n_scv_cards)
            f->uses[f->n_uses++] = (struct ledger_use_entry){
                .pod = from->pod,
                .used_mib = from->used_mib,
                .sm_percent = (int16_t)from->sm_percent,
                .card = (uint8_t)c,
                .user = from->user,
            };
    }
    if (f->n_uses)
        qsort(f->uses, f->n_uses, sizeof *f->uses, by_user);
}

/* The entries of that user and pod; *n gets their number. */
static const struct ledger_use_entry *
entries_of(const struct ledger_node_facts *f, enum scv_user user, uint64_t pod, size_t *n)
{
    const struct ledger_use_entry key = {.user = user, .pod = pod};
    size_t from = ARRAY_LOWER_BOUND(u, f->uses, f->n_uses, by_user(u, &key) < 0);
    *n = 0;
    while (from + *n < f->n_uses && f->uses[from + *n].user == user &&
           f->uses[from + *n].pod == pod)
        ++*n;
    return f->n_uses ? f->uses + from : NULL;
}

/* -- for display -- */

static bool add_use(struct ledger_use *use, const struct ledger_use_entry *e, size_t n,
                    uint32_t card)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        if (e[i].card != card)
            continue;
        any = true;
        use->used_mib =
            use->used_mib < 0 || e[i].used_mib < 0 ? -1 : use->used_mib + e[i].used_mib;
        use->sm_percent = use->sm_percent < 0 || e[i].sm_percent < 0
                              ? -1
                              : use->sm_percent + e[i].sm_percent;
    }
    return any;
}

bool ledger_pod_use(const struct ledger_node *node, const struct ledger_pod *pod,
                    const struct card *card, struct ledger_use *use)
{
    const struct ledger_node_facts *f = node->facts;
    size_t n;
    *use = (struct ledger_use){0};
    if (node->source != SOURCE_SCV || !f->n_uses)
        return false;
    uint32_t at = (uint32_t)(card - node->cards);
    const struct ledger_use_entry *e =
        entries_of(f, SCV_USER_UID, scv_hash(pod->uid), &n);
    bool any = add_use(use, e, n, at);
    e = entries_of(f, SCV_USER_NAME, pod->hash, &n);
    any |= add_use(use, e, n, at);
    use->sm_percent = use->sm_percent > 100 ? 100 : use->sm_percent;
    return any;
}

/* -- for the free memory -- */

/* What n entries of one pod use of the card of the first one; *n gets their number. */
static int64_t used_of_card(const struct ledger_use_entry *e, size_t *n)
{
    int64_t sum = 0;
    size_t i = 0;
    for (; i < *n && e[i].card == e->card; i++)
        sum += e[i].used_mib > 0 ? e[i].used_mib : 0;
    *n = i;
    return sum;
}

bool ledger_use_shows(const struct ledger_node_facts *f, const struct ledger_pod *pod,
                      uint32_t card)
{
    size_t n = 0;
    const struct ledger_use_entry *e =
        f->n_uses ? entries_of(f, SCV_USER_UID, scv_hash(pod->uid), &n) : NULL;
    for (size_t i = 0; i < n; i++)
        if (e[i].card == card && e[i].used_mib > 0)
            return true;
    return false;
}

int64_t ledger_use_allowed(const struct ledger_node *node, const struct ledger_pod *pod,
                           uint32_t card)
{
    int64_t total = node->cards[card].total_mib;
    if (pod->request->kind == REQUEST_DEVICES)
        return ledger_facts_holds(node->facts, pod, card) ? total : 0;
    int64_t mib = ledger_pod_mib(pod, &node->cards[card]);
    return mib < 0 ? 0 : mib < total ? mib : total;
}

/* What a pod without a promise on any card uses is external use. */
static bool has_promise(const struct ledger_pod *pod)
{
    return pod->request->kind == REQUEST_DEVICES || pod->n_shares || pod->other_cards;
}

/* What is known of a card. */
struct split {
    int64_t all;     /* what all entries use */
    int64_t inside;  /* ... of it inside promises, or of pods that have left */
    int64_t overuse; /* ... of it by pods beyond their promises */
    int64_t unused;  /* of the promises of pods that use the card */
    int64_t entries;
    bool unknown; /* what a process uses is not known, or of which pod it is */
};

static void add_pod(struct split *s, int64_t used, int64_t allowed, bool departed)
{
    int64_t beyond = used > allowed ? used - allowed : 0;
    s->inside += used - beyond;
    s->unused += used && !beyond ? allowed - used : 0;
    s->overuse += departed ? 0 : beyond;
}

static void add_entries(const struct ledger_node_facts *f, struct split *split)
{
    for (size_t i = 0; i < f->n_uses; i++) {
        const struct ledger_use_entry *e = &f->uses[i];
        struct split *s = &split[e->card];
        s->entries++;
        s->all += e->used_mib > 0 ? e->used_mib : 0;
        /* A container without processes has no UID; its use is 0 or unknown. */
        s->unknown |= e->user == SCV_USER_NAME ? e->used_mib > 0 : e->used_mib < 0;
    }
}

static void add_pods(const struct ledger_node *node, struct split *split)
{
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next) {
        size_t left, n;
        const struct ledger_use_entry *e =
            entries_of(node->facts, SCV_USER_UID, scv_hash(pod->uid), &left);
        for (; left && has_promise(pod); e += n, left -= n) {
            n = left;
            int64_t used = used_of_card(e, &n);
            add_pod(&split[e->card], used, ledger_use_allowed(node, pod, e->card), false);
        }
    }
}

static bool is_back(const struct ledger_node *node, const struct departure *d)
{
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next)
        if (scv_hash(pod->uid) == d->pod)
            return true;
    return false;
}

static void add_departures(const struct ledger_node *node, struct split *split)
{
    const struct ledger_node_facts *f = node->facts;
    for (size_t i = 0; i < f->n_departures; i++) {
        const struct departure *d = &f->departures[i];
        size_t left, n;
        const struct ledger_use_entry *e = entries_of(f, SCV_USER_UID, d->pod, &left);
        for (left = left && is_back(node, d) ? 0 : left; left; e += n, left -= n) {
            n = left;
            int64_t used = used_of_card(e, &n);
            if (span_eq(node->cards[e->card].uuid, d->uuid))
                add_pod(&split[e->card], used, d->promised, true);
        }
    }
}

/* Memory that NVML lists for no process, such as managed memory and the driver's own, may
 * be of any process on the card. So it fills what pods that use the card were promised and
 * do not use; the rest is from outside. */
static void tell_apart(const struct card *card, const struct split *s,
                       struct ledger_measured *m)
{
    /* Of processes of no such pod; negative if a pod has left the card twice. */
    int64_t listed = s->all - s->inside - s->overuse;
    int64_t unlisted = card->used_mib > s->all ? card->used_mib - s->all : 0;
    m->exact = true;
    m->overuse_mib = s->overuse;
    m->outside_mib =
        (listed > 0 ? listed : 0) + (unlisted > s->unused ? unlisted - s->unused : 0);
}

/* The bits of the cards that the Scv calls complete. */
static uint64_t complete_cards(const struct ledger_node *node)
{
    uint64_t complete = 0;
    for (uint32_t i = 0; i < node->n_cards && node->source == SOURCE_SCV; i++) {
        const struct card *card = &node->cards[i];
        if (card->scv->use_complete && card->uuid.n && card->used_mib >= 0)
            complete |= UINT64_C(1) << i;
    }
    return complete & ~node->facts->duplicates;
}

static void measure(const struct ledger_node *node, uint64_t complete,
                    struct ledger_measured measured[SCV_MAX_CARDS])
{
    struct split split[SCV_MAX_CARDS] = {0};
    add_entries(node->facts, split);
    add_pods(node, split);
    add_departures(node, split);
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct split *s = &split[i];
        bool agrees =
            !s->unknown && s->all <= node->cards[i].used_mib + s->entries + READING_MIB;
        if (complete >> i & 1 && agrees)
            tell_apart(&node->cards[i], s, &measured[i]);
    }
}

void ledger_use_measure(const struct ledger_node *node,
                        struct ledger_measured measured[SCV_MAX_CARDS])
{
    uint64_t complete = complete_cards(node);
    if (complete)
        measure(node, complete, measured);
}
