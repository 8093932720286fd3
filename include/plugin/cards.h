/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "domain/ids.h"
#include "plugin/failure.h"

/*
 * The cards of this node, as they are listed to the kubelet.
 *
 * A card that was seen once stays: its ids are never taken off the list, because a
 * kubelet that is just handing one of them out would crash. What is lost, ill or smaller
 * than it was is listed as unhealthy.
 *
 * A card falls ill at once and is well again only after it has looked well for `well_ms`,
 * and `hold_ms` after it was struck by an event, of which a look shows nothing: so one
 * that comes and goes is not given out in between.
 */

enum {
    CARDS_MAX = 64,
    CARDS_BLIND_MS = 20 * 1000, /* so long nothing may be seen at all */
};

/* What was seen of a card. */
struct card_seen {
    char uuid[96]; /* empty: not known, and then it goes by its index */
    char model[96];
    int32_t index;
    int64_t mib;
    char ill[200]; /* why it must not be used; empty: it may */
};

struct plugin_card {
    char uuid[96]; /* by which it is known, "index-3" where it has none */
    bool has_uuid;
    char model[96];
    struct ids_tag tag;
    int32_t index;
    int64_t mib;
    int64_t units;      /* of gpu-mem, now */
    int64_t most_units; /* that were ever listed */
    bool healthy;
    char why[200]; /* it is not */
    bool looks_well;
    int64_t well_since_ms; /* when it began to look so */
    int64_t held_until_ms; /* it was struck by something */
};

struct cards {
    int64_t unit_mib, well_ms, hold_ms, silent_ms;
    struct plugin_card items[CARDS_MAX]; /* in the order in which they came */
    size_t n;
    int64_t seen_ms;        /* when anything was seen last */
    int64_t looked_ms;      /* when a look ended last, however it ended */
    struct failure trouble; /* since when looks show nothing */
    bool blind;             /* for so long that all cards are ill */
};

/* A driver that has not answered for `silent_ms` hangs; 0: it may. */
void cards_init(struct cards *cards, int64_t unit_mib, int64_t well_ms, int64_t hold_ms,
                int64_t silent_ms);

/* What was seen at a time. Each returns whether what is listed has changed. A card that
 * cannot be listed (too many, or its tag is that of another one) is reported in `err`
 * (whose code is ERR_NONE otherwise) and left out. */
bool cards_seen(struct cards *cards, int64_t now_ms, const struct card_seen *seen,
                size_t n, struct err *err);
/* Nothing could be seen. */
bool cards_unseen(struct cards *cards, int64_t now_ms, const char *why);
/* Time went by, of which the process itself stood still for `lost_ms`: that does not
 * count. When no look has ended for too long, all cards are ill. */
bool cards_waited(struct cards *cards, int64_t now_ms, int64_t lost_ms);
/* Something happened to a card, or (uuid empty) to one that cannot be told. */
bool cards_struck(struct cards *cards, int64_t now_ms, struct span uuid,
                  const char *what);

const struct plugin_card *cards_by_tag(const struct cards *cards,
                                       const struct ids_tag *tag);
const struct plugin_card *cards_by_uuid(const struct cards *cards, struct span uuid);
const struct plugin_card *cards_by_index(const struct cards *cards, int32_t index);

/* Does the driver answer, and is one of the cards healthy? */
int cards_check(const struct cards *cards, int64_t now_ms, struct err *err);
/* Can the units be listed in one message? -1 with the reason and a unit that fits. */
int cards_fit(const struct cards *cards, struct err *err);
