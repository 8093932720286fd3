/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/scv.h"

#include "base/clock.h"
#include "base/mem.h"

int64_t scv_bandwidth(int64_t generation, int64_t lanes)
{
    static const int64_t lane[] = {0, 250, 500, 985, 1969, 3938, 7563};
    if (generation < 1 || generation >= (int64_t)ARRAY_LEN(lane) || lanes < 0 ||
        lanes > 64)
        return 0;
    return lane[generation] * lanes;
}

/* Writes the members of an object with commas between them. */
struct members {
    struct buf *out;
    bool any;
};

static void key(struct members *m, const char *name)
{
    buf_adds(m->out, m->any ? ",\"" : "{\"");
    m->any = true;
    buf_adds(m->out, name);
    buf_adds(m->out, "\":");
}

static void end(struct members *m)
{
    buf_adds(m->out, m->any ? "}" : "{}");
}

static void number(struct members *m, const char *name, int64_t value)
{
    key(m, name);
    buf_add_i64(m->out, value);
}

/* Like omitempty in Go. */
static void number_not_0(struct members *m, const char *name, int64_t value)
{
    if (value)
        number(m, name, value);
}

static void text(struct members *m, const char *name, struct span value)
{
    if (!value.n)
        return;
    key(m, name);
    buf_add_json(m->out, value);
}

static void flag(struct members *m, const char *name, bool value)
{
    if (!value)
        return;
    key(m, name);
    buf_adds(m->out, "true");
}

static void write_card(struct buf *out, const struct scv_card *card)
{
    static const struct scv_extra nothing;
    const struct scv_extra *x = card->extra ? card->extra : &nothing;
    struct members m = {.out = out};
    number_not_0(&m, "bandwidth", card->spec.bandwidth);
    text(&m, "busId", card->bus_id);
    number_not_0(&m, "clock", card->spec.clock_mhz);
    number_not_0(&m, "core", card->spec.core_mhz);
    number_not_0(&m, "freeMemory", card->free_mib);
    text(&m, "health", card->health);
    number(&m, "id", card->id);
    text(&m, "model", card->model);
    number_not_0(&m, "power", card->spec.power_w);
    if (x->has_temperature)
        number(&m, "temperature", x->temperature);
    number_not_0(&m, "totalMemory", card->total_mib);
    flag(&m, "usageComplete", card->use_complete);
    if (card->has_used)
        number(&m, "usedMemory", card->used_mib);
    if (x->has_utilization)
        number(&m, "utilization", x->utilization);
    text(&m, "uuid", card->uuid);
    end(&m);
}

static void number_if_known(struct members *m, const char *name, int64_t value)
{
    if (value >= 0)
        number(m, name, value);
}

static void write_uses(struct members *m, const struct scv_held *held)
{
    if (!held->n_uses)
        return;
    key(m, "usage");
    for (size_t i = 0; i < held->n_uses; i++) {
        const struct scv_use *use = &held->uses[i];
        struct members one = {.out = m->out};
        buf_addc(m->out, i ? ',' : '[');
        text(&one, "podUID", use->pod_uid);
        number_if_known(&one, "promisedMemory", use->promised_mib);
        number_if_known(&one, "usedMemory", use->used_mib);
        number_if_known(&one, "utilization", use->sm_percent);
        text(&one, "uuid", use->uuid);
        end(&one);
    }
    buf_addc(m->out, ']');
}

static void write_process(struct buf *out, const struct scv_process *p)
{
    struct members m = {.out = out};
    text(&m, "container", p->container);
    text(&m, "name", p->pid ? p->name : p->pod);
    text(&m, "namespace", p->ns);
    number_not_0(&m, "pid", p->pid);
    text(&m, "podUID", p->pod_uid);
    flag(&m, "unmapped", p->unmapped);
    number_if_known(&m, "usedMemory", p->used_mib);
    number_if_known(&m, "utilization", p->sm_percent);
    text(&m, "uuid", p->uuid);
    end(&m);
}

static void write_held(struct buf *out, const struct scv_held *held)
{
    struct members m = {.out = out};
    key(&m, "cards");
    for (size_t i = 0; i < held->n_uuids; i++) {
        buf_addc(out, i ? ',' : '[');
        buf_add_json(out, held->uuids[i]);
    }
    buf_adds(out, held->n_uuids ? "]" : "[]");
    text(&m, "container", held->container);
    text(&m, "name", held->pod);
    text(&m, "namespace", held->ns);
    text(&m, "resource", held->resource);
    number(&m, "units", held->units);
    write_uses(&m, held);
    end(&m);
}

static void write_cards(struct members *m, const struct scv *scv)
{
    if (!scv->n_cards)
        return;
    key(m, "cardList");
    for (size_t i = 0; i < scv->n_cards; i++) {
        buf_addc(m->out, i ? ',' : '[');
        write_card(m->out, &scv->cards[i]);
    }
    buf_addc(m->out, ']');
    number(m, "cardNumber", (int64_t)scv->n_cards);
}

static void write_held_list(struct members *m, const struct scv *scv)
{
    if (!scv->n_held)
        return;
    key(m, "podList");
    for (size_t i = 0; i < scv->n_held; i++) {
        buf_addc(m->out, i ? ',' : '[');
        write_held(m->out, &scv->held[i]);
    }
    buf_addc(m->out, ']');
}

static void write_processes(struct members *m, const struct scv *scv)
{
    if (!scv->n_processes)
        return;
    key(m, "processList");
    for (size_t i = 0; i < scv->n_processes && i < SCV_MAX_PROCESSES; i++) {
        buf_addc(m->out, i ? ',' : '[');
        write_process(m->out, &scv->processes[i]);
    }
    buf_addc(m->out, ']');
}

static void write_workloads(struct members *m, const struct scv *scv)
{
    for (size_t i = 0; i < scv->n_workloads; i++) {
        const struct scv_workload *w = &scv->workloads[i];
        struct members item = {.out = m->out};
        if (!i)
            key(m, "workloadList");
        buf_addc(m->out, i ? ',' : '[');
        number(&item, "ageHours", w->age_hours);
        text(&item, "container", w->container);
        number(&item, "hours", w->hours);
        text(&item, "kind", w->kind);
        number(&item, "maxMemory", w->max_mib);
        text(&item, "name", w->name);
        text(&item, "namespace", w->ns);
        number(&item, "p95Memory", w->p95_mib);
        if (w->promised_mib >= 0)
            number(&item, "promisedMemory", w->promised_mib);
        end(&item);
    }
    if (scv->n_workloads)
        buf_addc(m->out, ']');
}

void scv_write_status(struct buf *out, const struct scv *scv)
{
    struct members m = {.out = out};
    int64_t total = 0, free_mib = 0;
    for (size_t i = 0; i < scv->n_cards; i++) {
        total += scv->cards[i].total_mib;
        free_mib += scv->cards[i].free_mib;
    }
    write_cards(&m, scv);
    text(&m, "cudaVersion", scv->cuda_version);
    text(&m, "driverVersion", scv->driver_version);
    number_not_0(&m, "freeMemorySum", free_mib);
    write_held_list(&m, scv);
    write_processes(&m, scv);
    number_not_0(&m, "totalMemorySum", total);
    if (scv->has_update_time) {
        key(&m, "updateTime");
        buf_addc(out, '"');
        clock_format_s(out, scv->update_time);
        buf_addc(out, '"');
    }
    write_workloads(&m, scv);
    end(&m);
}

static void write_meta(struct buf *out, const struct scv *scv)
{
    struct members m = {.out = out};
    text(&m, "name", scv->meta.name);
    if (scv->owner_uid.n) {
        key(&m, "ownerReferences");
        buf_adds(out, "[{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"name\":");
        buf_add_json(out, scv->meta.name);
        buf_adds(out, ",\"uid\":");
        buf_add_json(out, scv->owner_uid);
        buf_adds(out, "}]");
    }
    text(&m, "resourceVersion", scv->meta.version);
    end(&m);
}

void scv_write(struct buf *out, const struct scv *scv)
{
    struct members spec = {.out = out};
    buf_adds(out, "{\"apiVersion\":\"core.run-linux.com/v1\",\"kind\":\"Scv\","
                  "\"metadata\":");
    write_meta(out, scv);
    buf_adds(out, ",\"spec\":");
    number_not_0(&spec, "updateInterval", scv->update_interval_ms);
    end(&spec);
    buf_adds(out, ",\"status\":");
    scv_write_status(out, scv);
    buf_addc(out, '}');
}
