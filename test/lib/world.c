/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/world.h"

void world_start(struct world *w)
{
    sim_start(&w->sim, ARGV(NULL));
    extender_start(&w->extender, &w->sim, ARGV(NULL));
}

void world_restart(struct world *w)
{
    extender_kill(&w->extender);
    extender_start(&w->extender, &w->sim, ARGV(NULL));
}

void world_stop(struct world *w)
{
    extender_stop(&w->extender);
    sim_stop(&w->sim);
}

static void add_pod(const struct world *w, const char *name, const char *meta,
                    const char *spec, const char *status)
{
    sim_load(&w->sim,
             "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\","
             "\"namespace\":\"default\",\"uid\":\"uid-%s\"%s},\"spec\":{%s},\"status\":{"
             "%s}}",
             name, name, meta, spec, status);
}

void world_add_pod(const struct world *w, const char *name, const char *meta,
                   const char *spec)
{
    add_pod(w, name, meta, spec, "");
}

void world_add_running(const struct world *w, const char *name, const char *meta,
                       const char *spec)
{
    add_pod(w, name, meta, spec, "\"phase\":\"Running\"");
}

void world_edit_pod(const struct world *w, const char *name, const char *meta)
{
    cleanup_free char *path = xasprintf("/api/v1/namespaces/default/pods/%s", name);
    cleanup_free char *body = xasprintf("{\"metadata\":{%s}}", meta);
    json_decref(peer_json(&w->sim.api, "PATCH", path, body));
}

static bool binds(const struct world *w, const char *name, const char *node)
{
    cleanup_buf struct buf why = {0};
    return extender_bind(&w->extender, name, node, &why);
}

void world_bind(const struct world *w, const char *name, const char *node)
{
    cleanup_buf struct buf why = {0};
    ck_assert_msg(extender_bind(&w->extender, name, node, &why), "%s", why.p);
}

int world_fill(const struct world *w, const char *node)
{
    for (int n = 0;; n++) {
        cleanup_free char *name = xasprintf("fill-%s-%d", node, n);
        world_add_pod(w, name, "", MEM("1"));
        if (!binds(w, name, node))
            return n;
    }
}

json_int_t world_promised(const struct world *w, const char *node, size_t card)
{
    cleanup_json json_t *j = extender_inspect(&w->extender, node);
    return json_integer_value(
        lib_at(json_array_get(lib_at(j, "devs"), card), "promisedMiB"));
}
