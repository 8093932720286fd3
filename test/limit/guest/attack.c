/* SPDX-License-Identifier: Apache-2.0 */

/* Ways to more memory than the limit, and what must fit nevertheless. See guest.c. */

#include "limit/guest/guest.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static void early(void)
{
    dptr p = 0;
    CHECK("cuMemCreate", physical(MIB, &p), 3);
    CHECK("cuDevicePrimaryCtxRetain", retain(0), 3);
    begin();
    CHECK("cuMemCreate", physical(2 * LIMIT_MIB * MIB, &p), OUT_OF_MEMORY);
    CHECK("all", linear(LIMIT_MIB * MIB - FAKE_CONTEXT, &p), 0);
}

static void files(void)
{
    struct rlimit before, none;
    dptr p;
    CHECK("init", CALL(cuInit, 0u), 0);
    CHECK("limit", (unsigned)getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    CHECK("limit", (unsigned)setrlimit(RLIMIT_NOFILE, &none), 0);
    CHECK("no descriptor", retain(0), OUT_OF_MEMORY);
    CHECK("no descriptor", retain(0), OUT_OF_MEMORY);
    CHECK("limit", (unsigned)setrlimit(RLIMIT_NOFILE, &before), 0);
    CHECK("descriptors", retain(0), 0);
    CHECK("descriptors", linear(2 * LIMIT_MIB * MIB, &p), OUT_OF_MEMORY);
}

/* The system call fails with EINVAL. Of madvise and fcntl: only for one advice and command. */
void deny(unsigned number)
{
    unsigned third = number == SYS_madvise ? MADV_WIPEONFORK : 37 /* F_OFD_SETLK */;
    unsigned at = number == SYS_madvise ? 2 : 1;
    bool each = number != SYS_madvise && number != SYS_fcntl;
    /* struct sock_filter of <linux/filter.h>, on struct seccomp_data: nr at 0, args at 16. */
    enum {
        LOAD = 0x20,
        IF_EQUAL = 0x15,
        RETURN = 0x06,
        ALLOW = 0x7fff0000,
        ERRNO = 0x50000
    };
    struct {
        unsigned short code;
        unsigned char then, otherwise;
        unsigned k;
    } code[] = {
        {LOAD, 0, 0, 0},
        {IF_EQUAL, 0, 3, number},
        {LOAD, 0, 0, 16 + 8 * at},
        {IF_EQUAL, 0, each ? 0 : 1, third},
        {RETURN, 0, 0, ERRNO | 22},
        {RETURN, 0, 0, ALLOW},
    };
    struct {
        unsigned short n;
        void *code;
    } program = {sizeof code / sizeof *code, code};
    CHECK("init", CALL(cuInit, 0u), 0);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_SET_SECCOMP, 2 /* SECCOMP_MODE_FILTER */, &program))
        printf("guest: no seccomp\n"), exit(1);
}

/* Tries again at each SIGUSR1. */
void again(void)
{
    sigset_t set;
    int number;
    dptr p;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (puts("held"); fflush(stdout) == 0 && sigwait(&set, &number) == 0;)
        puts(linear(1, &p) == OUT_OF_MEMORY ? "refused" : "allocated");
}

/* Green contexts are parts of the primary one, which lives as long as one of them. */
static void green(void)
{
    dptr p, more;
    void *a = NULL, *b = NULL, *in_it = NULL;
    unsigned long long before = available();
    CHECK("create", CALL(cuGreenCtxCreate, &a, NULL, 0, 1u), 0);
    CHECK("convert", CALL(cuCtxFromGreenCtx, &in_it, a), 0);
    CALL(cuCtxSetCurrent, in_it);
    CHECK("in it", linear(FITS_MIB * MIB, &p), 0);
    CHECK("release", CALL(cuDevicePrimaryCtxRelease_v2, 0), 0);
    CHECK("alive", linear(FITS_MIB * MIB, &more), OUT_OF_MEMORY);
    CHECK("second", CALL(cuGreenCtxCreate, &b, NULL, JUNK, 1u), 0);
    CHECK("destroy", CALL(cuGreenCtxDestroy, a), 0);
    CALL(cuCtxSetCurrent, b);
    CHECK("alive", linear(FITS_MIB * MIB, &more), OUT_OF_MEMORY);
    CHECK("destroy", CALL(cuGreenCtxDestroy, b), 0);
    CHECK("again", CALL(cuGreenCtxCreate, &a, NULL, 0, 1u), 0);
    CALL(cuCtxSetCurrent, a);
    CHECK("nothing left", available(), before);
}

/* Memory that was made is counted: no more of it fits. */
static void full(const char *what, bool is)
{
    dptr more = 0;
    CHECK(what, linear(FITS_MIB * MIB, &more), is ? OUT_OF_MEMORY : 0);
    if (!is)
        CHECK(what, linear_free(more), 0);
}

struct map_info {
    int type;
    dptr array, place[5];
    int operation, handle_type;
    dptr h;
    unsigned long long offset;
    unsigned devices, flags, reserved[2];
};

static void shared(dptr memory)
{
    int fd = -1;
    dptr again = 0, p = 0;
    struct ipc_handle h;
    CHECK("export", CALL(cuMemExportToShareableHandle, &fd, memory, 1, 0ull), 0);
    CHECK("import", CALL(cuMemImportFromShareableHandle, &again, (void *)(size_t)fd, 1),
          0);
    close(fd);
    CHECK("release", physical_free(memory), 0);
    full("imported", true);
    CHECK("map", map_memory(MAPPED, FITS_MIB * MIB, again), 0);
    CHECK("release", physical_free(again), 0);
    full("import mapped", true);
    CHECK("unmap", unmap_memory(MAPPED, FITS_MIB * MIB), 0);
    full("import ended", false);
    CHECK("linear", linear(FITS_MIB * MIB, &p), 0);
    CHECK("ipc", CALL(cuIpcGetMemHandle, &h, p), 0);
    CHECK("open", CALL(cuIpcOpenMemHandle_v2, &again, h, 1u), 0);
    CHECK("free", linear_free(p), 0);
    full("opened", true);
    CHECK("close", CALL(cuIpcCloseMemHandle, again), 0);
    full("closed", false);
}

static dptr new_memory(void)
{
    dptr memory = 0;
    CHECK("memory", physical(FITS_MIB * MIB, &memory), 0);
    return memory;
}

static void multicast(bool by_address)
{
    dptr mc = 0, memory = new_memory();
    CHECK("create", CALL(cuMulticastCreate, &mc, NULL), 0);
    if (by_address) {
        CHECK("map", map_memory(MAPPED, FITS_MIB * MIB, memory), 0);
        CHECK("bind",
              CALL(cuMulticastBindAddr, mc, (size_t)0, (dptr)MAPPED,
                   (size_t)(FITS_MIB * MIB), 0ull),
              0);
        CHECK("unmap", unmap_memory(MAPPED, FITS_MIB * MIB), 0);
    } else {
        CHECK("bind",
              CALL(cuMulticastBindMem, mc, (size_t)0, memory, (size_t)0,
                   (size_t)(FITS_MIB * MIB), 0ull),
              0);
    }
    CHECK("release", physical_free(memory), 0);
    full("bound", true);
    if (!by_address) {
        CHECK("unbind",
              CALL(cuMulticastUnbind, mc, 0, (size_t)0, (size_t)(FITS_MIB * MIB)), 0);
        full("unbound", false);
    }
    CHECK("release", physical_free(mc), 0);
    full("object released", false);
}

static void sparse(void)
{
    struct desc3 d = {1 << 14, 1 << 14, 1, FLOAT, 4, 0x40};
    dptr array = 0;
    CHECK("array", CALL(cuArray3DCreate_v2, &array, &d), 0);
    for (int end = 0; end < 2; end++) {
        struct map_info map = {.array = array, .operation = 1, .h = new_memory()};
        CHECK("map", CALL(cuMemMapArrayAsync, &map, JUNK | 1, stream), 0);
        CHECK("release", physical_free(map.h), 0);
        full("tile", true);
        map.operation = 2;
        ((unsigned *)map.place)[1] = 0xabcd; /* between the fields */
        if (end)
            CHECK("destroy", CALL(cuArrayDestroy, array), 0);
        else
            CHECK("unmap", CALL(cuMemMapArrayAsync, &map, JUNK | 1, stream), 0);
        full("unmapped", false);
    }
}

/* Memory counts until the last reference to it is gone, and then no more. */
static void references(void)
{
    unsigned long long before = available();
    shared(new_memory());
    multicast(false);
    multicast(true);
    sparse();
    CHECK("left", available(), before);
}

/* 50 times 20 MiB and its end one after the other need 20 MiB; side by side they need all. */
static void peaks(void)
{
    enum { TIMES = 50, EACH_MIB = 20 };
    unsigned long long before = available();
    dptr p = 0, exec = 0;
    void *graph = NULL, *s = (void *)1, *last = NULL, *side = NULL;
    CALL(cuStreamBeginCapture, s, 0);
    for (int i = 0; i < TIMES; i++) {
        CHECK("captured", CALL(cuMemAllocAsync, &p, (size_t)(EACH_MIB * MIB), s), 0);
        CHECK("captured", CALL(cuMemFreeAsync, p, s), 0);
    }
    CALL(cuStreamEndCapture, s, &graph);
    CHECK("captured", available(), before - EACH_MIB * MIB);
    CHECK("captured", launch(0, graph, 0, &exec), 0);
    CHECK("captured", node_trim(exec), 0);
    CHECK("captured", linear(LIMIT_MIB * MIB - FAKE_CONTEXT, &p), 0);
    CHECK("captured", linear_free(p), 0);
    graph = new_graph();
    for (int i = 0; i < TIMES; i++) {
        struct alloc_node a = {.pool = {.type = 1, .location = 1},
                               .bytes = EACH_MIB * MIB};
        CHECK("chain",
              CALL(cuGraphAddMemAllocNode, &last, graph, &last, (size_t)(i > 0), &a), 0);
        CHECK("chain",
              CALL(cuGraphAddMemFreeNode, &last, graph, &last, (size_t)1, a.pointer), 0);
    }
    CHECK("chain", available(), before - EACH_MIB * MIB);
    struct alloc_node a = {.pool = {.type = 1, .location = 1}, .bytes = EACH_MIB * MIB};
    for (int i = 0; i < 3; i++)
        CHECK("side", CALL(cuGraphAddMemAllocNode, &side, graph, NULL, (size_t)0, &a),
              i < 2 ? 0 : OUT_OF_MEMORY);
    CHECK("chain", launch(0, graph, 1, &exec), 0);
    CHECK("chain", node_trim(exec), 0);
    CHECK("all", linear(LIMIT_MIB * MIB - FAKE_CONTEXT, &p), 0);
    CHECK("all", linear_free(p), 0);
}

/* Blocks and planes by their real size. */
static void formats(void)
{
    struct desc2 bc1 = {8192, 8192, 0x91, 4}, nv12 = {4096, 2048, 0xb0, 3};
    unsigned long long before = available();
    dptr a = 0;
    CHECK("BC1", CALL(cuArrayCreate_v2, &a, &bc1), 0);
    CHECK("BC1", available(), before - 32 * MIB);
    CHECK("BC1", array_free(a), 0);
    CHECK("NV12", CALL(cuArrayCreate_v2, &a, &nv12), 0);
    CHECK("NV12", available(), before - 12 * MIB);
    CHECK("NV12", array_free(a), 0);
    struct desc2 planes = {4096, 2048, 0x53, 3}; /* 4:2:0, as NV12 */
    CHECK("0x53", CALL(cuArrayCreate_v2, &a, &planes), 0);
    CHECK("0x53", available(), before - 12 * MIB);
    CHECK("0x53", array_free(a), 0);
}

/* A driver of the future has a function of another version: the program gets it. */
static void future(void)
{
    dptr p = 0;
    unsigned long long before = available();
    CHECK("v2", CALL(cuMemCreate_v2, (size_t)(FITS_MIB * MIB), &p), 0);
    CHECK("v2", p != 0, 1);
    CHECK("not counted", available() <= before, 1);
    CHECK("v2", physical_free(p), 0);
    CHECK("known", linear(2 * LIMIT_MIB * MIB, &p), OUT_OF_MEMORY);
}

/* A second card with a limit of its own: the memory is that of the stream, or of the pool. */
static void streams(void)
{
    void *one = NULL, *on_one = NULL, *of_one = NULL;
    struct {
        int type, id;
    } where = {1, 1};
    dptr p = 0, q = 0;
    unsigned long long before = available(), before_one;
    CHECK("retain", CALL(cuDevicePrimaryCtxRetain, &one, 1), 0);
    CALL(cuCtxSetCurrent, one);
    before_one = available();
    /* Two contexts with one handle, one after the other. */
    void *part = NULL, *again = NULL;
    for (int device = 0; device < 2; device++) {
        CHECK("green", CALL(cuGreenCtxCreate, device ? &again : &part, NULL, device, 1u),
              0);
        CALL(cuCtxSetCurrent, device ? again : part);
        CHECK("green", linear(MIB, &p), 0);
        CALL(cuCtxSetCurrent, device ? one : context);
        CHECK("green", available(), (device ? before_one : before) - MIB);
        CHECK("green", linear_free(p), 0);
        CHECK("green", CALL(cuGreenCtxDestroy, device ? again : part), 0);
    }
    CHECK("one handle", part == again, 1);
    CALL(cuCtxSetCurrent, one);
    CHECK("stream", CALL(cuStreamCreate, &on_one, 0u), 0);
    CALL(cuCtxSetCurrent, context);
    CHECK("stream", CALL(cuMemAllocAsync, &p, (size_t)(FITS_MIB * MIB), on_one), 0);
    CHECK("stream", CALL(cuMemAllocAsync, &q, (size_t)(FITS_MIB * MIB), on_one),
          OUT_OF_MEMORY);
    CHECK("stream", available(), before);
    CHECK("pool", CALL(cuDeviceGetDefaultMemPool, &of_one, 1), 0);
    CHECK("pool",
          CALL(cuMemAllocFromPoolAsync, &q, (size_t)(FITS_MIB * MIB), of_one, NULL),
          OUT_OF_MEMORY);
    CALL(cuCtxSetCurrent, one);
    CHECK("counted", available(), before_one - FITS_MIB * MIB);
    CHECK("free", CALL(cuMemFreeAsync, p, on_one), 0);
    CHECK("free", CALL(cuStreamSynchronize, on_one), 0);
    CALL(cuCtxSetCurrent, context);
    CHECK("pool", CALL(cuMemGetDefaultMemPool, &of_one, &where, 1), 0);
    CHECK("pool",
          CALL(cuMemAllocFromPoolAsync, &q, (size_t)(FITS_MIB * MIB), of_one, NULL), 0);
    CHECK("counted", available(), before);
}

/* 132 x 2048 stacks. A larger one needs 66 MiB for each 256 bytes. */
static void settings(void)
{
    unsigned long long before = available();
    CHECK("stack", CALL(cuCtxSetLimit, 0, 1024ul + 256), OUT_OF_MEMORY);
    CHECK("stack", CALL(cuCtxSetLimit, 0, 1024ul + 64), 0);
    CHECK("stack", available(), before - 64ull * 132 * 2048);
    CHECK("heap", CALL(cuCtxSetLimit, JUNK | 2, FITS_MIB * MIB), 0);
    CHECK("heap", CALL(cuCtxSetLimit, JUNK | 2, 8192 * MIB), OUT_OF_MEMORY);
    CHECK("fifo", CALL(cuCtxSetLimit, 1, 8 * MIB), OUT_OF_MEMORY);
    CHECK("heap", CALL(cuCtxSetLimit, 2, (size_t)MIB), 0);
    CHECK("fifo", CALL(cuCtxSetLimit, 1, 8 * MIB), 0);
    CHECK("stack", CALL(cuCtxSetLimit, 0, (size_t)1024), 0);
    CHECK("left", available(), before - 9 * MIB);
    CHECK("reset", CALL(cuDevicePrimaryCtxReset_v2, 0), 0);
    begin();
    CHECK("reset", available(), before);
}

/* Variables of modules. */
static void modules(void)
{
    unsigned long long before = available();
    void *m = NULL;
    const char *large = "globals 4294967296", *fits = "globals 41943040";
    CHECK("large", CALL(cuModuleLoadData, &m, large), OUT_OF_MEMORY);
    CHECK("undone", available(), before);
    CHECK("fits", CALL(cuModuleLoadData, &m, fits), 0);
    CHECK("counted", available(), before - FITS_MIB * MIB);
    CHECK("unload", CALL(cuModuleUnload, m), 0);
    CHECK("fits", CALL(cuModuleLoadDataEx, &m, fits, 0u, NULL, NULL), 0);
    CHECK("unload", CALL(cuModuleUnload, m), 0);
    CHECK("fits", CALL(cuModuleLoadFatBinary, &m, fits), 0);
    CHECK("unload", CALL(cuModuleUnload, m), 0);
    CHECK("fits", CALL(cuLibraryLoadData, &m, fits, NULL, NULL, 0u, NULL, NULL, 0u), 0);
    CHECK("counted", available(), before - FITS_MIB * MIB);
    CHECK("unload", CALL(cuLibraryUnload, m), 0);
    CHECK("unloaded", available(), before);
}

/* A module without variables costs little, whatever a neighbor allocates meanwhile. */
static void loads(void)
{
    dptr p;
    void *m = NULL;
    CHECK("fits", CALL(cuModuleLoadData, &m, "globals 1024"), 0);
    CHECK("fits", linear(FITS_MIB * MIB, &p), 0);
}

/* Variables count while a neighbor frees more, or with a first context beside a neighbor's. */
static void module_beside(void)
{
    unsigned long long before = available();
    void *m = NULL;
    CHECK("fits", CALL(cuModuleLoadData, &m, "globals 41943040"), 0);
    CHECK("counted", available(), before - FITS_MIB * MIB);
    CHECK("large", CALL(cuModuleLoadData, &m, "globals 4294967296"), OUT_OF_MEMORY);
    CHECK("undone", available(), before - FITS_MIB * MIB);
}

/* What kernels that launch kernels need: MiB for each level, KiB for each launch. */
static void launches(void)
{
    unsigned long long before = available();
    CHECK("depth", CALL(cuCtxSetLimit, 3, 2ul + LIMIT_MIB), OUT_OF_MEMORY);
    CHECK("depth", CALL(cuCtxSetLimit, JUNK | 3, 2ul + 4), 0);
    CHECK("depth", available(), before - 4 * MIB);
    CHECK("depth", CALL(cuCtxSetLimit, 3, 2ul), 0);
    CHECK("depth", CALL(cuCtxSetLimit, 3, 2ul + 4), 0);
    CHECK("depth", available(), before - 4 * MIB);
    CHECK("launches", CALL(cuCtxSetLimit, 4, 2048ul + LIMIT_MIB * 1024), OUT_OF_MEMORY);
    CHECK("launches", CALL(cuCtxSetLimit, 4, 2048ul + FITS_MIB * 1024), 0);
    full("launches", true);
    CHECK("reset", CALL(cuDevicePrimaryCtxReset_v2, 0), 0);
    begin();
    CHECK("reset", available(), before);
}

/* Memory of streams of device 1 counts there, or is refused with what the driver answers. */
static void green_stream(void)
{
    void *one = NULL, *part = NULL, *on_one = NULL;
    dptr p = 0, q = 0;
    unsigned long long before = available(), before_one;
    bool refused = getenv("GUEST_REFUSED") != NULL;
    CHECK("retain", CALL(cuDevicePrimaryCtxRetain, &one, 1), 0);
    CALL(cuCtxSetCurrent, one);
    before_one = available();
    for (int green = 0; green < 2; green++) {
        CALL(cuCtxSetCurrent, one);
        if (green) {
            CHECK("green", CALL(cuGreenCtxCreate, &part, NULL, 1, 1u), 0);
            CHECK("stream", CALL(cuGreenCtxStreamCreate, &on_one, part, 1u, 0), 0);
        } else {
            CHECK("stream", CALL(cuStreamCreate, &on_one, 0u), 0);
        }
        CALL(cuCtxSetCurrent, context);
        CHECK("stream", CALL(cuMemAllocAsync, &p, (size_t)(FITS_MIB * MIB), on_one),
              refused ? NOT_SUPPORTED : 0);
        if (refused)
            continue;
        CHECK("more", CALL(cuMemAllocAsync, &q, (size_t)(FITS_MIB * MIB), on_one),
              OUT_OF_MEMORY);
        CHECK("card 0", available(), before);
        CALL(cuCtxSetCurrent, one);
        CHECK("card 1", available(), before_one - FITS_MIB * MIB);
        CHECK("free", CALL(cuMemFreeAsync, p, on_one), 0);
        CHECK("free", CALL(cuStreamSynchronize, on_one), 0);
        CHECK("card 1", available(), before_one);
    }
}

static dptr import_orphan(void);

/* Calls after which the library asks a query that the driver refuses. */
static void lack(void)
{
    dptr p = 0;
    void *m = NULL, *s = (void *)1, *graph = NULL;
    const char *what = getenv("FAKE_CUDA_REFUSES");
    if (strstr(what, "Limit") || strstr(what, "Attribute"))
        CHECK(what, CALL(cuCtxSetLimit, 0, 1024ul + 16), 0);
    if (strstr(what, "Properties"))
        CHECK(what, map_memory(MAPPED, FITS_MIB * MIB, import_orphan()), 0);
    if (strstr(what, "Info_v2"))
        CHECK(what, CALL(cuModuleLoadData, &m, "globals 1048576"), 0);
    if (strstr(what, "Capture")) {
        CALL(cuStreamBeginCapture, s, 0);
        CHECK(what, CALL(cuMemAllocAsync, &p, (size_t)MIB, s), 0);
        CALL(cuStreamEndCapture, s, &graph);
    }
    if (strstr(what, "Pool"))
        CHECK(what, CALL(cuMemAllocAsync, &p, (size_t)MIB, NULL), 0);
}

static void shorten(const char *state)
{
    dptr p, more;
    CHECK("fits", linear(10 * MIB, &p), 0);
    CHECK("truncate", (unsigned)truncate(state, 0), 0);
    usleep(10000); /* the library looks at the file each millisecond */
    CHECK("short", linear(1, &more), OUT_OF_MEMORY);
    CHECK("short", physical(MIB, &more), OUT_OF_MEMORY);
    CHECK("short", linear_free(p), 0);
    CHECK("short", available() <= LIMIT_MIB * MIB, 1);
}

/* Imports memory that was released after it was exported. */
static dptr import_orphan(void)
{
    int fd = -1;
    dptr memory = new_memory(), again = 0;
    CHECK("export", CALL(cuMemExportToShareableHandle, &fd, memory, 1, 0ull), 0);
    CHECK("release", physical_free(memory), 0);
    CHECK("import", CALL(cuMemImportFromShareableHandle, &again, (void *)(size_t)fd, 1),
          0);
    close(fd);
    return again;
}

static void orphan(void)
{
    dptr again = import_orphan();
    CHECK("map", map_memory(MAPPED, FITS_MIB * MIB, again), 0);
    CHECK("release", physical_free(again), 0);
    full("orphan", true);
    CHECK("unmap", unmap_memory(MAPPED, FITS_MIB * MIB), 0);
    full("orphan unmapped", false);
}

static void orphan_beside(void)
{
    dptr again = import_orphan(), memory = new_memory();
    CHECK("map", map_memory(MAPPED, FITS_MIB * MIB, again), OUT_OF_MEMORY);
    CHECK("release", physical_free(memory), 0);
    CHECK("map", map_memory(MAPPED, FITS_MIB * MIB, again), 0);
}

int attack_early(const char *what)
{
    if (strcmp(what, "early") == 0)
        early();
    else if (strcmp(what, "files") == 0)
        files();
    else
        return -1;
    return failures ? 1 : 0;
}

int attack(const char *what, char **argv)
{
    static const struct {
        const char *what;
        void (*run)(void);
    } attacks[] = {{"green", green},
                   {"references", references},
                   {"peaks", peaks},
                   {"formats", formats},
                   {"future", future},
                   {"streams", streams},
                   {"settings", settings},
                   {"modules", modules},
                   {"loads", loads},
                   {"module-beside", module_beside},
                   {"launches", launches},
                   {"green-stream", green_stream},
                   {"lack", lack},
                   {"orphan", orphan},
                   {"orphan-beside", orphan_beside}};
    for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++)
        if (strcmp(attacks[i].what, what) == 0)
            return attacks[i].run(), 0;
    return strcmp(what, "shorten") == 0 ? (shorten(argv[3]), 0) : -1;
}
