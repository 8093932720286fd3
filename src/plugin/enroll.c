/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/enroll.h"

#include <stddef.h>

void enroll_init(struct enroll *e)
{
    *e = (struct enroll){.retry_ms = ENROLL_FIRST_RETRY_MS};
}

void enroll_want(struct enroll *e, bool wanted)
{
    e->wanted = wanted;
}

static void again(struct enroll *e, int64_t at_ms)
{
    e->state = ENROLL_WAITING;
    e->at_ms = at_ms;
}

static void back_off(struct enroll *e, int64_t now_ms)
{
    again(e, now_ms + e->retry_ms);
    e->retry_ms *= 2;
    if (e->retry_ms > ENROLL_LAST_RETRY_MS)
        e->retry_ms = ENROLL_LAST_RETRY_MS;
}

/* An answer that is under way is that of the kubelet before; it fails or does not matter:
 * without a stream we come again. */
void enroll_kubelet(struct enroll *e, int64_t now_ms, uint64_t inode)
{
    if (inode == e->kubelet)
        return;
    e->kubelet = inode;
    e->retry_ms = ENROLL_FIRST_RETRY_MS;
    if (e->state != ENROLL_REGISTERING)
        again(e, now_ms);
}

void enroll_served(struct enroll *e, int64_t now_ms, bool reachable)
{
    if (e->reachable && !reachable && e->state != ENROLL_REGISTERING)
        again(e, now_ms);
    if (!e->reachable && !reachable)
        back_off(e, now_ms); /* it could not be made */
    e->reachable = reachable;
}

void enroll_answered(struct enroll *e, int64_t now_ms, bool accepted)
{
    if (e->state != ENROLL_REGISTERING)
        return;
    if (!accepted) {
        e->failed++;
        back_off(e, now_ms);
        return;
    }
    e->registered++;
    e->state = e->streams ? ENROLL_UP : ENROLL_EXPECTING;
    e->at_ms = now_ms + ENROLL_STREAM_MS;
}

void enroll_stream(struct enroll *e, int64_t now_ms, bool opened, bool rival)
{
    if (opened) {
        e->streams++;
        if (e->state == ENROLL_EXPECTING)
            e->state = ENROLL_UP;
        if (e->state == ENROLL_UP)
            e->retry_ms = ENROLL_FIRST_RETRY_MS;
        return;
    }
    e->streams--;
    if (e->streams || e->state != ENROLL_UP)
        return;
    e->lost++;
    again(e, now_ms + ENROLL_SETTLE_MS);
    if (rival) {
        e->state = ENROLL_YIELDING;
        e->at_ms = now_ms + ENROLL_RIVAL_MS;
    }
}

void enroll_rival(struct enroll *e, int64_t now_ms, bool there)
{
    if (e->state != ENROLL_YIELDING)
        return;
    if (there)
        e->at_ms = now_ms + ENROLL_RIVAL_MS;
    else
        again(e, now_ms);
}

bool enroll_looks_for_rival(const struct enroll *e, int64_t now_ms)
{
    return e->state == ENROLL_YIELDING && now_ms >= e->at_ms;
}

enum enroll_action enroll_next(struct enroll *e, int64_t now_ms)
{
    if (!e->wanted || !e->kubelet)
        return ENROLL_NOTHING;
    if (e->state == ENROLL_EXPECTING && now_ms >= e->at_ms) {
        e->failed++;
        back_off(e, now_ms);
    }
    if (e->state != ENROLL_WAITING || now_ms < e->at_ms)
        return ENROLL_NOTHING;
    if (!e->reachable)
        return ENROLL_SERVE;
    e->state = ENROLL_REGISTERING;
    return ENROLL_REGISTER;
}

int64_t enroll_due(const struct enroll *e)
{
    if (!e->wanted || !e->kubelet || e->state == ENROLL_REGISTERING ||
        e->state == ENROLL_UP)
        return INT64_MAX;
    return e->at_ms;
}

const char *enroll_waits_for(const struct enroll *e)
{
    static const char *const words[] = {
        [ENROLL_WAITING] = "trying again soon",
        [ENROLL_REGISTERING] = "the kubelet has not answered yet",
        [ENROLL_EXPECTING] = "the kubelet has not asked for the list yet",
        [ENROLL_YIELDING] = "a newer plugin of this node serves it",
    };
    if (e->state == ENROLL_UP)
        return NULL;
    return e->kubelet ? words[e->state] : "waiting for the kubelet";
}
