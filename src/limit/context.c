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

enum { LOOK_PROCESSES = 128, WAIT_MS = 20000, TRIES = 3 };
#define CONTEXT_MAX (2ull << 30) /* more is somebody else's allocation */

/* A card at one moment. */
struct look {
    bool has_memory,
        has_list;     /* a card that shares the memory of the host has a list only */
    uint64_t used;    /* of the card, by all */
    uint64_t counted; /* what this process had counted */
    unsigned n;
    struct {
        uint64_t used;
        uint32_t pid;
    } processes[LOOK_PROCESSES];
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

/*
 * The processes of the card. The items of _v2 always had this layout, those of _v3 grew in some
 * drivers (535.43 to 535.86). So there is room for larger ones, and how much of the room the driver
 * wrote says how large they are. A list with a process that cannot be is none.
 */
static bool read_list(struct look *l, uint64_t device)
{
    enum { ITEM_WORDS = 8, PID_MAX = 1 << 22 };
    static const uint64_t untouched = 0xa5a5a5a5a5a5a5a5u;
    uint64_t room[LOOK_PROCESSES * ITEM_WORDS];
    size_t end = sizeof room / sizeof *room;
    unsigned n = LOOK_PROCESSES;
    enum call list = resolve_real(CALL_nvmlDeviceGetComputeRunningProcesses_v2)
                         ? CALL_nvmlDeviceGetComputeRunningProcesses_v2
                         : CALL_nvmlDeviceGetComputeRunningProcesses_v3;
    for (size_t i = 0; i < end; i++)
        room[i] = untouched;
    const uint64_t words[LIMIT_WORDS] = {device, WORD(&n), WORD(room)};
    if (resolve_call(list, words) != NVML_SUCCESS || n > LOOK_PROCESSES)
        return false;
    while (end && room[end - 1] == untouched)
        end--;
    size_t items = n && end % n == 0 ? n : LOOK_PROCESSES; /* some clear the whole room */
    size_t item = end / items;
    if (n && (end % items || item < sizeof(nvmlProcess_v2_t) / sizeof *room))
        return false;
    for (unsigned i = 0; i < n; i++) {
        const nvmlProcess_v2_t *p = (const void *)&room[i * item];
        if (!p->pid || p->pid > PID_MAX)
            return false;
        l->processes[l->n].pid = p->pid;
        l->processes[l->n].used = p->used;
        l->n += p->used != UINT64_MAX; /* not available */
    }
    return true;
}

static const struct limit_file *file_of(const struct account *a)
{
    return a->process->cards[a->card].file;
}

static uint64_t counted(const struct account *a)
{
    return __atomic_load_n(&a->process->cards[a->card].used, __ATOMIC_RELAXED);
}

/* The caller holds process_quiet_begin. */
static void look(struct look *l, const struct account *a)
{
    uint64_t device;
    nvmlMemory_t memory[4]; /* the driver's can be larger */
    *l = (struct look){.counted = counted(a)};
    if (DRIVER(nvmlInit_v2) != NVML_SUCCESS)
        return;
    if (DRIVER(nvmlDeviceGetHandleByUUID, WORD(file_of(a)->uuid), WORD(&device)) ==
        NVML_SUCCESS) {
        l->has_memory =
            DRIVER(nvmlDeviceGetMemoryInfo, device, WORD(memory)) == NVML_SUCCESS;
        l->used = l->has_memory ? memory->used : 0;
        l->has_list = read_list(l, device);
        l->n = l->has_list ? l->n : 0;
    }
    DRIVER(nvmlShutdown);
}

/* What the process with this number of NVML uses. */
static uint64_t bytes_of(const struct look *l, uint32_t pid)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < l->n; i++)
        if (l->processes[i].pid == pid)
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

/* Can this be the process that grew between the two? With its first memory on the card it is new
 * in the list, later it is not. */
static bool is_candidate(const struct look *before, const struct look *after,
                         uint32_t pid, bool first)
{
    return first ? !has(before, pid)
                 : bytes_of(after, pid) > bytes_of(before, pid) && has(before, pid);
}

/* Finds the number of this process: it is the only candidate. NVML's numbers are those of the
 * host. What the process counts is at most what NVML shows for it. */
static void find_pid(struct process *p, const struct look *before,
                     const struct look *after, bool first)
{
    uint32_t pid = 0;
    for (unsigned i = 0; i < after->n && !p->nvml_pid; i++) {
        uint32_t is = after->processes[i].pid;
        if (is == pid || !is_candidate(before, after, is, first))
            continue;
        if (pid)
            return;
        pid = is;
    }
    if (pid && bytes_of(after, pid) >= before->counted && before->has_list)
        p->nvml_pid = pid;
}

/* How much `after` is above `before`, less what this process counted meanwhile. */
static uint64_t grown(uint64_t before, uint64_t after, const struct look *b,
                      const struct look *a)
{
    return minus(plus(after, b->counted), plus(before, a->counted));
}

/* What this process took between the two, beside what it counted. `*sure`: NVML shows it for this
 * process alone. Otherwise the least that it can be: of several candidates any can be this
 * process, and what others took meanwhile is theirs. */
static uint64_t own_growth(struct process *p, const struct look *before,
                           const struct look *after, bool first, bool *sure)
{
    uint64_t least = UINT64_MAX, others = 0;
    find_pid(p, before, after, first);
    uint32_t own = p->nvml_pid;
    *sure = own && before->has_list && has(after, own);
    if (*sure)
        return grown(bytes_of(before, own), bytes_of(after, own), before, after);
    for (unsigned i = 0; i < after->n; i++) {
        uint32_t pid = after->processes[i].pid;
        uint64_t more = minus(bytes_of(after, pid), bytes_of(before, pid));
        if (is_candidate(before, after, pid, first))
            least = smaller(least, grown(0, more, before, after));
        else
            others += more;
    }
    uint64_t card = after->has_memory && before->has_memory
                        ? grown(before->used, after->used, before, after)
                        : UINT64_MAX;
    least = smaller(least, card == UINT64_MAX ? card : minus(card, others));
    return least == UINT64_MAX ? 0 : least;
}

/* -- creation -- */

/* Two contexts of a pod that are made at the same time could not be distinguished. A process that
 * was stopped meanwhile does not keep others from work. The descriptor has the lock. */
static long lock_pod(const struct account *a)
{
    long fd = sys_open(a->process->cards[a->card].path, O_RDWR);
    for (int ms = 0; fd >= 0 && ms < WAIT_MS && sys_lock_byte(fd, LIMIT_SLOTS) < 0; ms++)
        sys_sleep_ms(1);
    return fd;
}

static void look_quietly(struct look *l, const struct account *a)
{
    process_quiet_begin(a->process);
    look(l, a);
    process_quiet_end(a->process);
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

static bool has_context(struct process *p, int card)
{
    bool is = false;
    sys_lock(&p->lock);
    for (struct entry *e = NULL; (e = table_next(&p->table, e)) && !is;)
        is = e->kind == KIND_CONTEXT && e->card == card;
    sys_unlock(&p->lock);
    return is;
}

/* Makes a context and measures it. One that does not fit is destroyed with `destroy`. If what was
 * measured can be a neighbor's, it is made again: the least counts. cuCtxDestroy_v2: the first
 * parameter is where the driver writes the context, otherwise the primary one of the device is
 * made. The caller holds context_lock. Writes the context. */
static CUresult create(struct account *a, enum call call, const uint64_t *words,
                       enum call destroy, CUdevice device, uint64_t *key)
{
    struct process *p = a->process;
    struct look before, after;
    uint64_t least = UINT64_MAX;
    bool sure = false, fits = false, first = !has_context(p, a->card);
    LIMIT_RESERVE(a, __atomic_load_n(&file_of(a)->context, __ATOMIC_RELAXED));
    sys_lock(&p->lock);
    account_landed(a);
    sys_unlock(&p->lock);
    long lock = lock_pod(a);
    CUresult rc = CUDA_SUCCESS;
    for (int i = 0; i < TRIES && !fits && !sure; i++) {
        look_quietly(&before, a);
        rc = resolve_call(call, words);
        if (rc != CUDA_SUCCESS)
            break;
        uint64_t made = *key = destroy == CALL_cuDevicePrimaryCtxRelease_v2
                                   ? (uint64_t)device
                                   : word_at(words[0]);
        /* The handle of the primary context, which is active now. */
        if (destroy != CALL_cuCtxDestroy_v2 &&
            DRIVER(cuDevicePrimaryCtxRetain, WORD(key), device) == CUDA_SUCCESS)
            DRIVER(cuDevicePrimaryCtxRelease_v2, device);
        look_quietly(&after, a);
        sure = !(before.has_memory || before.has_list) ||
               !(after.has_memory || after.has_list);
        if (sure && !a->bytes)
            process_uncounted(p, LIMIT_UNCOUNTED, "NVML: how large a context is");
        uint64_t bytes = sure ? a->bytes : own_growth(p, &before, &after, first, &sure);
        least = smaller(least, bytes && bytes <= CONTEXT_MAX ? bytes : a->bytes);
        fits = least <= a->bytes || account_try(a, least - a->bytes);
        if (!fits)
            resolve_call(destroy, (const uint64_t[LIMIT_WORDS]){made});
    }
    if (rc == CUDA_SUCCESS && !fits) {
        process_refused(p, a->card);
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (lock >= 0)
        sys_close(lock);
    a->context = *key;
    rc = account_end(a, rc, KIND_CONTEXT, key);
    sys_lock(&p->lock);
    struct entry *e =
        rc == CUDA_SUCCESS ? table_find(&p->table, KIND_CONTEXT, *key) : NULL;
    if (e) {
        process_release_locked(p, a->card, e->bytes - least);
        e->bytes = least;
        count_context(p, a->card, least, 0);
    }
    sys_unlock(&p->lock);
    return rc;
}

/* The first parameter is where to write the context, word `at` the device. */
CUresult context_create(enum call call, const uint64_t *words, int at)
{
    struct account a;
    uint64_t key = 0;
    CUdevice device = (CUdevice)words[at];
    if (!account_begin_device(&a, device))
        return resolve_call(call, words);
    load_nvml();
    sys_lock(&a.process->context_lock);
    CUresult rc = create(&a, call, words, CALL_cuCtxDestroy_v2, device, &key);
    sys_unlock(&a.process->context_lock);
    return rc;
}

/* -- the end -- */

/* The context and its memory are gone. Locked. The caller holds context_lock over the driver's call
 * too: the driver can give the handle to another thread at once. */
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

/* cuCtxDetach destroys a context that nobody else is attached to. */
CUresult context_destroy(enum call call, const uint64_t *words)
{
    unsigned version;
    struct process *p = account_process();
    if (!p)
        return resolve_call(call, words);
    sys_lock(&p->context_lock);
    CUresult rc = resolve_call(call, words), is = rc;
    if (call == CALL_cuCtxDetach && rc == CUDA_SUCCESS) {
        is = DRIVER(cuCtxGetApiVersion, words[0], WORD(&version));
        is = is == CUDA_ERROR_INVALID_CONTEXT || is == CUDA_ERROR_CONTEXT_IS_DESTROYED
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_INVALID_CONTEXT;
    }
    sys_lock(&p->lock);
    if (words[0] && is != CUDA_ERROR_INVALID_VALUE && is != CUDA_ERROR_INVALID_CONTEXT &&
        is != CUDA_ERROR_NOT_INITIALIZED)
        ended(p, words[0]);
    sys_unlock(&p->lock);
    sys_unlock(&p->context_lock);
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
    struct account a;
    uint64_t key = 0;
    if (device < 0 || device >= PROCESS_DEVICES || !account_begin_device(&a, device))
        return resolve_call(call, words);
    struct process *p = a.process;
    if (!is_counted(p, device))
        load_nvml();
    sys_lock(&p->context_lock);
    CUresult rc;
    if (is_counted(p, device)) {
        rc = resolve_call(call, words);
    } else {
        rc = create(&a, call, words,
                    call == CALL_cuGreenCtxCreate ? CALL_cuGreenCtxDestroy
                                                  : CALL_cuDevicePrimaryCtxRelease_v2,
                    device, &key);
        p->primary[device] = rc == CUDA_SUCCESS ? key : 0;
    }
    sys_unlock(&p->context_lock);
    return rc;
}

/* Asks the driver which primary contexts the call has ended. */
CUresult context_release(enum call call, const uint64_t *words)
{
    struct process *p = account_process();
    if (!p)
        return resolve_call(call, words);
    sys_lock(&p->context_lock);
    CUresult rc = resolve_call(call, words);
    for (CUdevice d = 0; d < PROCESS_DEVICES; d++) {
        unsigned flags;
        int active = 1;
        if (p->primary[d] &&
            DRIVER(cuDevicePrimaryCtxGetState, d, WORD(&flags), WORD(&active)) ==
                CUDA_SUCCESS &&
            !active) {
            sys_lock(&p->lock);
            ended(p, p->primary[d]);
            p->primary[d] = 0;
            sys_unlock(&p->lock);
        }
    }
    sys_unlock(&p->context_lock);
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

/* -- what the driver places unasked: measured as the difference on the card -- */

/*
 * The size of an image says nothing about its variables, which the driver places when the module
 * is loaded. What the card has less afterwards is counted, except what this process counted
 * meanwhile. Neighbors allocate and free too: a difference that is large or negative is undone and
 * made again, and then NVML's answer for this process alone counts. If NVML does not know which
 * process this is, the least of several differences does.
 */

enum { SURELY_OWN = 8 << 20 };

/* What the card has left, and how much this process counts. */
static bool available(const struct account *a, struct look *l, bool with_list,
                      uint64_t *now)
{
    size_t total;
    process_quiet_begin(a->process);
    *l = (struct look){.counted = counted(a)};
    if (with_list)
        look(l, a);
    bool said = DRIVER(cuMemGetInfo_v2, WORD(now), WORD(&total)) == CUDA_SUCCESS;
    process_quiet_end(a->process);
    return said;
}

/* Calls the driver, and reserves what it placed. What does not fit is undone. undo_words: NULL for
 * the handle that the driver wrote to the first parameter. */
static CUresult place(struct account *a, enum call call, const uint64_t *words,
                      enum call undo, const uint64_t *undo_words)
{
    struct process *p = a->process;
    struct look before, after;
    uint64_t had = 0, now = 0, least = UINT64_MAX;
    bool sure = false, with_list = false, fits = false;
    CUresult rc = CUDA_SUCCESS;
    LIMIT_RESERVE(a, 0); /* refuses a card without a limit before it is used */
    sys_lock(&p->lock);
    account_landed(a);
    sys_unlock(&p->lock);
    for (int i = 0; i < TRIES && !fits && !sure; i++) {
        bool said = available(a, &before, with_list, &had);
        if ((rc = resolve_call(call, words)) != CUDA_SUCCESS)
            break;
        said = available(a, &after, with_list, &now) && said;
        uint64_t more = grown(now, had, &before, &after);
        bool rose = said && plus(had, before.counted) >= plus(now, after.counted);
        bool usual = rose && more <= SURELY_OWN;
        uint64_t own = with_list ? own_growth(p, &before, &after, false, &sure) : 0;
        if (sure || rose)
            least = sure ? own : smaller(least, more);
        if (!i && !usual) {
            load_nvml();
            look_quietly(&after, a);
            with_list = after.n > 0;
        }
        if (usual || sure || i == TRIES - 1 || ((i || !with_list) && (rose || !said))) {
            fits = account_try(a, least == UINT64_MAX ? 0 : least);
            if (fits && !said && !sure)
                process_uncounted(p, LIMIT_UNCOUNTED, "cuMemGetInfo_v2");
        }
        if (!fits) {
            const uint64_t made[LIMIT_WORDS] = {undo_words ? 0 : word_at(words[0])};
            resolve_call(undo, undo_words ? undo_words : made);
        }
    }
    if (rc == CUDA_SUCCESS && !fits) {
        process_refused(p, a->card);
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return rc;
}

/* The first parameter is where to write the module or library. */
CUresult context_load(enum call call, const uint64_t *words, int unload)
{
    struct account a;
    if (!account_begin(&a))
        return resolve_call(call, words);
    CUresult rc = place(&a, call, words, (enum call)unload, NULL);
    if (a.under_way)
        rc = account_end(&a, rc, KIND_MODULE, (const uint64_t *)words[0]);
    return rc;
}

/* -- limits of a context: memory of the stack of all resident threads, of the heap, and of launches
 * by kernels -- */

enum {
    STACK_SIZE,
    PRINTF_FIFO_SIZE,
    MALLOC_HEAP_SIZE,
    SYNC_DEPTH,
    PENDING_LAUNCHES,
    CONTEXT_LIMITS
};
enum { MULTIPROCESSORS = 16, THREADS_OF_MULTIPROCESSOR = 39 }; /* CUdevice_attribute */

/* How many stacks the driver has room for. */
static uint64_t resident_threads(struct process *p)
{
    CUdevice device;
    int processors = 0, threads = 0;
    if (DRIVER(cuCtxGetDevice, WORD(&device)) != CUDA_SUCCESS ||
        DRIVER(cuDeviceGetAttribute, WORD(&processors), MULTIPROCESSORS, device) !=
            CUDA_SUCCESS ||
        DRIVER(cuDeviceGetAttribute, WORD(&threads), THREADS_OF_MULTIPROCESSOR, device) !=
            CUDA_SUCCESS)
        process_uncounted(p, LIMIT_UNCOUNTED, "cuDeviceGetAttribute");
    return (uint64_t)processors * (uint64_t)threads;
}

/* The memory of a limit. The addresses of contexts are multiples of 8. Locked. */
static struct entry *setting(const struct account *a, int limit)
{
    struct entry *e =
        table_add(&a->process->table, KIND_SETTING, a->context | (unsigned)limit);
    if (e) {
        e->card = a->card;
        e->context = a->context;
    }
    return e;
}

/* Parameters: limit, value. The driver does not say what launches by kernels take: a value above
 * all before is measured. */
CUresult context_set_limit(enum call call, const uint64_t *words)
{
    int limit = (int)words[0];
    uint64_t value = words[1], before = 0, less = 0;
    struct account a;
    CUresult rc;
    if (limit < 0 || limit >= CONTEXT_LIMITS || !account_begin(&a))
        return resolve_call(call, words);
    struct process *p = a.process;
    if (DRIVER(cuCtxGetLimit, WORD(&before), limit) != CUDA_SUCCESS) {
        if ((rc = resolve_call(call, words)) == CUDA_SUCCESS)
            process_uncounted(p, LIMIT_UNCOUNTED, "cuCtxGetLimit");
        return rc;
    }
    if (limit < SYNC_DEPTH) {
        uint64_t each = limit == STACK_SIZE ? resident_threads(p) : 1;
        LIMIT_RESERVE(&a, times(minus(value, before), each));
        less = times(minus(before, value), each);
        rc = resolve_call(call, words);
    } else {
        sys_lock(&p->lock);
        struct entry *e = setting(&a, limit);
        bool higher = value > before && (!e || value > e->at);
        sys_unlock(&p->lock);
        const uint64_t back[LIMIT_WORDS] = {words[0], before};
        rc = higher ? place(&a, call, words, call, back) : resolve_call(call, words);
    }
    sys_lock(&p->lock);
    account_landed(&a);
    struct entry *e = rc == CUDA_SUCCESS ? setting(&a, limit) : NULL;
    if (!e) {
        process_release_locked(p, a.card, a.bytes);
    } else {
        less = smaller(less, e->bytes);
        process_release_locked(p, a.card, less);
        e->bytes += a.bytes - less;
        e->at = value > e->at ? value : e->at;
    }
    sys_unlock(&p->lock);
    return rc;
}
