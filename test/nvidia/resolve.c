/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the real libcuda.so.1 answers, without a card, for `make nvidia`:
 *
 *     resolve pod DIR           writes the files of a pod with a limit, beside DIR/libgpushare-limit.so
 *     resolve since LIBCUDA NAMES LIST   for each line "SYMBOL SINCE" of LIST, that cuGetProcAddress
 *                               gives SYMBOL from this version on and not before
 *     resolve unknown LIBCUDA NAMES      what it answers where there is no such function
 *     resolve ask LIBCUDA NAMES asks cuGetProcAddress and cuGetProcAddress_v2 for every name of
 *                               the file NAMES (lines "ADDRESS NAME" of LIBCUDA's table, in hex),
 *                               with every version and flag
 *
 * `ask` prints each answer: the return code, the status, and of the function its offset in LIBCUDA,
 * also where libgpushare-limit.so answers with its function of the same name. So the output is the
 * same with and without the library. The last line says how many answers were the library's, to
 * standard error. It exits with 1 if, under a limit (`limited` as last argument), an answer was the
 * driver's though the library exports the name, or if a `since` is wrong.
 */

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "limit/state.h"

enum { NAMES = 4096, UNTOUCHED = 0x5a };

static struct function {
    size_t offset;
    char name[96];
} functions[NAMES];
static size_t n_functions, ours, driver_but_ours, questions;
static struct link_map *cuda;
static bool limited;

static void write_file(const char *dir, const char *name, const void *bytes, size_t n)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n || close(fd)) {
        perror(path);
        exit(2);
    }
}

static int make_pod(const char *dir)
{
    static struct limit_file limit = {
        .magic = LIMIT_FILE_MAGIC, .version = LIMIT_VERSION, .limit = 1ull << 30};
    static struct limit_state state = {.magic = LIMIT_STATE_MAGIC,
                                       .version = LIMIT_VERSION};
    char path[4096];
    snprintf(path, sizeof path, "%s/limit", dir);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/state", dir);
    mkdir(path, 0755);
    write_file(dir, "limit/0", &limit, sizeof limit);
    write_file(dir, "state/0", &state, sizeof state);
    return 0;
}

static bool is_ours(const Dl_info *info)
{
    return info->dli_fname && strstr(info->dli_fname, "libgpushare-limit.so");
}

/* Whether the library, which is preloaded, exports the name. */
static bool exports(const char *name)
{
    static void *library;
    Dl_info info;
    if (!library)
        library = dlopen(getenv("LD_PRELOAD"), RTLD_LAZY | RTLD_NOLOAD);
    void *p = library ? dlsym(library, name) : NULL;
    return p && dladdr(p, &info) && is_ours(&info);
}

/* The offset in libcuda of the function, or of that with the name of the library's function. */
static size_t offset_of(void *function)
{
    Dl_info info;
    size_t offset = (size_t)function - cuda->l_addr;
    bool is_known = dladdr(function, &info) != 0;
    if (is_known && is_ours(&info)) {
        ours++;
        for (size_t i = 0; info.dli_sname && i < n_functions; i++)
            if (strcmp(functions[i].name, info.dli_sname) == 0)
                return functions[i].offset;
        return 1; /* a function of the library that libcuda lacks */
    }
    for (size_t i = 0; limited && i < n_functions; i++)
        if (functions[i].offset == offset && exports(functions[i].name)) {
            fprintf(stderr, "%s: the driver's, and the library exports it\n",
                    functions[i].name);
            driver_but_ours++;
            break;
        }
    return offset;
}

static void say(const char *name, int version, unsigned long long flags, int which,
                int rc, void *function, int status)
{
    bool is_untouched = function == (void *)(size_t)UNTOUCHED;
    questions++;
    printf("%s %d %llu v%d: %d %d %zx\n", name, version, flags, which, rc, status,
           is_untouched || !function ? (size_t)function : offset_of(function));
}

typedef int get_fn(const char *, void **, int, unsigned long long);

static bool read_names(const char *path)
{
    char line[160];
    FILE *f = fopen(path, "r");
    while (f && n_functions < NAMES && fgets(line, sizeof line, f))
        if (sscanf(line, "%zx %95s", &functions[n_functions].offset,
                   functions[n_functions].name) == 2)
            n_functions++;
    if (f)
        fclose(f);
    if (!n_functions)
        fprintf(stderr, "%s: no names\n", path);
    return n_functions;
}

static size_t asked(get_fn *get, const char *name, int version, unsigned long long flags)
{
    void *function = NULL;
    return get(name, &function, version, flags) || !function
               ? 0
               : (size_t)function - cuda->l_addr;
}

static int check_since(const char *list)
{
    char line[160], symbol[96];
    int since, driver = 0, wrong = 0, right = 0;
    get_fn *get = (get_fn *)dlsym(RTLD_DEFAULT, "cuGetProcAddress");
    int (*version)(int *) = (int (*)(int *))dlsym(RTLD_DEFAULT, "cuDriverGetVersion");
    FILE *f = fopen(list, "r");
    if (!f || !get || !version || version(&driver)) {
        fprintf(stderr, "%s: cannot be read, or the driver has no version\n", list);
        return 2;
    }
    while (fgets(line, sizeof line, f)) {
        char name[96];
        size_t offset = 0;
        if (sscanf(line, "%95s %d", symbol, &since) != 2 || since == 0 || since > driver)
            continue;
        for (size_t i = 0; i < n_functions; i++)
            if (strcmp(functions[i].name, symbol) == 0)
                offset = functions[i].offset;
        snprintf(name, sizeof name, "%s", symbol);
        char *end = name + strlen(name);
        bool per_thread = end - name > 5 && strcmp(end - 5, "_ptsz") == 0;
        if (per_thread)
            *(end -= 5) = '\0';
        if (end - name > 3 && end[-3] == '_' && end[-2] == 'v')
            end[-3] = '\0';
        int before = since % 1000 ? since - 10 : since - 1000 + 90;
        bool is = asked(get, name, since, per_thread ? 2 : 0) == offset;
        bool was = asked(get, name, before, per_thread ? 2 : 0) == offset;
        if (!offset || !is || was) {
            fprintf(stderr, "%s: not from %d on\n", symbol, since);
            wrong++;
        } else
            right++;
    }
    fclose(f);
    fprintf(stderr, "%d of CUDA %d are right\n", right, driver);
    return wrong || !right;
}

/* What it answers where there is no function. */
static int ask_unknown(void)
{
    static const struct {
        const char *name;
        int version;
        unsigned long long flags;
    } unknown[] = {{"cuNothing", 12000, 0},  {"cuMemAlloc", 1000, 0},
                   {"cuMemAlloc", 12000, 4}, {"cuMemAlloc_v2", 12000, 0},
                   {"", 12000, 0},           {"cuStreamSynchronize", 1000, 2}};
    get_fn *get = (get_fn *)dlsym(RTLD_DEFAULT, "cuGetProcAddress");
    int (*get2)(const char *, void **, int, unsigned long long, int *) =
        (int (*)(const char *, void **, int, unsigned long long, int *))dlsym(
            RTLD_DEFAULT, "cuGetProcAddress_v2");
    for (size_t i = 0; get && get2 && i < sizeof unknown / sizeof *unknown; i++) {
        void *first = (void *)(size_t)UNTOUCHED, *second = first, *third = first;
        int status = -1;
        int rc = get(unknown[i].name, &first, unknown[i].version, unknown[i].flags);
        int rc2 =
            get2(unknown[i].name, &second, unknown[i].version, unknown[i].flags, &status);
        int rc3 =
            get2(unknown[i].name, &third, unknown[i].version, unknown[i].flags, NULL);
        printf("%s %d %llu: %d %p, %d %p %d, %d %p\n", unknown[i].name,
               unknown[i].version, unknown[i].flags, rc, first, rc2, second, status, rc3,
               third);
    }
    return 0;
}

static int ask(void)
{
    get_fn *get = (get_fn *)dlsym(RTLD_DEFAULT, "cuGetProcAddress");
    int (*get2)(const char *, void **, int, unsigned long long, int *) =
        (int (*)(const char *, void **, int, unsigned long long, int *))dlsym(
            RTLD_DEFAULT, "cuGetProcAddress_v2");
    if (!get) {
        fputs("there is no cuGetProcAddress\n", stderr);
        return 2;
    }
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(RTLD_DEFAULT, "cuInit");
    int (*count)(int *) = (int (*)(int *))dlsym(RTLD_DEFAULT, "cuDeviceGetCount");
    int (*alloc)(unsigned long long *, size_t) =
        (int (*)(unsigned long long *, size_t))dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    int (*memory)(size_t *, size_t *) =
        (int (*)(size_t *, size_t *))dlsym(RTLD_DEFAULT, "cuMemGetInfo_v2");
    int (*retain)(void **, int) =
        (int (*)(void **, int))dlsym(RTLD_DEFAULT, "cuDevicePrimaryCtxRetain");
    int (*release)(unsigned long long) =
        (int (*)(unsigned long long))dlsym(RTLD_DEFAULT, "cuMemFree_v2");
    unsigned long long p = 0;
    size_t available = 0, total = 0;
    void *context = NULL;
    int n = 0;
    printf("init %d count %d", init(0), count(&n));
    printf(" retain %d alloc %d", retain(&context, 0), alloc(&p, 1 << 20));
    printf(" memory %d free %d\n", memory(&available, &total), release(0x1000));
    for (size_t i = 0; i < n_functions; i++) {
        const char *name = functions[i].name;
        /* Versions as cuda.h counts: 1000 * major + 10 * minor. */
        for (int major = 2; major <= 14; major++)
            for (int minor = 0; minor <= (major < 12 ? 8 : 9);
                 minor += major < 10 ? 4 : 1)
                for (unsigned long long flags = 0; flags <= 2; flags++) {
                    int version = 1000 * major + 10 * minor, status = -1;
                    void *function = (void *)(size_t)UNTOUCHED;
                    int rc = get(name, &function, version, flags);
                    say(name, version, flags, 1, rc, function, -1);
                    if (!get2)
                        continue;
                    function = (void *)(size_t)UNTOUCHED;
                    rc = get2(name, &function, version, flags, &status);
                    say(name, version, flags, 2, rc, function, status);
                }
    }
    fprintf(stderr, "%zu questions, %zu answers of the library\n", questions, ours);
    return driver_but_ours || fflush(stdout) ? 1 : 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "pod") == 0)
        return make_pod(argv[2]);
    if (argc < 4) {
        fputs("usage: resolve pod DIR | ask LIBCUDA NAMES [limited] | since LIBCUDA "
              "NAMES LIST\n",
              stderr);
        return 2;
    }
    void *so = dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL);
    if (!so || dlinfo(so, RTLD_DI_LINKMAP, &cuda)) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    if (!read_names(argv[3]))
        return 2;
    if (argc > 4 && strcmp(argv[1], "since") == 0)
        return check_since(argv[4]);
    if (strcmp(argv[1], "unknown") == 0)
        return ask_unknown();
    limited = argc > 4;
    return ask();
}
