/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The step function of scv-agent: what is known of the cards, podList and the use of
 * containers; the calls, their retries and their logs; the Node, the Scv and the Lease;
 * the health checks.
 */
#include "node/publisher.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/jwrite.h"
#include "base/mem.h"
#include "domain/keys.h"
#include "domain/lease.h"
#include "node/node_scv.h"

enum {
    RETRY_MS = 500,
    RETRY_MAX_MS = 15 * 1000,
    STUCK_SAMPLER_MS = 10 * 60 * 1000, /* a driver may recover before that */
    OWNER_AGAIN_MS = 60 * 1000,        /* when another client removes the reference */
    CONFLICTS = 3,                     /* in a row that are not logged */
};

/* One call at a time, and the time of the next. */
struct lane {
    bool busy;
    uint64_t call;
    enum publisher_output_type type; /* of the call in flight, or the last one */
    int64_t sent_ms;
    int64_t due_ms;     /* the next call is not made before */
    unsigned conflicts; /* in a row */
    unsigned abandoned; /* calls in a row that did not return */
    struct step_failure failure;
};

/* The Scv of the last list, watch event or answer. */
struct observed {
    bool listed;        /* at least once */
    int64_t missing_ms; /* it does not exist since then; -1: it exists */
    struct buf version;
    uint64_t hash; /* of the members that we write */
    struct api_owner owner;
    int64_t interval_ms; /* spec.updateInterval; 0: none */
};

/* The last write. */
struct written {
    uint64_t content; /* as `want`; 0: none, or it may have failed */
    uint64_t hash;    /* of the answer; 0: unknown */
    struct node_scv_numbers numbers;
    int64_t at_ms;
    bool dialect; /* it had one */
};

struct publisher {
    /* of the step that runs, or of the last one */
    struct step_time now;
    const struct publisher_input *in;
    struct step_outputs *out;

    struct publisher_settings settings;
    struct rng rng;
    uint64_t last_id;
    struct lane lanes[PUBLISHER_LANES];

    /* the cards */
    struct card_inventory *cards;
    bool sampled;    /* a sample succeeded, failed, or takes too long */
    bool has_sample; /* one succeeded */
    struct step_failure sample_failure; /* ERR_TIMEOUT: the driver does not respond */
    int64_t started_ms, sampled_ms;
    int64_t taken_wall_ns; /* of the last sample that succeeded or failed; 0: none */

    struct arena scratch;

    /* podList */
    struct podresources *pods; /* NULL: not known */
    struct step_failure pods_failure;
    int64_t pods_ms;

    /* what containers use */
    struct usage usage;
    struct step_failure usage_failure;

    /* the Scv */
    struct observed observed;
    struct written written;
    uint64_t want;            /* hash of the content to write, without the slow fields */
    int64_t pending_since_ms; /* a write is pending since then; -1: none */
    bool must_list;           /* no write before the next list */
    bool is_newest;   /* a list is in progress; no write was answered since it began */
    bool found;       /* it has shown the Scv */
    int64_t began_ms; /* when it began */
    struct informer_status watch; /* in the last step */
    bool published;               /* at least one write succeeded */
    int64_t owner_tried_ms;

    /* the Node and the Lease */
    struct buf node_uid;
    uint8_t isolation; /* of the newest sample */
    struct buf no_isolation, dialect;
    bool unserved;            /* without a dialect */
    const char *not_stored;   /* NULL: the API server stores the dialect */
    int64_t node_seen_ms;     /* when the last GET that found it was sent; -1: never */
    int64_t node_unknown_ms;  /* unknown since; -1: known */
    int64_t lease_missing_ms; /* since then; -1: it exists, as far as is known */
    struct api_owner lease_owner;
    int64_t renewed_ms;
    bool renewed;  /* at least once */
    bool withheld; /* the Lease is deliberately not renewed */
};

/* A log line; a warning unless the code is ERR_NONE. */
#define log_line(p, subject, code, ...)                                                  \
    step_log((p)->out, (code) == ERR_NONE ? LOG_INFO : LOG_WARN, subject, code,          \
             __VA_ARGS__)

struct publisher *publisher_new(const struct publisher_settings *settings,
                                struct step_time now)
{
    struct publisher *p = xcalloc(1, sizeof *p);
    p->settings = *settings;
    p->cards = card_inventory_new(&settings->cards);
    rng_init(&p->rng, settings->seed);
    p->watch = (struct informer_status){.unknown_since_ms = now.mono_ms,
                                        .alive_ms = now.mono_ms};
    p->started_ms = p->sampled_ms = p->pods_ms = now.mono_ms;
    p->node_unknown_ms = p->pending_since_ms = p->renewed_ms = now.mono_ms;
    p->node_seen_ms = p->lease_missing_ms = p->observed.missing_ms = -1;
    p->lease_owner.other = true; /* until an answer shows it */
    p->owner_tried_ms = INT64_MIN / 2;
    return p;
}

void publisher_free(struct publisher *p)
{
    if (!p)
        return;
    buf_fini(&p->observed.version);
    buf_fini(&p->node_uid);
    buf_fini(&p->no_isolation);
    buf_fini(&p->dialect);
    card_inventory_free(p->cards);
    usage_fini(&p->usage);
    node_scv_numbers_fini(&p->written.numbers);
    podresources_unref(p->pods);
    arena_fini(&p->scratch);
    free(p);
}

/* -- outputs and calls -- */

static const struct {
    const char *words;
    const char *missing; /* what ERR_NOT_FOUND means */
} calls[] = {
    [PUBLISHER_CREATE] = {"create Scv", ""},
    [PUBLISHER_PATCH] = {"patch Scv", ""},
    [PUBLISHER_GET_NODE] = {"get Node", "; its Scv and Lease are created after it"},
    [PUBLISHER_CREATE_LEASE] = {"create Lease", "; namespace " KEY_LEASE_NAMESPACE
                                                " is missing (manifests/namespace.yaml)"},
    [PUBLISHER_PATCH_LEASE] = {"renew Lease", ""},
};

const char *const publisher_lane_names[PUBLISHER_LANES] = {"scv", "lease", "node"};

static void start_call(struct publisher *p, enum publisher_output_type type,
                       enum publisher_lane i, const struct buf *body)
{
    struct lane *lane = &p->lanes[i];
    lane->busy = true;
    lane->call = ++p->last_id * PUBLISHER_LANES + i;
    lane->type = type;
    lane->sent_ms = p->now.mono_ms;
    struct publisher_output *o = step_add(p->out, sizeof *o);
    *o = (struct publisher_output){.type = type, .lane = i, .call = lane->call};
    if (body)
        o->body = step_text(p->out, buf_span(body));
}

static enum err_code error_code(const struct publisher_input *in)
{
    return in->err ? in->err->code : ERR_NONE;
}

/* Notes a failed call and schedules the retry. It is logged when the error is new, then once
 * a minute. */
static void call_failed(struct publisher *p, enum publisher_lane i)
{
    struct lane *lane = &p->lanes[i];
    enum err_code code = error_code(p->in);
    struct err err;
    err_set(&err, code, "cannot %s %s: %s%s", calls[lane->type].words, p->settings.node,
            p->in->err ? p->in->err->msg : "",
            code == ERR_NOT_FOUND ? calls[lane->type].missing : "");
    bool log = step_failed(&lane->failure, p->now.mono_ms, &err);
    int64_t backoff = step_backoff(&p->rng, lane->failure.failures + lane->conflicts,
                                   RETRY_MS, RETRY_MAX_MS, p->in->retry_after_ms);
    lane->due_ms = p->now.mono_ms + backoff;
    if (log)
        log_line(p, publisher_lane_names[i], code, "%s; retrying in %lld ms", err.msg,
                 (long long)backoff);
}

static void call_succeeded(struct publisher *p, enum publisher_lane i)
{
    struct lane *lane = &p->lanes[i];
    if (step_succeeded(&lane->failure))
        log_line(p, publisher_lane_names[i], ERR_NONE, "can %s %s again",
                 calls[lane->type].words, p->settings.node);
    lane->conflicts = 0;
    lane->due_ms = p->now.mono_ms;
}

/* Logs the failure of a source, as above, and its end. */
static void log_source(struct publisher *p, struct step_failure *failure,
                       const char *subject, const char *what)
{
    enum err_code code = error_code(p->in);
    if (code != ERR_NONE && step_failed(failure, p->now.mono_ms, p->in->err))
        log_line(p, subject, code, "%s failed: %s; retrying", what, p->in->err->msg);
    if (code == ERR_NONE && step_succeeded(failure))
        log_line(p, subject, code, "%s succeeded again", what);
}

/* The Node owns its objects, so that the garbage collector deletes them with it. An owner of
 * another kind is somebody's choice and stays alone. One of a former Node with this name is
 * replaced, or the garbage collector would delete the object. */
static bool needs_owner(const struct publisher *p, struct api_owner owner)
{
    return p->node_uid.n && !owner.other &&
           owner.node != hash_bytes(1, p->node_uid.p, p->node_uid.n);
}

/* -- the content of the Scv -- */

/* The content, with or without the slow fields and the time. */
static struct scv content(struct publisher *p, bool whole)
{
    struct scv scv = {.has_update_time = whole,
                      .update_time = p->taken_wall_ns / 1000000000,
                      .isolation = p->isolation,
                      .dialect = p->unserved && !p->dialect.n ? SPAN(SCV_UNSERVED)
                                                              : buf_span(&p->dialect)};
    card_inventory_report(p->cards, &p->scratch, &scv);
    for (size_t i = 0; i < scv.n_cards && !whole; i++)
        scv.cards[i].has_utilization = scv.cards[i].has_temperature = false;
    if (p->pods)
        node_scv_add_pods(p->pods, &scv, &p->scratch);
    if (whole)
        node_scv_add_usage(&p->usage, &scv, &p->scratch);
    return scv;
}

static void write_message(const struct publisher *p, struct buf *out)
{
    card_inventory_message(p->cards, out);
    buf_printf(out, "%s%.*s", out->n && p->no_isolation.n ? "; " : "",
               SPAN_ARG(buf_span(&p->no_isolation)));
    buf_printf(out, "%s%s", out->n && p->not_stored ? "; " : "", p->not_stored ?: "");
}

static void render_scv(struct publisher *p)
{
    cleanup_buf struct buf text = {0};
    struct scv scv = content(p, false);
    scv_write_status(&text, &scv);
    write_message(p, &text);
    p->want = hash_bytes(1, text.p, text.n);
}

/* -- cards -- */

/* Logs every card whose health changed, and renders the Scv. */
static void show_cards(struct publisher *p)
{
    const struct card_health *h;
    const char *uuid;
    int32_t index;
    while ((h = card_inventory_changed(p->cards, &index, &uuid)))
        log_line(p, "cards", h->healthy ? ERR_NONE : ERR_UNAVAILABLE, "GPU%d %s is %s%s",
                 (int)index, uuid,
                 h->healthy ? "Healthy again" : "Unhealthy: ", h->reason);
    render_scv(p);
}

static void observe_sample(struct publisher *p)
{
    log_source(p, &p->sample_failure, "cards", "sampling");
    if (error_code(p->in) == ERR_NONE) {
        if (!p->sampled)
            log_line(p, "cards", ERR_NONE, "sampled %zu cards, driver %s",
                     p->in->sample->n_cards, p->in->sample->driver);
        card_inventory_sample(p->cards, p->now.mono_ms, p->in->sample);
        p->has_sample = true;
    } else {
        card_inventory_failed(p->cards, p->now.mono_ms, p->in->err->msg, false);
    }
    p->sampled = true;
    p->sampled_ms = p->now.mono_ms;
    p->taken_wall_ns = p->now.wall_ns;
    p->isolation = p->in->isolation;
    buf_set(&p->no_isolation, p->in->no_isolation);
    if (p->in->dialect.p)
        buf_set(&p->dialect, p->in->dialect);
    p->unserved = p->in->unserved;
    show_cards(p);
}

static void observe_event(struct publisher *p)
{
    const struct gpu_event *e = p->in->event;
    if (e->kind == GPU_EVENT_NONE)
        return;
    if (card_inventory_event(p->cards, p->now.mono_ms, e)) {
        show_cards(p);
    } else if (e->kind == GPU_EVENT_XID) {
        log_line(p, "cards", ERR_NONE, "XID %lld of %s ignored: application error",
                 (long long)e->xid, e->uuid[0] ? e->uuid : "an unknown card");
    }
}

/* -- podList and the use of containers -- */

static void observe_pods(struct publisher *p)
{
    log_source(p, &p->pods_failure, "podresources", "List");
    if (error_code(p->in) != ERR_NONE)
        return;
    p->pods_ms = p->in->pods->asked_ms;
    podresources_unref(p->pods);
    p->pods = podresources_ref(p->in->pods);
    render_scv(p);
}

/* A driver that hangs makes all cards Unhealthy, and an old podList is dropped. */
static void expire_samples_and_pods(struct publisher *p)
{
    struct err err;
    if (p->sample_failure.err.code != ERR_TIMEOUT &&
        publisher_check_driver(p, p->now, &err)) {
        step_failed(&p->sample_failure, p->now.mono_ms, &err);
        log_line(p, "cards", err.code, "%s; all cards are Unhealthy", err.msg);
        card_inventory_failed(p->cards, p->now.mono_ms, "the driver does not respond",
                              true);
        usage_fini(&p->usage);
        p->sampled = true;
        show_cards(p);
    }
    if (p->pods && p->now.mono_ms - p->pods_ms > p->settings.pods_limit_ms) {
        podresources_unref(p->pods);
        p->pods = NULL;
        render_scv(p);
    }
}

/* -- the Node --
 *
 * It is read before an object is created, because an object of a deleted Node would stay
 * forever. Otherwise the UID of the last GET is enough: when a Node is recreated, the
 * garbage collector deletes the Scv and the Lease of the old one, and they are found
 * missing. */

static bool node_seen_since(const struct publisher *p, int64_t since_ms)
{
    return p->node_uid.n && p->node_seen_ms >= since_ms;
}

static void get_node_if_needed(struct publisher *p)
{
    const struct lane *lane = &p->lanes[PUBLISHER_LANE_NODE];
    bool needed = !node_seen_since(p, p->observed.missing_ms) ||
                  !node_seen_since(p, p->lease_missing_ms);
    if (needed && !lane->busy && lane->due_ms <= p->now.mono_ms)
        start_call(p, PUBLISHER_GET_NODE, PUBLISHER_LANE_NODE, NULL);
}

static void observe_node(struct publisher *p)
{
    struct span uid = p->in->object ? p->in->object->meta.uid : (struct span){0};
    if (error_code(p->in) == ERR_NONE && uid.n) {
        call_succeeded(p, PUBLISHER_LANE_NODE);
        if (p->node_uid.n && !span_eq(uid, buf_span(&p->node_uid)))
            log_line(p, "node", ERR_NONE, "Node %s was recreated", p->settings.node);
        buf_set(&p->node_uid, uid);
        p->node_seen_ms = p->lanes[PUBLISHER_LANE_NODE].sent_ms;
        p->node_unknown_ms = -1;
        return;
    }
    if (p->node_unknown_ms < 0)
        p->node_unknown_ms = p->now.mono_ms;
    if (error_code(p->in) == ERR_NOT_FOUND)
        buf_clear(&p->node_uid);
    call_failed(p, PUBLISHER_LANE_NODE);
}

/* -- the Scv, as observed -- */

static uint64_t hash_of(const struct api_object *o)
{
    uint64_t h = hash_bytes(1, o->status.p, o->status.n);
    return hash_bytes(h, o->message.p, o->message.n);
}

static void observe_scv(struct publisher *p, const struct api_object *o)
{
    int64_t before = publisher_interval(p), ms = o->interval_ms;
    if (ms != p->observed.interval_ms && ms > 0 &&
        (ms < PUBLISHER_MIN_INTERVAL_MS || ms > PUBLISHER_MAX_INTERVAL_MS))
        log_line(p, "cards", ERR_INVALID,
                 "spec.updateInterval: %lld is not within %d..%d; using the nearest",
                 (long long)ms, PUBLISHER_MIN_INTERVAL_MS, PUBLISHER_MAX_INTERVAL_MS);
    p->observed.interval_ms = ms;
    if (publisher_interval(p) != before)
        log_line(p, "cards", ERR_NONE, "sampling every %lld ms",
                 (long long)publisher_interval(p));
    p->observed.missing_ms = -1;
    buf_set(&p->observed.version, o->meta.version);
    p->observed.hash = hash_of(o);
    p->observed.owner = o->owner;
}

static void observe_missing(struct publisher *p, int64_t since_ms)
{
    p->observed.missing_ms = since_ms;
    p->observed.interval_ms = 0;
}

/* A list is the truth, also if the API server was restored and all versions are lower than
 * before. A watch event, and an item of a list that began before an answer, may be older than the
 * answer. */
static void observe_object(struct publisher *p)
{
    const struct api_object *o = p->in->object;
    p->found = true;
    if (!p->is_newest &&
        object_version_is_older(o->meta.version, buf_span(&p->observed.version)))
        return;
    if (p->in->gone) {
        if (p->observed.missing_ms < 0)
            log_line(p, "scv", ERR_NONE, "Scv %s was deleted; creating it again",
                     p->settings.node);
        buf_set(&p->observed.version, o->meta.version);
        observe_missing(p, p->now.mono_ms);
        return;
    }
    observe_scv(p, o);
    if (!p->observed.listed) { /* what the previous process published */
        card_inventory_adopt(p->cards, p->now.mono_ms, &o->scv);
        if (!p->dialect.p)
            buf_set(&p->dialect, o->scv.dialect);
        show_cards(p);
    }
}

static void observe_list(struct publisher *p)
{
    bool begins = p->in->type == PUBLISHER_LIST_STARTED;
    if (begins) {
        p->began_ms = p->now.mono_ms;
        p->found = false;
    } else if (p->is_newest && !p->found) {
        buf_clear(&p->observed.version);
        observe_missing(p, p->began_ms);
    }
    p->is_newest = begins;
    p->observed.listed |= !begins;
    p->must_list &= begins;
}

/* -- the Scv, as written -- */

static bool must_write(struct publisher *p, int64_t now_ms)
{
    const struct written *w = &p->written;
    int64_t age = now_ms - w->at_ms;
    if (!p->sampled || !p->observed.listed)
        return false;
    if (p->observed.missing_ms >= 0 || w->content != p->want)
        return true;
    if (needs_owner(p, p->observed.owner) && now_ms - p->owner_tried_ms >= OWNER_AGAIN_MS)
        return true;
    if (w->hash && w->hash != p->observed.hash)
        return age >= publisher_interval(p); /* another client may write continuously */
    /* The sample of a newer use follows at once, successful or not: until then the use
     * does not belong to the memory of the cards. */
    if (p->settings.refresh_ms == 0 || p->usage.taken_ms > p->sampled_ms ||
        age < p->settings.refresh_ms)
        return false;
    struct scv scv = content(p, true);
    return node_scv_numbers_differ(&w->numbers, &scv);
}

/* Creates the Scv, or patches the one that exists. A message follows the creation. */
static void write_scv(struct publisher *p)
{
    bool create = p->observed.missing_ms >= 0;
    cleanup_buf struct buf body = {0}, status = {0}, message = {0};
    struct scv scv = content(p, true);
    struct jwrite w = {.out = &body};
    write_message(p, &message);
    if (create) {
        scv.meta.name = span_of(p->settings.node);
        scv.owner_uid = buf_span(&p->node_uid);
        scv.update_interval_ms = p->settings.interval_ms;
        scv_write(&body, &scv);
    } else {
        jwrite_object(&w, NULL);
        jwrite_object(&w, "metadata");
        jwrite_str(&w, "resourceVersion", buf_span(&p->observed.version));
        jwrite_object(&w, "annotations");
        if (message.n)
            jwrite_str(&w, KEY_MESSAGE, buf_span(&message));
        else
            jwrite_raw(&w, KEY_MESSAGE, SPAN("null"));
        jwrite_object_end(&w);
        if (needs_owner(p, p->observed.owner)) {
            object_write_owner(&w, span_of(p->settings.node), buf_span(&p->node_uid));
            p->owner_tried_ms = p->now.mono_ms;
        }
        jwrite_object_end(&w);
        node_scv_status_patch(&status, &scv);
        jwrite_raw(&w, "status", buf_span(&status));
        jwrite_object_end(&w);
    }
    node_scv_numbers_read(&p->written.numbers, &scv);
    p->written.content = create && message.n ? 0 : p->want;
    p->written.at_ms = p->now.mono_ms;
    p->written.dialect = scv.dialect.n;
    p->written.hash = 0;
    start_call(p, create ? PUBLISHER_CREATE : PUBLISHER_PATCH, PUBLISHER_LANE_SCV, &body);
}

/* An older CRD has no such field. */
static void check_dialect(struct publisher *p, const struct scv *answer)
{
    const char *before = p->not_stored;
    p->not_stored = p->written.dialect && !answer->dialect.n
                        ? "the API server does not store status.dialect: update the CRD "
                          "of Scvs"
                        : NULL;
    if (p->not_stored && !before)
        log_line(p, "scv", ERR_INVALID, "%s", p->not_stored);
    if (p->not_stored != before)
        render_scv(p);
}

static void observe_write(struct publisher *p)
{
    struct lane *lane = &p->lanes[PUBLISHER_LANE_SCV];
    const struct api_object *o = p->in->object;
    enum err_code code = error_code(p->in);
    bool created = lane->type == PUBLISHER_CREATE;
    if (code == ERR_NONE) {
        call_succeeded(p, PUBLISHER_LANE_SCV);
        p->pending_since_ms = -1;
        p->published = true;
        p->is_newest = false;
        if (created)
            log_line(p, "scv", ERR_NONE, "created Scv %s", p->settings.node);
        p->written.hash = o ? hash_of(o) : 0;
        if (o)
            check_dialect(p, &o->scv);
        if (o &&
            !object_version_is_older(o->meta.version, buf_span(&p->observed.version)))
            observe_scv(p, o);
        return;
    }
    bool stale = code == ERR_CONFLICT || (code == ERR_NOT_FOUND && !created);
    p->written.content = 0; /* the write may have taken effect: write again */
    /* The object is newer, exists already, or was deleted: read it and write again. */
    if (stale || code == ERR_NOT_FOUND) {
        struct publisher_output *relist = step_add(p->out, sizeof *relist);
        relist->type = PUBLISHER_RELIST;
        p->must_list = true;
    }
    if (!stale || lane->conflicts >= CONFLICTS) {
        call_failed(p, PUBLISHER_LANE_SCV);
        return;
    }
    lane->conflicts++;
}

/* -- time -- */

static void tick_scv(struct publisher *p)
{
    const struct lane *lane = &p->lanes[PUBLISHER_LANE_SCV];
    int64_t now_ms = p->now.mono_ms;
    bool changed = !lane->busy && must_write(p, now_ms);
    if (p->observed.listed && p->sampled && !lane->busy && !changed)
        p->pending_since_ms = -1;
    else if (p->pending_since_ms < 0)
        p->pending_since_ms = now_ms;
    if (changed && lane->due_ms <= now_ms && !p->must_list &&
        (p->observed.missing_ms < 0 || node_seen_since(p, p->observed.missing_ms)))
        write_scv(p);
}

/* -- the heartbeat -- */

/* Whether everything that the heartbeat vouches for works. */
static bool may_vouch(struct publisher *p)
{
    struct err err = {0};
    bool vouch = publisher_check_driver(p, p->now, &err) == 0;
    for (int check = PUBLISHER_CHECK_WATCH; check <= PUBLISHER_CHECK_SCV && vouch;
         check++)
        vouch = publisher_check(p, p->now, check, NULL, &err) == 0;
    if (vouch == p->withheld)
        log_line(p, "lease", err.code, "heartbeat %s%s",
                 vouch ? "resumed" : "withheld: ", vouch ? "" : err.msg);
    p->withheld = !vouch;
    return vouch && p->published;
}

static void send_lease_if_due(struct publisher *p)
{
    const struct lane *lane = &p->lanes[PUBLISHER_LANE_LEASE];
    bool create = p->lease_missing_ms >= 0;
    if (lane->busy || lane->due_ms > p->now.mono_ms || !may_vouch(p) ||
        (create && !node_seen_since(p, p->lease_missing_ms)))
        return;
    cleanup_buf struct buf body = {0}, time = {0};
    clock_format_us(&time, p->now.wall_ns / 1000);
    struct lease lease = {.meta.name = span_of(p->settings.node),
                          .holder = span_of(p->settings.node),
                          .duration_s = (p->settings.grace_ms + 999) / 1000,
                          .renew_time = buf_span(&time),
                          .transitions = -1};
    if (create)
        lease.acquire_time = buf_span(&time);
    if (needs_owner(p, p->lease_owner))
        lease.owner_uid = buf_span(&p->node_uid);
    lease_write(&body, &lease);
    start_call(p, create ? PUBLISHER_CREATE_LEASE : PUBLISHER_PATCH_LEASE,
               PUBLISHER_LANE_LEASE, &body);
}

static void observe_lease(struct publisher *p)
{
    struct lane *lane = &p->lanes[PUBLISHER_LANE_LEASE];
    enum err_code code = error_code(p->in);
    bool created = lane->type == PUBLISHER_CREATE_LEASE;
    if (code == ERR_NONE) {
        call_succeeded(p, PUBLISHER_LANE_LEASE);
        if (created)
            log_line(p, "lease", ERR_NONE, "created Lease " KEY_LEASE_NAMESPACE "/%s",
                     p->settings.node);
        p->lease_missing_ms = -1;
        p->renewed_ms = lane->sent_ms;
        p->renewed = true;
        lane->due_ms = lane->sent_ms + p->settings.renew_ms;
        if (p->in->object)
            p->lease_owner = p->in->object->owner;
    } else if (!created && code == ERR_NOT_FOUND) {
        p->lease_missing_ms = p->now.mono_ms;
        p->lease_owner = (struct api_owner){0};
    } else if (created && code == ERR_CONFLICT) {
        p->lease_missing_ms = -1;    /* another client created it, */
        p->lease_owner.other = true; /* with an owner that is not known yet */
    } else {
        call_failed(p, PUBLISHER_LANE_LEASE);
    }
}

/* -- the step -- */

static void observe_answer(struct publisher *p)
{
    static void (*const observers[PUBLISHER_LANES])(struct publisher *) = {
        [PUBLISHER_LANE_SCV] = observe_write,
        [PUBLISHER_LANE_LEASE] = observe_lease,
        [PUBLISHER_LANE_NODE] = observe_node};
    const uint64_t i = p->in->call % PUBLISHER_LANES;
    struct lane *lane = &p->lanes[i];
    if (!publisher_awaits(p, p->in->call))
        return;
    lane->busy = false;
    lane->abandoned = 0;
    observers[i](p);
}

/* A call that does not return fails, and the lane goes on without it. */
static void abandon_calls(struct publisher *p)
{
    for (int i = 0; i < PUBLISHER_LANES; i++) {
        struct lane *lane = &p->lanes[i];
        const unsigned abandoned = lane->abandoned + 1;
        struct err err;
        if (!lane->busy || p->now.mono_ms - lane->sent_ms <= PUBLISHER_STUCK_MS)
            continue;
        err_set(&err, ERR_TIMEOUT, "the call does not return");
        const struct publisher_input in = {
            .type = PUBLISHER_ANSWER, .call = lane->call, .err = &err};
        p->in = &in;
        observe_answer(p);
        lane->abandoned = abandoned;
        struct publisher_output *o = step_add(p->out, sizeof *o);
        *o = (struct publisher_output){.type = PUBLISHER_ABANDON, .lane = i};
    }
}

bool publisher_awaits(const struct publisher *p, uint64_t call)
{
    const struct lane *lane = &p->lanes[call % PUBLISHER_LANES];
    return lane->busy && lane->call == call;
}

void publisher_step(struct publisher *p, struct step_time now,
                    const struct publisher_input *in, struct step_outputs *outputs)
{
    arena_reset(&p->scratch);
    p->now = now;
    p->in = in;
    p->out = outputs;
    if (in->watch)
        p->watch = *in->watch;
    switch (in->type) {
    case PUBLISHER_TICK:
        break;
    case PUBLISHER_SAMPLED:
        observe_sample(p);
        break;
    case PUBLISHER_EVENT:
        observe_event(p);
        break;
    case PUBLISHER_PODS:
        observe_pods(p);
        break;
    case PUBLISHER_USAGE:
        log_source(p, &p->usage_failure, "usage", "measuring");
        usage_fini(&p->usage);
        p->usage = *p->in->usage;
        *p->in->usage = (struct usage){0};
        break;
    case PUBLISHER_ANSWER:
        observe_answer(p);
        break;
    case PUBLISHER_OBJECT:
        observe_object(p);
        break;
    default:
        observe_list(p);
    }
    abandon_calls(p);
    expire_samples_and_pods(p);
    tick_scv(p);
    send_lease_if_due(p);
    get_node_if_needed(p);
}

/* A call that was due in the last step and was not made waits for another input. */
int64_t publisher_due(const struct publisher *p)
{
    int64_t first = INT64_MAX;
    for (int i = 0; i < PUBLISHER_LANES; i++)
        if (!p->lanes[i].busy && p->lanes[i].due_ms > p->now.mono_ms)
            step_due(&first, p->lanes[i].due_ms);
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
    if (p->sample_failure.failures && ms < PUBLISHER_MISSING_MS &&
        card_inventory_is_empty(p->cards))
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
           (p->sampled && card_inventory_is_empty(p->cards));
}

/* -- health checks -- */

const char *publisher_check_name(enum publisher_check check)
{
    static const char *const names[PUBLISHER_CHECKS] = {"cards", "watch",     "scv",
                                                        "node",  "heartbeat", "pods"};
    return names[check];
}

int publisher_check_driver(const struct publisher *p, struct step_time now,
                           struct err *err)
{
    const int64_t ms = now.mono_ms - p->sampled_ms;
    if (ms <= publisher_interval(p) + p->settings.sampler_limit_ms)
        return 0;
    return err_set(err, ERR_TIMEOUT, "no response from the driver for %llds",
                   (long long)(ms / 1000));
}

static int check_cards(const struct publisher *p, struct step_time now, struct err *err)
{
    const struct step_failure *f = &p->sample_failure;
    if (publisher_check_driver(p, now, err))
        return -1;
    if (!p->has_sample)
        return err_set(err, ERR_UNAVAILABLE, "no card was sampled yet%s%s",
                       f->failures ? ": " : "", f->err.msg);
    if (!f->failures ||
        card_health_tolerates(&p->settings.cards.health, f->since_ms, now.mono_ms))
        return 0;
    return err_set(err, f->err.code, "no sample for %llds: %s",
                   (long long)(now.mono_ms - f->since_ms) / 1000, f->err.msg);
}

int publisher_check(const struct publisher *p, struct step_time now,
                    enum publisher_check check, bool *required, struct err *err)
{
    const struct publisher_settings *set = &p->settings;
    const struct {
        const char *what;
        int64_t since_ms, limit_ms; /* since -1: in order */
        const char *why;
        const char *not_yet; /* NULL: it was in order before */
    } rows[] = {
        [PUBLISHER_CHECK_CARDS] = {.since_ms = -1},
        [PUBLISHER_CHECK_WATCH] = {"the Scv is not watched", p->watch.unknown_since_ms,
                                   set->late_ms, p->watch.failure.err.msg, NULL},
        [PUBLISHER_CHECK_SCV] = {"a write of the Scv is pending", p->pending_since_ms,
                                 set->late_ms,
                                 p->lanes[PUBLISHER_LANE_SCV].failure.err.msg,
                                 p->published ? NULL : "the Scv is not written yet"},
        [PUBLISHER_CHECK_NODE] = {"the Node is not known", p->node_unknown_ms,
                                  set->late_ms,
                                  p->lanes[PUBLISHER_LANE_NODE].failure.err.msg,
                                  p->node_seen_ms < 0 ? "the Node is not known yet"
                                                      : NULL},
        [PUBLISHER_CHECK_HEARTBEAT] = {"the Lease was not renewed", p->renewed_ms,
                                       set->grace_ms,
                                       p->lanes[PUBLISHER_LANE_LEASE].failure.err.msg,
                                       p->renewed ? NULL
                                                  : "the Lease is not renewed yet"},
        [PUBLISHER_CHECK_PODS] = {"no podresources answer from the kubelet",
                                  set->with_pods ? p->pods_ms : -1, set->pods_limit_ms,
                                  "", NULL}};
    const int64_t ms = rows[check].since_ms < 0 ? 0 : now.mono_ms - rows[check].since_ms;
    if (required) {
        bool first =
            !p->taken_wall_ns && now.mono_ms - p->started_ms <= PUBLISHER_FIRST_MS;
        bool of_driver =
            check == PUBLISHER_CHECK_CARDS || (check == PUBLISHER_CHECK_HEARTBEAT &&
                                               publisher_check_driver(p, now, NULL) != 0);
        *required = first || !of_driver;
    }
    if (check == PUBLISHER_CHECK_CARDS)
        return check_cards(p, now, err);
    if (ms > rows[check].limit_ms)
        return err_set(err, ERR_TIMEOUT, "%s for %llds%s%s", rows[check].what,
                       (long long)(ms / 1000), *rows[check].why ? ": " : "",
                       rows[check].why);
    return required && rows[check].not_yet
               ? err_set(err, ERR_TIMEOUT, "%s", rows[check].not_yet)
               : 0;
}

static int check_thread(const char *name, int64_t ms, int64_t limit_ms, struct err *err)
{
    if (ms <= limit_ms)
        return 0;
    return err_set(err, ERR_TIMEOUT, "thread %s hangs for %llds", name,
                   (long long)(ms / 1000));
}

int publisher_live(const struct publisher *p, struct step_time now, struct err *err)
{
    int rc =
        check_thread("watch", now.mono_ms - p->watch.alive_ms, PUBLISHER_HANGS_MS, err);
    if (!rc)
        rc = check_thread("sampler", now.mono_ms - p->sampled_ms,
                          publisher_interval(p) + STUCK_SAMPLER_MS, err);
    for (int i = 0; !rc && i < PUBLISHER_LANES; i++)
        if (p->lanes[i].abandoned >= PUBLISHER_ABANDONED)
            rc = check_thread(publisher_lane_names[i],
                              now.mono_ms - p->lanes[i].failure.since_ms, 0, err);
    return rc;
}
