/* SPDX-License-Identifier: Apache-2.0 */
/* From symbols to functions: dlsym, cuGetProcAddress, the driver's functions. */
#include "limit/limit.h"

#include "limit/sys.h"

#include <string.h>

/* The newest version of CUDA whose functions calls.h lists. */
enum { KNOWN_CUDA = 13010 };

#define LIMIT_EXPORT __attribute__((visibility("default")))

/* The functions of this library in place of the driver's. */
#define HOOK(symbol, since, handler, ...)                                                \
    LIMIT_EXPORT CUresult symbol(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,       \
                                 uint64_t, uint64_t, uint64_t);                          \
    CUresult symbol(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e,          \
                    uint64_t f, uint64_t g, uint64_t h)                                  \
    {                                                                                    \
        const uint64_t words[LIMIT_WORDS] = {a, b, c, d, e, f, g, h};                    \
        return handler(CALL_##symbol, words, ##__VA_ARGS__);                             \
    }
#define OPEN(symbol, since)                                                              \
    LIMIT_EXPORT CUresult symbol(uint64_t *, CUipcHandle, unsigned);                     \
    CUresult symbol(uint64_t *at, CUipcHandle handle, unsigned flags)                    \
    {                                                                                    \
        __typeof__(&symbol) real = (__typeof__(real))resolve_real(CALL_##symbol);        \
        return vmm_opened(real ? real(at, handle, flags) : CUDA_ERROR_NOT_INITIALIZED,   \
                          at);                                                           \
    }
#define REAL(symbol)
LIMIT_CALLS
#undef HOOK
#undef OPEN
#undef REAL

/* `function`: of this library, or NULL if it only calls the driver's. */
struct hook {
    const char *symbol;
    int since, nvml; /* since: 0 if it has no name in cuGetProcAddress */
    void *function;
};
#define HOOK(symbol, since, ...)                                                         \
    {#symbol, since, #symbol[0] == 'n', (void *)(uintptr_t)symbol},
#define OPEN(symbol, since) HOOK(symbol, since)
#define REAL(symbol)        {#symbol, 0, #symbol[0] == 'n', NULL},
static const struct hook hooks[] = {LIMIT_CALLS};

static const char *const sonames[] = {"libcuda.so.1", "libnvidia-ml.so.1"};
/* Where the two are loaded, and their functions by enum call. Threads that load at the same time
 * write the same values. There is no lock: fork would leave it to a child as it is. */
static uintptr_t loaded_at[2];
static void *real_calls[CALLS];
static const char absent; /* whose address stands for a function that the driver lacks */

static __thread int nested __attribute__((tls_model("initial-exec")));

bool resolve_nested(void)
{
    return nested != 0;
}

/* Reads the functions of a library that was loaded, or loaded again elsewhere. */
static void load(int which)
{
    struct elf_library now;
    if (!elf_find(sonames[which], &now) ||
        now.start == __atomic_load_n(&loaded_at[which], __ATOMIC_ACQUIRE))
        return;
    for (int i = 0; i < CALLS; i++)
        if (hooks[i].nvml == which) {
            void *p = elf_symbol(&now, hooks[i].symbol);
            __atomic_store_n(&real_calls[i], p ? p : (void *)&absent, __ATOMIC_RELEASE);
        }
    __atomic_store_n(&loaded_at[which], now.start, __ATOMIC_RELEASE);
}

/* NULL: absent. */
static void *known(int call)
{
    void *p = __atomic_load_n(&real_calls[call], __ATOMIC_ACQUIRE);
    return p == &absent ? NULL : p;
}

void *resolve_real(enum call call)
{
    if (!__atomic_load_n(&real_calls[call], __ATOMIC_ACQUIRE))
        load(hooks[call].nvml);
    return known((int)call);
}

CUresult resolve_pass(enum call call, const uint64_t *w)
{
    CUresult (*real)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                     uint64_t) = (__typeof__(real))resolve_real(call);
    if (!real)
        return hooks[call].nvml ? NVML_UNINITIALIZED : CUDA_ERROR_NOT_INITIALIZED;
    return real(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]);
}

CUresult resolve_call(enum call call, const uint64_t *words)
{
    nested++;
    CUresult rc = resolve_pass(call, words);
    nested--;
    return rc;
}

/* The hook with the symbol, or NULL. Fast for names that are not of CUDA. */
static const struct hook *hook_of(const char *symbol)
{
    if (!text_starts(symbol, "cu") && !text_starts(symbol, "nvmlDevice"))
        return NULL;
    for (int i = 0; i < CALLS; i++)
        if (hooks[i].function && text_eq(hooks[i].symbol, symbol))
            return &hooks[i];
    return NULL;
}

/* The length of a name without version and kind of stream: cuMemAllocAsync_v2_ptsz. */
static size_t base_len(const char *name)
{
    size_t n = 0;
    while (name[n] && !text_starts(name + n, "_v") && !text_starts(name + n, "_pt"))
        n++;
    return n;
}

/* Is the start of the name, of `n` bytes, that of the hook without version? */
static bool is_version(const struct hook *h, const char *name, size_t n)
{
    return h->function && base_len(h->symbol) == n && memcmp(h->symbol, name, n) == 0;
}

/* Is the name that of another version of a function that the library replaces? */
static bool is_family(const char *name)
{
    size_t n = text_starts(name, "cu") ? base_len(name) : 0;
    for (int i = 0; n && i < CALLS; i++)
        if (is_version(&hooks[i], name, n))
            return true;
    return false;
}

/* The library's function, if `found` is the driver's, or that of a second copy of it. */
static void *replace(const struct hook *h, void *found)
{
    if (!found || resolve_nested() || found == h->function ||
        !elf_holds(sonames[h->nvml], found))
        return found;
    load(h->nvml);
    return process_get() ? h->function : found;
}

/* A function of an unknown version. */
static void *pass(const char *name, void *found)
{
    struct process *p =
        found && !resolve_nested() && elf_holds(sonames[0], found) ? process_get() : NULL;
    if (p)
        process_uncounted(p, LIMIT_UNKNOWN, name);
    return found;
}

/* -- dlsym, dlvsym, dlopen, dlmopen -- */

/* glibc and musl. */
#define RTLD_DEFAULT  NULL
#define RTLD_NEXT     ((void *)-1)
#define RTLD_DEEPBIND 8ul

void *dlsym(void *handle, const char *name);
void *dlvsym(void *handle, const char *name, const char *version);
void *dlopen(const char *file, int flags);
void *dlmopen(long namespace, const char *file, int flags);

/* What the four ask: `args` are their parameters, which may be changed. The function to go on
 * with, or NULL: args[0] is the answer. */
void *resolve_dlsym(void *args[3], const void *caller);
void *resolve_dlvsym(void *args[3], const void *caller);
void *resolve_dlopen(void *args[3], const void *caller);
void *resolve_dlmopen(void *args[3], const void *caller);

/* The C library's function, or that of another preloaded library. */
static void *next_of(void **cache, const char *name)
{
    struct elf_library l;
    void *p = __atomic_load_n(cache, __ATOMIC_ACQUIRE);
    if (!p) {
        p = elf_next(NULL, name, &l);
        __atomic_store_n(cache, p, __ATOMIC_RELEASE);
    }
    return p;
}

/* The library's function for a name of the dynamic linker, or NULL. */
static void *linker_hook(const char *name)
{
    static const struct {
        const char *name;
        void *function;
    } own[] = {{"dlsym", (void *)(uintptr_t)dlsym},
               {"dlvsym", (void *)(uintptr_t)dlvsym},
               {"dlopen", (void *)(uintptr_t)dlopen},
               {"dlmopen", (void *)(uintptr_t)dlmopen}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (text_eq(own[i].name, name))
            return own[i].function;
    return NULL;
}

static bool is_ours(const char *name)
{
    return hook_of(name) || is_family(name) || linker_hook(name);
}

/* What the program gets for what the C library found. */
static void *own_of(const char *name, void *found)
{
    const struct hook *h = hook_of(name);
    void *own = linker_hook(name);
    return h ? replace(h, found) : own ? (found ? own : NULL) : pass(name, found);
}

/* The answer for a hook, if the C library's answer need not be asked for. */
static bool answer_pseudo(const struct hook *h, void *handle, const char *name,
                          const void *caller, void **answer)
{
    struct elf_library l, from;
    bool loaded = elf_find(sonames[h->nvml], &l);
    if (handle == RTLD_DEFAULT) { /* the C library finds the function of this library */
        *answer = loaded && elf_symbol(&l, name) ? h->function : NULL;
        return true;
    }
    void *found = elf_next(caller, name, &from);
    if (!found || !loaded || from.start != l.start)
        return false;
    *answer = replace(h, found);
    return true;
}

/* With RTLD_NEXT, a library behind this one would get the C library's function, and with it those
 * of the driver. A library that exports the name too calls on from there: it must not come back
 * here. NULL: the C library answers. */
static void *next_linker_hook(const char *name, const void *caller)
{
    struct elf_library l;
    void *own = linker_hook(name);
    return own && elf_at(caller, &l) && !elf_symbol(&l, name) &&
                   elf_next(caller, name, &l) != own
               ? own
               : NULL;
}

void *resolve_dlsym(void *args[3], const void *caller)
{
    static void *next;
    void *handle = args[0];
    const char *name = args[1];
    void *(*real)(void *, const char *) = (__typeof__(real))next_of(&next, "dlsym");
    if (!real || !name)
        return (void *)(uintptr_t)real;
    const struct hook *h = hook_of(name);
    void *own = handle == RTLD_NEXT ? next_linker_hook(name, caller) : NULL;
    if (own) {
        args[0] = own;
        return NULL;
    }
    if (handle == RTLD_NEXT || (handle == RTLD_DEFAULT && h)) {
        if (h && answer_pseudo(h, handle, name, caller, &args[0]))
            return NULL;
    } else if (is_ours(name)) {
        args[0] = own_of(name, real(handle, name));
        return NULL;
    }
    return (void *)(uintptr_t)real;
}

void *resolve_dlvsym(void *args[3], const void *caller)
{
    static void *next;
    const char *name = args[1];
    void *(*real)(void *, const char *, const char *) =
        (__typeof__(real))next_of(&next, "dlvsym");
    if (!real || !name || !is_ours(name))
        return (void *)(uintptr_t)real;
    if (args[0] == RTLD_NEXT) {
        void *own = next_linker_hook(name, caller);
        args[0] = own ? own : args[0];
        return own ? NULL : (void *)(uintptr_t)real;
    }
    args[0] = own_of(name, real(args[0], name, args[2]));
    return NULL;
}

/* A library that is bound to its own dependencies first finds their dlsym and libcuda. */
void *resolve_dlopen(void *args[3], const void *caller)
{
    static void *next;
    (void)caller;
    void *real = next_of(&next, "dlopen");
    if ((uintptr_t)args[1] & RTLD_DEEPBIND && process_is_limited())
        args[1] = (void *)((uintptr_t)args[1] & ~RTLD_DEEPBIND);
    args[0] = real ? args[0] : NULL;
    return real;
}

static bool is_driver(const char *file)
{
    const char *name = file;
    for (const char *c = file; *c; c++)
        name = *c == '/' ? c + 1 : name;
    return text_starts(name, "libcuda.so") || text_starts(name, "libnvidia-ml.so");
}

/* The driver has no namespace of its own: this library would not see it. */
void *resolve_dlmopen(void *args[3], const void *caller)
{
    static void *next;
    void *real = next_of(&next, "dlmopen");
    if (args[1] && is_driver(args[1]) && process_is_limited()) {
        args[0] = args[1];
        args[1] = args[2];
        return resolve_dlopen(args, caller);
    }
    args[0] = real ? args[0] : NULL;
    return real;
}

/*
 * The functions keep their parameters, ask the resolver, and return its answer or jump on, with
 * the stack as it was: the C library takes the return address as the caller.
 */
#if defined(__x86_64__)
#define ENTRY(name)                                                                      \
    __asm__(".text\n"                                                                    \
            ".hidden resolve_" #name "\n"                                                \
            ".globl " #name "\n.type " #name ",@function\n" #name ":\n"                  \
            "    .cfi_startproc\n"                                                       \
            "    endbr64\n"                                                              \
            "    pushq %rdx\n    .cfi_adjust_cfa_offset 8\n"                             \
            "    pushq %rsi\n    .cfi_adjust_cfa_offset 8\n"                             \
            "    pushq %rdi\n    .cfi_adjust_cfa_offset 8\n"                             \
            "    movq %rsp, %rdi\n"                                                      \
            "    movq 24(%rsp), %rsi\n"                                                  \
            "    call resolve_" #name "\n"                                               \
            "    popq %rdi\n    .cfi_adjust_cfa_offset -8\n"                             \
            "    popq %rsi\n    .cfi_adjust_cfa_offset -8\n"                             \
            "    popq %rdx\n    .cfi_adjust_cfa_offset -8\n"                             \
            "    testq %rax, %rax\n"                                                     \
            "    jz 1f\n"                                                                \
            "    jmp *%rax\n"                                                            \
            "1:  movq %rdi, %rax\n"                                                      \
            "    ret\n"                                                                  \
            "    .cfi_endproc\n"                                                         \
            ".size " #name ", .-" #name "\n")
#elif defined(__aarch64__)
#define ENTRY(name)                                                                      \
    __asm__(".text\n"                                                                    \
            ".hidden resolve_" #name "\n"                                                \
            ".globl " #name "\n.type " #name ",@function\n" #name ":\n"                  \
            "    .cfi_startproc\n"                                                       \
            "    hint #34\n" /* bti c */                                                 \
            "    stp x29, x30, [sp, #-48]!\n    .cfi_adjust_cfa_offset 48\n"             \
            "    .cfi_rel_offset x29, 0\n    .cfi_rel_offset x30, 8\n"                   \
            "    stp x0, x1, [sp, #16]\n"                                                \
            "    str x2, [sp, #32]\n"                                                    \
            "    mov x29, sp\n"                                                          \
            "    add x0, sp, #16\n"                                                      \
            "    mov x1, x30\n"                                                          \
            "    bl resolve_" #name "\n"                                                 \
            "    mov x16, x0\n"                                                          \
            "    ldp x0, x1, [sp, #16]\n"                                                \
            "    ldr x2, [sp, #32]\n"                                                    \
            "    ldp x29, x30, [sp], #48\n    .cfi_adjust_cfa_offset -48\n"              \
            "    .cfi_restore x29\n    .cfi_restore x30\n"                               \
            "    cbz x16, 2f\n"                                                          \
            "    br x16\n"                                                               \
            "2:  ret\n"                                                                  \
            "    .cfi_endproc\n"                                                         \
            ".size " #name ", .-" #name "\n")
#endif
ENTRY(dlsym);
ENTRY(dlvsym);
ENTRY(dlopen);
ENTRY(dlmopen);

/* -- cuGetProcAddress -- */

static void *by_name(const char *name, int version, uint64_t flags)
{
    const struct hook *best = NULL;
    bool best_suffix = false;
    for (int i = 0; i < CALLS; i++) {
        const struct hook *h = &hooks[i];
        size_t n = text_len(h->symbol);
        bool suffix = n > 5 && text_eq(h->symbol + n - 5, "_ptsz");
        if (h->since && h->since <= version && known(i) &&
            is_version(h, name, text_len(name)) &&
            (!suffix || flags & CU_PROC_PER_THREAD_STREAM) &&
            (!best || suffix > best_suffix ||
             (suffix == best_suffix && h->since > best->since))) {
            best = h;
            best_suffix = suffix;
        }
    }
    return best ? best->function : NULL;
}

/* Does the driver answer so for the newest version that this library knows, too? `words`: of
 * cuGetProcAddress. */
static bool is_known(enum call call, const uint64_t *words, const void *found)
{
    void *older = NULL;
    int status;
    const uint64_t asked[LIMIT_WORDS] = {words[0], WORD(&older), KNOWN_CUDA, words[3],
                                         WORD(&status)};
    return resolve_call(call, asked) == CUDA_SUCCESS && older == found;
}

/* Parameters: name, where to write the function, version, flags, perhaps where to write a status.
 * A function of the driver is known by its address. An address that is not exported has to be
 * known by its name: then only a version that this library knows is replaced. What the driver
 * asks for stays the driver's. */
CUresult resolve_proc_address(enum call call, const uint64_t *words)
{
    struct elf_library l;
    const char *name = (const char *)words[0];
    void **found = (void **)words[1];
    int version = (int)words[2];
    CUresult rc = resolve_pass(call, words);
    struct process *p = rc == CUDA_SUCCESS && !resolve_nested() && name && found &&
                                *found && is_family(name)
                            ? process_get()
                            : NULL;
    if (!p)
        return rc;
    load(0);
    void *own = NULL;
    for (int i = 0; i < CALLS && !own; i++)
        if (hooks[i].function && (known(i) == *found || hooks[i].function == *found))
            own = hooks[i].function;
    if (!own && !(elf_find(sonames[0], &l) && elf_exports(&l, *found)) &&
        (version <= KNOWN_CUDA || is_known(call, words, *found)))
        own = by_name(name, version < KNOWN_CUDA ? version : KNOWN_CUDA, words[3]);
    if (!own)
        process_uncounted(p, LIMIT_UNKNOWN, name);
    *found = own ? own : *found;
    return rc;
}
