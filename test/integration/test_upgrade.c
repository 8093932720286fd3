/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/stat.h>

#include "integration/suite.h"
#include "limit/state.h"

/*
 * An upgrade from version 0.1 under running pods, and back. What 0.1 left on the API server, in the
 * kubelet and on the node is test/data/upgrade-0.1.json. `make test-upgrade FROM=REVISION` runs the
 * programs of a revision instead: UPGRADE_FROM is their build folder. With UPGRADE_RECORD, the
 * file is written.
 */

enum { STATE_JSON, LIMIT, LIMIT_STATE };
static const struct {
    const char *name;
    size_t size; /* 0: text */
} kept_on_node[] = {
    [STATE_JSON] = {"state.json", 0},
    [LIMIT] = {"limits/pods/uid-shared/limit/0", sizeof(struct limit_file)},
    [LIMIT_STATE] = {"limits/pods/uid-shared/state/0", sizeof(struct limit_state)},
};

/* Pods that run, each with a container "c" that the kubelet has started. */
static const struct pod {
    const char *name, *metadata, *limits;
    int resource, amount;
} pods[] = {
    {"shared", ",\"annotations\":{\"gpushare/isolation\":\"limit\"}",
     "\"aliyun.com/gpu-mem\":\"3\"", MEM, 3},
    {"pair", ",\"labels\":{\"aliyun.com/gpu-count\":\"2\"}",
     "\"aliyun.com/gpu-mem\":\"12\"", MEM, 12},
    {"whole", "", "\"aliyun.com/gpu-count\":\"1\"", COUNT, 1},
};

static char *pod_path(const char *name)
{
    return lib_fmt("/api/v1/namespaces/default/pods/%s", name);
}

/* -- the programs -- */

static void use_build(const char *folder)
{
    static char *present;
    if (!present)
        present = xstrdup(getenv("GPUSHARE_BUILD") ?: "build");
    setenv("GPUSHARE_BUILD", folder ? folder : present, 1);
}

static void start_programs(void)
{
    agent_start(&agent, &sim, NULL,
                ARGV("--update-interval", "100ms", "--podresources-socket",
                     lib_path("podresources.sock"), "--pods-interval", "1s"));
    plugin_start(&plugin, &sim, NULL);
    kubelet_wait_registered(&kubelet, CORE); /* the former release has no slots */
    lib_wait(agent_number(&sim, "status.cardNumber") == 4);
    suite_extender(ARGV("--require-scv"));
    lib_wait(extender_leads(&extender) && extender_node(&extender, "n1"));
}

static void stop_programs(void)
{
    extender_stop(&extender);
    plugin_stop(&plugin);
    agent_stop(&agent);
}

static void start_kubelet(void)
{
    agent_setup(&sim);
    agent_cards(
        "{'uuid':'GPU-0','model':'T4','memoryTotal':8592048576,'memoryReserved':0},"
        "{'uuid':'GPU-1','model':'T4','memoryTotal':16384048576,'memoryReserved':0},"
        "{'uuid':'GPU-2','model':'T4','memoryTotal':16384048576,'memoryReserved':0},"
        "{'uuid':'GPU-3','model':'T4','memoryTotal':16384048576,'memoryReserved':0}");
    kubelet_start(&kubelet);
}

/* -- what they leave -- */

/* A file as text, or as hexadecimal digits without the zeros at its end. Kept. */
static char *text_of(size_t file)
{
    const char *path = lib_path(kept_on_node[file].name);
    return kept_on_node[file].size
               ? lib_output(0, ARGV("sh", "-euc",
                                    "od -An -v -tx1 \"$1\" | tr -d ' \\n' | sed "
                                    "'s/\\(00\\)*$//'",
                                    "sh", path))
               : lib_file(path);
}

static void restore(size_t file, const char *text)
{
    cleanup_buf struct buf bytes = {0};
    const char *name = kept_on_node[file].name;
    if (!kept_on_node[file].size)
        buf_adds(&bytes, text);
    for (size_t i = 0; bytes.n < kept_on_node[file].size; i += text[i] ? 2 : 0) {
        char two[] = {text[i], text[i] ? text[i + 1] : 0, 0};
        buf_addc(&bytes, (char)strtoul(two, NULL, 16));
    }
    lib_output(0, ARGV("mkdir", "-p", lib_path("limits/pods/uid-shared/limit"),
                       lib_path("limits/pods/uid-shared/state")));
    temp_write_bytes(lib_dir, name, buf_span(&bytes));
}

/* The objects, the ids that containers have, and the files of the node. Kept. */
static json_t *record(void)
{
    static const char *const lists[][3] = {
        {"/api/v1/nodes", "v1", "Node"},
        {"/apis/core.run-linux.com/v1/scvs", "core.run-linux.com/v1", "Scv"},
        {"/apis/coordination.k8s.io/v1/leases", "coordination.k8s.io/v1", "Lease"},
        {"/api/v1/pods", "v1", "Pod"}};
    json_t *all = lib_own(json_object()), *objects = json_array(), *object;
    array_indices(i, lists) {
        lib_each(object, lib_at(peer_get(&sim.api, lists[i][0]), "items")) {
            json_object_set_new(object, "apiVersion", json_string(lists[i][1]));
            json_object_set_new(object, "kind", json_string(lists[i][2]));
            json_array_append(objects, object);
        }
    }
    json_object_set_new(all, "objects", objects);
    pthread_mutex_lock(&kubelet.lock);
    json_object_set_new(all, "kubelet", json_deep_copy(kubelet.pods));
    pthread_mutex_unlock(&kubelet.lock);
    array_indices(i, kept_on_node)
        json_object_set_new(all, kept_on_node[i].name, json_string(text_of(i)));
    return all;
}

/* Runs the pods under the programs of the build folder (NULL: the present one), and ends the
 * programs. Kept: what they leave. */
static json_t *run_pods(const char *folder)
{
    use_build(folder);
    start_kubelet();
    start_programs();
    array_items(p, pods) {
        cleanup_answer struct kubelet_answer a = {0};
        const char *name = p->name;
        sim_load(&sim,
                 "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\","
                 "\"namespace\":\"default\",\"uid\":\"uid-%s\"%s},\"spec\":{"
                 "\"containers\":[{\"name\":\"c\",\"image\":\"i\",\"resources\":{"
                 "\"limits\":{%s}}}]},\"status\":{\"phase\":\"Pending\"}}",
                 name, name, p->metadata, p->limits);
        lib_wait(extender_bind(&extender, name, "n1", NULL));
        kubelet_add(&kubelet, name, ARGV("c"));
        kubelet_admit(&kubelet, name, "c", p->resource, p->amount, &a);
        ck_assert_msg(a.status == GRPC_OK, "%s: %s", name, a.words);
        lib_wait(strcmp(lib_annotation(peer_get(&sim.api, pod_path(name)),
                                       "ALIYUN_COM_GPU_MEM_ASSIGNED"),
                        "true") == 0);
        json_t *pod = peer_get(&sim.api, pod_path(name));
        json_object_set_new(lib_at(pod, "status"), "phase", json_string("Running"));
        peer_do(&sim.api, "PUT", lib_fmt("%s/status", pod_path(name)), lib_text(pod, ""));
    }
    lib_wait(lib_size(agent_scv(&sim), "status.podList") == ARRAY_LEN(pods));
    stop_programs();
    return record();
}

/* What 0.1 left is there, as after an upgrade of the node's and the cluster's programs. Kept. */
static json_t *run_former(void)
{
    const char *from = getenv("UPGRADE_FROM"), *to = getenv("UPGRADE_RECORD");
    if (from) {
        json_t *all = run_pods(from);
        if (to)
            ck_assert_int_eq(json_dump_file(all, to, JSON_INDENT(1) | JSON_SORT_KEYS), 0);
        return all;
    }
    const char *text = lib_file("test/data/upgrade-0.1.json");
    json_t *all = lib_parse(text, strlen(text)), *ids, *containers;
    const char *name, *resource;
    start_kubelet();
    sim_load(&sim, "%s", lib_text(all, "objects"));
    json_object_foreach(lib_at(all, "kubelet"), name, containers)
    {
        kubelet_add(&kubelet, name, ARGV("c"));
        json_object_foreach(lib_at(containers, "c"), resource, ids)
            kubelet_give(&kubelet, name, "c", strstr(resource, "mem") ? MEM : COUNT, ids);
    }
    array_indices(i, kept_on_node)
        restore(i, json_string_value(json_object_get(all, kept_on_node[i].name)));
    return all;
}

/* -- what must hold -- */

static const struct limit_file *limit_file(void)
{
    return (const void *)lib_read(kept_on_node[LIMIT].name);
}

/* The programs of the build folder keep what the others left. */
static void check_kept(const json_t *left, const char *folder)
{
    const json_t *pod;
    struct stat before, after;
    uint64_t limit = limit_file()->limit;
    ck_assert_int_eq(stat(lib_path(kept_on_node[LIMIT_STATE].name), &before), 0);
    use_build(folder);
    start_programs();
    lib_wait(plugin_metric(&plugin, "container_allocations") == ARRAY_LEN(pods));
    lib_wait(lib_size(agent_scv(&sim), "status.podList") == ARRAY_LEN(pods));
    const json_t *scv = agent_scv(&sim);
    lib_each(pod, lib_at(left, "objects")) {
        if (strcmp(lib_str(pod, "kind"), "Pod") != 0)
            continue;
        const char *name = lib_str(pod, "metadata.name");
        const json_t *now = peer_get(&sim.api, pod_path(name)), *uuid;
        size_t n = 0;
        ck_assert_str_eq(lib_text(now, "metadata.annotations"),
                         lib_text(pod, "metadata.annotations"));
        ck_assert_str_eq(lib_text(now, "spec"), lib_text(pod, "spec"));
        ck_assert_at(now, "status.phase", "Running");
        /* The cards that the container has are those of the annotation. */
        lib_each(uuid,
                 lib_at(lib_find(lib_at(scv, "status.podList"), "name", name), "cards")) {
            ck_assert_contains(lib_annotation(pod, "gpushare/card-uuid"),
                               json_string_value(uuid));
            n++;
        }
        ck_assert_uint_eq(n, strcmp(name, "pair") ? 1 : 2);
    }
    oracle_agrees(&sim.api, &extender);
    ck_assert_int_eq(extender_metric(&extender, "gpushare_cards_overcommitted"), 0);
    /* The limit, and the state that the processes of the pod have mapped. */
    ck_assert_uint_eq(limit_file()->limit, limit);
    ck_assert_int_eq(stat(lib_path(kept_on_node[LIMIT_STATE].name), &after), 0);
    ck_assert_uint_eq(before.st_ino, after.st_ino);
    ck_assert_int_eq(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
    /* New pods get what is left, and no more: one starts. */
    size_t n = 0;
    sim_add_pod(&sim, "new0", 1);
    lib_wait(extender_bind(&extender, "new0", "n1", NULL));
    while (sim_add_pod(&sim, lib_fmt("new%zu", ++n), 1),
           extender_bind(&extender, lib_fmt("new%zu", n), "n1", NULL)) {
    }
    oracle_agrees(&sim.api, &extender);
    ck_assert_int_eq(extender_promised(&extender, "n1"),
                     lib_int(extender_node(&extender, "n1"), "totalGPU"));
    cleanup_answer struct kubelet_answer a = {0};
    kubelet_add(&kubelet, "new0", ARGV("c"));
    kubelet_admit(&kubelet, "new0", "c", MEM, 1, &a);
    ck_assert_msg(a.status == GRPC_OK, "%s", a.words);
}

TEST(running_pods_keep_their_promises)
{
    check_kept(run_former(), NULL);
}

/* Of the objects: not the same each time. */
static bool is_volatile(const char *key)
{
    static const char *const keys[] = {"resourceVersion",
                                       "creationTimestamp",
                                       "updateTime",
                                       "renewTime",
                                       "acquireTime",
                                       "lastTransitionTime",
                                       "holderIdentity",
                                       "leaseTransitions",
                                       "uid",
                                       "ALIYUN_COM_GPU_MEM_ASSUME_TIME"};
    array_items(c, keys)
        if (strcmp(*c, key) == 0)
            return true;
    return false;
}

/* Each value of `was` is in `now`, which may have further members. */
static void check_includes(const json_t *was, const json_t *now, const char *path)
{
    const char *key;
    json_t *value;
    size_t i = 0;
    if (json_is_object(was)) {
        json_object_foreach((json_t *)was, key, value) if (!is_volatile(key))
            check_includes(value, json_object_get(now, key), lib_fmt("%s.%s", path, key));
    } else if (json_is_array(was)) {
        ck_assert_msg(json_array_size(was) == json_array_size(now), "%s", path);
        lib_each(value, was) {
            check_includes(value, json_array_get(now, i), lib_fmt("%s.%zu", path, i));
            i++;
        }
    } else {
        ck_assert_msg(json_equal(was, now), "%s was %s and is %s", path,
                      json_dumps(was, JSON_ENCODE_ANY),
                      now ? json_dumps(now, JSON_ENCODE_ANY) : "gone");
    }
}

/* A downgrade. Without its programs: whatever 0.1 wrote, and so can read, is there with the same
 * value. */
TEST(the_former_version_finds_the_promises)
{
    const char *from = getenv("UPGRADE_FROM");
    json_t *now = run_pods(NULL);
    if (from) {
        check_kept(now, from);
        return;
    }
    const struct limit_file file = *limit_file();
    sim_stop(&sim);
    kubelet_fini(&kubelet);
    sim_start(&sim, NULL);
    json_t *was = run_former();
    array_indices(i, kept_on_node)
        if (i != LIMIT)
            ck_assert_str_eq(
                json_string_value(json_object_get(was, kept_on_node[i].name)),
                json_string_value(json_object_get(now, kept_on_node[i].name)));
    ck_assert_int_eq(memcmp(limit_file(), &file, LIMIT_FILE_MIN), 0);
    check_includes(lib_at(was, "objects"), lib_at(now, "objects"), "");
    check_includes(lib_at(was, "kubelet"), lib_at(now, "kubelet"), "");
}

SUITE_MAIN(40, NULL)
