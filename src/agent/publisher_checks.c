/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/publisher_priv.h"

enum {
    STUCK_SAMPLER_MS = 10 * 60 * 1000, /* the driver may come back before */
};

const char *publisher_check_name(enum publisher_check part)
{
    static const char *const names[PUBLISHER_CHECKS] = {"cards", "watch",     "scv",
                                                     "node",  "heartbeat", "pods"};
    return names[part];
}

static long long seconds(int64_t ms)
{
    return (long long)(ms / 1000);
}

static int check_cards(const struct publisher *m, int64_t now, struct err *err)
{
    int64_t silent = now - m->sampled_ms;
    if (silent <= publisher_interval(m) + m->settings.sampler_limit_ms)
        return 0;
    return err_set(err, ERR_TIMEOUT, "the driver has not answered for %lld s",
                   seconds(silent));
}

static int check_watch(const struct publisher *m, int64_t now, struct err *err)
{
    const struct lane *lane = &m->lanes[PUBLISHER_LANE_SCV];
    if (m->watching && now - m->alive_ms > PUBLISHER_SILENT_MS)
        return err_set(err, ERR_TIMEOUT, "the watch of the Scv is silent for %lld s",
                       seconds(now - m->alive_ms));
    if (m->broken_since_ms < 0 || now - m->broken_since_ms <= m->settings.late_ms)
        return 0;
    return err_set(err, ERR_UNAVAILABLE, "the Scv is not watched for %lld s%s%s",
                   seconds(now - m->broken_since_ms), lane->trouble.msg[0] ? ": " : "",
                   lane->trouble.msg);
}

static int check_scv(const struct publisher *m, int64_t now, struct err *err)
{
    const struct lane *lane = &m->lanes[PUBLISHER_LANE_SCV];
    int64_t waits = m->waiting_since_ms < 0 ? 0 : now - m->waiting_since_ms;
    if (waits <= m->settings.late_ms)
        return 0;
    return err_set(err, ERR_UNAVAILABLE, "the Scv waits to be written for %lld s%s%s",
                   seconds(waits), lane->trouble.msg[0] ? ": " : "", lane->trouble.msg);
}

static int check_node(const struct publisher *m, int64_t now, struct err *err)
{
    const struct lane *lane = &m->lanes[PUBLISHER_LANE_NODE];
    if (m->node_unknown_ms < 0 || now - m->node_unknown_ms <= m->settings.late_ms)
        return 0;
    return err_set(err, ERR_UNAVAILABLE, "%s",
                   lane->trouble.msg[0] ? lane->trouble.msg : "the Node is not known");
}

static int check_heartbeat(const struct publisher *m, int64_t now, struct err *err)
{
    const struct lane *lane = &m->lanes[PUBLISHER_LANE_LEASE];
    int64_t age = now - m->renewed_ms;
    if (age <= m->settings.grace_ms)
        return 0;
    return err_set(err, ERR_UNAVAILABLE, "the Lease was not renewed for %lld s%s%s",
                   seconds(age), lane->trouble.msg[0] ? ": " : "", lane->trouble.msg);
}

static int check_pods(const struct publisher *m, int64_t now, struct err *err)
{
    int64_t age = now - m->pods_ms;
    if (!m->settings.with_pods || age <= m->settings.pods_limit_ms)
        return 0;
    return err_set(err, ERR_UNAVAILABLE,
                   "the kubelet has not said for %lld s which pod has which card",
                   seconds(age));
}

int publisher_check(const struct publisher *m, struct publisher_time now,
                  enum publisher_check part, struct err *err)
{
    static int (*const checks[PUBLISHER_CHECKS])(const struct publisher *, int64_t,
                                              struct err *) = {
        check_cards, check_watch, check_scv, check_node, check_heartbeat, check_pods};
    return checks[part](m, now.mono_ms, err);
}

int publisher_ready(const struct publisher *m, struct publisher_time now,
                  enum publisher_check part, struct err *err)
{
    bool first = !m->sampled && now.mono_ms - m->started_ms <= PUBLISHER_FIRST_MS;
    bool hangs = check_cards(m, now.mono_ms, NULL) != 0;
    if (first && part == PUBLISHER_CHECK_CARDS)
        return err_set(err, ERR_TIMEOUT, "the driver has not answered yet");
    if (!first && hangs && (part == PUBLISHER_CHECK_CARDS || part == PUBLISHER_CHECK_HEARTBEAT))
        return 1;
    return publisher_check(m, now, part, err);
}

int publisher_live(const struct publisher *m, struct publisher_time now, struct err *err)
{
    static const char *const lanes[PUBLISHER_LANES] = {"scv", "lease", "node"};
    for (int i = 0; i < PUBLISHER_LANES; i++)
        if (m->lanes[i].busy && now.mono_ms - m->lanes[i].sent_ms > PUBLISHER_STUCK_MS)
            return err_set(err, ERR_TIMEOUT, "the thread %s hangs in a call for %lld s",
                           lanes[i], seconds(now.mono_ms - m->lanes[i].sent_ms));
    if (m->watching && now.mono_ms - m->alive_ms > 2 * PUBLISHER_SILENT_MS)
        return err_set(err, ERR_TIMEOUT, "the thread watch hangs for %lld s",
                       seconds(now.mono_ms - m->alive_ms));
    if (now.mono_ms - m->sampled_ms > publisher_interval(m) + STUCK_SAMPLER_MS)
        return err_set(err, ERR_TIMEOUT, "the thread sampler hangs for %lld s",
                       seconds(now.mono_ms - m->sampled_ms));
    return 0;
}
