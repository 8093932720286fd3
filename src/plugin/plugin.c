/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/plugin.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "domain/node.h"
#include "kube/connect.h"
#include "kube/deviceplugin.h"
#include "plugin/api.h"
#include "plugin/brain.h"
#include "plugin/cardwatch.h"
#include "plugin/gauges.h"
#include "plugin/kubelet.h"

struct plugin {
    struct plugin_config config; /* strings borrowed */
    struct kube_client *client;
    struct gpu *gpu;
    char *registration; /* path of the kubelet's socket */
    struct kubelet *kubelet;
    struct brain *brain;
    struct api *api;
    struct cardwatch *cardwatch;
    struct gauges *gauges;
};

static void look(void *ctx, uint64_t query, const char *ns, const char *name)
{
    struct plugin *p = ctx;
    kubelet_look(p->kubelet, query, ns, name);
}

static void enroll(void *ctx, enum ids_resource r, const char *endpoint)
{
    struct plugin *p = ctx;
    kubelet_enroll(p->kubelet, r, endpoint);
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

static void news(void *ctx)
{
    struct plugin *p = ctx;
    plugin_api_list_anew(p->api);
}

static int check(const struct plugin_config *c, struct err *err)
{
    if (node_name_check(c->node_name, err))
        return -1;
    if (!strchr(c->cdi_kind, '/') || strpbrk(c->cdi_kind, "= "))
        return err_set(err, ERR_INVALID, "--cdi-kind: \"%s\" is not VENDOR/CLASS",
                       c->cdi_kind);
    return 0;
}

static int make_brain(struct plugin *p, struct err *err)
{
    const struct plugin_config *c = &p->config;
    struct brain_settings settings = {
        .alloc = {.node = c->node_name,
                  .unit_mib = c->unit_mib,
                  .wait_ms = c->wait_ms,
                  .audit_ms = c->audit_ms,
                  .well_ms = c->healthy_after_ms,
                  .hold_ms = c->xid_hold_ms,
                  .silent_ms = c->interval_ms + c->sampler_limit_ms,
                  .allow_unpromised = c->allow_unpromised,
                  .strict_env = c->strict_env,
                  .legacy_env = c->legacy_env,
                  .response = {.strategy = (enum response_strategy)c->strategy,
                               .by_index = c->by_index,
                               .cdi_kind = c->cdi_kind,
                               .mps_dir = c->isolation ? c->mps_dir : NULL}},
        .dir = c->plugin_dir,
        .state = c->state,
        .fns = {look, enroll, patch, event, news, p},
    };
    p->brain = brain_new(&settings, err);
    return p->brain ? 0 : -1;
}

/* The brain first hears, then speaks: it runs when all to whom it speaks are there. */
static void start_threads(struct plugin *p)
{
    struct kubelet_settings kubelet = {p->config.podresources, p->registration};
    struct api_settings api = {p->config.node_name, p->config.unit_mib,
                               p->config.node_ms};
    p->kubelet = kubelet_start(&kubelet);
    kubelet_tell(p->kubelet, p->brain);
    p->api = plugin_api_start(p->client, &api, p->brain);
    p->cardwatch = cardwatch_start(p->gpu, p->config.interval_ms, p->brain);
    brain_go(p->brain);
    gauges_show(p->gauges, p->brain, p->api, p->config.late_ms);
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
    if (!p->client || make_brain(p, err) ||
        !(p->gauges = gauges_start(config->entry.listen, (unsigned)config->port, err))) {
        plugin_stop(p);
        return NULL;
    }
    start_threads(p);
    return p;
}

bool plugin_stop(struct plugin *p)
{
    gauges_stop(p->gauges);
    brain_stop(p->brain);
    if (!cardwatch_stop(p->cardwatch)) {
        log_warn("plugin", "the driver does not answer; ending without it");
        return false;
    }
    plugin_api_stop(p->api);
    kubelet_stop(p->kubelet);
    /* No thread is left but those of the endpoints, which only tell. */
    cardwatch_free(p->cardwatch);
    brain_free(p->brain);
    plugin_api_free(p->api);
    kubelet_free(p->kubelet);
    gpu_free(p->gpu);
    kube_client_free(p->client);
    free(p->registration);
    free(p);
    return true;
}
