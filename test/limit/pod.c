/* SPDX-License-Identifier: Apache-2.0 */
#include "limit/pod.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "lib/unit.h"

static void *map(const char *dir, const char *name, size_t n)
{
    cleanup_free char *path = temp_path(dir, name);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, (off_t)n), 0);
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(p, MAP_FAILED);
    close(fd);
    return p;
}

static void link_file(const char *target, const char *dir, const char *name)
{
    cleanup_free char *from = program_path(target), *to = temp_path(dir, name);
    cleanup_free char *whole = realpath(from, NULL);
    ck_assert_msg(whole && symlink(whole, to) == 0, "%s: not built", from);
}

#define OF_16_GIB "total=17179869184;free=17179869184;used=0;reserved=0"
#define CARD      "card uuid=" POD_UUID ";name=Tesla T4;bus=3b;" OF_16_GIB
#define CARD_2    "card uuid=" POD_UUID_2 ";name=Tesla T4;bus=3c;" OF_16_GIB "\n"

static void add_driver(struct pod *p)
{
    p->books = map(p->dir, "books", sizeof *p->books);
    p->books->capacity = 1ull << 40;
    p->books->watch = p->limit->limit;
    temp_write(p->dir, "nvml", "driver 535.129.03\ncuda 12020\n" CARD ";books=1048576\n");
}

void pod_begin(struct pod *p)
{
    *p = (struct pod){.dir = temp_dir()};
    temp_mkdir(p->dir, "limit");
    temp_mkdir(p->dir, "state");
    link_file("libgpushare-limit.so", p->dir, "libgpushare-limit.so");
    p->limit = map(p->dir, "limit/0", sizeof *p->limit);
    *p->limit = (struct limit_file){.magic = LIMIT_FILE_MAGIC,
                                    .version = LIMIT_VERSION,
                                    .limit = (uint64_t)POD_LIMIT_MIB << 20,
                                    .context = FAKE_CONTEXT,
                                    .uuid = POD_UUID};
    p->state = map(p->dir, "state/0", sizeof *p->state);
    p->state->magic = LIMIT_STATE_MAGIC;
    p->state->version = LIMIT_VERSION;
    add_driver(p);
}

void pod_add_card(struct pod *p)
{
    struct limit_file *limit = map(p->dir, "limit/1", sizeof *limit);
    struct limit_state *state = map(p->dir, "state/1", sizeof *state);
    *limit = *p->limit;
    limit->uuid[strlen("GPU-")] = '1';
    state->magic = LIMIT_STATE_MAGIC;
    state->version = LIMIT_VERSION;
    munmap(limit, sizeof *limit);
    munmap(state, sizeof *state);
}

void pod_begin_in(struct pod *p, const char *dir)
{
    *p = (struct pod){.dir = xstrdup(dir)};
    p->limit = map(dir, "limit/0", sizeof *p->limit);
    p->state = map(dir, "state/0", sizeof *p->state);
    add_driver(p);
}

static char *new_text(const char *a, const char *b, const char *c)
{
    struct buf text = {0};
    buf_printf(&text, "%s%s%s", a, b, c);
    return text.p;
}

#define CGROUP "cgroup/pod/c"

struct gpu *pod_open_nvml(const struct pod *p)
{
    struct gpu_sample sample = {0};
    struct err err = {0};
    cleanup_free char *library = program_path("fake-nvml/guest/libnvidia-ml.so.1");
    struct gpu *gpu = gpu_nvml_new(library, 0);
    cleanup_free char *script = temp_path(p->dir, "nvml");
    cleanup_free char *account = temp_path(p->dir, "limits");
    cleanup_free char *root = temp_path(p->dir, "cgroup");
    cleanup_free char *books = temp_path(p->dir, "books");
    setenv("FAKE_NVML", script, 1);
    setenv("FAKE_LIMITS", account, 1);
    setenv("FAKE_CGROUP_ROOT", root, 1);
    setenv("FAKE_CGROUP", root, 1);
    setenv("FAKE_CUDA_BOOKS", books, 1);
    ck_assert_done(gpu_sample(gpu, &sample, &err), err);
    gpu_sample_fini(&sample);
    return gpu;
}

void pod_close_nvml(struct gpu *gpu)
{
    static const char *const names[] = {"FAKE_NVML", "FAKE_LIMITS", "FAKE_CGROUP_ROOT",
                                        "FAKE_CGROUP", "FAKE_CUDA_BOOKS"};
    gpu_free(gpu);
    array_items(name, names)
        unsetenv(*name);
}

void pod_limit_by_driver(struct pod *p, const char *cgroup, int mib)
{
    const struct gpu_memory_limit limit = {0, (uint64_t)mib << 20, 0};
    struct err err = {0};
    if (!p->cgroup) {
        temp_mkdir(p->dir, "cgroup");
        temp_mkdir(p->dir, "cgroup/pod");
        temp_mkdir(p->dir, CGROUP);
        p->cgroup = CGROUP;
        temp_write(p->dir, "nvml",
                   "driver 615.32.01\ncuda 13040\n" CARD ";books=1048576\n" CARD_2);
    }
    struct gpu *gpu = pod_open_nvml(p);
    cleanup_free char *path = temp_path(p->dir, cgroup);
    static const char *const cards[] = {POD_UUID, POD_UUID_2};
    array_items(card, cards) {
        enum gpu_limit_answer answer =
            gpu_memory_limit_set(gpu, *card, path, &limit, &err);
        ck_assert_msg(answer == GPU_LIMIT_OK, "%s", err.msg);
    }
    pod_close_nvml(gpu);
}

struct gpu_memory_limit pod_driver_limit(const struct pod *p, const char *cgroup)
{
    struct gpu_memory_limit limit;
    struct err err = {0};
    struct gpu *gpu = pod_open_nvml(p);
    cleanup_free char *path = temp_path(p->dir, cgroup);
    enum gpu_limit_answer answer =
        gpu_memory_limit_get(gpu, POD_UUID, path, &limit, &err);
    pod_close_nvml(gpu);
    ck_assert_msg(answer == GPU_LIMIT_OK, "%s", err.msg);
    return limit;
}

void pod_end(struct pod *p)
{
    munmap(p->limit, sizeof *p->limit);
    munmap(p->state, sizeof *p->state);
    munmap(p->books, sizeof *p->books);
    temp_dir_remove(p->dir);
    free(p->dir);
}

bool pod_has_musl(void)
{
    cleanup_free char *path = program_path("test/limit/guest/musl/guest");
    return access(path, X_OK) == 0;
}

bool pod_wipes_on_fork(void)
{
    int status;
    char *p = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(p, MAP_FAILED);
    *p = 1;
    ck_assert_int_eq(madvise(p, 1, MADV_WIPEONFORK), 0);
    pid_t child = fork();
    if (child == 0)
        _exit(*p);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    munmap(p, 1);
    if (status)
        puts("measured: skipped: this kernel, or emulator, wipes no memory on fork");
    return status == 0;
}

/* `env` sets the variables, so that no program of the test itself is limited. unshare ends the
 * guest with itself. */
static void start(const struct pod *p, struct program *guest, const char *name,
                  const char *what, const char *way, const char *n, bool apart)
{
    bool musl = strncmp(name, "musl/", strlen("musl/")) == 0;
    cleanup_free char *relative = new_text("test/limit/guest/", name, "");
    cleanup_free char *program = program_path(relative);
    cleanup_free char *cuda = program_path(musl ? "fake-cuda/musl" : "fake-cuda");
    cleanup_free char *nvml = program_path("fake-nvml/guest");
    cleanup_free char *path = new_text("LD_LIBRARY_PATH=", cuda, "");
    cleanup_free char *paths = new_text(path, musl ? "" : ":", musl ? "" : nvml);
    cleanup_free char *preload = new_text("LD_PRELOAD=", p->dir, "/libgpushare-limit.so");
    cleanup_free char *books = new_text("FAKE_CUDA_BOOKS=", p->dir, "/books");
    cleanup_free char *cards = new_text("FAKE_NVML=", p->dir, "/nvml");
    cleanup_free char *account = new_text("FAKE_LIMITS=", p->dir, "/limits");
    cleanup_free char *root = new_text("FAKE_CGROUP_ROOT=", p->dir, "/cgroup");
    cleanup_free char *cgroup = new_text("FAKE_CGROUP=", p->dir, "/" CGROUP);
    if (p->cgroup) {
        program_start(guest, p->dir,
                      ARGV("env", account, root, cgroup, paths, books, cards, program,
                           what, way, n));
        return;
    }
    program_start(guest, p->dir,
                  apart
                      ? ARGV("unshare", "--pid", "--fork", "--kill-child", "env", preload,
                             paths, books, cards, program, what, way, n)
                      : ARGV("env", preload, paths, books, cards, program, what, way, n));
}

void pod_start(const struct pod *p, struct program *guest, const char *name,
               const char *what, const char *way, const char *n)
{
    start(p, guest, name, what, way, n, false);
}

void pod_start_apart(const struct pod *p, struct program *guest, const char *what,
                     const char *n)
{
    start(p, guest, "guest", what, "dlsym", n, true);
}

bool pod_can_start_apart(void)
{
    struct program p;
    program_start(&p, "/nonexistent", ARGV("unshare", "--pid", "--fork", "true"));
    bool can = program_wait(&p) == 0;
    program_fini(&p);
    return can;
}

void pod_run(const struct pod *p, const char *name, const char *what, const char *way,
             const char *n, int status)
{
    struct program guest;
    pod_start(p, &guest, name, what, way, n);
    int is = program_wait(&guest);
    ck_assert_msg(is == status, "%s %s %s %s: status %d, not %d: %s", name, what, way, n,
                  is, status, program_output(&guest));
    program_fini(&guest);
}
