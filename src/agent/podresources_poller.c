/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/podresources_poller.h"

#include <pthread.h>
#include <stdlib.h>

#include "agent/init_devices.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stop_flag.h"
#include "node/podresources_client.h"

/* Units change only when the device plugin starts with another --memory-unit. */
enum { UNITS_EVERY = 10 };

struct podresources_poller {
    struct podresources_poller_settings settings;
    pthread_t thread;
    struct stop_flag stop;
    unsigned polls;
    bool units_known;
    bool state_failed; /* it was logged */
};

static size_t count(const struct podres_list *list, size_t *containers)
{
    size_t n = *containers = 0;
    for (size_t i = 0; i < list->n; i++)
        for (size_t k = 0; k < list->pods[i].n_containers; k++, ++*containers)
            n += list->pods[i].containers[k].n_devices;
    return n;
}

static void add_container(struct container_devices_entry *entries, size_t *n,
                          const struct podres_pod *pod, const struct podres_container *c)
{
    for (size_t i = 0; i < c->n_devices; i++)
        entries[(*n)++] =
            (struct container_devices_entry){.ns = pod->ns,
                                             .pod = pod->name,
                                             .container = c->name,
                                             .resource = c->devices[i].resource,
                                             .ids = c->devices[i].ids,
                                             .n_ids = c->devices[i].n_ids};
}

int podresources_poller_list(const char *socket, struct arena *a,
                             struct container_devices *devices, struct err *err)
{
    struct podres_list list;
    int64_t asked_ms = clock_mono_ms();
    if (podresources_client_list(socket, a, &list, err))
        return -1;
    size_t containers, n = count(&list, &containers);
    struct container_devices_entry *entries = arena_alloc(a, (n + 1) * sizeof *entries);
    struct usage_listed *listed = arena_alloc(a, (containers + 1) * sizeof *listed);
    *devices = (struct container_devices){
        .entries = entries, .listed = listed, .asked_ms = asked_ms};
    for (size_t i = 0; i < list.n; i++)
        for (size_t k = 0; k < list.pods[i].n_containers; k++) {
            const struct podres_pod *pod = &list.pods[i];
            const struct podres_container *c = &pod->containers[k];
            listed[devices->n_listed++] =
                (struct usage_listed){pod->ns, pod->name, c->name};
            add_container(entries, &devices->n, pod, c);
        }
    return 0;
}

/* The units of the cards. A kubelet that cannot say it leaves them unknown. */
static void add_units(struct podresources_poller *l, struct arena *a,
                      struct container_devices *devices)
{
    struct podres_allocatable all = {0};
    struct err err = {0};
    if (l->polls++ % UNITS_EVERY && l->units_known)
        return;
    l->units_known = false;
    if (podresources_client_allocatable(l->settings.socket, a, &all, &err))
        return;
    struct container_devices_entry *entries =
        arena_zalloc(a, (all.n + 1) * sizeof *entries);
    for (size_t i = 0; i < all.n; i++) {
        entries[i].resource = all.devices[i].resource;
        entries[i].ids = all.devices[i].ids;
        entries[i].n_ids = all.devices[i].n_ids;
    }
    container_devices_count(entries, all.n, a, devices);
    l->units_known = devices->n_units > 0;
}

static void add_inits(struct podresources_poller *l, struct arena *a,
                      struct container_devices *devices)
{
    struct err err;
    int rc =
        init_devices_read(l->settings.plugin_state, l->settings.node, a, devices, &err);
    if (rc && !l->state_failed)
        log_warn("pods",
                 "cannot read the state of the device plugin; promises of init "
                 "containers stay as they were",
                 LOG_ERR(&err));
    l->state_failed = rc != 0;
}

static void poll(struct podresources_poller *l)
{
    cleanup_arena struct arena a = {0};
    struct container_devices pods = {0};
    struct err err = {0};
    int rc = podresources_poller_list(l->settings.socket, &a, &pods, &err);
    if (!rc) {
        add_units(l, &a, &pods);
        add_inits(l, &a, &pods);
    }
    l->settings.input(l->settings.ctx, &(struct publisher_input){.type = PUBLISHER_PODS,
                                                                 .pods = &pods,
                                                                 .err = rc ? &err : NULL,
                                                                 .retry_after_ms = -1});
}

static void *run(void *arg)
{
    struct podresources_poller *l = arg;
    do
        poll(l);
    while (!stop_flag_wait(&l->stop, l->settings.interval_ms));
    return NULL;
}

struct podresources_poller *
podresources_poller_start(const struct podresources_poller_settings *settings)
{
    struct podresources_poller *l = xcalloc(1, sizeof *l);
    l->settings = *settings;
    stop_flag_init(&l->stop);
    if (pthread_create(&l->thread, NULL, run, l))
        abort();
    pthread_setname_np(l->thread, "pods");
    return l;
}

void podresources_poller_stop(struct podresources_poller *l)
{
    if (!l)
        return;
    stop_flag_set(&l->stop);
    pthread_join(l->thread, NULL);
}

void podresources_poller_free(struct podresources_poller *l)
{
    if (!l)
        return;
    stop_flag_fini(&l->stop);
    free(l);
}
