/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/alloc.h"

#include <stdlib.h>

#include "base/mem.h"
#include "plugin/alloc_priv.h"

enum { TICK_MS = 1000 };

struct alloc *alloc_new(const struct alloc_settings *settings)
{
    struct alloc *a = xcalloc(1, sizeof *a);
    a->settings = *settings;
    a->node = xstrdup(settings->node);
    a->settings.node = a->node;
    a->kubelet_epoch = 1;
    a->settings.response.unit_mib = settings->unit_mib;
    a->wanted_strategy = settings->response.strategy;
    cards_init(&a->cards, &(struct cards_settings){.unit_mib = settings->unit_mib,
                                                   .silent_ms = settings->silent_ms,
                                                   .health = settings->health});
    return a;
}

void alloc_free(struct alloc *a)
{
    if (!a)
        return;
    for (struct local_pod *p = a->local_pods, *next; p; p = next) {
        next = p->next;
        alloc_pod_free(p);
    }
    for (struct pending_request *req = a->requests, *next; req; req = next) {
        next = req->next;
        alloc_request_free(req);
    }
    alloc_identify_forget_unknown(a);
    allocation_set_fini(&a->allocations);
    driver_view_free(a->driver);
    free(a->node);
    free(a);
}

void alloc_restore(struct alloc *a, struct allocation_set *from)
{
    for (size_t i = 0; i < from->n; i++) {
        struct allocation *al = from->items[i];
        if (allocation_set_find(&a->allocations, al->uid, al->container, al->resource))
            allocation_free(al);
        else
            allocation_set_put(&a->allocations, al);
    }
    from->n = 0;
    allocation_set_fini(from);
}

/* Logs the strategy when it changes, because nothing else tells what `auto` is. */
static void choose_strategy(struct alloc *a, struct alloc_outputs *out)
{
    cleanup_buf struct buf why = {0};
    struct response_settings *r = &a->settings.response;
    r->view = a->driver;
    if (a->wanted_strategy != DRIVER_AUTO || !a->node_read || !a->driver)
        return;
    enum driver_strategy chosen = driver_view_choose(a->driver, &a->driver_node, &why);
    if (chosen != r->strategy)
        alloc_output_log(out, LOG_INFO, "--device-list-strategy=auto stands for %s: %s",
                         driver_strategy_name(chosen), why.p);
    r->strategy = chosen;
}

void alloc_set_driver(struct alloc *a, struct driver_view *view,
                      struct alloc_outputs *out)
{
    driver_view_free(a->driver);
    a->driver = view;
    choose_strategy(a, out);
}

void alloc_node_read(struct alloc *a, struct alloc_time now, bool cgpu_disable,
                     const struct driver_node *node, struct alloc_outputs *out)
{
    bool first = !a->node_read;
    a->settings.response.cgpu_disable = cgpu_disable;
    a->driver_node = *node;
    a->node_read = true;
    choose_strategy(a, out);
    if (first)
        alloc_request_retry_all(a, now, out);
}

bool alloc_has_pod(const struct alloc *a, struct span uid)
{
    return alloc_pod_find(a, uid) != NULL;
}

void alloc_isolation_failed(struct alloc *a, struct span uid, const char *why,
                            struct alloc_outputs *out)
{
    struct local_pod *p = alloc_pod_find(a, uid);
    if (!p || p->isolation_reported)
        return;
    p->isolation_reported = true;
    alloc_output_event(out, p->pod, "GPUIsolationFailed",
                       alloc_output_text(out, span_of(why)));
}

void alloc_wake_at(struct alloc *a, int64_t at_ms)
{
    if (at_ms < a->due_ms)
        a->due_ms = at_ms;
}

bool alloc_read_id(const struct alloc *a, enum ids_resource r, struct span text,
                   struct device_id *unit)
{
    struct ids_id id;
    if (!ids_read(r, text, &id))
        return false;
    *unit = (struct device_id){cards_by_tag(&a->cards, &id.tag), id.unit};
    return unit->card && id.unit < unit->card->most_units;
}

static void log_cards(const struct alloc *a, struct alloc_outputs *out)
{
    for (size_t i = 0; i < a->cards.n; i++) {
        const struct plugin_card *c = &a->cards.items[i];
        alloc_output_log(
            out, c->health.healthy ? LOG_INFO : LOG_WARN, "card %s%s%s: %lld units%s%s",
            alloc_output_card(out, c), c->model[0] ? ", " : "", c->model,
            (long long)c->units,
            c->health.healthy ? ", healthy" : ", unhealthy: ", c->health.reason);
    }
}

static bool is_allocated(const struct alloc *a, const struct plugin_card *card)
{
    for (size_t i = 0; i < a->allocations.n; i++)
        if (allocation_card(a->allocations.items[i], span_of(card->uuid)))
            return true;
    return false;
}

static bool has(const struct span *uuids, size_t n, struct span uuid)
{
    for (size_t i = 0; i < n; i++)
        if (span_eq(uuids[i], uuid))
            return true;
    return false;
}

/* The cards that containers have and no sample of this process had: they were lost before
 * it started. */
static size_t count_lost_before(const struct alloc *a)
{
    struct span uuids[CARDS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < a->allocations.n; i++) {
        const struct allocation *al = a->allocations.items[i];
        for (size_t k = 0; k < al->n_cards && n < CARDS_MAX; k++)
            if (!cards_by_uuid(&a->cards, al->cards[k].uuid) &&
                !has(uuids, n, al->cards[k].uuid))
                uuids[n++] = al->cards[k].uuid;
    }
    return n;
}

/* A lost card counts only while a container has it, so that the card that replaces it adds
 * no compute to the node. Returns whether there are more now: ids are never withdrawn. */
static bool count_cards(struct alloc *a)
{
    size_t n = count_lost_before(a), before = a->cards.most_in_use;
    for (size_t i = 0; i < a->cards.n; i++)
        n += a->cards.items[i].present || is_allocated(a, &a->cards.items[i]);
    if (n > before)
        a->cards.most_in_use = n;
    return n > before;
}

bool alloc_cards_sampled(struct alloc *a, struct alloc_time now,
                         const struct card_seen *seen, size_t n, const char *failed,
                         struct alloc_outputs *out)
{
    struct err err = {0};
    bool changed = failed ? cards_sample_failed(&a->cards, now.mono_ms, failed)
                          : cards_sampled(&a->cards, now.mono_ms, seen, n, &err);
    changed |= count_cards(a);
    if (err.code != ERR_NONE && changed)
        alloc_output_log(out, LOG_ERROR, "%s", err.msg);
    if (changed) {
        log_cards(a, out);
        alloc_wake_at(a, now.mono_ms);
    }
    return changed;
}

bool alloc_card_event(struct alloc *a, struct alloc_time now,
                      const struct gpu_event *event, struct alloc_outputs *out)
{
    bool changed = cards_event(&a->cards, now.mono_ms, event);
    if (changed)
        log_cards(a, out);
    return changed;
}

void alloc_kubelet_started(struct alloc *a, struct alloc_time now,
                           struct alloc_outputs *out)
{
    a->kubelet_epoch++;
    a->preference.valid = false;
    a->no_get = false;
    alloc_identify_forget_unknown(a);
    for (struct local_pod *p = a->local_pods; p; p = p->next)
        p->reconciled_ms = 0;
    alloc_wake_at(a, now.mono_ms);
    (void)out;
}

static void record_answer(struct alloc *a, struct alloc_time now,
                          const struct alloc_kubelet_view *view)
{
    a->answered_ms = now.mono_ms;
    if (view->err && !view->unsupported)
        failure_record(&a->podresources_failure, now.mono_ms, view->err);
    else
        failure_clear(&a->podresources_failure);
}

void alloc_kubelet_answered(struct alloc *a, struct alloc_time now,
                            const struct alloc_kubelet_view *view,
                            struct alloc_outputs *out)
{
    record_answer(a, now, view);
    for (struct pending_request *req = a->requests; req; req = req->next)
        if (req->query == view->query && req->state == PENDING_QUERY) {
            alloc_request_kubelet_answered(a, now, req, view, out);
            return;
        }
    if (view->query == a->reconcile_query)
        alloc_reconcile_answered(a, now, view, out);
    alloc_output_save(a, out);
}

/* A tick that is late because the process was stopped or the disk was slow must not count
 * as silence of the driver. */
static bool tick_cards(struct alloc *a, struct alloc_time now, struct alloc_outputs *out)
{
    int64_t late = now.mono_ms - a->due_ms;
    if (!cards_tick(&a->cards, now.mono_ms, late > TICK_MS ? late : 0))
        return false;
    log_cards(a, out);
    return true;
}

bool alloc_tick(struct alloc *a, struct alloc_time now, struct alloc_outputs *out)
{
    bool changed = tick_cards(a, now, out);
    a->due_ms = now.mono_ms + TICK_MS;
    alloc_request_tick(a, now, out);
    for (struct local_pod *p = a->local_pods; p; p = p->next)
        alloc_pod_mark_assigned(a, now, p, out);
    alloc_reconcile_tick(a, now, out);
    alloc_output_save(a, out);
    return changed;
}

int64_t alloc_due(const struct alloc *a)
{
    return a->due_ms;
}

const struct cards *alloc_cards(const struct alloc *a)
{
    return &a->cards;
}

const struct allocation_set *alloc_allocations(const struct alloc *a)
{
    return &a->allocations;
}

bool alloc_pods_listed(const struct alloc *a)
{
    return a->listed;
}

const struct failure *alloc_podresources_failure(const struct alloc *a)
{
    return &a->podresources_failure;
}

const struct alloc_stats *alloc_stats(const struct alloc *a)
{
    return &a->stats;
}
