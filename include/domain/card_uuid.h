/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/str.h"

/*
 * The UUID of a card in little memory, because a large cluster has tens of thousands of
 * cards, and each is named several times. "GPU-" and a UUID in lower case, as NVML writes
 * it, take no memory beyond the struct. Any other text is copied to the heap.
 */

enum { CARD_UUID_BYTES = 17, CARD_UUID_TEXT = 40 };

/* All zero: empty, as unknown UUIDs are. */
struct card_uuid {
    unsigned char bytes[CARD_UUID_BYTES];
};

/* New, to be released by card_uuid_fini. */
struct card_uuid card_uuid_of(struct span text);
void card_uuid_fini(struct card_uuid *uuid);
static inline bool card_uuid_is_empty(const struct card_uuid *uuid)
{
    return uuid->bytes[0] == 0;
}
/* Borrowed from `text` or the UUID. */
struct span card_uuid_text(const struct card_uuid *uuid, char text[CARD_UUID_TEXT]);
