/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "domain/ids.h"

/*
 * The registration of one resource with the kubelet, as a state machine. Pure: inputs are
 * events, registration_next returns the next action.
 *
 * - The endpoint must be served before Register, because the kubelet connects to it
 *   before it answers.
 * - A kubelet that starts removes all endpoints and creates a new registration
 *   socket. The endpoint must be served again, and then registered.
 * - A registration counts when the kubelet has opened ListAndWatch. If it does not
 *   within REGISTRATION_STREAM_MS, or if the stream ends, the plugin registers
 *   again; not immediately, because a kubelet that is still closing the old stream
 *   would cut the new one.
 * - Before each Register the plugin looks for a newer one (rolling update), and yields until
 *   that one is gone. Otherwise the two would take the resource from each other forever.
 */

enum {
    REGISTRATION_FIRST_RETRY_MS = 50, /* doubled after each failure ... */
    REGISTRATION_LAST_RETRY_MS = 5000,
    REGISTRATION_SETTLE_MS = 1000, /* after a stream has ended */
    REGISTRATION_STREAM_MS = 10000,
    REGISTRATION_NEWER_PLUGIN_MS = 1000, /* between two checks for a newer plugin */
};

enum registration_state {
    REGISTRATION_WAITING, /* for a kubelet, for cards, or until `at_ms` */
    REGISTRATION_REGISTERING,
    REGISTRATION_AWAITING_STREAM,
    REGISTRATION_REGISTERED,
    REGISTRATION_YIELDING, /* to a newer plugin */
};

struct registration {
    enum registration_state state;
    bool wanted;      /* set by the caller: there are devices to register */
    uint64_t kubelet; /* identifies its socket; 0: there is none */
    bool reachable;   /* our socket's path leads to our server */
    unsigned streams; /* number of open ListAndWatch streams */
    int64_t at_ms, retry_ms;
};

enum registration_action {
    REGISTRATION_NOTHING,
    REGISTRATION_SERVE, /* create the endpoint, then call registration_serving */
    /* Call the kubelet, then registration_answered; or registration_yield, if a newer plugin
     * serves the resource. */
    REGISTRATION_REGISTER,
};

void registration_init(struct registration *reg);
/* Events. */
void registration_kubelet_socket(struct registration *reg, int64_t now_ms, uint64_t id);
void registration_serving(struct registration *reg, int64_t now_ms, bool reachable);
void registration_answered(struct registration *reg, int64_t now_ms, bool accepted);
void registration_yield(struct registration *reg, int64_t now_ms);
void registration_stream(struct registration *reg, int64_t now_ms, bool opened);

/* The next action; to be called until it is REGISTRATION_NOTHING. */
enum registration_action registration_next(struct registration *reg, int64_t now_ms);
int64_t registration_due(const struct registration *reg); /* INT64_MAX: no timer */
/* Why the resource is not registered; NULL: it is. */
const char *registration_missing(const struct registration *reg);

/*
 * The kubelet's device plugin directory: the kubelet's registration socket and the
 * sockets (endpoints) of plugins. Endpoints of this plugin are named
 *
 *     gpushare-<resource>-<start>-<pid>.sock    resource: mem, count, share, gpu or core
 *
 * with the start time of the process. During a rolling update two plugins thus have
 * different sockets, and each can tell which one is newer.
 */

struct registration_dir {
    const char *path;                  /* borrowed */
    char kubelet[128];                 /* path of its registration socket */
    char endpoints[IDS_RESOURCES][64]; /* our file names */
};

/* Removes sockets of plugins that have died. */
int registration_dir_open(struct registration_dir *d, const char *path, struct err *err);
/* Identifies the kubelet's socket: changes when a kubelet creates a new one. 0: there is
 * no socket. */
uint64_t registration_dir_kubelet_id(const struct registration_dir *d);
/* Does a newer gpushare plugin serve this resource? */
bool registration_dir_has_newer(const struct registration_dir *d, enum ids_resource r);
