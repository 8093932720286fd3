/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/publisher_priv.h"

enum {
    STUCK_SAMPLER_MS = 10 * 60 * 1000, /* a driver may recover before that */
};

const char *publisher_check_name(enum publisher_check check)
{
    static const char *const names[PUBLISHER_CHECKS] = {"cards", "watch",     "scv",
                                                        "node",  "heartbeat", "pods"};
    return names[check];
}

static long long seconds(int64_t ms)
{
    return (long long)(ms / 1000);
}

/* "not renewed for 45s: the last error of the lane" */
static int overdue(const struct publisher *p, enum publisher_lane lane, const char *what,
                   int64_t ms, struct err *err)
{
    const char *reason = p->lanes[lane].last_error.msg;
    return err_set(err, ERR_UNAVAILABLE, "%s for %llds%s%s", what, seconds(ms),
                   reason[0] ? ": " : "", reason);
}

static int check_cards(const struct publisher *p, int64_t now, struct err *err)
{
    int64_t silent = now - p->sampled_ms;
    if (silent <= publisher_interval(p) + p->settings.sampler_limit_ms)
        return 0;
    return err_set(err, ERR_TIMEOUT, "no response from the driver for %llds",
                   seconds(silent));
}

static int check_watch(const struct publisher *p, int64_t now, struct err *err)
{
    if (p->watching && now - p->alive_ms > PUBLISHER_SILENT_MS)
        return err_set(err, ERR_TIMEOUT, "no bookmark or event of the Scv for %llds",
                       seconds(now - p->alive_ms));
    if (p->broken_since_ms < 0 || now - p->broken_since_ms <= p->settings.late_ms)
        return 0;
    return overdue(p, PUBLISHER_LANE_SCV, "the Scv is not watched",
                   now - p->broken_since_ms, err);
}

static int check_scv(const struct publisher *p, int64_t now, struct err *err)
{
    int64_t pending = p->pending_since_ms < 0 ? 0 : now - p->pending_since_ms;
    if (pending <= p->settings.late_ms)
        return 0;
    return overdue(p, PUBLISHER_LANE_SCV, "a write of the Scv is pending", pending, err);
}

static int check_node(const struct publisher *p, int64_t now, struct err *err)
{
    const struct err *last = &p->lanes[PUBLISHER_LANE_NODE].last_error;
    if (p->node_unknown_ms < 0 || now - p->node_unknown_ms <= p->settings.late_ms)
        return 0;
    return err_set(err, ERR_UNAVAILABLE, "%s",
                   last->msg[0] ? last->msg : "no answer to GET of the Node");
}

static int check_heartbeat(const struct publisher *p, int64_t now, struct err *err)
{
    int64_t age = now - p->renewed_ms;
    if (age <= p->settings.grace_ms)
        return 0;
    return overdue(p, PUBLISHER_LANE_LEASE, "the Lease was not renewed", age, err);
}

static int check_pods(const struct publisher *p, int64_t now, struct err *err)
{
    int64_t age = now - p->pods_ms;
    if (!p->settings.with_pods || age <= p->settings.pods_limit_ms)
        return 0;
    return err_set(err, ERR_UNAVAILABLE,
                   "no podresources answer from the kubelet for %llds", seconds(age));
}

int publisher_check(const struct publisher *p, struct publisher_time now,
                    enum publisher_check check, struct err *err)
{
    static int (*const checks[PUBLISHER_CHECKS])(const struct publisher *, int64_t,
                                                 struct err *) = {
        check_cards, check_watch, check_scv, check_node, check_heartbeat, check_pods};
    return checks[check](p, now.mono_ms, err);
}

int publisher_ready(const struct publisher *p, struct publisher_time now,
                    enum publisher_check check, bool *required, struct err *err)
{
    bool first = !p->sampled && now.mono_ms - p->started_ms <= PUBLISHER_FIRST_MS;
    bool hangs = check_cards(p, now.mono_ms, NULL) != 0;
    bool of_driver = check == PUBLISHER_CHECK_CARDS || check == PUBLISHER_CHECK_HEARTBEAT;
    *required = first || !hangs || !of_driver;
    if (first && check == PUBLISHER_CHECK_CARDS)
        return err_set(err, ERR_TIMEOUT, "no response from the driver yet");
    return publisher_check(p, now, check, err);
}

static int stuck(const char *thread, int64_t ms, struct err *err)
{
    return err_set(err, ERR_TIMEOUT, "thread %s hangs for %llds", thread, seconds(ms));
}

int publisher_live(const struct publisher *p, struct publisher_time now, struct err *err)
{
    for (int i = 0; i < PUBLISHER_LANES; i++) {
        int64_t age = now.mono_ms - p->lanes[i].sent_ms;
        if (p->lanes[i].busy && age > PUBLISHER_STUCK_MS)
            return stuck(publisher_lane_name((enum publisher_lane)i), age, err);
    }
    if (p->watching && now.mono_ms - p->alive_ms > 2 * PUBLISHER_SILENT_MS)
        return stuck("watch", now.mono_ms - p->alive_ms, err);
    if (now.mono_ms - p->sampled_ms > publisher_interval(p) + STUCK_SAMPLER_MS)
        return stuck("sampler", now.mono_ms - p->sampled_ms, err);
    return 0;
}
