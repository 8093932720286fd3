/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "placement/placement_priv.h"

/* Appends text that others wrote. A reason is copied into JSON strings unescaped, so
 * characters that JSON would escape become "?". */
void reason_add_plain(struct buf *out, struct span text);

/* Appends why the node is unusable for every pod. False: it is usable; nothing is
 * appended. */
bool reason_add_state(struct buf *out, const struct ledger_node *node);
