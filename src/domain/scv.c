/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes Scv objects, by tables of their fields (domain/fields.h). */
#include "domain/scv.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "domain/fields.h"
#include "domain/keys.h"

#define MIB_MAX (INT64_C(1) << 40)

/* An Scv while it is read. */
struct reading {
    struct scv scv;
    size_t cap_held, cap_assignments, cap_uses;
    struct span update_time;
    struct span uuids[SCV_MAX_CARDS]; /* of one container */
    struct scv_use uses[SCV_MAX_CARDS];
};

#define LIST_OF(function) .type = FIELD_LIST, .read = (function)

/* -- cards -- */

static const char too_large[] = "is negative or too large";
static const char no_size[] = "is not the size of a card";

#define CARD(key, member) FIELD("status.cardList[].", key, scv_card, member)
#define CARD_MIB          .type = FIELD_NUMBER, .max = MIB_MAX, .why = no_size
#define CARD_SPEC         .type = FIELD_NUMBER, .max = MIB_MAX, .why = too_large

static const struct field card_fields[] = {
    {CARD("bandwidth", spec.bandwidth), CARD_SPEC},
    {CARD("busId", bus_id)},
    {CARD("clock", spec.clock_mhz), CARD_SPEC},
    {CARD("core", spec.sm_clock_mhz), CARD_SPEC},
    {CARD("freeMemory", free_mib), CARD_MIB},
    {CARD("health", health)},
    {CARD("id", id), .type = FIELD_INDEX, .max = 65535,
     .why = "is not an index of a card"},
    {CARD("links", links)},
    {CARD("migProfile", mig_profile)},
    {CARD("model", model)},
    {CARD("numaNode", numa_node), .type = FIELD_MEASURED, .max = 65535,
     .has = offsetof(struct scv_card, has_numa_node)},
    {CARD("parentUUID", parent_uuid)},
    {CARD("power", spec.power_w), CARD_SPEC},
    {CARD("reservedMemory", reserved_mib), CARD_MIB},
    {CARD("temperature", temperature), .type = FIELD_NUMBER, .min = -1000, .max = 1000,
     .why = "is not a temperature", .all = true,
     .has = offsetof(struct scv_card, has_temperature)},
    {CARD("totalMemory", total_mib), CARD_MIB},
    {CARD("usageComplete", use_complete), .type = FIELD_FLAG},
    {CARD("usedMemory", used_mib), CARD_MIB, .has = offsetof(struct scv_card, has_used)},
    {CARD("utilization", utilization), .type = FIELD_NUMBER, .max = 100,
     .why = "is not a percentage", .all = true,
     .has = offsetof(struct scv_card, has_utilization)},
    {CARD("uuid", uuid)},
    FIELDS_END,
};

/* Keeps the cards sorted by id. */
static void read_card(struct field_reader *r, const struct field *f, void *at)
{
    struct scv *scv = at;
    struct scv_card card = {0};
    size_t cap = SCV_MAX_CARDS;
    if (!scv->cards)
        scv->cards = arena_alloc(r->a, cap * sizeof *scv->cards);
    fields_read(r, f->where, card_fields, &card);
    card.healthy = span_eq(card.health, SPAN("Healthy"));
    size_t i = ARRAY_LOWER_BOUND(c, scv->cards, scv->n_cards, c->id < card.id);
    if (scv->n_cards == SCV_MAX_CARDS)
        jread_fail(r->j, f->where, "has more than 64 cards");
    else if (i < scv->n_cards && scv->cards[i].id == card.id)
        jread_fail(r->j, "status.cardList[].id", "is a duplicate");
    else {
        scv->links_unordered |= i < scv->n_cards;
        *ARRAY_INSERT(scv->cards, scv->n_cards, cap, i) = card;
    }
}

const struct links *scv_links(const struct scv *scv, struct list *pool)
{
    uint8_t widths[LINKS_MAX_CARDS * LINKS_MAX_CARDS];
    int32_t numa[LINKS_MAX_CARDS];
    const size_t n = scv->n_cards;
    if (n > LINKS_MAX_CARDS || scv->links_unordered)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        struct span row = scv->cards[i].links;
        numa[i] = scv->cards[i].has_numa_node ? (int32_t)scv->cards[i].numa_node : -1;
        for (size_t k = 0; k < n; k++) {
            size_t word = 0;
            while (word < row.n && row.p[word] != ' ')
                word++;
            widths[i * n + k] = link_width((struct span){row.p, word});
            bool more = word < row.n;
            if (more != (k + 1 < n) || (i == k) != (widths[i * n + k] == LINK_MAX))
                return NULL;
            row.p += word + more;
            row.n -= word + more;
        }
    }
    return links_take(pool, widths, numa, (unsigned)n);
}

int64_t scv_card_used(const struct scv_card *card)
{
    if (card->has_used)
        return card->used_mib;
    if (!card->healthy && !card->free_mib)
        return -1;
    return card->total_mib > card->free_mib ? card->total_mib - card->free_mib : 0;
}

int64_t scv_bandwidth(int64_t generation, int64_t lanes)
{
    static const int64_t lane[] = {0, 250, 500, 985, 1969, 3938, 7563};
    if (generation < 1 || generation >= (int64_t)ARRAY_LEN(lane) || lanes < 0 ||
        lanes > 64)
        return 0;
    return lane[generation] * lanes;
}

/* -- what enforces promises -- */

/* By bit. */
static const struct span isolation_words[] = {SPAN("driver"), SPAN("library"),
                                              SPAN("mps")};

/* Another word is of a later version. */
static void read_isolation(struct field_reader *r, const struct field *f, void *at)
{
    uint8_t *bits = at;
    struct jread_str word;
    *bits = jread_peek(r->j) == JREAD_ARRAY ? SCV_ISOLATION_KNOWN : 0;
    jread_array(r->j, f->where);
    while (jread_item(r->j)) {
        bool read = jread_string(r->j, f->where, &word);
        for (size_t i = 0; read && i < ARRAY_LEN(isolation_words); i++)
            if (jread_str_eq(word, isolation_words[i]))
                *bits |= (uint8_t)(1 << i);
    }
}

void scv_write_isolation(struct jwrite *w, const char *name, uint8_t bits)
{
    if (!(bits & SCV_ISOLATION_KNOWN))
        return;
    jwrite_array(w, name);
    for (size_t i = 0; i < ARRAY_LEN(isolation_words); i++)
        if (bits >> i & 1)
            jwrite_str(w, NULL, isolation_words[i]);
    jwrite_array_end(w);
}

void scv_isolation_add(struct buf *out, uint8_t bits, const char *between)
{
    const char *before = "";
    for (size_t i = 0; i < ARRAY_LEN(isolation_words); i++)
        if (bits >> i & 1) {
            buf_adds(out, before);
            buf_add_span(out, isolation_words[i]);
            before = between;
        }
    if (!*before)
        buf_adds(out, "nothing");
}

/* -- requests -- */

enum scv_dialect scv_dialect_of(struct span word)
{
    return !word.n                             ? SCV_DIALECT_NONE
           : span_eq(word, SPAN("hami"))       ? SCV_DIALECT_HAMI
           : span_eq(word, SPAN(SCV_UNSERVED)) ? SCV_DIALECT_UNSERVED
                                               : SCV_DIALECT_OTHER;
}

/* -- containers and processes -- */

uint64_t scv_pod_hash(struct span ns, struct span name)
{
    return hash_bytes(hash_bytes(0, ns.p, ns.n), name.p, name.n);
}

uint64_t scv_hash(struct span uid)
{
    return hash_bytes(0, uid.p, uid.n);
}

bool scv_is_nvidia_resource(struct span resource)
{
    return span_starts(resource, SPAN("nvidia.com/"));
}

#define USE(key, member)  FIELD("status.podList[].usage[].", key, scv_use, member)
#define HELD(key, member) FIELD("status.podList[].", key, scv_held, member)
#define PROC(key, member) FIELD("status.processList[].", key, scv_process, member)
#define MEASURED(most)    .type = FIELD_MEASURED, .max = (most), .absent = ABSENT_NEGATIVE

static void write_enforced(struct jwrite *w, const void *object)
{
    scv_write_isolation(w, "enforcedBy", ((const struct scv_use *)object)->enforced_by);
}

static const struct field use_fields[] = {
    {USE("enforcedBy", enforced_by), .type = FIELD_OTHER, .read = read_isolation,
     .write = write_enforced},
    {USE("podUID", pod_uid)},
    {USE("promisedMemory", promised_mib), MEASURED(MIB_MAX)},
    {USE("unlimitedMemory", unlimited_mib), MEASURED(MIB_MAX)},
    {USE("usedMemory", used_mib), MEASURED(MIB_MAX)},
    {USE("utilization", sm_percent), MEASURED(100)},
    {USE("uuid", uuid)},
    FIELDS_END,
};

static void read_uuid(struct field_reader *r, const struct field *f, void *at)
{
    struct scv_held *held = at;
    struct span uuid = {0};
    jread_text(r->j, f->where, r->a, &uuid);
    if (held->n_uuids == SCV_MAX_CARDS)
        jread_fail(r->j, f->where, "has more than 64 cards");
    else
        held->uuids[held->n_uuids++] = uuid;
}

static void write_uuids(struct jwrite *w, const void *object)
{
    const struct scv_held *held = object;
    jwrite_array(w, "cards");
    for (size_t i = 0; i < held->n_uuids; i++)
        jwrite_str(w, NULL, held->uuids[i]);
    jwrite_array_end(w);
}

static void read_use(struct field_reader *r, const struct field *f, void *at)
{
    struct scv_held *held = at;
    struct scv_use use = {
        .promised_mib = -1, .used_mib = -1, .unlimited_mib = -1, .sm_percent = -1};
    fields_read(r, f->where, use_fields, &use);
    if (held->n_uses < SCV_MAX_CARDS)
        held->uses[held->n_uses++] = use;
}

static void write_uses(struct jwrite *w, const void *object)
{
    const struct scv_held *held = object;
    if (!held->n_uses)
        return;
    jwrite_array(w, "usage");
    for (size_t i = 0; i < held->n_uses; i++)
        fields_write(w, use_fields, &held->uses[i]);
    jwrite_array_end(w);
}

static const struct field held_fields[] = {
    {HELD("cards", ns), LIST_OF(read_uuid), .write = write_uuids},
    {HELD("container", container)},
    {HELD("name", pod)},
    {HELD("namespace", ns)},
    {HELD("resource", resource)},
    {HELD("units", units), .type = FIELD_NUMBER, .absent = ABSENT_NEVER, .max = MIB_MAX,
     .why = too_large},
    {HELD("usage", ns), LIST_OF(read_use), .write = write_uses},
    FIELDS_END,
};

static const struct field process_fields[] = {
    {PROC("container", container)},
    {PROC("name", name)},
    {PROC("namespace", ns)},
    {PROC("pid", pid), .type = FIELD_MEASURED, .max = UINT32_MAX},
    {PROC("podUID", pod_uid)},
    {PROC("unlimitedMemory", unlimited_mib), MEASURED(MIB_MAX)},
    {PROC("unmapped", unmapped), .type = FIELD_FLAG},
    {PROC("usedMemory", used_mib), MEASURED(MIB_MAX)},
    {PROC("utilization", sm_percent), MEASURED(100)},
    {PROC("uuid", uuid)},
    FIELDS_END,
};

/* The use is of the pod with this UID, or name if the UID is unknown. podList and processList
 * add to the uses, in any order. */
static void add_pod_use(struct reading *q, struct span ns, struct span pod,
                        struct span pod_uid, struct span uuid, struct scv_pod_use use)
{
    struct scv *scv = &q->scv;
    if (scv->n_uses == SCV_MAX_HELD)
        return;
    if (use.user != SCV_USER_PROCESS) {
        use.user = pod_uid.n ? SCV_USER_UID : SCV_USER_NAME;
        use.pod = pod_uid.n ? scv_hash(pod_uid) : scv_pod_hash(ns, pod);
    }
    use.card = scv_hash(uuid);
    MEM_GROW(scv->uses, q->cap_uses, scv->n_uses + 1);
    scv->uses[scv->n_uses++] = use;
}

static void *copy_list(struct arena *a, const void *list, size_t bytes)
{
    return bytes ? memcpy(arena_alloc(a, bytes), list, bytes) : NULL;
}

static void add_assignments(struct reading *q, const struct scv_held *held)
{
    struct scv *scv = &q->scv;
    for (size_t i = 0; i < held->n_uuids && held->units; i++) {
        if (!held->uuids[i].n || scv->n_assignments == SCV_MAX_HELD)
            continue;
        MEM_GROW(scv->assignments, q->cap_assignments, scv->n_assignments + 1);
        scv->assignments[scv->n_assignments++] = (struct scv_assignment){
            scv_pod_hash(held->ns, held->pod), scv_hash(held->uuids[i])};
    }
}

static void read_held(struct field_reader *r, const struct field *f, void *at)
{
    struct reading *q = at;
    struct scv *scv = &q->scv;
    struct scv_held held = {.uuids = q->uuids, .uses = q->uses};
    fields_read(r, f->where, held_fields, &held);
    ARRAY_EACH_ITEM(const struct scv_use, u, held.uses, held.n_uses)
    {
        if (u->uuid.n)
            add_pod_use(q, held.ns, held.pod, u->pod_uid, u->uuid,
                        (struct scv_pod_use){.used_mib = u->used_mib,
                                             .sm_percent = u->sm_percent,
                                             .enforced_by = u->enforced_by});
    }
    if (r->all || scv_is_nvidia_resource(held.resource)) {
        if (scv->n_held == SCV_MAX_HELD) {
            jread_fail(r->j, f->where, "has more than 8192 containers");
            return;
        }
        held.uuids = copy_list(r->a, held.uuids, held.n_uuids * sizeof *held.uuids);
        held.uses = copy_list(r->a, held.uses, held.n_uses * sizeof *held.uses);
        MEM_GROW(scv->held, q->cap_held, scv->n_held + 1);
        scv->held[scv->n_held++] = held;
        return;
    }
    add_assignments(q, &held);
}

static void read_process(struct field_reader *r, const struct field *f, void *at)
{
    struct reading *q = at;
    struct scv *scv = &q->scv;
    struct scv_process p = {.used_mib = -1, .unlimited_mib = -1, .sm_percent = -1};
    fields_read(r, f->where, process_fields, &p);
    if (!p.pid) { /* a container: `name` is that of its pod */
        p.pod = p.name;
        p.name = (struct span){0};
    }
    add_pod_use(q, p.ns, p.pod, p.pod_uid, p.uuid,
                (struct scv_pod_use){.used_mib = p.used_mib,
                                     .sm_percent = p.sm_percent,
                                     .user = p.pid ? SCV_USER_PROCESS : SCV_USER_NAME});
    if (!r->all || scv->n_processes == SCV_MAX_PROCESSES)
        return;
    if (!scv->processes)
        scv->processes = arena_alloc(r->a, SCV_MAX_PROCESSES * sizeof p);
    scv->processes[scv->n_processes++] = p;
}

/* -- the object -- */

#define STATUS(key, member) FIELD("status.", key, reading, member)

static const struct field status_fields[] = {
    {STATUS("cardList", scv), LIST_OF(read_card)},
    {STATUS("updateTime", update_time)},
    {STATUS("driverVersion", scv.driver_version), .all = true},
    {STATUS("cudaVersion", scv.cuda_version), .all = true},
    {STATUS("isolation", scv.isolation), .type = FIELD_OTHER, .read = read_isolation},
    {STATUS("dialect", scv.dialect)},
    {STATUS("podList", scv), LIST_OF(read_held)},
    {STATUS("processList", scv), LIST_OF(read_process)},
    FIELDS_END,
};

static const struct field spec_fields[] = {
    {FIELD("spec.", "updateInterval", scv, update_interval_ms), .type = FIELD_NUMBER,
     .max = MIB_MAX, .why = too_large},
    FIELDS_END,
};

static const struct field scv_fields[] = {
    {FIELD("", "metadata", reading, scv.meta), .type = FIELD_META},
    {FIELD("", "spec", reading, scv), FIELD_IS_OBJECT(spec_fields), .all = true},
    {FIELD("", "status", reading, scv), FIELD_IS_OBJECT(status_fields)},
    FIELDS_END,
};
_Static_assert(offsetof(struct reading, scv) == 0, "the functions cast one to the other");

static void *move_list(struct arena *a, void *list, size_t bytes)
{
    void *copy = copy_list(a, list, bytes);
    free(list);
    return copy;
}

static void read_scv(struct jread *j, struct arena *a, bool all, struct scv *scv)
{
    struct field_reader r = {.j = j, .a = a, .all = all};
    struct reading q = {.scv = {.n_cards = 0}};
    fields_read(&r, "scv", scv_fields, &q);
    if (!all && scv_dialect_of(q.scv.dialect) != SCV_DIALECT_NONE) {
        /* In a dialect nvidia.com/gpu can be a resource of ours, too. */
        ARRAY_EACH_ITEM(const struct scv_held, held, q.scv.held, q.scv.n_held)
        {
            if (span_eq(held->resource, SPAN(KEY_NVIDIA_GPU)))
                add_assignments(&q, held);
        }
    }
    *scv = q.scv;
    object_meta_check(j, &scv->meta);
    scv->has_update_time =
        q.update_time.p && clock_parse(q.update_time, &scv->update_time);
    scv->held = move_list(a, scv->held, scv->n_held * sizeof *scv->held);
    scv->assignments =
        move_list(a, scv->assignments, scv->n_assignments * sizeof *scv->assignments);
    scv->uses = move_list(a, scv->uses, scv->n_uses * sizeof *scv->uses);
}

void scv_read(struct jread *j, struct arena *a, struct scv *scv)
{
    read_scv(j, a, false, scv);
}

void scv_read_all(struct jread *j, struct arena *a, struct scv *scv)
{
    read_scv(j, a, true, scv);
}

static void write_status(struct jwrite *w, const struct scv *scv)
{
    int64_t total = 0, free_mib = 0;
    jwrite_object(w, NULL);
    if (scv->n_cards) {
        jwrite_array(w, "cardList");
        for (size_t i = 0; i < scv->n_cards; i++) {
            fields_write(w, card_fields, &scv->cards[i]);
            total += scv->cards[i].total_mib;
            free_mib += scv->cards[i].free_mib;
        }
        jwrite_array_end(w);
        jwrite_i64(w, "cardNumber", (int64_t)scv->n_cards);
    }
    jwrite_str_set(w, "cudaVersion", scv->cuda_version);
    jwrite_str_set(w, "dialect", scv->dialect);
    jwrite_str_set(w, "driverVersion", scv->driver_version);
    if (free_mib)
        jwrite_i64(w, "freeMemorySum", free_mib);
    scv_write_isolation(w, "isolation", scv->isolation);
    if (scv->n_held) {
        jwrite_array(w, "podList");
        for (size_t i = 0; i < scv->n_held; i++)
            fields_write(w, held_fields, &scv->held[i]);
        jwrite_array_end(w);
    }
    if (scv->n_processes) {
        jwrite_array(w, "processList");
        for (size_t i = 0; i < scv->n_processes && i < SCV_MAX_PROCESSES; i++) {
            struct scv_process p = scv->processes[i];
            p.name = p.pid ? p.name : p.pod;
            fields_write(w, process_fields, &p);
        }
        jwrite_array_end(w);
    }
    if (total)
        jwrite_i64(w, "totalMemorySum", total);
    if (scv->has_update_time) {
        cleanup_buf struct buf time = {0};
        clock_format_s(&time, scv->update_time);
        jwrite_str(w, "updateTime", buf_span(&time));
    }
    jwrite_object_end(w);
}

void scv_write_status(struct buf *out, const struct scv *scv)
{
    struct jwrite w = {.out = out};
    write_status(&w, scv);
}

void scv_write(struct buf *out, const struct scv *scv)
{
    struct jwrite w = {.out = out};
    jwrite_object(&w, NULL);
    jwrite_str(&w, "apiVersion", SPAN("core.run-linux.com/v1"));
    jwrite_str(&w, "kind", SPAN("Scv"));
    jwrite_object(&w, "metadata");
    jwrite_str_set(&w, "name", scv->meta.name);
    if (scv->owner_uid.n)
        object_write_owner(&w, scv->meta.name, scv->owner_uid);
    jwrite_str_set(&w, "resourceVersion", scv->meta.version);
    jwrite_object_end(&w);
    jwrite_key(&w, SPAN("spec"));
    fields_write(&w, spec_fields, scv);
    jwrite_key(&w, SPAN("status"));
    write_status(&w, scv);
    jwrite_object_end(&w);
}
