/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/resource.h>

#include "base/log.h"
#include "wire/httpd_priv.h"

/*
 * A listener gets at most two thirds of the descriptors that are left, so that one that
 * starts later gets some. A handler may need a descriptor of its own, for a call to
 * another server.
 */

enum {
    PROCESS = 128, /* descriptors of everything but this server */
    SMALLEST = 8,  /* connections of any listener */
};

static uint64_t available(struct httpd *d)
{
    struct rlimit limit = {.rlim_cur = 1024};
    getrlimit(RLIMIT_NOFILE, &limit);
    uint64_t used = PROCESS + HTTPD_LINGERS;
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->n_listeners; i++)
        used += d->listeners[i]->descriptors;
    pthread_mutex_unlock(&d->lock);
    return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

void httpd_budget_set(struct httpd_listener *listener)
{
    struct httpd_listener_config *conf = &listener->conf;
    bool threads = conf->mode == HTTPD_THREADS;
    unsigned wanted = conf->connections;
    if (!conf->handlers || conf->handlers > wanted)
        conf->handlers = wanted - wanted / 8;
    uint64_t cost = (uint64_t)wanted + (threads ? conf->handlers : 0);
    uint64_t share = available(listener->d) / 3 * 2;
    share = share > HTTPD_SPARE ? share - HTTPD_SPARE : 0;
    if (cost > share) {
        uint64_t fit = share * wanted / cost;
        unsigned least = wanted < SMALLEST ? wanted : SMALLEST;
        conf->connections = fit > least ? (unsigned)fit : least;
        uint64_t handlers = (uint64_t)conf->handlers * conf->connections / wanted;
        conf->handlers = handlers ? (unsigned)handlers : 1;
        log_warn("httpd", "connections: reduced, too few descriptors (RLIMIT_NOFILE)",
                 LOG_S("listener", conf->name), LOG_I("wanted", wanted),
                 LOG_I("connections", conf->connections));
    }
    listener->descriptors =
        conf->connections + (threads ? conf->handlers : 0) + HTTPD_SPARE;
}
