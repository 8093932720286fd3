/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/temp.h"
#include "limit/state.h"
#include "node/overuse.h"
#include "node/samples.h"
#include "node/usage_meter.h"

/*
 * Twenty minutes of a pod that wants more memory than promised and tries not to be evicted,
 * from a made-up root of a host to the eviction: a sample in each second, and an answer of the
 * kubelet in every 30th. Each row of the table in docs/isolation.md is one.
 *
 * One card of 16 GiB is promised as a whole. The pod "greedy" has 4 GiB of it and uses 10.
 * "modest" has 8 and uses nothing, so it lacks memory. "honest" has 4 and uses 4, and 6 for 4 s
 * in each minute.
 */

enum { SECONDS = 20 * 60, GRACE = 30, POLL = 30, PEAK = 4 };

#define GIB        1073741824LL
#define UID(c)     "5d0c1f6e-8a2b-4c3d-9e4f-0123456789a" c
#define GREEDY     UID("1")
#define HONEST     UID("2")
#define GREEDY_PID 1000

/* With such a name the link of the container has a part of its ID only. */
#define LONG   "pppppppppppppppppppppppppppppppppppppppppppppppppppppppppppp"
#define LONGER LONG LONG LONG LONG

static char *root, *limits;
static const char *greedy; /* name of the pod */
static struct usage_meter *meter;
static struct overuse *overuse;
static struct arena arena;
static struct podresources devices; /* the meter holds a reference until `end` */
static struct usage usage;
static struct buf processes; /* of the card, in JSON */

/* -- the node -- */

static void write_file(const char *path, const char *text)
{
    temp_write_bytes(root, path, span_of(text));
}

static const char *id_of(int n)
{
    return arena_printf(&arena, "%064x", n);
}

static const char *cgroup_of(const char *uid, const char *id)
{
    return arena_printf(&arena, "5:memory:/kubepods/burstable/pod%s/%s\n", uid, id);
}

static void add_process(int pid, char state, const char *cgroup)
{
    const char *folder = arena_printf(&arena, "proc/%d", pid);
    cleanup_free char *path = temp_path(root, folder);
    if (access(path, F_OK) != 0)
        temp_mkdir(root, folder);
    write_file(arena_printf(&arena, "%s/stat", folder),
               arena_printf(&arena,
                            "%d (%s) %c 1 1 1 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 %d 9 8\n",
                            pid, pid == 2 ? "kthreadd" : "python", state, pid));
    write_file(arena_printf(&arena, "%s/cgroup", folder), cgroup);
}

static void name_container(const char *pod, const char *container, const char *id)
{
    const char *name = arena_printf(&arena, "%s_team_%s-%s", pod, container, id);
    const char *link =
        arena_printf(&arena, "%s/var/log/containers/%.251s.log", root, name);
    const char *target =
        arena_printf(&arena, "/var/log/pods/team_%s_" GREEDY "/%s/0.log", pod, container);
    ck_assert_int_eq(symlink(target, link), 0);
}

/* The process has this memory of the card. */
static void use(int pid, int64_t bytes)
{
    buf_printf(&processes, "%s{'pid':%d,'bytes':%lld,'sm':0}", processes.n ? "," : "",
               pid, (long long)bytes);
}

static void begin(void)
{
    static const char *const folders[] = {"proc", "var", "var/log", "var/log/containers"};
    root = temp_dir();
    array_items(folder, folders)
        temp_mkdir(root, *folder);
    limits = temp_path(root, "limit");
    temp_mkdir(root, "limit");
    temp_mkdir(root, "limit/pods");
    add_process(2, 'S', "0::/\n");
    add_process(20, 'S', cgroup_of(HONEST, id_of(20)));
    name_container("honest", "main", id_of(20));
    add_process(GREEDY_PID, 'S', cgroup_of(GREEDY, id_of(0)));
    greedy = "greedy";
    meter =
        usage_meter_new(&(struct usage_meter_settings){root, limits, 1024, 60000, NULL});
    overuse = overuse_new(&(struct overuse_settings){
        .most = OVERUSE_EVICT, .grace_ms = GRACE * 1000, .tolerance_mib = 512});
}

static void end(void)
{
    usage_meter_free(meter);
    overuse_free(overuse);
    usage_fini(&usage);
    arena_fini(&arena);
    temp_dir_remove(root);
    free(root);
    free(limits);
    buf_fini(&processes);
}

static struct podresources_entry promised_entry(const char *pod, int from, int to)
{
    return (struct podresources_entry){SPAN("team"),
                                       span_of(pod),
                                       SPAN("main"),
                                       SPAN("aliyun.com/gpu-mem"),
                                       ids_of(&arena, "GPU-0", from, to),
                                       (size_t)(to - from),
                                       0,
                                       NULL};
}

static void poll_kubelet(int64_t now_ms)
{
    static struct podresources_entry entries[3];
    static struct usage_listed listed[3];
    entries[0] = promised_entry(greedy, 0, 4);
    entries[1] = promised_entry("honest", 4, 8);
    entries[2] = promised_entry("modest", 8, 16);
    array_indices(i, listed)
        listed[i] = (struct usage_listed){entries[i].ns, entries[i].pod, SPAN("main")};
    devices = (struct podresources){.refs = 2, /* never freed */
                                    .entries = entries,
                                    .n = ARRAY_LEN(entries),
                                    .listed = listed,
                                    .n_listed = ARRAY_LEN(listed),
                                    .allocates = true,
                                    .asked_ms = now_ms};
    usage_meter_pods(meter, &devices);
}

/* -- who evades -- */

/* What greedy does in this second. True: it uses more than promised. */

static bool is_steady(int second)
{
    (void)second;
    use(GREEDY_PID, 10 * GIB);
    return true;
}

static bool is_inside_once_in_30(int second)
{
    bool inside = second % 30 == 29;
    use(GREEDY_PID, (inside ? 4 : 10) * GIB);
    return !inside;
}

static bool is_inside_in_each_second_sample(int second)
{
    use(GREEDY_PID, (second % 2 ? 4 : 10) * GIB);
    return second % 2 == 0;
}

static bool restarts_every_29_s(int second)
{
    int n = second / 29, pid = GREEDY_PID + n;
    if (n && second % 29 == 0) {
        add_process(pid, 'S', cgroup_of(GREEDY, id_of(n)));
        name_container(greedy, "main", id_of(n));
    }
    use(pid, 10 * GIB);
    return true;
}

static bool bursts_each_minute(int second)
{
    bool burst = second % 60 < 12;
    use(GREEDY_PID, (burst ? 10 : 4) * GIB);
    return burst;
}

static bool has_a_process_that_cannot_be_mapped(int second)
{
    if (!second)
        add_process(22, 'S', "nothing of a cgroup");
    use(GREEDY_PID, 9 * GIB);
    use(22, GIB);
    return true;
}

static bool has_no_main_thread(int second)
{
    if (!second) {
        add_process(GREEDY_PID, 'Z', "5:memory:/\n");
        temp_mkdir(root, "proc/1000/task");
        temp_mkdir(root, "proc/1000/task/1001");
        write_file("proc/1000/task/1001/cgroup", cgroup_of(GREEDY, id_of(0)));
    }
    return is_steady(second);
}

static bool has_an_ephemeral_container(int second)
{
    if (!second) {
        add_process(GREEDY_PID + 1, 'S', cgroup_of(GREEDY, id_of(1)));
        name_container(greedy, "debug", id_of(1));
    }
    use(GREEDY_PID, 4 * GIB);
    use(GREEDY_PID + 1, 6 * GIB);
    return true;
}

static bool has_a_long_name(int second)
{
    greedy = LONGER;
    if (!second) {
        add_process(GREEDY_PID + 1, 'S', cgroup_of(GREEDY, id_of(1)));
        name_container(greedy, "main", id_of(0));
        name_container(greedy, "init", id_of(1));
    }
    return is_steady(second);
}

static bool is_just_beyond_the_tolerance(int second)
{
    (void)second;
    use(GREEDY_PID, 4 * GIB + 520 * (GIB >> 10));
    use(21, 5 * GIB);
    return true;
}

/* 512 MiB in each, with slots that say so. */
static bool forges_the_slots_of_many_processes(int second)
{
    static struct limit_state state = {.magic = LIMIT_STATE_MAGIC,
                                       .version = LIMIT_VERSION};
    struct limit_file file = {.magic = LIMIT_FILE_MAGIC,
                              .version = LIMIT_VERSION,
                              .limit = 4 * GIB,
                              .uuid = "GPU-0"};
    static const char *const folders[] = {"", "/limit", "/state"};
    for (size_t i = 0; !second && i < ARRAY_LEN(folders); i++)
        temp_mkdir(root, arena_printf(&arena, "limit/pods/" GREEDY "%s", folders[i]));
    for (int i = 0; i < 20; i++) {
        int pid = GREEDY_PID + i;
        state.slots[i] = (struct limit_slot){.used = GIB / 2,
                                             .context = GIB / 2,
                                             .pid = (uint32_t)pid,
                                             .version = LIMIT_VERSION};
        if (!second) {
            add_process(pid, 'S', cgroup_of(GREEDY, id_of(0)));
            write_file(arena_printf(&arena, "proc/%d/status", pid),
                       arena_printf(&arena, "NSpid:\t%d\n", pid));
        }
        use(pid, GIB / 2);
    }
    if (!second) {
        temp_write_bytes(root, "limit/pods/" GREEDY "/limit/0",
                         (struct span){(const char *)&file, sizeof file});
        temp_write_bytes(root, "limit/pods/" GREEDY "/state/0",
                         (struct span){(const char *)&state, sizeof state});
    }
    return true;
}

static bool runs_without_its_limit(int second)
{
    if (!second) {
        temp_mkdir(root, "limit/pods/" GREEDY);
        temp_mkdir(root, "limit/pods/" GREEDY "/limit");
        write_file("proc/1000/status", "Name:\tpython\nNSpid:\t1000\t7\n");
    }
    use(GREEDY_PID, 4 * GIB);
    return true;
}

/* As of a StatefulSet whose program ends itself: another UID each time. */
static bool is_made_again_every_29_s(int second)
{
    int n = second / 29, pid = GREEDY_PID + n;
    if (n && second % 29 == 0) {
        const char *uid = arena_printf(&arena, "5d0c1f6e-8a2b-4c3d-9e4f-0123456%05d", n);
        add_process(pid, 'S', cgroup_of(uid, id_of(n)));
        name_container(greedy, "main", id_of(n));
    }
    use(pid, 10 * GIB);
    return true;
}

static const struct row {
    const char *name;
    bool (*act)(int second);
} rows[] = {
    {"steady overuse", is_steady},
    {"one sample in 30 inside the promise", is_inside_once_in_30},
    {"each second sample inside the promise", is_inside_in_each_second_sample},
    {"a restart every 29 s", restarts_every_29_s},
    {"a new pod of the same name every 29 s", is_made_again_every_29_s},
    {"a burst each minute", bursts_each_minute},
    {"a process that cannot be mapped", has_a_process_that_cannot_be_mapped},
    {"a main thread that exited, on cgroup v1", has_no_main_thread},
    {"an ephemeral container", has_an_ephemeral_container},
    {"a name that is cut", has_a_long_name},
    {"slots that many processes forge", forges_the_slots_of_many_processes},
    {"inside the promise, without its limit", runs_without_its_limit},
    {"just beyond the tolerance", is_just_beyond_the_tolerance},
};

/* -- twenty minutes -- */

/* The evicted pod of this second, or empty. */
static struct span measure(int second)
{
    int64_t now_ms = (second + 1) * 1000;
    cleanup_overuse_actions struct overuse_actions actions = {0};
    struct err err;
    cleanup_free char *card =
        xasprintf("{'uuid':'GPU-0','memoryTotal':%lld,'memoryFree':0,'processes':[%s]}",
                  16 * GIB, processes.p);
    usage_meter_measure(meter, now_ms, sample_of(card), 0, &usage, &err);
    ck_assert_msg(err.code == ERR_NONE, "%s", err.msg);
    overuse_step(overuse, now_ms, &usage, &actions);
    for (size_t i = 0; i < actions.n; i++)
        if (actions.items[i].type == OVERUSE_EVICT)
            return usage.containers[actions.items[i].container].pod;
    return (struct span){0};
}

TEST(each_evasion_ends_within_twice_the_grace)
{
    for (const struct row *row = rows; row < rows + ARRAY_LEN(rows); row++) {
        /* What a new pod is promised is known at the next answer of the kubelet. */
        int most = 2 * GRACE + (row->act == is_made_again_every_29_s ? POLL : 0);
        int over_s = 0, second = 0;
        struct span evicted = {0};
        if (row != rows) {
            end();
            begin();
        }
        add_process(21, 'S', "0::/system.slice/display.service\n");
        for (; second < SECONDS && !evicted.n; second++) {
            buf_clear(&processes);
            over_s += row->act(second);
            if (second == 0 && !strcmp(greedy, "greedy"))
                name_container(greedy, "main", id_of(0));
            if (second % POLL == 0)
                poll_kubelet(second * 1000);
            use(20, (second % 60 < PEAK ? 6 : 4) * GIB);
            evicted = measure(second);
        }
        ck_assert_msg(span_eq(evicted, span_of(greedy)), "%s: evicted: \"%.*s\"",
                      row->name, SPAN_ARG(evicted));
        ck_assert_msg(over_s >= GRACE && over_s <= most, "%s: after %d s of it",
                      row->name, over_s);
    }
}

TEST(short_peaks_are_left_alone)
{
    name_container(greedy, "main", id_of(0));
    for (int second = 0; second < SECONDS; second++) {
        if (second % POLL == 0)
            poll_kubelet(second * 1000);
        buf_clear(&processes);
        use(GREEDY_PID, 4 * GIB);
        use(20, (second % 60 < PEAK ? 6 : 4) * GIB);
        ck_assert_uint_eq(measure(second).n, 0);
    }
}

UNIT_MAIN_AROUND(begin, end)
