/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/publisher_priv.h"

#include <stdlib.h>

#include "base/mem.h"

static struct card_health_seen *told_of(struct publisher *m, const struct gpu_card *g)
{
    for (size_t i = 0; i < m->n_told; i++)
        if (strcmp(m->told[i].uuid, g->uuid) == 0 &&
            (g->uuid[0] || m->told[i].index == g->index))
            return &m->told[i];
    return NULL;
}

/* Tells of each card whose health has changed. */
static void note_health(struct step *s)
{
    struct publisher *m = s->m;
    size_t n = card_inventory_count(m->cards);
    struct card_health_seen *now = xcalloc(n + 1, sizeof *now);
    for (size_t i = 0; i < n; i++) {
        const char *why = "";
        bool healthy;
        const struct gpu_card *g = card_inventory_card(m->cards, i, &healthy, &why);
        const struct card_health_seen *before = told_of(m, g);
        if (!healthy && (!before || before->healthy))
            publisher_log(s, ERR_UNAVAILABLE, "GPU%d %s is Unhealthy: %s", (int)g->index,
                         g->uuid, why);
        else if (healthy && before && !before->healthy)
            publisher_log(s, ERR_NONE, "GPU%d %s is Healthy again", (int)g->index,
                         g->uuid);
        memcpy(now[i].uuid, g->uuid, sizeof now[i].uuid);
        now[i].index = g->index;
        now[i].healthy = healthy;
    }
    free(m->told);
    m->told = now;
    m->n_told = n;
}

static void note_sampling(struct step *s, bool works)
{
    struct publisher *m = s->m;
    bool changed = !m->sampled || m->sampling_works != works || m->silent;
    if (changed && works)
        publisher_log(s, ERR_NONE, "%zu cards, driver %s", card_inventory_count(m->cards),
                     card_inventory_driver(m->cards));
    else if (changed)
        publisher_log(s, s->in->err->code, "no cards can be read: %s", s->in->err->msg);
}

void publisher_cards_on_sample(struct step *s)
{
    struct publisher *m = s->m;
    bool works = publisher_error_code(s->in) == ERR_NONE;
    if (works)
        card_inventory_sample(m->cards, s->now.mono_ms, s->in->sample);
    else
        card_inventory_failed(m->cards, s->now.mono_ms, s->in->err->msg, false);
    note_sampling(s, works);
    note_health(s);
    m->sampled = true;
    m->sampling_works = works;
    m->silent = false;
    m->sampled_ms = s->now.mono_ms;
    m->taken_wall_ms = s->now.wall_ms;
    publisher_scv_render(s);
}

void publisher_cards_on_event(struct step *s)
{
    const struct gpu_event *e = s->in->event;
    if (e->kind == GPU_EVENT_NONE)
        return;
    if (card_inventory_event(s->m->cards, s->now.mono_ms, e)) {
        note_health(s);
        publisher_scv_render(s);
    } else if (e->kind == GPU_EVENT_XID) {
        publisher_log(s, ERR_NONE, "XID %lld of %s: a program's own mistake",
                     (long long)e->xid, e->uuid[0] ? e->uuid : "a card");
    }
}

void publisher_cards_on_pods(struct step *s)
{
    struct publisher *m = s->m;
    if (publisher_error_code(s->in) != ERR_NONE) {
        if (!m->pods_noted)
            publisher_log(s, s->in->err->code, "no list of pods: %s", s->in->err->msg);
        m->pods_noted = true;
        return;
    }
    if (m->pods_noted)
        publisher_log(s, ERR_NONE, "the list of pods works again");
    m->pods_noted = false;
    m->has_pods = true;
    m->pods_ms = s->now.mono_ms;
    arena_reset(&m->pods_arena);
    container_devices_normalize(s->in->pods, &m->pods_arena, &m->pods);
    publisher_scv_render(s);
}

static void check_sampler(struct step *s)
{
    struct publisher *m = s->m;
    struct err err;
    if (m->silent || publisher_check(m, s->now, PUBLISHER_CHECK_CARDS, &err) == 0)
        return;
    publisher_log(s, ERR_TIMEOUT, "%s", err.msg);
    card_inventory_failed(m->cards, s->now.mono_ms, "the driver does not answer any more",
                     true);
    note_health(s);
    m->silent = m->sampled = true;
    m->sampling_works = false;
    publisher_scv_render(s);
}

void publisher_cards_tick(struct step *s)
{
    struct publisher *m = s->m;
    check_sampler(s);
    if (m->has_pods && s->now.mono_ms - m->pods_ms > m->settings.pods_limit_ms) {
        m->has_pods = false;
        publisher_scv_render(s);
    }
}

void publisher_cards_adopt(struct step *s, const struct scv *scv)
{
    card_inventory_adopt(s->m->cards, s->now.mono_ms, scv);
    note_health(s);
    publisher_scv_render(s);
}
