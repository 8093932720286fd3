/* SPDX-License-Identifier: Apache-2.0 */
/* The annotations of a promise, read and written, and what a bound pod counts for. */
#include "domain/promise.h"

#include "base/jwrite.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "domain/keys.h"

enum {
    INDEX_MAX = 65535,
    UNITS_MAX = 1 << 30,
    CARD_MIB_MAX = 1 << 30,
};

static struct promise_share *share_of(struct promise *p, int64_t card)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->shares[i].card == card)
            return &p->shares[i];
    if (p->n == REQUEST_MAX_CARDS)
        return NULL;
    p->shares[p->n] = (struct promise_share){.card = (int32_t)card, .units = -1};
    return &p->shares[p->n++];
}

enum { ALL_CONTAINERS = -1 };

/* {"<container>": {"<card>": units}}: adds up the units per card, of all containers or of
 * one. False when damaged. */
static bool read_allocation(struct span text, int64_t only, struct promise *p)
{
    struct jread j;
    struct jread_str container, card;
    jread_init(&j, text.p, text.n);
    jread_object(&j, "allocation");
    while (jread_member(&j, &container)) {
        int64_t number;
        if (only != ALL_CONTAINERS &&
            (!span_i64((struct span){container.p, container.n}, &number) ||
             number != only)) {
            jread_skip(&j);
            continue;
        }
        jread_object(&j, "container");
        while (jread_member(&j, &card)) {
            int64_t index = -1, units = -1;
            jread_i64(&j, "units", &units);
            if (!span_i64((struct span){card.p, card.n}, &index) || index < 0 ||
                index > INDEX_MAX || units < 0 || units > UNITS_MAX)
                return false;
            struct promise_share *share = share_of(p, index);
            if (!share)
                return false;
            share->units = (share->units < 0 ? 0 : share->units) + units;
            if (share->units > UNITS_MAX)
                return false;
        }
    }
    return jread_finish(&j, NULL) == 0;
}

/* "1" or "0,2": the cards in order. False when damaged. */
static bool read_indexes(struct span text, struct promise *p)
{
    while (text.p) {
        int64_t index;
        if (!span_i64(span_trim(span_cut(&text, ',')), &index) || index < 0 ||
            index > INDEX_MAX || !share_of(p, index))
            return false;
        p->n_indexes++;
    }
    return true;
}

/* The UUIDs are in the order of the index annotation. An empty one is unknown. */
static void read_uuids(struct span idx, struct span uuids, struct promise *p)
{
    while (idx.p && uuids.p) {
        int64_t index;
        struct span uuid = span_trim(span_cut(&uuids, ','));
        if (!span_i64(span_trim(span_cut(&idx, ',')), &index))
            return;
        for (size_t i = 0; i < p->n; i++)
            if (p->shares[i].card == index)
                p->shares[i].uuid = uuid;
    }
}

/* "whole", or MiB. */
static void read_card_memory(struct span text, struct promise *p)
{
    int64_t mib;
    text = span_trim(text);
    p->whole = span_eq(text, SPAN("whole"));
    if (span_i64(text, &mib) && mib >= 0 && mib <= CARD_MIB_MAX)
        p->card_mib = mib;
}

/* Reads allocation and index. True: the UUIDs belong to this promise. Every writer of
 * UUIDs also writes an allocation on cards of the index. The Go extender writes neither:
 * a UUID beside its index was copied from another pod's manifest and is ignored. */
static bool read_cards(const struct pod *pod, struct promise *p)
{
    p->allocated =
        pod->allocation.p && read_allocation(pod->allocation, ALL_CONTAINERS, p);
    if (!p->allocated)
        p->n = 0;
    size_t sure = p->n;
    if (!pod->idx.p || !read_indexes(pod->idx, p)) {
        p->n = sure;
        p->n_indexes = 0;
    }
    return p->allocated && p->n == p->n_indexes;
}

int64_t promise_allocated_units(const struct promise *p)
{
    int64_t sum = 0;
    for (size_t i = 0; i < p->n; i++)
        sum += p->shares[i].units > 0 ? p->shares[i].units : 0;
    return sum;
}

/* Did a Binding of ours write all of it, for a request by labels? Its cards have equal
 * parts, unless they are whole. */
static bool is_complete(const struct pod *pod, const struct promise *p)
{
    bool present = pod->idx.p && pod->card_units.p && pod->units.p && pod->assigned.p &&
                   pod->assume_time.p && pod->card_uuid.p;
    if (!present || !p->allocated || !p->n || p->n != p->n_indexes ||
        (!p->whole && p->card_mib < 0))
        return false;
    for (size_t i = 0; i < p->n; i++)
        if (p->shares[i].units < 0 ||
            (!p->whole && p->shares[i].units != p->shares[0].units))
            return false;
    return p->units == promise_allocated_units(p);
}

bool promise_of(const struct pod *pod, struct arena *a, struct promise *promise)
{
    *promise = (struct promise){.card_mib = -1, .units = -1};
    if (!pod->idx.p && !pod->allocation.p)
        return false;
    promise->shares = arena_alloc(a, REQUEST_MAX_CARDS * sizeof *promise->shares);
    if (read_cards(pod, promise))
        read_uuids(pod->idx, pod->card_uuid, promise);
    if (pod->card_memory.p)
        read_card_memory(pod->card_memory, promise);
    if (!span_i64(span_trim(pod->units), &promise->units) || promise->units < 0)
        promise->units = -1;
    promise->complete = is_complete(pod, promise);
    return promise->n > 0;
}

bool promise_of_container(const struct pod *pod, uint32_t index, struct arena *a,
                          struct promise *promise)
{
    *promise = (struct promise){.card_mib = -1, .units = -1};
    if (!pod->allocation.p)
        return false;
    promise->shares = arena_alloc(a, REQUEST_MAX_CARDS * sizeof *promise->shares);
    bool with_uuids = read_cards(pod, promise);
    *promise = (struct promise){.shares = promise->shares};
    if (!read_allocation(pod->allocation, index, promise))
        promise->n = 0;
    if (with_uuids)
        read_uuids(pod->idx, pod->card_uuid, promise);
    return promise->n > 0;
}

/* Does the allocation have exactly the requested units, on the cards of the index? */
static bool is_exact(const struct promise *p, const struct request *request)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->shares[i].units < 0)
            return false;
    return (!p->n_indexes || p->n_indexes == p->n) &&
           promise_allocated_units(p) == request->units;
}

int64_t promise_share_mib(const struct promise *p, size_t i,
                          const struct request *request, int64_t unit_mib)
{
    int64_t units = p->shares[i].units > 0 ? p->shares[i].units : 0;
    int64_t all = request->mib_per_card * request->cards;
    if (request->kind != REQUEST_MEMORY) /* whole cards: the ledger knows their size */
        return units * unit_mib;
    /* Labels are in MiB; the units in the annotations are rounded up. */
    int64_t mib = units * request->cards == request->units ? request->mib_per_card
                                                           : units * unit_mib;
    if (!MUTANT(annotation_amount_trusted))
        mib = mib < all ? mib : all;
    if (MUTANT(label_rounded_down) && request->by_label &&
        units * request->cards == request->units)
        return (units - 1) * unit_mib;
    if (p->n == request->cards && !MUTANT(foreign_annotations_trusted))
        return mib > request->mib_per_card ? mib : request->mib_per_card;
    if (p->n == request->cards)
        return mib;
    if (MUTANT(annotation_amount_trusted) && units > request->units)
        return mib;
    return is_exact(p, request) ? mib : all;
}

/* A list with commas: of what `item` selects of each share. */
enum share_item { SHARE_CARD, SHARE_CARD_UNITS, SHARE_UUID };

static void write_list(struct jwrite *w, const char *key, const struct promise *p,
                       enum share_item item)
{
    cleanup_buf struct buf list = {0};
    bool known = item != SHARE_UUID;
    for (size_t i = 0; i < p->n; i++) {
        const struct promise_share *share = &p->shares[i];
        buf_adds(&list, i ? "," : "");
        if (item == SHARE_UUID)
            buf_add_span(&list, share->uuid);
        else
            buf_add_i64(&list, item == SHARE_CARD ? share->card : share->card_units);
        known |= share->uuid.n > 0;
    }
    jwrite_str(w, key, known ? buf_span(&list) : SPAN(""));
}

static void write_number(struct jwrite *w, const char *key, int64_t number)
{
    cleanup_buf struct buf text = {0};
    buf_add_i64(&text, number);
    jwrite_str(w, key, buf_span(&text));
}

static void allocate_card(struct jwrite *w, int64_t card, int64_t units)
{
    char key[STR_U64 + 1];
    *str_put_u64(key, (uint64_t)card) = '\0';
    jwrite_i64(w, key, units);
}

/* JSON inside a string. Memory: each container gets an even part of each card. Whole cards:
 * containers get the cards in order. */
static void write_allocation(struct jwrite *w, const struct promise *p,
                             const struct request *r)
{
    size_t next = 0;
    cleanup_buf struct buf text = {0};
    struct jwrite inner = {.out = &text};
    jwrite_object(&inner, NULL);
    for (size_t c = 0; c < r->n_parts; c++) {
        const struct request_part *part = &r->parts[c];
        char key[STR_U64 + 1];
        *str_put_u64(key, part->index) = '\0';
        jwrite_object(&inner, key);
        for (size_t i = 0; r->kind == REQUEST_MEMORY && i < p->n; i++)
            allocate_card(&inner, p->shares[i].card, part->amount / (int64_t)p->n);
        for (int64_t k = 0;
             r->kind != REQUEST_MEMORY && k < part->amount && next < p->n; k++, next++)
            allocate_card(&inner, p->shares[next].card, p->shares[next].card_units);
        jwrite_object_end(&inner);
    }
    jwrite_object_end(&inner);
    jwrite_str(w, KEY_ALLOCATION, buf_span(&text));
}

void promise_write(struct buf *out, const struct promise *p,
                   const struct request *request, int64_t time_ns)
{
    struct jwrite w = {.out = out};
    int64_t units = request->units;
    for (size_t i = 0; i < p->n; i++)
        units += request->kind == REQUEST_CARDS ? p->shares[i].card_units : 0;
    jwrite_object(&w, NULL);
    write_list(&w, KEY_MEM_IDX, p, SHARE_CARD);
    write_list(&w, KEY_MEM_DEV, p, SHARE_CARD_UNITS);
    write_number(&w, KEY_MEM_POD, units);
    jwrite_str(&w, KEY_MEM_ASSIGNED, SPAN("false"));
    write_number(&w, KEY_MEM_ASSUME_TIME, time_ns);
    write_allocation(&w, p, request);
    if (request->by_label && request->kind == REQUEST_CARDS)
        jwrite_str(&w, KEY_CARD_MEMORY, SPAN("whole"));
    else if (request->by_label)
        write_number(&w, KEY_CARD_MEMORY, request->mib_per_card);
    /* Written even if no UUID is known: it replaces a UUID that was copied from another
     * pod's manifest. */
    write_list(&w, KEY_CARD_UUID, p, SHARE_UUID);
    jwrite_object_end(&w);
}

/* -- what a bound pod counts for -- */

/* Did the Binding promise more than the labels request now? */
static bool is_larger(const struct promise *p, const struct request *r)
{
    if (r->kind == REQUEST_CARDS)
        return false;
    return p->whole || r->kind == REQUEST_NONE ||
           r->mib_per_card * r->cards < p->card_mib * (int64_t)p->n;
}

/* The request that the labels made when the pod was bound. */
static struct request recorded(const struct promise *p)
{
    struct request r = {.kind = p->whole ? REQUEST_CARDS : REQUEST_MEMORY,
                        .cards = (uint32_t)p->n,
                        .by_label = true,
                        .recorded = true};
    if (!p->whole) {
        r.mib_per_card = p->card_mib;
        r.units = promise_allocated_units(p);
    }
    return r;
}

/* The pod without its limits of compute: without one of memory they make a request invalid,
 * and a pod that was bound by its labels before that rule existed keeps its memory. */
static struct pod without_core(const struct pod *pod, struct arena *a)
{
    struct pod copy = *pod;
    copy.containers = arena_alloc(a, pod->n_containers * sizeof *copy.containers);
    for (size_t i = 0; i < pod->n_containers; i++) {
        copy.containers[i] = pod->containers[i];
        copy.containers[i].core = (struct span){0};
    }
    return copy;
}

int promise_of_bound(const struct pod *pod, const struct promise *promise,
                  const struct request_rules *rules, struct arena *a,
                  struct request *request, struct err *err)
{
    struct limits limits = limits_of(pod);
    bool by_label = !limits_any(&limits);
    struct pod labels = by_label && limits.core ? without_core(pod, a) : *pod;
    int bad = request_of(&labels, rules, a, request, err);
    if (!by_label) {
        if (bad && (!MUTANT(limits_of_invalid_forgotten) || limits.mem < 0))
            request_of_limits(&limits, rules, request);
        return bad;
    }
    bool complete = MUTANT(labels_of_bound_trusted) ? false
                    : MUTANT(card_memory_alone_counts)
                        ? promise->n && (promise->whole || promise->card_mib >= 0)
                        : promise->complete;
    if (complete && is_larger(promise, request))
        *request = recorded(promise);
    if (request->kind == REQUEST_MEMORY)
        request->core =
            (uint8_t)(limits.core < REQUEST_CORE ? limits.core : REQUEST_CORE);
    return bad;
}

/* What the annotations promise. gpushare/card-memory means nothing beside limits. */
static void write_promise(struct buf *out, const struct promise *p, bool limits)
{
    int64_t units = p->allocated ? promise_allocated_units(p) : p->units;
    buf_adds(out, "the annotations promise ");
    if (p->whole && !limits)
        buf_adds(out, "whole cards");
    else if (p->card_mib >= 0 && !limits)
        buf_printf(out, "%lld MiB on each card", (long long)p->card_mib);
    else if (units >= 0)
        buf_printf(out, "%lld units of " KEY_GPU_MEM, (long long)units);
    else
        buf_adds(out, "memory");
    buf_printf(out, " (%zu card%s)", p->n, p->n == 1 ? "" : "s");
}

/* The units of all containers that run concurrently: what the allocation has. */
static int64_t running_units(const struct request *r)
{
    int64_t sum = 0;
    for (size_t i = 0; i < r->n_parts; i++)
        sum += r->parts[i].amount;
    return sum;
}

/* The Go extender counts only app containers, ignores the number of cards, and writes no
 * allocation. */
static bool agrees_with_go(const struct promise *p, const struct request *r, bool invalid)
{
    bool cards = p->n == 1 || p->n == r->cards || invalid;
    return cards && (r->kind == REQUEST_CARDS || p->units <= r->units);
}

static bool agrees(const struct promise *p, const struct request *r, bool invalid)
{
    int64_t running = invalid || !r->n_parts ? r->units : running_units(r);
    int64_t units = promise_allocated_units(p);
    if (!p->allocated)
        return agrees_with_go(p, r, invalid);
    if (r->kind == REQUEST_CARDS)
        return p->n == r->cards;
    if (p->units >= 0 && p->units != r->units && p->units != running)
        return false;
    return (units == r->units || units == running) && (p->n == r->cards || invalid);
}

void promise_differences(struct buf *out, const struct pod *pod, const struct promise *p,
                       const struct request *r, bool invalid, int64_t unit_mib)
{
    if ((!pod->idx.p && !pod->allocation.p) || r->kind == REQUEST_DEVICES)
        return;
    if (r->recorded) {
        write_promise(out, p, false);
        buf_adds(out, ", but the labels ask for less now; the annotations count, because "
                      "they are complete");
    } else if (r->kind == REQUEST_NONE) {
        write_promise(out, p, false);
        buf_adds(out, ", but the pod asks for nothing; it counts for nothing");
    } else if (p->n && !agrees(p, r, invalid)) {
        write_promise(out, p, !r->by_label);
        buf_adds(out, ", but the pod asks for ");
        request_write(out, r, unit_mib);
        buf_adds(out, ", which counts");
    }
}
