/* SPDX-License-Identifier: Apache-2.0 */
/* The annotations of a promise, read and written, and what a bound pod counts for. */
#include "domain/promise.h"

#include <stdlib.h>

#include "base/jwrite.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "domain/dialect.h"
#include "domain/keys.h"
#include "domain/quantity.h"

enum {
    INDEX_MAX = 65535,
    UNITS_MAX = 1 << 30,
    CARD_MIB_MAX = 1 << 30,
    GIB = 1024, /* in MiB */
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

/* The UUIDs, or sizes, are in the order of the index annotation. An empty one is unknown. */
static void read_list(struct span idx, struct span list, bool uuids, struct promise *p)
{
    while (idx.p && list.p) {
        int64_t index, units;
        struct span text = span_trim(span_cut(&list, ','));
        bool sized = span_i64(text, &units) && units > 0 && units <= UNITS_MAX;
        if (!span_i64(span_trim(span_cut(&idx, ',')), &index))
            return;
        for (size_t i = 0; i < p->n; i++) {
            if (p->shares[i].card == index && uuids)
                p->shares[i].uuid = text;
            else if (p->shares[i].card == index && sized)
                p->shares[i].card_units = units;
        }
    }
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

bool promise_of(const struct pod *pod, struct arena *a, struct promise *promise)
{
    *promise = (struct promise){.card_mib = -1, .units = -1, .unit_mib = -1};
    if (!pod->idx.p && !pod->allocation.p)
        return false;
    promise->shares = arena_alloc(a, REQUEST_MAX_CARDS * sizeof *promise->shares);
    if (read_cards(pod, promise))
        read_list(pod->idx, pod->card_uuid, true, promise);
    read_list(pod->idx, pod->card_units, false, promise);
    if (!span_i64(span_trim(pod->memory_unit), &promise->unit_mib) ||
        promise->unit_mib < 1 || promise->unit_mib > CARD_MIB_MAX)
        promise->unit_mib = -1;
    /* "whole", or MiB, and the UID of the pod that the Binding was for. */
    int64_t mib;
    struct span uid = pod->card_memory, amount = span_cut(&uid, ' ');
    bool own = span_eq(uid, pod->meta.uid) || MUTANT(record_of_another_pod_counts);
    promise->whole = own && span_eq(amount, SPAN("whole"));
    if (own && span_i64(amount, &mib) && mib >= 0 && mib <= CARD_MIB_MAX)
        promise->card_mib = mib;
    if (!span_i64(span_trim(pod->units), &promise->units) || promise->units < 0)
        promise->units = -1;
    return promise->n > 0;
}

bool promise_of_hami(const struct pod *pod, const struct dialect *d, bool counts,
                     struct arena *a, struct promise *promise, int *bad, struct err *err)
{
    struct dialect_promise hami = {0};
    struct dialect_pod words;
    struct limits ours = limits_of(pod);
    bool limited = false, asks = false;
    struct jread j;
    *bad = 0;
    if (MUTANT(taken_over_nowhere) || pod->idx.p || pod->allocation.p || ours.mem ||
        ours.cards || ours.slots)
        return false;
    jread_init(&j, pod->object.p, pod->object.n);
    dialect_read(&j, a, d, &words);
    *bad = dialect_request(&words, err);
    for (const struct dialect_container *c = words.containers; c; c = c->next) {
        asks |= *bad || c->cards;
        for (int k = DIALECT_CARDS + 1; k < DIALECT_LIMITS; k++)
            limited |= c->limits[k].p != NULL;
    }
    counts = counts && words.notes[DIALECT_NODE].p && words.notes[DIALECT_ALLOCATED].p;
    if (!asks || !(counts || limited))
        return false;
    if (!*bad && counts)
        *bad = dialect_promise(&words, pod->node, &hami, err);
    *promise = (struct promise){.taken_over = true,
                                .by_limits = !counts,
                                .n = hami.n,
                                .units = -1,
                                .unit_mib = -1,
                                .card_mib = -1};
    promise->shares = arena_zalloc(a, hami.n * sizeof *promise->shares);
    for (size_t i = 0; i < hami.n; i++) {
        const struct dialect_share *from = &hami.shares[i];
        promise->shares[i] = (struct promise_share){
            .card = -1,
            .units = -1,
            .uuid = from->uuid,
            .mib = from->mib,
            .percent = (uint8_t)quantity_at_most(from->percent, 100),
            .compute_percent = (uint8_t)quantity_at_most(from->cores, REQUEST_CORE),
        };
        if (from->slots > promise->slots)
            promise->slots = (uint32_t)from->slots;
    }
    return true;
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
        read_list(pod->idx, pod->card_uuid, true, promise);
    return promise->n > 0;
}

int64_t promise_unit_mib(int64_t unit_mib, int64_t written, int64_t card_units,
                         int64_t units, int64_t card_mib)
{
    const int64_t known[] = {unit_mib, GIB, 1};
    int64_t unit = written > 0 ? written : written == 0 ? unit_mib : 0;
    for (size_t i = 0; i < ARRAY_LEN(known) && card_units && !unit; i++) {
        int64_t now = card_mib / known[i];
        unit = llabs(now - card_units) <= now / 16 ? known[i] : 0;
    }
    if (!unit)
        unit = unit_mib > GIB ? unit_mib : GIB;
    return unit < unit_mib && units * unit_mib <= card_mib ? unit_mib : unit;
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
    if (p->taken_over)
        return p->shares[i].mib;
    unit_mib = request->slots || request->dialect ? 1 : unit_mib;
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

static void write_number(struct jwrite *w, const char *key, int64_t number)
{
    cleanup_buf struct buf text = {0};
    buf_add_i64(&text, number);
    jwrite_str(w, key, buf_span(&text));
}

void promise_write(struct buf *out, const struct promise *p,
                   const struct request *request, struct span uid, int64_t time_ns)
{
    cleanup_buf struct buf cards = {0}, sizes = {0}, uuids = {0}, record = {0};
    struct jwrite w = {.out = out};
    int64_t units = request->units;
    bool known = false;
    for (size_t i = 0; i < p->n; i++) {
        const struct promise_share *share = &p->shares[i];
        const char *comma = i ? "," : "";
        buf_printf(&cards, "%s%d", comma, share->card);
        buf_printf(&sizes, "%s%lld", comma, (long long)share->card_units);
        buf_adds(&uuids, comma);
        buf_add_span(&uuids, share->uuid);
        known |= share->uuid.n > 0;
        units += request->kind == REQUEST_CARDS ? share->card_units : 0;
    }
    jwrite_object(&w, NULL);
    jwrite_str(&w, KEY_MEM_IDX, buf_span(&cards));
    jwrite_str(&w, KEY_MEM_DEV, buf_span(&sizes));
    write_number(&w, KEY_MEM_POD, units);
    write_number(&w, KEY_MEMORY_UNIT, p->unit_mib);
    jwrite_str(&w, KEY_MEM_ASSIGNED, SPAN("false"));
    write_number(&w, KEY_MEM_ASSUME_TIME, time_ns);
    /* JSON inside a string. Memory: each container gets an even part of each card, or in
     * a dialect its own, also of whole cards. Other whole cards: containers get the cards
     * in order. */
    bool memory = request->kind == REQUEST_MEMORY || request->dialect;
    size_t next = 0;
    const char *comma = "";
    cleanup_buf struct buf text = {0};
    buf_adds(&text, "{");
    for (size_t c = 0; c < request->n_parts; c++) {
        const struct request_part *part = &request->parts[c];
        if (part->role == CONTAINER_INIT)
            continue;
        int64_t of_card = request->dialect ? part->amount : part->amount / (int64_t)p->n;
        size_t end = memory ? p->n : next + (size_t)part->amount;
        buf_printf(&text, "%s\"%u\":{", comma, part->index);
        comma = ",";
        for (size_t i = next; i < end && i < p->n; i++)
            buf_printf(&text, "%s\"%d\":%lld", i > next ? "," : "", p->shares[i].card,
                       (long long)(memory ? of_card : p->shares[i].card_units));
        buf_adds(&text, "}");
        next = memory ? 0 : end;
    }
    buf_adds(&text, "}");
    jwrite_str(&w, KEY_ALLOCATION, buf_span(&text));
    /* These two are written even if they say nothing: they replace what was copied from
     * another pod's manifest. */
    if (request->kind == REQUEST_MEMORY)
        buf_add_i64(&record, request->mib_per_card);
    else
        buf_adds(&record, "whole");
    buf_printf(&record, " %.*s", SPAN_ARG(uid));
    jwrite_str(&w, KEY_CARD_MEMORY,
               request->by_label || request->slots || request->dialect ? buf_span(&record)
                                                                       : SPAN(""));
    jwrite_str(&w, KEY_CARD_UUID, known ? buf_span(&uuids) : SPAN(""));
    jwrite_object_end(&w);
}

/* -- what a bound pod counts for -- */

/* The MiB of the record, or what the allocation has of a card if that is more: the record alone was
 * edited. */
static int64_t recorded_mib(const struct promise *p)
{
    int64_t mib = p->card_mib > 0 ? p->card_mib : 0;
    for (size_t i = 0; i < p->n && mib; i++)
        mib = p->shares[i].units > mib ? p->shares[i].units : mib;
    return mib;
}

/* Of slots the record counts, whatever the annotation asks for now. Without a record, all that the
 * cards can promise. */
static void settle_by_record(struct request *r, const struct promise *p, bool invalid)
{
    const int64_t mib = recorded_mib(p), card_mib = p->shares[0].card_units;
    if (invalid) {
        r->cards = (uint32_t)p->n;
        r->slots = (r->slots + r->cards - 1) / r->cards;
    }
    int64_t now = request_mib(r, card_mib, 0);
    if (MUTANT(memory_of_bound_trusted) && !invalid && !r->percent)
        return;
    request_settle(r, mib, card_mib);
    r->percent = mib ? 0 : 100;
    r->recorded = mib && mib != now;
}

/* Without shares, all of any card. */
static void take_over(const struct promise *p, struct request *r)
{
    *r = (struct request){.kind = REQUEST_MEMORY,
                          .cards = p->n ? (uint32_t)p->n : 1,
                          .slots = p->n ? p->slots : 1,
                          .percent = p->n ? 0 : 100};
    for (size_t i = 0; i < p->n; i++) {
        const struct promise_share *share = &p->shares[i];
        if (share->mib > r->mib_per_card)
            r->mib_per_card = share->mib;
        r->compute_percent = share->compute_percent > r->compute_percent
                                 ? share->compute_percent
                                 : r->compute_percent;
    }
    r->dialect = p->n ? SCV_DIALECT_HAMI : SCV_DIALECT_NONE; /* quotas count it */
    r->units = r->mib_per_card * r->cards;
    if (r->compute_percent == REQUEST_CORE) {
        r->kind = REQUEST_CARDS;
        r->mib_per_card = r->compute_percent = 0;
    }
}

/* In a dialect the record counts as well, and the parts stay what the limits ask for. New, in the
 * arena. */
static const struct request *recorded_in_dialect(const struct request *hami,
                                                 const struct promise *p, struct arena *a)
{
    struct request *r = arena_alloc(a, sizeof *r);
    /* It was bound, so what a container asks for beyond the card's promises is the driver's. */
    int64_t mib = recorded_mib(p),
            now = request_mib_of_parts(hami, p->shares[0].card_units, INT32_MAX);
    bool whole = p->whole;
    *r = *hami;
    for (size_t i = 0; i < r->n_parts; i++)
        whole |= r->parts[i].alone && !MUTANT(record_lowers_limits);
    r->kind = whole ? REQUEST_CARDS : REQUEST_MEMORY;
    r->cards = (uint32_t)p->n;
    r->slots = whole ? 0 : r->slots ?: 1;
    r->percent = 0;
    r->recorded = p->whole ? hami->kind != REQUEST_CARDS : whole || mib != now;
    if (whole)
        return r;
    r->mib_per_card = mib;
    r->units = mib * r->cards;
    return r;
}

int promise_of_bound(const struct pod *pod, const struct promise *promise,
                     const struct request_rules *rules, struct arena *a,
                     struct request *request, struct err *err)
{
    if (promise->taken_over) {
        int bad = promise->by_limits ? request_of(pod, rules, a, request, err) : 0;
        if (promise->by_limits && request->hami)
            *request = *request->hami;
        else
            take_over(promise, request);
        return bad;
    }
    struct limits limits = limits_of(pod);
    bool by_label = !limits_any(&limits);
    struct pod labels = *pod;
    /* Without limits of memory, those of compute make a request invalid, and a pod that was
     * bound by its labels before that rule existed keeps its memory. */
    if (by_label)
        labels.n_containers = 0;
    int bad = request_of(&labels, rules, a, request, err);
    const struct request *hami = request->hami;
    if (hami && !limits.mem && !limits.cards && !limits.slots) {
        if (bad)
            request_of_limits(&limits, rules, request);
        request->hami = promise->n && (promise->whole || promise->card_mib > 0)
                            ? recorded_in_dialect(hami, promise, a)
                            : hami;
        return bad;
    }
    if (!by_label) {
        if (bad && (!MUTANT(limits_of_invalid_forgotten) || limits.mem < 0))
            request_of_limits(&limits, rules, request);
        if (request->slots && promise->n && !limits.mem)
            settle_by_record(request, promise, bad);
        return bad;
    }
    /* Did the Binding promise more than the labels request now? */
    bool larger = promise->whole || request->mib_per_card * request->cards <
                                        promise->card_mib * (int64_t)promise->n;
    if (promise->n && request->kind != REQUEST_CARDS && larger &&
        !MUTANT(labels_of_bound_trusted))
        *request = (struct request){
            .kind = promise->whole ? REQUEST_CARDS : REQUEST_MEMORY,
            .cards = (uint32_t)promise->n,
            .mib_per_card = promise->whole ? 0 : promise->card_mib,
            .units = promise->whole ? 0 : promise_allocated_units(promise),
            .by_label = true,
            .recorded = true,
        };
    if (request->kind == REQUEST_MEMORY)
        request->compute_percent =
            (uint8_t)(limits.compute_percent < REQUEST_CORE ? limits.compute_percent
                                                            : REQUEST_CORE);
    return bad;
}

static bool agrees(const struct pod *pod, const struct promise *p,
                   const struct request *r, bool invalid)
{
    bool cards = p->n == r->cards, whole = r->kind == REQUEST_CARDS;
    int64_t units = promise_allocated_units(p), running = 0;
    /* The Go extender counts only app containers, ignores the number of cards, and writes no
     * allocation. */
    if (!p->allocated)
        return (cards || p->n == 1 || invalid) &&
               (whole || p->units < 0 || p->units == r->units ||
                p->units == limits_of_go(pod));
    if (whole)
        return cards;
    /* Of the containers that run concurrently: what the allocation has. */
    for (size_t i = 0; i < r->n_parts; i++)
        if (r->parts[i].role != CONTAINER_INIT)
            running += r->dialect ? r->cards * request_part_mib(&r->parts[i],
                                                                p->shares[0].card_units,
                                                                INT32_MAX)
                                  : r->parts[i].amount;
    if (invalid || !r->n_parts)
        running = r->units;
    if (p->units >= 0 && p->units != r->units && p->units != running)
        return false;
    return (units == r->units || units == running) && (cards || invalid);
}

void promise_differences(struct buf *out, const struct pod *pod, const struct promise *p,
                         const struct request *r, bool invalid, int64_t unit_mib)
{
    int64_t units = p->allocated ? promise_allocated_units(p) : p->units;
    if (p->taken_over && invalid)
        buf_adds(out,
                 "the annotations of HAMi cannot be read or contradict the pod, which "
                 "counts on every card of its node");
    if (p->taken_over)
        return;
    bool nothing = r->kind == REQUEST_NONE;
    /* gpushare/card-memory means nothing beside limits. */
    bool by_label = r->recorded || nothing || r->by_label;
    if ((!pod->idx.p && !pod->allocation.p) || r->kind == REQUEST_DEVICES ||
        (!r->recorded && !nothing && (!p->n || agrees(pod, p, r, invalid))))
        return;
    buf_adds(out, "the annotations promise ");
    if (p->whole && by_label)
        buf_adds(out, "whole cards");
    else if (p->card_mib >= 0 && by_label)
        buf_printf(out, "%lld MiB on each card", (long long)p->card_mib);
    else if (units >= 0)
        buf_printf(out, "%lld units of " KEY_GPU_MEM, (long long)units);
    else
        buf_adds(out, "memory");
    buf_printf(out, " (%zu card%s)", p->n, p->n == 1 ? "" : "s");
    bool raised =
        !r->dialect ||
        (r->kind == REQUEST_CARDS
             ? p->whole
             : request_mib_of_limits(r, p->shares[0].card_units) <= r->mib_per_card);
    if (r->recorded && raised) {
        buf_printf(out, ", but %s; the annotations count, because they record the bind",
                   r->dialect ? "its limits and HAMi's defaults ask for another amount"
                   : r->slots ? "the annotation " KEY_MEMORY
                                " asks for another amount now"
                              : "the labels ask for less now");
    } else if (nothing) {
        buf_adds(out, ", but the pod asks for nothing; it counts for nothing");
    } else {
        buf_adds(out, ", but the pod asks for ");
        request_write(out, r, unit_mib);
        buf_adds(out, ", which counts");
    }
}
