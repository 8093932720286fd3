/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A CUDA program for the tests of libgpushare-limit.so, built for glibc and for musl. It checks
 * what it sees and exits with 0, or prints what was wrong and exits with 1.
 *
 *     guest cases WAY        each way to allocate: fits, is refused, is counted once, is freed
 *     guest case WAY NAME    one of them
 *     guest info WAY         sizes and processes, by CUDA and NVML
 *     guest all WAY          allocates the whole limit, and one byte more
 *     guest more WAY N       allocates N MiB: exits with 0, or with 2 if refused
 *     guest hold WAY N       the same, prints "held", and waits until it is killed
 *     guest again WAY N      the same, and allocates again at each SIGUSR1
 *     guest fork WAY         what a child has
 *     guest room WAY         4 threads share a pool's free memory while the limit is reached
 *     guest race WAY SEED    8 threads allocate and free until the process is killed
 *     guest bench WAY        prints the nanoseconds of an allocation and its free
 *     guest costs WAY N      the same of mapping, synchronizing and asking, with N of each
 *     guest unlimited WAY    nothing is limited
 *     guest none             makes no call to CUDA
 *     guest managed WAY N    holds N MiB of managed memory, as hold
 *     guest early WAY        calls before cuInit, and then allocates the whole limit
 *     guest files WAY        the first call finds no free descriptor, the next ones do
 *     guest chroot WAY DIR   changes its root before the first call: is refused
 *     guest without WAY NR   the same where the kernel denies system call NR, or its advice
 *     guest shorten WAY FILE makes the state shorter while it holds memory
 *     guest second WAY       uses device 1
 *     guest references WAY   memory that is shared, bound or mapped when its handle ends
 *     guest tensor WAY N     N processes as an inference server with a part of the model each
 *     guest peaks WAY        graphs whose nodes use memory again
 *     guest formats WAY      arrays of blocks and planes
 *     guest future WAY       a function of an unknown version
 *     guest streams WAY      memory of streams and pools of device 1
 *     guest WHAT WAY         what fits is not refused: see fits.c
 *     guest green, settings, modules WAY
 *                            memory of green contexts, of stacks and heaps, of variables
 *
 * WAY is how it gets the functions: link, dlsym, default (RTLD_DEFAULT), next (RTLD_NEXT), proc
 * (cuGetProcAddress), proc2 (cuGetProcAddress_v2), ptsz (the same, with per-thread streams);
 * deep (a library with this program's code, loaded with RTLD_DEEPBIND, which uses dlsym), space
 * (dlmopen), vsym (dlsym by dlvsym), lib-dlsym and lib-dlvsym (a library that asks for the next dlsym
 * by dlsym or dlvsym), copy (dlsym of a second copy of the driver, GUEST_COPY).
 */

#include "limit/guest/guest.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void *cuda;
const char *way;
int failures;
void *context, *stream;

#ifdef GUEST_LINK
#define ROW(symbol, name, since, per_thread) extern int symbol();
FAKE_CUDA_SYMBOLS
#undef ROW
#endif

static const struct row {
    const char *symbol, *name;
    int since, per_thread;
    fn *linked;
} rows[] = {
#ifdef GUEST_LINK
#define ROW(symbol, name, since, per_thread)                                             \
    {#symbol, name, since, per_thread, (fn *)symbol},
#else
#define ROW(symbol, name, since, per_thread) {#symbol, name, since, per_thread, NULL},
#endif
    FAKE_CUDA_SYMBOLS
#undef ROW
};

/* The last row of a name is what programs of the future ask for. */
static int version_of(const struct row *r)
{
    for (const struct row *o = r + 1; o < rows + sizeof rows / sizeof *rows; o++)
        if (strcmp(o->name, r->name) == 0)
            return r->since;
    return getenv("GUEST_FUTURE") && r->since < 14000 ? 14000 : r->since;
}

static void *by_proc(const struct row *r)
{
    void *found = NULL;
    int status = -1;
    bool two = strcmp(way, "proc") != 0;
    fn *get = (fn *)dlsym(cuda, two ? "cuGetProcAddress_v2" : "cuGetProcAddress");
    unsigned long long flags = strcmp(way, "ptsz") == 0 ? 2 : 0;
    int rc = two ? ((int (*)(const char *, void **, int, unsigned long long, int *))get)(
                       r->name, &found, version_of(r), flags, &status)
                 : ((int (*)(const char *, void **, int, unsigned long long))get)(
                       r->name, &found, version_of(r), flags);
    return rc == 0 ? found : NULL;
}

static void *by_version(const char *symbol)
{
#ifdef __GLIBC__
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    void *find = dlvsym(libc, "dlsym", "GLIBC_2.34");
    return find ? ((void *(*)(void *, const char *))find)(cuda, symbol) : NULL;
#else
    return dlsym(cuda, symbol);
#endif
}

/* As a library asks that goes on to the C library's dlsym. */
static void *by_next(const char *symbol)
{
    void *find = dlsym(RTLD_NEXT, "dlsym");
#ifdef __GLIBC__
    if (strcmp(way, "from-dlvsym") == 0)
        find = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
#endif
    return find ? ((void *(*)(void *, const char *))find)(cuda, symbol) : NULL;
}

fn *get(const char *symbol)
{
    const struct row *r = rows;
    while (strcmp(r->symbol, symbol) != 0)
        if (++r == rows + sizeof rows / sizeof *rows)
            printf("guest: %s is not a row of fake_cuda.h\n", symbol), exit(1);
    void *found = strcmp(way, "link") == 0        ? (void *)r->linked
                  : strcmp(way, "dlsym") == 0     ? dlsym(cuda, symbol)
                  : strcmp(way, "space") == 0     ? dlsym(cuda, symbol)
                  : strcmp(way, "copy") == 0      ? dlsym(cuda, symbol)
                  : strcmp(way, "vsym") == 0      ? by_version(symbol)
                  : strcmp(way, "default") == 0   ? dlsym(RTLD_DEFAULT, symbol)
                  : strcmp(way, "next") == 0      ? dlsym(RTLD_NEXT, symbol)
                  : strncmp(way, "from-", 5) == 0 ? by_next(symbol)
                                                  : by_proc(r);
    if (!found)
        printf("guest: %s: no %s\n", way, symbol), exit(1);
    return (fn *)found;
}

/* -- Ways to allocate -- */

int linear(unsigned long long n, dptr *p)
{
    return CALL(cuMemAlloc_v2, p, n);
}
int linear_free(dptr p)
{
    return CALL(cuMemFree_v2, p);
}
static int managed(unsigned long long n, dptr *p)
{
    return CALL(cuMemAllocManaged, p, n, 1u);
}
static int pitch(unsigned long long n, dptr *p)
{
    size_t width = 4096, row = 0;
    return CALL(cuMemAllocPitch_v2, p, &row, width, (size_t)(n / width), 4u);
}

static int async(unsigned long long n, dptr *p)
{
    return CALL(cuMemAllocAsync, p, n, stream);
}
static int async_free(dptr p)
{
    int rc = CALL(cuMemFreeAsync, p, stream);
    return rc ? rc : CALL(cuStreamSynchronize, stream);
}
static int async_z(unsigned long long n, dptr *p)
{
    return CALL(cuMemAllocAsync_ptsz, p, n, stream);
}
static int async_z_free(dptr p)
{
    int rc = CALL(cuMemFreeAsync_ptsz, p, stream);
    return rc ? rc : CALL(cuStreamSynchronize_ptsz, stream);
}
/* Freed as memory of cuMemAlloc, and never synchronized: only a trim returns it. */
static int async_sync_free(dptr p)
{
    return linear_free(p);
}

static void *pool;

static int make_pool(int location)
{
    struct pool_props props = {.type = 1, .location = location};
    return CALL(cuMemPoolCreate, &pool, &props);
}
static int pooled(unsigned long long n, dptr *p)
{
    if (!pool && make_pool(1))
        return -1;
    return CALL(cuMemAllocFromPoolAsync, p, n, pool, stream);
}
static int pooled_z(unsigned long long n, dptr *p)
{
    if (!pool && make_pool(1))
        return -1;
    return CALL(cuMemAllocFromPoolAsync_ptsz, p, n, pool, stream);
}
static int pooled_free(dptr p)
{
    int rc = CALL(cuMemFreeAsync, p, stream);
    return rc ? rc : CALL(cuMemPoolTrimTo, pool, (size_t)0);
}
/* The pool ends before its memory. */
static int pooled_destroy(dptr p)
{
    int rc = CALL(cuMemPoolDestroy, pool);
    pool = NULL;
    return rc ? rc : CALL(cuMemFreeAsync, p, stream);
}

struct memory_prop {
    int type, handle_types, location, id;
    void *win32;
    unsigned char flags[8];
};
int physical(unsigned long long n, dptr *p)
{
    struct memory_prop prop = {.type = 1, .location = 1};
    return CALL(cuMemCreate, p, n, &prop, 0ull);
}
int physical_free(dptr p)
{
    return CALL(cuMemRelease, p);
}
int map_memory(dptr at, unsigned long long n, dptr handle)
{
    return CALL(cuMemMap, at, (size_t)n, (size_t)0, handle, 0ull);
}
int unmap_memory(dptr at, unsigned long long n)
{
    return CALL(cuMemUnmap, at, (size_t)n);
}
/* Mapped twice, and the handle released at once: the memory lives until both are unmapped. */
static int mapped(unsigned long long n, dptr *p)
{
    int rc = physical(n, p);
    for (unsigned i = 1; !rc && i <= 2; i++)
        rc = CALL(cuMemMap, (dptr)i * MAPPED, (size_t)n, (size_t)0, *p, 0ull);
    return rc ? rc : physical_free(*p);
}
static int mapped_free(dptr p)
{
    dptr more = 0, again = 0;
    (void)p;
    int rc = CALL(cuMemUnmap, (dptr)MAPPED, (size_t)FITS_MIB * MIB);
    CHECK("half unmapped", physical(FITS_MIB * MIB, &more), OUT_OF_MEMORY);
    rc = rc ? rc : CALL(cuMemRetainAllocationHandle, &again, (void *)(2ul * MAPPED));
    rc = rc ? rc : CALL(cuMemUnmap, 2ull * MAPPED, (size_t)FITS_MIB * MIB);
    CHECK("a handle is left", physical(FITS_MIB * MIB, &more), OUT_OF_MEMORY);
    return rc ? rc : physical_free(again);
}

static int array2(unsigned long long n, dptr *p)
{
    struct desc2 d = {1024, n / 8192, FLOAT, 2};
    return CALL(cuArrayCreate_v2, p, &d);
}
static int array3(unsigned long long n, dptr *p)
{
    struct desc3 d = {256, 256, n / (256 * 256 * 16), FLOAT, 4, 0};
    return CALL(cuArray3DCreate_v2, p, &d);
}
int array_free(dptr p)
{
    return CALL(cuArrayDestroy, p);
}
static int mipmap(unsigned long long n, dptr *p)
{
    struct desc3 d = {1024, n / 8192 * 3 / 4, 0, FLOAT, 2, 0};
    return CALL(cuMipmappedArrayCreate, p, &d, JUNK | 4);
}
static int mipmap_free(dptr p)
{
    return CALL(cuMipmappedArrayDestroy, p);
}

/* Graphs. The allocation is the executable graph. */
void *new_graph(void)
{
    void *graph = NULL;
    CHECK("graph", CALL(cuGraphCreate, &graph, 0u), 0);
    return graph;
}
int launch(int rc, void *graph, int flavor, dptr *p)
{
    void *exec = NULL;
    if (!rc)
        rc = flavor == 0 ? CALL(cuGraphInstantiate_v2, &exec, graph, (void **)NULL,
                                (char *)NULL, (size_t)0)
             : flavor == 1
                 ? CALL(cuGraphInstantiateWithFlags, &exec, graph, 0ull)
                 : CALL(cuGraphInstantiateWithParams, &exec, graph, (void *)NULL);
    CHECK("graph destroyed", CALL(cuGraphDestroy, graph), 0);
    *p = (dptr)(size_t)exec;
    return rc ? rc : CALL(cuGraphLaunch, exec, stream);
}
static int node(unsigned long long n, dptr *p)
{
    void *graph = new_graph(), *added;
    struct alloc_node a = {.pool = {.type = 1, .location = 1}, .bytes = n};
    int rc = CALL(cuGraphAddMemAllocNode, &added, graph, NULL, (size_t)0, &a);
    return launch(rc, graph, 0, p);
}
static int node1(unsigned long long n, dptr *p)
{
    void *graph = new_graph(), *added;
    struct node_params a = {.type = 10,
                            .alloc = {.pool = {.type = 1, .location = 1}, .bytes = n}};
    int rc = CALL(cuGraphAddNode, &added, graph, NULL, (size_t)0, &a);
    return launch(rc, graph, 1, p);
}
static int node2(unsigned long long n, dptr *p)
{
    void *graph = new_graph(), *added;
    struct node_params a = {.type = 10,
                            .alloc = {.pool = {.type = 1, .location = 1}, .bytes = n}};
    int rc = CALL(cuGraphAddNode_v2, &added, graph, NULL, NULL, (size_t)0, &a);
    return launch(rc, graph, 2, p);
}
static int capture(unsigned long long n, dptr *p)
{
    void *graph = NULL, *s = (void *)1;
    CALL(cuStreamBeginCapture, s, 0);
    int rc = CALL(cuMemAllocAsync, p, n, s);
    CALL(cuStreamEndCapture, s, &graph);
    return launch(rc, graph, 0, p);
}
static int node_free(dptr p)
{
    return CALL(cuGraphExecDestroy, (void *)(size_t)p);
}
int node_trim(dptr p)
{
    int rc = node_free(p);
    return rc ? rc : CALL(cuDeviceGraphMemTrim, 0);
}

static const struct way_to_allocate {
    const char *name;
    int (*allocate)(unsigned long long, dptr *);
    int (*free)(dptr);
} ways[] = {
    {"cuMemAlloc_v2", linear, linear_free},
    {"cuMemAlloc_v2, cuMemFreeAsync", linear, async_free},
    {"cuMemAllocManaged", managed, linear_free},
    {"cuMemAllocPitch_v2", pitch, linear_free},
    {"cuMemAllocAsync", async, async_free},
    {"cuMemAllocAsync_ptsz", async_z, async_z_free},
    {"cuMemAllocAsync, cuMemFree", async, async_sync_free},
    {"cuMemAllocFromPoolAsync", pooled, pooled_free},
    {"cuMemAllocFromPoolAsync_ptsz", pooled_z, pooled_free},
    {"cuMemPoolDestroy", pooled, pooled_destroy},
    {"cuMemCreate", physical, physical_free},
    {"cuMemMap", mapped, mapped_free},
    {"cuArrayCreate_v2", array2, array_free},
    {"cuArray3DCreate_v2", array3, array_free},
    {"cuMipmappedArrayCreate", mipmap, mipmap_free},
    {"cuGraphAddMemAllocNode", node, node_free},
    {"cuGraphAddNode", node1, node_trim},
    {"cuGraphAddNode_v2", node2, node_free},
    {"cuMemAllocAsync, captured", capture, node_trim},
};

int retain(int device)
{
    int rc = CALL(cuDevicePrimaryCtxRetain, &context, JUNK | (unsigned)device);
    return rc ? rc : CALL(cuCtxSetCurrent, context);
}

void begin(void)
{
    CHECK("init", CALL(cuInit, 0u), 0);
    CHECK("retain", CALL(cuDevicePrimaryCtxRetain, &context, 0), 0);
    CHECK("set", CALL(cuCtxSetCurrent, context), 0);
}

unsigned long long available(void)
{
    size_t now = 0, total = 0;
    CALL(cuMemGetInfo_v2, &now, &total);
    return now;
}

static void try_way(const struct way_to_allocate *w)
{
    dptr first = 0, more = 0;
    CHECK(w->name, w->allocate(FITS_MIB * MIB, &first), 0);
    CHECK(w->name, available() <= (LIMIT_MIB - FITS_MIB) * MIB, 1);
    dptr second = 0;
    CHECK(w->name, w->allocate(FITS_MIB * MIB, &second), OUT_OF_MEMORY);
    CHECK(w->name, linear(FITS_MIB * MIB, &more), OUT_OF_MEMORY);
    CHECK(w->name, w->free(first), 0);
    CHECK(w->name, linear(FITS_MIB * MIB, &more), 0);
    CHECK(w->name, linear_free(more), 0);
    CHECK(w->name, available(), LIMIT_MIB * MIB - FAKE_CONTEXT);
}

/* What is not the device's memory, or is another process's, counts nothing. */
static void not_counted(void)
{
    unsigned long long before = available();
    dptr p = 0;
    void *host = NULL;
    CHECK("host", CALL(cuMemHostAlloc, &host, (size_t)100, 0u), 0);
    struct memory_prop on_host = {.type = 1, .location = 2};
    CHECK("host memory", CALL(cuMemCreate, &p, (size_t)(200 * MIB), &on_host, 0ull), 0);
    struct desc3 sparse = {1 << 14, 1 << 14, 1, FLOAT, 4, 0x40};
    CHECK("sparse", CALL(cuArray3DCreate_v2, &p, &sparse), 0);
    if (!make_pool(2))
        CHECK("host pool",
              CALL(cuMemAllocFromPoolAsync, &p, (size_t)(200 * MIB), pool, stream), 0);
    pool = NULL;
    CHECK("counted", available(), before);
}

/* A context counts, and its end frees what it has. */
static void contexts(void)
{
    dptr p;
    void *c = NULL;
    unsigned long long before = available();
    CHECK("v1", CALL(cuCtxCreate, &c, 0u, 0), 0);
    CHECK("v1", CALL(cuCtxDestroy, c), 0);
    CHECK("v2", CALL(cuCtxCreate_v2, &c, 0u, 0), 0);
    CHECK("v2", CALL(cuCtxDestroy_v2, c), 0);
    CHECK("v3", CALL(cuCtxCreate_v3, &c, NULL, 0, 0u, JUNK), 0);
    CHECK("v3", CALL(cuCtxDestroy_v2, c), 0);
    CHECK("v4", CALL(cuCtxCreate_v4, &c, NULL, 0u, JUNK), 0);
    CHECK("in it", linear(10 * MIB, &p), 0);
    CHECK("counted", available(), before - FAKE_CONTEXT - 10 * MIB);
    CHECK("v4", CALL(cuCtxDestroy_v2, c), 0);
    CALL(cuCtxSetCurrent, context);
    CHECK("destroyed", available(), before);
    CHECK("in the primary", linear(10 * MIB, &p), 0);
    CHECK("retain", CALL(cuDevicePrimaryCtxRetain, &c, 0), 0);
    CHECK("release", CALL(cuDevicePrimaryCtxRelease_v2, 0), 0);
    CHECK("still", available(), before - 10 * MIB);
    CHECK("reset", CALL(cuDevicePrimaryCtxReset_v2, 0), 0);
    begin();
    CHECK("reset", available(), before);
    CHECK("in the primary", linear(10 * MIB, &p), 0);
    CHECK("release", CALL(cuDevicePrimaryCtxRelease_v2, 0), 0);
    begin();
    CHECK("released", available(), before);
}

/* Functions of CUDA before 3.2, whose addresses have 32 bits, are refused or the driver's. */
static void old(int want)
{
    static const char *const functions[] = {
        "cuMemAlloc",       "cuMemAllocPitch", "cuMemFree",      "cuMemGetInfo",
        "cuDeviceTotalMem", "cuArrayCreate",   "cuArray3DCreate"};
    unsigned long long before = available();
    size_t room[8] = {0};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        CHECK(functions[i], get(functions[i])(room, room, 1u, 1u, 1u), want);
    CHECK("old", available(), before);
}

/* One of the cases, without those of CUDA before 3.2. */
static void one_case(const char *name)
{
    bool known = true;
    if (strcmp(name, "not counted") == 0)
        not_counted();
    else if (strcmp(name, "contexts") == 0)
        contexts();
    else
        known = false;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (strcmp(ways[i].name, name) == 0)
            try_way(&ways[i]), known = true;
    CHECK("case", known, 1);
}

static void cases(void)
{
    /* Without the exported addresses, cuGetProcAddress does not say which of the functions of
     * this name it answers with: the library leaves these to the driver. */
    bool alias = getenv("FAKE_CUDA_ALIAS") != NULL;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (!alias ||
            strncmp(ways[i].name, "cuGraphAddNode", strlen("cuGraphAddNode")) != 0)
            try_way(&ways[i]);
    not_counted();
    old(NOT_SUPPORTED);
    if (!alias)
        contexts();
}

/* -- Sizes and processes -- */

struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml_memory2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct nvml_process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

static void nvml(void)
{
    void *so = dlopen("libnvidia-ml.so.1", RTLD_NOW), *card = NULL;
    if (!so)
        return; /* built for glibc only */
    struct nvml_memory m = {0};
    struct nvml_memory2 m2 = {.version = 0x2000028};
    struct nvml_process all[4];
    unsigned n = 4;
    CHECK("init", ((int (*)(void))dlsym(so, "nvmlInit_v2"))(), 0);
    CHECK("handle",
          ((int (*)(unsigned, void **))dlsym(so, "nvmlDeviceGetHandleByIndex_v2"))(0,
                                                                                   &card),
          0);
    CHECK("memory",
          ((int (*)(void *, void *))dlsym(so, "nvmlDeviceGetMemoryInfo"))(card, &m), 0);
    CHECK("v1", m.total, LIMIT_MIB * MIB);
    CHECK("v1", m.used, 10 * MIB + FAKE_CONTEXT);
    CHECK("v1", m.free, m.total - m.used);
    CHECK("memory",
          ((int (*)(void *, void *))dlsym(so, "nvmlDeviceGetMemoryInfo_v2"))(card, &m2),
          0);
    CHECK("v2", m2.total, LIMIT_MIB * MIB);
    CHECK("v2", m2.used, 10 * MIB + FAKE_CONTEXT);
    fn *list = (fn *)dlsym(so, "nvmlDeviceGetComputeRunningProcesses_v3");
    CHECK("list", ((int (*)(void *, unsigned *, void *))list)(card, &n, all), 0);
    CHECK("list", n, 1);
    CHECK("list", all[0].pid, (unsigned)getpid());
    CHECK("list", all[0].used, 10 * MIB + FAKE_CONTEXT);
    n = 0;
    CHECK("count", ((int (*)(void *, unsigned *, void *))list)(card, &n, NULL), 7);
    CHECK("count", n, 1);
}

static void info(void)
{
    dptr p;
    size_t now = 0, total = 0;
    CHECK("total", CALL(cuDeviceTotalMem_v2, &total, 0), 0);
    CHECK("total", total, LIMIT_MIB * MIB);
    CHECK("device 1", CALL(cuDeviceTotalMem_v2, &total, JUNK | 1), 0);
    CHECK("device 1", total, 0);
    CHECK("alloc", linear(10 * MIB, &p), 0);
    CHECK("info", CALL(cuMemGetInfo_v2, &now, &total), 0);
    CHECK("info", total, LIMIT_MIB * MIB);
    CHECK("info", now, (LIMIT_MIB - 10) * MIB - FAKE_CONTEXT);
    nvml();
}

/* The whole limit of this pod, and not a byte more. */
static void all(void)
{
    dptr p, more;
    CHECK("all", linear(LIMIT_MIB * MIB - FAKE_CONTEXT, &p), 0);
    CHECK("more", linear(1, &more), OUT_OF_MEMORY);
    CHECK("free", linear_free(p), 0);
    CHECK("huge", linear(~0ull, &p), OUT_OF_MEMORY);
    CHECK("huge rows",
          CALL(cuMemAllocPitch_v2, &p, (size_t *)&more, ~(size_t)0, ~(size_t)0, 4u),
          OUT_OF_MEMORY);
}

static void in_child(void)
{
    dptr p;
    begin();
    CHECK("child", linear((LIMIT_MIB - 8) * MIB - 2 * FAKE_CONTEXT, &p), 0);
    CHECK("child", linear(1, &p), OUT_OF_MEMORY);
    _exit(failures ? 1 : 0);
}

/* A child counts for itself, and its end is its own. The parent keeps what it has. */
static void forks(void)
{
    dptr p;
    int status;
    CHECK("parent", linear(8 * MIB, &p), 0);
    pid_t child = fork();
    if (child == 0)
        in_child();
    CHECK("wait", waitpid(child, &status, 0), child);
    CHECK("child", status, 0);
    CHECK("parent", available(), (LIMIT_MIB - 8) * MIB - FAKE_CONTEXT);
    CHECK("parent", linear_free(p), 0);
}

/* -- Race and benchmark -- */

static fn *fast_alloc, *fast_free, *fast_async, *fast_async_free;

static void *race(void *arg)
{
    unsigned long long x = 88172645463325252ull + (size_t)arg * 7919;
    dptr held[8] = {0};
    CALL(cuCtxSetCurrent, context);
    for (unsigned long i = 0;; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        int at = (int)(x >> 8 & 7), pooled_one = at < 2;
        if (held[at]) {
            pooled_one ? ((int (*)(dptr, void *))fast_async_free)(held[at], NULL)
                       : ((int (*)(dptr))fast_free)(held[at]);
            held[at] = 0;
        } else if (pooled_one) {
            ((int (*)(dptr *, size_t, void *))fast_async)(&held[at],
                                                          x >> 16 & 0xfffff | 1, NULL);
        } else {
            ((int (*)(dptr *, size_t))fast_alloc)(&held[at], x >> 16 & 0x1fffff | 1);
        }
    }
    return NULL;
}

static void get_fast(void)
{
    fast_alloc = get("cuMemAlloc_v2");
    fast_free = get("cuMemFree_v2");
    fast_async = get("cuMemAllocAsync");
    fast_async_free = get("cuMemFreeAsync");
}

static void races(size_t seed)
{
    pthread_t thread;
    if (nice(5) == -1) /* the test, which kills, runs before hundreds of threads */
        exit(1);
    get_fast();
    for (size_t i = 1; i < 8; i++)
        pthread_create(&thread, NULL, race, (void *)(seed * 8 + i));
    race((void *)(seed * 8));
}

static void *share_room(void *allocated)
{
    dptr p;
    CALL(cuCtxSetCurrent, context);
    for (int i = 0; i < 3000; i++)
        if (((int (*)(dptr *, size_t, void *))fast_async)(&p, 700 << 10, NULL) == 0) {
            __atomic_fetch_add((int *)allocated, 1, __ATOMIC_SEQ_CST);
            ((int (*)(dptr, void *))fast_async_free)(p, NULL);
        }
    return NULL;
}

/* A pool has one page, which holds two allocations, and the limit leaves no second page. */
static void room(void)
{
    pthread_t threads[4];
    int allocated = 0;
    dptr p, keep;
    get_fast();
    CHECK("linear", linear((LIMIT_MIB - 3) * MIB - FAKE_CONTEXT, &p), 0);
    CHECK("page", ((int (*)(dptr *, size_t, void *))fast_async)(&keep, 1024, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, share_room, &allocated);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    CHECK("some fit", allocated > 0, 1);
    CHECK("free", ((int (*)(dptr, void *))fast_async_free)(keep, NULL), 0);
    CHECK("free", linear_free(p), 0);
    CHECK("all", linear(LIMIT_MIB * MIB - FAKE_CONTEXT, &p), 0);
}

static double nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void bench(void)
{
    enum { ROUNDS = 300, PAIRS = 2000 }; /* a round fits into a time slice */
    int (*allocate)(dptr *, size_t) = (int (*)(dptr *, size_t))get("cuMemAlloc_v2");
    int (*release)(dptr) = (int (*)(dptr))get("cuMemFree_v2");
    double best = 1e18;
    dptr p = 0;
    for (int r = 0; r < ROUNDS; r++) {
        double start = nanoseconds();
        for (int i = 0; i < PAIRS; i++) {
            allocate(&p, 4096);
            release(p);
        }
        double each = (nanoseconds() - start) / PAIRS;
        best = each < best ? each : best;
    }
    printf("%.1f\n", best);
}

#ifndef RTLD_DEEPBIND
#define RTLD_DEEPBIND 0 /* musl */
#endif

/* Runs the code of the library beside this program. */
static int in_library(int argc, char **argv, int flags, char *as)
{
    char path[4096];
    snprintf(path, sizeof path, "%.*s/plugin.so", (int)(strrchr(argv[0], '/') - argv[0]),
             argv[0]);
    void *so = dlopen(path, RTLD_NOW | flags);
    int (*run)(int, char **) = so ? (int (*)(int, char **))dlsym(so, "main") : NULL;
    argv[2] = as;
    return run ? run(argc, argv) : (printf("guest: %s\n", dlerror()), 1);
}

/* What calls cost while the process has n mappings and n pointers of a pool: nanoseconds. */
static void costs(int n)
{
    enum { ROUNDS = 400, CALLS = 10 };
    dptr memory, p;
    size_t now, total;
    CHECK("memory", physical(2 * MIB, &memory), 0);
    for (int i = 0; i < n; i++) {
        CHECK("map", map_memory((dptr)(1000 + i) * MAPPED, 2 * MIB, memory), 0);
        CHECK("pointer", async(16, &p), 0);
    }
    fn *map = get("cuMemMap"), *unmap = get("cuMemUnmap"), *info = get("cuMemGetInfo_v2"),
       *synchronize = get("cuStreamSynchronize");
    double best[3] = {1e18, 1e18, 1e18};
    for (int r = 0; r < ROUNDS; r++) {
        double t[4];
        t[0] = nanoseconds();
        for (int i = 0; i < CALLS; i++) {
            ((int (*)(dptr, size_t, size_t, dptr, unsigned long long))map)(
                MAPPED, 2 * MIB, 0, memory, 0);
            ((int (*)(dptr, size_t))unmap)(MAPPED, 2 * MIB);
        }
        t[1] = nanoseconds();
        for (int i = 0; i < CALLS; i++)
            ((int (*)(void *))synchronize)(NULL);
        t[2] = nanoseconds();
        for (int i = 0; i < CALLS; i++)
            ((int (*)(size_t *, size_t *))info)(&now, &total);
        t[3] = nanoseconds();
        for (int i = 0; i < 3; i++)
            best[i] = t[i + 1] - t[i] < best[i] ? t[i + 1] - t[i] : best[i];
    }
    printf("%.1f %.1f %.1f\n", best[0] / CALLS, best[1] / CALLS, best[2] / CALLS);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    way = argc > 2 ? argv[2] : "dlsym";
    unsigned long long n = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    if (strcmp(what, "none") == 0)
        return 0;
    if (strcmp(way, "deep") == 0)
        return in_library(argc, argv, RTLD_DEEPBIND, "dlsym");
    if (strcmp(way, "lib-dlsym") == 0)
        return in_library(argc, argv, 0, "from-dlsym");
    if (strcmp(way, "lib-dlvsym") == 0)
        return in_library(argc, argv, 0, "from-dlvsym");
#ifdef __GLIBC__
    if (strcmp(way, "space") == 0)
        cuda = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
    else
#endif
        cuda = dlopen("libcuda.so.1",
                      RTLD_NOW | (strcmp(way, "default") == 0 ? RTLD_GLOBAL : 0));
    if (strcmp(way, "copy") == 0)
        cuda = dlopen(getenv("GUEST_COPY"), RTLD_NOW);
    if (!cuda) {
        printf("guest: %s\n", dlerror());
        return 1;
    }
    dptr p;
    int status = attack_early(what);
    if (status >= 0)
        return status;
    CHECK("init", CALL(cuInit, 0u), 0);
    if (strcmp(what, "chroot") == 0 && (chroot(argv[3]) || chdir("/")))
        return 77;
    if (strcmp(what, "without") == 0)
        deny((unsigned)n);
    /* A context that does not fit is an answer. */
    if (strcmp(what, "more") == 0 || strcmp(what, "chroot") == 0 ||
        strcmp(what, "without") == 0)
        if (retain(0) == OUT_OF_MEMORY)
            return OUT_OF_MEMORY;
    if (strcmp(what, "chroot") == 0 || strcmp(what, "without") == 0)
        return failures ? 1 : linear(LIMIT_MIB * MIB, &p);
    if (strcmp(what, "second") == 0)
        return failures ? 1 : retain(1) ? retain(1) : linear(MIB, &p);
    if (strcmp(what, "tensor") != 0) /* whose processes have contexts of their own */
        begin();
    if (strcmp(what, "cases") == 0)
        cases();
    else if (strcmp(what, "case") == 0)
        one_case(argv[3]);
    else if (strcmp(what, "info") == 0)
        info();
    else if (strcmp(what, "all") == 0)
        all();
    else if (strcmp(what, "fork") == 0)
        forks();
    else if (strcmp(what, "room") == 0)
        room();
    else if (strcmp(what, "race") == 0)
        races((size_t)n);
    else if (strcmp(what, "bench") == 0)
        bench();
    else if (strcmp(what, "costs") == 0)
        costs((int)n);
    else if (strcmp(what, "unlimited") == 0)
        old(linear(2 * LIMIT_MIB * MIB, &p));
    else if (strcmp(what, "tensor") == 0)
        tensor((int)n);
    else if (strcmp(what, "more") == 0)
        return failures ? 1 : linear(n * MIB, &p);
    else if (strcmp(what, "again") == 0 && linear(n * MIB, &p) == 0)
        again();
    else if ((strcmp(what, "hold") == 0 && linear(n * MIB, &p) == 0) ||
             (strcmp(what, "managed") == 0 && managed(n * MIB, &p) == 0))
        puts("held"), fflush(stdout), pause();
    else
        failures += attack(what, argv) < 0 && fits(what) < 0;
    return failures ? 1 : 0;
}
