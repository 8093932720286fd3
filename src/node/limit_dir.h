/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * The files of libgpushare-limit.so on the host, in a directory that has the same path in
 * the plugin's container:
 *
 *     libgpushare-limit.so    a copy of the one in the plugin's image
 *     ld.so.preload           names it; a mount of /etc/ld.so.preload
 *     pods/UID/limit/I        struct limit_file of card I, mounted read-only
 *     pods/UID/state/I        struct limit_state, mounted; the pod can write anything into it
 *
 * limit/state.h describes the last two. A pod that makes its state larger fills the node's
 * disk, so limit_dir_check cuts it back.
 */

#define LIMIT_DIR_CONTAINER "/usr/local/gpushare" /* the directory in the container */

enum { LIMIT_DIR_CARDS = 16 }; /* LIMIT_CARDS */

struct limit_card {
    const char *uuid; /* "": any card */
    int64_t mib;      /* the limit */
};

/* The limits of a pod. */
struct limit_plan {
    const char *uid;
    struct limit_card cards[LIMIT_DIR_CARDS];
    size_t n;
};

/* Copies the library and writes ld.so.preload. Containers that run keep the library that
 * they loaded. Where SELinux labels the files, they get container_file_t; ERR_FORBIDDEN: they
 * cannot. */
int limit_dir_install(const char *dir, const char *library, struct err *err);

/* Makes the files of a pod, or changes its limits in place: they hold at the next
 * allocation. Never changes a state that is sound. ERR_INVALID: the UID cannot be a file name. */
int limit_dir_write(const char *dir, const struct limit_plan *plan, struct err *err);

/* Can it name a folder? A static pod has no such UID. */
bool limit_dir_is_uid(struct span uid);
bool limit_dir_has(const char *dir, const char *uid); /* does the pod have files? */

struct limit_dir_sink {
    bool (*is_known)(void *ctx, const char *uid); /* the pod is on this node */
    /* The limit of the pod could not be applied; `bits`: LIMIT_... of limit/state.h. */
    void (*failed)(void *ctx, const char *uid, uint32_t bits);
    void *ctx;
};
/* Appends what the bits mean, for an event of the pod. */
void limit_dir_explain(uint32_t bits, struct buf *out);
/* Removes the folders of pods that are not known, cuts back state that was made larger, repairs
 * what is short or foreign, and calls `failed` for each pod with a reason. */
void limit_dir_check(const char *dir, const struct limit_dir_sink *sink);
