/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/registration.h"

#include <stddef.h>

void registration_init(struct registration *reg)
{
    *reg = (struct registration){.retry_ms = REGISTRATION_FIRST_RETRY_MS};
}

void registration_set_wanted(struct registration *reg, bool wanted)
{
    reg->wanted = wanted;
}

static void again(struct registration *reg, int64_t at_ms)
{
    reg->state = REGISTRATION_WAITING;
    reg->at_ms = at_ms;
}

static void back_off(struct registration *reg, int64_t now_ms)
{
    again(reg, now_ms + reg->retry_ms);
    reg->retry_ms *= 2;
    if (reg->retry_ms > REGISTRATION_LAST_RETRY_MS)
        reg->retry_ms = REGISTRATION_LAST_RETRY_MS;
}

/* An answer in flight is that of the previous kubelet. It can be ignored: without a
 * stream the plugin registers again. */
void registration_kubelet_socket(struct registration *reg, int64_t now_ms,
                                 uint64_t kubelet)
{
    if (kubelet == reg->kubelet)
        return;
    reg->kubelet = kubelet;
    reg->retry_ms = REGISTRATION_FIRST_RETRY_MS;
    if (reg->state != REGISTRATION_REGISTERING)
        again(reg, now_ms);
}

void registration_serving(struct registration *reg, int64_t now_ms, bool reachable)
{
    if (reg->reachable && !reachable && reg->state != REGISTRATION_REGISTERING)
        again(reg, now_ms);
    if (!reg->reachable && !reachable)
        back_off(reg, now_ms); /* creating the endpoint failed */
    reg->reachable = reachable;
}

void registration_answered(struct registration *reg, int64_t now_ms, bool accepted)
{
    if (reg->state != REGISTRATION_REGISTERING)
        return;
    if (!accepted) {
        reg->failed++;
        back_off(reg, now_ms);
        return;
    }
    reg->registered++;
    reg->state = reg->streams ? REGISTRATION_REGISTERED : REGISTRATION_AWAITING_STREAM;
    reg->at_ms = now_ms + REGISTRATION_STREAM_MS;
}

void registration_stream(struct registration *reg, int64_t now_ms, bool opened,
                         bool rival)
{
    if (opened) {
        reg->streams++;
        if (reg->state == REGISTRATION_AWAITING_STREAM)
            reg->state = REGISTRATION_REGISTERED;
        if (reg->state == REGISTRATION_REGISTERED)
            reg->retry_ms = REGISTRATION_FIRST_RETRY_MS;
        return;
    }
    reg->streams--;
    if (reg->streams || reg->state != REGISTRATION_REGISTERED)
        return;
    reg->lost++;
    again(reg, now_ms + REGISTRATION_SETTLE_MS);
    if (rival) {
        reg->state = REGISTRATION_YIELDING;
        reg->at_ms = now_ms + REGISTRATION_NEWER_PLUGIN_MS;
    }
}

void registration_newer_plugin(struct registration *reg, int64_t now_ms, bool there)
{
    if (reg->state != REGISTRATION_YIELDING)
        return;
    if (there)
        reg->at_ms = now_ms + REGISTRATION_NEWER_PLUGIN_MS;
    else
        again(reg, now_ms);
}

bool registration_checks_newer_plugin(const struct registration *reg, int64_t now_ms)
{
    return reg->state == REGISTRATION_YIELDING && now_ms >= reg->at_ms;
}

enum registration_action registration_next(struct registration *reg, int64_t now_ms)
{
    if (!reg->wanted || !reg->kubelet)
        return REGISTRATION_NOTHING;
    if (reg->state == REGISTRATION_AWAITING_STREAM && now_ms >= reg->at_ms) {
        reg->failed++;
        back_off(reg, now_ms);
    }
    if (reg->state != REGISTRATION_WAITING || now_ms < reg->at_ms)
        return REGISTRATION_NOTHING;
    if (!reg->reachable)
        return REGISTRATION_SERVE;
    reg->state = REGISTRATION_REGISTERING;
    return REGISTRATION_REGISTER;
}

int64_t registration_due(const struct registration *reg)
{
    if (!reg->wanted || !reg->kubelet || reg->state == REGISTRATION_REGISTERING ||
        reg->state == REGISTRATION_REGISTERED)
        return INT64_MAX;
    return reg->at_ms;
}

const char *registration_missing(const struct registration *reg)
{
    static const char *const steps[] = {
        [REGISTRATION_WAITING] = "retrying",
        [REGISTRATION_REGISTERING] = "waiting for the kubelet to answer Register",
        [REGISTRATION_AWAITING_STREAM] = "waiting for the kubelet to open ListAndWatch",
        [REGISTRATION_YIELDING] = "a newer plugin of this node serves it",
    };
    if (reg->state == REGISTRATION_REGISTERED)
        return NULL;
    return reg->kubelet ? steps[reg->state] : "waiting for the kubelet";
}
