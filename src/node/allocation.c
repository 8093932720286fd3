/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations and the state file that keeps them. */
#include "node/allocation.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/mem.h"
#include "domain/fields.h"

enum {
    CARDS_MAX = 64, /* of one container; a node has at most as many */
};

struct allocation *allocation_new(struct span uid, struct span ns, struct span name,
                                  struct span container, enum container_role role,
                                  enum ids_resource resource)
{
    struct allocation *al = xcalloc(1, sizeof *al);
    al->uid = arena_copy(&al->arena, uid);
    al->ns = arena_copy(&al->arena, ns);
    al->name = arena_copy(&al->arena, name);
    al->container = arena_copy(&al->arena, container);
    al->role = role;
    al->resource = resource;
    al->cards = arena_zalloc(&al->arena, CARDS_MAX * sizeof *al->cards);
    return al;
}

void allocation_free(struct allocation *al)
{
    if (!al)
        return;
    for (size_t i = 0; i < al->n_cards; i++)
        free(al->cards[i].units);
    free(al->others);
    struct arena arena = al->arena;
    free(al);
    arena_fini(&arena);
}

const struct allocation_card *allocation_card(const struct allocation *al,
                                              struct span uuid)
{
    for (size_t i = 0; i < al->n_cards; i++)
        if (span_eq(al->cards[i].uuid, uuid))
            return &al->cards[i];
    return NULL;
}

/* Index of the unit, or where it would be inserted. */
static size_t unit_index(const struct allocation_card *c, int64_t unit)
{
    return ARRAY_LOWER_BOUND(u, c->units, c->n_units, *u < unit);
}

bool allocation_add(struct allocation *al, struct span uuid, int32_t index, int64_t unit)
{
    struct allocation_card *c = (struct allocation_card *)allocation_card(al, uuid);
    if (c && unit < 0)
        return false;
    if (!c) {
        if (al->n_cards == CARDS_MAX)
            return false;
        c = &al->cards[al->n_cards++];
        c->uuid = arena_copy(&al->arena, uuid);
        c->index = index;
    }
    if (unit < 0)
        return true;
    size_t at = unit_index(c, unit);
    if (at < c->n_units && c->units[at] == unit)
        return false;
    *ARRAY_INSERT(c->units, c->n_units, c->cap_units, at) = (uint32_t)unit;
    return true;
}

void allocation_add_other(struct allocation *al, struct span id)
{
    for (size_t i = 0; i < al->n_others; i++)
        if (span_eq(al->others[i], id))
            return;
    MEM_GROW(al->others, al->cap_others, al->n_others + 1);
    al->others[al->n_others++] = arena_copy(&al->arena, id);
}

bool allocation_holds(const struct allocation *al, struct span uuid, int64_t unit)
{
    const struct allocation_card *c = allocation_card(al, uuid);
    if (!c || unit < 0)
        return c != NULL;
    size_t at = unit_index(c, unit);
    return at < c->n_units && c->units[at] == unit;
}

int64_t allocation_amount(const struct allocation *al)
{
    int64_t n = (int64_t)al->n_others;
    for (size_t i = 0; i < al->n_cards; i++)
        n += al->resource == IDS_COUNT ? 1 : (int64_t)al->cards[i].n_units;
    return n;
}

int64_t allocation_mib(const struct allocation *al, const struct allocation_card *card,
                       int64_t unit_mib)
{
    return ids_are_slots(al->resource) ? al->slot_mib : (int64_t)card->n_units * unit_mib;
}

void allocation_set_fini(struct allocation_set *set)
{
    ALLOCATION_EACH(al, set)
    allocation_free(al);
    free(set->items);
    *set = (struct allocation_set){0};
}

struct allocation *allocation_set_find(const struct allocation_set *set, struct span uid,
                                       struct span container, enum ids_resource resource)
{
    ALLOCATION_EACH(al, set)
    if (al->resource == resource && span_eq(al->uid, uid) &&
        span_eq(al->container, container))
        return al;
    return NULL;
}

void allocation_set_put(struct allocation_set *set, struct allocation *al)
{
    struct allocation *old =
        allocation_set_find(set, al->uid, al->container, al->resource);
    if (old)
        allocation_set_drop(set, old);
    MEM_GROW(set->items, set->cap, set->n + 1);
    set->items[set->n++] = al;
}

void allocation_set_drop(struct allocation_set *set, struct allocation *al)
{
    size_t i = 0;
    while (set->items[i] != al)
        i++;
    ARRAY_REMOVE(set->items, set->n, i);
    allocation_free(al);
}

/* -- the state file -- */

/*
 *     {"version": 1, "node": "n1", "grants": [
 *     {"uid": "...", "namespace": "default", "pod": "p", "container": "c", "role": "app",
 *      "resource": "aliyun.com/gpu-mem", "driverLimitMiB": 5120, "limitDevice": true,
 *      "cards": [{"uuid": "GPU-...", "index": 0, "units": "0-3,7"}]}
 *     ], "slots": [...]}
 *
 * "slots" has the allocations of aliyun.com/gpu-share and nvidia.com/gpu, with "slotMiB" and, of
 * another plugin's ids, "others": 1.0 rejects a file with a resource in "grants" that it does not
 * know, and ignores other members.
 */

enum { VERSION = 1 };
#define LIMIT_MAX_MIB (1LL << 40)

static const char *const roles[] = {
    [CONTAINER_APP] = "app", [CONTAINER_SIDECAR] = "sidecar", [CONTAINER_INIT] = "init"};

/* A card of an allocation; no units: the whole card. */
struct card_entry {
    struct span uuid, units;
    int32_t index;
};

static const struct field card_fields[] = {
    {FIELD("cards[].", "uuid", card_entry, uuid)},
    {FIELD("cards[].", "index", card_entry, index), .type = FIELD_INDEX, .min = INT32_MIN,
     .max = INT32_MAX, .why = "is no index"},
    {FIELD("cards[].", "units", card_entry, units)},
    FIELDS_END,
};

/* The state file as it is read. */
struct reading {
    int64_t version;
    struct span node;
    struct allocation_set set;
    int64_t units; /* read so far, of all allocations */
};

/* An allocation. Its cards come last, because they depend on the resource. */
struct entry {
    struct span uid, ns, name, container, role, resource;
    struct span others; /* with commas */
    int64_t slot_mib, driver_limit_mib;
    bool limit_device, limit_needed;
    struct allocation *al;   /* with the cards */
    struct reading *reading; /* NULL: it is written */
};

static bool read_unit(struct span text, int64_t *unit)
{
    return span_i64(text, unit) && *unit >= 0 && *unit < IDS_UNITS_MAX;
}

static void read_card(struct reading *r, struct field_reader *from, struct allocation *al)
{
    struct card_entry c = {.index = -1};
    fields_read(from, "cards[]", card_fields, &c);
    if (jread_check(from->j, NULL))
        return;
    if (!c.uuid.n) {
        jread_fail(from->j, "cards[].uuid", "is missing");
        return;
    }
    bool good = true;
    if (al->resource == IDS_COUNT)
        good = ++r->units <= ALLOCATION_SET_UNITS_MAX &&
               allocation_add(al, c.uuid, c.index, -1);
    while (al->resource != IDS_COUNT && c.units.p && good) {
        int64_t from_unit = 0, to;
        struct span range = span_cut(&c.units, ','), first = span_cut(&range, '-');
        good = read_unit(first, &from_unit);
        to = from_unit;
        good = good && (!range.p || (read_unit(range, &to) && to >= from_unit));
        for (int64_t unit = from_unit; good && unit <= to; unit++)
            good = ++r->units <= ALLOCATION_SET_UNITS_MAX &&
                   allocation_add(al, c.uuid, c.index, unit);
    }
    if (!good)
        jread_fail(from->j, "cards[].units", "are invalid, or too many");
}

static void read_cards(struct field_reader *r, const struct field *f, void *at)
{
    struct entry *e = at;
    enum ids_resource resource;
    size_t role = 0;
    while (role < ARRAY_LEN(roles) && !span_eq(e->role, span_of(roles[role])))
        role++;
    if (e->al || !e->uid.n || role == ARRAY_LEN(roles) ||
        !ids_resource_read(e->resource, &resource)) {
        jread_fail(r->j, f->where, "uid, role or resource are invalid, or come later");
        jread_skip(r->j);
        return;
    }
    e->al = allocation_new(e->uid, e->ns, e->name, e->container,
                           (enum container_role)role, resource);
    jread_array(r->j, f->where);
    while (jread_item(r->j))
        read_card(e->reading, r, e->al);
}

static void write_cards(struct jwrite *w, const void *object)
{
    const struct allocation *al = ((const struct entry *)object)->al;
    jwrite_array(w, "cards");
    ARRAY_EACH_ITEM(const struct allocation_card, c, al->cards, al->n_cards)
    {
        cleanup_buf struct buf units = {0};
        for (size_t i = 0, to; i < c->n_units; i = to + 1) {
            for (to = i; to + 1 < c->n_units && c->units[to + 1] == c->units[to] + 1;)
                to++;
            buf_printf(&units, i ? ",%u" : "%u", c->units[i]);
            if (to > i)
                buf_printf(&units, "-%u", c->units[to]);
        }
        fields_write(w, card_fields,
                     &(struct card_entry){c->uuid, buf_span(&units), c->index});
    }
    jwrite_array_end(w);
}

static const struct field entry_fields[] = {
    {FIELD("grants[].", "uid", entry, uid)},
    {FIELD("grants[].", "namespace", entry, ns)},
    {FIELD("grants[].", "pod", entry, name)},
    {FIELD("grants[].", "container", entry, container)},
    {FIELD("grants[].", "role", entry, role)},
    {FIELD("grants[].", "resource", entry, resource)},
    {FIELD("grants[].", "slotMiB", entry, slot_mib), .type = FIELD_NUMBER,
     .max = LIMIT_MAX_MIB, .why = "is no size"},
    {FIELD("grants[].", "driverLimitMiB", entry, driver_limit_mib), .type = FIELD_NUMBER,
     .max = LIMIT_MAX_MIB, .why = "is no size"},
    {FIELD("grants[].", "limitDevice", entry, limit_device), .type = FIELD_FLAG},
    {FIELD("grants[].", "limitNeeded", entry, limit_needed), .type = FIELD_FLAG},
    {FIELD("grants[].", "others", entry, others)},
    {FIELD("grants[].", "cards", entry, uid), .type = FIELD_OTHER, .read = read_cards,
     .write = write_cards},
    FIELDS_END,
};

static void write_grants(struct jwrite *w, const struct allocation_set *set, bool slots)
{
    jwrite_array(w, slots ? "slots" : "grants");
    ALLOCATION_EACH(al, set)
    {
        if (ids_are_slots(al->resource) != slots)
            continue;
        cleanup_buf struct buf others = {0};
        for (size_t k = 0; k < al->n_others; k++)
            buf_printf(&others, "%s%.*s", k ? "," : "", SPAN_ARG(al->others[k]));
        const struct entry e = {.uid = al->uid,
                                .ns = al->ns,
                                .name = al->name,
                                .container = al->container,
                                .role = span_of(roles[al->role]),
                                .resource = span_of(ids_resource_name(al->resource)),
                                .slot_mib = al->slot_mib,
                                .driver_limit_mib = al->driver_limit_mib,
                                .limit_device = al->limit_device,
                                .limit_needed = al->limit_needed,
                                .others = buf_span(&others),
                                .al = al};
        buf_addc(w->out, '\n');
        fields_write(w, entry_fields, &e);
    }
    jwrite_array_end(w);
}

void allocation_set_write(struct buf *out, const struct allocation_set *set,
                          struct span node)
{
    struct jwrite w = {.out = out};
    bool slots = false;
    ALLOCATION_EACH(al, set)
    slots |= ids_are_slots(al->resource);
    jwrite_object(&w, NULL);
    jwrite_i64(&w, "version", VERSION);
    jwrite_str(&w, "node", node);
    write_grants(&w, set, false);
    if (slots)
        write_grants(&w, set, true);
    jwrite_object_end(&w);
    buf_addc(out, '\n');
}

static void read_grant(struct field_reader *from, const struct field *f, void *at)
{
    struct reading *r = at;
    struct entry e = {.reading = r};
    if (r->set.n == ALLOCATION_SET_MAX || r->units > ALLOCATION_SET_UNITS_MAX) {
        jread_fail(from->j, f->where, "too many allocations");
        jread_skip(from->j);
        return;
    }
    fields_read(from, "grants[]", entry_fields, &e);
    if (!e.al) {
        jread_fail(from->j, f->where, "an allocation has no cards");
        return;
    }
    e.al->slot_mib = e.slot_mib;
    e.al->driver_limit_mib = e.driver_limit_mib;
    e.al->limit_device = e.limit_device;
    e.al->limit_needed = e.limit_needed;
    while (e.others.n)
        allocation_add_other(e.al, span_cut(&e.others, ','));
    allocation_set_put(&r->set, e.al);
}

static const struct field state_fields[] = {
    {FIELD("", "version", reading, version), FIELD_IS_NUMBER},
    {FIELD("", "node", reading, node)},
    {FIELD("", "grants", reading, version), .type = FIELD_LIST, .read = read_grant},
    {FIELD("", "slots", reading, version), .type = FIELD_LIST, .read = read_grant},
    FIELDS_END,
};

int allocation_set_read(struct allocation_set *set, struct span text, struct span node,
                        struct err *err)
{
    cleanup_arena struct arena a = {0};
    struct reading r = {0};
    struct jread j;
    jread_init(&j, text.p, text.n);
    fields_read(&(struct field_reader){.j = &j, .a = &a}, "state", state_fields, &r);
    int rc = jread_finish(&j, err);
    if (rc == 0 && r.version != VERSION)
        rc = err_set(err, ERR_INVALID, "version: %lld is not supported; expected %d",
                     (long long)r.version, VERSION);
    if (rc == 0 && !span_eq(r.node, node))
        rc = err_set(err, ERR_CONFLICT, "it belongs to node \"%.*s\"; expected \"%.*s\"",
                     SPAN_ARG(r.node), SPAN_ARG(node));
    if (rc)
        allocation_set_fini(&r.set);
    *set = r.set;
    return rc;
}
