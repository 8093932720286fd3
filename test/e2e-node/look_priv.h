/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "e2e-node/look.h"

/* held.c: podresources and the meaning of tags; look.c: the comparison at rest. */

/* Counts and prints a container on a wrong card. A test fails at its end if there was one. */
void look_note_wrong(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void look_note(const char *uid,
               const char *container); /* marks a container as compared */

json_t *look_set(const char *list);     /* {item: true} of a list with commas; new */
json_t *look_tags(const json_t *ids);   /* {tag: number of ids}; new */
const char *look_card(const char *tag); /* UUID of the tag's card; NULL: unknown */
bool look_is_of_go(
    const json_t *ids); /* ids of the Go plugin, which do not name the card */
