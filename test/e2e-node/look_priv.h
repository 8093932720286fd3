/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "e2e-node/look.h"

/* held.c: what podresources shows, and what it means; look.c: all sides at rest. */

/* A container that is on another card than it should be. It is counted, so that a test
 * can say how many there were; it must end with none. */
void look_note_wrong(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void look_note(const char *uid, const char *container); /* it has been compared */

json_t *look_set(const char *list);     /* {item: true} of a list with commas; new */
json_t *look_tags(const json_t *ids);   /* {tag: how many ids of it}; new */
const char *look_card(const char *tag); /* its UUID; NULL: not seen yet */
bool look_is_of_go(const json_t *ids);  /* ids of the Go plugin say nothing of the card */
