/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/registration.h"

#include <stddef.h>

void registration_init(struct registration *e)
{
    *e = (struct registration){.retry_ms = REGISTRATION_FIRST_RETRY_MS};
}

void registration_set_wanted(struct registration *e, bool wanted)
{
    e->wanted = wanted;
}

static void again(struct registration *e, int64_t at_ms)
{
    e->state = REGISTRATION_WAITING;
    e->at_ms = at_ms;
}

static void back_off(struct registration *e, int64_t now_ms)
{
    again(e, now_ms + e->retry_ms);
    e->retry_ms *= 2;
    if (e->retry_ms > REGISTRATION_LAST_RETRY_MS)
        e->retry_ms = REGISTRATION_LAST_RETRY_MS;
}

/* An answer in flight is that of the previous kubelet. It can be ignored: without a
 * stream the plugin registers again. */
void registration_kubelet_socket(struct registration *e, int64_t now_ms, uint64_t inode)
{
    if (inode == e->kubelet)
        return;
    e->kubelet = inode;
    e->retry_ms = REGISTRATION_FIRST_RETRY_MS;
    if (e->state != REGISTRATION_REGISTERING)
        again(e, now_ms);
}

void registration_serving(struct registration *e, int64_t now_ms, bool reachable)
{
    if (e->reachable && !reachable && e->state != REGISTRATION_REGISTERING)
        again(e, now_ms);
    if (!e->reachable && !reachable)
        back_off(e, now_ms); /* creating the endpoint failed */
    e->reachable = reachable;
}

void registration_answered(struct registration *e, int64_t now_ms, bool accepted)
{
    if (e->state != REGISTRATION_REGISTERING)
        return;
    if (!accepted) {
        e->failed++;
        back_off(e, now_ms);
        return;
    }
    e->registered++;
    e->state = e->streams ? REGISTRATION_REGISTERED : REGISTRATION_AWAITING_STREAM;
    e->at_ms = now_ms + REGISTRATION_STREAM_MS;
}

void registration_stream(struct registration *e, int64_t now_ms, bool opened, bool rival)
{
    if (opened) {
        e->streams++;
        if (e->state == REGISTRATION_AWAITING_STREAM)
            e->state = REGISTRATION_REGISTERED;
        if (e->state == REGISTRATION_REGISTERED)
            e->retry_ms = REGISTRATION_FIRST_RETRY_MS;
        return;
    }
    e->streams--;
    if (e->streams || e->state != REGISTRATION_REGISTERED)
        return;
    e->lost++;
    again(e, now_ms + REGISTRATION_SETTLE_MS);
    if (rival) {
        e->state = REGISTRATION_YIELDING;
        e->at_ms = now_ms + REGISTRATION_NEWER_PLUGIN_MS;
    }
}

void registration_newer_plugin(struct registration *e, int64_t now_ms, bool there)
{
    if (e->state != REGISTRATION_YIELDING)
        return;
    if (there)
        e->at_ms = now_ms + REGISTRATION_NEWER_PLUGIN_MS;
    else
        again(e, now_ms);
}

bool registration_checks_newer_plugin(const struct registration *e, int64_t now_ms)
{
    return e->state == REGISTRATION_YIELDING && now_ms >= e->at_ms;
}

enum registration_action registration_next(struct registration *e, int64_t now_ms)
{
    if (!e->wanted || !e->kubelet)
        return REGISTRATION_NOTHING;
    if (e->state == REGISTRATION_AWAITING_STREAM && now_ms >= e->at_ms) {
        e->failed++;
        back_off(e, now_ms);
    }
    if (e->state != REGISTRATION_WAITING || now_ms < e->at_ms)
        return REGISTRATION_NOTHING;
    if (!e->reachable)
        return REGISTRATION_SERVE;
    e->state = REGISTRATION_REGISTERING;
    return REGISTRATION_REGISTER;
}

int64_t registration_due(const struct registration *e)
{
    if (!e->wanted || !e->kubelet || e->state == REGISTRATION_REGISTERING ||
        e->state == REGISTRATION_REGISTERED)
        return INT64_MAX;
    return e->at_ms;
}

const char *registration_missing(const struct registration *e)
{
    static const char *const steps[] = {
        [REGISTRATION_WAITING] = "retrying",
        [REGISTRATION_REGISTERING] = "waiting for the kubelet to answer Register",
        [REGISTRATION_AWAITING_STREAM] = "waiting for the kubelet to open ListAndWatch",
        [REGISTRATION_YIELDING] = "a newer plugin of this node serves it",
    };
    if (e->state == REGISTRATION_REGISTERED)
        return NULL;
    return e->kubelet ? steps[e->state] : "waiting for the kubelet";
}
