/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/card_health.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

enum {
    PATIENTS = 4 * GPU_MAX_CARDS, /* cards that are gone are remembered for a while */
};

struct patient {
    char uuid[96];
    int32_t index;
    int64_t seen_ms; /* when it was in a sample last */
    bool fine;       /* it was fine in the last sample that had it */
    int64_t fine_ms; /* since when */
    bool recovering; /* it has been ill, and is not healthy again yet */
    bool held;       /* an event came, at */
    int64_t event_ms;
    char why[200];
};

struct card_health {
    struct card_health_settings settings;
    struct patient patients[PATIENTS];
    size_t n;
};

struct card_health *card_health_new(const struct card_health_settings *settings)
{
    struct card_health *h = xcalloc(1, sizeof *h);
    h->settings = *settings;
    return h;
}

void card_health_free(struct card_health *h)
{
    free(h);
}

static bool is_of(const struct patient *p, const char *uuid, int32_t index)
{
    return !strcmp(p->uuid, uuid) && (*uuid || p->index == index);
}

static struct patient *find(const struct card_health *h, const char *uuid, int32_t index)
{
    for (size_t i = 0; i < h->n; i++)
        if (is_of(&h->patients[i], uuid, index))
            return (struct patient *)&h->patients[i];
    return NULL;
}

/* When there is no room, in place of the one that was not seen for longest. */
static struct patient *add(struct card_health *h, const struct gpu_card *card, int64_t now_ms)
{
    struct patient *p = &h->patients[0];
    if (h->n < PATIENTS)
        p = &h->patients[h->n++];
    else
        for (size_t i = 1; i < PATIENTS; i++)
            if (h->patients[i].seen_ms < p->seen_ms)
                p = &h->patients[i];
    *p = (struct patient){.index = card->index, .fine = true, .fine_ms = now_ms};
    memcpy(p->uuid, card->uuid, sizeof p->uuid);
    return p;
}

/* Is a time over that began then? No sum that may be too large. */
static bool is_over(int64_t now_ms, int64_t since_ms, int64_t lasts_ms)
{
    return now_ms - since_ms >= lasts_ms;
}

static void look(const struct card_health *h, struct patient *p, const struct gpu_card *card,
                 int64_t now_ms)
{
    bool fine = card->state == GPU_OK;
    if (fine && !p->fine)
        p->fine_ms = now_ms;
    p->fine = fine;
    p->seen_ms = now_ms;
    p->index = card->index;
    if (!fine) {
        p->recovering = true;
        memcpy(p->why, card->why, sizeof p->why);
        return;
    }
    if (p->held && is_over(now_ms, p->event_ms, h->settings.hold_ms))
        p->held = false;
    if (p->recovering && is_over(now_ms, p->fine_ms, h->settings.recover_ms))
        p->recovering = false;
}

void card_health_sample(struct card_health *h, int64_t now_ms, const struct gpu_sample *s)
{
    for (size_t i = 0; i < s->n_cards; i++) {
        struct patient *p = find(h, s->cards[i].uuid, s->cards[i].index);
        look(h, p ? p : add(h, &s->cards[i], now_ms), &s->cards[i], now_ms);
    }
}

bool card_health_event(struct card_health *h, int64_t now_ms, const struct gpu_event *event)
{
    bool any = false, all = !*event->uuid && event->index < 0;
    if (event->kind == GPU_EVENT_NONE ||
        (event->kind == GPU_EVENT_XID && gpu_xid_is_of_program(event->xid)))
        return false;
    for (size_t i = 0; i < h->n; i++) {
        struct patient *p = &h->patients[i];
        if (!all && !is_of(p, event->uuid, event->index))
            continue;
        any = p->held = true;
        p->event_ms = now_ms;
        if (event->kind == GPU_EVENT_XID)
            snprintf(p->why, sizeof p->why, "XID %" PRId64 " was told", event->xid);
        else
            snprintf(p->why, sizeof p->why,
                     "an error of its memory could not be corrected");
    }
    return any;
}

bool card_health_is_good(const struct card_health *h, const struct gpu_card *card, const char **why)
{
    const struct patient *p = find(h, card->uuid, card->index);
    const char *words = card->why;
    bool good = card->state == GPU_OK;
    if (good && p && (p->held || p->recovering)) {
        good = false;
        words = p->why;
    }
    if (why && !good)
        *why = words;
    return good;
}
