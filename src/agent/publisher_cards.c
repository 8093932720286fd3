/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/publisher_priv.h"

#include <stdlib.h>

#include "base/mem.h"

static struct logged_health *logged_of(struct publisher *p, const struct gpu_card *g)
{
    for (size_t i = 0; i < p->n_logged; i++)
        if (strcmp(p->logged[i].uuid, g->uuid) == 0 &&
            (g->uuid[0] || p->logged[i].index == g->index))
            return &p->logged[i];
    return NULL;
}

/* Logs every card whose health changed. */
static void log_health(struct step *s)
{
    struct publisher *p = s->p;
    size_t n = card_inventory_count(p->cards);
    struct logged_health *now = xcalloc(n + 1, sizeof *now);
    for (size_t i = 0; i < n; i++) {
        const char *reason;
        bool healthy;
        const struct gpu_card *g = card_inventory_card(p->cards, i, &healthy, &reason);
        const struct logged_health *before = logged_of(p, g);
        if (!healthy && (!before || before->healthy))
            publisher_log(s, "cards", ERR_UNAVAILABLE, "GPU%d %s is Unhealthy: %s",
                          (int)g->index, g->uuid, reason);
        else if (healthy && before && !before->healthy)
            publisher_log(s, "cards", ERR_NONE, "GPU%d %s is Healthy again",
                          (int)g->index, g->uuid);
        memcpy(now[i].uuid, g->uuid, sizeof now[i].uuid);
        now[i].index = g->index;
        now[i].healthy = healthy;
    }
    free(p->logged);
    p->logged = now;
    p->n_logged = n;
}

static void log_sampling(struct step *s, bool works)
{
    struct publisher *p = s->p;
    bool changed = !p->sampled || p->sampling_works != works || p->silent;
    if (changed && works)
        publisher_log(s, "cards", ERR_NONE, "sampled %zu cards, driver %s",
                      card_inventory_count(p->cards), card_inventory_driver(p->cards));
    else if (changed)
        publisher_log(s, "cards", s->in->err->code,
                      "cannot sample: %s; retrying in %lld ms", s->in->err->msg,
                      (long long)publisher_interval(p));
}

void publisher_cards_on_sample(struct step *s)
{
    struct publisher *p = s->p;
    bool works = publisher_error_code(s->in) == ERR_NONE;
    if (works)
        card_inventory_sample(p->cards, s->now.mono_ms, s->in->sample);
    else
        card_inventory_failed(p->cards, s->now.mono_ms, s->in->err->msg, false);
    log_sampling(s, works);
    log_health(s);
    p->sampled = true;
    p->sampling_works = works;
    p->silent = false;
    p->sampled_ms = s->now.mono_ms;
    p->taken_wall_ms = s->now.wall_ms;
    publisher_scv_render(s);
}

void publisher_cards_on_event(struct step *s)
{
    const struct gpu_event *e = s->in->event;
    if (e->kind == GPU_EVENT_NONE)
        return;
    if (card_inventory_event(s->p->cards, s->now.mono_ms, e)) {
        log_health(s);
        publisher_scv_render(s);
    } else if (e->kind == GPU_EVENT_XID) {
        publisher_log(s, "cards", ERR_NONE, "XID %lld of %s ignored: application error",
                      (long long)e->xid, e->uuid[0] ? e->uuid : "an unknown card");
    }
}

void publisher_cards_on_pods(struct step *s)
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
    p->has_pods = true;
    p->pods_ms = s->now.mono_ms;
    arena_reset(&p->pods_arena);
    container_devices_normalize(s->in->pods, &p->pods_arena, &p->pods);
    publisher_scv_render(s);
}

static void log_usage(struct step *s)
{
    struct publisher *p = s->p;
    bool failed = publisher_error_code(s->in) != ERR_NONE;
    struct span why = failed ? span_of(s->in->err->msg) : (struct span){0};
    if (span_eq(why, buf_span(&p->usage_failure)))
        return;
    if (failed)
        publisher_log(s, "usage", s->in->err->code,
                      "what containers use is not known: %s; retrying with each sample",
                      s->in->err->msg);
    else
        publisher_log(s, "usage", ERR_NONE, "what containers use is known again");
    buf_clear(&p->usage_failure);
    buf_add_span(&p->usage_failure, why);
}

void publisher_cards_on_usage(struct step *s)
{
    struct publisher *p = s->p;
    log_usage(s);
    usage_fini(&p->usage);
    p->usage = *s->in->usage;
    *s->in->usage = (struct usage){0};
}

static void check_sampler(struct step *s)
{
    struct publisher *p = s->p;
    struct err err;
    if (p->silent || publisher_check(p, s->now, PUBLISHER_CHECK_CARDS, &err) == 0)
        return;
    publisher_log(s, "cards", ERR_TIMEOUT, "%s; all cards are Unhealthy", err.msg);
    card_inventory_failed(p->cards, s->now.mono_ms, "the driver does not respond", true);
    log_health(s);
    usage_fini(&p->usage);
    p->silent = p->sampled = true;
    p->sampling_works = false;
    publisher_scv_render(s);
}

void publisher_cards_tick(struct step *s)
{
    struct publisher *p = s->p;
    check_sampler(s);
    if (p->has_pods && s->now.mono_ms - p->pods_ms > p->settings.pods_limit_ms) {
        p->has_pods = false;
        publisher_scv_render(s);
    }
}

void publisher_cards_adopt(struct step *s, const struct scv *scv)
{
    card_inventory_adopt(s->p->cards, s->now.mono_ms, scv);
    log_health(s);
    publisher_scv_render(s);
}
