/* SPDX-License-Identifier: Apache-2.0 */

/*
 * make test-gpu: libgpushare-limit.so with the real driver, on the first card of this machine. A
 * row for each check, as a table for docs/isolation.md. Without a card it is skipped, and says
 * so; so are PyTorch and MPS where they are not installed.
 *
 *     test-gpu-limit [LIBRARY]
 */

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "gpu/gpu.h"
#include "limit/state.h"

enum { LIMIT_MIB = 2048, HELD_MIB = 1200, OUT_OF_MEMORY = 2, WAIT_S = 60 };

struct run {
    char *build, *dir; /* of the programs; of the library and its files */
    const struct gpu_card *card;
    const char *library; /* of NVML; NULL: the usual one */
    unsigned passed, failed, unknown;
};

/* -- rows -- */

static void row(struct run *r, const char *what, const char *want, const char *is,
                bool good)
{
    printf("| %s | %s | %s%s |\n", what, want, is, good ? "" : " (DIFFERENT)");
    *(good ? &r->passed : &r->failed) += 1;
}

static void unknown(struct run *r, const char *what, const char *why)
{
    printf("| %s | | skipped: %s |\n", what, why);
    r->unknown++;
}

static const char *answer(int status)
{
    return status == 0               ? "allocated"
           : status == OUT_OF_MEMORY ? "out of memory"
                                     : "error";
}

static void check(struct run *r, const char *what, int status, int want)
{
    row(r, what, answer(want), answer(status), status == want);
}

/* -- the pod -- */

static bool write_file(const char *dir, const char *name, const void *bytes, size_t n)
{
    cleanup_free char *path = xasprintf("%s/%s", dir, name);
    FILE *f = fopen(path, "we");
    return f && fwrite(bytes, n, 1, f) == 1 && fclose(f) == 0 && chmod(path, 0666) == 0;
}

/* The folder that a container has at /usr/local/gpushare. */
static bool make_pod(struct run *r)
{
    struct limit_file limit = {.magic = LIMIT_FILE_MAGIC,
                               .version = LIMIT_VERSION,
                               .limit = (uint64_t)LIMIT_MIB << 20};
    cleanup_free struct limit_state *state = xcalloc(1, sizeof *state);
    state->magic = LIMIT_STATE_MAGIC;
    state->version = LIMIT_VERSION;
    snprintf(limit.uuid, sizeof limit.uuid, "%s", r->card->uuid);
    cleanup_free char *from = xasprintf("%s/libgpushare-limit.so", r->build);
    cleanup_free char *library = realpath(from, NULL);
    cleanup_free char *to = xasprintf("%s/libgpushare-limit.so", r->dir);
    cleanup_free char *limits = xasprintf("%s/limit", r->dir);
    cleanup_free char *states = xasprintf("%s/state", r->dir);
    return library && symlink(library, to) == 0 && mkdir(limits, 0755) == 0 &&
           mkdir(states, 0755) == 0 && write_file(limits, "0", &limit, sizeof limit) &&
           write_file(states, "0", state, sizeof *state);
}

static void remove_pod(const struct run *r)
{
    cleanup_free char *command = xasprintf("rm -rf '%s'", r->dir);
    if (system(command))
        fprintf(stderr, "test-gpu: %s stays\n", r->dir);
}

/* -- programs -- */

static int exit_status(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Runs a shell command with the variables of the container. */
static int run_shell(const struct run *r, const char *command, bool limited)
{
    cleanup_free char *line =
        xasprintf("CUDA_VISIBLE_DEVICES='%s' %s%s%s sh -c '%s'", r->card->uuid,
                  limited ? "LD_PRELOAD='" : "", limited ? r->dir : "",
                  limited ? "/libgpushare-limit.so'" : "", command);
    fflush(stdout);
    return exit_status(system(line));
}

static int more(const struct run *r, int mib, bool limited)
{
    cleanup_free char *command =
        xasprintf("%s/test/limit/guest/guest more dlsym %d >/dev/null", r->build, mib);
    return run_shell(r, command, limited);
}

/* Waits no longer than a minute: a process that hangs in the driver does not end. */
static void end(pid_t pid)
{
    if (pid <= 0)
        return;
    kill(pid, SIGKILL);
    for (int i = 0; i < WAIT_S * 100 && waitpid(pid, NULL, WNOHANG) == 0; i++)
        usleep(10000);
}

/* A program that holds memory until it is killed; -1: it could not have it. */
static pid_t hold(const struct run *r, int mib, const char *preload)
{
    cleanup_free char *program = xasprintf("%s/test/limit/guest/guest", r->build);
    cleanup_free char *amount = xasprintf("%d", mib);
    int out[2];
    char said[8] = "";
    if (pipe(out))
        return -1;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(out[1], STDOUT_FILENO);
        close(out[0]);
        setenv("CUDA_VISIBLE_DEVICES", r->card->uuid, 1);
        if (preload)
            setenv("LD_PRELOAD", preload, 1);
        execl(program, program, "hold", "dlsym", amount, (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    struct pollfd reply = {.fd = out[0], .events = POLLIN};
    bool held = poll(&reply, 1, WAIT_S * 1000) > 0 &&
                read(out[0], said, sizeof said - 1) > 0 && strncmp(said, "held", 4) == 0;
    close(out[0]);
    if (held)
        return pid;
    end(pid);
    return -1;
}

/* -- checks -- */

/* What the library counts for the process, of which `*context` for its contexts; 0: it has no
 * slot. */
static uint64_t counted(const struct run *r, pid_t pid, uint64_t *context)
{
    cleanup_free char *path = xasprintf("%s/state/0", r->dir);
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct limit_slot slot;
    for (int i = 0; i < LIMIT_SLOTS; i++) {
        off_t at = (off_t)(offsetof(struct limit_state, slots) + (size_t)i * sizeof slot);
        if (pread(fd, &slot, sizeof slot, at) != (ssize_t)sizeof slot)
            break;
        if (slot.pid == (uint32_t)pid) {
            *context = slot.context;
            return slot.used;
        }
    }
    return 0;
}

/* What NVML shows for the process, beside what it allocated. */
static void show_process(struct run *r, pid_t pid)
{
    cleanup_gpu_sample struct gpu_sample s = {0};
    struct gpu *g = gpu_nvml_new(r->library, 0);
    struct err err;
    int64_t bytes = -1;
    if (gpu_sample(g, &s, &err) == 0 && s.n_cards)
        for (size_t i = 0; i < s.cards[0].n_processes; i++)
            if (s.cards[0].processes[i].pid == pid)
                bytes = s.cards[0].processes[i].bytes;
    gpu_free(g);
    if (bytes < 0) {
        unknown(r, "NVML's memory of a process", "NVML does not list the process");
        return;
    }
    cleanup_free char *is =
        xasprintf("%lld MiB, of which %lld MiB are the context", (long long)(bytes >> 20),
                  (long long)(bytes >> 20) - HELD_MIB);
    cleanup_free char *want = xasprintf("at least %d MiB", HELD_MIB);
    row(r, "NVML's memory of a process", want, is, bytes >> 20 >= HELD_MIB);
    uint64_t context = 0, used = counted(r, pid, &context);
    cleanup_free char *count =
        xasprintf("%llu MiB, of which %llu MiB are the context",
                  (unsigned long long)used >> 20, (unsigned long long)context >> 20);
    row(r, "the same, as the library counts it", "NVML's within 64 MiB", count,
        used + (64 << 20) >= (uint64_t)bytes && used <= (uint64_t)bytes + (64 << 20));
}

static void check_processes(struct run *r)
{
    cleanup_free char *preload = xasprintf("%s/libgpushare-limit.so", r->dir);
    check(r, "2000 MiB, without the library", more(r, 2000, false), 0);
    check(r, "3000 MiB, without the library", more(r, 3000, false), 0);
    check(r, "2000 of 2048 MiB", more(r, 2000, true), 0);
    check(r, "2100 of 2048 MiB", more(r, 2100, true), OUT_OF_MEMORY);
    pid_t first = hold(r, HELD_MIB, preload);
    row(r, "1200 of 2048 MiB", "allocated", first > 0 ? "allocated" : "error", first > 0);
    check(r, "1200 MiB more, in another process", more(r, 1200, true), OUT_OF_MEMORY);
    check(r, "600 MiB more, in another process", more(r, 600, true), 0);
    check(r, "1200 MiB, in a process of a neighbor", more(r, 1200, false), 0);
    if (first > 0)
        show_process(r, first);
    end(first);
    check(r, "1200 MiB, after SIGKILL", more(r, 1200, true), 0);
}

static const char torch[] =
    "import sys, torch\n"
    "what, mib = sys.argv[1], int(sys.argv[2])\n"
    "if what == \"total\":\n"
    "    sys.exit(0 if torch.cuda.mem_get_info()[1] >> 20 == mib else 1)\n"
    "error = getattr(torch, \"OutOfMemoryError\", torch.cuda.OutOfMemoryError)\n"
    "try:\n"
    "    torch.empty(mib << 20, dtype=torch.uint8, device=\"cuda\")\n"
    "except error:\n"
    "    sys.exit(2)\n";

static int run_torch(const struct run *r, const char *what, int mib)
{
    cleanup_free char *command =
        xasprintf("python3 %s/torch-test.py %s %d", r->dir, what, mib);
    return run_shell(r, command, true);
}

static void check_torch(struct run *r)
{
    if (run_shell(r,
                  "python3 -c \"import torch; assert torch.cuda.is_available()\" "
                  "2>/dev/null",
                  false)) {
        unknown(r, "PyTorch", "there is no PyTorch that finds the card");
        return;
    }
    if (!write_file(r->dir, "torch-test.py", torch, sizeof torch - 1)) {
        row(r, "PyTorch", "a file", "cannot be written", false);
        return;
    }
    cleanup_free char *preload = xasprintf("%s/libgpushare-limit.so", r->dir);
    int total = run_torch(r, "total", LIMIT_MIB);
    row(r, "PyTorch: mem_get_info", "2048 MiB in total",
        total ? "another total" : "2048 MiB in total", total == 0);
    check(r, "PyTorch: 1800 of 2048 MiB", run_torch(r, "empty", 1800), 0);
    check(r, "PyTorch: 2100 of 2048 MiB", run_torch(r, "empty", 2100), OUT_OF_MEMORY);
    pid_t first = hold(r, HELD_MIB, preload);
    check(r, "PyTorch: 1200 MiB beside 1200 MiB of another process",
          run_torch(r, "empty", 1200), OUT_OF_MEMORY);
    end(first);
}

/* Two clients of one daemon, each with its own limit by MPS and without the library. */
static void check_mps(struct run *r)
{
    if (run_shell(r, "command -v nvidia-cuda-mps-control >/dev/null", false)) {
        unknown(r, "MPS", "nvidia-cuda-mps-control is not installed");
        return;
    }
    setenv("CUDA_MPS_PIPE_DIRECTORY", r->dir, 1);
    setenv("CUDA_MPS_LOG_DIRECTORY", r->dir, 1);
    if (run_shell(r, "nvidia-cuda-mps-control -d", false)) {
        unknown(r, "MPS", "the daemon does not start");
        return;
    }
    setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1024M", 1);
    pid_t first = hold(r, 800, NULL);
    row(r, "MPS: 800 of 1024 MiB", "allocated", first > 0 ? "allocated" : "error",
        first > 0);
    check(r, "MPS: 800 of 1024 MiB, another client", more(r, 800, false), 0);
    check(r, "MPS: 1100 of 1024 MiB, another client", more(r, 1100, false),
          OUT_OF_MEMORY);
    end(first);
    unsetenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    if (run_shell(r, "echo quit -t 10 | nvidia-cuda-mps-control >/dev/null", false))
        fprintf(stderr, "test-gpu: the MPS daemon in %s still runs\n", r->dir);
}

/* Functions of this machine's driver whose names promise memory and which the library does not
 * replace: what a reader compares with test/limit/test_symbols.c after each new driver. */
static void list_symbols(struct run *r)
{
    static const char names[] =
        "^cu[A-Z].*(Alloc|Create|Retain|Load|Import|Open|Map|Bind|"
        "Limit|Instantiate|Reserve|Restore)";
    struct link_map *driver = NULL;
    void *so = dlopen("libcuda.so.1", RTLD_LAZY);
    if (!so || dlinfo(so, RTLD_DI_LINKMAP, &driver)) {
        unknown(r, "functions that are not replaced", "libcuda.so.1 is not found");
        return;
    }
    cleanup_free char *command = xasprintf(
        "cd '%s' && names() { nm -D --defined-only \"$1\" | sed 's/.* //; s/@.*//' | "
        "grep -E '%s' | sort -u; } && names '%s' >driver && "
        "names libgpushare-limit.so >own && comm -23 driver own | tr '\\n' ' '",
        r->dir, names, driver->l_name);
    char text[16384] = "";
    FILE *f = popen(command, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (!f || pclose(f) || !n)
        unknown(r, "functions that are not replaced", "nm does not work");
    else
        printf("| functions that are not replaced | listed | %s|\n", text);
    dlclose(so);
}

static int run_all(struct run *r, const struct gpu_sample *s)
{
    printf("driver %s, %s\n\n| | expected | result |\n|---|---|---|\n", s->driver,
           r->card->model);
    check_processes(r);
    check_torch(r);
    check_mps(r);
    list_symbols(r);
    printf("\n%u passed, %u failed, %u skipped\n", r->passed, r->failed, r->unknown);
    return r->failed || !r->passed;
}

/* Of the folder of this program. */
static char *build_of(const char *self)
{
    const char *slash = strrchr(self, '/');
    cleanup_free char *dir = xmemdup0(self, slash ? (size_t)(slash - self) : 0);
    return realpath(slash ? dir : ".", NULL);
}

int main(int argc, char **argv)
{
    cleanup_gpu_sample struct gpu_sample s = {0};
    const char *tmp = getenv("TMPDIR");
    cleanup_free char *dir = xasprintf("%s/test-gpu.XXXXXX", tmp ? tmp : "/tmp");
    struct err err = {0};
    struct run r = {.build = build_of(argv[0]), .library = argc > 1 ? argv[1] : NULL};
    struct gpu *g = gpu_nvml_new(r.library, 0);
    int rc = gpu_sample(g, &s, &err);
    gpu_free(g);
    if (rc || !s.n_cards) {
        printf("test-gpu: skipped, because there is no card to test with: %s\n",
               rc ? err.msg : "NVML knows of none");
        free(r.build);
        return 0;
    }
    r.card = &s.cards[0];
    r.dir = mkdtemp(dir);
    if (!r.dir || !make_pod(&r)) {
        printf("test-gpu: cannot make the files of a pod in %s\n", dir);
        rc = 1;
    } else {
        rc = run_all(&r, &s);
    }
    if (r.dir)
        remove_pod(&r);
    free(r.build);
    return rc;
}
