/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/metrics.h"

#include "extender/metrics_priv.h"

int metrics_detail_read(struct span text, enum metrics_detail *detail, struct err *err)
{
    static const char *const names[] = {
        [METRICS_CLUSTER] = "cluster", [METRICS_NODE] = "node", [METRICS_CARD] = "card"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (!span_eq(text, span_of(names[i])))
            continue;
        *detail = (enum metrics_detail)i;
        return 0;
    }
    return err_set(err, ERR_INVALID, "\"%.*s\" is none of cluster, node, card",
                   SPAN_ARG(text));
}

static void gauge(struct buf *out, const char *name, const char *help, int64_t value)
{
    prom_one(out, name, PROM_GAUGE, help, value);
}

static void write_build(struct buf *out)
{
    struct prom_label l = {"version", SPAN(GPUSHARE_VERSION)};
    prom_family(out, "gpushare_build_info", PROM_GAUGE, "Which version this is.");
    prom_sample(out, "gpushare_build_info", &l, 1, 1);
}

/* What is read of the core itself, copied out of the lock. */
struct state {
    bool ready, leader, may_bind;
    size_t waiting, over, in_flight, unknown;
    uint64_t overcommits;
    int64_t silent_ms[CORE_KINDS];
};

static void look(struct store *store, struct state *s, struct mix *mix)
{
    const struct core *core = store_read(store);
    const struct ledger *l = core_ledger(core);
    struct core_time now = store_now();
    *s = (struct state){.ready = core_ready(core, now, NULL) == 0,
                        .leader = core_is_leader(core),
                        .may_bind = core_may_bind(core, now, NULL) == 0,
                        .waiting = ledger_pending(l),
                        .over = ledger_overcommitted(l),
                        .in_flight = core_binds_in_flight(core),
                        .unknown = core_binds_unknown(core),
                        .overcommits = core_overcommits(core)};
    for (int kind = 0; kind < CORE_KINDS; kind++)
        s->silent_ms[kind] = core_watch_age_ms(core, now, (enum core_kind)kind);
    *mix = *ledger_mix(l);
    store_read_end(store);
}

static void write_watches(const struct state *s, struct buf *out)
{
    static const char listed[] = "gpushare_watch_listed";
    static const char age[] = "gpushare_watch_age_seconds";
    prom_family(out, listed, PROM_GAUGE, "Whether a resource was listed completely.");
    for (int kind = 0; kind < CORE_KINDS; kind++) {
        struct prom_label l = {"resource", span_of(core_kind_name((enum core_kind)kind))};
        prom_sample(out, listed, &l, 1, s->silent_ms[kind] >= 0);
    }
    prom_family(out, age, PROM_GAUGE,
                "For how long nothing was heard of a resource; of one that was listed.");
    for (int kind = 0; kind < CORE_KINDS; kind++) {
        struct prom_label l = {"resource", span_of(core_kind_name((enum core_kind)kind))};
        if (s->silent_ms[kind] >= 0)
            prom_seconds(out, age, &l, 1, s->silent_ms[kind] * 1000000);
    }
}

static void write_state(const struct state *s, struct buf *out)
{
    gauge(out, "gpushare_ready", "Whether the verbs are answered.", s->ready);
    gauge(out, "gpushare_leader", "Whether this process holds the lease.", s->leader);
    gauge(out, "gpushare_may_bind", "Whether this process may start a bind now.",
          s->may_bind);
    write_watches(s, out);
    gauge(out, "gpushare_pods_waiting", "Pods that ask for GPUs and have no node.",
          (int64_t)s->waiting);
    gauge(out, "gpushare_binds_in_flight",
          "Binds with a reservation whose end has not come.", (int64_t)s->in_flight);
    gauge(out, "gpushare_binds_unknown",
          "Those of them whose outcome has to be found out.", (int64_t)s->unknown);
    gauge(out, "gpushare_cards_overcommitted",
          "Cards of which more is promised than they have.", (int64_t)s->over);
    prom_one(out, "gpushare_overcommits_total", PROM_COUNTER,
             "How often a card was found to be promised beyond its size.",
             (int64_t)s->overcommits);
}

void metrics_write(const struct metrics_source *source, struct buf *out)
{
    struct state state;
    struct mix mix;
    write_build(out);
    look(source->store, &state, &mix);
    write_state(&state, out);
    metrics_cards_write(source->store, &mix, source->detail, out);
    tally_write(source->tally, out);
    if (source->recorder)
        recorder_write(source->recorder, out);
}
