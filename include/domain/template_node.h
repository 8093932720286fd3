/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/ledger.h"

/*
 * A template Node: a node that an autoscaler could create. Its object is in the body of a
 * call and not in the API, so no Scv lists its cards. A label or annotation does:
 *
 *     gpushare.io/cards: 4x16384MiB     four cards of 16384 MiB each
 *
 * They are healthy and empty, because no pod can be there, and their model is unknown.
 * Without the key the object says nothing about single cards. Its capacity of
 * aliyun.com/gpu-mem is not used: a real Node that this process has not seen yet has one,
 * too.
 */

enum {
    TEMPLATE_NODE_MIB_MAX =
        1 << 24, /* of a card: 16 TiB. (At most SCV_MAX_CARDS cards) */
};

struct template_node_cards {
    uint32_t n;  /* 0: the key is absent */
    int64_t mib; /* of each */
};

/* Parses "4x16384MiB". */
int template_node_parse(struct span text, struct template_node_cards *cards,
                        struct err *err);
/* The cards that label and annotation name; `n` is 0 if neither is there. -1: malformed, or
 * they differ. */
int template_node_named(const struct node *node, struct template_node_cards *cards,
                        struct err *err);

/* Does the Node object have the key? If it cannot be decoded: no. */
bool template_node_is(struct span object);

/* New: a ledger that has the template Node alone, with the unit of `settings`. `cards`:
 * what the key names. NULL: the key is absent (ERR_NOT_FOUND) or malformed, or the object
 * cannot be decoded (ERR_INVALID). */
struct ledger *template_node_ledger(struct span object,
                                    const struct ledger_settings *settings,
                                    struct template_node_cards *cards, struct err *err);
/* Does the node have just these cards? */
bool template_node_matches(const struct template_node_cards *cards,
                           const struct ledger_node *node);
