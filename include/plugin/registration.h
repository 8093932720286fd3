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
 *   REGISTRATION_STREAM_MS, or the stream ends, register again; but not at once, because
 * a kubelet that is just winding up the old stream would cut the new one.
 * - When the stream ended because a newer plugin has registered (in a rolling update),
 * wait until that is gone: two plugins that take the resource from each other would go on
 * for ever.
 */

enum {
    REGISTRATION_FIRST_RETRY_MS = 50, /* doubled each time ... */
    REGISTRATION_LAST_RETRY_MS = 5000,
    REGISTRATION_SETTLE_MS = 1000, /* after a stream has ended */
    REGISTRATION_STREAM_MS = 10000,
    REGISTRATION_NEWER_PLUGIN_MS = 1000, /* between two looks for it */
};

enum registration_state {
    REGISTRATION_WAITING, /* for a kubelet, for the cards, or for `at_ms` */
    REGISTRATION_REGISTERING,
    REGISTRATION_AWAITING_STREAM, /* the kubelet's ListAndWatch */
    REGISTRATION_REGISTERED,
    REGISTRATION_YIELDING, /* to a newer plugin */
};

struct registration {
    enum registration_state state;
    bool wanted;
    uint64_t kubelet; /* inode of its socket; 0: there is none */
    bool reachable;   /* our socket leads to us */
    unsigned streams; /* that are open */
    int64_t at_ms, retry_ms;
    uint64_t registered, failed, lost; /* counted */
};

enum registration_action {
    REGISTRATION_NOTHING,
    REGISTRATION_SERVE,    /* make the socket anew, and say whether that worked */
    REGISTRATION_REGISTER, /* call the kubelet, and say what it answered */
};

void registration_init(struct registration *e);
/* What happened. */
void registration_set_wanted(struct registration *e, bool wanted);
void registration_kubelet_socket(struct registration *e, int64_t now_ms, uint64_t inode);
void registration_serving(struct registration *e, int64_t now_ms, bool reachable);
void registration_answered(struct registration *e, int64_t now_ms, bool accepted);
void registration_stream(struct registration *e, int64_t now_ms, bool opened, bool rival);
void registration_newer_plugin(struct registration *e, int64_t now_ms,
                               bool there); /* looked for it */

/* What to do now; called until it is nothing. */
enum registration_action registration_next(struct registration *e, int64_t now_ms);
int64_t
registration_due(const struct registration *e); /* INT64_MAX: nothing is awaited */
/* What is missing until it is registered, in words; NULL: nothing. */
const char *registration_missing(const struct registration *e);
bool registration_checks_newer_plugin(const struct registration *e, int64_t now_ms);
