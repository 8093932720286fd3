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

static void add_driver(struct pod *p)
{
    p->books = map(p->dir, "books", sizeof *p->books);
    p->books->capacity = 1ull << 40;
    p->books->watch = p->limit->limit;
    temp_write(
        p->dir, "nvml",
        "driver 535.129.03\ncuda 12020\ncard uuid=" POD_UUID
        ";name=Tesla T4;bus=3b;total=17179869184;free=17179869184;used=0;reserved=0;"
        "books=1048576\n");
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

static char *new_text(const char *a, const char *b, const char *c)
{
    struct buf text = {0};
    buf_printf(&text, "%s%s%s", a, b, c);
    return text.p;
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
