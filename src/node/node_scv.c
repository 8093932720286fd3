/* SPDX-License-Identifier: Apache-2.0 */
/* The Scv's status from samples, devices and use, and whether its numbers have changed. */
#include "node/node_scv.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/mem.h"

/* -- podList -- */

void node_scv_add_pods(const struct podresources *pods, struct scv *scv, struct arena *a)
{
    struct ids_card *cards = arena_alloc(a, (scv->n_cards + 1) * sizeof *cards);
    for (size_t i = 0; i < scv->n_cards; i++)
        cards[i] = ids_card_of(scv->cards[i].uuid);
    scv->held = arena_alloc(a, (pods->n + 1) * sizeof *scv->held);
    for (scv->n_held = 0; scv->n_held < pods->n && scv->n_held < SCV_MAX_HELD;
         scv->n_held++) {
        const struct podresources_entry *e = &pods->entries[scv->n_held];
        struct scv_held *held = &scv->held[scv->n_held];
        *held = (struct scv_held){
            .ns = e->ns,
            .pod = e->pod,
            .container = e->container,
            .resource = e->resource,
            .units = e->al ? allocation_amount(e->al) : (int64_t)e->n_ids,
            .uuids = arena_alloc(a, (scv->n_cards + 1) * sizeof *held->uuids)};
        for (size_t i = 0; i < scv->n_cards; i++)
            if (podresources_ids_on(e, &cards[i]))
                held->uuids[held->n_uuids++] = cards[i].uuid;
    }
}

/* -- what containers and processes use -- */

static int by_holder(const struct scv_held *h, const struct usage_container *c)
{
    return span_cmp(h->ns, c->ns)
               ?: span_cmp(h->pod, c->pod)
               ?: span_cmp(h->container, c->name);
}

/* The item of a container for a card; NULL: none. */
static struct scv_held *item_of(const struct scv *scv, const struct usage_container *c,
                                struct span uuid)
{
    size_t from = ARRAY_LOWER_BOUND(h, scv->held, scv->n_held, by_holder(h, c) < 0);
    if (!c->ns.n || from == scv->n_held || by_holder(&scv->held[from], c))
        return NULL;
    for (size_t i = from; i < scv->n_held && !by_holder(&scv->held[i], c); i++)
        for (size_t k = 0; k < scv->held[i].n_uuids; k++)
            if (span_eq(scv->held[i].uuids[k], uuid))
                return &scv->held[i];
    return &scv->held[from];
}

/* `left_out`: bits of the cards of which a process has no place in the list. */
static void add_process(struct scv *scv, const struct scv_process *p, size_t card,
                        uint64_t *left_out)
{
    if (scv->n_processes < SCV_MAX_PROCESSES)
        scv->processes[scv->n_processes++] = *p;
    else
        *left_out |= UINT64_C(1) << card;
}

/* The cgroup of a static pod has a hash in place of the UID that the API shows. */
static struct span uid_of(const struct usage_container *c)
{
    return c->pod_uid.n && memchr(c->pod_uid.p, '-', c->pod_uid.n) ? c->pod_uid
                                                                   : (struct span){0};
}

void node_scv_add_usage(const struct usage *u, struct scv *scv, struct arena *a)
{
    uint64_t left_out = 0;
    scv->processes = arena_alloc(a, SCV_MAX_PROCESSES * sizeof *scv->processes);
    scv->n_processes = 0;
    ARRAY_EACH_ITEM(const struct usage_container, c, u->containers, u->n_containers)
    {
        struct span uuid = u->cards[c->card].uuid;
        struct scv_held *item = item_of(scv, c, uuid);
        if (item && !item->n_uses)
            item->uses = arena_alloc(a, SCV_MAX_CARDS * sizeof *item->uses);
        if (item && item->n_uses < SCV_MAX_CARDS)
            item->uses[item->n_uses++] =
                (struct scv_use){.uuid = uuid,
                                 .pod_uid = uid_of(c),
                                 .promised_mib = c->promised_mib,
                                 .used_mib = c->used_mib,
                                 .unlimited_mib = c->unlimited_mib ?: -1,
                                 .sm_percent = c->sm_percent,
                                 .enforced_by = c->enforced_by};
        else if (c->n_pids || c->used_mib > 0)
            add_process(scv,
                        &(struct scv_process){.uuid = uuid,
                                              .ns = c->ns,
                                              .pod = c->pod.n ? c->pod : c->pod_uid,
                                              .container = c->name,
                                              .pod_uid = uid_of(c),
                                              .used_mib = c->used_mib,
                                              .unlimited_mib = c->unlimited_mib ?: -1,
                                              .sm_percent = c->sm_percent},
                        c->card, &left_out);
    }
    ARRAY_EACH_ITEM(const struct usage_process, p, u->outside, u->n_outside)
    add_process(scv,
                &(struct scv_process){.uuid = u->cards[p->card].uuid,
                                      .pid = p->pid.pid,
                                      .name = span_of(p->name),
                                      .unmapped = p->unmapped,
                                      .used_mib = p->used_mib,
                                      .unlimited_mib = -1,
                                      .sm_percent = p->sm_percent},
                p->card, &left_out);
    /* The numbers belong together if both readings found the card's memory the same. A sample
     * that failed is tolerated for a while: the Scv then keeps the memory of an older one. */
    ARRAY_EACH_ITEM(struct scv_card, card, scv->cards, scv->n_cards)
    for (size_t k = 0; k < u->n_cards; k++) {
        const struct usage_card *of = &u->cards[k];
        card->use_complete |= !(left_out >> k & 1) && of->complete && card->uuid.n &&
                              span_eq(of->uuid, card->uuid) &&
                              of->total_mib == card->total_mib &&
                              of->free_mib == card->free_mib;
    }
}

/* -- the patch -- */

void node_scv_status_patch(struct buf *out, const struct scv *scv)
{
    static const char *const names[] = {
        "cardList",      "cardNumber",     "cudaVersion", "dialect",
        "driverVersion", "freeMemorySum",  "isolation",   "podList",
        "processList",   "totalMemorySum", "updateTime"};
    size_t at = out->n;
    scv_write_status(out, scv);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        cleanup_free char *key = xasprintf("\"%s\":", names[i]);
        if (strstr(out->p + at, key)) /* a string has its quotes escaped */
            continue;
        out->n--; /* the closing brace */
        buf_printf(out, "%s%snull}", out->p[out->n - 1] == '{' ? "" : ",", key);
    }
}

/* -- the numbers of an Scv -- */

static void add_number(struct node_scv_numbers *w, int64_t value, int64_t step)
{
    MEM_GROW(w->at, w->cap, w->n + 1);
    w->at[w->n++] = (struct node_scv_number){value, step};
}

/* `names` and `number` say whose numbers follow. */
static void add_key(struct node_scv_numbers *w, const struct span *names, size_t n,
                    int64_t number)
{
    uint64_t key = hash_bytes(n, &number, sizeof number);
    for (size_t i = 0; i < n; i++)
        key = hash_bytes(hash_bytes(key, names[i].p, names[i].n), "", 1);
    add_number(w, (int64_t)(key >> 1), 1);
}

/* Changes of MiB, and of percent or degrees. */
void node_scv_numbers_read(struct node_scv_numbers *w, const struct scv *scv)
{
    w->n = 0;
    ARRAY_EACH_ITEM(const struct scv_held, h, scv->held, scv->n_held)
    ARRAY_EACH_ITEM(const struct scv_use, use, h->uses, h->n_uses)
    {
        add_key(w, (struct span[]){h->ns, h->pod, h->container, use->uuid, use->pod_uid},
                5, use->enforced_by);
        add_number(w, use->promised_mib, 1);
        add_number(w, use->used_mib, 64);
        add_number(w, use->sm_percent, 5);
    }
    ARRAY_EACH_ITEM(const struct scv_process, p, scv->processes, scv->n_processes)
    {
        add_key(
            w, (struct span[]){p->ns, p->pod, p->container, p->uuid, p->name, p->pod_uid},
            6, p->pid);
        add_number(w, p->used_mib, 64);
        add_number(w, p->sm_percent, 5);
    }
    ARRAY_EACH_ITEM(const struct scv_card, c, scv->cards, scv->n_cards)
    {
        add_key(w, &c->uuid, 1, c->id);
        add_number(w, c->use_complete, 1);
        add_number(w, c->has_utilization ? c->utilization : -1, 5);
        add_number(w, c->has_temperature ? c->temperature : -1, 3);
    }
}

void node_scv_numbers_fini(struct node_scv_numbers *w)
{
    free(w->at);
}

/* An unknown number is a step away from every known one. */
bool node_scv_numbers_differ(const struct node_scv_numbers *w, const struct scv *scv)
{
    struct node_scv_numbers now = {0};
    node_scv_numbers_read(&now, scv);
    bool differs = now.n != w->n;
    for (size_t i = 0; i < now.n && !differs; i++) {
        const int64_t a = now.at[i].value, b = w->at[i].value;
        differs = (a < 0) != (b < 0) || llabs(a - b) >= now.at[i].step;
    }
    node_scv_numbers_fini(&now);
    return differs;
}
