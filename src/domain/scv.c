/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes Scv objects. One table of fields per object says how each member is read,
 * checked and written; members are written in the order of the tables, by name, so that
 * equal objects are equal bytes. */
#include "domain/scv.h"

#include <stddef.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/jwrite.h"
#include "base/mem.h"

#define MIB_MAX (INT64_C(1) << 40)

/* -- fields -- */

enum field_type {
    FIELD_TEXT,     /* struct span; written unless empty */
    FIELD_FLAG,     /* bool; written if true */
    FIELD_NUMBER,   /* int64_t; out of range: a fault */
    FIELD_INDEX,    /* int32_t, always written; out of range: a fault */
    FIELD_MEASURED, /* int64_t; out of range: unknown, and no fault, because a fault makes
                       the cards of the node unusable */
    FIELD_OTHER,    /* `read` and `write` */
};

/* Numbers that equal `absent` are not written, unless `has` names a flag that says so. */
enum absent { ABSENT_ZERO, ABSENT_NEGATIVE, ABSENT_NEVER };

struct reader {
    struct jread *j;
    struct arena *a;
    bool all; /* scv_read_all */
    struct scv *scv;
    size_t cap_held, cap_assignments, cap_uses;
};

struct field {
    struct span name;
    const char *where; /* the path, for messages */
    size_t at;         /* offset of the value in the struct */
    enum field_type type;
    enum absent absent;
    size_t has; /* offset of the flag that a value is there; 0: none */
    bool all;   /* scv_read ignores it */
    int64_t min, max;
    const char *why; /* of a fault */
    void (*read)(struct reader *r, void *object);
    void (*write)(struct jwrite *w, const void *object);
};

#define FIELD(path, key, object, member)                                                 \
    .name = {key, sizeof(key) - 1}, .where = path key, .at = offsetof(struct object, member)

static void read_number(struct jread *j, const struct field *f, char *object)
{
    int64_t v = 0;
    bool read = jread_i64(j, f->where, &v), valid = v >= f->min && v <= f->max;
    if (read && !valid && f->type != FIELD_MEASURED)
        jread_fail(j, f->where, f->why);
    else if (read && valid && f->type == FIELD_INDEX)
        *(int32_t *)(void *)(object + f->at) = (int32_t)v;
    else if (read && valid)
        *(int64_t *)(void *)(object + f->at) = v;
    if (f->has)
        *(bool *)(object + f->has) = read;
}

/* The table ends with an empty name. */
static void read_fields(struct reader *r, const char *where, const struct field *fields,
                        void *object)
{
    struct jread_str key;
    jread_object(r->j, where);
    while (jread_member(r->j, &key)) {
        const struct field *f = fields;
        while (f->name.n && !jread_str_eq(key, f->name))
            f++;
        char *at = (char *)object + f->at;
        if (!f->name.n || (f->all && !r->all))
            jread_skip(r->j);
        else if (f->type == FIELD_TEXT)
            jread_text(r->j, f->where, r->a, (struct span *)(void *)at);
        else if (f->type == FIELD_FLAG)
            jread_bool(r->j, f->where, (bool *)at);
        else if (f->type == FIELD_OTHER)
            f->read(r, object);
        else
            read_number(r->j, f, object);
    }
}

static void write_number(struct jwrite *w, const struct field *f, const char *object)
{
    int64_t v = *(const int64_t *)(const void *)(object + f->at);
    if (f->has ? *(const bool *)(object + f->has)
               : f->absent == ABSENT_NEVER || (f->absent == ABSENT_ZERO ? v != 0 : v >= 0))
        jwrite_i64(w, f->name.p, v);
}

static void write_fields(struct jwrite *w, const struct field *fields, const void *object)
{
    jwrite_object(w, NULL);
    for (const struct field *f = fields; f->name.n; f++) {
        const void *at = (const char *)object + f->at;
        if (f->type == FIELD_TEXT)
            jwrite_str_set(w, f->name.p, *(const struct span *)at);
        else if (f->type == FIELD_INDEX)
            jwrite_i64(w, f->name.p, *(const int32_t *)at);
        else if (f->type == FIELD_OTHER)
            f->write(w, object);
        else if (f->type != FIELD_FLAG)
            write_number(w, f, object);
        else if (*(const bool *)at)
            jwrite_bool(w, f->name.p, true);
    }
    jwrite_object_end(w);
}

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
    {CARD("id", id), .type = FIELD_INDEX, .max = 65535, .why = "is not an index of a card"},
    {CARD("model", model)},
    {CARD("power", spec.power_w), CARD_SPEC},
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
    {.name = {0}},
};

/* Keeps the cards sorted by id. */
static void read_cards(struct reader *r)
{
    struct scv *scv = r->scv;
    size_t cap = SCV_MAX_CARDS;
    scv->n_cards = 0;
    scv->cards = arena_alloc(r->a, cap * sizeof *scv->cards);
    jread_array(r->j, "status.cardList");
    while (jread_item(r->j)) {
        struct scv_card card = {0};
        read_fields(r, "status.cardList[]", card_fields, &card);
        card.healthy = span_eq(card.health, SPAN("Healthy"));
        size_t at = ARRAY_LOWER_BOUND(c, scv->cards, scv->n_cards, c->id < card.id);
        if (scv->n_cards == SCV_MAX_CARDS)
            jread_fail(r->j, "status.cardList", "has more than 64 cards");
        else if (at < scv->n_cards && scv->cards[at].id == card.id)
            jread_fail(r->j, "status.cardList[].id", "is a duplicate");
        else
            *ARRAY_INSERT(scv->cards, scv->n_cards, cap, at) = card;
    }
}

int64_t scv_card_used(const struct scv_card *card)
{
    if (card->has_used)
        return card->used_mib;
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
#define MEASURED(most)                                                                   \
    .type = FIELD_MEASURED, .max = (most), .absent = ABSENT_NEGATIVE

static const struct field use_fields[] = {
    {USE("podUID", pod_uid)},
    {USE("promisedMemory", promised_mib), MEASURED(MIB_MAX)},
    {USE("usedMemory", used_mib), MEASURED(MIB_MAX)},
    {USE("utilization", sm_percent), MEASURED(100)},
    {USE("uuid", uuid)},
    {.name = {0}},
};

static void read_uuids(struct reader *r, void *object)
{
    struct scv_held *held = object;
    struct span uuids[SCV_MAX_CARDS];
    held->n_uuids = 0;
    jread_array(r->j, "status.podList[].cards");
    while (jread_item(r->j)) {
        struct span uuid = {0};
        jread_text(r->j, "status.podList[].cards[]", r->a, &uuid);
        if (held->n_uuids == SCV_MAX_CARDS)
            jread_fail(r->j, "status.podList[].cards", "has more than 64 cards");
        else
            uuids[held->n_uuids++] = uuid;
    }
    held->uuids = arena_alloc(r->a, held->n_uuids * sizeof *uuids);
    memcpy(held->uuids, uuids, held->n_uuids * sizeof *uuids);
}

static void write_uuids(struct jwrite *w, const void *object)
{
    const struct scv_held *held = object;
    jwrite_array(w, "cards");
    for (size_t i = 0; i < held->n_uuids; i++)
        jwrite_str(w, NULL, held->uuids[i]);
    jwrite_array_end(w);
}

static void read_uses(struct reader *r, void *object)
{
    struct scv_held *held = object;
    struct scv_use uses[SCV_MAX_CARDS];
    held->n_uses = 0;
    jread_array(r->j, "status.podList[].usage");
    while (jread_item(r->j)) {
        struct scv_use use = {.promised_mib = -1, .used_mib = -1, .sm_percent = -1};
        read_fields(r, "status.podList[].usage[]", use_fields, &use);
        if (held->n_uses < SCV_MAX_CARDS)
            uses[held->n_uses++] = use;
    }
    held->uses = arena_alloc(r->a, held->n_uses * sizeof *uses);
    memcpy(held->uses, uses, held->n_uses * sizeof *uses);
}

static void write_uses(struct jwrite *w, const void *object)
{
    const struct scv_held *held = object;
    if (!held->n_uses)
        return;
    jwrite_array(w, "usage");
    for (size_t i = 0; i < held->n_uses; i++)
        write_fields(w, use_fields, &held->uses[i]);
    jwrite_array_end(w);
}

static const struct field held_fields[] = {
    {HELD("cards", uuids), .type = FIELD_OTHER, .read = read_uuids, .write = write_uuids},
    {HELD("container", container)},
    {HELD("name", pod)},
    {HELD("namespace", ns)},
    {HELD("resource", resource)},
    {HELD("units", units), .type = FIELD_NUMBER, .absent = ABSENT_NEVER, .max = MIB_MAX,
     .why = too_large},
    {HELD("usage", uses), .type = FIELD_OTHER, .read = read_uses, .write = write_uses},
    {.name = {0}},
};

static const struct field process_fields[] = {
    {PROC("container", container)},
    {PROC("name", name)},
    {PROC("namespace", ns)},
    {PROC("pid", pid), .type = FIELD_MEASURED, .max = UINT32_MAX},
    {PROC("podUID", pod_uid)},
    {PROC("unmapped", unmapped), .type = FIELD_FLAG},
    {PROC("usedMemory", used_mib), MEASURED(MIB_MAX)},
    {PROC("utilization", sm_percent), MEASURED(100)},
    {PROC("uuid", uuid)},
    {.name = {0}},
};

/* podList and processList add to the uses, in any order. */
static void add_pod_use(struct reader *r, struct scv_pod_use use, struct span uuid)
{
    struct scv *scv = r->scv;
    if (scv->n_uses == SCV_MAX_HELD)
        return;
    use.card = scv_hash(uuid);
    MEM_GROW(scv->uses, r->cap_uses, scv->n_uses + 1);
    scv->uses[scv->n_uses++] = use;
}

/* Whose use it is: of the pod with this UID, or name if the UID is unknown. */
static struct scv_pod_use use_of_pod(struct span ns, struct span pod, struct span uid,
                                     int64_t used_mib, int64_t sm_percent)
{
    return (struct scv_pod_use){.user = uid.n ? SCV_USER_UID : SCV_USER_NAME,
                                .pod = uid.n ? scv_hash(uid) : scv_pod_hash(ns, pod),
                                .used_mib = used_mib,
                                .sm_percent = sm_percent};
}

static void read_pods(struct reader *r)
{
    struct scv *scv = r->scv;
    scv->n_held = scv->n_assignments = 0;
    jread_array(r->j, "status.podList");
    while (jread_item(r->j)) {
        struct scv_held held = {0};
        read_fields(r, "status.podList[]", held_fields, &held);
        for (size_t i = 0; i < held.n_uses; i++) {
            const struct scv_use *u = &held.uses[i];
            if (u->uuid.n)
                add_pod_use(r,
                            use_of_pod(held.ns, held.pod, u->pod_uid, u->used_mib,
                                       u->sm_percent),
                            u->uuid);
        }
        if (r->all || scv_is_nvidia_resource(held.resource)) {
            if (scv->n_held == SCV_MAX_HELD) {
                jread_fail(r->j, "status.podList", "has more than 8192 containers");
                continue;
            }
            MEM_GROW(scv->held, r->cap_held, scv->n_held + 1);
            scv->held[scv->n_held++] = held;
            continue;
        }
        for (size_t i = 0; i < held.n_uuids && held.units; i++) {
            if (!held.uuids[i].n || scv->n_assignments == SCV_MAX_HELD)
                continue;
            MEM_GROW(scv->assignments, r->cap_assignments, scv->n_assignments + 1);
            scv->assignments[scv->n_assignments++] = (struct scv_assignment){
                scv_pod_hash(held.ns, held.pod), scv_hash(held.uuids[i])};
        }
    }
}

static void read_processes(struct reader *r)
{
    struct scv *scv = r->scv;
    scv->n_processes = 0;
    scv->processes =
        r->all ? arena_alloc(r->a, SCV_MAX_PROCESSES * sizeof *scv->processes) : NULL;
    jread_array(r->j, "status.processList");
    while (jread_item(r->j)) {
        struct scv_process p = {.used_mib = -1, .sm_percent = -1};
        read_fields(r, "status.processList[]", process_fields, &p);
        if (!p.pid) { /* a container: `name` is that of its pod */
            p.pod = p.name;
            p.name = (struct span){0};
        }
        struct scv_pod_use use =
            use_of_pod(p.ns, p.pod, p.pod_uid, p.used_mib, p.sm_percent);
        if (p.pid) {
            use.user = SCV_USER_PROCESS;
            use.pod = 0;
        }
        add_pod_use(r, use, p.uuid);
        if (r->all && scv->n_processes < SCV_MAX_PROCESSES)
            scv->processes[scv->n_processes++] = p;
    }
}

/* -- the object -- */

static void read_status(struct reader *r)
{
    struct jread *j = r->j;
    struct scv *scv = r->scv;
    struct jread_str key;
    struct span time;
    jread_object(j, "status");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "cardList"))
            read_cards(r);
        else if (jread_key_is(key, "updateTime"))
            scv->has_update_time = jread_text(j, "status.updateTime", r->a, &time) &&
                                   clock_parse(time, &scv->update_time);
        else if (r->all && jread_key_is(key, "driverVersion"))
            jread_text(j, "status.driverVersion", r->a, &scv->driver_version);
        else if (r->all && jread_key_is(key, "cudaVersion"))
            jread_text(j, "status.cudaVersion", r->a, &scv->cuda_version);
        else if (jread_key_is(key, "podList"))
            read_pods(r);
        else if (jread_key_is(key, "processList"))
            read_processes(r);
        else
            jread_skip(j);
    }
}

static const struct field spec_fields[] = {
    {FIELD("spec.", "updateInterval", scv, update_interval_ms), .type = FIELD_NUMBER,
     .max = MIB_MAX, .why = too_large},
    {.name = {0}},
};

/* Moves a list into the arena. */
static void *move_list(struct arena *a, void *list, size_t bytes)
{
    void *copy = bytes ? memcpy(arena_alloc(a, bytes), list, bytes) : NULL;
    free(list);
    return copy;
}

static void read_scv(struct jread *j, struct arena *a, bool all, struct scv *scv)
{
    struct reader r = {.j = j, .a = a, .all = all, .scv = scv};
    struct jread_str key;
    *scv = (struct scv){0};
    jread_object(j, "scv");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "metadata"))
            object_meta_read(j, a, &scv->meta, NULL, 0);
        else if (jread_key_is(key, "status"))
            read_status(&r);
        else if (all && jread_key_is(key, "spec"))
            read_fields(&r, "spec", spec_fields, scv);
        else
            jread_skip(j);
    }
    object_meta_check(j, &scv->meta);
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
            write_fields(w, card_fields, &scv->cards[i]);
            total += scv->cards[i].total_mib;
            free_mib += scv->cards[i].free_mib;
        }
        jwrite_array_end(w);
        jwrite_i64(w, "cardNumber", (int64_t)scv->n_cards);
    }
    jwrite_str_set(w, "cudaVersion", scv->cuda_version);
    jwrite_str_set(w, "driverVersion", scv->driver_version);
    if (free_mib)
        jwrite_i64(w, "freeMemorySum", free_mib);
    if (scv->n_held) {
        jwrite_array(w, "podList");
        for (size_t i = 0; i < scv->n_held; i++)
            write_fields(w, held_fields, &scv->held[i]);
        jwrite_array_end(w);
    }
    if (scv->n_processes) {
        jwrite_array(w, "processList");
        for (size_t i = 0; i < scv->n_processes && i < SCV_MAX_PROCESSES; i++) {
            struct scv_process p = scv->processes[i];
            p.name = p.pid ? p.name : p.pod;
            write_fields(w, process_fields, &p);
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
    if (scv->owner_uid.n) {
        jwrite_array(&w, "ownerReferences");
        jwrite_object(&w, NULL);
        jwrite_str(&w, "apiVersion", SPAN("v1"));
        jwrite_str(&w, "kind", SPAN("Node"));
        jwrite_str(&w, "name", scv->meta.name);
        jwrite_str(&w, "uid", scv->owner_uid);
        jwrite_object_end(&w);
        jwrite_array_end(&w);
    }
    jwrite_str_set(&w, "resourceVersion", scv->meta.version);
    jwrite_object_end(&w);
    jwrite_key(&w, SPAN("spec"));
    write_fields(&w, spec_fields, scv);
    jwrite_key(&w, SPAN("status"));
    write_status(&w, scv);
    jwrite_object_end(&w);
}
