/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * The files that libgpushare-limit.so and the programs of the node share. The library stands in
 * a folder with two others, and card I of the pod has one file in each:
 *
 *     libgpushare-limit.so
 *     limit/I    struct limit_file: the plugin writes it; the pod sees a read-only mount
 *     state/I    struct limit_state: the processes of the pod write it
 *
 * I counts from 0 without gaps. All containers of a pod share the files, so that the limit is
 * the pod's. Every field that changes is an aligned word, read and written atomically. A field
 * that is added later is 0 in the files of before, so that both sides can be replaced alone.
 *
 * A pod has a limit if the folder `limit` exists. What then cannot be applied refuses memory:
 * see LIMIT_NO_LOCKS and below. A card without a file has the limit 0.
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
    uint64_t context; /* bytes of a context that the library cannot measure */
    char uuid
        [LIMIT_UUID_MAX]; /* as NVML writes it: "GPU-..." or "MIG-..."; "" is any card */
    /* Of scv-agent: bytes that NVML shows for each of the pod's processes beyond what its slot
     * counts, in whole MiB. The library counts them for the pod. */
    uint64_t extra;
    uint32_t closed; /* LIMIT_...: no memory until the plugin clears it */
    uint32_t rise; /* of scv-agent, which raises `extra` slowly: see node/limit_slots.h */
};
/* The size of the file of a plugin that knows no later field. */
#define LIMIT_FILE_MIN offsetof(struct limit_file, extra)

/*
 * The use of one process. A process owns the slot while it holds the write lock (an open file
 * description lock, fcntl(2)) of byte I of the file, I the index of the slot. The lock belongs
 * to a mapping of the process, so the kernel drops it when the process ends or executes
 * another program, and at no other time: also after SIGKILL, across pid namespaces, and in
 * programs that close all descriptors. (A thread that forks at the very moment in which another
 * one takes the slot gives the child a share of the lock, until the child ends or executes
 * another program.) A slot whose lock is free has no owner, whatever the
 * slot says, and may be emptied by a process that takes the lock for that time.
 *
 * An observer that finds the process in NVML (`pid` in the pid namespace `namespace`,
 * `start_time`) knows the real size of its contexts: what NVML shows minus `used`, plus
 * `context`. A process in NVML without a slot runs without the limit.
 */
struct limit_slot {
    uint64_t used;       /* bytes that the process holds, contexts included */
    uint64_t want;       /* bytes that it is reserving now */
    uint64_t start_time; /* field 22 of /proc/PID/stat: clock ticks after boot */
    uint64_t namespace;  /* inode of /proc/self/ns/pid */
    uint32_t pid;        /* in that namespace */
    uint32_t version;    /* LIMIT_VERSION of its library; 0: the slot was never used */
    uint64_t context;    /* of `used`: bytes of its contexts, as it measured them */
    uint64_t imported;   /* bytes of other processes' memory that it has mapped */
    uint64_t exported;   /* of `used`: bytes that other processes can import, or have */
};

/* Why a limit could not be applied: bits of `reasons`, and of `closed`. The calls that would
 * take memory are refused meanwhile, except LIMIT_UNKNOWN and LIMIT_UNCOUNTED. */
enum {
    LIMIT_NO_LOCKS = 1, /* the kernel or file system has no open file description locks */
    LIMIT_NO_WIPE = 2,  /* the kernel lacks MADV_WIPEONFORK (Linux 4.14) */
    LIMIT_NO_MEMORY = 4,  /* mmap failed */
    LIMIT_BAD_LIMIT = 8,  /* limit/I is not a struct limit_file */
    LIMIT_BAD_STATE = 16, /* state/I is short or foreign, or was tampered with */
    LIMIT_NO_FILE = 32,   /* a file cannot be opened: descriptors, rights, missing */
    LIMIT_CHROOT = 64,    /* the process changed its root before its first call */
    LIMIT_NO_SLOT = 128,  /* LIMIT_SLOTS processes live */
    LIMIT_NO_CARD = 256,  /* the card was not promised, or its UUID cannot be read */
    LIMIT_UNKNOWN = 512,  /* a program got a driver's function of an unknown version */
    LIMIT_UNCOUNTED =
        1024, /* the driver or NVML does not say how much memory something took */
};

struct limit_state {
    uint32_t magic, version;
    uint32_t high;    /* slots from here on were never used; at most LIMIT_SLOTS */
    uint32_t reasons; /* LIMIT_... of all processes so far */
    uint64_t refused; /* allocations refused so far */
    uint64_t chunk; /* by how much a pool grows at least, as processes saw; 0: unknown */
    uint64_t reserved[4];
    struct limit_slot slots[LIMIT_SLOTS];
};

_Static_assert(sizeof(struct limit_file) == 104, "the layout is fixed");
_Static_assert(LIMIT_FILE_MIN == 88, "fields are added at the end");
_Static_assert(sizeof(struct limit_slot) == 64, "one slot in each cache line");
_Static_assert(offsetof(struct limit_state, slots) == 64, "slots are aligned");
