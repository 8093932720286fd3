/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/event_recorder.h"
#include "extender/store.h"

/*
 * The thread that scans all nodes for extender/event_card.h and extender/event_forged.h,
 * once a second if the ledger has changed or an event is left to write. Only the leader writes events. The other
 * replicas scan too, and write what the last leader did not report once they lead.
 */

struct event_card_thread;

/* New; the thread runs at once. `store` and `recorder` are borrowed. */
struct event_card_thread *event_card_thread_start(struct store *store,
                                                  struct event_recorder *recorder,
                                                  uint64_t seed);
void event_card_thread_stop(struct event_card_thread *t); /* joins; NULL is accepted */
void event_card_thread_free(struct event_card_thread *t); /* NULL is accepted */
