/* SPDX-License-Identifier: Apache-2.0 */
/* What the Scv of a node says: its cards, the containers and processes that use them, and the
 * pods that left since its last sample. A large cluster has tens of thousands of cards, so the
 * cards of a node are one block, and those of one model share its name and properties. Lost
 * knowledge frees nothing. */
#include "domain/ledger_priv.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "domain/keys.h"

/* -- what pods and processes use -- */

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

static void ledger_use_drop(struct ledger_node_facts *f)
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

static void ledger_use_copy(struct ledger_node_facts *f, const struct scv *scv)
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

/* Sums up what the pod with this UID uses of each card. False: nothing. */
static bool sum_uses(const struct ledger_node_facts *f, uint64_t uid,
                     int64_t used[SCV_MAX_CARDS])
{
    size_t n = 0;
    const struct ledger_use_entry *e =
        f->n_uses ? entries_of(f, SCV_USER_UID, uid, &n) : NULL;
    if (n)
        memset(used, 0, SCV_MAX_CARDS * sizeof *used);
    for (size_t i = 0; i < n; i++)
        used[e[i].card] += e[i].used_mib > 0 ? e[i].used_mib : 0;
    return n > 0;
}

/* Does the newest sample show memory of the pod, by its UID, on the card at this
 * position? */
static bool use_shows(const struct ledger_node_facts *f, const struct ledger_pod *pod,
                      uint32_t card)
{
    int64_t used[SCV_MAX_CARDS];
    return sum_uses(f, scv_hash(pod->uid), used) && used[card] > 0;
}

/* What of the pod's use on the card is not overuse: its promise there, or the card that it
 * holds through nvidia.com/... */
static int64_t use_allowed(const struct ledger_node *node, const struct ledger_pod *pod,
                           uint32_t card)
{
    int64_t total = node->cards[card].total_mib;
    if (pod->request->kind == REQUEST_DEVICES)
        return ledger_pod_holds(node, pod, NULL) >> card & 1 ? total : 0;
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
    int64_t used[SCV_MAX_CARDS];
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next) {
        if (!has_promise(pod) || !sum_uses(node->facts, scv_hash(pod->uid), used))
            continue;
        for (uint32_t i = 0; i < node->n_cards; i++)
            if (used[i])
                add_pod(&split[i], used[i], use_allowed(node, pod, i), false);
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
    int64_t used[SCV_MAX_CARDS];
    for (size_t i = 0; i < f->n_departures; i++) {
        const struct departure *d = &f->departures[i];
        if (is_back(node, d) || !sum_uses(f, d->pod, used))
            continue;
        for (uint32_t c = 0; c < node->n_cards; c++)
            if (used[c] && span_eq(node->cards[c].uuid, d->uuid))
                add_pod(&split[c], used[c], d->promised, true);
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

/* -- cards, holders, assignments -- */

static void drop_assignments(struct ledger_node_facts *f)
{
    free(f->assignments);
    f->assignments = NULL;
    f->n_assignments = 0;
    f->assignments_kept = false;
}

/* All but the assignments. */
static void drop_cards(struct ledger_node_facts *f)
{
    free(f->scv_cards);
    free(f->holders);
    f->scv_cards = NULL;
    f->holders = NULL;
    f->n_scv_cards = f->n_holders = 0;
    ledger_use_drop(f);
    f->held = f->duplicates = 0;
    f->scv_damaged = f->has_sample = false;
    f->sample_s = f->scv_created_s = 0;
}

void ledger_facts_drop_scv(struct ledger_node_facts *f)
{
    drop_cards(f);
    drop_assignments(f);
}

/* Position of the first card with the model of card i. */
static size_t first_of_model(const struct scv *scv, size_t i)
{
    const struct scv_card *card = &scv->cards[i];
    size_t k = 0;
    while (!span_eq(scv->cards[k].model, card->model) ||
           !scv_spec_equal(&scv->cards[k].spec, &card->spec))
        k++;
    return k;
}

static size_t block_bytes(const struct scv *scv, size_t *n_models)
{
    size_t bytes = scv->n_cards * sizeof(struct ledger_scv_card);
    *n_models = 0;
    for (size_t i = 0; i < scv->n_cards; i++) {
        const struct scv_card *card = &scv->cards[i];
        bytes += card->uuid.n + card->bus_id.n;
        if (first_of_model(scv, i) != i)
            continue;
        bytes += sizeof(struct ledger_card_model) + card->model.n;
        ++*n_models;
    }
    return bytes;
}

/* The block begins with the cards. Then come the models, then the strings. */
static void copy_cards(struct ledger_node_facts *f, const struct scv *scv)
{
    size_t n_models;
    size_t bytes = block_bytes(scv, &n_models);
    f->n_scv_cards = scv->n_cards;
    f->scv_cards = xmalloc(bytes);
    struct ledger_card_model *model = (void *)(f->scv_cards + scv->n_cards);
    char *at = (char *)(model + n_models);
    for (size_t i = 0; i < scv->n_cards; i++) {
        const struct scv_card *from = &scv->cards[i];
        size_t first = first_of_model(scv, i);
        if (first == i)
            *model = (struct ledger_card_model){span_put(from->model, &at), from->spec};
        f->scv_cards[i] = (struct ledger_scv_card){
            .uuid = span_put(from->uuid, &at),
            .bus_id = span_put(from->bus_id, &at),
            .model = first == i ? model++ : f->scv_cards[first].model,
            .total_mib = from->total_mib,
            .used_mib = scv_card_used(from),
            .id = from->id,
            .healthy = from->healthy,
            .use_complete = from->use_complete,
        };
    }
}

static void find_duplicates(struct ledger_node_facts *f)
{
    for (size_t i = 0; i < f->n_scv_cards; i++)
        for (size_t k = 0; k < i && f->scv_cards[i].uuid.n; k++)
            if (span_eq(f->scv_cards[i].uuid, f->scv_cards[k].uuid))
                f->duplicates |= UINT64_C(1) << i | UINT64_C(1) << k;
}

/* The bits of the cards with these UUIDs, of a container of NVIDIA's plugin. */
static uint64_t cards_of(const struct ledger_node_facts *f, const struct scv_held *held)
{
    uint64_t bits = 0;
    if (!scv_is_nvidia_resource(held->resource))
        return 0;
    for (size_t k = 0; k < held->n_uuids; k++)
        for (size_t c = 0; c < f->n_scv_cards && held->uuids[k].n; c++)
            if (span_eq(held->uuids[k], f->scv_cards[c].uuid))
                bits |= UINT64_C(1) << c;
    return bits;
}

static size_t holder_bytes(const struct scv_held *held)
{
    size_t bytes = sizeof *held + held->ns.n + held->pod.n + held->container.n +
                   held->resource.n + held->n_uuids * sizeof *held->uuids;
    for (size_t k = 0; k < held->n_uuids; k++)
        bytes += held->uuids[k].n;
    return bytes;
}

static void copy_holders(struct ledger_node_facts *f, const struct scv *scv)
{
    size_t n_uuids = 0, bytes = 0;
    if (!scv->n_held)
        return;
    for (size_t i = 0; i < scv->n_held; i++) {
        n_uuids += scv->held[i].n_uuids;
        bytes += holder_bytes(&scv->held[i]);
    }
    f->holders = xmalloc(bytes);
    f->n_holders = scv->n_held;
    struct span *uuid = (struct span *)(f->holders + scv->n_held);
    char *at = (char *)(uuid + n_uuids);
    for (size_t i = 0; i < scv->n_held; i++) {
        const struct scv_held *from = &scv->held[i];
        struct scv_held *to = &f->holders[i];
        *to = (struct scv_held){
            .ns = span_put(from->ns, &at),
            .pod = span_put(from->pod, &at),
            .container = span_put(from->container, &at),
            .resource = span_put(from->resource, &at),
            .units = from->units,
            .uuids = uuid,
            .n_uuids = from->n_uuids,
        }; /* without uses: f->uses has them */
        for (size_t k = 0; k < from->n_uuids; k++)
            *uuid++ = span_put(from->uuids[k], &at);
        f->held |= cards_of(f, to);
    }
}

/* -- assignments -- */

static int by_pod(const void *a, const void *b)
{
    const struct ledger_assignment *x = a, *y = b;
    if (x->pod != y->pod)
        return x->pod < y->pod ? -1 : 1;
    return x->card < y->card ? -1 : x->card > y->card;
}

static void copy_assignments(struct ledger_node_facts *f, const struct scv *scv)
{
    drop_assignments(f);
    if (!scv->n_assignments)
        return;
    f->assignments = xcalloc(scv->n_assignments, sizeof *f->assignments);
    for (size_t i = 0; i < scv->n_assignments; i++)
        f->assignments[i] = (struct ledger_assignment){.pod = scv->assignments[i].pod,
                                                       .card = scv->assignments[i].card};
    qsort(f->assignments, scv->n_assignments, sizeof *f->assignments, by_pod);
    f->n_assignments = scv->n_assignments;
}

static void find_assigned_cards(struct ledger_node_facts *f)
{
    uint64_t hashes[SCV_MAX_CARDS];
    for (size_t c = 0; c < f->n_scv_cards && f->n_assignments; c++)
        hashes[c] = scv_hash(f->scv_cards[c].uuid);
    for (size_t i = 0; i < f->n_assignments; i++) {
        struct ledger_assignment *a = &f->assignments[i];
        a->at = -1;
        for (size_t c = 0; c < f->n_scv_cards && a->at < 0; c++)
            if (hashes[c] == a->card && f->scv_cards[c].uuid.n)
                a->at = (int32_t)c;
    }
}

const struct ledger_assignment *ledger_facts_assigned(const struct ledger_node_facts *f,
                                                      const struct ledger_pod *pod,
                                                      size_t *n)
{
    *n = 0;
    if (!f->n_assignments)
        return NULL;
    size_t from =
        ARRAY_LOWER_BOUND(a, f->assignments, f->n_assignments, a->pod < pod->hash);
    while (from + *n < f->n_assignments && f->assignments[from + *n].pod == pod->hash)
        ++*n;
    return f->assignments + from;
}

/* Keeps the assignments of the pods on the node: a later pod can have the name of one that
 * has left. */
static void keep_assignments(struct ledger_node *node)
{
    struct ledger_node_facts *f = node->facts;
    size_t n, kept = 0;
    if (f->assignments_kept || !f->n_assignments)
        return;
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next) {
        const struct ledger_assignment *a = ledger_facts_assigned(f, pod, &n);
        for (size_t i = 0; i < n; i++)
            f->assignments[a - f->assignments + i].at = INT32_MAX;
    }
    for (size_t i = 0; i < f->n_assignments; i++)
        if (f->assignments[i].at == INT32_MAX)
            f->assignments[kept++] = f->assignments[i];
    f->n_assignments = kept;
    f->assignments_kept = true;
}

void ledger_facts_copy_scv(struct ledger_node *node, const struct scv *scv)
{
    struct ledger_node_facts *f = node->facts;
    drop_cards(f);
    f->scv_damaged = scv->damaged;
    f->has_sample = scv->has_update_time;
    f->sample_s = scv->update_time;
    f->scv_created_s = scv->meta.created_s;
    if (MUTANT(dropped_pod_list_frees) &&
        (scv->damaged || (!scv->n_held && !scv->n_assignments)))
        drop_assignments(f);
    else if (scv->damaged || (!scv->n_held && !scv->n_assignments))
        keep_assignments(node);
    else
        copy_assignments(f, scv);
    if (!scv->damaged) {
        copy_cards(f, scv);
        find_duplicates(f);
        copy_holders(f, scv);
        ledger_use_copy(f, scv);
    }
    find_assigned_cards(f);
}

uint64_t ledger_held_cards(const struct ledger_node *node, const struct scv_held *held)
{
    return cards_of(node->facts, held);
}

uint64_t ledger_pod_holds(const struct ledger_node *node, const struct ledger_pod *pod,
                          int64_t *devices)
{
    const struct ledger_node_facts *f = node->facts;
    uint64_t cards = 0;
    int64_t gpus = 0;
    for (size_t i = 0; i < f->n_holders; i++) {
        const struct scv_held *h = &f->holders[i];
        if (!span_eq(h->pod, pod->name) || !span_eq(h->ns, pod->ns))
            continue;
        cards |= cards_of(f, h);
        gpus += span_eq(h->resource, SPAN(KEY_NVIDIA_GPU)) ? h->units : 0;
    }
    if (devices)
        *devices = gpus;
    return cards;
}

/* -- departures -- */

enum { DEPARTURES_MAX = 64 }; /* per node; then the oldest is dropped */

void ledger_departures_clear(struct ledger_node_facts *f)
{
    for (size_t i = 0; i < f->n_departures; i++)
        free((char *)f->departures[i].uuid.p);
    f->n_departures = 0;
}

/* The departure is copied. */
static void add_departure(struct ledger_node_facts *f, const struct departure *d)
{
    for (size_t i = 0; i < f->n_departures; i++) /* it was back in between */
        if (f->departures[i].pod == d->pod && f->departures[i].card == d->card &&
            span_eq(f->departures[i].uuid, d->uuid))
            return;
    if (f->n_departures == DEPARTURES_MAX) {
        /* Until the next sample the memory of the oldest counts as external use, which
         * is safe. */
        free((char *)f->departures[0].uuid.p);
        memmove(f->departures, f->departures + 1,
                (DEPARTURES_MAX - 1) * sizeof *f->departures);
        f->n_departures--;
    }
    MEM_GROW(f->departures, f->departures_cap, f->n_departures + 1);
    struct departure *copy = &f->departures[f->n_departures++];
    *copy = *d;
    copy->uuid.p = xmemdup0(d->uuid.p, d->uuid.n);
}

/* Without a podList its assignments have no other end. */
static void forget_assignments(struct ledger_node_facts *f, const struct ledger_pod *pod)
{
    size_t n;
    const struct ledger_assignment *a = ledger_facts_assigned(f, pod, &n);
    if (!f->assignments_kept || !n)
        return;
    size_t from = (size_t)(a - f->assignments);
    memmove(f->assignments + from, f->assignments + from + n,
            (f->n_assignments - from - n) * sizeof *f->assignments);
    f->n_assignments -= n;
}

/* Memory that the sample shows must not count as external use. */
void ledger_facts_depart(struct ledger_node *node, const struct ledger_pod *pod)
{
    uint64_t used = ledger_pod_used_cards(node, pod);
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct card *card = &node->cards[i];
        int64_t mib = used >> i & 1 ? ledger_pod_mib(pod, card) : 0;
        const struct departure departure = {.card = card->index,
                                            .mib = mib > 0 ? mib : 0,
                                            .promised = use_allowed(node, pod, i),
                                            .pod = scv_hash(pod->uid),
                                            .uuid = card->uuid};
        if (mib > 0 || use_shows(node->facts, pod, i))
            add_departure(node->facts, &departure);
    }
    forget_assignments(node->facts, pod);
}
