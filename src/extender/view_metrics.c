/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/view_metrics.h"

#include "extender/view_metrics_priv.h"

static void gauge(struct buf *out, const char *name, const char *help, int64_t value)
{
    prom_one(out, name, PROM_GAUGE, help, value);
}

static void write_build(struct buf *out)
{
    struct prom_label l = {"version", SPAN(GPUSHARE_VERSION)};
    prom_family(out, "gpushare_build_info", PROM_GAUGE, "Version of this program.");
    prom_sample(out, "gpushare_build_info", &l, 1, 1);
}

/* The state of the core, copied under the lock. */
struct state {
    bool ready, leader, may_bind;
    size_t pending, reservations, over, in_flight, unknown;
    uint64_t overcommits;
    struct core_preemptions preemptions;
    int64_t age_ms[CORE_KINDS]; /* of the last list or watch event; -1: never listed */
};

static void copy_state(struct store *store, struct state *s)
{
    const struct core *core = store_read(store);
    const struct ledger *l = core_ledger(core);
    struct core_time now = store_now();
    *s = (struct state){.ready = core_ready(core, now, NULL) == 0,
                        .leader = core_is_leader(core),
                        .may_bind = core_may_bind(core, now, NULL) == 0,
                        .pending = ledger_pending(l),
                        .reservations = ledger_reservations(l),
                        .over = ledger_overcommitted(l),
                        .in_flight = core_binds_in_flight(core),
                        .unknown = core_binds_unknown(core),
                        .overcommits = core_overcommits(core),
                        .preemptions = core_preemptions(core)};
    for (int kind = 0; kind < CORE_KINDS; kind++)
        s->age_ms[kind] = core_watch_age_ms(core, now, (enum core_kind)kind);
    store_read_end(store);
}

static void write_watches(const struct state *s, struct buf *out)
{
    static const char synced[] = "gpushare_watch_synced";
    static const char age[] = "gpushare_watch_age_seconds";
    prom_family(out, synced, PROM_GAUGE, "Whether the resource has been listed.");
    for (int kind = 0; kind < CORE_KINDS; kind++) {
        struct prom_label l = {"resource", span_of(core_kind_name((enum core_kind)kind))};
        prom_sample(out, synced, &l, 1, s->age_ms[kind] >= 0);
    }
    prom_family(out, age, PROM_GAUGE,
                "Time since the last event or bookmark of a listed resource.");
    for (int kind = 0; kind < CORE_KINDS; kind++) {
        struct prom_label l = {"resource", span_of(core_kind_name((enum core_kind)kind))};
        if (s->age_ms[kind] >= 0)
            prom_seconds(out, age, &l, 1, s->age_ms[kind] * 1000000);
    }
}

static void write_state(const struct state *s, struct buf *out)
{
    gauge(out, "gpushare_ready", "Whether this replica answers the verbs.", s->ready);
    gauge(out, "gpushare_leader", "Whether this replica is the leader.", s->leader);
    gauge(out, "gpushare_may_bind", "Whether this replica may start a bind now.",
          s->may_bind);
    write_watches(s, out);
    gauge(out, "gpushare_pending_pods", "Pods that request GPUs and are not bound.",
          (int64_t)s->pending);
    gauge(out, "gpushare_reservations",
          "Pods for which the leader reserves cards from filter to bind.",
          (int64_t)s->reservations);
    gauge(out, "gpushare_binds_in_flight",
          "Binds whose promise is not yet confirmed or released.", (int64_t)s->in_flight);
    gauge(out, "gpushare_binds_unknown", "Binds in flight whose outcome is unknown.",
          (int64_t)s->unknown);
    gauge(out, "gpushare_cards_overcommitted",
          "Cards with more memory promised than they have.", (int64_t)s->over);
    prom_one(out, "gpushare_overcommits_total", PROM_COUNTER,
             "Times that a card became overcommitted.", (int64_t)s->overcommits);
}

static void counter(struct buf *out, const char *name, const char *help, uint64_t value)
{
    prom_one(out, name, PROM_COUNTER, help, (int64_t)value);
}

static void write_preemptions(const struct core_preemptions *p, struct buf *out)
{
    static const char pods[] = "gpushare_preemption_pods";
    const struct prom_label waiting = {"state", SPAN("waiting")},
                            kept = {"state", SPAN("kept")};
    prom_family(out, pods, PROM_GAUGE,
                "Pending pods that evictions could help, or for which cards are kept.");
    prom_sample(out, pods, &waiting, 1, (int64_t)p->waiting);
    prom_sample(out, pods, &kept, 1, (int64_t)p->kept);
    counter(out, "gpushare_preemption_started_total",
            "Layout preemptions that were started.", p->started);
    counter(out, "gpushare_preemption_abandoned_total",
            "Layout preemptions that ended without all evictions.", p->abandoned);
    counter(out, "gpushare_preemption_evicted_pods_total",
            "Pods that layout preemption evicted.", p->evicted);
    counter(out, "gpushare_preemption_refused_evictions_total",
            "Evictions that a PodDisruptionBudget did not allow.", p->refused);
}

void view_metrics_write(const struct view_metrics_source *source, struct buf *out)
{
    struct state state;
    write_build(out);
    copy_state(source->store, &state);
    write_state(&state, out);
    write_preemptions(&state.preemptions, out);
    counters_write(source->counters, out);
    if (source->recorder)
        event_recorder_write(source->recorder, out);
}

void view_metrics_write_ledger(const struct view_metrics_source *source, struct buf *out)
{
    struct request_mix mix = *ledger_mix(core_ledger(store_read(source->store)));
    store_read_end(source->store);
    view_metrics_cards_write(source->store, &mix, source->detail, out);
}

void view_metrics_ledger_state(const struct view_metrics_source *source, struct buf *out)
{
    const struct ledger *l = core_ledger(store_read(source->store));
    buf_printf(out, "%llu %llu", (unsigned long long)ledger_generation(l),
               (unsigned long long)ledger_pending_generation(l));
    store_read_end(source->store);
}
