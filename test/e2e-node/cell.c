/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e-node/cell.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "base/err.h"
#include "base/file.h"
#include "lib/lib.h"

#define CGROUP "gpushare-e2e-"
#define MARK   ".made-by-gpushare-e2e"

/* Paths that are built into the kubelet, containerd, the CNI plugins and manifests. */
static const char *const places[] = {
    "/var/lib/kubelet",  "/var/lib/cni",    "/var/log/containers",
    "/run/containerd",   "/run/cdi",        "/usr/local/nvidia",
    "/var/lib/gpushare", "/etc/kubernetes", "/var/lib/gpushare-install"};

/* Kernel settings that a kubelet requires, and would write for the whole machine. */
static const struct {
    const char *name, *value;
} switches[] = {{"vm/overcommit_memory", "1"},
                {"vm/panic_on_oom", "0"},
                {"kernel/panic", "10"},
                {"kernel/panic_on_oops", "1"},
                {"kernel/keys/root_maxkeys", "1000000"},
                {"kernel/keys/root_maxbytes", "25000000"}};

static struct {
    char why[sizeof(struct err)];
    char dir[256], cgroup[64];
    bool made[ARRAY_LEN(places)];
    int lock; /* of /var/lib: shared by the cells of this machine; -1: none */
    volatile pid_t init;
    volatile sig_atomic_t signal; /* the signal that ended it */
} cell;

const char *cell_why_not(void)
{
    return *cell.why ? cell.why : NULL;
}

const char *cell_dir(void)
{
    return cell.dir;
}

const char *cell_cgroup(void)
{
    return cell.cgroup;
}

/* -- inside -- */

static int put(const char *what, const char *from, const char *to, const char *type,
               unsigned long flags, const char *data, struct err *err)
{
    if (mount(from, to, type, flags, data) == 0)
        return 0;
    return err_set(err, ERR_UNAVAILABLE, "%s: mount %s: %s", what, to, strerror(errno));
}

static int make_mounts(struct err *err)
{
    static const char what[] = "mounts of its own";
    /* Shared among the containers, as systemd makes it, but not with the machine. */
    if (put(what, NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL, err) ||
        put(what, NULL, "/", NULL, MS_REC | MS_SHARED, NULL, err) ||
        put(what, "proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, err))
        return -1;
    array_items(place, places)
        if (put(what, "tmpfs", *place, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755", err))
            return -1;
    array_indices(i, switches) {
        char *file = lib_fmt("%s/switch-%zu", cell.dir, i);
        FILE *f = fopen(file, "w");
        if (!f || fprintf(f, "%s\n", switches[i].value) < 0 || fclose(f))
            return err_set(err, ERR_UNAVAILABLE, "%s: %s", file, strerror(errno));
        if (put(what, file, lib_fmt("/proc/sys/%s", switches[i].name), NULL, MS_BIND,
                NULL, err))
            return -1;
    }
    return 0;
}

static int make_network(struct err *err)
{
    char said[256];
    FILE *f = popen("{ PATH=$PATH:/usr/sbin:/sbin; ip link set lo up && "
                    "ip link add node0 type veth peer name node1 && "
                    "ip addr add " CELL_ADDRESS "/24 dev node0 && "
                    "ip link set node0 up && ip link set node1 up && "
                    "ip route add default via 10.77.0.254; } 2>&1",
                    "r");
    size_t n = f ? fread(said, 1, sizeof said - 1, f) : 0;
    said[n] = '\0';
    said[strcspn(said, "\n")] = '\0';
    if (!f || pclose(f) != 0)
        return err_set(err, ERR_UNAVAILABLE, "a network of its own: %s", said);
    return 0;
}

/* Process 2 of a host is kthreadd, by which scv-agent knows that it sees the host's processes. */
static void play_kthreadd(int tell)
{
    if (fork())
        return;
    close(tell); /* begin waits until no process has it */
    for (prctl(PR_SET_NAME, "kthreadd");;)
        pause();
}

/* Process 1 of the cell, which adopts orphans. It writes the error to the pipe if the cell
 * cannot be set up, and closes the pipe if the cell is ready. */
static void be_init(int (*run)(void), int tell)
{
    struct err err = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    play_kthreadd(tell);
    setsid(); /* an interrupt of the terminal goes to the outer process */
    if (make_mounts(&err) || make_network(&err)) {
        ssize_t n = write(tell, err.msg, strlen(err.msg));
        _exit(n > 0 ? 1 : 2);
    }
    close(tell);
    setenv("TMPDIR", cell.dir, 1);
    pid_t suite = fork();
    if (suite == 0)
        exit(run());
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, 0);
        if (pid == suite || (pid < 0 && errno == ECHILD))
            _exit(pid == suite && WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
}

/* -- outside -- */

static void wait_a_moment(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

/* The kernel owns the files of a control group: only its directories can be removed. */
static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    remove(path);
    return 0;
}

/* No test runs here, so that nothing may be asserted. */
static void remove_all(const char *path)
{
    nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Control groups outlive their processes. Only empty ones can be removed. */
static bool remove_cgroups(const char *name)
{
    /* cgroup v2, and each controller of v1. */
    static const char *const places_of[] = {"", "*/"};
    bool left = false;
    array_items(p, places_of) {
        char pattern[128];
        glob_t all;
        snprintf(pattern, sizeof pattern, "/sys/fs/cgroup/%s%s", *p, name);
        if (glob(pattern, 0, NULL, &all))
            continue;
        for (size_t k = 0; k < all.gl_pathc; k++) {
            remove_all(all.gl_pathv[k]);
            left |= access(all.gl_pathv[k], F_OK) == 0;
        }
        globfree(&all);
    }
    return !left;
}

static void leave_no_trace(void)
{
    for (int i = 0; i < 250 && !remove_cgroups(cell.cgroup); i++)
        wait_a_moment();
    bool last = cell.lock < 0 || flock(cell.lock, LOCK_EX | LOCK_NB) == 0;
    for (size_t i = 0; i < ARRAY_LEN(places) && last; i++)
        if (cell.made[i])
            remove_all(places[i]);
    remove_all(cell.dir);
    if (cell.lock >= 0)
        close(cell.lock); /* this process may start the owner of another cell */
}

static void interrupted(int number)
{
    cell.signal = number;
    kill(cell.init, SIGKILL);
}

/* A new group of the v1 controller cpuset accepts no process before this. */
static void copy_value(const char *from, const char *to, const char *name)
{
    cleanup_buf struct buf value = {0};
    FILE *f;
    if (file_read(lib_fmt("%s/%s", from, name), 4096, &value, NULL) ||
        !(f = fopen(lib_fmt("%s/%s", to, name), "w")))
        return;
    fwrite(value.p, 1, value.n, f);
    fclose(f);
}

/* The kubelet requires the parent of the groups that it creates. cgroup v2 has one
 * hierarchy, v1 one for each controller. */
static int make_cgroups(struct err *err)
{
    glob_t all;
    size_t made = 0;
    if (glob("/sys/fs/cgroup/cgroup.procs", 0, NULL, &all) &&
        glob("/sys/fs/cgroup/*/cgroup.procs", 0, NULL, &all))
        return err_set(err, ERR_UNAVAILABLE, "control groups: none in /sys/fs/cgroup");
    for (size_t i = 0; i < all.gl_pathc; i++) {
        *strrchr(all.gl_pathv[i], '/') = '\0';
        char *path = lib_fmt("%s/%s", all.gl_pathv[i], cell.cgroup);
        if (mkdir(path, 0755))
            continue;
        made++;
        copy_value(all.gl_pathv[i], path, "cpuset.cpus");
        copy_value(all.gl_pathv[i], path, "cpuset.mems");
    }
    globfree(&all);
    return made ? 0
                : err_set(err, ERR_UNAVAILABLE, "control groups: %s", strerror(errno));
}

/* Creates a missing directory with a mark in it, from which a later process knows that it
 * may remove the directory if this process is killed. */
static int make_place(size_t i)
{
    char *mark = lib_fmt("%s/" MARK, places[i]);
    if (mkdir(places[i], 0755)) {
        bool there = errno == EEXIST;
        cell.made[i] = there && access(mark, F_OK) == 0;
        return there ? 0 : -1;
    }
    cell.made[i] = true;
    FILE *f = fopen(mark, "w");
    return f ? fclose(f) : -1;
}

static int prepare(struct err *err)
{
    const char *base = getenv("TMPDIR");
    snprintf(cell.cgroup, sizeof cell.cgroup, CGROUP "%d", (int)getpid());
    /* Short, because the length of socket paths is limited. */
    snprintf(cell.dir, sizeof cell.dir, "%s/cell-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(cell.dir))
        return err_set(err, ERR_UNAVAILABLE, "%s: %s", cell.dir, strerror(errno));
    array_indices(i, places) {
        if (make_place(i))
            return err_set(err, ERR_UNAVAILABLE, "%s: %s", places[i], strerror(errno));
    }
    return make_cgroups(err);
}

/* Starts the first process of a cell. -1: no cell is possible. */
static pid_t begin(int (*run)(void), struct err *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return err_set(err, ERR_UNAVAILABLE, "pipe: %s", strerror(errno));
    fflush(NULL);
    pid_t pid = (pid_t)syscall(
        SYS_clone, CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        close(ends[0]);
        lib_on_interrupt(SIG_DFL);
        be_init(run, ends[1]);
    }
    int number = errno;
    close(ends[1]);
    ssize_t n = pid > 0 ? read(ends[0], err->msg, sizeof err->msg - 1) : 0;
    close(ends[0]);
    if (pid < 0)
        return err_set(err, ERR_UNAVAILABLE, "namespaces of its own: %s",
                       strerror(number));
    if (n > 0) {
        err->msg[n] = '\0';
        waitpid(pid, NULL, 0);
        return -1;
    }
    return pid;
}

static int outside(int (*run)(void), const char *why)
{
    snprintf(cell.why, sizeof cell.why, "%s", why);
    return run();
}

int cell_run(int (*run)(void))
{
    struct err err = {0};
    int status = 0;
    cell.lock = open("/var/lib", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (cell.lock >= 0 && flock(cell.lock, LOCK_EX | LOCK_NB) == 0)
        remove_cgroups(CGROUP "*"); /* of a cell whose first process was killed */
    if (cell.lock >= 0)
        flock(cell.lock, LOCK_SH); /* waits while another one removes the places */
    if (prepare(&err) || (cell.init = begin(run, &err)) < 0) {
        leave_no_trace();
        return outside(run, err.msg);
    }
    lib_on_interrupt(interrupted);
    while (waitpid(cell.init, &status, 0) < 0 && errno == EINTR)
        continue;
    lib_on_interrupt(SIG_IGN);
    leave_no_trace();
    if (cell.signal) {
        signal(cell.signal, SIG_DFL);
        raise(cell.signal);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
}
