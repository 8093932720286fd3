/* SPDX-License-Identifier: Apache-2.0 */
#include "limit/calls.h"
#include "limit/limit.h"
#include "limit/sys.h"

#include <fcntl.h>

/*
 * Contexts. The driver takes memory for each context that a process makes, and does not say how
 * much: what NVML shows before and after is measured. A context beyond the limit is destroyed. A
 * destroyed context frees its allocations.
 */

/* -- what NVML shows -- */

enum { LOOK_PROCESSES = 128, WAIT_MS = 20000 };
#define CONTEXT_MAX (2ull << 30) /* more is somebody else's allocation */

/* A card at one moment. */
struct look {
    bool known;
    uint64_t used; /* of the card, by all */
    unsigned n;
    nvmlProcess_v2_t processes[LOOK_PROCESSES];
};

/* Loads NVML. The dynamic linker can wait for a thread that waits for a context, so no lock is
 * held. */
static bool open_nvml(void)
{
    struct elf_library l;
    __typeof__(&nvmlInit_v2) init = DRIVER(nvmlInit_v2);
    if (!init) {
        void *(*open)(const char *, int) = (__typeof__(open))elf_next(NULL, "dlopen", &l);
        if (!open || !open("libnvidia-ml.so.1", 2 /* RTLD_NOW */))
            return false;
        init = DRIVER(nvmlInit_v2);
    }
    return init && init() == NVML_SUCCESS;
}

static void close_nvml(void)
{
    __typeof__(&nvmlShutdown) shutdown = DRIVER(nvmlShutdown);
    if (shutdown)
        shutdown();
}

static void look(struct look *l, const char *uuid)
{
    nvmlDevice_t device;
    nvmlMemory_t memory;
    __typeof__(&nvmlDeviceGetHandleByUUID) find = DRIVER(nvmlDeviceGetHandleByUUID);
    __typeof__(&nvmlDeviceGetMemoryInfo) get = DRIVER(nvmlDeviceGetMemoryInfo);
    __typeof__(&nvmlDeviceGetComputeRunningProcesses_v3) list =
        DRIVER(nvmlDeviceGetComputeRunningProcesses_v3);
    if (!list)
        list = DRIVER(nvmlDeviceGetComputeRunningProcesses_v2);
    l->known = find && get && find(uuid, &device) == NVML_SUCCESS &&
               get(device, &memory) == NVML_SUCCESS;
    l->used = l->known ? memory.used : 0;
    l->n = LOOK_PROCESSES;
    if (!l->known || !list || list(device, &l->n, l->processes) != NVML_SUCCESS)
        l->n = 0;
}

/* What the process with this number of NVML uses. */
static uint64_t bytes_of(const struct look *l, uint32_t pid)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < l->n; i++)
        if (l->processes[i].pid == pid && l->processes[i].used != UINT64_MAX)
            bytes += l->processes[i].used;
    return bytes;
}

static bool has(const struct look *l, uint32_t pid)
{
    for (unsigned i = 0; i < l->n; i++)
        if (l->processes[i].pid == pid)
            return true;
    return false;
}

/* The only process that was not there before, or 0. NVML's numbers are those of the host. */
static uint32_t newcomer(const struct look *before, const struct look *after)
{
    uint32_t pid = 0;
    for (unsigned i = 0; i < after->n; i++)
        if (!has(before, after->processes[i].pid)) {
            if (pid && pid != after->processes[i].pid)
                return 0;
            pid = after->processes[i].pid;
        }
    return pid;
}

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* -- creation -- */

struct creation {
    struct account a;
    struct look before;
    uint64_t counted; /* what the process had before */
    long lock;        /* of the pod, by a descriptor of the state */
    bool locked, nvml;
};

static const struct limit_file *file_of(const struct account *a)
{
    return a->process->cards[a->card].file;
}

static uint64_t counted(const struct account *a)
{
    return __atomic_load_n(&a->process->cards[a->card].used, __ATOMIC_RELAXED);
}

/* Two contexts of a pod that are made at the same time could not be distinguished. A process that
 * was stopped meanwhile does not keep others from work. */
static void lock_pod(struct creation *c)
{
    c->lock = sys_open(c->a.process->cards[c->a.card].path, O_RDWR);
    c->locked = false;
    for (int ms = 0; c->lock >= 0 && !c->locked && ms < WAIT_MS; ms++) {
        c->locked = sys_lock_byte(c->lock, LIMIT_SLOTS) >= 0;
        if (!c->locked)
            sys_sleep_ms(1);
    }
}

static bool is_counted(struct process *p, CUdevice device)
{
    sys_lock(&p->lock);
    bool is = p->primary[device] &&
              table_find(&p->table, KIND_CONTEXT, p->primary[device]) != NULL;
    sys_unlock(&p->lock);
    return is;
}

/* False: no limit. Before any lock. NVML is not needed for a primary context that counts. */
static bool creation_prepare(struct creation *c, CUdevice device, bool primary)
{
    if (!account_begin_device(&c->a, device))
        return false;
    c->nvml = c->a.card != CARD_NONE && !(primary && is_counted(c->a.process, device)) &&
              open_nvml();
    return true;
}

static CUresult creation_begin(struct creation *c)
{
    CUresult rc = account_reserve(
        &c->a, __atomic_load_n(&file_of(&c->a)->context, __ATOMIC_RELAXED));
    if (rc != CUDA_SUCCESS && c->nvml)
        close_nvml();
    if (rc != CUDA_SUCCESS)
        return rc;
    lock_pod(c);
    c->counted = counted(&c->a);
    c->before.known = false;
    if (c->nvml)
        look(&c->before, file_of(&c->a)->uuid);
    return CUDA_SUCCESS;
}

/* The bytes that the new context took. What other threads allocated meanwhile is not part. */
static uint64_t measure(struct creation *c)
{
    struct process *p = c->a.process;
    struct look after = {.known = false};
    if (c->before.known)
        look(&after, file_of(&c->a)->uuid);
    if (!after.known)
        return c->a.bytes;
    if (!p->nvml_pid)
        p->nvml_pid = newcomer(&c->before, &after);
    uint64_t bytes =
        minus(bytes_of(&after, p->nvml_pid), bytes_of(&c->before, p->nvml_pid));
    if ((!p->nvml_pid || !bytes) && c->locked)
        bytes = minus(after.used, c->before.used);
    bytes = minus(bytes, minus(counted(&c->a), c->counted));
    return bytes && bytes <= CONTEXT_MAX ? bytes : c->a.bytes;
}

/* Says in the slot how much of its use are contexts. Locked. */
static void count_context(struct process *p, int card, uint64_t more, uint64_t less)
{
    struct card *c = &p->cards[card];
    struct limit_state *s = c->refuses ? NULL : process_state(p, card);
    c->contexts = minus(c->contexts + more, less);
    if (s)
        __atomic_store_n(&s->slots[c->slot].context, c->contexts, __ATOMIC_RELAXED);
}

/* Calls a function of the driver with one parameter, an integer or a pointer: both ABIs pass them
 * alike. */
static void undo(enum call call, uint64_t handle)
{
    CUresult (*real)(uint64_t) = (__typeof__(real))resolve_real(call);
    if (real)
        LIMIT_CALL(real(handle));
}

/* `destroy` destroys it again, with `handle`. */
static CUresult creation_end(struct creation *c, CUresult rc, uint64_t key,
                             enum call destroy, uint64_t handle)
{
    struct account *a = &c->a;
    uint64_t bytes = rc == CUDA_SUCCESS ? measure(c) : a->bytes;
    if (bytes < a->bytes) {
        process_release(a->process, a->card, a->bytes - bytes);
        a->bytes = bytes;
    } else if (bytes > a->bytes && account_reserve(a, bytes - a->bytes) != CUDA_SUCCESS) {
        undo(destroy, handle);
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (c->nvml)
        close_nvml();
    if (c->lock >= 0)
        sys_close(c->lock);
    a->context = key;
    rc = account_end(a, rc, KIND_CONTEXT, key);
    if (rc == CUDA_SUCCESS) {
        sys_lock(&a->process->lock);
        count_context(a->process, a->card, bytes, 0);
        sys_unlock(&a->process->lock);
    }
    return rc;
}

#define CREATE(symbol, ...)                                                              \
    do {                                                                                 \
        LIMIT_REAL(symbol);                                                              \
        struct creation c;                                                               \
        if (!creation_prepare(&c, device, false))                                        \
            return real(__VA_ARGS__);                                                    \
        CUresult rc = creation_begin(&c);                                                \
        if (rc != CUDA_SUCCESS)                                                          \
            return rc;                                                                   \
        rc = LIMIT_CALL(real(__VA_ARGS__));                                              \
        uint64_t key = rc == CUDA_SUCCESS ? (uint64_t)(uintptr_t)*context : 0;           \
        return creation_end(&c, rc, key, CALL_cuCtxDestroy_v2, key);                     \
    } while (0)

LIMIT_EXPORT CUresult cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device)
{
    CREATE(cuCtxCreate, context, flags, device);
}

LIMIT_EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    CREATE(cuCtxCreate_v2, context, flags, device);
}

LIMIT_EXPORT CUresult cuCtxCreate_v3(CUcontext *context, void *affinity, int n,
                                     unsigned flags, CUdevice device)
{
    CREATE(cuCtxCreate_v3, context, affinity, n, flags, device);
}

LIMIT_EXPORT CUresult cuCtxCreate_v4(CUcontext *context, void *params, unsigned flags,
                                     CUdevice device)
{
    CREATE(cuCtxCreate_v4, context, params, flags, device);
}

/* -- the end -- */

/* The context and its memory are gone. Locked, also while the driver destroys it: the driver can
 * give the handle to another thread at once. */
static void ended(struct process *p, uint64_t context)
{
    struct table *t = &p->table;
    for (size_t i = 0; i < t->size; i++)
        while (t->at[i].kind && t->at[i].context == context) {
            struct entry e = t->at[i];
            table_remove(t, &t->at[i]); /* another entry can move here */
            if (e.card < 0)
                continue;
            process_release_locked(p, e.card, e.bytes);
            if (e.kind == KIND_CONTEXT)
                count_context(p, e.card, 0, e.bytes);
        }
    __atomic_fetch_add(&p->contexts_ended, 1, __ATOMIC_RELEASE);
}

#define DESTROY(symbol)                                                                  \
    do {                                                                                 \
        LIMIT_REAL(symbol);                                                              \
        struct process *p = account_process();                                           \
        if (!p)                                                                          \
            return real(context);                                                        \
        sys_lock(&p->lock);                                                              \
        CUresult rc = LIMIT_CALL(real(context));                                         \
        if (context && rc != CUDA_ERROR_INVALID_VALUE &&                                 \
            rc != CUDA_ERROR_INVALID_CONTEXT && rc != CUDA_ERROR_NOT_INITIALIZED)        \
            ended(p, (uint64_t)(uintptr_t)context);                                      \
        sys_unlock(&p->lock);                                                            \
        return rc;                                                                       \
    } while (0)

LIMIT_EXPORT CUresult cuCtxDestroy(CUcontext context)
{
    DESTROY(cuCtxDestroy);
}

LIMIT_EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
    DESTROY(cuCtxDestroy_v2);
}

/* -- primary contexts: one of a device, which users and green contexts keep alive -- */

/* Asks the driver after each release which primary contexts have ended. Locked. */
static void end_primaries(struct process *p)
{
    __typeof__(&cuDevicePrimaryCtxGetState) get = DRIVER(cuDevicePrimaryCtxGetState);
    for (CUdevice d = 0; get && d < PROCESS_DEVICES; d++) {
        unsigned flags;
        int active = 1;
        if (p->primary[d] && LIMIT_CALL(get(d, &flags, &active)) == CUDA_SUCCESS &&
            !active) {
            ended(p, p->primary[d]);
            p->primary[d] = 0;
        }
    }
}

/* The handle of the primary context, which is active. */
static uint64_t primary_of(CUdevice device)
{
    CUcontext context = NULL;
    __typeof__(&cuDevicePrimaryCtxRetain) retain = DRIVER(cuDevicePrimaryCtxRetain);
    __typeof__(&cuDevicePrimaryCtxRelease) release = DRIVER(cuDevicePrimaryCtxRelease_v2);
    resolve_enter();
    if (retain && release && retain(&context, device) == CUDA_SUCCESS)
        release(device);
    resolve_leave();
    return (uint64_t)(uintptr_t)context;
}

/* A call that makes the primary context of `device` if it is not there. `destroy(handle)` takes it
 * back. */
#define USE_PRIMARY(symbol, destroy, handle, ...)                                        \
    do {                                                                                 \
        LIMIT_REAL(symbol);                                                              \
        struct creation c;                                                               \
        if (device < 0 || device >= PROCESS_DEVICES ||                                   \
            !creation_prepare(&c, device, true))                                         \
            return real(__VA_ARGS__);                                                    \
        struct process *p = c.a.process;                                                 \
        sys_lock(&p->primary_lock);                                                      \
        CUresult rc;                                                                     \
        if (is_counted(p, device)) {                                                     \
            rc = LIMIT_CALL(real(__VA_ARGS__));                                          \
            if (c.nvml)                                                                  \
                close_nvml();                                                            \
        } else if ((rc = creation_begin(&c)) == CUDA_SUCCESS) {                          \
            rc = LIMIT_CALL(real(__VA_ARGS__));                                          \
            uint64_t key = rc == CUDA_SUCCESS ? primary_of(device) : 0;                  \
            rc = creation_end(&c, rc, key, CALL_##destroy,                               \
                              rc == CUDA_SUCCESS ? (handle) : 0);                        \
            p->primary[device] = rc == CUDA_SUCCESS ? key : 0;                           \
        }                                                                                \
        sys_unlock(&p->primary_lock);                                                    \
        return rc;                                                                       \
    } while (0)

/* A call after which primary contexts can have ended. */
#define LEAVE_PRIMARY(symbol, ...)                                                       \
    do {                                                                                 \
        LIMIT_REAL(symbol);                                                              \
        struct process *p = account_process();                                           \
        if (!p)                                                                          \
            return real(__VA_ARGS__);                                                    \
        sys_lock(&p->primary_lock);                                                      \
        sys_lock(&p->lock);                                                              \
        CUresult rc = LIMIT_CALL(real(__VA_ARGS__));                                     \
        end_primaries(p);                                                                \
        sys_unlock(&p->lock);                                                            \
        sys_unlock(&p->primary_lock);                                                    \
        return rc;                                                                       \
    } while (0)

LIMIT_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    USE_PRIMARY(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRelease_v2, (uint64_t)device,
                context, device);
}

LIMIT_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    LEAVE_PRIMARY(cuDevicePrimaryCtxRelease, device);
}

LIMIT_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    LEAVE_PRIMARY(cuDevicePrimaryCtxRelease_v2, device);
}

LIMIT_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    LEAVE_PRIMARY(cuDevicePrimaryCtxReset, device);
}

LIMIT_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    LEAVE_PRIMARY(cuDevicePrimaryCtxReset_v2, device);
}

LIMIT_EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *green, void *resources,
                                       CUdevice device, unsigned flags)
{
    USE_PRIMARY(cuGreenCtxCreate, cuGreenCtxDestroy, (uint64_t)(uintptr_t)*green, green,
                resources, device, flags);
}

/* The driver can use the handle of its context for one of another card. */
static void forget_green(CUgreenCtx green)
{
    CUcontext part = NULL;
    struct process *p = account_process();
    __typeof__(&cuCtxFromGreenCtx) get = DRIVER(cuCtxFromGreenCtx);
    if (!p || !get || LIMIT_CALL(get(&part, green)) != CUDA_SUCCESS)
        return;
    sys_lock(&p->lock);
    struct entry *e = table_find(&p->table, KIND_CONTEXT, (uint64_t)(uintptr_t)part);
    if (e && e->a)
        table_remove(&p->table, e);
    __atomic_fetch_add(&p->contexts_ended, 1, __ATOMIC_RELEASE);
    sys_unlock(&p->lock);
}

LIMIT_EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    forget_green(green);
    LEAVE_PRIMARY(cuGreenCtxDestroy, green);
}

/* -- limits of a context: memory of the stack of all resident threads, and of the heap -- */

enum { STACK_SIZE, PRINTF_FIFO_SIZE, MALLOC_HEAP_SIZE, CONTEXT_LIMITS };
enum { MULTIPROCESSORS = 16, THREADS_OF_MULTIPROCESSOR = 39 }; /* CUdevice_attribute */

/* How many stacks the driver has room for: 0 if it does not say. */
static uint64_t resident_threads(void)
{
    CUdevice device;
    int processors = 0, threads = 0;
    __typeof__(&cuCtxGetDevice) get_device = DRIVER(cuCtxGetDevice);
    __typeof__(&cuDeviceGetAttribute) get = DRIVER(cuDeviceGetAttribute);
    if (!get_device || !get || get_device(&device) != CUDA_SUCCESS ||
        get(&processors, MULTIPROCESSORS, device) != CUDA_SUCCESS ||
        get(&threads, THREADS_OF_MULTIPROCESSOR, device) != CUDA_SUCCESS)
        return 0;
    return (uint64_t)processors * (uint64_t)threads;
}

LIMIT_EXPORT CUresult cuCtxSetLimit(int limit, size_t value)
{
    LIMIT_REAL(cuCtxSetLimit);
    __typeof__(&cuCtxGetLimit) get = DRIVER(cuCtxGetLimit);
    struct account a;
    size_t before = 0;
    if (limit < 0 || limit >= CONTEXT_LIMITS || !account_begin(&a) || !get ||
        get(&before, limit) != CUDA_SUCCESS)
        return real(limit, value);
    uint64_t each = limit == STACK_SIZE ? resident_threads() : 1;
    uint64_t more = minus(value, before), less = minus(before, value);
    LIMIT_RESERVE(&a, each && more > UINT64_MAX / each ? UINT64_MAX : more * each);
    CUresult rc = LIMIT_CALL(real(limit, value));
    struct process *p = a.process;
    sys_lock(&p->lock);
    /* The addresses of contexts are multiples of 8. */
    struct entry *e = rc == CUDA_SUCCESS ? table_add(&p->table, KIND_SETTING,
                                                     a.context | (unsigned)limit)
                                         : NULL;
    if (!e) {
        process_release_locked(p, a.card, a.bytes);
    } else {
        less = less * each < e->bytes ? less * each : e->bytes;
        process_release_locked(p, a.card, less);
        e->bytes += a.bytes - less;
        e->card = a.card;
        e->context = a.context;
    }
    sys_unlock(&p->lock);
    return rc;
}

/* -- modules: their variables -- */

/*
 * The size of an image says nothing about its variables, which the driver places when the module
 * is loaded. What the card has less afterwards is counted, except what this process counted
 * meanwhile. Neighbors allocate too, so that a large difference is compared with what NVML shows
 * for this process.
 */

enum { SURELY_OWN = 8 << 20 };

struct loading {
    struct account a;
    uint64_t available, counted;
};

static uint64_t available(void)
{
    size_t now = 0, total;
    __typeof__(&cuMemGetInfo_v2) get = DRIVER(cuMemGetInfo_v2);
    return get && get(&now, &total) == CUDA_SUCCESS ? now : 0;
}

static bool loading_begin(struct loading *l)
{
    if (!account_begin(&l->a))
        return false;
    l->counted = counted(&l->a);
    l->available = available();
    return true;
}

static uint64_t taken(const struct loading *l)
{
    uint64_t bytes =
        minus(minus(l->available, available()), minus(counted(&l->a), l->counted));
    uint32_t pid = l->a.process->nvml_pid;
    struct look now = {.known = false};
    if (bytes <= SURELY_OWN || !pid || !open_nvml())
        return bytes;
    look(&now, file_of(&l->a)->uuid);
    close_nvml();
    uint64_t own = minus(bytes_of(&now, pid), counted(&l->a));
    return has(&now, pid) && own < bytes ? own : bytes;
}

static CUresult loading_end(struct loading *l, CUresult rc, uint64_t key,
                            enum call unload)
{
    uint64_t bytes = rc == CUDA_SUCCESS ? taken(l) : 0;
    if (!bytes)
        return rc;
    if (account_reserve(&l->a, bytes) != CUDA_SUCCESS) {
        undo(unload, key);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return account_end(&l->a, rc, KIND_MODULE, key);
}

#define LOAD(symbol, unload, into, ...)                                                  \
    do {                                                                                 \
        LIMIT_REAL(symbol);                                                              \
        struct loading l;                                                                \
        if (!loading_begin(&l))                                                          \
            return real(__VA_ARGS__);                                                    \
        LIMIT_RESERVE(&l.a, 0); /* refuses a card without a limit before it is used */   \
        CUresult rc = LIMIT_CALL(real(__VA_ARGS__));                                     \
        uint64_t key = rc == CUDA_SUCCESS ? (uint64_t)(uintptr_t) * (into) : 0;          \
        return loading_end(&l, rc, key, CALL_##unload);                                  \
    } while (0)

LIMIT_EXPORT CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    LOAD(cuModuleLoad, cuModuleUnload, module, module, path);
}

LIMIT_EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    LOAD(cuModuleLoadData, cuModuleUnload, module, module, image);
}

LIMIT_EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned n,
                                         int *options, void **values)
{
    LOAD(cuModuleLoadDataEx, cuModuleUnload, module, module, image, n, options, values);
}

LIMIT_EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    LOAD(cuModuleLoadFatBinary, cuModuleUnload, module, module, image);
}

LIMIT_EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *code, int *jit,
                                        void **jit_values, unsigned n_jit, int *options,
                                        void **values, unsigned n)
{
    LOAD(cuLibraryLoadData, cuLibraryUnload, library, library, code, jit, jit_values,
         n_jit, options, values, n);
}

LIMIT_EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path,
                                            int *jit, void **jit_values, unsigned n_jit,
                                            int *options, void **values, unsigned n)
{
    LOAD(cuLibraryLoadFromFile, cuLibraryUnload, library, library, path, jit, jit_values,
         n_jit, options, values, n);
}

LIMIT_EXPORT CUresult cuModuleUnload(CUmodule module)
{
    LIMIT_FREE(cuModuleUnload, KIND_MODULE, (uint64_t)(uintptr_t)module, module);
}

LIMIT_EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
    LIMIT_FREE(cuLibraryUnload, KIND_MODULE, (uint64_t)(uintptr_t)library, library);
}
