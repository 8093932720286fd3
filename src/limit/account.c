/* SPDX-License-Identifier: Apache-2.0 */
/* Counts one allocation, and finds the card of a device or context. */
#include "limit/limit.h"

#include "limit/sys.h"

/* cuDeviceGetUuid_v2 names the MIG instance, the older one the card. */
static int find_card(const struct process *p, CUdevice device, CUresult *rc)
{
    CUuuid uuid;
    static const char digits[] = "0123456789abcdef";
    char text[33] = {0};
    *rc = resolve_real(CALL_cuDeviceGetUuid_v2)
              ? DRIVER(cuDeviceGetUuid_v2, WORD(&uuid), device)
              : DRIVER(cuDeviceGetUuid, WORD(&uuid), device);
    if (*rc != CUDA_SUCCESS)
        return CARD_NONE;
    for (int i = 0; i < 32; i++)
        text[i] = digits[uuid.bytes[i / 2] >> (i % 2 ? 0 : 4) & 15];
    return process_card(p, text);
}

int account_card(struct process *p, CUdevice device, CUresult *rc)
{
    *rc = CUDA_SUCCESS;
    if (p->closed)
        return CARD_NONE;
    if (device < 0 || device >= PROCESS_DEVICES)
        return find_card(p, device, rc);
    int32_t known = __atomic_load_n(&p->device_card[device], __ATOMIC_RELAXED);
    if (!known) {
        known = find_card(p, device, rc) + 1;
        if (*rc == CUDA_SUCCESS)
            __atomic_store_n(&p->device_card[device], known, __ATOMIC_RELAXED);
    }
    return known - 1;
}

static void set_card(struct account *a, CUdevice device)
{
    CUresult rc;
    a->card = account_card(a->process, device, &rc);
    a->refusal = rc == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : rc;
}

struct process *account_process(void)
{
    return resolve_nested() ? NULL : process_get();
}

bool account_begin_device(struct account *a, CUdevice device)
{
    *a = (struct account){.process = account_process()};
    if (a->process)
        set_card(a, device);
    return a->process != NULL;
}

/* A context that this library did not see being made, such as that of a green context. */
static bool add_context(struct account *a)
{
    CUdevice device;
    if (DRIVER(cuCtxGetDevice, WORD(&device)) != CUDA_SUCCESS)
        return false;
    set_card(a, device);
    if (a->card == CARD_NONE) /* perhaps only now */
        return true;
    bool indexed = device >= 0 && device < PROCESS_DEVICES;
    uint64_t owner = indexed ? a->process->primary[device] : 0;
    sys_lock(&a->process->lock);
    struct entry *e = table_add(&a->process->table, KIND_CONTEXT, a->context);
    if (e) {
        e->card = a->card;
        e->a = owner == a->context ? 0 : owner;
        e->context = owner ? owner : a->context; /* ends with it */
    }
    sys_unlock(&a->process->lock);
    a->context = owner ? owner : a->context;
    return true;
}

/* The context that this thread used last, whose part it is, and its card. */
static __thread struct {
    uint64_t context, owner;
    uint32_t contexts_ended;
    int card;
} last __attribute__((tls_model("initial-exec")));

static bool is_last(struct account *a)
{
    if (last.context != a->context ||
        last.contexts_ended !=
            __atomic_load_n(&a->process->contexts_ended, __ATOMIC_ACQUIRE))
        return false;
    a->card = last.card;
    a->context = last.owner;
    return true;
}

static bool find_context(struct account *a)
{
    uint32_t ended = __atomic_load_n(&a->process->contexts_ended, __ATOMIC_ACQUIRE);
    sys_lock(&a->process->lock);
    struct entry *e = table_find(&a->process->table, KIND_CONTEXT, a->context);
    uint64_t context = a->context;
    a->card = e ? e->card : CARD_NONE;
    a->context = e && e->a ? e->a : context;
    sys_unlock(&a->process->lock);
    if (!e && !add_context(a))
        return false;
    if (a->card != CARD_NONE) {
        last.context = context;
        last.owner = a->context;
        last.contexts_ended = ended;
        last.card = a->card;
    }
    return true;
}

bool account_begin(struct account *a)
{
    *a = (struct account){.process = account_process(),
                          .card = CARD_NONE,
                          .refusal = CUDA_ERROR_OUT_OF_MEMORY};
    if (!a->process || DRIVER(cuCtxGetCurrent, WORD(&a->context)) != CUDA_SUCCESS ||
        !a->context)
        return false; /* the driver refuses the call */
    return a->process->closed || is_last(a) || find_context(a);
}

bool account_try(struct account *a, uint64_t bytes)
{
    bool done = process_reserve(a->process, a->card, bytes);
    for (int share = 0; share < 2 && !done; share++) {
        pool_settle(a->process, a->card, true);
        graph_trim(a->process, a->card, share);
        done = process_reserve(a->process, a->card, bytes);
    }
    a->bytes += done ? bytes : 0;
    a->under_way += done;
    return done;
}

CUresult account_reserve(struct account *a, uint64_t bytes)
{
    if (account_try(a, bytes))
        return CUDA_SUCCESS;
    if (a->refusal == CUDA_ERROR_OUT_OF_MEMORY)
        process_refused(a->process, a->card);
    return a->refusal;
}

void account_landed(struct account *a)
{
    a->process->under_way -= a->under_way;
    a->under_way = 0;
}

void account_gone(struct process *p, const struct entry *e)
{
    bool exported =
        e->kind == KIND_LINEAR ? e->at : e->kind == KIND_MEMORY && e->b & MEMORY_EXPORTED;
    if (e->card >= 0 && exported)
        process_keep_locked(p, e->card, e->bytes);
    else if (e->card >= 0)
        process_release_locked(p, e->card, e->bytes);
}

struct entry *account_add(const struct account *a, enum kind kind, uint64_t key)
{
    struct entry *e = table_add(&a->process->table, kind, key);
    if (!e)
        return NULL;
    /* An entry with this key was freed in a way that the library does not see. */
    account_gone(a->process, e);
    *e = (struct entry){.kind = kind,
                        .key = key,
                        .bytes = a->bytes,
                        .card = a->card,
                        .context = a->context};
    return e;
}

CUresult account_end(struct account *a, CUresult rc, enum kind kind, const uint64_t *key)
{
    sys_lock(&a->process->lock);
    account_landed(a);
    if (rc != CUDA_SUCCESS)
        process_release_locked(a->process, a->card, a->bytes);
    else if (!account_add(a, kind, *key))
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    sys_unlock(&a->process->lock);
    return rc;
}

CUresult account_alloc(enum call call, const uint64_t *words, uint64_t bytes,
                       enum kind kind)
{
    struct account a;
    if (!account_begin(&a))
        return resolve_call(call, words);
    LIMIT_RESERVE(&a, bytes);
    return account_end(&a, resolve_call(call, words), kind, (const uint64_t *)words[0]);
}

bool account_free_begin(struct entry *taken, enum kind kind, uint64_t key)
{
    struct process *p = account_process();
    if (!p)
        return false;
    process_enter(p);
    struct entry *e = table_find(&p->table, kind, key);
    if (e) {
        *taken = *e;
        table_remove(&p->table, e);
    }
    p->under_way -= !e;
    p->freeing += e != NULL;
    sys_unlock(&p->lock);
    return e != NULL;
}

CUresult account_free_end(const struct entry *taken, CUresult rc)
{
    struct process *p = process_get();
    if (!p)
        return rc;
    sys_lock(&p->lock);
    p->under_way--;
    p->freeing--;
    if (rc != CUDA_SUCCESS) {
        struct entry *e = table_add(&p->table, taken->kind, taken->key);
        if (e)
            *e = *taken;
    } else if (taken->kind == KIND_ARRAY && !taken->bytes) {
        vmm_array_ended(p, taken->key);
    } else {
        account_gone(p, taken);
    }
    sys_unlock(&p->lock);
    if (rc == CUDA_SUCCESS && taken->kind == KIND_LINEAR && taken->a)
        pool_freed(p, taken);
    return rc;
}

/* -- whole hooks -- */

CUresult account_refuse(enum call call, const uint64_t *words)
{
    return account_process() ? CUDA_ERROR_NOT_SUPPORTED : resolve_pass(call, words);
}

CUresult account_free(enum call call, const uint64_t *words, int kind)
{
    struct entry taken;
    return account_free_begin(&taken, (enum kind)kind, words[0])
               ? account_free_end(&taken, resolve_pass(call, words))
               : resolve_pass(call, words);
}

CUresult account_record(enum call call, const uint64_t *words, limit_then *then)
{
    CUresult rc = resolve_pass(call, words);
    struct process *p = rc == CUDA_SUCCESS ? account_process() : NULL;
    if (p) {
        sys_lock(&p->lock);
        then(p, words);
        sys_unlock(&p->lock);
    }
    return rc;
}

CUresult account_change(enum call call, const uint64_t *words, limit_then *then)
{
    struct process *p = account_process();
    if (!p)
        return resolve_call(call, words);
    sys_lock(&p->change_lock);
    CUresult rc = resolve_call(call, words);
    sys_lock(&p->lock);
    if (rc == CUDA_SUCCESS)
        then(p, words);
    sys_unlock(&p->lock);
    sys_unlock(&p->change_lock);
    return rc;
}
