/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "limit/state.h"
#include "limit/table.h"

/*
 * The cards of this process that have a limit, and what the process holds of them.
 *
 * The struct lives in memory that fork replaces by zeros (MADV_WIPEONFORK): a child begins
 * without a slot, without allocations and with free locks. CUDA gives a child nothing of its
 * parent's memory either.
 */

enum { PROCESS_DEVICES = 64, PROCESS_PATH_MAX = 512 };

struct card {
    const struct limit_file *file; /* NULL: no limit */
    struct limit_state *state;
    uint32_t slot;
    bool full;     /* every slot is taken: nothing can be allocated */
    uint64_t used; /* `used` of the slot; the slot itself can be overwritten by anybody */
    char path[PROCESS_PATH_MAX];
};

struct process {
    uint32_t phase, lock;
    uint32_t n_cards;
    struct card cards[LIMIT_CARDS];
    struct table table;                /* under lock */
    uint64_t next_number, next_memory; /* under lock. Of graphs, of cuMemCreate */
    int32_t
        device_card[PROCESS_DEVICES];  /* under lock. 0: unknown; else 1 + card, or -1 */
    uint64_t primary[PROCESS_DEVICES]; /* under lock. Primary contexts */
    uint32_t pool_lock; /* before lock, while the driver's sizes are read and counted */
    bool pools;         /* under lock. A pool was used */
    uint32_t contexts_ended; /* how many contexts were destroyed */
};

/* NULL: no card of this process has a limit. The first call opens the files. */
struct process *process_get(void);

/* Reserves bytes of a card for this process. Takes the lock. */
bool process_reserve(struct process *p, int card, uint64_t bytes);
/* process_reserve while the caller holds the lock. */
bool process_reserve_locked(struct process *p, int card, uint64_t bytes);
void process_release(struct process *p, int card, uint64_t bytes);
void process_release_locked(struct process *p, int card, uint64_t bytes);

/* Counts bytes that the driver took already, above the limit if need be. Locked. */
void process_force_locked(struct process *p, int card, uint64_t bytes);

/* Counts an allocation that was refused in the end. */
void process_refused(struct process *p, int card);

/* The limit of the card now. */
uint64_t process_limit(const struct process *p, int card);
/* What the living processes of the pod hold. Empties the slots of ended ones. */
uint64_t process_used(const struct process *p, int card);

/* The card with the UUID, as NVML writes it, or -1. With or without "GPU-" and dashes. */
int process_card(const struct process *p, const char *uuid);
