/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "limit/calls.h"
#include "limit/state.h"
#include "limit/sys.h"

/* What the files of the library offer each other, in the order of their layers. */

/* -- table.c: what this process holds -- */

/*
 * What this process holds: a hash table of allocations, contexts, pools, ... by kind and handle.
 * The caller holds the lock of the process.
 */

enum kind {
    KIND_NONE,    /* a free place of the table */
    KIND_CONTEXT, /* a: the primary context that it is part of, 0: of its own */
    KIND_SETTING, /* memory by a limit of a context. The key: context and limit */
    KIND_MODULE,  /* the variables of a module or library */
    KIND_LINEAR, /* a pointer. a: its pool, 0: none; b: its bytes there; at: other processes can
                    open it */
    KIND_OPENED, /* such a pointer of another process. b: how often; at: its size */
    KIND_ARRAY,  /* an array or a mipmapped array */
    KIND_POOL, /* a pool. a: bytes that threads are reserving; b: bytes of its pointers */
    KIND_HANDLE, /* a handle of cuMemCreate. a: its memory; b: references of the handle */
    KIND_MEMORY, /* physical memory. The key is a number; a: references; b: see vmm.c; at: of
                    imported memory its size */
    KIND_MAPPING, /* an address of cuMemMap. a: its memory; b: its size */
    KIND_TILE, /* of a sparse array. a: its memory; b: the array; at: a hash of its place */
    KIND_BOUND, /* to a multicast object. a: its memory; b: the object's; at: its offset */
    KIND_GRAPH, /* a graph with allocation nodes. a: its number */
    KIND_EXEC,  /* an executable graph. a: the number of its graph */
    KIND_NUMBER, /* the number of a graph. a: graphs and executable graphs with it; b: freed
                    bytes that no later node uses; at, bytes: sums of graph.c */
    KIND_NODE, /* an address of an allocation node. a: the number of its graph; b: its size
                   until a node frees it; at: what it counts in `graphs` of the card */
    KIND_FREED /* a node that frees one. a: the number; b: bytes that no later node uses */
};

struct entry {
    uint64_t key;
    uint64_t bytes;    /* that the limit counts for this entry */
    uint64_t context;  /* whose end frees the entry; 0: none */
    uint64_t a, b, at; /* see enum kind */
    uint32_t kind;
    int32_t card; /* of struct process; -1: not the memory of a card */
};

enum { MEMORY_EXPORTED = 1 }; /* KIND_MEMORY: a bit of b */

struct table {
    struct entry *at;
    size_t n, size; /* size: a power of 2, or 0 */
};

/* NULL: there is none. The entry is valid until the next change of the table. */
struct entry *table_find(const struct table *t, enum kind kind, uint64_t key);

/* A new entry, or the one that exists. NULL: out of memory. */
struct entry *table_add(struct table *t, enum kind kind, uint64_t key);

void table_remove(struct table *t, struct entry *e);

/* Every entry once, if the loop removes none: begin with NULL, ends with NULL. */
struct entry *table_next(const struct table *t, struct entry *e);

/* -- process.c: the cards -- */

/*
 * The cards of this process that have a limit, and what the process holds of them.
 *
 * The struct lives in memory that fork replaces by zeros (MADV_WIPEONFORK): a child begins
 * without a slot, without allocations and with free locks. CUDA gives a child nothing of its
 * parent's memory either.
 */

enum {
    PROCESS_DEVICES = 64,
    PROCESS_PATH_MAX = 512,
    CARD_NONE = LIMIT_CARDS /* each card that was not promised: its limit is 0 */
};

struct card {
    const struct limit_file *file; /* NULL: there is no such card */
    struct limit_state *state;
    struct sys_file claimed; /* the state when the slot was taken */
    uint64_t checked;        /* when it was last found as it was, in ticks */
    uint32_t slot;
    uint32_t refuses;  /* LIMIT_...: why nothing can be allocated; 0 */
    uint64_t contexts; /* of `used`: what contexts took */
    uint64_t exported; /* of `used`: memory that other processes can import */
    uint64_t kept; /* of `exported`: that this process holds no more, but others may */
    uint64_t reclaimed; /* when slots of ended processes were last emptied, in ticks */
    uint64_t used; /* `used` of the slot; the slot itself can be overwritten by anybody */
    uint64_t graphs;   /* of `used`: allocation nodes */
    bool graphs_share; /* see graph.c: graphs count by what the driver holds */
    uint64_t graphs_held, graphs_state; /* what `graphs` was last made of: see graph.c */
    char path[PROCESS_PATH_MAX];
};

struct process {
    uint32_t phase, lock;
    uint32_t
        closed; /* LIMIT_...: why no memory can be allocated. Asked again at each call */
    uint32_t said; /* LIMIT_... said on standard error */
    uint32_t n_cards;
    struct card cards[LIMIT_CARDS + 1];
    struct table table;                /* under lock */
    uint64_t next_number, next_memory; /* under lock. Of graphs, of cuMemCreate */
    uint64_t graph_changes; /* under lock. How often what the graphs need changed */
    int32_t device_card[PROCESS_DEVICES]; /* under lock. 0: unknown; else 1 + card */
    uint64_t primary[PROCESS_DEVICES]; /* under lock. Primary contexts; 0: not active */
    /* Locks that are taken before `lock`, and are held over calls of the driver: */
    uint32_t context_lock; /* while contexts are made and destroyed */
    uint32_t change_lock;  /* while handles and mappings get or lose memory */
    uint32_t pool_lock;    /* while the driver's sizes are read and counted */
    uint32_t under_way; /* under lock. Allocations and frees that began and did not end */
    uint32_t freeing;   /* under lock. How many of these are frees */
    uint32_t quiet;     /* under lock. Threads that measure, while none may begin */
    uint32_t nvml_pid;  /* the number of this process in NVML; 0: not known */
    struct table pools; /* under lock. KIND_POOL, of which there are few */
    uint64_t imported;  /* under lock. Bytes of other processes' memory */
    uint64_t bound;     /* under lock. How many tiles and bindings there are */
    uint32_t contexts_ended; /* how many contexts were destroyed */
};

/* NULL: the pod has no limit. The first call opens the files. While they cannot be opened,
 * `closed` is set, and each call tries again. */
struct process *process_get(void);

/* Has the pod a limit? Takes no slot, for programs that do not use CUDA. */
bool process_is_limited(void);

/*
 * What the driver takes unasked, as for a context, is measured: what is used before and after, less
 * what was counted meanwhile. An allocation that is counted and not yet made, or made and not yet
 * released, would spoil that. So each is under way from process_enter on until its end lowers
 * `under_way`, and none is between process_quiet_begin and process_quiet_end. Only a free that
 * waits for a kernel may be: it spoils nothing unless its memory goes between the two.
 */
/* An allocation or free begins. Takes the lock, which the caller releases. */
void process_enter(struct process *p);
void process_quiet_begin(struct process *p);
void process_quiet_end(struct process *p);

/* Reserves bytes of a card for this process. Takes the lock. True: an allocation is under way. */
bool process_reserve(struct process *p, int card, uint64_t bytes);
/* process_reserve while the caller holds the lock. */
bool process_reserve_locked(struct process *p, int card, uint64_t bytes);
void process_release_locked(struct process *p, int card, uint64_t bytes);

/* Counts bytes that the driver took already, above the limit if need be. Locked. */
void process_force_locked(struct process *p, int card, uint64_t bytes);

/*
 * Memory that was exported lives as long as a process has imported it, which the exporter does
 * not see. It goes on counting where it was made, while processes of the pod have imported as
 * much. Locked.
 */
void process_keep_locked(struct process *p, int card, uint64_t bytes);
/* The process has exported so many bytes more. Locked. */
void process_export_locked(struct process *p, int card, uint64_t bytes);
/* Of `bytes` more that the process imports: those beyond what the processes of the pod export.
 * They count nowhere else, so they count where they are imported. Locked. */
uint64_t process_not_exported_locked(struct process *p, uint64_t bytes);
/* Imported memory that was never mapped counts so much: the driver does not say its size. */
#define PROCESS_UNKNOWN_SIZE (1ull << 50)
/* The process has imported `now` bytes instead of `before`. Locked. */
void process_import_locked(struct process *p, uint64_t before, uint64_t now);

/* Counts an allocation that was refused in the end, and says why if it is not for its size. */
void process_refused(struct process *p, int card);

/* Says once that memory is not counted. LIMIT_UNKNOWN: a program got the function, whose version
 * the library does not know. LIMIT_UNCOUNTED: the function does not answer. Takes the lock. */
void process_uncounted(struct process *p, uint32_t reason, const char *name);

/* The limit of the card now. */
uint64_t process_limit(const struct process *p, int card);
/* What the living processes of the pod hold. Empties the slots of ended ones. */
uint64_t process_used(struct process *p, int card);
/* The state of the card, or NULL if it cannot be read now. */
struct limit_state *process_state(struct process *p, int card);

/* The card with the UUID, as NVML writes it, or CARD_NONE. With or without "GPU-" and dashes. */
int process_card(const struct process *p, const char *uuid);

/* -- slots.c: reservations -- */

/*
 * Reservations of memory between processes, without a lock.
 *
 * There is no shared sum that a killed process could leave wrong. Each process writes only its
 * own slot, and the sum is that of all slots. A process that reserves
 *
 *     1. writes the bytes into `want` of its slot,
 *     2. adds up `used` and `want` of all slots, reading `want` of a slot before its `used`,
 *     3. if the sum is within the limit: raises `used`, then sets `want` to 0.
 *
 * Of processes that reserve at the same time, the last one at step 1 sees all others at step 2,
 * so the sum of what they get is never above the limit. Each step is one atomic store: a process
 * killed between two of them leaves a slot that counts too much, until the slot is emptied.
 *
 * If the sum is too large only because of other processes at step 1 to 3, the process with the
 * lowest slot goes first: the others set `want` to 0 and begin again.
 */

/* Reserves bytes for the process of a slot. `used`: what it holds so far. True: reserved, and
 * `used` of the slot is raised. False: it does not fit, or the process of a lower slot stopped
 * while it reserved. */
bool reserve_add(struct limit_state *s, uint32_t slot, uint64_t used, uint64_t bytes,
                 uint64_t limit);

/* The process of the slot holds `used` bytes now: less than before. */
void reserve_set(struct limit_state *s, uint32_t slot, uint64_t used);

/* Bytes that all processes hold. */
uint64_t reserve_used(const struct limit_state *s);

/* Bytes that all processes have imported. */
uint64_t reserve_imported(const struct limit_state *s);
/* Bytes that all processes have exported, as far as they count. */
uint64_t reserve_exported(const struct limit_state *s);

/* The number of slots to look at. */
uint32_t reserve_high(const struct limit_state *s);

/* -- slots.c: slots -- */

/*
 * Slots of a state file: who owns them, and when their owner has ended. See struct limit_slot.
 */

/* Maps the file and takes a slot of it for this process, until the process ends or unmaps
 * `*s`. A forked child has neither the mapping nor the slot. 0, or LIMIT_...: why not.
 * `*file`: which file it is. */
uint32_t slots_claim(const char *path, struct limit_state **s, uint32_t *slot,
                     struct sys_file *file);

/* Do the fixed fields have their values? */
bool state_is_sound(const struct limit_state *s);
/* Does the path still lead to the file with its whole size? A shorter one kills the process
 * that reads its mapping. A program that cannot see the path any more keeps the mapping. */
bool state_is_there(const char *path, const struct sys_file *claimed);

/* Empties the slots of ended processes. A file that cannot be opened now is left as it is: its
 * slots count until a later call. */
void slots_reclaim(const char *path, struct limit_state *s);

/* -- account.c: counting -- */

/*
 * Counting one allocation: account_begin finds the card, account_reserve takes the bytes, the
 * caller calls the driver, and account_end records the result. A free takes the record first,
 * calls the driver, and releases the bytes after it, so that no other process takes memory that
 * the driver still holds.
 */

struct account {
    struct process *process;
    int card;
    CUresult refusal; /* the answer if the bytes do not fit */
    uint64_t context;
    uint64_t bytes;     /* reserved so far */
    uint32_t under_way; /* of this allocation: see process_enter */
};

/* NULL: the pod has no limit, or the driver itself calls. */
struct process *account_process(void);

/* For the current context. False: there is no limit and no context, or the driver itself calls:
 * the caller calls the driver and counts nothing. */
bool account_begin(struct account *a);
/* For a device. */
bool account_begin_device(struct account *a, CUdevice device);

/* Before it fails, it gives back what the pools and graphs of this process hold without use. */
bool account_try(struct account *a, uint64_t bytes);
/* The same. CUDA_SUCCESS or the refusal, which counts. */
CUresult account_reserve(struct account *a, uint64_t bytes);
/* The caller returns if the bytes do not fit. */
#define LIMIT_RESERVE(a, bytes)                                                          \
    do {                                                                                 \
        CUresult reserve_rc_ = account_reserve(a, bytes);                                \
        if (reserve_rc_ != CUDA_SUCCESS)                                                 \
            return reserve_rc_;                                                          \
    } while (0)

/* Ends an allocation: the driver answered `rc`. On success the reserved bytes belong to the
 * entry (kind, *key), otherwise they are released. Returns rc, or CUDA_ERROR_OUT_OF_MEMORY if the
 * entry cannot be recorded: then the bytes count until the process ends. */
CUresult account_end(struct account *a, CUresult rc, enum kind kind, const uint64_t *key);
/* The allocation is not under way any more. Locked. */
void account_landed(struct account *a);
/* The entry, or NULL if it cannot be recorded. Locked. */
struct entry *account_add(const struct account *a, enum kind kind, uint64_t key);

/* A whole allocation of the current context. The first parameter is where the key is written. */
CUresult account_alloc(enum call call, const uint64_t *words, uint64_t bytes,
                       enum kind kind);

/* The memory of the entry is gone. If it was exported, it may go on in another process. Locked. */
void account_gone(struct process *p, const struct entry *e);

/* Takes the entry out of the table for a free: the caller calls the driver and then
 * account_free_end. False: there is none. */
bool account_free_begin(struct entry *taken, enum kind kind, uint64_t key);
/* Releases its bytes if rc is CUDA_SUCCESS, otherwise records it again. Returns rc. */
CUresult account_free_end(const struct entry *taken, CUresult rc);

/* The card of the device. `*rc`: whether its UUID could be read; if not, CARD_NONE. */
int account_card(struct process *p, CUdevice device, CUresult *rc);

/* -- pool.c: pools -- */

/*
 * Memory pools: what counts is the memory that a pool holds (its attribute RESERVED_MEM_CURRENT),
 * which NVML shows, not the pointers that the program has. An allocation first reserves its size
 * in whole pages of 2 MiB, and afterwards counts what the pool took. Memory that the driver
 * returns at a synchronization stops counting there.
 */

/* Counts what the pools of a card (-1: of all) hold now. trim: after their unused memory was
 * returned to the driver. */
void pool_settle(struct process *p, int card, bool trim);

/* A pointer of a pool was freed: account_free_end calls it. */
void pool_freed(struct process *p, const struct entry *taken);

/* -- vmm.c -- */

/* A sparse array does not refer to memory any more. Locked. */
void vmm_array_ended(struct process *p, uint64_t array);

/* The driver answered rc to cuIpcOpenMemHandle. Returns rc. */
CUresult vmm_opened(CUresult rc, const uint64_t *at);

/* -- graph.c: graphs -- */

/*
 * Allocation nodes of graphs. The driver takes their memory at a launch, where the library does
 * not look: an allocation node counts from the moment it is made, except for what nodes on the
 * way to it have freed. It counts until its graph and
 * all executable graphs made of it are destroyed and the driver returned the memory of graphs
 * (cuDeviceGraphMemTrim, which the library calls before it refuses an allocation).
 *
 * Graphs that run one after the other use the same memory. How far, only the driver knows. Once the
 * limit is reached, what it holds counts instead of the sum of the graphs, but at least what one
 * graph needs at a time.
 */

/* A whole allocation of a node of `bytes` that depends on the nodes `from`. `pointer`: where the
 * driver writes its address. */
CUresult graph_alloc(enum call call, const uint64_t *words, struct account *a,
                     uint64_t graph, uint64_t bytes, const uint64_t *from, size_t n,
                     const uint64_t *pointer);
/* A node of the graph frees the pointer. Locked. */
void graph_freed(struct process *p, uint64_t graph, uint64_t pointer, uint64_t node);

/* Returns the unused memory of graphs on a card. share: from now on they count by what the driver
 * holds. */
void graph_trim(struct process *p, int card, bool share);
/* Counts what the driver holds for graphs that share memory. */
void graph_settle(struct process *p);

/* -- handlers of hooks: see calls.h -- */

typedef CUresult limit_handler(enum call call, const uint64_t *words);
limit_handler linear_alloc, linear_pitch, vmm_create, vmm_map, pool_synchronize,
    graph_add_alloc, graph_trim_device, context_destroy, context_release,
    context_destroy_green, context_set_limit, info_memory, info_total,
    resolve_proc_address;
/* Functions of CUDA before 3.2, whose addresses have 32 bits: CUDA_ERROR_NOT_SUPPORTED. */
limit_handler account_refuse;

typedef CUresult limit_handler_of(enum call call, const uint64_t *words, int of);
limit_handler_of account_free;                      /* enum kind */
limit_handler_of linear_array;                      /* enum array_type */
limit_handler_of vmm_bind_handle, vmm_bind_address; /* which word is the offset */
limit_handler_of pool_alloc, pool_free;             /* enum pool_flags */
limit_handler_of graph_add_node;                 /* which word is the number of nodes */
limit_handler_of graph_destroy;                  /* enum kind */
limit_handler_of context_create, context_retain; /* which word is the device */
limit_handler_of context_load;                   /* enum call that undoes it */
limit_handler_of info_card, info_processes;      /* version of the struct; 0: none */
enum array_type { ARRAY_2D, ARRAY_3D, ARRAY_MIPMAPPED };
enum pool_flags { POOL_NAMED = 1, POOL_PER_THREAD = 2 };

/* What follows if the driver's function succeeds. Locked. */
typedef void limit_then(struct process *p, const uint64_t *words);
limit_then vmm_released, vmm_unmapped, vmm_retained, vmm_exported, vmm_imported,
    vmm_multicast, vmm_tiled, vmm_unbound, vmm_shared, vmm_closed, pool_got, pool_created,
    pool_destroyed, graph_added_free, graph_instantiated;
CUresult account_record(enum call call, const uint64_t *words, limit_then *then);
/* The same under change_lock, because another thread can get or release the same handle or address
 * as soon as the driver is done. */
CUresult account_change(enum call call, const uint64_t *words, limit_then *then);

/* -- elf.c: loaded objects -- */

/*
 * The objects that the dynamic linker loaded into this program, and their symbols, read from
 * their ELF tables. dlsym cannot be asked: the library exports a dlsym itself. The objects come
 * from dl_iterate_phdr, which glibc and musl have and which locks out dlopen meanwhile.
 */

struct elf_library {
    uintptr_t start, end; /* addresses of its segments; 0: not loaded */
    uintptr_t base;
    const void *dynamic;
    const char *path; /* of the dynamic linker; borrowed while it is loaded */
};

/* The object whose DT_SONAME is `soname`. False: not loaded. */
bool elf_find(const char *soname, struct elf_library *found);

/* Is the address in an object with this DT_SONAME? There can be several copies. */
bool elf_holds(const char *soname, const void *address);

/* The object with the address. False: none has it. */
bool elf_at(const void *address, struct elf_library *found);

/* A function that the object exports, or NULL. */
void *elf_symbol(const struct elf_library *l, const char *name);

/* Is the address that of a symbol that the object exports? */
bool elf_exports(const struct elf_library *l, const void *address);

/* The first object after the one with the address `caller`, in the order of loading, that
 * exports the name: what RTLD_NEXT means there. NULL: none does. `from`: that object. */
void *elf_next(const void *caller, const char *name, struct elf_library *from);

/* The path of this library as the dynamic linker loaded it, copied. False: not found or too
 * long. */
bool elf_own_path(char *into, uint32_t max);
