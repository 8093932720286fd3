/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/reflector.h"

#include "base/mutant.h"
#include "domain/object.h"

/* The times of all reflectors. "client-go" is tools/cache/reflector.go of Kubernetes. */
enum {
    BACKOFF_FIRST_MS =
        1600, /* of which half is random: client-go's 0.8 to 1.6 s, doubled */
    BACKOFF_MAX_MS = 30 * 1000, /* client-go's 30 s */
    RETRY_AFTER_MAX_MS =
        60 * 1000, /* kube-apiserver asks for 1 to 5 s; a proxy for anything */
    /* A watch that lasted so long resets the back-off. client-go waits two minutes, with watches of
     * at least five; the shortest one here takes 50 s. */
    HEALTHY_MS = 30 * 1000,
    /* Between the starts of two watches: a server may end each at once. client-go regards one that
     * ends within 1 s as a failure. */
    WATCH_APART_MS = 1000,
    ABSENT_RETRY_MS = 30 * 1000, /* until a CRD is installed: as the longest back-off */
    RETRY_SOON_MS = 1000, /* an API server that has just started may not list yet */
    SILENT_WATCHES = 3,   /* times watch_s: two watches of the greatest length */
};

void reflector_start(struct reflector *r, const struct reflector_kind *kind,
                     int64_t now_ms)
{
    *r = (struct reflector){
        .kind = kind, .due_ms = now_ms, .seen_ms = now_ms, .listed_ms = INT64_MIN};
}

void reflector_fini(struct reflector *r)
{
    buf_fini(&r->version);
    *r = (struct reflector){0};
}

int64_t reflector_due(const struct reflector *r)
{
    bool idle = r->state == REFLECTOR_LIST_DUE || r->state == REFLECTOR_WATCH_DUE;
    int64_t earliest = r->not_before_ms;
    return !idle ? INT64_MAX : r->due_ms > earliest ? r->due_ms : earliest;
}

enum reflector_request reflector_tick(struct reflector *r, int64_t now_ms, uint64_t run)
{
    if (reflector_due(r) > now_ms)
        return REFLECTOR_WAIT;
    bool lists = r->state == REFLECTOR_LIST_DUE;
    r->state = lists ? REFLECTOR_LISTING : REFLECTOR_WATCHING;
    r->run = run;
    r->requested_ms = now_ms;
    return lists ? REFLECTOR_LIST : REFLECTOR_WATCH;
}

int64_t reflector_watch_s(int64_t watch_s, uint64_t random)
{
    return watch_s + (int64_t)(random % (uint64_t)(watch_s / 2));
}

bool reflector_is_current(const struct reflector *r, uint64_t run)
{
    bool active = r->state == REFLECTOR_LISTING || r->state == REFLECTOR_WATCHING;
    return active && run == r->run;
}

void reflector_delivered(struct reflector *r, int64_t now_ms, struct rng *rng,
                         struct span version)
{
    r->seen_ms = now_ms;
    if (r->state == REFLECTOR_LISTING)
        return;
    step_succeeded(&r->failure);
    if (!object_version_is_older(version, buf_span(&r->version))) {
        if (version.n)
            buf_set(&r->version, version);
        return;
    }
    r->state = REFLECTOR_LIST_DUE;
    r->due_ms = r->requested_ms + WATCH_APART_MS;
    if (r->relists++)
        r->due_ms =
            now_ms + step_backoff(rng, r->relists, BACKOFF_FIRST_MS, BACKOFF_MAX_MS, -1);
}

enum reflector_end reflector_ended(struct reflector *r, int64_t now_ms, struct rng *rng,
                                   struct span version, const struct err *err,
                                   int64_t retry_after_ms)
{
    enum err_code code = err ? err->code : ERR_NONE;
    bool watch = r->state == REFLECTOR_WATCHING;
    bool absent = !watch && r->kind->optional && code == ERR_NOT_FOUND;
    if (watch && now_ms - r->requested_ms >= HEALTHY_MS)
        r->relists = 0;
    if (!watch && (code == ERR_NONE || absent)) {
        bool older = object_version_is_older(version, buf_span(&r->version));
        r->seen_ms = r->due_ms = now_ms;
        r->state = absent ? REFLECTOR_LIST_DUE : REFLECTOR_WATCH_DUE;
        if (older && MUTANT(restored_list_is_ignored))
            return REFLECTOR_CLOSED;
        r->synced = true;
        r->listed_ms = r->requested_ms;
        r->tries = 0;
        if (version.n)
            buf_set(&r->version, version);
        if (!absent)
            return older ? REFLECTOR_RESTORED : REFLECTOR_LISTED;
        step_succeeded(&r->failure);
        r->due_ms += ABSENT_RETRY_MS;
        return REFLECTOR_ABSENT;
    }
    if (code == ERR_NONE) {
        r->seen_ms = now_ms;
        r->state = REFLECTOR_WATCH_DUE;
        r->due_ms = r->requested_ms + WATCH_APART_MS;
        return REFLECTOR_CLOSED;
    }
    unsigned failures = watch ? ++r->relists : ++r->tries;
    int64_t wait_ms = step_backoff(rng, failures, BACKOFF_FIRST_MS, BACKOFF_MAX_MS, -1);
    if (failures == 1 && code == ERR_GONE)
        wait_ms = 0;
    else if (failures == 1 && watch && r->kind->spread_ms)
        wait_ms = (int64_t)rng_below(rng, (uint64_t)r->kind->spread_ms);
    if (retry_after_ms > RETRY_AFTER_MAX_MS)
        retry_after_ms = RETRY_AFTER_MAX_MS;
    if (retry_after_ms >
        0) { /* all clients got the same number: the back-off spreads them */
        r->not_before_ms = now_ms + retry_after_ms;
        wait_ms += retry_after_ms;
    }
    r->state = REFLECTOR_LIST_DUE;
    r->due_ms = now_ms + wait_ms;
    bool stalled = code == ERR_TIMEOUT && !r->failure.failures;
    bool log = step_failed(&r->failure, now_ms, err);
    if (stalled)
        r->failure.since_ms = r->seen_ms;
    return log ? REFLECTOR_FAILED : REFLECTOR_FAILED_AGAIN;
}

void reflector_relist(struct reflector *r, int64_t now_ms)
{
    if (r->state == REFLECTOR_LISTING && r->requested_ms >= now_ms)
        return;
    r->state = REFLECTOR_LIST_DUE;
    r->due_ms = now_ms;
}

void reflector_retry_soon(struct reflector *r, int64_t now_ms)
{
    if (r->failure.failures)
        step_due(&r->due_ms, now_ms + RETRY_SOON_MS);
}

int64_t reflector_unknown_since(const struct reflector *r, int64_t now_ms)
{
    if (r->failure.failures)
        return r->failure.since_ms;
    bool silent = now_ms - r->seen_ms > SILENT_WATCHES * r->kind->watch_s * 1000;
    return r->synced && !silent ? -1 : r->seen_ms;
}
