/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "placement/placement_priv.h"

/* Appends text that others wrote. A reason is copied into JSON strings unescaped, so
 * characters that JSON would escape become "?". */
void reason_add_plain(struct buf *out, struct span text);

/* Appends why the node is unusable for every pod. False: it is usable; nothing is
 * appended. */
bool reason_add_state(struct buf *out, const struct ledger_node *node);

/* The most frequent reason has this text after what the request needs. */
#define REASON_MOST_FREE "; most free: "
void reason_add_mib(struct buf *out, int64_t mib);
void reason_add_percent(struct buf *out, uint32_t percent);
