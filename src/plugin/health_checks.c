/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/health_checks.h"

enum {
    DISPATCHER_MS = 30 * 1000,
    /* The thread of the watch resolves names and connects. */
    WATCH_MS = 5 * 60 * 1000,
};

const char *health_checks_name(enum health_check check)
{
    static const char *const names[HEALTH_CHECKS] = {"cards", "pods", "node",
                                                     "podresources"};
    return names[check];
}

const char *health_checks_thread_name(enum health_check_thread thread)
{
    static const char *const names[HEALTH_CHECK_THREADS] = {"dispatcher", "watch"};
    return names[thread];
}

static long long seconds(int64_t ms)
{
    return (long long)(ms / 1000);
}

int health_checks_thread(const struct health_checks *c, enum health_check_thread thread,
                         struct err *err)
{
    bool dispatcher = thread == HEALTH_CHECK_DISPATCHER;
    int64_t silent =
        c->now_ms - (dispatcher ? c->dispatcher->alive_ms : c->api->alive_ms);
    if (silent < (dispatcher ? DISPATCHER_MS : WATCH_MS))
        return 0;
    return err_set(err, ERR_TIMEOUT, "thread hangs for %llds", seconds(silent));
}

static int check_failure(const struct health_checks *c, const struct failure *f,
                         const char *what, struct err *err)
{
    int64_t duration = c->now_ms - f->since_ms;
    if (!f->since_ms || duration < c->late_ms)
        return 0;
    return err_set(err, f->err.code, "%s for %llds: %s", what, seconds(duration),
                   f->err.msg);
}

static int check_pods(const struct health_checks *c, struct err *err)
{
    const struct failure *f = &c->api->watch;
    if (!c->dispatcher->listed)
        return err_set(err, ERR_UNAVAILABLE, "the pods are not listed yet%s%s",
                       f->since_ms ? ": " : "", f->err.msg);
    return check_failure(c, f, "the pod watch fails", err);
}

static int copy_error(const struct err *from, struct err *err)
{
    if (from->code == ERR_NONE)
        return 0;
    return err_set(err, from->code, "%s", from->msg);
}

int health_checks_run(const struct health_checks *c, enum health_check check,
                      struct err *err)
{
    switch (check) {
    case HEALTH_CHECK_PODS:
        return check_pods(c, err);
    case HEALTH_CHECK_NODE:
        return check_failure(c, &c->api->node, "GET of the Node fails", err);
    case HEALTH_CHECK_PODRESOURCES:
        return check_failure(c, &c->dispatcher->podresources, "podresources calls fail",
                             err);
    default:
        return copy_error(&c->dispatcher->cards_err, err);
    }
}

int health_checks_registered(const struct health_checks *c, enum ids_resource r,
                             struct err *err)
{
    return copy_error(&c->dispatcher->registered_err[r], err);
}

bool health_checks_required(const struct health_checks *c, enum health_check check)
{
    if (check != HEALTH_CHECK_CARDS)
        return check != HEALTH_CHECK_NODE;
    return !c->dispatcher->cards && c->now_ms - c->started_ms < HEALTH_CHECKS_CARDS_MS;
}

bool health_checks_resource_required(const struct health_checks *c, enum ids_resource r)
{
    return c->dispatcher->wanted[r];
}
