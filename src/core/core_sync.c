/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_priv.h"

#include "base/mem.h"

/*
 * List + watch of five kinds, each independent of the others: list, watch from the list's
 * resourceVersion, watch again from the last version when the watch ends, list again when
 * that version has expired. Every list is consistent: requested without resourceVersion.
 */

enum {
    BACKOFF_MIN_MS = 800,
    BACKOFF_MAX_MS = 30 * 1000,
    HEALTHY_MS = 30 * 1000, /* a watch that lasted this long resets the relist backoff */
    RETRY_SOON_MS = 1000,   /* the maximum wait after sync_retry_soon */
    ABSENT_RETRY_MS = 30 * 1000, /* while the kind itself does not exist: no CRD */
    WATCH_INTERVAL_MS = 1000,    /* between two watches: a server may end each at once */
    /* The first list of pods starts once the lease is known: a new leader lists them again. */
    PODS_WAIT_MS = 500,
};

/* Doubles *backoff_ms; returns 0.5 to 1.5 times that, at least retry_after_ms. The
 * constants are those of client-go's reflector. */
static int64_t back_off(struct core *core, int64_t *backoff_ms, int64_t retry_after_ms)
{
    *backoff_ms = *backoff_ms ? *backoff_ms * 2 : BACKOFF_MIN_MS;
    if (*backoff_ms > BACKOFF_MAX_MS)
        *backoff_ms = BACKOFF_MAX_MS;
    int64_t wait =
        *backoff_ms / 2 + (int64_t)rng_below(&core->rng, (uint64_t)*backoff_ms);
    return wait > retry_after_ms ? wait : retry_after_ms;
}

static void list_now(struct step *s, enum core_kind kind)
{
    struct cursor *c = &s->core->cursors[kind];
    c->state = CURSOR_LISTING;
    c->run = core_next_id(s->core);
    c->requested_ms = s->now.mono_ms;
    struct core_output *o = output_add(s, CORE_LIST);
    o->kind = kind;
    o->run = c->run;
}

static void watch_now(struct step *s, enum core_kind kind)
{
    struct cursor *c = &s->core->cursors[kind];
    c->state = CURSOR_WATCHING;
    c->run = core_next_id(s->core);
    c->requested_ms = s->now.mono_ms;
    const char *version = output_str(s, buf_span(&c->version));
    struct core_output *o = output_add(s, CORE_WATCH);
    o->kind = kind;
    o->run = c->run;
    o->version = version;
}

void sync_start(struct step *s)
{
    for (int kind = 0; kind < CORE_KINDS; kind++) {
        struct cursor *c = &s->core->cursors[kind];
        c->state = CURSOR_LIST_DUE;
        c->due_ms = s->now.mono_ms;
        c->listed_ms = INT64_MIN;
    }
    s->core->cursors[CORE_PODS].due_ms += PODS_WAIT_MS;
}

static int64_t cursor_due(const struct core *core, int kind)
{
    const struct cursor *c = &core->cursors[kind];
    if (c->state != CURSOR_LIST_DUE && c->state != CURSOR_WATCH_DUE)
        return INT64_MAX;
    if (kind == CORE_PODS && !c->synced && core->leader.settled && !c->backoff_ms)
        return INT64_MIN;
    return c->due_ms;
}

void sync_tick(struct step *s)
{
    for (int kind = 0; kind < CORE_KINDS; kind++) {
        if (cursor_due(s->core, kind) > s->now.mono_ms)
            continue;
        if (s->core->cursors[kind].state == CURSOR_LIST_DUE)
            list_now(s, (enum core_kind)kind);
        else
            watch_now(s, (enum core_kind)kind);
    }
}

void sync_retry_soon(struct step *s)
{
    for (int kind = 0; kind < CORE_KINDS; kind++) {
        struct cursor *c = &s->core->cursors[kind];
        bool idle = c->state == CURSOR_LIST_DUE || c->state == CURSOR_WATCH_DUE;
        if (idle && c->last_error.n && c->due_ms > s->now.mono_ms + RETRY_SOON_MS)
            c->due_ms = s->now.mono_ms + RETRY_SOON_MS;
    }
}

int64_t sync_due(const struct core *core)
{
    int64_t due = INT64_MAX;
    for (int kind = 0; kind < CORE_KINDS; kind++) {
        int64_t at = cursor_due(core, kind);
        due = at < due ? at : due;
    }
    return due;
}

/* The cursor of the input; NULL when its run has been superseded. */
static struct cursor *current(struct step *s)
{
    struct cursor *c = &s->core->cursors[s->in->kind];
    bool running = c->state == CURSOR_LISTING || c->state == CURSOR_WATCHING;
    return running && s->in->run == c->run ? c : NULL;
}

static void see_version(struct cursor *c, struct span version)
{
    if (!version.n)
        return;
    buf_clear(&c->version);
    buf_add_span(&c->version, version);
}

static struct span object_node(const struct core_input *in)
{
    switch (in->kind) {
    case CORE_NODES:
        return in->node->meta.name;
    case CORE_SCVS:
        return in->scv->meta.name;
    case CORE_LEASES:
        return in->lease->meta.name;
    default:
        return in->unhealthy->node;
    }
}

/* Position of the first card with the same UUID as another one; -1: none. */
static int32_t first_duplicate(const struct ledger *l, struct span name)
{
    const struct ledger_node *node = ledger_node_find(l, name);
    for (uint32_t i = 0; node && i < node->n_cards; i++)
        if (card_is_duplicate(node, i))
            return (int32_t)i;
    return -1;
}

static void log_duplicate(struct step *s, const struct ledger_node *node, uint32_t first)
{
    const struct card *a = &node->cards[first], *b = a + 1;
    while (!span_eq(a->uuid, b->uuid))
        b++;
    output_log(
        s, ERR_CONFLICT,
        "node %.*s: the Scv has the same UUID %.*s for GPU%d and GPU%d; neither gets new "
        "pods until the UUIDs differ",
        SPAN_ARG(node->name), SPAN_ARG(a->uuid), a->index, b->index);
}

static void scv_seen(struct step *s, const struct core_input *in)
{
    struct ledger *l = s->core->ledger;
    struct span name = in->scv->meta.name;
    int32_t before = first_duplicate(l, name);
    ledger_scv_seen(l, in->scv, in->run);
    int32_t now = first_duplicate(l, name);
    if (now >= 0 && before < 0)
        log_duplicate(s, ledger_node_find(l, name), (uint32_t)now);
    heartbeat_scv_seen(s, in->scv);
}

static void apply(struct step *s, const struct core_input *in)
{
    struct ledger *l = s->core->ledger;
    struct span name = object_node(in);
    switch (in->kind) {
    case CORE_NODES:
        if (in->deleted)
            ledger_node_deleted(l, name);
        else
            ledger_node_seen(l, in->node, in->run);
        break;
    case CORE_SCVS:
        if (in->deleted)
            ledger_scv_deleted(l, name);
        else
            scv_seen(s, in);
        break;
    case CORE_LEASES:
        if (in->deleted)
            ledger_lease_deleted(l, name);
        else
            ledger_lease_seen(l, in->lease, in->run);
        if (!in->deleted)
            heartbeat_seen(s, in->lease);
        break;
    default:
        if (in->deleted)
            ledger_unhealthy_deleted(l, name);
        else
            ledger_unhealthy_seen(l, in->unhealthy, in->run);
        break;
    }
}

void sync_object(struct step *s)
{
    const struct core_input *in = s->in;
    struct cursor *c = current(s);
    if (!c)
        return;
    c->last_event_ms = s->now.mono_ms;
    if (in->kind == CORE_LEASES && c->state == CURSOR_WATCHING)
        heartbeat_watch_event(s);
    if (in->kind == CORE_PODS && in->invalid && !in->deleted) {
        core_pod_exists(s, in->pod->meta.uid);
    } else if (in->kind == CORE_PODS) {
        core_pod_observed(s, in->pod, in->deleted, CORE_POD_FROM_WATCH);
    } else if (object_node(in).n) {
        struct wakeup_fits before = wakeup_before(s, object_node(in));
        apply(s, in);
        if (in->deleted)
            heartbeat_deleted(s, object_node(in));
        wakeup_after(s, &before);
    }
    if (c->state == CURSOR_WATCHING)
        see_version(c, in->version);
}

static void sweep(struct step *s, enum core_kind kind, const struct cursor *c)
{
    static const enum ledger_kind ledger_kinds[CORE_KINDS] = {
        [CORE_NODES] = LEDGER_NODE,
        [CORE_SCVS] = LEDGER_SCV,
        [CORE_LEASES] = LEDGER_LEASE,
        [CORE_CONFIGMAPS] = LEDGER_UNHEALTHY,
    };
    if (kind == CORE_PODS)
        core_pods_sweep(s, c->run, c->requested_ms);
    else
        ledger_sweep(s->core->ledger, ledger_kinds[kind], c->run);
    if (kind == CORE_SCVS || kind == CORE_LEASES)
        heartbeat_swept(s);
}

static void listed(struct step *s, struct cursor *c)
{
    if (s->in->kind == CORE_LEASES)
        heartbeat_listed(s, c->requested_ms);
    c->synced = true;
    c->last_event_ms = s->now.mono_ms;
    c->listed_ms = c->requested_ms;
    core_set_last_error(&c->last_error, NULL);
}

void sync_list_ended(struct step *s)
{
    struct cursor *c = current(s);
    if (!c || c->state != CURSOR_LISTING)
        return;
    sweep(s, s->in->kind, c);
    listed(s, c);
    buf_clear(&c->version);
    see_version(c, s->in->version);
    c->backoff_ms = 0;
    c->state = CURSOR_WATCH_DUE;
    c->due_ms = s->now.mono_ms;
}

/* Kinds that a cluster may not serve (no Scv CRD): 404 counts as an empty list. Every
 * cluster serves the other kinds. */
static bool may_be_absent(enum core_kind kind)
{
    return kind == CORE_SCVS || kind == CORE_LEASES;
}

void sync_list_failed(struct step *s)
{
    const struct core_input *in = s->in;
    struct cursor *c = current(s);
    if (!c || c->state != CURSOR_LISTING)
        return;
    c->state = CURSOR_LIST_DUE;
    if (in->err->code == ERR_NOT_FOUND && may_be_absent(in->kind)) {
        bool first = !c->synced;
        sweep(s, in->kind, c);
        listed(s, c);
        c->due_ms = s->now.mono_ms + ABSENT_RETRY_MS;
        if (first)
            output_log(s, ERR_NOT_FOUND,
                       "list of %s: the API server does not serve this kind; retrying "
                       "every %d s",
                       core_kind_name(in->kind), ABSENT_RETRY_MS / 1000);
        return;
    }
    if (in->kind == CORE_LEASES)
        heartbeat_broken(s);
    core_set_last_error(&c->last_error, in->err);
    c->due_ms = s->now.mono_ms + back_off(s->core, &c->backoff_ms, in->retry_after_ms);
    output_log(s, in->err->code, "list of %s failed: %s", core_kind_name(in->kind),
               in->err->msg);
}

void sync_watch_progress(struct step *s)
{
    struct cursor *c = current(s);
    if (!c || c->state != CURSOR_WATCHING)
        return;
    c->last_event_ms = s->now.mono_ms;
    c->backoff_ms = 0;
    core_set_last_error(&c->last_error, NULL);
    see_version(c, s->in->version);
    /* An opened watch has delivered nothing yet; a bookmark has a version. */
    if (s->in->kind == CORE_LEASES && s->in->version.n)
        heartbeat_watch_event(s);
}

/* After a watch failed with an expired version: the first list after a healthy watch is
 * immediate. A server that answers every watch with 410 gets lists at growing intervals;
 * successful lists and opened watches do not reset them. */
static int64_t relist_delay(struct step *s, struct cursor *c)
{
    bool first = c->relist_ms == 0;
    int64_t wait = back_off(s->core, &c->relist_ms, s->in->retry_after_ms);
    return first && s->in->err->code == ERR_GONE ? 0 : wait;
}

void sync_watch_ended(struct step *s)
{
    const struct core_input *in = s->in;
    struct cursor *c = current(s);
    if (!c || c->state != CURSOR_WATCHING)
        return;
    enum err_code code = in->err ? in->err->code : ERR_NONE;
    c->state = CURSOR_WATCH_DUE;
    c->due_ms = s->now.mono_ms;
    if (s->now.mono_ms - c->requested_ms >= HEALTHY_MS)
        c->relist_ms = 0;
    if (code == ERR_NONE) { /* watches end every minute or so */
        if (c->due_ms < c->requested_ms + WATCH_INTERVAL_MS)
            c->due_ms = c->requested_ms + WATCH_INTERVAL_MS;
        return;
    }
    if (in->kind == CORE_LEASES)
        heartbeat_broken(s);
    core_set_last_error(&c->last_error, in->err);
    if (code == ERR_GONE || code == ERR_NOT_FOUND || code == ERR_INVALID) {
        c->state = CURSOR_LIST_DUE;
        c->due_ms += relist_delay(s, c);
    } else {
        c->due_ms += back_off(s->core, &c->backoff_ms, in->retry_after_ms);
    }
    output_log(s, code, "watch of %s: %s", core_kind_name(in->kind), in->err->msg);
}

void sync_relist(struct step *s, enum core_kind kind)
{
    struct cursor *c = &s->core->cursors[kind];
    if (c->state == CURSOR_LISTING && c->requested_ms >= s->now.mono_ms)
        return;
    list_now(s, kind);
}
