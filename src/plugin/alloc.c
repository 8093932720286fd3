/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/alloc.h"

#include <stdlib.h>

#include "base/mem.h"
#include "plugin/alloc_priv.h"

enum { TICK_MS = 1000 };

struct alloc *alloc_new(const struct alloc_settings *settings)
{
    struct alloc *a = xcalloc(1, sizeof *a);
    a->settings = *settings;
    a->node = xstrdup(settings->node);
    a->settings.node = a->node;
    a->era = 1;
    a->settings.response.unit_mib = settings->unit_mib;
    cards_init(&a->cards, settings->unit_mib, settings->well_ms, settings->hold_ms,
               settings->silent_ms);
    return a;
}

void alloc_free(struct alloc *a)
{
    if (!a)
        return;
    for (struct pupil *p = a->pupils, *next; p; p = next) {
        next = p->next;
        pupil_free(p);
    }
    for (struct ask *ask = a->asks, *next; ask; ask = next) {
        next = ask->next;
        ask_free(ask);
    }
    who_forget_strangers(a);
    grants_fini(&a->grants);
    free(a->node);
    free(a);
}

void alloc_adopt(struct alloc *a, struct grants *from)
{
    for (size_t i = 0; i < from->n; i++) {
        struct grant *g = from->items[i];
        if (grants_find(&a->grants, g->uid, g->container, g->resource))
            grant_free(g);
        else
            grants_put(&a->grants, g);
    }
    from->n = 0;
    grants_fini(from);
}

void alloc_cgpu_disable(struct alloc *a, bool on)
{
    a->settings.response.cgpu_disable = on;
}

void alloc_hurry(struct alloc *a, int64_t at_ms)
{
    if (at_ms < a->due_ms)
        a->due_ms = at_ms;
}

bool read_unit(const struct alloc *a, enum ids_resource r, struct span text,
               struct unit *unit)
{
    struct ids_id id;
    if (!ids_read(r, text, &id))
        return false;
    *unit = (struct unit){cards_by_tag(&a->cards, &id.tag), id.unit};
    return unit->card && id.unit < unit->card->most_units;
}

/* Cards */

static void note_cards(const struct alloc *a, struct alloc_outputs *out)
{
    for (size_t i = 0; i < a->cards.n; i++) {
        const struct plugin_card *c = &a->cards.items[i];
        alloc_out_note(out, c->healthy ? LOG_INFO : LOG_WARN,
                       "card %s%s%s: %lld units%s%s", alloc_out_card(out, c),
                       c->model[0] ? ", " : "", c->model, (long long)c->units,
                       c->healthy ? "" : ", out: ", c->why);
    }
}

bool alloc_cards(struct alloc *a, struct alloc_time now, const struct card_seen *seen,
                 size_t n, const char *failed, struct alloc_outputs *out)
{
    struct err err = {0};
    bool changed = failed ? cards_unseen(&a->cards, now.mono_ms, failed)
                          : cards_seen(&a->cards, now.mono_ms, seen, n, &err);
    if (err.code != ERR_NONE && changed)
        alloc_out_note(out, LOG_ERROR, "%s", err.msg);
    if (changed)
        note_cards(a, out);
    return changed;
}

bool alloc_card_struck(struct alloc *a, struct alloc_time now, struct span uuid,
                       const char *what, struct alloc_outputs *out)
{
    bool changed = cards_struck(&a->cards, now.mono_ms, uuid, what);
    if (changed)
        note_cards(a, out);
    return changed;
}

void alloc_kubelet_started(struct alloc *a, struct alloc_time now,
                           struct alloc_outputs *out)
{
    a->era++;
    a->offer.valid = false;
    a->no_get = false;
    who_forget_strangers(a);
    for (struct pupil *p = a->pupils; p; p = p->next)
        p->audited_ms = 0;
    alloc_hurry(a, now.mono_ms);
    (void)out;
}

/* The kubelet shows */

static void hear(struct alloc *a, struct alloc_time now, const struct alloc_shown *shown)
{
    a->heard_ms = now.mono_ms;
    if (shown->err && !shown->unsupported)
        trouble_note(&a->kubelet, now.mono_ms, shown->err);
    else
        trouble_over(&a->kubelet);
}

void alloc_shown(struct alloc *a, struct alloc_time now, const struct alloc_shown *shown,
                 struct alloc_outputs *out)
{
    hear(a, now, shown);
    for (struct ask *ask = a->asks; ask; ask = ask->next)
        if (ask->query == shown->query && ask->state == ASK_LOOKING) {
            ask_shown(a, now, ask, shown, out);
            return;
        }
    if (shown->query == a->audit_query)
        audit_answer(a, now, shown, out);
    alloc_out_save(a, out);
}

/* Time */

/* A tick that comes late: the whole process was stopped, or its disk was slow. */
static bool wait_for_cards(struct alloc *a, struct alloc_time now,
                           struct alloc_outputs *out)
{
    int64_t late = now.mono_ms - a->due_ms;
    if (!cards_waited(&a->cards, now.mono_ms, late > TICK_MS ? late : 0))
        return false;
    note_cards(a, out);
    return true;
}

bool alloc_tick(struct alloc *a, struct alloc_time now, struct alloc_outputs *out)
{
    bool changed = wait_for_cards(a, now, out);
    a->due_ms = now.mono_ms + TICK_MS;
    ask_tick(a, now, out);
    for (struct pupil *p = a->pupils; p; p = p->next)
        pupil_mark(a, now, p, out);
    audit_tick(a, now, out);
    alloc_out_save(a, out);
    return changed;
}

int64_t alloc_due(const struct alloc *a)
{
    return a->due_ms;
}

const struct cards *alloc_cards_of(const struct alloc *a)
{
    return &a->cards;
}

const struct grants *alloc_grants(const struct alloc *a)
{
    return &a->grants;
}

bool alloc_listed(const struct alloc *a)
{
    return a->listed;
}

const struct trouble *alloc_kubelet_trouble(const struct alloc *a)
{
    return &a->kubelet;
}

const struct alloc_stats *alloc_stats(const struct alloc *a)
{
    return &a->stats;
}
