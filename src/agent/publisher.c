/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The step function of scv-agent: what is known of the cards, podList and the use of
 * containers; the calls, their retries and their logs; the Node and the Lease; the health
 * checks. publisher_scv.c observes and writes the Scv.
 */
#include "agent/publisher_priv.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"

enum {
    RETRY_MS = 500,
    RETRY_MAX_MS = 15 * 1000,
    STUCK_SAMPLER_MS = 10 * 60 * 1000, /* a driver may recover before that */
};

struct publisher *publisher_new(const struct publisher_settings *settings,
                                struct step_time now)
{
    struct publisher *p = xcalloc(1, sizeof *p);
    p->settings = *settings;
    p->cards = card_inventory_new(&settings->cards);
    rng_init(&p->rng, settings->seed);
    p->started_ms = p->sampled_ms = p->pods_ms = p->broken_since_ms = now.mono_ms;
    p->node_unknown_ms = p->pending_since_ms = p->renewed_ms = now.mono_ms;
    p->node_seen_ms = -1;
    p->lease_owned = true;
    p->want_list = true;
    p->owner_tried_ms = INT64_MIN / 2;
    return p;
}

void publisher_free(struct publisher *p)
{
    if (!p)
        return;
    struct buf *const bufs[] = {
        &p->observed.version, &p->written.status, &p->written.message,
        &p->want,             &p->want_message,   &p->watch_version,
        &p->node_uid,         &p->usage_failure};
    for (size_t i = 0; i < ARRAY_LEN(bufs); i++)
        buf_fini(bufs[i]);
    card_inventory_free(p->cards);
    usage_fini(&p->usage);
    node_scv_numbers_fini(&p->written.numbers);
    podresources_unref(p->pods);
    arena_fini(&p->scratch);
    free(p);
}

/* -- outputs and calls -- */

void publisher_call(struct step *s, enum publisher_output_type type,
                    enum publisher_lane i, const struct buf *body)
{
    struct lane *lane = &s->p->lanes[i];
    lane->busy = true;
    lane->call = ++s->p->last_id;
    lane->type = type;
    lane->sent_ms = s->now.mono_ms;
    struct publisher_output *o = step_add(s->out, sizeof *o);
    *o = (struct publisher_output){.type = type, .lane = i, .call = lane->call};
    if (body)
        o->body = step_text(s->out, buf_span(body));
}

static const char *const lane_names[PUBLISHER_LANES] = {"scv", "lease", "node"};

enum err_code publisher_error_code(const struct publisher_input *in)
{
    return in->err ? in->err->code : ERR_NONE;
}

int64_t publisher_backoff(struct publisher *p, unsigned failures, int64_t retry_after_ms)
{
    return step_backoff(&p->rng, failures, RETRY_MS, RETRY_MAX_MS, retry_after_ms);
}

void publisher_call_failed(struct step *s, enum publisher_lane i, const char *fmt, ...)
{
    struct lane *lane = &s->p->lanes[i];
    struct err err;
    va_list ap;
    va_start(ap, fmt);
    err_set(&err, publisher_error_code(s->in), "%s", arena_vprintf(&s->out->arena, fmt, ap));
    va_end(ap);
    bool log = step_failed(&lane->failure, s->now.mono_ms, &err);
    int64_t backoff = publisher_backoff(s->p, lane->failure.failures + lane->conflicts,
                                        s->in->retry_after_ms);
    lane->failed = lane->type;
    lane->due_ms = s->now.mono_ms + backoff;
    if (log)
        publisher_log(s, lane_names[i], err.code, "%s; retrying in %lld ms", err.msg,
                      (long long)backoff);
}

void publisher_call_succeeded(struct step *s, enum publisher_lane i, const char *call)
{
    struct lane *lane = &s->p->lanes[i];
    if (step_succeeded(&lane->failure))
        publisher_log(s, lane_names[i], ERR_NONE, "%s succeeded again", call);
    lane->conflicts = 0;
    lane->due_ms = s->now.mono_ms;
}

/* An object without owner references gets this one. Those of other clients stay, and one
 * of a former Node with this name makes the garbage collector delete the object. */
void publisher_write_owner(const struct publisher *p, struct jwrite *w)
{
    jwrite_array(w, "ownerReferences");
    jwrite_object(w, NULL);
    jwrite_str(w, "apiVersion", SPAN("v1"));
    jwrite_str(w, "kind", SPAN("Node"));
    jwrite_str(w, "name", span_of(p->settings.node));
    jwrite_str(w, "uid", buf_span(&p->node_uid));
    jwrite_object_end(w);
    jwrite_array_end(w);
}

/* -- cards -- */

/* Logs every card whose health changed. */
static void log_health(struct step *s)
{
    const char *reason;
    bool healthy;
    const struct gpu_card *g;
    while ((g = card_inventory_changed(s->p->cards, &healthy, &reason)))
        publisher_log(s, "cards", healthy ? ERR_NONE : ERR_UNAVAILABLE, "GPU%d %s is %s%s",
                      (int)g->index, g->uuid, healthy ? "Healthy again" : "Unhealthy: ",
                      reason);
}

static void observe_sample(struct step *s)
{
    struct publisher *p = s->p;
    bool works = publisher_error_code(s->in) == ERR_NONE;
    if (works)
        card_inventory_sample(p->cards, s->now.mono_ms, s->in->sample);
    else
        card_inventory_failed(p->cards, s->now.mono_ms, s->in->err->msg, false);
    bool changed = !p->sampled || p->sampling_works != works || p->silent;
    if (changed && works)
        publisher_log(s, "cards", ERR_NONE, "sampled %zu cards, driver %s",
                      card_inventory_count(p->cards), card_inventory_driver(p->cards));
    else if (changed)
        publisher_log(s, "cards", s->in->err->code,
                      "cannot sample: %s; retrying in %lld ms", s->in->err->msg,
                      (long long)publisher_interval(p));
    log_health(s);
    p->sampled = true;
    p->sampling_works = works;
    p->silent = false;
    p->sampled_ms = s->now.mono_ms;
    p->taken_wall_ns = s->now.wall_ns;
    publisher_scv_render(p);
}

static void observe_event(struct step *s)
{
    const struct gpu_event *e = s->in->event;
    if (e->kind == GPU_EVENT_NONE)
        return;
    if (card_inventory_event(s->p->cards, s->now.mono_ms, e)) {
        log_health(s);
        publisher_scv_render(s->p);
    } else if (e->kind == GPU_EVENT_XID) {
        publisher_log(s, "cards", ERR_NONE, "XID %lld of %s ignored: application error",
                      (long long)e->xid, e->uuid[0] ? e->uuid : "an unknown card");
    }
}

void publisher_adopt(struct step *s, const struct scv *scv)
{
    card_inventory_adopt(s->p->cards, s->now.mono_ms, scv);
    log_health(s);
    publisher_scv_render(s->p);
}

/* -- podList and the use of containers -- */

static void observe_pods(struct step *s)
{
    struct publisher *p = s->p;
    if (publisher_error_code(s->in) != ERR_NONE) {
        if (!p->pods_failure_logged)
            publisher_log(s, "podresources", s->in->err->code,
                          "List failed: %s; retrying", s->in->err->msg);
        p->pods_failure_logged = true;
        return;
    }
    if (p->pods_failure_logged)
        publisher_log(s, "podresources", ERR_NONE, "List succeeded again");
    p->pods_failure_logged = false;
    p->pods_ms = s->now.mono_ms;
    podresources_unref(p->pods);
    p->pods = podresources_ref(s->in->pods);
    publisher_scv_render(p);
}

static void observe_usage(struct step *s)
{
    struct publisher *p = s->p;
    bool failed = publisher_error_code(s->in) != ERR_NONE;
    struct span why = failed ? span_of(s->in->err->msg) : (struct span){0};
    if (!span_eq(why, buf_span(&p->usage_failure))) {
        if (failed)
            publisher_log(
                s, "usage", s->in->err->code,
                "what containers use is not known: %s; retrying with each sample",
                s->in->err->msg);
        else
            publisher_log(s, "usage", ERR_NONE, "what containers use is known again");
        buf_clear(&p->usage_failure);
        buf_add_span(&p->usage_failure, why);
    }
    usage_fini(&p->usage);
    p->usage = *s->in->usage;
    *s->in->usage = (struct usage){0};
}

/* A driver that hangs makes all cards Unhealthy, and an old podList is dropped. */
static void expire_samples_and_pods(struct step *s)
{
    struct publisher *p = s->p;
    struct err err;
    if (!p->silent && publisher_check(p, s->now, PUBLISHER_CHECK_CARDS, &err)) {
        publisher_log(s, "cards", ERR_TIMEOUT, "%s; all cards are Unhealthy", err.msg);
        card_inventory_failed(p->cards, s->now.mono_ms, "the driver does not respond",
                              true);
        log_health(s);
        usage_fini(&p->usage);
        p->silent = p->sampled = true;
        p->sampling_works = false;
        publisher_scv_render(p);
    }
    if (p->pods && s->now.mono_ms - p->pods_ms > p->settings.pods_limit_ms) {
        podresources_unref(p->pods);
        p->pods = NULL;
        publisher_scv_render(p);
    }
}

/* -- the Node --
 *
 * It is read before an object is created, because an object of a deleted Node would stay
 * forever. Otherwise the UID of the last GET is enough: when a Node is recreated, the
 * garbage collector deletes the Scv and the Lease of the old one, and they are found
 * missing. */

bool publisher_node_seen_since(const struct publisher *p, int64_t since_ms)
{
    return p->node_uid.n && p->node_seen_ms >= since_ms;
}

static void get_node_if_needed(struct step *s)
{
    struct publisher *p = s->p;
    const struct lane *lane = &p->lanes[PUBLISHER_LANE_NODE];
    bool needed =
        !p->node_uid.n ||
        (p->observed.listed && !p->observed.exists &&
         p->node_seen_ms < p->observed.missing_since_ms) ||
        (p->lease_missing && p->node_seen_ms < p->lease_missing_ms);
    if (needed && !lane->busy && lane->due_ms <= s->now.mono_ms)
        publisher_call(s, PUBLISHER_GET_NODE, PUBLISHER_LANE_NODE, NULL);
}

static void observe_node(struct step *s)
{
    struct publisher *p = s->p;
    struct lane *lane = &p->lanes[PUBLISHER_LANE_NODE];
    enum err_code code = publisher_error_code(s->in);
    if (code == ERR_NONE && s->in->object && s->in->object->meta.uid.n) {
        struct span uid = s->in->object->meta.uid;
        bool recreated = p->node_uid.n && !span_eq(uid, buf_span(&p->node_uid));
        publisher_call_succeeded(s, PUBLISHER_LANE_NODE, "GET of the Node");
        if (recreated)
            publisher_log(s, "node", ERR_NONE, "Node %s was recreated", p->settings.node);
        buf_clear(&p->node_uid);
        buf_add_span(&p->node_uid, uid);
        p->node_seen_ms = lane->sent_ms;
        p->node_unknown_ms = -1;
        return;
    }
    if (p->node_unknown_ms < 0)
        p->node_unknown_ms = s->now.mono_ms;
    if (code == ERR_NOT_FOUND) {
        buf_clear(&p->node_uid);
        publisher_call_failed(s, PUBLISHER_LANE_NODE,
                              "Node %s not found; its Scv and Lease are created after it",
                              p->settings.node);
    } else {
        publisher_call_failed(s, PUBLISHER_LANE_NODE, "cannot get Node %s: %s",
                              p->settings.node,
                              s->in->err ? s->in->err->msg : "it has no UID");
    }
}

/* -- the heartbeat -- */

static void send_lease(struct step *s, bool create)
{
    struct publisher *p = s->p;
    cleanup_buf struct buf body = {0}, time = {0};
    struct jwrite w = {.out = &body};
    clock_format_us(&time, s->now.wall_ns / 1000);
    jwrite_object(&w, NULL);
    if (create) {
        jwrite_str(&w, "apiVersion", SPAN("coordination.k8s.io/v1"));
        jwrite_str(&w, "kind", SPAN("Lease"));
    }
    if (create || (p->node_uid.n && !p->lease_owned)) {
        jwrite_object(&w, "metadata");
        if (create)
            jwrite_str(&w, "name", span_of(p->settings.node));
        publisher_write_owner(p, &w);
        jwrite_object_end(&w);
    }
    jwrite_object(&w, "spec");
    jwrite_str(&w, "holderIdentity", span_of(p->settings.node));
    jwrite_i64(&w, "leaseDurationSeconds", (p->settings.grace_ms + 999) / 1000);
    if (create)
        jwrite_str(&w, "acquireTime", buf_span(&time));
    jwrite_str(&w, "renewTime", buf_span(&time));
    jwrite_object_end(&w);
    jwrite_object_end(&w);
    publisher_call(s, create ? PUBLISHER_CREATE_LEASE : PUBLISHER_PATCH_LEASE,
                   PUBLISHER_LANE_LEASE, &body);
}

/* Whether everything that the heartbeat vouches for works. */
static bool may_vouch(struct step *s)
{
    static const enum publisher_check checks[] = {
        PUBLISHER_CHECK_CARDS, PUBLISHER_CHECK_WATCH, PUBLISHER_CHECK_SCV};
    struct publisher *p = s->p;
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(checks); i++) {
        if (publisher_check(p, s->now, checks[i], &err) == 0)
            continue;
        if (!p->withheld)
            publisher_log(s, "lease", err.code, "heartbeat withheld: %s", err.msg);
        p->withheld = true;
        return false;
    }
    if (p->withheld)
        publisher_log(s, "lease", ERR_NONE, "heartbeat resumed");
    p->withheld = false;
    return p->published;
}

static void send_lease_if_due(struct step *s)
{
    struct publisher *p = s->p;
    const struct lane *lane = &p->lanes[PUBLISHER_LANE_LEASE];
    if (lane->busy || lane->due_ms > s->now.mono_ms || !may_vouch(s))
        return;
    if (!p->lease_missing || publisher_node_seen_since(p, p->lease_missing_ms))
        send_lease(s, p->lease_missing);
}

static void observe_lease(struct step *s)
{
    struct publisher *p = s->p;
    struct lane *lane = &p->lanes[PUBLISHER_LANE_LEASE];
    enum err_code code = publisher_error_code(s->in);
    bool created = lane->type == PUBLISHER_CREATE_LEASE;
    if (code == ERR_NONE) {
        publisher_call_succeeded(s, PUBLISHER_LANE_LEASE, "renewal");
        if (created)
            publisher_log(s, "lease", ERR_NONE, "created Lease %s/%s",
                          p->settings.lease_namespace, p->settings.node);
        p->lease_missing = false;
        p->renewed_ms = lane->sent_ms;
        lane->due_ms = lane->sent_ms + p->settings.renew_ms;
        if (s->in->object)
            p->lease_owned = s->in->object->owned;
    } else if (!created && code == ERR_NOT_FOUND) {
        p->lease_missing = true;
        p->lease_missing_ms = s->now.mono_ms;
    } else if (created && code == ERR_CONFLICT) {
        p->lease_missing = false; /* another client created it */
    } else if (created && code == ERR_NOT_FOUND) {
        publisher_call_failed(s, PUBLISHER_LANE_LEASE,
                              "cannot create the Lease: namespace %s is missing "
                              "(manifests/namespace.yaml): %s",
                              p->settings.lease_namespace, s->in->err->msg);
    } else {
        publisher_call_failed(s, PUBLISHER_LANE_LEASE, "cannot %s Lease %s/%s: %s",
                              created ? "create" : "renew",
                              p->settings.lease_namespace, p->settings.node,
                              s->in->err->msg);
    }
}

/* -- the step -- */

static void observe_answer(struct step *s)
{
    for (int i = 0; i < PUBLISHER_LANES; i++) {
        struct lane *lane = &s->p->lanes[i];
        if (!lane->busy || lane->call != s->in->call)
            continue;
        lane->busy = false;
        if (i == PUBLISHER_LANE_SCV)
            publisher_scv_observe_answer(s);
        else if (i == PUBLISHER_LANE_LEASE)
            observe_lease(s);
        else
            observe_node(s);
        return;
    }
}

void publisher_step(struct publisher *p, struct step_time now,
                    const struct publisher_input *in, struct step_outputs *outputs)
{
    struct step s = {p, now, in, outputs};
    arena_reset(&p->scratch);
    p->stepped_ms = now.mono_ms;
    switch (in->type) {
    case PUBLISHER_TICK:
        break;
    case PUBLISHER_SAMPLED:
        observe_sample(&s);
        break;
    case PUBLISHER_EVENT:
        observe_event(&s);
        break;
    case PUBLISHER_PODS:
        observe_pods(&s);
        break;
    case PUBLISHER_USAGE:
        observe_usage(&s);
        break;
    case PUBLISHER_ANSWER:
        observe_answer(&s);
        break;
    default:
        publisher_scv_observe_watch(&s);
    }
    expire_samples_and_pods(&s);
    publisher_scv_tick(&s);
    send_lease_if_due(&s);
    get_node_if_needed(&s);
}

/* A call that was due in the last step and was not made waits for another input. */
int64_t publisher_due(const struct publisher *p)
{
    int64_t due[PUBLISHER_LANES + 1], first = INT64_MAX;
    for (int i = 0; i < PUBLISHER_LANES; i++)
        due[i] = p->lanes[i].busy ? INT64_MAX : p->lanes[i].due_ms;
    due[PUBLISHER_LANES] = p->watching ? INT64_MAX : p->watch_due_ms;
    for (size_t i = 0; i < ARRAY_LEN(due); i++)
        if (due[i] > p->stepped_ms && due[i] < first)
            first = due[i];
    return first;
}

int64_t publisher_interval(const struct publisher *p)
{
    int64_t ms =
        p->observed.interval_ms > 0 ? p->observed.interval_ms : p->settings.interval_ms;
    if (ms < PUBLISHER_MIN_INTERVAL_MS)
        ms = PUBLISHER_MIN_INTERVAL_MS;
    if (ms > PUBLISHER_MAX_INTERVAL_MS)
        ms = PUBLISHER_MAX_INTERVAL_MS;
    if (p->sampled && !p->sampling_works && ms < PUBLISHER_MISSING_MS &&
        card_inventory_count(p->cards) == 0)
        ms = PUBLISHER_MISSING_MS;
    return ms;
}

const struct card_inventory *publisher_cards(const struct publisher *p)
{
    return p->cards;
}

const struct usage *publisher_usage(const struct publisher *p)
{
    return &p->usage;
}

bool publisher_any_lost(const struct publisher *p)
{
    return card_inventory_any_lost(p->cards) ||
           (p->sampled && card_inventory_count(p->cards) == 0);
}

/* -- health checks -- */

const char *publisher_check_name(enum publisher_check check)
{
    static const char *const names[PUBLISHER_CHECKS] = {"cards", "watch",     "scv",
                                                        "node",  "heartbeat", "pods"};
    return names[check];
}

/* "not renewed for 45s: the last error of the lane" */
static int overdue(const struct publisher *p, enum publisher_lane lane, const char *what,
                   int64_t ms, struct err *err)
{
    const char *reason = p->lanes[lane].failure.err.msg;
    return err_set(err, ERR_UNAVAILABLE, "%s for %llds%s%s", what, (long long)(ms / 1000),
                   reason[0] ? ": " : "", reason);
}

int publisher_check(const struct publisher *p, struct step_time now,
                    enum publisher_check check, struct err *err)
{
    const struct publisher_settings *set = &p->settings;
    int64_t ms, ms_now = now.mono_ms;
    switch (check) {
    case PUBLISHER_CHECK_CARDS:
        ms = ms_now - p->sampled_ms;
        if (ms > publisher_interval(p) + set->sampler_limit_ms)
            return err_set(err, ERR_TIMEOUT, "no response from the driver for %llds",
                           (long long)(ms / 1000));
        return 0;
    case PUBLISHER_CHECK_WATCH:
        ms = ms_now - p->alive_ms;
        if (p->watching && ms > PUBLISHER_SILENT_MS)
            return err_set(err, ERR_TIMEOUT, "no bookmark or event of the Scv for %llds",
                           (long long)(ms / 1000));
        ms = p->broken_since_ms < 0 ? 0 : ms_now - p->broken_since_ms;
        return ms <= set->late_ms ? 0
                                  : overdue(p, PUBLISHER_LANE_SCV,
                                            "the Scv is not watched", ms, err);
    case PUBLISHER_CHECK_SCV:
        ms = p->pending_since_ms < 0 ? 0 : ms_now - p->pending_since_ms;
        return ms <= set->late_ms ? 0
                                  : overdue(p, PUBLISHER_LANE_SCV,
                                            "a write of the Scv is pending", ms, err);
    case PUBLISHER_CHECK_NODE: {
        const char *reason = p->lanes[PUBLISHER_LANE_NODE].failure.err.msg;
        if (p->node_unknown_ms < 0 || ms_now - p->node_unknown_ms <= set->late_ms)
            return 0;
        return err_set(err, ERR_UNAVAILABLE, "%s",
                       reason[0] ? reason : "no answer to GET of the Node");
    }
    case PUBLISHER_CHECK_HEARTBEAT:
        ms = ms_now - p->renewed_ms;
        return ms <= set->grace_ms ? 0
                                   : overdue(p, PUBLISHER_LANE_LEASE,
                                             "the Lease was not renewed", ms, err);
    default:
        ms = ms_now - p->pods_ms;
        if (!set->with_pods || ms <= set->pods_limit_ms)
            return 0;
        return err_set(err, ERR_UNAVAILABLE,
                       "no podresources answer from the kubelet for %llds",
                       (long long)(ms / 1000));
    }
}

int publisher_ready(const struct publisher *p, struct step_time now,
                    enum publisher_check check, bool *required, struct err *err)
{
    bool first = !p->sampled && now.mono_ms - p->started_ms <= PUBLISHER_FIRST_MS;
    bool hangs = publisher_check(p, now, PUBLISHER_CHECK_CARDS, NULL) != 0;
    bool of_driver = check == PUBLISHER_CHECK_CARDS || check == PUBLISHER_CHECK_HEARTBEAT;
    *required = first || !hangs || !of_driver;
    if (first && check == PUBLISHER_CHECK_CARDS)
        return err_set(err, ERR_TIMEOUT, "no response from the driver yet");
    return publisher_check(p, now, check, err);
}

int publisher_live(const struct publisher *p, struct step_time now, struct err *err)
{
    const struct {
        const char *thread;
        int64_t ms, limit_ms;
    } threads[] = {
        {"watch", p->watching ? now.mono_ms - p->alive_ms : 0, 2 * PUBLISHER_SILENT_MS},
        {"sampler", now.mono_ms - p->sampled_ms,
         publisher_interval(p) + STUCK_SAMPLER_MS},
    };
    for (int i = 0; i < PUBLISHER_LANES; i++) {
        int64_t ms = now.mono_ms - p->lanes[i].sent_ms;
        if (p->lanes[i].busy && ms > PUBLISHER_STUCK_MS)
            return err_set(err, ERR_TIMEOUT, "thread %s hangs for %llds", lane_names[i],
                           (long long)(ms / 1000));
    }
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        if (threads[i].ms > threads[i].limit_ms)
            return err_set(err, ERR_TIMEOUT, "thread %s hangs for %llds",
                           threads[i].thread, (long long)(threads[i].ms / 1000));
    return 0;
}
