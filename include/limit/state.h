/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * The files that libgpushare-limit.so and the device plugin share. The library stands in a
 * folder with two others, and card I of the pod has one file in each:
 *
 *     libgpushare-limit.so
 *     limit/I    struct limit_file: the plugin writes it; the pod sees a read-only mount
 *     state/I    struct limit_state: the processes of the pod write it
 *
 * I counts from 0 without gaps. All containers of a pod share the files, so that the limit is
 * the pod's. Every field that changes is an aligned word, read and written atomically.
 *
 * The pod can write anything into state/I. No reader trusts it: a value is compared and added
 * with saturation, and no value is used as an index or an address. A reader outside the pod
 * uses pread, because the pod can shorten the file under a mapping.
 */

enum {
    LIMIT_VERSION = 1,
    LIMIT_CARDS = 16,   /* of a pod */
    LIMIT_SLOTS = 512,  /* processes of a pod that use one card at a time */
    LIMIT_UUID_MAX = 64 /* with the 0 byte */
};
#define LIMIT_FILE_MAGIC  0x4d494c47u /* "GLIM" */
#define LIMIT_STATE_MAGIC 0x54534c47u /* "GLST" */
/* A value of `limit`: any amount. */
#define LIMIT_NONE UINT64_MAX

struct limit_file {
    uint32_t magic, version;
    uint64_t limit;   /* bytes of the card that the pod may use; may change at any time */
    uint64_t context; /* bytes to count for each CUDA context */
    char uuid
        [LIMIT_UUID_MAX]; /* as NVML writes it: "GPU-..." or "MIG-..."; "" is any card */
};

/*
 * The use of one process. A process owns the slot while it holds the write lock (an open file
 * description lock, fcntl(2)) of byte I of the file, I the index of the slot. The lock belongs
 * to a mapping of the process, so the kernel drops it when the process ends or executes
 * another program, and at no other time: also after SIGKILL, across pid namespaces, and in
 * programs that close all descriptors. (A thread that forks at the very moment in which another
 * one takes the slot gives the child a share of the lock, until the child ends or executes
 * another program.) A slot whose lock is free has no owner, whatever the
 * slot says, and may be emptied by a process that takes the lock for that time.
 */
struct limit_slot {
    uint64_t used;       /* bytes that the process holds */
    uint64_t want;       /* bytes that it is reserving now */
    uint64_t start_time; /* field 22 of /proc/PID/stat: clock ticks after boot */
    uint64_t namespace;  /* inode of /proc/self/ns/pid */
    uint32_t pid;        /* in that namespace */
    uint32_t version;    /* LIMIT_VERSION of its library; 0: the slot was never used */
    uint64_t reserved[3];
};

/* Reasons why processes of the pod ran without the limit: bits of `unlimited`. */
enum {
    LIMIT_NO_LOCKS = 1, /* the kernel or file system has no open file description locks */
    LIMIT_NO_WIPE = 2,  /* the kernel lacks MADV_WIPEONFORK (Linux 4.14) */
    LIMIT_NO_MEMORY = 4, /* mmap failed */
    LIMIT_BAD_LIMIT = 8, /* limit/I is not a struct limit_file */
};

struct limit_state {
    uint32_t magic, version;
    uint32_t high;      /* slots from here on were never used; at most LIMIT_SLOTS */
    uint32_t unlimited; /* LIMIT_NO_... of all processes so far */
    uint64_t refused;   /* allocations refused so far */
    uint64_t reserved[5];
    struct limit_slot slots[LIMIT_SLOTS];
};

_Static_assert(sizeof(struct limit_file) == 88, "the layout is fixed");
_Static_assert(sizeof(struct limit_slot) == 64, "one slot in each cache line");
_Static_assert(offsetof(struct limit_state, slots) == 64, "slots are aligned");
