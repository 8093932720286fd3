/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/parts.h"

enum {
    DISPATCHER_MS = 30 * 1000,
    /* The watch's thread looks up names and makes connections. */
    PODS_MS = 5 * 60 * 1000,
};

const char *part_name(enum part part)
{
    static const char *const names[PARTS] = {"cards", "pods", "node", "podresources"};
    return names[part];
}

const char *part_thread_name(enum part_thread thread)
{
    static const char *const names[PART_THREADS] = {"dispatcher", "watch"};
    return names[thread];
}

static long long seconds(int64_t ms)
{
    return (long long)(ms / 1000);
}

int parts_alive(const struct parts *p, enum part_thread thread, struct err *err)
{
    bool dispatcher = thread == PART_THREAD_DISPATCHER;
    int64_t away = p->now_ms - (dispatcher ? p->dispatcher->alive_ms : p->api->alive_ms);
    if (away < (dispatcher ? DISPATCHER_MS : PODS_MS))
        return 0;
    return err_set(err, ERR_TIMEOUT, "the thread has not come by for %lld s",
                   seconds(away));
}

static int check_trouble(const struct parts *p, const struct failure *t, const char *what,
                         struct err *err)
{
    int64_t lasts = p->now_ms - t->since_ms;
    if (!t->since_ms || lasts < p->late_ms)
        return 0;
    return err_set(err, t->err.code, "%s for %lld s: %s", what, seconds(lasts),
                   t->err.msg);
}

static int check_pods(const struct parts *p, struct err *err)
{
    const struct failure *t = &p->api->watch;
    if (!p->dispatcher->listed)
        return err_set(err, ERR_UNAVAILABLE,
                       "the API server has not told yet which there are%s%s",
                       t->since_ms ? ": " : "", t->err.msg);
    return check_trouble(p, t, "the API server has told nothing of them", err);
}

static int take(const struct err *from, struct err *err)
{
    if (from->code == ERR_NONE)
        return 0;
    return err_set(err, from->code, "%s", from->msg);
}

int parts_check(const struct parts *p, enum part part, struct err *err)
{
    switch (part) {
    case PART_PODS:
        return check_pods(p, err);
    case PART_NODE:
        return check_trouble(p, &p->api->node, "it could not be read", err);
    case PART_PODRESOURCES:
        return check_trouble(p, &p->dispatcher->podresources, "the kubelet shows nothing",
                             err);
    default:
        return take(&p->dispatcher->cards_err, err);
    }
}

int parts_registered(const struct parts *p, enum ids_resource r, struct err *err)
{
    return take(&p->dispatcher->registered_err[r], err);
}

bool parts_waits(const struct parts *p, enum part part)
{
    if (part != PART_CARDS)
        return part != PART_NODE;
    return !p->dispatcher->cards && p->now_ms - p->started_ms < PARTS_CARDS_MS;
}

bool parts_waits_for_resource(const struct parts *p, enum ids_resource r)
{
    return p->dispatcher->wanted[r];
}
