/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/defrag_priv.h"

/*
 * Each pod goes to the fullest node that takes it, the largest pod first. If the last pods
 * then have no place, the earlier ones try their next node.
 */

enum {
    VISITS_MAX = 1 << 16, /* of a node, to place the pods of one set */
    STEP_VISITS = 64,     /* that cost one step of the search */
};

struct placing {
    struct defrag_state *s;
    const struct ledger_node *own;
    struct defrag_item *const *items;
    size_t n;
    struct defrag_move *moves;
    unsigned visits;
};

static bool fits_alone(const struct ledger_node *node, struct resources has,
                       const struct request *r, struct resources room)
{
    return !node->nominated && defrag_has_room(has, room) &&
           placement_fit(node, r) == FIT_YES;
}

static size_t next_place(const struct defrag_state *s, const struct request *r,
                         struct resources room, size_t from)
{
    size_t i = from;
    while (i < s->n_order && !fits_alone(s->order[i], s->rooms[i], r, room))
        i++;
    return i;
}

static bool same_room(struct resources a, struct resources b)
{
    return a.cpu_milli == b.cpu_milli && a.memory == b.memory && a.pods == b.pods;
}

static uint64_t hash_of(const struct request *r, struct resources room)
{
    const uint64_t parts[] = {(uint64_t)r->kind,         r->cards,
                              (uint64_t)r->mib_per_card, (uint64_t)room.cpu_milli,
                              (uint64_t)room.memory,     (uint64_t)room.pods};
    uint64_t h = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        h = (h ^ parts[i]) * 0x9e3779b97f4a7c15ULL;
        h ^= h >> 29;
    }
    return h;
}

/* The slot of the shape, or a free one; NULL: the table is full. */
static struct defrag_shape *find_shape(struct defrag_state *s, const struct request *r,
                                       struct resources room)
{
    uint64_t h = hash_of(r, room);
    for (size_t i = 0; i < 64; i++) {
        struct defrag_shape *shape = &s->shapes[(h + i) % DEFRAG_SHAPES];
        if (!shape->request ||
            (same_room(shape->room, room) && request_equal(shape->request, r)))
            return shape;
    }
    return NULL;
}

size_t defrag_first_place(struct defrag_state *s, const struct request *r,
                          struct resources room, const struct ledger_node *own)
{
    struct defrag_shape full = {0}, *shape = find_shape(s, r, room);
    if (!shape)
        shape = &full;
    if (!shape->request) {
        shape->request = r;
        shape->room = room;
        shape->first = next_place(s, r, room, 0);
        shape->second = next_place(s, r, room, shape->first + 1);
    }
    bool is_own = shape->first < s->n_order && s->order[shape->first] == own;
    return is_own ? shape->second : shape->first;
}

static void recompute(struct defrag_trial *t)
{
    t->node.best_free_mib = 0;
    t->node.free_cards = 0;
    for (uint32_t i = 0; i < t->node.n_cards; i++) {
        const struct card *card = &t->cards[i];
        t->node.free_cards += card_is_free(card);
        if (card->free_mib > t->node.best_free_mib)
            t->node.best_free_mib = card->free_mib;
    }
}

static struct defrag_trial *trial_of(struct defrag_state *s, size_t i)
{
    const struct ledger_node *node = s->order[i];
    struct defrag_trial *t = s->trials[i];
    if (t && t->moved)
        return t;
    if (!t) {
        t = s->trials[i] = arena_alloc(s->arena, sizeof *t);
        t->cards = arena_alloc(s->arena, (node->n_cards + 1) * sizeof *t->cards);
    }
    t->node = *node;
    t->moved = 0;
    t->room = s->rooms[i];
    if (node->n_cards)
        memcpy(t->cards, node->cards, node->n_cards * sizeof *t->cards);
    t->node.cards = t->cards;
    t->node.brief.valid = false;
    return t;
}

/* Takes what the pod needs from the trial node, or gives it back. */
static void change(struct defrag_trial *t, const struct defrag_item *item,
                   const uint32_t *picks, int sign)
{
    const struct request *r = item->pod->request;
    uint32_t n = r->kind == REQUEST_NONE ? 0 : r->cards;
    for (uint32_t k = 0; k < n; k++) {
        struct card *card = &t->cards[picks[k]];
        bool whole = r->kind == REQUEST_CARDS;
        int64_t mib = whole ? card->total_mib : r->mib_per_card;
        card->pods += (uint32_t)sign;
        card->promised_mib += sign * mib;
        card_add_core(&card->core_promised, sign * (int64_t)r->core);
        card->whole = sign > 0 && whole;
        card->free_mib -= sign * mib;
    }
    t->moved += (uint32_t)sign;
    defrag_add_room(&t->room, item->room, -sign);
    recompute(t);
}

static bool place_from(struct placing *p, size_t k);

/* Tries a node for the pod k and places for all later ones. */
static bool try_node(struct placing *p, size_t k, size_t i)
{
    struct defrag_state *s = p->s;
    const struct defrag_item *item = p->items[k];
    const struct request *r = item->pod->request;
    struct defrag_trial *t = s->trials[i];
    bool used = t && t->moved;
    if (!fits_alone(used ? &t->node : s->order[i], used ? t->room : s->rooms[i], r,
                    item->room) ||
        !s->world->may_run(s->world->ctx, item->pod, s->order[i]))
        return false;
    struct defrag_move *move = &p->moves[k];
    *move = (struct defrag_move){.pod = item->pod, .to = s->order[i]};
    t = trial_of(s, i);
    if (r->kind != REQUEST_NONE && !placement_choose(&t->node, r, move->picks))
        return false;
    change(t, item, move->picks, 1);
    bool done = place_from(p, k + 1);
    change(t, item, move->picks, -1);
    return done;
}

static bool place_from(struct placing *p, size_t k)
{
    if (k == p->n)
        return true;
    for (size_t i = p->items[k]->from; i < p->s->n_order; i++) {
        if (++p->visits > VISITS_MAX) {
            p->s->bounded = true;
            return false;
        }
        if (p->s->order[i] != p->own && try_node(p, k, i))
            return true;
    }
    return false;
}

bool defrag_place(struct defrag_state *s, const struct ledger_node *own,
                  struct defrag_item *const *items, size_t n, struct defrag_move *moves)
{
    struct placing p = {.s = s, .own = own, .items = items, .n = n, .moves = moves};
    bool done = place_from(&p, 0);
    uint64_t cost = p.visits / STEP_VISITS;
    s->steps -= cost < s->steps ? cost : s->steps;
    return done;
}
