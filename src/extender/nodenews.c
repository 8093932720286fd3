/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/nodenews.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/ticker.h"
#include "extender/nodewatch.h"
#include "extender/walk.h"

enum { LOOK_MS = 1000, FIRST_MS = 50 };

struct nodenews {
    struct store *store;
    struct recorder *recorder;
    struct nodewatch *watch;
    struct ticker *ticker;
    bool looked, left;   /* something to tell, though nothing has changed */
    uint64_t generation; /* of the ledger, at the last look */
};

static void show(void *ctx, const struct ledger *l, const struct ledger_node *node)
{
    struct nodenews *n = ctx;
    (void)l;
    nodewatch_node(n->watch, node);
}

/* Before all is listed, cards are missing that are not lost. */
static void look_at_nodes(void *ctx)
{
    struct nodenews *n = ctx;
    const struct core *core = store_read(n->store);
    uint64_t generation = ledger_generation(core_ledger(core));
    struct core_time now = store_now();
    bool ready = core_ready(core, now, NULL) == 0;
    struct nodewatch_look look = {.now_ms = now.mono_ms,
                                  .recorder = core_is_leader(core) ? n->recorder : NULL,
                                  .led_ms = core_other_leader_ms(core)};
    store_read_end(n->store);
    if (!ready || (n->looked && !n->left && generation == n->generation))
        return;
    nodewatch_begin(n->watch, &look);
    walk_nodes(n->store, show, n);
    n->left = nodewatch_end(n->watch);
    if (!n->looked)
        log_info("news", "what becomes of cards from now on is told in events");
    n->looked = true;
    n->generation = generation;
}

static int64_t due(void *ctx)
{
    const struct nodenews *n = ctx;
    return clock_mono_ms() + (n->looked ? LOOK_MS : FIRST_MS);
}

static const struct ticker_fns ticker_fns = {look_at_nodes, due};

struct nodenews *nodenews_start(struct store *store, struct recorder *recorder,
                                uint64_t seed)
{
    struct nodenews *n = xcalloc(1, sizeof *n);
    n->store = store;
    n->recorder = recorder;
    n->watch = nodewatch_new(seed);
    n->ticker = ticker_new();
    ticker_start(n->ticker, &ticker_fns, n);
    return n;
}

void nodenews_stop(struct nodenews *n)
{
    if (n)
        ticker_stop(n->ticker);
}

void nodenews_free(struct nodenews *n)
{
    if (!n)
        return;
    ticker_free(n->ticker);
    nodewatch_free(n->watch);
    free(n);
}
