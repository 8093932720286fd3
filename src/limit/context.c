/* SPDX-License-Identifier: Apache-2.0 */
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

/* The dynamic linker can wait for a thread that waits for a context, so no lock is held. */
static void load_nvml(void)
{
    struct elf_library l;
    void *(*open)(const char *, int) =
        resolve_real(CALL_nvmlInit_v2) ? NULL
                                       : (__typeof__(open))elf_next(NULL, "dlopen", &l);
    if (open)
        open("libnvidia-ml.so.1", 2 /* RTLD_NOW */);
}

static void look(struct look *l, const char *uuid)
{
    uint64_t device;
    nvmlMemory_t memory;
    *l = (struct look){.known = false};
    if (DRIVER(nvmlInit_v2) != NVML_SUCCESS)
        return;
    l->known =
        DRIVER(nvmlDeviceGetHandleByUUID, WORD(uuid), WORD(&device)) == NVML_SUCCESS &&
        DRIVER(nvmlDeviceGetMemoryInfo, device, WORD(&memory)) == NVML_SUCCESS;
    l->used = l->known ? memory.used : 0;
    enum call list = resolve_real(CALL_nvmlDeviceGetComputeRunningProcesses_v3)
                         ? CALL_nvmlDeviceGetComputeRunningProcesses_v3
                         : CALL_nvmlDeviceGetComputeRunningProcesses_v2;
    const uint64_t words[LIMIT_WORDS] = {device, WORD(&l->n), WORD(l->processes)};
    l->n = LOOK_PROCESSES;
    if (!l->known || resolve_call(list, words) != NVML_SUCCESS)
        l->n = 0;
    DRIVER(nvmlShutdown);
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

/* The least that the context of this process can be, if it is not known which process it is: of
 * several newcomers any can be it, and what others took meanwhile is theirs. */
static uint64_t least(const struct look *before, const struct look *after)
{
    uint64_t newest = UINT64_MAX, others = 0;
    for (unsigned i = 0; i < after->n; i++) {
        uint32_t pid = after->processes[i].pid;
        if (has(before, pid))
            others += minus(bytes_of(after, pid), bytes_of(before, pid));
        else
            newest = smaller(newest, bytes_of(after, pid));
    }
    return smaller(newest, minus(minus(after->used, before->used), others));
}

/* -- creation -- */

struct creation {
    struct account a;
    struct look before;
    uint64_t counted; /* what the process had before */
    long lock;        /* of the pod, by a descriptor of the state */
    bool locked;
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

static CUresult creation_begin(struct creation *c)
{
    LIMIT_RESERVE(&c->a, __atomic_load_n(&file_of(&c->a)->context, __ATOMIC_RELAXED));
    lock_pod(c);
    c->counted = counted(&c->a);
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
        bytes = least(&c->before, &after);
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

/* `destroy` destroys it again, with `handle`. */
static CUresult creation_end(struct creation *c, CUresult rc, uint64_t key,
                             enum call destroy, uint64_t handle)
{
    struct account *a = &c->a;
    struct process *p = a->process;
    uint64_t bytes = rc == CUDA_SUCCESS ? measure(c) : a->bytes;
    if (bytes > a->bytes && account_reserve(a, bytes - a->bytes) != CUDA_SUCCESS) {
        resolve_call(destroy, (const uint64_t[LIMIT_WORDS]){handle});
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (c->lock >= 0)
        sys_close(c->lock);
    a->context = key;
    rc = account_end(a, rc, KIND_CONTEXT, &key);
    sys_lock(&p->lock);
    struct entry *e =
        rc == CUDA_SUCCESS ? table_find(&p->table, KIND_CONTEXT, key) : NULL;
    if (e) {
        process_release_locked(p, a->card, e->bytes - bytes);
        e->bytes = bytes;
        count_context(p, a->card, bytes, 0);
    }
    sys_unlock(&p->lock);
    return rc;
}

/* The first parameter is where to write the context, word `at` the device. */
CUresult context_create(enum call call, const uint64_t *words, int at)
{
    struct creation c;
    if (!account_begin_device(&c.a, (CUdevice)words[at]))
        return resolve_call(call, words);
    load_nvml();
    CUresult rc = creation_begin(&c);
    if (rc != CUDA_SUCCESS)
        return rc;
    rc = resolve_call(call, words);
    uint64_t key = rc == CUDA_SUCCESS ? word_at(words[0]) : 0;
    return creation_end(&c, rc, key, CALL_cuCtxDestroy_v2, key);
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
            account_gone(p, &e);
            if (e.kind == KIND_CONTEXT && e.card >= 0)
                count_context(p, e.card, 0, e.bytes);
        }
    __atomic_fetch_add(&p->contexts_ended, 1, __ATOMIC_RELEASE);
}

CUresult context_destroy(enum call call, const uint64_t *words)
{
    struct process *p = account_process();
    if (!p)
        return resolve_call(call, words);
    sys_lock(&p->lock);
    CUresult rc = resolve_call(call, words);
    if (words[0] && rc != CUDA_ERROR_INVALID_VALUE && rc != CUDA_ERROR_INVALID_CONTEXT &&
        rc != CUDA_ERROR_NOT_INITIALIZED)
        ended(p, words[0]);
    sys_unlock(&p->lock);
    return rc;
}

/* -- primary contexts: one of a device, which users and green contexts keep alive -- */

static bool is_counted(struct process *p, CUdevice device)
{
    sys_lock(&p->lock);
    bool is = p->primary[device] &&
              table_find(&p->table, KIND_CONTEXT, p->primary[device]) != NULL;
    sys_unlock(&p->lock);
    return is;
}

/* Makes the primary context of the device, word `at`, if it is not there: by itself, or for the
 * green context that is written to the first parameter. */
CUresult context_retain(enum call call, const uint64_t *words, int at)
{
    CUdevice device = (CUdevice)words[at];
    bool green = call == CALL_cuGreenCtxCreate;
    struct creation c;
    uint64_t key = 0;
    if (device < 0 || device >= PROCESS_DEVICES || !account_begin_device(&c.a, device))
        return resolve_call(call, words);
    struct process *p = c.a.process;
    if (!is_counted(p, device))
        load_nvml();
    sys_lock(&p->primary_lock);
    CUresult rc;
    if (is_counted(p, device)) {
        rc = resolve_call(call, words);
    } else if ((rc = creation_begin(&c)) == CUDA_SUCCESS) {
        rc = resolve_call(call, words);
        /* The handle of the primary context, which is active now. */
        if (rc == CUDA_SUCCESS &&
            DRIVER(cuDevicePrimaryCtxRetain, WORD(&key), device) == CUDA_SUCCESS)
            DRIVER(cuDevicePrimaryCtxRelease_v2, device);
        uint64_t made =
            green && rc == CUDA_SUCCESS ? word_at(words[0]) : (uint64_t)device;
        rc = creation_end(
            &c, rc, key,
            green ? CALL_cuGreenCtxDestroy : CALL_cuDevicePrimaryCtxRelease_v2, made);
        p->primary[device] = rc == CUDA_SUCCESS ? key : 0;
    }
    sys_unlock(&p->primary_lock);
    return rc;
}

/* Asks the driver which primary contexts the call has ended. */
CUresult context_release(enum call call, const uint64_t *words)
{
    struct process *p = account_process();
    if (!p)
        return resolve_call(call, words);
    sys_lock(&p->primary_lock);
    sys_lock(&p->lock);
    CUresult rc = resolve_call(call, words);
    for (CUdevice d = 0; d < PROCESS_DEVICES; d++) {
        unsigned flags;
        int active = 1;
        if (p->primary[d] &&
            DRIVER(cuDevicePrimaryCtxGetState, d, WORD(&flags), WORD(&active)) ==
                CUDA_SUCCESS &&
            !active) {
            ended(p, p->primary[d]);
            p->primary[d] = 0;
        }
    }
    sys_unlock(&p->lock);
    sys_unlock(&p->primary_lock);
    return rc;
}

/* The driver can use the handle of its context for one of another card. */
CUresult context_destroy_green(enum call call, const uint64_t *words)
{
    uint64_t part;
    struct process *p = account_process();
    if (p && DRIVER(cuCtxFromGreenCtx, WORD(&part), words[0]) == CUDA_SUCCESS) {
        sys_lock(&p->lock);
        struct entry *e = table_find(&p->table, KIND_CONTEXT, part);
        if (e && e->a)
            table_remove(&p->table, e);
        __atomic_fetch_add(&p->contexts_ended, 1, __ATOMIC_RELEASE);
        sys_unlock(&p->lock);
    }
    return context_release(call, words);
}

/* -- limits of a context: memory of the stack of all resident threads, and of the heap -- */

enum { STACK_SIZE, PRINTF_FIFO_SIZE, MALLOC_HEAP_SIZE, CONTEXT_LIMITS };
enum { MULTIPROCESSORS = 16, THREADS_OF_MULTIPROCESSOR = 39 }; /* CUdevice_attribute */

/* How many stacks the driver has room for: 0 if it does not say. */
static uint64_t resident_threads(void)
{
    CUdevice device;
    int processors = 0, threads = 0;
    if (DRIVER(cuCtxGetDevice, WORD(&device)) != CUDA_SUCCESS ||
        DRIVER(cuDeviceGetAttribute, WORD(&processors), MULTIPROCESSORS, device) !=
            CUDA_SUCCESS ||
        DRIVER(cuDeviceGetAttribute, WORD(&threads), THREADS_OF_MULTIPROCESSOR, device) !=
            CUDA_SUCCESS)
        return 0;
    return (uint64_t)processors * (uint64_t)threads;
}

/* Parameters: limit, value. */
CUresult context_set_limit(enum call call, const uint64_t *words)
{
    int limit = (int)words[0];
    uint64_t value = words[1], before = 0;
    struct account a;
    if (limit < 0 || limit >= CONTEXT_LIMITS || !account_begin(&a) ||
        DRIVER(cuCtxGetLimit, WORD(&before), limit) != CUDA_SUCCESS)
        return resolve_call(call, words);
    uint64_t each = limit == STACK_SIZE ? resident_threads() : 1;
    uint64_t more = minus(value, before), less = minus(before, value);
    LIMIT_RESERVE(&a, times(more, each));
    CUresult rc = resolve_call(call, words);
    struct process *p = a.process;
    sys_lock(&p->lock);
    /* The addresses of contexts are multiples of 8. */
    struct entry *e = rc == CUDA_SUCCESS ? table_add(&p->table, KIND_SETTING,
                                                     a.context | (unsigned)limit)
                                         : NULL;
    if (!e) {
        process_release_locked(p, a.card, a.bytes);
    } else {
        less = smaller(less * each, e->bytes);
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
 * for this process; if NVML lists processes and it is not known which one this is, it does not count.
 */

enum { SURELY_OWN = 8 << 20 };

static uint64_t available(void)
{
    size_t now = 0, total;
    return DRIVER(cuMemGetInfo_v2, WORD(&now), WORD(&total)) == CUDA_SUCCESS ? now : 0;
}

/* The bytes of the variables. `had`: what was available and counted before. */
static uint64_t taken(const struct account *a, uint64_t had, uint64_t had_counted)
{
    uint64_t bytes = minus(minus(had, available()), minus(counted(a), had_counted));
    uint32_t pid = a->process->nvml_pid;
    struct look now;
    if (bytes <= SURELY_OWN)
        return bytes;
    load_nvml();
    look(&now, file_of(a)->uuid);
    if (now.n && !pid) /* the rest is what scv-agent corrects */
        return SURELY_OWN;
    uint64_t own = minus(bytes_of(&now, pid), counted(a));
    return has(&now, pid) && own < bytes ? own : bytes;
}

/* The first parameter is where to write the module or library. */
CUresult context_load(enum call call, const uint64_t *words, int unload)
{
    struct account a;
    if (!account_begin(&a))
        return resolve_call(call, words);
    LIMIT_RESERVE(&a, 0); /* refuses a card without a limit before it is used */
    uint64_t had_counted = counted(&a), had = available();
    CUresult rc = resolve_call(call, words);
    uint64_t bytes = rc == CUDA_SUCCESS ? taken(&a, had, had_counted) : 0;
    if (!bytes)
        return rc;
    if (account_reserve(&a, bytes) != CUDA_SUCCESS) {
        resolve_call((enum call)unload, (const uint64_t[LIMIT_WORDS]){word_at(words[0])});
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return account_end(&a, rc, KIND_MODULE, (const uint64_t *)words[0]);
}
