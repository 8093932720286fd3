/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/plugin.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "domain/node.h"
#include "kube/connect.h"
#include "kube/deviceplugin.h"
#include "plugin/card_input.h"
#include "plugin/dispatcher.h"
#include "plugin/kubelet.h"
#include "plugin/plugin_api.h"
#include "plugin/status.h"

enum {
    STOP_MS = 10 * 1000, /* below terminationGracePeriodSeconds of the DaemonSet (15 s) */
};

struct plugin {
    struct plugin_config config; /* strings borrowed */
    struct kube_client *client;
    struct gpu *gpu;
    bool has_limit;     /* libgpushare-limit.so is installed */
    char *registration; /* path of the kubelet's registration socket */
    struct kubelet *kubelet;
    struct dispatcher *dispatcher;
    struct plugin_api *api;
    struct card_input *card_input;
    struct status *status;
};

static void query_pods(void *ctx, uint64_t query, const char *ns, const char *name)
{
    struct plugin *p = ctx;
    kubelet_query_pods(p->kubelet, query, ns, name);
}

static void register_resource(void *ctx, enum ids_resource r, const char *endpoint)
{
    struct plugin *p = ctx;
    kubelet_register(p->kubelet, r, endpoint);
}

static void patch(void *ctx, const struct alloc_output *o)
{
    struct plugin *p = ctx;
    plugin_api_patch(p->api, o);
}

static void event(void *ctx, const struct alloc_output *o)
{
    struct plugin *p = ctx;
    plugin_api_event(p->api, o);
}

static void relist(void *ctx)
{
    struct plugin *p = ctx;
    plugin_api_relist(p->api);
}

static int check(const struct plugin_config *c, struct err *err)
{
    if (node_name_check(c->node_name, err))
        return -1;
    if (c->cdi_kind[0] && (!strchr(c->cdi_kind, '/') || strpbrk(c->cdi_kind, "= ")))
        return err_set(err, ERR_INVALID, "--cdi-kind: \"%s\" is not VENDOR/CLASS",
                       c->cdi_kind);
    return 0;
}

/* Pods can ask for the library on a node whose default it is not. */
static int install_limit(struct plugin *p, struct err *err)
{
    const struct plugin_config *c = &p->config;
    struct err why;
    p->has_limit = limit_dir_install(c->limit_dir, c->limit_library, &why) == 0;
    if (!p->has_limit && c->isolation == ISOLATION_LIMIT)
        return err_set(err, why.code, "--isolation=limit: %s", why.msg);
    if (!p->has_limit)
        log_info("limit", "pods that ask for the limit start without it", LOG_ERR(&why));
    return 0;
}

static int make_dispatcher(struct plugin *p, struct err *err)
{
    const struct plugin_config *c = &p->config;
    struct dispatcher_settings settings = {
        .alloc = {.node = c->node_name,
                  .unit_mib = c->unit_mib,
                  .wait_ms = c->wait_ms,
                  .reconcile_interval_ms = c->reconcile_interval_ms,
                  .silent_ms = c->interval_ms + c->sampler_limit_ms,
                  .health = {.unhealthy_after_ms = c->unhealthy_after_ms,
                             .healthy_after_ms = c->healthy_after_ms,
                             .xid_hold_ms = c->xid_hold_ms},
                  .allow_unpromised = c->allow_unpromised,
                  .strict_env = c->strict_env,
                  .legacy_env = c->legacy_env,
                  .response = {.strategy = (enum driver_strategy)c->strategy,
                               .by_index = c->by_index,
                               .isolation = (enum isolation)c->isolation,
                               .less_isolation = c->less_isolation,
                               .mps_dir = c->mps_dir,
                               .limit_dir = p->has_limit ? c->limit_dir : NULL}},
        .dir = c->plugin_dir,
        .state = c->state,
        .callbacks = {query_pods, register_resource, patch, event, relist, p},
    };
    p->dispatcher = dispatcher_new(&settings, err);
    return p->dispatcher ? 0 : -1;
}

/* The dispatcher's thread starts last, because it calls all other parts. */
static void start_threads(struct plugin *p)
{
    struct kubelet_settings kubelet = {p->config.podresources, p->registration};
    struct plugin_api_settings api = {p->config.node_name, p->config.unit_mib,
                                      p->config.node_ms};
    p->kubelet = kubelet_start(&kubelet);
    kubelet_set_dispatcher(p->kubelet, p->dispatcher);
    p->api = plugin_api_start(p->client, &api, p->dispatcher);
    const struct plugin_config *c = &p->config;
    const struct driver_view_settings driver = {.strategy =
                                                    (enum driver_strategy)c->strategy,
                                                .host_root = c->host_root,
                                                .driver_root = c->driver_root,
                                                .cdi_dir = c->cdi_dir,
                                                .cdi_kind = c->cdi_kind,
                                                .by_index = c->by_index};
    p->card_input = card_input_start(p->gpu, c->interval_ms, &driver, p->dispatcher);
    dispatcher_start(p->dispatcher);
    status_set_parts(p->status, p->dispatcher, p->api, p->config.late_ms);
}

struct plugin *plugin_start(const struct plugin_config *config, struct err *err)
{
    if (check(config, err))
        return NULL;
    struct plugin *p = xcalloc(1, sizeof *p);
    p->config = *config;
    p->registration = xasprintf("%s/" DP_KUBELET_SOCK, config->plugin_dir);
    p->gpu = gpu_open(config->gpu_source, err);
    if (p->gpu)
        p->client = kube_connect(config->entry.kubeconfig, config->entry.context, err);
    if (!p->client || install_limit(p, err) || make_dispatcher(p, err) ||
        !(p->status = status_start(config->entry.listen, (unsigned)config->port, err))) {
        plugin_stop(p);
        return NULL;
    }
    start_threads(p);
    return p;
}

bool plugin_stop(struct plugin *p)
{
    int64_t until_ms = clock_mono_ms() + STOP_MS;
    status_stop(p->status);
    dispatcher_stop(p->dispatcher);
    if (!card_input_stop(p->card_input)) {
        log_warn("cards", "the driver does not respond; exiting without waiting for it");
        return false;
    }
    /* The next process sends lost calls again. */
    if (!plugin_api_stop(p->api, until_ms) || !kubelet_stop(p->kubelet, until_ms)) {
        log_warn("main", "a call does not return; exiting without waiting for it",
                 LOG_I("waited_ms", STOP_MS));
        return false;
    }
    /* Only the endpoints' threads are left. They only post messages. */
    card_input_free(p->card_input);
    dispatcher_free(p->dispatcher);
    plugin_api_free(p->api);
    kubelet_free(p->kubelet);
    gpu_free(p->gpu);
    kube_client_free(p->client);
    free(p->registration);
    free(p);
    return true;
}
