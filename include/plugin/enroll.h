/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * How one resource comes to be registered with the kubelet, and stays so. Pure: it is
 * told what happened, and says what to do next.
 *
 * - The server listens before Register, because the kubelet calls back before it answers.
 * - A kubelet that starts removes our socket and makes its own anew: serve again, then
 *   register. It is known by its socket's inode.
 * - A registration counts when the kubelet has opened ListAndWatch. If it does not within
 *   ENROLL_STREAM_MS, or the stream ends, register again; but not at once, because a
 *   kubelet that is just winding up the old stream would cut the new one.
 * - When the stream ended because a newer plugin has registered (in a rolling update),
 * wait until that is gone: two plugins that take the resource from each other would go on
 * for ever.
 */

enum {
    ENROLL_FIRST_RETRY_MS = 50, /* doubled each time ... */
    ENROLL_LAST_RETRY_MS = 5000,
    ENROLL_SETTLE_MS = 1000, /* after a stream has ended */
    ENROLL_STREAM_MS = 10000,
    ENROLL_RIVAL_MS = 1000, /* between two looks for it */
};

enum enroll_state {
    ENROLL_WAITING, /* for a kubelet, for the cards, or for `at_ms` */
    ENROLL_REGISTERING,
    ENROLL_EXPECTING, /* the kubelet's ListAndWatch */
    ENROLL_UP,
    ENROLL_YIELDING, /* to a newer plugin */
};

struct enroll {
    enum enroll_state state;
    bool wanted;
    uint64_t kubelet; /* inode of its socket; 0: there is none */
    bool reachable;   /* our socket leads to us */
    unsigned streams; /* that are open */
    int64_t at_ms, retry_ms;
    uint64_t registered, failed, lost; /* counted */
};

enum enroll_action {
    ENROLL_NOTHING,
    ENROLL_SERVE,    /* make the socket anew, and say whether that worked */
    ENROLL_REGISTER, /* call the kubelet, and say what it answered */
};

void enroll_init(struct enroll *e);
/* What happened. */
void enroll_want(struct enroll *e, bool wanted);
void enroll_kubelet(struct enroll *e, int64_t now_ms, uint64_t inode);
void enroll_served(struct enroll *e, int64_t now_ms, bool reachable);
void enroll_answered(struct enroll *e, int64_t now_ms, bool accepted);
void enroll_stream(struct enroll *e, int64_t now_ms, bool opened, bool rival);
void enroll_rival(struct enroll *e, int64_t now_ms, bool there); /* looked for it */

/* What to do now; called until it is nothing. */
enum enroll_action enroll_next(struct enroll *e, int64_t now_ms);
int64_t enroll_due(const struct enroll *e); /* INT64_MAX: nothing is awaited */
/* What is missing until it is registered, in words; NULL: nothing. */
const char *enroll_waits_for(const struct enroll *e);
bool enroll_looks_for_rival(const struct enroll *e, int64_t now_ms);
