/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/scene.h"

#include <stdlib.h>

#include "base/clock.h"
#include "cli/beats.h"
#include "cli/extender.h"
#include "cli/unit.h"
#include "kube/connect.h"

#define EXTENDER "kube-system/gpushare-schd-extender:12345"

enum {
    UNIT_MIB = 1024, /* of most clusters */
    DOUBT_MS = 2000, /* for an answer that would be good to have */
};

json_t *scene_ask(struct scene *s, int64_t timeout_ms, struct err *why)
{
    const char *where = s->config->extender;
    if (where && !strcmp(where, "none"))
        return NULL;
    return extender_view(s->client, where ? where : EXTENDER, timeout_ms, why);
}

/* For what the objects leave open; once. NULL: it is not to be had. */
static const json_t *consult(struct scene *s)
{
    struct err why;
    if (!s->asked)
        s->view = scene_ask(s, DOUBT_MS, &why);
    s->asked = true;
    return s->view;
}

static int look(struct scene *s, int64_t unit_mib, struct err *err)
{
    const struct cli_config *c = s->config;
    const struct world_config config = {
        .ledger = {.unit_mib = unit_mib,
                   .external_tolerance_mib = c->external_tolerance_mib,
                   .require_scv = c->require_scv,
                   .require_node = true,
                   .clock_exact = c->clock_exact,
                   .number_shares = c->number_shares},
        .node_grace_ms = c->node_grace_ms,
        .only_pods = c->classic,
        .seed = (uint64_t)clock_wall_ns(),
    };
    look_free(s->look);
    s->look = look_new(&config, s->client);
    return look_load(s->look, c->timeout_ms, err);
}

/* All amounts depend on it: if it is another than was thought, everything is listed
 * again. */
static int settle_unit(struct scene *s, struct err *err)
{
    int64_t unit;
    s->guessed = !unit_of_world(look_world(s->look), &unit);
    if (s->guessed && unit_of_view(consult(s), &unit))
        s->guessed = false;
    return unit == UNIT_MIB ? 0 : look(s, unit, err);
}

int scene_load(struct scene *s, struct err *err)
{
    const struct cli_config *c = s->config;
    if (c->extender && strcmp(c->extender, "none") != 0 &&
        extender_where_check(c->extender, err))
        return err_wrap(err, "--extender");
    s->client = kube_connect_in(c->kubeconfig, c->context, &s->ns, err);
    if (!s->client || look(s, c->unit_mib ? c->unit_mib : UNIT_MIB, err))
        return -1;
    if (c->classic) /* that is from nodes and pods alone */
        return 0;
    if (!c->unit_mib && settle_unit(s, err))
        return -1;
    struct world *w = look_world(s->look);
    if (c->node_grace_ms && beats_doubtful(w))
        beats_take(w, consult(s));
    return 0;
}

void scene_fini(struct scene *s)
{
    json_decref(s->view);
    look_free(s->look);
    kube_client_free(s->client);
    free(s->ns);
}

const struct world *scene_world(const struct scene *s)
{
    return look_world(s->look);
}
