/* SPDX-License-Identifier: Apache-2.0 */
/* The state machine of a card's health. */
#include "node/card_health.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/array.h"

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
    if (card->state > GPU_WARN)
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

int card_health_parse_xids(struct span text, void *xids, struct err *err)
{
    struct card_health_xids *out = xids;
    int64_t xid;
    *out = (struct card_health_xids){.all = span_eq_nocase(text, SPAN("all"))};
    for (struct span rest = out->all ? (struct span){0} : text; rest.p && text.n;) {
        const struct span item = span_trim(span_cut(&rest, ','));
        if (!span_i64(item, &xid) || xid < 1 || xid >= CARD_HEALTH_XIDS)
            return err_set(
                err, ERR_INVALID,
                "\"%.*s\": \"%.*s\" at character %zu is no XID, which is all, or "
                "numbers of 1 to %d, as 69,45",
                SPAN_ARG(text), SPAN_ARG(item), (size_t)(item.p - text.p) + 1,
                CARD_HEALTH_XIDS - 1);
        out->bits[xid / 64] |= UINT64_C(1) << xid % 64;
    }
    return 0;
}

static bool has_xid(const struct card_health_xids *xids, int64_t xid)
{
    return xids->all ||
           (xid >= 0 && xid < CARD_HEALTH_XIDS && xids->bits[xid / 64] >> xid % 64 & 1);
}

bool card_health_event(struct card_health *h, const struct card_health_settings *s,
                       int64_t now_ms, const struct gpu_event *e)
{
    static const int64_t application[] = {13, 31, 43, 45, 68, 109};
    char reason[64] = "uncorrectable ECC error";
    bool ignored = e->kind == GPU_EVENT_NONE;
    if (e->kind == GPU_EVENT_XID) {
        ignored = has_xid(&s->xid_ignore, e->xid);
        for (size_t i = 0; i < ARRAY_LEN(application); i++)
            ignored |= application[i] == e->xid;
        ignored &= !has_xid(&s->xid_fatal, e->xid);
        snprintf(reason, sizeof reason, "XID %" PRId64, e->xid);
    }
    if (ignored)
        return false;
    fail(h, reason);
    h->held = true;
    h->event_ms = now_ms;
    return true;
}

bool card_health_tolerates(const struct card_health_settings *s, int64_t failing_since_ms,
                           int64_t now_ms)
{
    return !has_passed(now_ms, failing_since_ms, s->unhealthy_after_ms);
}
