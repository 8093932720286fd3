/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/session.h"

#include <stdlib.h>

#include "base/clock.h"
#include "cli/extender_view.h"
#include "cli/heartbeat.h"
#include "cli/unit.h"
#include "kube/connect.h"
#include "kube/listwatch.h"

enum {
    DEFAULT_UNIT_MIB = 1024,
    OPTIONAL_VIEW_MS = 2000, /* timeout of a view that the output does not depend on */
};

static bool has_extender(const struct session *s)
{
    const char *address = s->config->extender;
    return address && strcmp(address, "none") != 0;
}

static struct extender_view view_of(const struct session *s)
{
    const struct cli_config *c = s->config;
    return (struct extender_view){c->extender, c->extender_token, c->extender_ca};
}

json_t *session_fetch_view(struct session *s, int64_t timeout_ms, struct err *err)
{
    if (!has_extender(s))
        return NULL;
    struct extender_view from = view_of(s);
    return extender_view_get(s->client, &from, timeout_ms, err);
}

const json_t *session_view(struct session *s)
{
    if (!s->view_fetched)
        s->view = session_fetch_view(s, OPTIONAL_VIEW_MS, &s->view_error);
    s->view_fetched = true;
    return s->view;
}

static int load_cluster(struct session *s, int64_t unit_mib, struct err *err)
{
    const struct cli_config *c = s->config;
    const struct cluster_state_config config = {
        .ledger = {.unit_mib = unit_mib,
                   .external_tolerance_mib = c->external_tolerance_mib,
                   .require_scv = c->require_scv,
                   .require_node = true,
                   .clock_exact = c->scv_clock == CLI_CLOCK_EXACT,
                   .number_shares = c->scv_number == CLI_NUMBER_SHARE},
        .node_grace_ms = c->node_grace_ms,
        .only_pods = c->classic,
        .seed = (uint64_t)clock_wall_ns(),
    };
    cluster_client_free(s->cluster);
    s->cluster = cluster_client_new(&config, s->client);
    return cluster_client_load(s->cluster, c->timeout_ms, err);
}

/* All amounts depend on the unit: if it is not the default, everything is listed again.
 */
static int determine_unit(struct session *s, struct err *err)
{
    int64_t unit;
    s->unit_assumed = !unit_of_cluster(session_state(s), &unit);
    if (s->unit_assumed && unit_of_view(session_view(s), &unit))
        s->unit_assumed = false;
    return unit == DEFAULT_UNIT_MIB ? 0 : load_cluster(s, unit, err);
}

int session_load(struct session *s, struct err *err)
{
    const struct cli_config *c = s->config;
    struct extender_view from = view_of(s);
    if (!c->extender && c->extender_token)
        return err_set(err, ERR_INVALID,
                       "--extender-token needs --extender https://HOST:PORT");
    if (has_extender(s) && extender_view_check(&from, err))
        return err_wrap(err, "--extender");
    s->client = kube_connect_in(c->kubeconfig, c->context, &s->ns, err);
    if (!s->client || load_cluster(s, c->unit_mib ? c->unit_mib : DEFAULT_UNIT_MIB, err))
        return -1;
    if (c->classic) /* uses nodes and pods only */
        return 0;
    if (!c->unit_mib && determine_unit(s, err))
        return -1;
    struct cluster_state *cs = cluster_client_state(s->cluster);
    if (c->node_grace_ms && heartbeat_is_unclear(cs))
        heartbeat_apply_view(cs, session_view(s));
    return 0;
}

void session_fini(struct session *s)
{
    json_decref(s->view);
    cluster_client_free(s->cluster);
    kube_client_free(s->client);
    free(s->ns);
}

const struct cluster_state *session_state(const struct session *s)
{
    return cluster_client_state(s->cluster);
}

void session_pod_path(struct buf *path, struct span ns, struct span name)
{
    buf_adds(path, "/api/v1/namespaces/");
    listwatch_escape(path, ns);
    buf_adds(path, "/pods/");
    listwatch_escape(path, name);
}
