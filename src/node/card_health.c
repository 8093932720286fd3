/* SPDX-License-Identifier: Apache-2.0 */
/* The state machine of a card's health. */
#include "node/card_health.h"

#include <inttypes.h>
#include <stdio.h>

/* A difference, because a sum with INT64_MAX overflows. */
static bool has_passed(int64_t now_ms, int64_t since_ms, int64_t duration_ms)
{
    return now_ms - since_ms >= duration_ms;
}

enum card_health_reading card_health_read(const struct gpu_card *card,
                                          const char **reason)
{
    *reason = card->why[0] ? card->why : gpu_state_name(card->state);
    if (card->state == GPU_UNREADABLE)
        return CARD_HEALTH_UNREADABLE;
    if (card->state != GPU_OK)
        return CARD_HEALTH_FAILED;
    if (gpu_knows(card, GPU_MEM_TOTAL))
        return CARD_HEALTH_GOOD;
    *reason = "memory size is unknown";
    return CARD_HEALTH_UNREADABLE;
}

static void fail(struct card_health *h, const char *reason)
{
    h->healthy = h->good = false;
    snprintf(h->reason, sizeof h->reason, "%s", reason);
}

static bool tolerate(struct card_health *h, const struct card_health_settings *s,
                     int64_t now_ms)
{
    if (!h->good)
        return false;
    if (!h->unreadable)
        h->unreadable_since_ms = now_ms;
    h->unreadable = true;
    return card_health_tolerates(s, h->unreadable_since_ms, now_ms);
}

static void succeed(struct card_health *h, const struct card_health_settings *s,
                    int64_t now_ms, bool first)
{
    if (!h->good)
        h->good_since_ms = now_ms;
    h->good = true;
    h->unreadable = false;
    if (h->held && has_passed(now_ms, h->event_ms, s->xid_hold_ms))
        h->held = false;
    if (h->held || (!first && !h->healthy &&
                    !has_passed(now_ms, h->good_since_ms, s->healthy_after_ms)))
        return;
    h->healthy = true;
    h->reason[0] = '\0';
}

void card_health_sample(struct card_health *h, const struct card_health_settings *s,
                        int64_t now_ms, enum card_health_reading reading,
                        const char *reason)
{
    bool first = !h->sampled;
    h->sampled = true;
    h->tolerated = reading == CARD_HEALTH_UNREADABLE && tolerate(h, s, now_ms);
    if (h->tolerated)
        return;
    if (reading == CARD_HEALTH_GOOD)
        succeed(h, s, now_ms, first);
    else
        fail(h, reason);
}

static bool index_is_present(const struct card_health_target *cards, size_t n,
                             int32_t index)
{
    for (size_t i = 0; i < n; i++)
        if (cards[i].present && cards[i].index == index)
            return true;
    return false;
}

static bool concerns(const struct card_health_target *card, const struct gpu_event *e,
                     bool by_index)
{
    if (e->uuid[0])
        return !strcmp(card->uuid, e->uuid) || !strcmp(card->parent, e->uuid);
    return !by_index || (card->present && card->index == e->index);
}

bool card_health_event(const struct card_health_target *cards, size_t n, int64_t now_ms,
                       const struct gpu_event *e)
{
    char reason[64] = "uncorrectable ECC error";
    bool any = false, by_index = index_is_present(cards, n, e->index);
    if (e->kind == GPU_EVENT_NONE ||
        (e->kind == GPU_EVENT_XID && gpu_xid_is_application_error(e->xid)))
        return false;
    if (e->kind == GPU_EVENT_XID)
        snprintf(reason, sizeof reason, "XID %" PRId64, e->xid);
    for (size_t i = 0; i < n; i++) {
        if (!concerns(&cards[i], e, by_index))
            continue;
        fail(cards[i].health, reason);
        cards[i].health->held = any = true;
        cards[i].health->event_ms = now_ms;
    }
    return any;
}

bool card_health_tolerates(const struct card_health_settings *s, int64_t failing_since_ms,
                           int64_t now_ms)
{
    return !has_passed(now_ms, failing_since_ms, s->unhealthy_after_ms);
}
