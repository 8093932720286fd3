/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/raw.h"

/* A watch connection, read line by line. */
struct watch {
    struct raw c;
    struct raw_reply r; /* body: unread bytes */
    bool cut;           /* it ended in the middle */
};

/* Sends GET and reads the head of the reply. */
void watch_open(struct watch *w, unsigned port, const char *target);
void watch_close(struct watch *w);
/* The next line without its end, kept. NULL: the watch has ended. */
char *watch_line(struct watch *w);
/* Skips lines until one contains the text ("": until an empty line). Kept. */
char *watch_until(struct watch *w, const char *text);
