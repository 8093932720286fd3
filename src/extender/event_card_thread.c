/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/event_card_thread.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/ticker.h"
#include "extender/event_card.h"

enum { LOOK_MS = 1000, FIRST_MS = 50 };

struct event_card_thread {
    struct store *store;
    struct event_recorder *recorder;
    struct event_card *watch;
    struct ticker *ticker;
    bool looked, left;   /* something to tell, though nothing has changed */
    uint64_t generation; /* of the ledger, at the last look */
};

static void show(void *ctx, const struct ledger *l, const struct ledger_node *node)
{
    struct event_card_thread *n = ctx;
    (void)l;
    event_card_node(n->watch, node);
}

/* Before all is listed, cards are missing that are not lost. */
static void look_at_nodes(void *ctx)
{
    struct event_card_thread *n = ctx;
    const struct core *core = store_read(n->store);
    uint64_t generation = ledger_generation(core_ledger(core));
    struct core_time now = store_now();
    bool ready = core_ready(core, now, NULL) == 0;
    struct event_card_scan look = {.now_ms = now.mono_ms,
                                   .recorder = core_is_leader(core) ? n->recorder : NULL,
                                   .led_ms = core_other_led_ms(core)};
    store_read_end(n->store);
    if (!ready || (n->looked && !n->left && generation == n->generation))
        return;
    event_card_begin(n->watch, &look);
    store_each_node(n->store, show, n);
    n->left = event_card_end(n->watch);
    if (!n->looked)
        log_info("news", "what becomes of cards from now on is told in events");
    n->looked = true;
    n->generation = generation;
}

static int64_t due(void *ctx)
{
    const struct event_card_thread *n = ctx;
    return clock_mono_ms() + (n->looked ? LOOK_MS : FIRST_MS);
}

static const struct ticker_fns ticker_fns = {look_at_nodes, due};

struct event_card_thread *event_card_thread_start(struct store *store,
                                                  struct event_recorder *recorder,
                                                  uint64_t seed)
{
    struct event_card_thread *n = xcalloc(1, sizeof *n);
    n->store = store;
    n->recorder = recorder;
    n->watch = event_card_new(seed);
    n->ticker = ticker_new();
    ticker_start(n->ticker, &ticker_fns, n);
    return n;
}

void event_card_thread_stop(struct event_card_thread *n)
{
    if (n)
        ticker_stop(n->ticker);
}

void event_card_thread_free(struct event_card_thread *n)
{
    if (!n)
        return;
    ticker_free(n->ticker);
    event_card_free(n->watch);
    free(n);
}
