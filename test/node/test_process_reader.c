/* SPDX-License-Identifier: Apache-2.0 */
#include "node/process_reader.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "lib/temp.h"
#include "lib/unit.h"
#include "node/container_names.h"

/* A made-up root of a host: /proc with processes, and /var/log/containers. */

#define UID    "5d0c1f6e-8a2b-4c3d-9e4f-0123456789ab"
#define ID     "4f797c539e6c745de61a93ca3ff892358ecbcaccd8414d5db545c38428142970"
#define IN_POD "0::/kubepods/burstable/pod" UID "/" ID "\n"

static char *root;
static struct process_reader *reader;
static struct arena a;

static void folder(const char *path)
{
    cleanup_free char *full = xasprintf("%s/%s", root, path);
    ck_assert_int_eq(mkdir(full, 0700), 0);
}

static void file(const char *path, const char *text)
{
    cleanup_free char *full = xasprintf("%s/%s", root, path);
    struct err err = {0};
    ck_assert_done(file_write(full, span_of(text), &err), err);
}

static void process_in_state(int pid, const char *comm, char state, int started,
                             const char *cgroup)
{
    cleanup_free char *path = xasprintf("proc/%d", pid);
    cleanup_free char *stat = xasprintf("proc/%d/stat", pid);
    cleanup_free char *group = xasprintf("proc/%d/cgroup", pid);
    cleanup_free char *text =
        xasprintf("%d (%s) %c 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 "
                  "0 1 0 %d 999 888\n",
                  pid, comm, state, started);
    folder(path);
    file(stat, text);
    file(group, cgroup);
}

static void process(int pid, const char *comm, int started, const char *cgroup)
{
    process_in_state(pid, comm, 'S', started, cgroup);
}

static void setup(void)
{
    root = temp_dir();
    folder("proc");
    folder("var");
    folder("var/log");
    folder("var/log/containers");
    process(2, "kthreadd", 0, "0::/\n");
    reader = process_reader_new(root);
}

static void teardown(void)
{
    process_reader_free(reader);
    arena_fini(&a);
    temp_dir_remove(root);
    free(root);
}

static const struct usage_place *places(const struct gpu_process *list, size_t n,
                                        size_t *found)
{
    struct gpu_card card = {.processes_known = true, .processes = list, .n_processes = n};
    struct gpu_sample sample = {.cards = &card, .n_cards = 1};
    const struct usage_place *p;
    process_reader_places(reader, &sample, &a, &p, found);
    return p;
}

START_TEST(where_processes_run)
{
    static const struct gpu_process list[] = {{10, 1, 1}, {11, 1, 1}, {12, 1, 1},
                                              {13, 1, 1}, {14, 1, 1}, {15, 1, 1}};
    size_t n;
    process(10, "python", 4711, IN_POD);
    process(11, "X) R 1 (org", 5, "0::/user.slice/session-2.scope\n");
    process(12, "odd", 5, "nothing of a cgroup");
    folder("proc/14"); /* no stat: it ends at this moment */
    folder("proc/15");
    file("proc/15/stat", "15 (bash) S 1\n");
    const struct usage_place *p = places(list, ARRAY_LEN(list), &n);
    ck_assert_uint_eq(n, 6);
    ck_assert_int_eq(p[0].kind, USAGE_CONTAINER);
    ck_assert_int_eq(p[0].pid.pid, 10);
    ck_assert_uint_eq(p[0].pid.started, 4711);
    ck_assert_span_eq(p[0].pod_uid, UID);
    ck_assert_span_eq(p[0].container_id, ID);
    ck_assert_span_eq(p[0].name, "python");
    ck_assert_int_eq(p[1].kind, USAGE_OUTSIDE);
    ck_assert_uint_eq(p[1].pid.started, 5);
    ck_assert_span_eq(p[1].name, "X) R 1 (org");
    ck_assert_int_eq(p[2].kind, USAGE_UNMAPPED);
    ck_assert_int_eq(p[3].kind, USAGE_ENDED);
    ck_assert_int_eq(p[4].kind, USAGE_ENDED);
    ck_assert_int_eq(p[5].kind, USAGE_UNMAPPED);
}
END_TEST

/* cgroup v1 moves a thread that exits to the root of each hierarchy, also the main thread of
 * a process whose other threads run on. cgroup v2 keeps its path. */
START_TEST(a_process_whose_main_thread_has_exited)
{
    static const char roots[] = "3:memory:/\n2:cpu,cpuacct:/\n1:name=systemd:/\n";
    static const struct gpu_process list[] = {
        {10, 1, 1}, {11, 1, 1}, {12, 1, 1}, {13, 1, 1}};
    size_t n;
    process_in_state(10, "python", 'Z', 5, roots);
    process_in_state(11, "python", 'X', 5, roots);
    process_in_state(12, "python", 'Z', 5, IN_POD);
    process_in_state(13, "Z) S (x", 'R', 5, roots);
    const struct usage_place *p = places(list, ARRAY_LEN(list), &n);
    ck_assert_uint_eq(n, 4);
    ck_assert_int_eq(p[0].kind, USAGE_UNMAPPED);
    ck_assert_int_eq(p[1].kind, USAGE_UNMAPPED);
    ck_assert_int_eq(p[2].kind, USAGE_CONTAINER);
    ck_assert_int_eq(p[3].kind, USAGE_OUTSIDE);
}
END_TEST

START_TEST(a_process_of_two_cards_is_read_once)
{
    static const struct gpu_process list[] = {{10, 1, 1}};
    struct gpu_card cards[] = {{.processes = list, .n_processes = 1},
                               {.processes = list, .n_processes = 1},
                               {.processes = (struct gpu_process[]){{9, 1, 1}},
                                .n_processes = 1,
                                .state = GPU_MIG}};
    struct gpu_sample sample = {.cards = cards, .n_cards = 3};
    const struct usage_place *p;
    size_t n;
    process(10, "python", 4711, IN_POD);
    process_reader_places(reader, &sample, &a, &p, &n);
    ck_assert_uint_eq(n, 1);
    ck_assert_int_eq(p[0].kind, USAGE_CONTAINER);
}
END_TEST

/* In another PID namespace the same pid is another process. */
START_TEST(a_proc_that_is_not_of_the_host)
{
    static const struct gpu_process list[] = {{10, 1, 1}};
    struct err err = {0};
    size_t n;
    process(10, "python", 4711, IN_POD);
    ck_assert_done(process_reader_check(reader, &err), err);
    file("proc/2/stat", "2 (sh) S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 7 9 8\n");
    ck_assert_int_eq(process_reader_check(reader, &err), -1);
    ck_assert_ptr_nonnull(strstr(err.msg, "hostPID"));
    ck_assert_int_eq(places(list, 1, &n)[0].kind, USAGE_UNMAPPED);
    ck_assert_uint_eq(n, 1);
}
END_TEST

START_TEST(a_reused_pid_is_another_process)
{
    process(10, "python", 4711, IN_POD);
    ck_assert(process_reader_is_alive(reader, &(struct usage_pid){10, 4711}));
    ck_assert(!process_reader_is_alive(reader, &(struct usage_pid){10, 4712}));
    ck_assert(!process_reader_is_alive(reader, &(struct usage_pid){11, 4711}));
}
END_TEST

START_TEST(this_process_is_alive)
{
    struct process_reader *real = process_reader_new("/");
    cleanup_free char *path = xasprintf("/proc/%d/stat", (int)getpid());
    cleanup_buf struct buf stat = {0};
    struct err err = {0};
    ck_assert_done(file_read(path, 4096, &stat, &err), err);
    struct span rest = {strrchr(stat.p, ')'), strlen(strrchr(stat.p, ')'))};
    int64_t started = 0;
    for (int i = 2; i < 22; i++)
        span_cut(&rest, ' ');
    ck_assert(span_i64(span_cut(&rest, ' '), &started));
    struct usage_pid self = {getpid(), (uint64_t)started};
    ck_assert(process_reader_is_alive(real, &self));
    self.started++;
    ck_assert(!process_reader_is_alive(real, &self));
    process_reader_free(real);
}
END_TEST

static const struct {
    const char *link;
    const char *pod, *ns, *container; /* NULL: no container */
} links[] = {
    {"serve-0_team_main-" ID ".log", "serve-0", "team", "main"},
    {"a.b-c_kube-system_nvidia-device-plugin-ctr-" ID ".log", "a.b-c", "kube-system",
     "nvidia-device-plugin-ctr"},
    {".", NULL, NULL, NULL},
    {"serve-0_team_main.log", NULL, NULL, NULL},
    {"serve-0_team_main-" ID, NULL, NULL, NULL},
    {"serve-0_team_main-4f797c53.log", NULL, NULL, NULL},
    {"serve-0_team_main-" ID "x.log", NULL, NULL, NULL},
    {"serve-0_team_-" ID ".log", NULL, NULL, NULL},
    {"serve-0__main-" ID ".log", NULL, NULL, NULL},
    {"_team_main-" ID ".log", NULL, NULL, NULL},
    {"serve-0_team_a_b-" ID ".log", NULL, NULL, NULL},
    {"serve-0_team-" ID ".log", NULL, NULL, NULL},
    {".log", NULL, NULL, NULL},
};

START_TEST(names_of_links)
{
    for (size_t i = 0; i < ARRAY_LEN(links); i++) {
        struct usage_name name;
        bool found = container_names_parse(span_of(links[i].link), &name);
        ck_assert_msg(found == (links[i].pod != NULL), "%s", links[i].link);
        if (!found)
            continue;
        ck_assert_span_eq(name.pod, links[i].pod);
        ck_assert_span_eq(name.ns, links[i].ns);
        ck_assert_span_eq(name.container, links[i].container);
        ck_assert_span_eq(name.container_id, ID);
    }
}
END_TEST

START_TEST(the_names_of_a_node)
{
    cleanup_free char *link =
        xasprintf("%s/var/log/containers/serve-0_team_main-" ID ".log", root);
    const struct usage_name *names;
    struct err err = {0};
    size_t n;
    ck_assert_int_eq(symlink("/var/log/pods/somewhere/0.log", link), 0);
    file("var/log/containers/other", "");
    ck_assert_done(container_names_read(root, &a, &names, &n, &err), err);
    ck_assert_uint_eq(n, 1);
    ck_assert_span_eq(names[0].pod, "serve-0");
    ck_assert_span_eq(names[0].container_id, ID);
    ck_assert_int_eq(container_names_read("/nowhere", &a, &names, &n, &err), -1);
    ck_assert_uint_eq(n, 0);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        where_processes_run,   a_process_of_two_cards_is_read_once,
        names_of_links,        a_proc_that_is_not_of_the_host,
        the_names_of_a_node,   a_reused_pid_is_another_process,
        this_process_is_alive, a_process_whose_main_thread_has_exited,
    };
    static const struct unit_fixtures around = {.begin = setup, .end = teardown};
    return unit_run_with("process_reader", tests, ARRAY_LEN(tests), 60, &around);
}
