/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "limit/cuda.h"
#include "limit/process.h"

/*
 * Counting one allocation: account_begin finds the card, account_reserve takes the bytes, the
 * caller calls the driver, and account_end records the result. A free takes the record first,
 * calls the driver, and releases the bytes after it, so that no other process takes memory that
 * the driver still holds.
 */

struct account {
    struct process *process;
    int card;
    uint64_t context;
    uint64_t bytes; /* reserved so far */
};

/* For the current context. False: there is no limit for it, or the driver itself calls: the
 * caller calls the driver and counts nothing. */
bool account_begin(struct account *a);
/* For a device. */
bool account_begin_device(struct account *a, CUdevice device);

/* CUDA_SUCCESS or CUDA_ERROR_OUT_OF_MEMORY. Before it refuses, it calls account_trim. */
CUresult account_reserve(struct account *a, uint64_t bytes);
/* Gives back what the pools and graphs of this process hold without use. trim.c defines it,
 * because pools and graphs use this module. */
void account_trim(struct process *p, int card);

/* Ends an allocation: the driver answered `rc`. On success the reserved bytes belong to the
 * entry (kind, key), otherwise they are released. Returns rc, or CUDA_ERROR_OUT_OF_MEMORY if the
 * entry cannot be recorded: then the bytes count until the process ends. */
CUresult account_end(struct account *a, CUresult rc, enum kind kind, uint64_t key);

/* Takes the entry out of the table for a free: the caller calls the driver and then
 * account_free_end. False: there is none. */
bool account_free_begin(struct entry *taken, enum kind kind, uint64_t key);
/* Releases its bytes if rc is CUDA_SUCCESS, otherwise records it again. Returns rc. */
CUresult account_free_end(const struct entry *taken, CUresult rc);

/* The card of the device, or -1. */
int account_card(struct process *p, CUdevice device);
