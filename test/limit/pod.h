/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "gpu/fake_cuda.h"
#include "gpu/gpu.h"
#include "lib/program.h"
#include "lib/temp.h"
#include "limit/state.h"

/*
 * A pod with one card as its containers see it: the library with its files in a folder, and a
 * driver without a card. Guests are the programs of test/limit/guest.
 */

enum { POD_LIMIT_MIB = 64 };
#define POD_UUID   "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
#define POD_UUID_2 "GPU-10010203-0405-0607-0809-0a0b0c0d0e0f"

struct pod {
    char *dir;
    struct limit_file *limit; /* mapped, as the plugin has it */
    struct limit_state *state;
    struct fake_books *books;
    const char *cgroup; /* of the guests that the driver limits; NULL: the library does */
};

void pod_begin(struct pod *p);
/* The same with the files that are in the folder: limit/0 and state/0. */
void pod_begin_in(struct pod *p, const char *dir);
/* The driver limits the guests from now on, on one of the pod's folders of cgroups:
 * "cgroup/pod" or "cgroup/pod/c", in which they run; on both cards. They have no library. */
void pod_limit_by_driver(struct pod *p, const char *cgroup, int mib);
/* The driver's NVML, with a sample taken, until it is closed: the test's own environment names it. */
struct gpu *pod_open_nvml(const struct pod *p);
void pod_close_nvml(struct gpu *gpu);
/* The limit of that cgroup as NVML has it. */
struct gpu_memory_limit pod_driver_limit(const struct pod *p, const char *cgroup);
/* Promises the pod device 1 too, as much as of device 0. */
void pod_add_card(struct pod *p);
void pod_end(struct pod *p);

/* Is there a musl? The guests "musl/guest" need it. */
bool pod_has_musl(void);
/* Whether a child of fork finds memory with MADV_WIPEONFORK empty: qemu-user 7.2 ignores this
 * advice, and MADV_DONTFORK. Says so on standard output if not. */
bool pod_wipes_on_fork(void);

/* Starts a guest, "guest" or "guest-link", with the library preloaded. */
void pod_start(const struct pod *p, struct program *guest, const char *name,
               const char *what, const char *way, const char *n);
/* The same in a pid namespace of its own, as in another container of the pod. Needs root. */
void pod_start_apart(const struct pod *p, struct program *guest, const char *what,
                     const char *n);
bool pod_can_start_apart(void);
/* Runs a guest. Fails the test with its output unless it exits with `status`. */
void pod_run(const struct pod *p, const char *name, const char *what, const char *way,
             const char *n, int status);
