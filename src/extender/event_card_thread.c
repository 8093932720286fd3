/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/event_card_thread.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "extender/event_card.h"
#include "extender/event_forged.h"

enum { SCAN_MS = 1000, FIRST_MS = 50 };

struct event_card_thread {
    struct store *store;
    struct event_recorder *recorder;
    struct event_card *cards;
    struct event_forged *pods;
    struct ticker *ticker;
    bool scanned, left;  /* left: an event is left to write */
    uint64_t generation; /* of the ledger at the last scan */
};

static void scan_node(void *ctx, const struct ledger *l, const struct ledger_node *node)
{
    struct event_card_thread *t = ctx;
    (void)l;
    event_card_node(t->cards, node);
    event_forged_node(t->pods, node);
}

/* Not before every kind of object has been listed: cards would seem to be lost. */
static void scan(void *ctx)
{
    struct event_card_thread *t = ctx;
    const struct core *core = store_read(t->store);
    uint64_t generation = ledger_generation(core_ledger(core));
    struct core_time now = store_now();
    bool ready = core_ready(core, now, NULL) == 0;
    struct event_card_scan settings = {.now_ms = now.mono_ms,
                                       .recorder =
                                           core_is_leader(core) ? t->recorder : NULL,
                                       .led_ms = core_other_leader_ms(core)};
    store_read_end(t->store);
    if (!ready || (t->scanned && !t->left && generation == t->generation))
        return;
    event_card_begin(t->cards, &settings);
    event_forged_begin(t->pods, &(struct event_forged_scan){
                                    settings.now_ms, settings.recorder, settings.led_ms});
    store_each_node(t->store, scan_node, t);
    t->left = event_card_end(t->cards);
    t->left |= event_forged_end(t->pods);
    if (!t->scanned)
        log_info("events",
                 "first scan of all cards complete; later changes are reported as "
                 "events");
    t->scanned = true;
    t->generation = generation;
}

static int64_t due(void *ctx)
{
    const struct event_card_thread *t = ctx;
    return clock_mono_ms() + (t->scanned ? SCAN_MS : FIRST_MS);
}

static const struct ticker_fns ticker_fns = {scan, due};

struct event_card_thread *event_card_thread_start(struct store *store,
                                                  struct event_recorder *recorder,
                                                  uint64_t seed)
{
    struct event_card_thread *t = xcalloc(1, sizeof *t);
    t->store = store;
    t->recorder = recorder;
    t->cards = event_card_new(seed);
    t->pods = event_forged_new(seed);
    t->ticker = ticker_new();
    ticker_start(t->ticker, &ticker_fns, t);
    return t;
}

void event_card_thread_stop(struct event_card_thread *t)
{
    if (t)
        ticker_stop(t->ticker);
}

void event_card_thread_free(struct event_card_thread *t)
{
    if (!t)
        return;
    ticker_free(t->ticker);
    event_card_free(t->cards);
    event_forged_free(t->pods);
    free(t);
}
