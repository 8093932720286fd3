/* SPDX-License-Identifier: Apache-2.0 */

/*
 * gpushare-card-check: prints one report about the driver and the cards of this machine, and what
 * libgpushare-limit.so does with them (docs/testing.md, "Evidence from a real card"). It is in the
 * image of the device plugin, which has no shell, and needs no CUDA toolkit.
 *
 * Each step is a process of its own with a time limit: a call into the driver can hang or crash.
 */

#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/opt.h"
#include "card-check/check.h"
#include "card-check/symbols.h"
#include "limit/state.h"

enum { MAX_LIBRARY = 512 << 20, MAX_OUTPUT = 1 << 20 };

/* -- the lines of the report -- */

static const char *const status_names[] = {"ok", "differs", "not present"};

void check_say(const struct check *k, enum status s, const char *fmt, ...)
{
    cleanup_buf struct buf text = {0}, line = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    buf_add_printable(&line, span_trim(buf_span(&text)));
    printf("%-12s %-10s %s\n", status_names[s], k->step, line.n ? line.p : "");
}

const char *check_answer(int status)
{
    return status == 0               ? "allocated"
           : status == OUT_OF_MEMORY ? "out of memory"
                                     : "error";
}

void check_say_answer(const struct check *k, const char *what, int status, int want)
{
    if (status == want)
        check_say(k, OK, "%s: %s", what, check_answer(status));
    else
        check_say(k, DIFFERS, "%s: %s (%d), expected %s", what, check_answer(status),
                  status, check_answer(want));
}

/* -- other programs -- */

/* A folder that stands in for a cgroup has the file once it is written. */
static void join_cgroup(const char *cgroup)
{
    cleanup_free char *path = xasprintf("%s/cgroup.procs", cgroup);
    cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (dprintf(fd, "%d\n", (int)getpid()) < 0)
        _exit(NOT_FOUND);
}

static void use_card(const struct check *k, bool limited)
{
    if (k->cgroup)
        join_cgroup(k->cgroup);
    cleanup_free char *preload = xasprintf("%s/" LIMIT, k->dir);
    if (k->card)
        setenv("CUDA_VISIBLE_DEVICES", k->card->uuid, 1);
    if (limited)
        setenv("LD_PRELOAD", preload, 1);
}

int check_run(const struct check *k, const char *const *argv, const char *input,
              bool limited, struct buf *out)
{
    cleanup_close int in = memfd_create("in", MFD_CLOEXEC);
    cleanup_close int said = memfd_create("out", MFD_CLOEXEC);
    int status = 0;
    if (in < 0 || said < 0 || write(in, input, strlen(input)) < 0 ||
        lseek(in, 0, SEEK_SET))
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(in, STDIN_FILENO);
        dup2(said, STDOUT_FILENO);
        dup2(said, STDERR_FILENO);
        use_card(k, limited);
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(NOT_FOUND);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    off_t size = lseek(said, 0, SEEK_END);
    size_t n = size > MAX_OUTPUT ? MAX_OUTPUT : size > 0 ? (size_t)size : 0;
    buf_reserve(out, n + 1);
    ssize_t got = pread(said, out->p, n, 0);
    out->n = got > 0 ? (size_t)got : 0;
    out->p[out->n] = '\0';
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int check_allocate(const struct check *k, int mib, bool limited)
{
    cleanup_free char *guest = xasprintf("%s/" GUEST, k->programs);
    cleanup_free char *amount = xasprintf("%d", mib);
    cleanup_buf struct buf out = {0};
    return check_run(k, (const char *const[]){guest, amount, NULL}, "", limited, &out);
}

pid_t check_hold(const struct check *k, int mib, bool limited)
{
    cleanup_free char *guest = xasprintf("%s/" GUEST, k->programs);
    cleanup_free char *amount = xasprintf("%d", mib);
    char said[8] = "";
    int out[2];
    if (pipe2(out, O_CLOEXEC))
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(out[1], STDOUT_FILENO);
        use_card(k, limited);
        execl(guest, guest, amount, "hold", (char *)NULL);
        _exit(NOT_FOUND);
    }
    close(out[1]);
    bool held = read(out[0], said, sizeof said - 1) > 0 && strncmp(said, "held", 4) == 0;
    close(out[0]);
    if (!held && pid > 0)
        waitpid(pid, NULL, 0);
    return held ? pid : -1;
}

void check_end(pid_t pid)
{
    if (pid > 0 && kill(pid, SIGKILL) == 0)
        waitpid(pid, NULL, 0);
}

/* -- cards, beside nvidia-smi -- */

/* Numbers may differ by `tolerance`; -1: it is a text. */
static void compare(const struct check *k, const char *card, const char *what,
                    const char *ours, struct span theirs, double tolerance)
{
    cleanup_free char *copy = xmemdup0(theirs.p ? theirs.p : "", theirs.n);
    char *rest;
    double mine = strtod(ours, NULL), value = strtod(copy, &rest);
    bool known =
        *ours && (tolerance < 0 ? theirs.n && !strstr(copy, "N/A") : rest != copy);
    bool same = tolerance < 0 ? span_eq_nocase(span_of(ours), theirs)
                              : value - mine <= tolerance && mine - value <= tolerance;
    check_say(k,
              !known ? NOT_PRESENT
              : same ? OK
                     : DIFFERS,
              "%s %s: NVML %s, nvidia-smi %s", card, what, ours, copy);
}

/* The columns that nvidia-smi is asked for, behind uuid, driver_version, name and pci.bus_id. */
static const struct {
    const char *column;
    enum gpu_metric metric;
    double unit, tolerance; /* how many of ours are one of theirs; in theirs */
} numbers[] = {
    {"memory.total", GPU_MEM_TOTAL, 1048576, 1},
    {"memory.reserved", GPU_MEM_RESERVED, 1048576, 1},
    {"memory.used", GPU_MEM_USED, 1048576, 64},
    {"memory.free", GPU_MEM_FREE, 1048576, 64},
    {"clocks.max.sm", GPU_CLOCK_SM_MAX, 1, 0},
    {"clocks.max.memory", GPU_CLOCK_MEM_MAX, 1, 0},
    {"pcie.link.gen.max", GPU_PCIE_GEN_MAX, 1, 0},
    {"pcie.link.width.max", GPU_PCIE_WIDTH_MAX, 1, 0},
    {"power.limit", GPU_POWER_LIMIT, 1000, 0.01},
    {"temperature.gpu", GPU_TEMPERATURE, 1, 5},
    {"utilization.gpu", GPU_UTILIZATION, 1, 100},
};

/* A line of nvidia-smi: the card with its UUID is in our sample, and its values are ours. */
static void compare_card(const struct check *k, struct span line)
{
    struct span uuid = span_trim(span_cut(&line, ','));
    const struct gpu_card *c = NULL;
    for (size_t i = 0; i < k->sample.n_cards; i++)
        if (span_eq(span_of(k->sample.cards[i].uuid), uuid))
            c = &k->sample.cards[i];
    compare(k, c ? c->uuid : "card", "uuid", c ? c->uuid : "none", uuid, -1);
    if (!c)
        return;
    compare(k, c->uuid, "driver", k->sample.driver, span_trim(span_cut(&line, ',')), -1);
    compare(k, c->uuid, "model", c->model, span_trim(span_cut(&line, ',')), -1);
    compare(k, c->uuid, "bus", c->bus_id, span_trim(span_cut(&line, ',')), -1);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        enum gpu_metric m = numbers[i].metric;
        cleanup_free char *ours =
            gpu_knows(c, m) ? xasprintf("%.10g", (double)c->value[m] / numbers[i].unit)
                            : xstrdup("");
        compare(k, c->uuid, gpu_metric_name(m), ours, span_trim(span_cut(&line, ',')),
                numbers[i].tolerance);
    }
}

/* Runs nvidia-smi. False: it is not there or failed, and the report says so. */
static bool run_smi(const struct check *k, const char *first, const char *second,
                    struct buf *out)
{
    int rc = check_run(k, (const char *const[]){k->config->smi, first, second, NULL}, "",
                       false, out);
    if (rc)
        check_say(k, rc == NOT_FOUND ? NOT_PRESENT : DIFFERS, "%s %s: exit status %d: %s",
                  k->config->smi, first, rc, out->p);
    return rc == 0;
}

static void check_cards(const struct check *k)
{
    cleanup_buf struct buf query = {0}, out = {0};
    size_t cards = 0, ours = 0;
    check_say(k, *k->sample.driver ? OK : NOT_PRESENT, "driver %s, CUDA %s",
              k->sample.driver, k->sample.cuda);
    buf_adds(&query, "--query-gpu=uuid,driver_version,name,pci.bus_id");
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        buf_printf(&query, ",%s", numbers[i].column);
    if (!run_smi(k, query.p, "--format=csv,noheader,nounits", &out))
        return;
    for (struct span rest = buf_span(&out); rest.n; cards++)
        compare_card(k, span_cut(&rest, '\n'));
    for (size_t i = 0; i < k->sample.n_cards; i++)
        ours += !*k->sample.cards[i].parent_uuid;
    check_say(k, ours == cards ? OK : DIFFERS, "cards: NVML %zu, nvidia-smi %zu", ours,
              cards);
}

/* -- every field of NVML that we read -- */

static void check_nvml(const struct check *k)
{
    for (size_t i = 0; i < k->sample.n_cards; i++) {
        const struct gpu_card *c = &k->sample.cards[i];
        check_say(k, c->state == GPU_OK || c->state == GPU_MIG ? OK : DIFFERS,
                  "%s state: %s %s", c->uuid, gpu_state_name(c->state), c->why);
        check_say(k, *c->model ? OK : NOT_PRESENT, "%s model: %s", c->uuid, c->model);
        check_say(k, *c->bus_id ? OK : NOT_PRESENT, "%s bus: %s", c->uuid, c->bus_id);
        for (int m = 0; m < GPU_N_METRICS; m++) {
            if (gpu_knows(c, (enum gpu_metric)m))
                check_say(k, OK, "%s %s: %lld", c->uuid,
                          gpu_metric_name((enum gpu_metric)m), (long long)c->value[m]);
            else
                check_say(k, NOT_PRESENT, "%s %s", c->uuid,
                          gpu_metric_name((enum gpu_metric)m));
        }
        check_say(k, c->links.n ? OK : NOT_PRESENT, "%s links: %.*s", c->uuid,
                  SPAN_ARG(c->links));
        check_say(k, c->events ? OK : NOT_PRESENT, "%s events of XIDs%s%s", c->uuid,
                  *c->unchecked ? ": " : "", c->unchecked);
        check_say(k, c->processes_known ? OK : NOT_PRESENT, "%s processes: %zu", c->uuid,
                  c->n_processes);
    }
}

static void check_mig(const struct check *k)
{
    cleanup_buf struct buf out = {0};
    bool any = false;
    for (size_t i = 0; i < k->sample.n_cards; i++)
        any |= *k->sample.cards[i].parent_uuid || k->sample.cards[i].state == GPU_MIG;
    if (!any)
        check_say(k, NOT_PRESENT, "no card is in MIG mode");
    else if (run_smi(k, "-L", NULL, &out)) {
        for (size_t i = 0; i < k->sample.n_cards; i++) {
            const struct gpu_card *c = &k->sample.cards[i];
            if (*c->parent_uuid)
                check_say(k, strstr(out.p, c->uuid) ? OK : DIFFERS,
                          "%s, %s of %s: in nvidia-smi -L", c->uuid, c->profile,
                          c->parent_uuid);
        }
    }
}

/* The first word of the text, which is cut off. */
static struct span cut_word(struct span *rest)
{
    size_t n = 0, space = 0;
    while (space < rest->n && strchr(" \t\r", rest->p[space]))
        space++;
    while (space + n < rest->n && !strchr(" \t\r", rest->p[space + n]))
        n++;
    struct span word = {rest->p + space, n};
    *rest = (struct span){word.p + n, rest->n - space - n};
    return word;
}

/* What connects each two cards, as in the Scv. Rows of network cards follow those of the cards;
 * instances of MIG have none, and follow the cards in the sample. */
static void check_topology(const struct check *k)
{
    const struct gpu_card *cards = k->sample.cards;
    cleanup_buf struct buf out = {0};
    size_t n = 0, n_cards = 0;
    while (n_cards < k->sample.n_cards && !*cards[n_cards].parent_uuid)
        n_cards++;
    if (n_cards < 2) {
        check_say(k, NOT_PRESENT, "one card has no links");
        return;
    }
    if (!run_smi(k, "topo", "-m", &out))
        return;
    for (struct span rest = buf_span(&out); rest.n && n < n_cards;) {
        struct span line = span_cut(&rest, '\n'), name = cut_word(&line);
        cleanup_buf struct buf row = {0};
        cleanup_free char *wanted = xasprintf("GPU%zu", n);
        struct span first = line;
        if (!span_eq(name, span_of(wanted)) || span_starts(cut_word(&first), SPAN("GPU")))
            continue;
        for (size_t i = 0; i < n_cards; i++) {
            buf_adds(&row, i ? " " : "");
            buf_add_span(&row, cut_word(&line));
        }
        cleanup_free char *ours =
            xmemdup0(cards[n].links.p ? cards[n].links.p : "", cards[n].links.n);
        compare(k, cards[n++].uuid, "links", ours, buf_span(&row), -1);
    }
    for (; n < n_cards; n++)
        compare(k, cards[n].uuid, "links", "", SPAN(""), -1);
}

/* -- what the container has -- */

static char *path_of(const struct check *k, const char *name)
{
    return xasprintf("%s/%s", k->config->root, name);
}

static void say_file(const struct check *k, const char *name)
{
    cleanup_free char *path = path_of(k, name);
    check_say(k, access(path, F_OK) ? DIFFERS : OK, "/%s%s", name,
              access(path, F_OK) ? " is missing" : "");
}

static void check_container(const struct check *k)
{
    static const char *const variables[] = {"NVIDIA_VISIBLE_DEVICES",
                                            "NVIDIA_DRIVER_CAPABILITIES"};
    static const char *const libraries[] = {"libnvidia-ml.so.1", "libcuda.so.1"};
    cleanup_free char *version = path_of(k, "proc/driver/nvidia/version");
    cleanup_free char *gpus = path_of(k, "proc/driver/nvidia/gpus");
    cleanup_free char *mounts = path_of(k, "proc/self/mounts");
    cleanup_buf struct buf text = {0}, mounted = {0};
    struct err err = {0};
    size_t cards = 0, listed = 0;
    for (size_t i = 0; i < ARRAY_LEN(variables); i++) {
        const char *value = getenv(variables[i]);
        check_say(k, value ? OK : NOT_PRESENT, "%s=%s", variables[i], value ? value : "");
    }
    say_file(k, "dev/nvidiactl");
    say_file(k, "dev/nvidia-uvm");
    for (size_t i = 0; i < k->sample.n_cards; i++) {
        const struct gpu_card *c = &k->sample.cards[i];
        cleanup_free char *device =
            xasprintf("dev/nvidia%lld", (long long)gpu_value(c, GPU_MINOR, -1));
        cards += !*c->parent_uuid;
        if (!*c->parent_uuid && gpu_knows(c, GPU_MINOR))
            say_file(k, device);
    }
    if (file_read(version, MAX_OUTPUT, &text, &err))
        check_say(k, NOT_PRESENT, "/proc/driver/nvidia/version");
    else
        check_say(k, *k->sample.driver && strstr(text.p, k->sample.driver) ? OK : DIFFERS,
                  "/proc/driver/nvidia/version: %.*s",
                  SPAN_ARG(span_cut(&(struct span){text.p, text.n}, '\n')));
    DIR *d = opendir(gpus);
    for (struct dirent *e; d && (e = readdir(d));)
        listed += *e->d_name != '.';
    check_say(k,
              !d                ? NOT_PRESENT
              : listed == cards ? OK
                                : DIFFERS,
              "/proc/driver/nvidia/gpus: %zu, NVML %zu", listed, cards);
    if (d)
        closedir(d);
    for (size_t i = 0; i < ARRAY_LEN(libraries); i++) {
        struct link_map *map = NULL;
        void *so = dlopen(libraries[i], RTLD_LAZY);
        bool is = so && dlinfo(so, RTLD_DI_LINKMAP, &map) == 0;
        check_say(k, is ? OK : NOT_PRESENT, "%s: %s", libraries[i],
                  is ? map->l_name : dlerror());
    }
    if (file_read(mounts, MAX_OUTPUT, &mounted, &err) == 0)
        for (struct span rest = buf_span(&mounted); rest.n;) {
            struct span line = span_cut(&rest, '\n');
            cut_word(&line);
            struct span at = cut_word(&line);
            if (memmem(at.p, at.n, "nvidia", 6) || memmem(at.p, at.n, "libcuda", 7))
                check_say(k, OK, "mounted: %.*s", SPAN_ARG(at));
        }
}

/* -- functions of the driver -- */

/* The defined symbols of an ELF file: "\nNAME\nNAME\n". False: it has no table of them. */
static bool read_exports(const char *path, struct buf *names)
{
    cleanup_buf struct buf file = {0};
    struct err err = {0};
    Elf64_Ehdr head;
    Elf64_Shdr table, text;
    if (file_read(path, MAX_LIBRARY, &file, &err) || file.n < sizeof head)
        return false;
    memcpy(&head, file.p, sizeof head);
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) || head.e_ident[EI_CLASS] != ELFCLASS64 ||
        head.e_shoff > file.n || (file.n - head.e_shoff) / sizeof table < head.e_shnum)
        return false;
    for (size_t i = 0; i < head.e_shnum; i++) {
        memcpy(&table, file.p + head.e_shoff + i * sizeof table, sizeof table);
        if (table.sh_type != SHT_DYNSYM || table.sh_link >= head.e_shnum)
            continue;
        memcpy(&text, file.p + head.e_shoff + table.sh_link * sizeof text, sizeof text);
        if (table.sh_offset > file.n || table.sh_size > file.n - table.sh_offset ||
            text.sh_offset > file.n || text.sh_size > file.n - text.sh_offset)
            return false;
        buf_addc(names, '\n');
        for (size_t n = 0; n < table.sh_size / sizeof(Elf64_Sym); n++) {
            Elf64_Sym symbol;
            memcpy(&symbol, file.p + table.sh_offset + n * sizeof symbol, sizeof symbol);
            if (symbol.st_shndx == SHN_UNDEF || symbol.st_name >= text.sh_size)
                continue;
            const char *name = file.p + text.sh_offset + symbol.st_name;
            buf_printf(names, "%.*s\n", (int)strnlen(name, text.sh_size - symbol.st_name),
                       name);
        }
    }
    return names->n > 1;
}

/* Whether the name promises memory of the card. */
static bool allocates(const char *name)
{
    static const char *const words[] = {
        "Alloc",           "MemCreate", "ArrayCreate", "PoolCreate",
        "MulticastCreate", "CtxCreate", "CtxRetain",   "ModuleLoad",
        "LibraryLoad",     "SetLimit",  "MemImport",   "PoolImport",
        "ExternalMemory",  "OpenMem",   "Instantiate", "ProcessRestore"};
    bool is = false;
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        is |= strstr(name, words[i]) != NULL;
    return is && strncmp(name, "cu", 2) == 0 && !strstr(name, "Get");
}

/* Whether symbols.h has the reason why the library need not replace it. */
static bool has_reason(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(limit_symbols); i++)
        if (limit_symbols[i].reason && strcmp(limit_symbols[i].symbol, name) == 0)
            return true;
    return false;
}

static void check_symbols(const struct check *k)
{
    cleanup_free char *library = xasprintf("%s/" LIMIT, k->programs);
    cleanup_buf struct buf driver = {0}, own = {0};
    struct link_map *map = NULL;
    size_t replaced = 0, harmless = 0;
    void *so = dlopen("libcuda.so.1", RTLD_LAZY);
    if (!so || dlinfo(so, RTLD_DI_LINKMAP, &map)) {
        check_say(k, NOT_PRESENT, "libcuda.so.1: %s", dlerror());
        return;
    }
    if (!read_exports(map->l_name, &driver) || !read_exports(library, &own)) {
        check_say(k, DIFFERS, "%s or %s has no table of symbols", map->l_name, library);
        return;
    }
    for (struct span rest = buf_span(&driver); rest.n;) {
        struct span line = span_cut(&rest, '\n');
        cleanup_free char *name = xmemdup0(line.p, line.n);
        cleanup_free char *wanted = xasprintf("\n%s\n", name);
        if (!allocates(name))
            continue;
        if (strstr(own.p, wanted))
            replaced++;
        else if (has_reason(name))
            harmless++;
        else
            check_say(k, DIFFERS, "%s allocates, and " LIMIT " does not replace it",
                      name);
    }
    check_say(k, replaced ? OK : DIFFERS,
              "functions of %s that allocate: %zu are replaced, %zu need not be",
              map->l_name, replaced, harmless);
}

/* -- the limit -- */

static bool write_at(const char *dir, const char *name, const void *bytes, size_t n)
{
    cleanup_free char *path = xasprintf("%s/%s", dir, name);
    struct err err;
    return file_write(path, (struct span){bytes, n}, &err) == 0 && chmod(path, 0666) == 0;
}

/* The folder that a container has at /usr/local/gpushare. False: the report says why not. */
static bool make_pod(const struct check *k)
{
    struct limit_file limit = {.magic = LIMIT_FILE_MAGIC,
                               .version = LIMIT_VERSION,
                               .limit = (uint64_t)LIMIT_MIB << 20};
    cleanup_free struct limit_state *state = xcalloc(1, sizeof *state);
    state->magic = LIMIT_STATE_MAGIC;
    state->version = LIMIT_VERSION;
    cleanup_free char *from = xasprintf("%s/" LIMIT, k->programs);
    cleanup_free char *to = xasprintf("%s/" LIMIT, k->dir);
    cleanup_free char *limits = xasprintf("%s/limit", k->dir);
    cleanup_free char *states = xasprintf("%s/state", k->dir);
    if (!k->card) {
        check_say(k, NOT_PRESENT, "no card is healthy");
        return false;
    }
    snprintf(limit.uuid, sizeof limit.uuid, "%s", k->card->uuid);
    if (access(from, F_OK) == 0 && symlink(from, to) == 0 && mkdir(limits, 0755) == 0 &&
        mkdir(states, 0755) == 0 && write_at(limits, "0", &limit, sizeof limit) &&
        write_at(states, "0", state, sizeof *state))
        return true;
    check_say(k, DIFFERS, "cannot write the files of a pod to %s, or there is no %s",
              k->dir, from);
    return false;
}

/* What the library counts for the process, of which `*context` for its contexts; 0: it has no
 * slot. */
static uint64_t counted(const struct check *k, pid_t pid, uint64_t *context)
{
    cleanup_free char *path = xasprintf("%s/state/0", k->dir);
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

/* What NVML shows for the process, beside what it allocated: the size of its context. */
static void check_process(const struct check *k, pid_t pid)
{
    cleanup_gpu_sample struct gpu_sample s = {0};
    struct gpu *g = gpu_nvml_new(k->config->library, 0);
    struct err err;
    long long bytes = -1;
    uint64_t context = 0, used = counted(k, pid, &context);
    if (gpu_sample(g, &s, &err) == 0)
        for (size_t c = 0; c < s.n_cards; c++)
            for (size_t i = 0; i < s.cards[c].n_processes; i++)
                if (s.cards[c].processes[i].pid == pid &&
                    strcmp(s.cards[c].uuid, k->card->uuid) == 0)
                    bytes = s.cards[c].processes[i].bytes;
    gpu_free(g);
    if (bytes < 0) {
        check_say(k, NOT_PRESENT, "context: NVML does not list process %lld (hostPID)",
                  (long long)pid);
        return;
    }
    check_say(k, bytes >> 20 >= HELD_MIB ? OK : DIFFERS,
              "context: NVML %lld MiB, of which %lld MiB are the context", bytes >> 20,
              (bytes >> 20) - HELD_MIB);
    check_say(k,
              used + (64 << 20) >= (uint64_t)bytes && used <= (uint64_t)bytes + (64 << 20)
                  ? OK
                  : DIFFERS,
              "context: " LIMIT " counts %llu MiB, of which %llu MiB are the context",
              (unsigned long long)used >> 20, (unsigned long long)context >> 20);
}

static void check_limit(const struct check *k)
{
    if (!make_pod(k))
        return;
    check_say_answer(k, "3000 MiB, without the library", check_allocate(k, 3000, false),
                     0);
    check_say_answer(k, "2000 of 2048 MiB", check_allocate(k, 2000, true), 0);
    check_say_answer(k, "2100 of 2048 MiB", check_allocate(k, 2100, true), OUT_OF_MEMORY);
    pid_t first = check_hold(k, HELD_MIB, true);
    check_say_answer(k, "1200 of 2048 MiB", first > 0 ? 0 : -1, 0);
    check_say_answer(k, "1200 MiB more, in another process",
                     check_allocate(k, 1200, true), OUT_OF_MEMORY);
    check_say_answer(k, "600 MiB more, in another process", check_allocate(k, 600, true),
                     0);
    check_say_answer(k, "1200 MiB, in a process of a neighbor",
                     check_allocate(k, 1200, false), 0);
    if (first > 0)
        check_process(k, first);
    check_end(first);
    check_say_answer(k, "1200 MiB, after SIGKILL", check_allocate(k, 1200, true), 0);
}

/* Runs a script for two sizes: it prints the size of the card in MiB and a status for each. */
static void check_script(const struct check *k, const char *script)
{
    cleanup_buf struct buf out = {0}, beside = {0};
    int total = 0, fits = -1, refused = -1, other = -1;
    if (!make_pod(k))
        return;
    int rc =
        check_run(k, (const char *const[]){"python3", "-c", script, "1800", "2100", NULL},
                  "", true, &out);
    if (rc == NOT_FOUND || rc == 3) {
        check_say(k, NOT_PRESENT, "%s", rc == 3 ? out.p : "there is no python3");
        return;
    }
    if (sscanf(out.p, "%d %d %d", &total, &fits, &refused) != 3) {
        check_say(k, DIFFERS, "exit status %d: %s", rc, out.p);
        return;
    }
    check_say(k, total == LIMIT_MIB ? OK : DIFFERS,
              "size of the card: %d MiB, expected %d", total, LIMIT_MIB);
    check_say_answer(k, "1800 of 2048 MiB", fits, 0);
    check_say_answer(k, "2100 of 2048 MiB", refused, OUT_OF_MEMORY);
    pid_t first = check_hold(k, HELD_MIB, true);
    check_run(k, (const char *const[]){"python3", "-c", script, "1200", NULL}, "", true,
              &beside);
    sscanf(beside.p, "%d %d", &total, &other);
    check_say_answer(k, "1200 MiB beside 1200 MiB of another process", other,
                     OUT_OF_MEMORY);
    check_end(first);
}

static void check_python(const struct check *k)
{
    check_script(
        k, "import sys\n"
           "try:\n"
           "    import ctypes\n"
           "except ImportError:\n"
           "    print('this python3 has no ctypes')\n"
           "    sys.exit(3)\n"
           "c = ctypes.CDLL('libcuda.so.1')\n"
           "x, p = ctypes.c_void_p(), ctypes.c_uint64()\n"
           "free, total = ctypes.c_size_t(), ctypes.c_size_t()\n"
           "c.cuInit(0)\n"
           "c.cuDevicePrimaryCtxRetain(ctypes.byref(x), 0)\n"
           "c.cuCtxSetCurrent(x)\n"
           "c.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))\n"
           "print(total.value >> 20)\n"
           "for mib in sys.argv[1:]:\n"
           "    rc = c.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(int(mib) << 20))\n"
           "    print(rc)\n"
           "    rc or c.cuMemFree_v2(p)\n");
}

static void check_torch(const struct check *k)
{
    check_script(
        k, "import sys\n"
           "try:\n"
           "    import torch\n"
           "    assert torch.cuda.is_available()\n"
           "except (ImportError, AssertionError):\n"
           "    print('there is no PyTorch that finds the card')\n"
           "    sys.exit(3)\n"
           "error = getattr(torch, 'OutOfMemoryError', torch.cuda.OutOfMemoryError)\n"
           "print(torch.cuda.mem_get_info()[1] >> 20)\n"
           "for mib in sys.argv[1:]:\n"
           "    try:\n"
           "        torch.empty(int(mib) << 20, dtype=torch.uint8, device='cuda')\n"
           "        print(0)\n"
           "    except error:\n"
           "        print(2)\n"
           "    torch.cuda.empty_cache()\n");
}

bool check_start_mps(const struct check *k)
{
    cleanup_buf struct buf out = {0};
    setenv("CUDA_MPS_PIPE_DIRECTORY", k->dir, 1);
    setenv("CUDA_MPS_LOG_DIRECTORY", k->dir, 1);
    int rc = check_run(k, (const char *const[]){"nvidia-cuda-mps-control", "-d", NULL},
                       "", false, &out);
    if (rc)
        check_say(k, NOT_PRESENT, "nvidia-cuda-mps-control -d: exit status %d: %s", rc,
                  out.p);
    return rc == 0;
}

void check_end_mps(const struct check *k)
{
    cleanup_buf struct buf quit = {0};
    if (check_run(k, (const char *const[]){"nvidia-cuda-mps-control", NULL},
                  "quit -t 10\n", false, &quit))
        check_say(k, DIFFERS, "the daemon does not end: %s", quit.p);
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    unsetenv("CUDA_MPS_LOG_DIRECTORY");
}

/* Two clients of one daemon, each with its own limit by MPS and without the library. */
static void check_mps(const struct check *k)
{
    if (!make_pod(k) || !check_start_mps(k))
        return;
    setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1024M", 1);
    pid_t first = check_hold(k, 800, false);
    check_say_answer(k, "800 of 1024 MiB", first > 0 ? 0 : -1, 0);
    check_say_answer(k, "800 of 1024 MiB, another client", check_allocate(k, 800, false),
                     0);
    check_say_answer(k, "1100 of 1024 MiB, another client",
                     check_allocate(k, 1100, false), OUT_OF_MEMORY);
    check_end(first);
    unsetenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    check_end_mps(k);
}

/* -- the report -- */

static const struct step {
    const char *name;
    void (*check)(const struct check *k);
    bool needs_card;
} steps[] = {
    {"cards", check_cards, true},
    {"nvml", check_nvml, true},
    {"mig", check_mig, true},
    {"topology", check_topology, true},
    {"container", check_container, true},
    {"symbols", check_symbols, false},
    {"limit", check_limit, true},
    {"python", check_python, true},
    {"torch", check_torch, true},
    {"mps", check_mps, true},
    {"driver-limit", check_driver_limit, true},
};

/* In the process of the step. */
static void run_step(struct check *k, const struct step *step)
{
    if (!step->needs_card) {
        step->check(k);
        return;
    }
    struct err err = {0};
    struct gpu *g = gpu_nvml_new(k->config->library, 0);
    int rc = gpu_sample(g, &k->sample, &err);
    gpu_free(g);
    for (size_t i = k->sample.n_cards; i-- > 0;)
        if (k->sample.cards[i].state == GPU_OK)
            k->card = &k->sample.cards[i];
    if (rc)
        check_say(k, err.code == ERR_NOT_FOUND ? NOT_PRESENT : DIFFERS,
                  "no card to check: %s", err.msg);
    else if (!k->sample.n_cards)
        check_say(k, NOT_PRESENT, "no card to check: NVML knows of none");
    else
        step->check(k);
}

/* Counts the whole lines of the text. */
static void count_lines(struct span text, size_t *counts)
{
    while (text.n) {
        struct span line = span_cut(&text, '\n');
        for (int s = 0; s < N_STATUSES; s++)
            counts[s] += span_starts(line, span_of(status_names[s]));
    }
}

static void report_step(struct check *k, const struct step *step, size_t *counts)
{
    cleanup_buf struct buf said = {0};
    int64_t until = clock_mono_ms() + k->config->timeout_ms, left;
    char part[4096];
    int out[2], status = 0;
    ssize_t n = -1;
    k->step = step->name;
    fflush(stdout);
    if (pipe2(out, O_CLOEXEC))
        out[0] = out[1] = -1;
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        dup2(out[1], STDOUT_FILENO);
        setvbuf(stdout, NULL, _IOLBF, 0);
        run_step(k, step);
        _exit(fflush(stdout) ? 1 : 0); /* no exit handlers of the driver */
    }
    if (pid > 0)
        setpgid(pid, pid);
    close(out[1]);
    struct pollfd reply = {.fd = out[0], .events = POLLIN};
    while ((left = until - clock_mono_ms()) > 0) {
        int ready = poll(&reply, 1, (int)left);
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0 || (n = read(out[0], part, sizeof part)) <= 0)
            break;
        buf_add(&said, part, (size_t)n);
        fwrite(part, (size_t)n, 1, stdout);
    }
    close(out[0]);
    count_lines(buf_span(&said), counts);
    if (said.n && said.p[said.n - 1] != '\n')
        putchar('\n');
    /* The step and what it left behind. A process that hangs in the driver does not end, and is
     * not waited for. */
    if (pid > 0)
        kill(-pid, SIGKILL);
    if (n != 0 || pid < 0) {
        check_say(k, DIFFERS, "no answer in %lld ms; the rest of the step is missing",
                  (long long)k->config->timeout_ms);
        counts[DIFFERS]++;
    } else if (waitpid(pid, &status, 0) < 0 || status) {
        check_say(k, DIFFERS, "the step ended with status %#x: %s", (unsigned)status,
                  WIFSIGNALED(status) ? strsignal(WTERMSIG(status))
                                      : "its report is cut off");
        counts[DIFFERS]++;
    }
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

/* Copies the three files, for a container of another image. */
static int copy_to(const char *from, const char *to, struct err *err)
{
    static const char *const names[] = {"gpushare-card-check", GUEST, LIMIT};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        cleanup_free char *source = xasprintf("%s/%s", from, names[i]);
        cleanup_free char *target = xasprintf("%s/%s", to, names[i]);
        cleanup_buf struct buf bytes = {0};
        if (file_read(source, MAX_LIBRARY, &bytes, err) ||
            file_write(target, buf_span(&bytes), err))
            return -1;
        if (chmod(target, 0755))
            return err_set(err, ERR_UNAVAILABLE, "%s: %s", target, strerror(errno));
    }
    return 0;
}

static bool is_chosen(const struct config *c, const char *step)
{
    for (size_t i = 0; i < c->steps.n; i++)
        if (strcmp(c->steps.items[i], step) == 0)
            return true;
    return !c->steps.n;
}

static int report(const struct config *c, const char *programs)
{
    const char *tmp = getenv("TMPDIR");
    cleanup_free char *dir = xasprintf("%s/card-check.XXXXXX", tmp ? tmp : "/tmp");
    size_t counts[N_STATUSES] = {0};
    char now[32];
    time_t seconds = time(NULL);
    struct utsname host;
    if (!mkdtemp(dir) || uname(&host)) {
        fprintf(stderr, "gpushare-card-check: %s: %s\n", dir, strerror(errno));
        return 1;
    }
    strftime(now, sizeof now, "%FT%TZ", gmtime(&seconds));
    printf("gpushare-card-check " GPUSHARE_VERSION ", report 1, %s, Linux %s %s\n", now,
           host.release, host.machine);
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        cleanup_free char *own = xasprintf("%s/%s", dir, steps[i].name);
        struct check k = {.config = c, .programs = programs, .dir = own};
        if (is_chosen(c, steps[i].name) && mkdir(own, 0755) == 0)
            report_step(&k, &steps[i], counts);
    }
    printf("%zu ok, %zu differ, %zu not present\n", counts[OK], counts[DIFFERS],
           counts[NOT_PRESENT]);
    nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return fflush(stdout) || counts[DIFFERS] ? 1 : 0;
}

#define FIELD(f) offsetof(struct config, f)
static const struct opt table[] = {
    {.name = "nvml-library",
     .arg = "FILE",
     .type = OPT_STRING,
     .offset = FIELD(library),
     .help = "The NVML library; default: libnvidia-ml.so.1."},
    {.name = "nvidia-smi",
     .arg = "FILE",
     .init = "nvidia-smi",
     .type = OPT_STRING,
     .offset = FIELD(smi),
     .help = "The nvidia-smi program that NVML is compared with."},
    {.name = "root",
     .arg = "DIR",
     .init = "",
     .type = OPT_STRING,
     .offset = FIELD(root),
     .help = "The folder whose /dev and /proc the step `container` reads."},
    {.name = "cgroup-root",
     .arg = "DIR",
     .init = "/sys/fs/cgroup",
     .type = OPT_STRING,
     .offset = FIELD(cgroup_root),
     .help = "The mount of cgroup2 where the step `driver-limit` makes a cgroup."},
    {.name = "step-timeout",
     .arg = "DURATION",
     .init = "55s",
     .type = OPT_DURATION,
     .offset = FIELD(timeout_ms),
     .min = 100,
     .max = 600000,
     .help = "The time limit of each step; without arguments, every step runs."},
    {.name = "copy-to",
     .arg = "DIR",
     .type = OPT_STRING,
     .offset = FIELD(copy_to),
     .help = "Only copy this program and its files to the folder DIR."},
    {.name = NULL}};
static const struct opt_program program = {
    .name = "gpushare-card-check",
    .summary = "reports what this machine's NVIDIA driver and cards answer",
    .version = GPUSHARE_VERSION,
    .table = table,
    .rest = "[cards|nvml|mig|topology|container|symbols|limit|python|torch|mps|"
            "driver-limit]...",
    .rest_at = FIELD(steps)};

int main(int argc, char **argv)
{
    char self[PATH_MAX] = "";
    struct config c = {0};
    struct err err = {0};
    int rc = 0;
    enum opt_result r = opt_load(&program, &c, argc, argv, environ, NULL, stdout, &err);
    for (size_t i = 0; r == OPT_RUN && i < c.steps.n; i++) {
        bool known = false;
        for (size_t n = 0; n < ARRAY_LEN(steps); n++)
            known |= strcmp(steps[n].name, c.steps.items[i]) == 0;
        if (!known) {
            r = OPT_FAILED;
            err_set(&err, ERR_INVALID, "there is no step %s", c.steps.items[i]);
        }
    }
    if (readlink("/proc/self/exe", self, sizeof self - 1) > 0)
        *strrchr(self, '/') = '\0';
    if (r == OPT_FAILED)
        rc = 2;
    else if (r == OPT_RUN && c.copy_to)
        rc = copy_to(self, c.copy_to, &err) ? 1 : 0;
    else if (r == OPT_RUN)
        rc = report(&c, self);
    if (*err.msg)
        fprintf(stderr, "gpushare-card-check: %s\n", err.msg);
    opt_free(&program, &c);
    return rc;
}
