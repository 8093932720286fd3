/* SPDX-License-Identifier: Apache-2.0 */
/* What the Scv of a node says: its cards, the containers and processes that use them, and the
 * pods that left since its last sample. A large cluster has tens of thousands of cards, so the
 * cards of a node are one block, and all cards of one kind share it. Lost knowledge frees
 * nothing. */
#include "domain/ledger_priv.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "domain/keys.h"
#include "domain/quantity.h"

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

/* The position of the card with this hash, or -1. */
static int32_t find_hash(const uint64_t *hashes, size_t n, uint64_t hash)
{
    for (size_t c = 0; c < n; c++)
        if (hashes[c] == hash && hash)
            return (int32_t)c;
    return -1;
}

/* A tenant's pods and a compromised node's Scv can have thousands of entries, and each pod is
 * looked up in them at each change of the node. So they are sorted by the hash of the pod, with
 * which both structs begin. */
static int by_pod(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}
_Static_assert(offsetof(struct ledger_use_entry, pod) == 0 &&
                   offsetof(struct ledger_assignment, pod) == 0,
               "by_pod reads it");

static void copy_uses(struct ledger_node_facts *f, const struct scv *scv,
                      const uint64_t *hashes)
{
    f->uses = scv->n_uses ? xcalloc(scv->n_uses, sizeof *f->uses) : NULL;
    ARRAY_EACH_ITEM(const struct scv_pod_use, from, scv->uses, scv->n_uses)
    {
        int32_t at = find_hash(hashes, f->n_scv_cards, from->card);
        if (at >= 0)
            f->uses[f->n_uses++] = (struct ledger_use_entry){
                .pod = from->pod,
                .used_mib = from->used_mib,
                .sm_percent = (int16_t)from->sm_percent,
                .card = (uint8_t)at,
                .user = from->user,
                .enforced_by = from->enforced_by,
            };
    }
    if (f->n_uses)
        qsort(f->uses, f->n_uses, sizeof *f->uses, by_pod);
}

/* The entries whose pod has this hash, of a UID or of a name; *n gets their number. */
static const struct ledger_use_entry *uses_of(const struct ledger_node_facts *f,
                                              uint64_t pod, size_t *n)
{
    size_t from = ARRAY_LOWER_BOUND(u, f->uses, f->n_uses, u->pod < pod);
    for (*n = 0; from + *n < f->n_uses && f->uses[from + *n].pod == pod;)
        ++*n;
    return f->uses + from;
}

/* -- for display -- */

bool ledger_pod_use(const struct ledger_node *node, const struct ledger_pod *pod,
                    const struct card *card, struct ledger_use *use)
{
    const struct ledger_node_facts *f = node->facts;
    const uint64_t pods[] = {
        [SCV_USER_NAME] = ledger_pod_hash(pod), [SCV_USER_UID] = scv_hash(pod->uid)};
    bool any = false;
    *use = (struct ledger_use){.enforced_by = UINT8_MAX};
    for (enum scv_user user = SCV_USER_NAME; user <= SCV_USER_UID; user++) {
        size_t n = 0;
        const struct ledger_use_entry *e = uses_of(f, pods[user], &n);
        for (; n && node->source == SOURCE_SCV; n--, e++) {
            if (e->card != card - node->cards || e->user != user)
                continue;
            any = true;
            use->used_mib =
                use->used_mib < 0 || e->used_mib < 0 ? -1 : use->used_mib + e->used_mib;
            use->sm_percent = use->sm_percent < 0 || e->sm_percent < 0
                                  ? -1
                                  : use->sm_percent + e->sm_percent;
            use->enforced_by &= e->enforced_by;
        }
    }
    use->sm_percent = quantity_at_most(use->sm_percent, 100);
    return any;
}

/* -- for the free memory -- */

/* Sums up what the pod with this UID uses of each card. */
static void sum_uses(const struct ledger_node_facts *f, uint64_t uid,
                     int64_t used[SCV_MAX_CARDS])
{
    size_t n;
    memset(used, 0, SCV_MAX_CARDS * sizeof *used);
    for (const struct ledger_use_entry *e = uses_of(f, uid, &n); n; n--, e++)
        if (e->user == SCV_USER_UID && e->used_mib > 0)
            used[e->card] += e->used_mib;
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
    ARRAY_EACH_ITEM(const struct ledger_use_entry, e, f->uses, f->n_uses)
    {
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
        if (!has_promise(pod))
            continue;
        sum_uses(node->facts, scv_hash(pod->uid), used);
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
    ARRAY_EACH_ITEM(const struct departure, d, f->departures, f->n_departures)
    {
        if (is_back(node, d))
            continue;
        sum_uses(f, d->pod, used);
        for (uint32_t c = 0; c < node->n_cards; c++)
            if (used[c] && ledger_departure_is_of(d, &node->cards[c]))
                add_pod(&split[c], used[c], d->promised, true);
    }
}

/* Does the Scv call the card complete? */
static bool is_complete(const struct ledger_node *node, uint32_t i)
{
    const struct card *card = &node->cards[i];
    return node->source == SOURCE_SCV && card->scv->use_complete && card->uuid.n &&
           card->used_mib >= 0 && !(node->facts->duplicates >> i & 1);
}

void ledger_use_measure(const struct ledger_node *node,
                        struct ledger_measured measured[SCV_MAX_CARDS])
{
    struct split split[SCV_MAX_CARDS] = {0};
    uint32_t any = 0;
    while (any < node->n_cards && !is_complete(node, any))
        any++;
    if (any == node->n_cards)
        return;
    add_entries(node->facts, split);
    add_pods(node, split);
    add_departures(node, split);
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct split *s = &split[i];
        int64_t used = node->cards[i].used_mib;
        if (!is_complete(node, i) || s->unknown ||
            s->all > used + s->entries + READING_MIB)
            continue;
        /* Of processes of no such pod; negative if a pod has left the card twice. */
        int64_t listed = s->all - s->inside - s->overuse;
        /* Memory that NVML lists for no process, such as managed memory and the driver's own,
         * may be of any process on the card. So it fills what pods that use the card were
         * promised and do not use; the rest is from outside. */
        int64_t unlisted = used - s->all - s->unused;
        measured[i] = (struct ledger_measured){
            .exact = true,
            .overuse_mib = s->overuse,
            .outside_mib = (listed > 0 ? listed : 0) + (unlisted > 0 ? unlisted : 0)};
    }
}

/* -- cards, holders, assignments -- */

static void drop_assignments(struct ledger_node_facts *f)
{
    free(f->assignments);
    f->assignments = NULL;
    f->n_assignments = 0;
    f->assignments_kept = false;
}

static void kinds_release(struct ledger *l, const struct ledger_scv_card *cards, size_t n)
{
    for (size_t i = 0; i < n; i++)
        requests_release_kind(&l->requests, cards[i].kind);
}

/* All but the assignments. */
static void drop_cards(struct ledger *l, struct ledger_node *node)
{
    struct ledger_node_facts *f = node->facts;
    ledger_forget_cards(l, node);
    kinds_release(l, f->scv_cards, f->n_scv_cards);
    free(f->scv_cards);
    free(f->holders);
    free(f->uses);
    links_release(f->links);
    f->links = NULL;
    f->scv_cards = NULL;
    f->holders = NULL;
    f->uses = NULL;
    f->n_scv_cards = f->n_holders = f->n_uses = 0;
    f->held = f->duplicates = 0;
    f->scv_damaged = f->has_sample = false;
    f->isolation = 0;
    f->dialect = SCV_DIALECT_NONE;
    f->sample_s = f->scv_created_s = 0;
}

void ledger_facts_drop_scv(struct ledger *l, struct ledger_node *node)
{
    drop_cards(l, node);
    drop_assignments(node->facts);
}

/* Of an instance; what has a parent alone is one, too. */
static struct span profile_of(const struct scv_card *card)
{
    return card->mig_profile.n ? card->mig_profile : card->parent_uuid;
}

/* Is it in MIG mode? A writer can list a card beside its instances, but nothing can use both. */
static bool has_instances(const struct scv *scv, const struct scv_card *card)
{
    for (size_t i = 0; i < scv->n_cards && card->uuid.n; i++)
        if (scv->cards[i].healthy && span_eq(scv->cards[i].parent_uuid, card->uuid))
            return !MUTANT(parent_beside_instances);
    return false;
}

/* The block begins with the cards. Then come the strings. `old`: the cards before. */
static void copy_cards(struct ledger *l, struct ledger_node_facts *f,
                       const struct scv *scv, const struct ledger_scv_card *old,
                       size_t n_old)
{
    size_t bytes = scv->n_cards * sizeof(struct ledger_scv_card);
    for (size_t i = 0; i < scv->n_cards; i++)
        bytes += scv->cards[i].uuid.n + scv->cards[i].bus_id.n;
    f->n_scv_cards = scv->n_cards;
    f->scv_cards = xmalloc(bytes);
    char *at = (char *)(f->scv_cards + scv->n_cards);
    for (size_t i = 0; i < scv->n_cards; i++) {
        const struct scv_card *from = &scv->cards[i];
        int64_t kept_mib = quantity_at_most(from->reserved_mib, from->total_mib);
        struct card_kind kind = {.model = from->model,
                                 .profile = profile_of(from),
                                 .spec = from->spec,
                                 .total_mib = from->total_mib - kept_mib,
                                 .kept_mib = kept_mib};
        if (MUTANT(shrunk_card_keeps_its_size) && i < n_old &&
            kind.total_mib < old[i].kind->total_mib)
            kind.total_mib = old[i].kind->total_mib;
        f->scv_cards[i] = (struct ledger_scv_card){
            .uuid = span_put(from->uuid, &at),
            .bus_id = span_put(from->bus_id, &at),
            .kind = requests_take_kind(&l->requests, &kind),
            .used_mib = scv_card_used(from),
            .id = from->id,
            .healthy = from->healthy && !has_instances(scv, from),
            .use_complete = from->use_complete,
        };
    }
}

static bool is_of(const struct scv_held *held, struct span ns, struct span name)
{
    return span_eq(held->pod, name) && span_eq(held->ns, ns);
}

/* Are these the cards of the pod's promise? One that its system has bound counts by that wherever
 * the podList shows it, because the kubelet's choice of ids is not that of the system. */
static bool has_cards(const struct ledger_pod *pod, const struct scv_held *held)
{
    for (size_t k = 0; k < held->n_uuids; k++) {
        uint32_t i = 0;
        while (i < pod->n_shares && pod->shares[i].card >= 0 &&
               !span_eq(pod->shares[i].uuid, held->uuids[k]))
            i++;
        if (i == pod->n_shares)
            return false;
    }
    return pod->n_shares > 0;
}

/* In a dialect: of a running pod whose promise counts. A pending one can have the name of an
 * earlier pod, whose containers still run. */
static bool is_promised(const struct ledger_node *node, const struct scv_held *held)
{
    bool words = node->facts->dialect != SCV_DIALECT_NONE &&
                 span_eq(held->resource, SPAN(KEY_NVIDIA_GPU));
    const struct ledger_pod *pod = words ? node->pods : NULL;
    while (pod && !(pod->running && request_on(pod->asks, SCV_DIALECT_HAMI)->dialect &&
                    is_of(held, pod->ns, pod->name) && has_cards(pod, held)))
        pod = pod->next;
    return pod;
}

uint64_t ledger_held_cards(const struct ledger_node *node, const struct scv_held *held)
{
    const struct ledger_node_facts *f = node->facts;
    uint64_t bits = 0;
    if (held->ended || !scv_is_nvidia_resource(held->resource) || is_promised(node, held))
        return 0;
    for (size_t k = 0; k < held->n_uuids; k++)
        for (size_t c = 0; c < f->n_scv_cards && held->uuids[k].n; c++)
            if (span_eq(held->uuids[k], f->scv_cards[c].uuid))
                bits |= UINT64_C(1) << c;
    return bits;
}

const struct scv_held *ledger_unknown_holder(const struct ledger_node *node, size_t *at)
{
    const struct ledger_node_facts *f = node->facts;
    while (*at < f->n_holders) {
        const struct scv_held *held = &f->holders[(*at)++];
        const struct ledger_pod *pod = node->pods;
        if (!ledger_held_cards(node, held))
            continue;
        while (pod && !is_of(held, pod->ns, pod->name))
            pod = pod->next;
        if (!pod)
            return held;
    }
    return NULL;
}

void ledger_facts_sum_up_held(const struct ledger_node *node)
{
    struct ledger_node_facts *f = node->facts;
    f->held = 0;
    ARRAY_EACH_ITEM(const struct scv_held, held, f->holders, f->n_holders)
    f->held |= ledger_held_cards(node, held);
}

/* Sets `ended` of the pod's containers, if it is another one. */
static void set_ended(struct ledger *l, struct span name, struct span ns, struct span pod,
                      uint64_t uid, bool ended)
{
    struct ledger_node *node = map_get(&l->nodes_by_name, name);
    bool changed = false;
    for (const struct ledger_pod *p = node && ended ? node->pods : NULL; p; p = p->next)
        if (span_eq(p->name, pod) && span_eq(p->ns, ns))
            return;
    for (size_t i = 0; node && i < node->facts->n_holders; i++) {
        struct scv_held *held = &node->facts->holders[i];
        if ((ended ? held->ended != 0 : !held->ended || held->ended == uid) ||
            !is_of(held, ns, pod))
            continue;
        held->ended = ended ? uid : 0;
        changed = true;
    }
    if (changed)
        ledger_derive(l, node);
}

void ledger_pod_ended(struct ledger *l, struct span node, struct span ns,
                      struct span name, struct span uid)
{
    set_ended(l, node, ns, name, scv_hash(uid), true);
}

void ledger_pod_is_there(struct ledger *l, struct span node, struct span ns,
                         struct span name, struct span uid)
{
    set_ended(l, node, ns, name, scv_hash(uid), false);
}

static bool is_same_holder(const struct scv_held *a, const struct scv_held *b)
{
    bool same = is_of(a, b->ns, b->pod) && span_eq(a->container, b->container) &&
                span_eq(a->resource, b->resource) && a->n_uuids == b->n_uuids;
    for (size_t k = 0; same && k < a->n_uuids; k++)
        same = span_eq(a->uuids[k], b->uuids[k]);
    return same;
}

/* Not our device plugin, which serves nvidia.com/gpu in HAMi's dialect? */
static bool is_of_other_plugin(const struct ledger_node_facts *f,
                               const struct scv_held *held)
{
    return f->dialect != SCV_DIALECT_HAMI ||
           !span_eq(held->resource, SPAN(KEY_NVIDIA_GPU));
}

static void copy_holders(const struct ledger_node *node, const struct scv *scv)
{
    struct ledger_node_facts *f = node->facts;
    size_t n_uuids = 0, bytes = scv->n_held * sizeof *f->holders;
    if (!scv->n_held)
        return;
    ARRAY_EACH_ITEM(const struct scv_held, held, scv->held, scv->n_held)
    {
        if (!is_of_other_plugin(f, held))
            continue;
        bytes += held->ns.n + held->pod.n + held->container.n + held->resource.n;
        for (size_t k = 0; k < held->n_uuids; k++, n_uuids++)
            bytes += sizeof *held->uuids + held->uuids[k].n;
    }
    f->holders = xmalloc(bytes);
    struct span *uuid = (struct span *)(f->holders + scv->n_held);
    char *at = (char *)(uuid + n_uuids);
    ARRAY_EACH_ITEM(const struct scv_held, from, scv->held, scv->n_held)
    {
        if (!is_of_other_plugin(f, from))
            continue;
        f->holders[f->n_holders++] = (struct scv_held){
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
    }
}

/* -- assignments -- */

static void copy_assignments(struct ledger_node_facts *f, const struct scv *scv)
{
    drop_assignments(f);
    f->n_assignments = scv->n_assignments;
    f->assignments = xcalloc(scv->n_assignments, sizeof *f->assignments);
    for (size_t i = 0; i < scv->n_assignments; i++)
        f->assignments[i] = (struct ledger_assignment){.pod = scv->assignments[i].pod,
                                                       .card = scv->assignments[i].card};
    if (f->n_assignments)
        qsort(f->assignments, f->n_assignments, sizeof *f->assignments, by_pod);
}

const struct ledger_assignment *ledger_facts_assigned(const struct ledger_node_facts *f,
                                                      const struct ledger_pod *pod,
                                                      size_t *n)
{
    *n = 0;
    if (!f->n_assignments)
        return NULL;
    const uint64_t hash = ledger_pod_hash(pod);
    const size_t from =
        ARRAY_LOWER_BOUND(a, f->assignments, f->n_assignments, a->pod < hash);
    while (from + *n < f->n_assignments && f->assignments[from + *n].pod == hash)
        ++*n;
    return f->assignments + from;
}

/* Keeps the assignments of the pods on the node, which the podList no longer has. */
static void keep_assignments(struct ledger_node *node)
{
    enum { KEPT = -2 };
    struct ledger_node_facts *f = node->facts;
    size_t kept = 0, n;
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next) {
        const struct ledger_assignment *a = ledger_facts_assigned(f, pod, &n);
        for (size_t i = 0; i < n; i++)
            f->assignments[(size_t)(a - f->assignments) + i].at = KEPT;
    }
    for (size_t i = 0; i < f->n_assignments; i++)
        if (f->assignments[i].at == KEPT)
            f->assignments[kept++] = f->assignments[i];
    f->n_assignments = kept;
    f->assignments_kept = true;
}

/* A later pod can have the name of one that has left. */
static void drop_assignments_of(struct ledger_node_facts *f, const struct ledger_pod *pod)
{
    size_t n;
    const struct ledger_assignment *a = ledger_facts_assigned(f, pod, &n);
    size_t at = (size_t)(a - f->assignments);
    if (!n)
        return;
    f->n_assignments -= n;
    memmove(f->assignments + at, f->assignments + at + n,
            (f->n_assignments - at) * sizeof *f->assignments);
}

/* New links of many cards cost up to 0.1 s: a node that keeps on changing them has none. */
static const struct links *take_links(struct ledger *l, struct ledger_node_facts *f,
                                      const struct scv *scv)
{
    enum { CHANGES_MAX = 32 };
    uint64_t hash = 0;
    ARRAY_EACH_ITEM(const struct scv_card, card, scv->cards, scv->n_cards)
    {
        int64_t numa = card->has_numa_node ? card->numa_node : -1;
        hash = hash_bytes(hash, card->links.p, card->links.n);
        hash = hash_bytes(hash, &numa, sizeof numa);
    }
    f->links_changes += hash != f->links_hash && scv->n_cards > LINKS_SMALL;
    f->links_hash = hash;
    return f->links_changes <= CHANGES_MAX ? scv_links(scv, &l->links) : NULL;
}

void ledger_facts_copy_scv(struct ledger *l, struct ledger_node *node,
                           const struct scv *scv)
{
    struct ledger_node_facts *f = node->facts;
    uint64_t hashes[SCV_MAX_CARDS]; /* of the cards' UUIDs; 0: it has none */
    /* Released last: equal ones are taken again, not made again. */
    const struct links *old = f->links;
    cleanup_free struct ledger_scv_card *old_cards = f->scv_cards;
    size_t n_old_cards = f->n_scv_cards;
    cleanup_free struct scv_held *holders = f->holders;
    size_t n_holders = f->n_holders;
    f->links = NULL;
    f->holders = NULL;
    f->scv_cards = NULL;
    f->n_scv_cards = 0;
    drop_cards(l, node);
    f->scv_damaged = scv->damaged;
    f->dialect = scv->damaged ? SCV_DIALECT_OTHER : scv_dialect_of(scv->dialect);
    if (f->dialect != SCV_DIALECT_NONE && !l->settings.dialect)
        f->dialect = SCV_DIALECT_OTHER;
    f->has_sample = scv->has_update_time;
    f->sample_s = scv->update_time;
    f->scv_created_s = scv->meta.created_s;
    if (!scv->damaged && (scv->n_held || scv->n_assignments))
        copy_assignments(f, scv);
    else if (MUTANT(dropped_pod_list_frees))
        drop_assignments(f);
    else if (!f->assignments_kept)
        keep_assignments(node);
    if (!scv->damaged) {
        copy_cards(l, f, scv, old_cards, n_old_cards);
        f->isolation = scv->isolation;
        f->links = take_links(l, f, scv);
        for (size_t i = 0; i < f->n_scv_cards; i++) {
            struct span uuid = f->scv_cards[i].uuid;
            hashes[i] = uuid.n ? scv_hash(uuid) : 0;
            for (size_t k = 0; k < i && uuid.n; k++)
                if (span_eq(uuid, f->scv_cards[k].uuid))
                    f->duplicates |= UINT64_C(1) << i | UINT64_C(1) << k;
        }
        copy_holders(node, scv);
        /* What is known of a container stays while the podList shows it as before. */
        for (size_t i = 0; i < n_holders; i++)
            for (size_t k = 0; holders[i].ended && k < f->n_holders; k++)
                if (is_same_holder(&f->holders[k], &holders[i]))
                    f->holders[k].ended = holders[i].ended;
        copy_uses(f, scv, hashes);
    }
    for (size_t i = 0; i < f->n_assignments; i++)
        f->assignments[i].at = find_hash(hashes, f->n_scv_cards, f->assignments[i].card);
    links_release(old);
    kinds_release(l, old_cards, n_old_cards);
}

uint64_t ledger_pod_holds(const struct ledger_node *node, const struct ledger_pod *pod,
                          int64_t *devices)
{
    const struct ledger_node_facts *f = node->facts;
    uint64_t cards = 0;
    int64_t gpus = 0;
    ARRAY_EACH_ITEM(const struct scv_held, h, f->holders, f->n_holders)
    {
        if (!is_of(h, pod->ns, pod->name))
            continue;
        cards |= ledger_held_cards(node, h);
        gpus += span_eq(h->resource, SPAN(KEY_NVIDIA_GPU)) ? h->units : 0;
    }
    if (devices)
        *devices = gpus;
    return cards;
}

/* -- departures -- */

enum { DEPARTURES_MAX = 64 }; /* per node; then the oldest is dropped */

bool ledger_departure_is_of(const struct departure *d, const struct card *card)
{
    return d->uuid && card->uuid.n ? d->uuid == scv_hash(card->uuid)
                                   : d->card == card->index;
}

static void add_departure(struct ledger_node_facts *f, const struct departure *d)
{
    for (size_t i = 0; i < f->n_departures; i++) /* it was back in between */
        if (f->departures[i].pod == d->pod && f->departures[i].card == d->card &&
            f->departures[i].uuid == d->uuid)
            return;
    /* Until the next sample the memory of the oldest counts as external use, which is safe. */
    if (f->n_departures == DEPARTURES_MAX)
        ARRAY_REMOVE(f->departures, f->n_departures, 0);
    MEM_GROW(f->departures, f->departures_cap, f->n_departures + 1);
    f->departures[f->n_departures++] = *d;
}

/* Memory that the sample shows must not count as external use. */
void ledger_facts_depart(struct ledger_node *node, const struct ledger_pod *pod)
{
    uint64_t used = ledger_pod_used_cards(node, pod), hash = scv_hash(pod->uid);
    int64_t shown[SCV_MAX_CARDS];
    sum_uses(node->facts, hash, shown);
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct card *card = &node->cards[i];
        int64_t mib = used >> i & 1 ? ledger_pod_mib(pod, card) : 0;
        const struct departure departure = {.card = card->index,
                                            .mib = mib > 0 ? mib : 0,
                                            .promised = use_allowed(node, pod, i),
                                            .pod = hash,
                                            .uuid =
                                                card->uuid.n ? scv_hash(card->uuid) : 0};
        if (mib > 0 || shown[i] > 0)
            add_departure(node->facts, &departure);
    }
    if (node->facts->assignments_kept) /* they have no other end without a podList */
        drop_assignments_of(node->facts, pod);
}
