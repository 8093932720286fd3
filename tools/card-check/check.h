/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sys/types.h>

#include "base/opt.h"
#include "gpu/gpu.h"

/* What the steps of gpushare-card-check share. */

enum { LIMIT_MIB = 2048, HELD_MIB = 1200, OUT_OF_MEMORY = 2, NOT_FOUND = 127 };

#define GUEST "gpushare-card-guest"
#define LIMIT "libgpushare-limit.so"

struct config {
    char *library, *smi, *root, *cgroup_root, *copy_to;
    int64_t timeout_ms;
    struct opt_list steps;
};

struct check {
    const struct config *config;
    const char *step,
        *programs;      /* the folder of this program, of the guest and the library */
    char *dir;          /* of the step: as a container's /usr/local/gpushare */
    const char *cgroup; /* of the programs that it starts; NULL: its own */
    struct gpu_sample sample;
    const struct gpu_card *card; /* that memory is taken of; NULL: none is healthy */
};

enum status { OK, DIFFERS, NOT_PRESENT, N_STATUSES };

/* A line of the report. The text can have bytes of the driver, so it is made printable. */
void check_say(const struct check *k, enum status s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* `status`: that of the process, as the guest ends. */
void check_say_answer(const struct check *k, const char *what, int status, int want);
const char *check_answer(int status); /* "allocated", "out of memory", "error" */

/* Runs a program without a shell. *out: what it printed. Returns its exit status; NOT_FOUND: there
 * is no such program; -1: it was killed. */
int check_run(const struct check *k, const char *const *argv, const char *input,
              bool limited, struct buf *out);
/* Allocates in a process of C. */
int check_allocate(const struct check *k, int mib, bool limited);
/* A process that holds memory until it is killed; -1: it did not get the memory. */
pid_t check_hold(const struct check *k, int mib, bool limited);
void check_end(pid_t pid);

/* The daemon of MPS, whose clients are what is started until it ends. False: there is none, and
 * the report says why. */
bool check_start_mps(const struct check *k);
void check_end_mps(const struct check *k);

/* driver_limit.c: a step. */
void check_driver_limit(const struct check *k);
