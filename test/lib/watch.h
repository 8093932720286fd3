/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/raw.h"

/* A watch as a client sees it: line by line. */
struct watch {
    struct raw c;
    struct raw_reply r; /* body: what has not been read */
};

/* GETs the target and reads the head of the answer. */
void watch_open(struct watch *w, unsigned port, const char *target);
void watch_close(struct watch *w);
/* The next line without its end, new. NULL: the watch has ended. */
char *watch_line(struct watch *w);
/* Reads until a line has the text ("": until an empty one); others pass. New. */
char *watch_until(struct watch *w, const char *text);
