/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdio.h>
#include <stdlib.h>

/*
 * etcd is restored from a backup while all programs run. No replica reaches the API server
 * meanwhile, for longer than a lease and a Binding can last. Then it has the objects of the
 * backup with their versions, knows nothing of later ones, and all connections are new.
 * What was sent to its predecessor is lost. Users wait meanwhile.
 *
 * Kubelets follow the API: containers of a pod that is bound as before go on, others end.
 * scv-agents write their Scvs.
 *
 * Until a replica has listed everything again, its ledger is of the time before: the witness
 * leaves it alone. The oracle does not, so a promise that it makes on that ledger shows.
 */

enum { OUTAGE_MS = 10000 }; /* at least */

struct backup {
    uint64_t version;
    json_t *objects; /* oldest version first */
    struct oracle_pod *pods;
};

static void backup_free(struct world *w)
{
    if (!w->backup)
        return;
    json_decref(w->backup->objects);
    oracle_free_pods(w->backup->pods);
    free(w->backup);
    w->backup = NULL;
}

static int64_t version_of(const json_t *object)
{
    return strtoll(sim_jsonx_str(object, "metadata.resourceVersion"), NULL, 10);
}

static int by_version(const void *a, const void *b)
{
    int64_t x = version_of(*(json_t *const *)a), y = version_of(*(json_t *const *)b);
    return x < y ? -1 : x > y;
}

static void on_backup(struct world *w, void *arg)
{
    static const char *const lists[][3] = {
        {"/api/v1/pods", "v1", "Pod"},
        {"/api/v1/configmaps", "v1", "ConfigMap"},
        {"/apis/core.run-linux.com/v1/scvs", "core.run-linux.com/v1", "Scv"},
        {"/apis/coordination.k8s.io/v1/leases", "coordination.k8s.io/v1", "Lease"},
    };
    (void)arg;
    cleanup_json_value json_t *all = json_array();
    backup_free(w);
    w->backup = xcalloc(1, sizeof *w->backup);
    w->backup->version = api_version(w->api);
    w->backup->pods = oracle_copy_pods(w);
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        cleanup_json_value json_t *list = api_get(w, "%s", lists[i][0]);
        size_t k;
        json_t *object;
        json_array_foreach(json_object_get(list, "items"), k, object)
        {
            sim_jsonx_set_str(object, "apiVersion", lists[i][1]);
            sim_jsonx_set_str(object, "kind", lists[i][2]);
            json_array_append(all, object);
        }
    }
    size_t n = json_array_size(all);
    json_t **sorted = xcalloc(n + 1, sizeof *sorted);
    for (size_t i = 0; i < n; i++)
        sorted[i] = json_array_get(all, i);
    qsort(sorted, n, sizeof *sorted, by_version);
    w->backup->objects = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append(w->backup->objects, sorted[i]);
    free(sorted);
    trace(w, "etcd: a backup at version %llu", (unsigned long long)w->backup->version);
}

static struct api *api_of_backup(struct world *w)
{
    const struct backup *b = w->backup;
    struct api_config config = {.seed = w->seed + (w->restores << 32)};
    struct api *api = api_new(&config);
    struct err err;
    size_t i;
    json_t *object;
    json_array_foreach(b->objects, i, object)
    {
        api->rv = (uint64_t)version_of(object) - 1;
        cleanup_free char *text = json_dumps(object, JSON_COMPACT);
        if (api_load(api, wall_ms(w), span_of(text), &err))
            violated(w, "cannot restore an object: %s", err.msg);
    }
    api->rv = b->version;
    api_compact(api);
    return api;
}

static void on_restore(struct world *w, void *arg)
{
    (void)arg;
    trace(w, "etcd: restored from %llu to %llu", (unsigned long long)api_version(w->api),
          (unsigned long long)w->backup->version);
    w->stats.restored++;
    w->restores++;
    EACH_REPLICA(w, r)
    replica_restored(w, r);
    struct api *restored = api_of_backup(w);
    oracle_restored(w, steal(&w->backup->pods));
    api_on_change(w->api, NULL, NULL);
    api_free(w->api);
    world_set_api(w, restored);
    oracle_start(w);
    oracle_update(w);
    backup_free(w);
    agents_restored(w);
}

static void on_outage(struct world *w, void *arg)
{
    (void)arg;
    int64_t ms = between(w, OUTAGE_MS, 14000);
    cut_off_all(w, ms, ms);
    w->down_until = w->now_ms + ms;
    at(w, w->down_until, on_restore, NULL, NULL);
}

int64_t restores_start(struct world *w)
{
    int64_t when_ms = w->now_ms + between(w, 0, 1000);
    at(w, when_ms, on_backup, NULL, NULL);
    at(w, when_ms + between(w, 5000, 20000), on_outage, NULL, NULL);
    return 35000;
}

void restores_free(struct world *w)
{
    backup_free(w);
}
