/* SPDX-License-Identifier: Apache-2.0 */
#include "limit/limit.h"
#include "limit/sys.h"

/*
 * Virtual memory management: cuMemCreate makes physical memory and a handle. The memory lives
 * as long as a handle, a mapping, a tile of a sparse array or a multicast object refers to it;
 * KIND_MEMORY counts them. Memory of another process counts there, and is only said to be
 * imported: see process_keep_locked. Here counts what nobody exports any more, as memory that was
 * released before it was imported. A multicast object is memory without bytes.
 */

enum { IMPORTED = 2, MULTICAST = 4, GRANULARITY = 64 << 10 };

/* Records a reference to the memory. Locked. */
static struct entry *refer(struct process *p, enum kind kind, uint64_t key,
                           uint64_t memory)
{
    struct entry *e = table_add(&p->table, kind, key);
    if (!e)
        return NULL;
    e->a = memory;
    if ((e = table_find(&p->table, KIND_MEMORY, memory)))
        e->a++;
    return table_find(&p->table, kind, key);
}

static void drop(struct process *p, uint64_t memory);

/* The entry refers to memory no more. Locked. */
static void forget(struct process *p, struct entry *e)
{
    uint64_t memory = e->a;
    p->bound -= e->kind == KIND_TILE || e->kind == KIND_BOUND;
    table_remove(&p->table, e);
    drop(p, memory);
}

/* Drops the references of an array or multicast object, of those at [from, to). Locked. */
static void unbind(struct process *p, enum kind kind, uint64_t owner, uint64_t from,
                   uint64_t to)
{
    struct table *t = &p->table;
    for (size_t i = 0; i < t->size; i++)
        while (t->at[i].kind == kind && t->at[i].b == owner && t->at[i].at >= from &&
               t->at[i].at < to)
            forget(p, &t->at[i]); /* another entry can move here */
}

/* One reference less. Locked. */
static void drop(struct process *p, uint64_t memory)
{
    struct entry *e = table_find(&p->table, KIND_MEMORY, memory);
    if (!e || --e->a)
        return;
    struct entry gone = *e;
    table_remove(&p->table, e);
    if (gone.b & IMPORTED)
        process_import_locked(p, gone.at - gone.bytes, 0);
    account_gone(p, &gone);
    if (p->bound && gone.b & (IMPORTED | MULTICAST))
        unbind(p, KIND_BOUND, memory, 0, UINT64_MAX);
}

static uint64_t next(struct process *p)
{
    return __atomic_add_fetch(&p->next_memory, 1, __ATOMIC_RELAXED);
}

static void add_handle(struct process *p, uint64_t handle, uint64_t memory)
{
    struct entry *e = refer(p, KIND_HANDLE, handle, memory);
    if (e)
        e->b = 1;
}

/* Parameters: handle, bytes, properties, flags. */
CUresult vmm_create(enum call call, const uint64_t *words)
{
    const CUmemProp *prop = (const void *)words[2];
    struct account a;
    if (!prop || prop->location.type != CU_LOCATION_DEVICE ||
        !account_begin_device(&a, prop->location.id))
        return resolve_call(call, words);
    LIMIT_RESERVE(&a, words[1]);
    uint64_t memory = next(a.process);
    CUresult rc = account_end(&a, resolve_call(call, words), KIND_MEMORY, &memory);
    if (rc == CUDA_SUCCESS) {
        sys_lock(&a.process->change_lock);
        sys_lock(&a.process->lock);
        add_handle(a.process, word_at(words[0]), memory);
        sys_unlock(&a.process->lock);
        sys_unlock(&a.process->change_lock);
    }
    return rc;
}

/* Memory that is not counted: IMPORTED, perhaps a multicast object, or MULTICAST. */
static void add_uncounted(struct process *p, uint64_t handle, uint64_t flag)
{
    uint64_t memory = next(p);
    struct entry *e = table_find(&p->table, KIND_HANDLE, handle);
    if (e) { /* the driver knows the memory already */
        e->b++;
        return;
    }
    if ((e = table_add(&p->table, KIND_MEMORY, memory))) {
        e->b = flag;
        e->at = flag == IMPORTED ? PROCESS_UNKNOWN_SIZE : 0;
        process_import_locked(p, 0, e->at);
    }
    add_handle(p, handle, memory);
}

void vmm_imported(struct process *p, const uint64_t *words)
{
    add_uncounted(p, word_at(words[0]), IMPORTED);
}

void vmm_multicast(struct process *p, const uint64_t *words)
{
    add_uncounted(p, word_at(words[0]), MULTICAST);
}

/* The memory of a handle, or 0. Locked. */
static uint64_t memory_of(const struct process *p, uint64_t handle)
{
    const struct entry *e = table_find(&p->table, KIND_HANDLE, handle);
    return e ? e->a : 0;
}

void vmm_exported(struct process *p, const uint64_t *words)
{
    struct entry *e = table_find(&p->table, KIND_MEMORY, memory_of(p, words[1]));
    if (!e || e->b & MEMORY_EXPORTED)
        return;
    e->b |= MEMORY_EXPORTED;
    if (e->card >= 0)
        process_export_locked(p, e->card, e->bytes);
}

void vmm_released(struct process *p, const uint64_t *words)
{
    struct entry *e = table_find(&p->table, KIND_HANDLE, words[0]);
    if (e && !--e->b)
        forget(p, e);
}

/* Imported memory of a card, or else -1: it is of the host, or a multicast object, which has no
 * properties. */
static int card_of(struct process *p, uint64_t handle)
{
    CUmemProp prop[4] = {0}; /* the driver's can be larger */
    CUresult rc = DRIVER(cuMemGetAllocationPropertiesFromHandle, WORD(prop), handle);
    if (rc != CUDA_SUCCESS && rc != CUDA_ERROR_INVALID_VALUE)
        process_uncounted(p, LIMIT_UNCOUNTED, "cuMemGetAllocationPropertiesFromHandle");
    if (rc != CUDA_SUCCESS || prop->location.type != CU_LOCATION_DEVICE)
        return -1;
    return account_card(p, prop->location.id, &rc);
}

/* Parameters: address, bytes, offset, handle, flags. */
CUresult vmm_map(enum call call, const uint64_t *words)
{
    struct process *p = account_process();
    uint64_t bytes = words[1], known = 0, more = 0;
    int card = -1;
    if (!p)
        return resolve_call(call, words);
    sys_lock(&p->change_lock);
    sys_lock(&p->lock);
    uint64_t memory = memory_of(p, words[3]);
    struct entry *e = table_find(&p->table, KIND_MEMORY, memory);
    bool imported = e && e->b & IMPORTED;
    known = imported && e->at != PROCESS_UNKNOWN_SIZE ? e->at : 0;
    sys_unlock(&p->lock);
    if (imported && bytes > known)
        card = card_of(p, words[3]);
    sys_lock(&p->lock);
    if (card >= 0)
        more = process_not_exported_locked(p, bytes - known);
    bool fits = !more || process_reserve_locked(p, card, more);
    sys_unlock(&p->lock);
    CUresult rc = fits ? resolve_call(call, words) : CUDA_ERROR_OUT_OF_MEMORY;
    sys_lock(&p->lock);
    if (rc == CUDA_SUCCESS && (e = refer(p, KIND_MAPPING, words[0], memory)))
        e->b = bytes;
    e = rc == CUDA_SUCCESS ? table_find(&p->table, KIND_MEMORY, memory) : NULL;
    if (e && e->b & IMPORTED && bytes > known) {
        uint64_t before = e->at - e->bytes;
        e->at = card >= 0 ? bytes : 0;
        e->bytes += more;
        e->card = more ? card : e->card;
        if (more && e->b & MEMORY_EXPORTED)
            process_export_locked(p, card, more);
        process_import_locked(p, before, e->at - e->bytes);
    } else if (fits && more) {
        process_release_locked(p, card, more);
    }
    sys_unlock(&p->lock);
    sys_unlock(&p->change_lock);
    if (!fits)
        process_refused(p, card);
    return rc;
}

/* The driver unmaps whole mappings only. */
void vmm_unmapped(struct process *p, const uint64_t *words)
{
    for (uint64_t done = 0; done < words[1];) {
        struct entry *e = table_find(&p->table, KIND_MAPPING, words[0] + done);
        done += e && e->b ? e->b : GRANULARITY;
        if (e)
            forget(p, e);
    }
}

/* The allocation that the address is in. `size`: 0 if it is not known. */
static uint64_t base_of(uint64_t at, uint64_t *size)
{
    uint64_t base;
    if (DRIVER(cuMemGetAddressRange_v2, WORD(&base), WORD(size), at) == CUDA_SUCCESS)
        return base;
    *size = 0;
    return at;
}

/* The memory of the mapping with this address, or 0. Locked. */
static uint64_t memory_at(const struct process *p, uint64_t at)
{
    uint64_t size;
    struct entry *e = table_find(&p->table, KIND_MAPPING, at);
    if (!e)
        e = table_find(&p->table, KIND_MAPPING, base_of(at, &size));
    if (!e) /* the driver does not know the address by its mapping */
        while ((e = table_next(&p->table, e)) &&
               !(e->kind == KIND_MAPPING && at >= e->key && at - e->key < e->b))
            ;
    return e ? e->a : 0;
}

void vmm_retained(struct process *p, const uint64_t *words)
{
    uint64_t handle = word_at(words[0]), memory = memory_at(p, words[1]);
    struct entry *e = table_find(&p->table, KIND_HANDLE, handle);
    if (e || (memory && (e = refer(p, KIND_HANDLE, handle, memory))))
        e->b++;
}

/* -- sparse arrays and multicast objects -- */

/* A hash of the place of a tile: of a level, eight numbers of 32 bits; of a mip tail, such a layer,
 * and offset and size. What stands between them is undefined. */
static uint64_t place_of(const uint64_t place[5])
{
    bool is_tail = (uint32_t)place[0] == CU_MIPTAIL;
    uint64_t h = is_tail;
    for (int i = 1; i < (is_tail ? 4 : 5); i++) {
        h = (h ^ (is_tail && i == 1 ? (uint32_t)place[i] : place[i])) *
            0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    return h >> 1; /* below UINT64_MAX */
}

/* The owner refers to the memory, at this place. Locked. Returns the key. */
static uint64_t bind(struct process *p, enum kind kind, uint64_t owner, uint64_t at,
                     uint64_t memory)
{
    uint64_t key = next(p);
    struct entry *e = memory ? refer(p, kind, key, memory) : NULL;
    if (e) {
        e->b = owner;
        e->at = at;
        p->bound++;
    }
    return key;
}

/* A place is unmapped as it was mapped; otherwise its memory counts until the array ends. */
void vmm_tiled(struct process *p, const uint64_t *words)
{
    const CUarrayMapInfo *list = (const void *)words[0];
    for (unsigned i = 0; i < (unsigned)words[1]; i++) {
        uint64_t at = place_of(list[i].place);
        uint64_t memory =
            list[i].operation == CU_OPERATION_MAP ? memory_of(p, list[i].handle) : 0;
        uint64_t key = bind(p, KIND_TILE, list[i].array, UINT64_MAX - 1, memory);
        unbind(p, KIND_TILE, list[i].array, at, at + 1);
        struct entry *e = table_find(&p->table, KIND_TILE, key);
        if (e)
            e->at = at;
    }
}

void vmm_array_ended(struct process *p, uint64_t array)
{
    if (p->bound)
        unbind(p, KIND_TILE, array, 0, UINT64_MAX);
}

/* Parameters: object, perhaps a device, offset (word `at`), memory. The driver can wait until other
 * processes are ready: the reference is there before, and no lock is held. */
static CUresult bind_memory(enum call call, const uint64_t *words, int at,
                            uint64_t (*find)(const struct process *, uint64_t))
{
    struct process *p = account_process();
    if (!p)
        return resolve_call(call, words);
    sys_lock(&p->lock);
    uint64_t owner = memory_of(p, words[0]);
    uint64_t key =
        owner ? bind(p, KIND_BOUND, owner, words[at], find(p, words[at + 1])) : 0;
    sys_unlock(&p->lock);
    CUresult rc = resolve_call(call, words);
    sys_lock(&p->lock);
    struct entry *e = rc == CUDA_SUCCESS ? NULL : table_find(&p->table, KIND_BOUND, key);
    if (e)
        forget(p, e);
    sys_unlock(&p->lock);
    return rc;
}

CUresult vmm_bind_handle(enum call call, const uint64_t *words, int at)
{
    return bind_memory(call, words, at, memory_of);
}

CUresult vmm_bind_address(enum call call, const uint64_t *words, int at)
{
    return bind_memory(call, words, at, memory_at);
}

/* Parameters: object, device, offset, bytes. */
void vmm_unbound(struct process *p, const uint64_t *words)
{
    unbind(p, KIND_BOUND, memory_of(p, words[0]), words[2], words[2] + words[3]);
}

/* -- CUDA IPC: pointers of cuMemAlloc that other processes open -- */

void vmm_shared(struct process *p, const uint64_t *words)
{
    uint64_t size;
    struct entry *e = table_find(&p->table, KIND_LINEAR, base_of(words[1], &size));
    if (!e || e->at == MEMORY_EXPORTED)
        return;
    e->at = MEMORY_EXPORTED;
    if (e->card >= 0)
        process_export_locked(p, e->card, e->bytes);
}

CUresult vmm_opened(CUresult rc, const uint64_t *at)
{
    struct process *p = rc == CUDA_SUCCESS ? account_process() : NULL;
    uint64_t size;
    if (!p)
        return rc;
    base_of(*at, &size);
    sys_lock(&p->change_lock);
    sys_lock(&p->lock);
    struct entry *e = table_add(&p->table, KIND_OPENED, *at);
    if (e) {
        e->b++;
        process_import_locked(p, e->at, size);
        e->at = size;
    }
    sys_unlock(&p->lock);
    sys_unlock(&p->change_lock);
    return rc;
}

void vmm_closed(struct process *p, const uint64_t *words)
{
    struct entry *e = table_find(&p->table, KIND_OPENED, words[0]);
    if (!e || --e->b)
        return;
    process_import_locked(p, e->at, 0);
    table_remove(&p->table, e);
}
