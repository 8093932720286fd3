/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes of the ledger, by name and slot, and the objects that describe them. The
 * generation changes with every visible change. */
#include "domain/ledger_priv.h"

#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/mutant.h"

enum {
    FOREIGN_MAX = 64, /* bytes of each text of another program's Lease */
};

struct ledger *ledger_new(const struct ledger_settings *settings, uint64_t seed)
{
    struct ledger *l = xcalloc(1, sizeof *l);
    assert(settings->unit_mib > 0);
    l->settings = *settings;
    l->generation = seed; /* not one that a reader of a previous ledger has seen */
    list_init(&l->links);
    map_init(&l->nodes_by_name, seed, offsetof(struct ledger_node, name));
    l->nongpu.seed = seed ^ 0x1b873593;
    ledger_pods_init(l, seed);
    requests_init(&l->requests, seed ^ 0x2127599b);
    quotas_init(&l->quotas, settings->dialect ?: &dialect_hami, seed ^ 0x510e527f);
    map_init(&l->reservations_by_uid, seed ^ 0x2545f491,
             offsetof(struct ledger_reservation, uid));
    return l;
}

struct ledger_node *ledger_node_slot(const struct ledger *l, size_t slot)
{
    return &l->chunks[slot / LEDGER_CHUNK][slot % LEDGER_CHUNK];
}

/* The slot is free afterwards. */
static void node_fini(struct ledger *l, struct ledger_node *node)
{
    ledger_facts_drop_scv(l, node);
    free(node->facts->departures);
    free(node->facts->foreign);
    free(node->facts->listed);
    free((char *)node->facts->cordon.p);
    free(node->facts->terms);
    free(node->facts);
    free(node->cards);
    if (node->name.p != node->name_bytes)
        free((char *)node->name.p);
    *node = (struct ledger_node){0};
}

void ledger_free(struct ledger *l)
{
    if (!l)
        return;
    ledger_reservations_free(l);
    ledger_pods_free(l);
    for (size_t i = 0; i < l->n_nodes; i++)
        if (ledger_node_slot(l, i)->facts)
            node_fini(l, ledger_node_slot(l, i));
    for (size_t i = 0; i < l->n_chunks; i++)
        free(l->chunks[i]);
    map_fini(&l->nodes_by_name);
    quotas_fini(&l->quotas);
    requests_fini(&l->requests);
    free(l->nongpu.slots);
    map_fini(&l->reservations_by_uid);
    free(l->chunks);
    free(l->free_slots);
    free(l->changed);
    free(l);
}

const struct ledger_settings *ledger_settings(const struct ledger *l)
{
    return &l->settings;
}

struct quotas *ledger_quotas(struct ledger *l)
{
    return &l->quotas;
}

/* Nodes */

static bool has_object(const struct ledger_node *node)
{
    for (int kind = LEDGER_NODE; kind <= LEDGER_UNHEALTHY; kind++)
        if (node->facts->has[kind])
            return true;
    return false;
}

/* A node that only pods without GPU name: its Node was deleted, or is not listed yet. */
static bool is_hidden(const struct ledger_node *node)
{
    return !has_object(node) && !node->pods && !node->nominated && !node->reserved;
}

const struct ledger_node *ledger_node_find(const struct ledger *l, struct span name)
{
    const struct ledger_node *node = map_get(&l->nodes_by_name, name);
    return node && !is_hidden(node) ? node : NULL;
}

void ledger_nodes_find(const struct ledger *l, const struct span *names, size_t n,
                       const struct ledger_node **nodes)
{
    map_get_many(&l->nodes_by_name, names, n, LEDGER_LINE, (void **)nodes);
}

uint32_t ledger_node_slots(const struct ledger *l)
{
    return (uint32_t)l->n_nodes;
}

const struct ledger_node *ledger_node_at(const struct ledger *l, uint32_t slot)
{
    const struct ledger_node *node = ledger_node_slot(l, slot);
    return node->facts && !is_hidden(node) ? node : NULL;
}

struct ledger_node_info ledger_node_info(const struct ledger_node *node)
{
    const struct ledger_node_facts *f = node->facts;
    return (struct ledger_node_info){.has_scv = f->has[LEDGER_SCV],
                                     .has_lease = f->has[LEDGER_LEASE],
                                     .foreign = f->foreign,
                                     .scv_created_s = f->scv_created_s,
                                     .has_sample = f->has_sample,
                                     .sample_s = f->sample_s,
                                     .held = f->holders,
                                     .n_held = f->n_holders,
                                     .held_cards = f->held};
}

uint64_t ledger_generation(const struct ledger *l)
{
    return l->generation;
}

uint64_t ledger_pending_generation(const struct ledger *l)
{
    return l->pending_generation;
}

struct ledger_totals ledger_totals(const struct ledger *l)
{
    return (struct ledger_totals){.nodes = l->n_nodes - l->n_free_slots,
                                  .overcommitted = l->n_overcommitted,
                                  .pending = l->n_pending,
                                  .nongpu_pods = l->nongpu.n,
                                  .nongpu_bytes = l->nongpu.cap * NONGPU_BYTES,
                                  .reservations = l->n_reservations};
}

static const struct node_resources unknown_capacity = {-1, -1, -1, -1, -1};

static struct ledger_node *node_new(struct ledger *l)
{
    size_t slot = l->n_nodes;
    if (l->n_free_slots) {
        slot = l->free_slots[--l->n_free_slots];
    } else if (slot == l->n_chunks * LEDGER_CHUNK) {
        MEM_GROW(l->chunks, l->chunks_cap, l->n_chunks + 1);
        l->chunks[l->n_chunks++] =
            xzalloc_cacheline(LEDGER_CHUNK * sizeof(struct ledger_node));
    }
    l->n_nodes += slot == l->n_nodes;
    struct ledger_node *node = ledger_node_slot(l, slot);
    node->id = (uint32_t)slot;
    node->facts = xcalloc(1, sizeof *node->facts);
    node->facts->capacity = node->facts->allocatable = unknown_capacity;
    node->best_index = node->unknown_listed_card = -1;
    return node;
}

struct ledger_node *ledger_node_need(struct ledger *l, struct span name)
{
    struct ledger_node *node = map_get(&l->nodes_by_name, name);
    if (node)
        return node;
    node = node_new(l);
    if (name.n < sizeof node->name_bytes) {
        memcpy(node->name_bytes, name.p, name.n);
        node->name = (struct span){node->name_bytes, name.n};
    } else {
        node->name = (struct span){xmemdup0(name.p, name.n), name.n};
    }
    map_set(&l->nodes_by_name, node);
    node->state = NODE_UNKNOWN;
    return node;
}

void ledger_node_drop_if_unused(struct ledger *l, struct ledger_node *node)
{
    if (!is_hidden(node) || node->facts->nongpu_pods)
        return;
    map_remove(&l->nodes_by_name, node->name);
    MEM_GROW(l->free_slots, l->free_slots_cap, l->n_free_slots + 1);
    l->free_slots[l->n_free_slots++] = node->id;
    l->generation++;
    node_fini(l, node);
}

static struct ledger_node *object_seen(struct ledger *l, struct span name,
                                       enum ledger_kind kind, uint64_t list)
{
    struct ledger_node *node = ledger_node_need(l, name);
    node->facts->has[kind] = true;
    node->facts->seen[kind] = list;
    return node;
}

void ledger_node_seen(struct ledger *l, const struct node *node, uint64_t list)
{
    struct ledger_node *n = object_seen(l, node->meta.name, LEDGER_NODE, list);
    struct ledger_node_facts *f = n->facts;
    f->node_damaged = node->damaged;
    if (!node->damaged) { /* otherwise, what is known so far stays */
        f->mode = node->mode;
        f->cordoned = node->cordoned;
        n->left_out = node->left_out;
        f->included = node->included;
        if (!span_eq(f->cordon, node->cordon)) {
            free((char *)f->cordon.p);
            f->cordon =
                (struct span){xmemdup0(node->cordon.p, node->cordon.n), node->cordon.n};
        }
        free(f->terms);
        f->terms = terms_new(node->terms);
        f->capacity = node->capacity;
        f->allocatable = node->allocatable;
        f->memory = node->room.memory;
        f->pod_slots = (uint32_t)node->room.pods;
        n->cpu_milli = ledger_saturated(node->room.cpu_milli);
    }
    ledger_derive(l, n);
}

enum terms_verdict ledger_node_judge(const struct ledger_node *node,
                                     const struct terms *pod)
{
    return terms_judge(pod, node->facts->terms, node->name);
}

void ledger_scv_seen(struct ledger *l, const struct scv *scv, uint64_t list)
{
    struct ledger_node *node = object_seen(l, scv->meta.name, LEDGER_SCV, list);
    struct ledger_node_facts *f = node->facts;
    bool had_sample = f->has_sample;
    int64_t before_s = f->sample_s;
    ledger_facts_copy_scv(l, node, scv);
    /* An earlier time is a new sample too: the clock of the node may have been set. */
    if (!f->has_sample || !had_sample || f->sample_s != before_s) {
        f->samples += f->has_sample;
        f->n_departures = 0;
    }
    ledger_derive(l, node);
}

/* New, in one block with its strings. */
static struct ledger_foreign_lease *foreign_new(const struct lease *lease)
{
    struct ledger_foreign_lease *f = xcalloc(1, sizeof *f + 2 * FOREIGN_MAX);
    struct span holder = lease->holder, renewed = lease->renew_time;
    char *at = (char *)(f + 1);
    holder.n = holder.n < FOREIGN_MAX ? holder.n : FOREIGN_MAX;
    renewed.n = renewed.n < FOREIGN_MAX ? renewed.n : FOREIGN_MAX;
    f->holder = span_put(holder, &at);
    f->renewed = span_put(renewed, &at);
    return f;
}

void ledger_lease_seen(struct ledger *l, const struct lease *lease, uint64_t list)
{
    struct span name = lease->meta.name;
    const struct ledger_node *old = ledger_node_find(l, name);
    bool created = !old || !old->facts->has[LEDGER_LEASE];
    struct ledger_node *node = object_seen(l, name, LEDGER_LEASE, list);
    free(node->facts->foreign);
    node->facts->foreign = lease_is_of_scv_agent(lease) ? NULL : foreign_new(lease);
    /* Renewals are frequent and change nothing derived: only its existence does. */
    if (created || node->stale_s)
        ledger_derive(l, node);
}

void ledger_node_set_stale(struct ledger *l, struct span name, int64_t seconds)
{
    struct ledger_node *node = map_get(&l->nodes_by_name, name);
    int32_t stale_s = ledger_saturated(seconds);
    if (!node || node->stale_s == stale_s)
        return;
    node->stale_s = stale_s;
    ledger_derive(l, node);
}

bool ledger_node_has(const struct ledger *l, struct span name, enum ledger_kind kind)
{
    const struct ledger_node *node = ledger_node_find(l, name);
    return node && node->facts->has[kind];
}

void ledger_unhealthy_seen(struct ledger *l, const struct unhealthy_cards *u,
                           uint64_t list)
{
    struct ledger_node *node = object_seen(l, u->node, LEDGER_UNHEALTHY, list);
    struct ledger_node_facts *f = node->facts;
    free(f->listed);
    f->listed = xcalloc(u->n, sizeof *f->listed);
    if (u->n)
        memcpy(f->listed, u->cards, u->n * sizeof *f->listed);
    f->n_listed = u->n;
    f->list_damaged = u->damaged;
    ledger_derive(l, node);
}

static void object_deleted(struct ledger *l, struct ledger_node *node,
                           enum ledger_kind kind)
{
    struct ledger_node_facts *f = node->facts;
    f->has[kind] = kind == LEDGER_SCV && MUTANT(deleted_scv_keeps_cards);
    if (kind == LEDGER_SCV && !f->has[kind])
        ledger_facts_drop_scv(l, node);
    if (kind == LEDGER_UNHEALTHY)
        f->n_listed = 0;
    if (kind == LEDGER_NODE) {
        f->capacity = f->allocatable = unknown_capacity;
        f->memory = node->cpu_milli = f->pod_slots = 0;
    }
    if (kind == LEDGER_LEASE) {
        free(f->foreign);
        f->foreign = NULL;
    }
    ledger_derive(l, node);
    ledger_node_drop_if_unused(l, node);
}

void ledger_object_deleted(struct ledger *l, enum ledger_kind kind, struct span name)
{
    struct ledger_node *node = map_get(&l->nodes_by_name, name);
    if (node && node->facts->has[kind])
        object_deleted(l, node, kind);
}

const struct ledger_node *ledger_unlisted(const struct ledger *l, enum ledger_kind kind,
                                          uint64_t list, size_t *at)
{
    while (*at < l->n_nodes) {
        const struct ledger_node *node = ledger_node_slot(l, (*at)++);
        if (node->facts && node->facts->has[kind] && node->facts->seen[kind] != list)
            return node;
    }
    return NULL;
}

/* -- template Nodes -- */

static int read_node(struct span object, struct arena *a, struct node *node,
                     struct err *err)
{
    struct jread j;
    jread_init(&j, object.p, object.n);
    node_read(&j, a, node);
    return jread_finish(&j, err);
}

static bool names_cards(const struct node *node)
{
    return node->cards_label.p || node->cards_note.p;
}

bool ledger_is_template(struct span object)
{
    cleanup_arena struct arena a = {0};
    struct node node;
    return read_node(object, &a, &node, NULL) == 0 && names_cards(&node);
}

struct ledger *ledger_of_template(struct span object,
                                  const struct ledger_settings *settings,
                                  struct node_cards *cards, struct err *err)
{
    cleanup_arena struct arena a = {0};
    struct ledger_settings alone = *settings;
    struct node node;
    if (read_node(object, &a, &node, err)) {
        err_wrap(err, "the Node object of the call cannot be decoded");
        return NULL;
    }
    if (!names_cards(&node)) {
        err_set(err, ERR_NOT_FOUND, "the GPUs of this node are not known yet");
        return NULL;
    }
    if (node_cards_named(&node, cards, err))
        return NULL;
    alone.require_scv = alone.require_node = false;
    struct ledger *l = ledger_new(&alone, 0);
    struct scv_card of_scv[SCV_MAX_CARDS];
    for (uint32_t i = 0; i < cards->n; i++)
        of_scv[i] = (struct scv_card){.id = (int32_t)i,
                                      .healthy = true,
                                      .total_mib = cards->mib,
                                      .free_mib = cards->mib};
    ledger_node_seen(l, &node, 0);
    ledger_scv_seen(
        l,
        &(struct scv){.meta.name = node.meta.name, .cards = of_scv, .n_cards = cards->n},
        0);
    return l;
}

bool ledger_matches_template(const struct node_cards *cards,
                             const struct ledger_node *node)
{
    for (uint32_t i = 0; i < node->n_cards; i++)
        if (node->cards[i].total_mib != cards->mib)
            return false;
    return node->n_cards == cards->n;
}
