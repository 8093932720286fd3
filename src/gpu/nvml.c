/* SPDX-License-Identifier: Apache-2.0 */
/* The source NVML: finds and opens the driver's library, reads cards and their processes,
 * and waits for events. */
#include "gpu/nvml_priv.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"

/* -- the library -- */

static const struct {
    size_t at; /* offset in struct nvml_calls */
    bool needed;
    const char *names[2]; /* the second: if the first is absent */
} table[] = {
#define ROW(member, args, ...)                                                           \
    {offsetof(struct nvml_calls, member), false, {__VA_ARGS__}},
#define NEEDED(member, args, name) {offsetof(struct nvml_calls, member), true, {name}},
    NVML_CALLS(ROW, NEEDED)
#undef ROW
#undef NEEDED
        {offsetof(struct nvml_calls, error_string), true, {"nvmlErrorString"}},
};

/* Whether the code means that NVML must be initialized again. */
static bool is_gone(int rc)
{
    return rc == NVML_UNINITIALIZED || rc == NVML_DRIVER_NOT_LOADED ||
           rc == NVML_VERSION_MISMATCH;
}

/* Whether the code means that the card is unreachable. */
static bool is_lost(int rc)
{
    return rc == NVML_GPU_IS_LOST || rc == NVML_RESET_REQUIRED;
}

#define LIBRARY "libnvidia-ml.so.1"

/* The order of nvidia-container-toolkit 1.20 (pkg/lookup): RHEL and SUSE, Debian and Ubuntu,
 * Debian's own packages of the driver. */
const char *const gpu_library_dirs[GPU_LIBRARY_DIRS] = {
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/usr/lib",
    "/lib64",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/lib/x86_64-linux-gnu/nvidia/current",
    "/lib/aarch64-linux-gnu/nvidia/current",
    "/lib"};

/* The path of the library in a directory of the root; new, or NULL. Not that of the
 * descriptor in /proc: the loader takes a file for another one that it has loaded by the
 * same name. */
static char *find_in(int root, const char *directory)
{
    char self[64], path[PATH_MAX];
    struct stat st;
    cleanup_free char *at = xasprintf("%s/" LIBRARY, directory);
    cleanup_close int fd = file_open_inside(root, at, O_PATH);
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    ssize_t n = fd < 0 ? -1 : readlink(self, path, sizeof path - 1);
    if (n <= 0 || fstat(fd, &st) || !S_ISREG(st.st_mode))
        return NULL;
    path[n] = '\0';
    return xstrdup(path);
}

/* If `library` is a directory, the root of a driver: the path of libnvidia-ml.so.1 in one of
 * its library directories, without symbolic links. Else `library` itself. New.
 * ERR_NOT_FOUND: there is none. */
static int find_library(const char *library, char **path, struct err *err)
{
    cleanup_close int root = open(library, O_PATH | O_DIRECTORY | O_CLOEXEC);
    *path = NULL;
    if (root < 0) {
        *path = xstrdup(library);
        return 0;
    }
    /* The first is for drivers without a file system. */
    *path = find_in(root, "");
    for (size_t i = 0; i < GPU_LIBRARY_DIRS && !*path; i++)
        *path = find_in(root, gpu_library_dirs[i]);
    return *path ? 0
                 : err_set(err, ERR_NOT_FOUND,
                           "NVML: no " LIBRARY " in the library directories below %s",
                           library);
}

/* -- the processes of a card -- */

enum {
    FIRST = 32,        /* processes in the first buffer; also its step */
    ATTEMPTS = 5,      /* with a larger buffer each: processes start in between */
    ITEM_ROOM = 128,   /* bytes of the buffer for an item, several times what is known */
    UNWRITTEN = 0xa5,  /* what the buffer has before the call; no last byte of an item */
    PID_END = 1 << 22, /* the kernel's PID_MAX_LIMIT: every pid is below */
    WINDOW_US = 2 * 1000 * 1000, /* utilization is that of the last two seconds */
};

struct process_list {
    struct gpu_process *p;
    size_t n, cap;
};

/* A buffer for `cap` items of a list, new. */
static char *new_items(unsigned cap)
{
    return memset(xmalloc((size_t)cap * ITEM_ROOM), UNWRITTEN, (size_t)cap * ITEM_ROOM);
}

/* The size of the `n` items that a driver has written there, from where they end: `_v3` of
 * drivers 535.43 to 535.86 has a member more than that of all others. 0: it is none. */
static size_t item_size(const char *items, unsigned cap, unsigned n)
{
    const size_t align = sizeof(uint64_t);
    size_t end = (size_t)cap * ITEM_ROOM;
    while (end && (unsigned char)items[end - 1] == UNWRITTEN)
        end--;
    size_t size = n ? ((end + n - 1) / n + align - 1) / align * align : 0;
    return size <= ITEM_ROOM && n * size - end < align ? size : 0;
}

/* A list of processes: one of the calls, and the least size of its items. */
struct list_call {
    int (*call)(void *, unsigned *, void *);
    size_t size;
};

/* A list with an impossible item says nothing: what looks possible in it can be misread. */
static int list_processes(void *device, const struct list_call *list,
                          struct process_list *out)
{
    unsigned cap = FIRST;
    int rc = NVML_INSUFFICIENT_SIZE;
    for (int i = 0; i < ATTEMPTS && rc == NVML_INSUFFICIENT_SIZE; i++) {
        cleanup_free char *items = new_items(cap);
        struct nvml_process_v1 v1; /* also the prefix of v2 */
        unsigned n = cap;
        rc = list->call(device, &n, items);
        if (rc == NVML_INSUFFICIENT_SIZE && n <= GPU_MAX_PROCESSES)
            cap = (n > cap ? n : cap) + FIRST;
        else if (rc == NVML_INSUFFICIENT_SIZE || (rc == NVML_OK && n > cap))
            return NVML_UNKNOWN;
        if (rc != NVML_OK || !n)
            continue;
        const size_t size = item_size(items, cap, n);
        for (unsigned k = 0; k < n; k++) {
            memcpy(&v1, items + k * size, sizeof v1);
            if (size < list->size || !v1.pid || v1.pid >= PID_END)
                return NVML_UNKNOWN;
        }
        for (unsigned k = 0; k < n; k++) {
            memcpy(&v1, items + k * size, sizeof v1);
            int64_t bytes = v1.used < 1ULL << 60 ? (int64_t)v1.used : -1;
            /* A process with compute and graphics contexts is in both lists, with the
             * same bytes; so is a client of MPS. */
            size_t at = 0;
            while (at < out->n && out->p[at].pid != v1.pid)
                at++;
            if (at == out->n) {
                MEM_GROW(out->p, out->cap, out->n + 1);
                out->p[out->n++] = (struct gpu_process){v1.pid, bytes, -1};
            }
            out->p[at].bytes = out->p[at].bytes > bytes ? out->p[at].bytes : bytes;
        }
    }
    return rc;
}

/* Some drivers leave items of the buffer unset: these have pid 0, an old time, or
 * percentages beyond 100. */
static void take_utilization(const struct nvml_process_utilization *u, unsigned n,
                             unsigned long long since, const struct process_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        unsigned long long newest = 0;
        list->p[i].sm_percent = 0;
        for (unsigned k = 0; k < n; k++)
            if (u[k].pid == list->p[i].pid && u[k].sm <= 100 && u[k].at > since &&
                u[k].at >= newest) {
                newest = u[k].at;
                list->p[i].sm_percent = (int32_t)u[k].sm;
            }
    }
}

/* A process that NVML does not list here used no SM. NVML_NOT_FOUND: no process did. */
static int read_utilization(const struct nvml_calls *c, void *device,
                            const struct process_list *list)
{
    unsigned long long since = (unsigned long long)(clock_wall_ns() / 1000 - WINDOW_US);
    unsigned n = 0;
    int rc = c->process_utilization(device, NULL, &n, since);
    for (int i = 0; i < ATTEMPTS && rc == NVML_INSUFFICIENT_SIZE; i++) {
        unsigned cap = n + FIRST;
        if (n > GPU_MAX_PROCESSES)
            return NVML_UNKNOWN;
        cleanup_free char *items = new_items(cap);
        const struct nvml_process_utilization *u = (const void *)items;
        n = cap;
        rc = c->process_utilization(device, (void *)items, &n, since);
        if (rc == NVML_OK && item_size(items, cap, n) > sizeof *u)
            return NVML_UNKNOWN;
        if (rc == NVML_OK)
            take_utilization(u, n < cap ? n : cap, since, list);
    }
    if (rc == NVML_NOT_FOUND || (rc == NVML_OK && n == 0))
        take_utilization(NULL, 0, since, list);
    return rc;
}

/* NVML_OK, or the code of the call that found the driver gone or the card lost. Cards
 * without graphics or MPS do not support these two lists; compute is required. */
static int read_processes(const struct nvml_calls *c, void *device, struct arena *a,
                          struct gpu_card *card)
{
    static const size_t v1 = sizeof(struct nvml_process_v1);
    static const size_t v2 = sizeof(struct nvml_process_v2);
    const struct list_call lists[] = {
        {c->compute ? c->compute : c->compute_v1, c->compute ? v2 : v1},
        {c->graphics ? c->graphics : c->graphics_v1, c->graphics ? v2 : v1},
        {c->mps ? c->mps : c->mps_v1, c->mps ? v2 : v1},
    };
    struct process_list list = {0};
    int rc = NVML_OK;
    card->processes_known = true;
    for (size_t i = 0; i < ARRAY_LEN(lists) && card->processes_known; i++) {
        rc = lists[i].call ? list_processes(device, &lists[i], &list)
                           : NVML_FUNCTION_NOT_FOUND;
        bool none = rc == NVML_NOT_SUPPORTED || rc == NVML_FUNCTION_NOT_FOUND;
        card->processes_known = rc == NVML_OK || (i > 0 && none);
    }
    if (list.n && card->processes_known && c->process_utilization)
        rc = read_utilization(c, device, &list);
    gpu_set_processes(card, list.p, list.n, a);
    free(list.p);
    return is_gone(rc) || is_lost(rc) ? rc : NVML_OK;
}

/* -- one card -- */

/* The read of one card. After a call returned that the card or the driver is gone, no
 * further call is made. */
struct reader {
    const struct nvml_calls *call;
    void *device;
    struct gpu_card *card;
    int gone, lost; /* the code of that call, or NVML_OK */
    bool unified;   /* its memory is that of the system */
};

/* Whether the function exists and succeeded. */
#define CALL(r, member, ...)                                                             \
    ((r)->call->member && may_call(r) &&                                                 \
     did(r, (r)->call->member((r)->device __VA_OPT__(, ) __VA_ARGS__)))

static bool may_call(const struct reader *r)
{
    return !r->gone && !r->lost;
}

/* The card does not have what the function reads, or the driver does not know it. */
static bool is_absent(int rc)
{
    return rc == NVML_NOT_SUPPORTED || rc == NVML_FUNCTION_NOT_FOUND ||
           rc == NVML_INVALID_ARGUMENT || rc == NVML_ARGUMENT_VERSION_MISMATCH;
}

static void note_unchecked(const struct nvml_calls *call, struct gpu_card *c,
                           const char *what, int rc)
{
    size_t n = strlen(c->unchecked);
    snprintf(c->unchecked + n, sizeof c->unchecked - n, "%sits %s: %s (%d)",
             n ? "; " : "", what, call->error_string(rc), rc);
}

static bool did(struct reader *r, int rc)
{
    if (is_gone(rc))
        r->gone = rc;
    else if (is_lost(rc))
        r->lost = rc;
    return rc == NVML_OK;
}

/* Notes a check that fails: what it would find reads as health. */
static bool did_check(struct reader *r, const char *what, int rc)
{
    if (!did(r, rc) && may_call(r) && !is_absent(rc))
        note_unchecked(r->call, r->card, what, rc);
    return rc == NVML_OK;
}

/* As CALL, for a check of the card's health. */
#define CHECK(r, what, member, ...)                                                      \
    ((r)->call->member && may_call(r) &&                                                 \
     did_check(r, what " cannot be read", (r)->call->member((r)->device, __VA_ARGS__)))

static struct span text_of(const char *buffer, size_t size)
{
    return (struct span){buffer, strnlen(buffer, size)};
}

static void read_identity(struct reader *r)
{
    struct gpu_card *c = r->card;
    char text[NVML_TEXT] = {0};
    struct nvml_pci pci = {0};
    if (CALL(r, uuid, text, sizeof text))
        gpu_set_uuid(c->uuid, sizeof c->uuid, text_of(text, sizeof text));
    memset(text, 0, sizeof text);
    if (CALL(r, name, text, sizeof text))
        gpu_set_text(c->model, sizeof c->model, text_of(text, sizeof text));
    if (CALL(r, pci, &pci))
        gpu_set_text(c->bus_id, sizeof c->bus_id, text_of(pci.bus_id, sizeof pci.bus_id));
}

static void read_memory(struct reader *r)
{
    struct nvml_memory_v2 v2 = {.version = NVML_MEMORY_V2};
    struct nvml_memory v1 = {0};
    if (CALL(r, memory_v2, &v2)) {
        gpu_set_memory(
            r->card, &(struct gpu_memory){v2.total, v2.free, v2.used, v2.reserved, true});
        return;
    }
    if (!may_call(r))
        return;
    int rc = r->call->memory(r->device, &v1);
    if (did(r, rc))
        gpu_set_memory(r->card,
                       &(struct gpu_memory){v1.total, v1.free, v1.used, 0, false});
    else if (rc == NVML_NOT_SUPPORTED)
        r->unified = true;
    else if (may_call(r))
        gpu_set_state(r->card, GPU_UNREADABLE, "cannot read its memory: %s (%d)",
                      r->call->error_string(rc), rc);
}

/* NVML_OK, or a code for which is_gone is true. */
static int end_card(struct reader *r)
{
    if (r->lost)
        gpu_set_state(r->card, GPU_LOST, "%s (%d)", r->call->error_string(r->lost),
                      r->lost);
    gpu_derive_state(r->card);
    return r->gone;
}

/* NVML_OK, or a code for which is_gone is true. */
static int read_card(const struct nvml_calls *call, void *device, uint64_t unified_bytes,
                     struct arena *a, struct gpu_card *c)
{
    struct reader reader = {.call = call, .device = device, .card = c}, *r = &reader;
    struct nvml_utilization u = {0};
    struct nvml_field recovery = {.id = NVML_FI_RECOVERY_ACTION};
    struct nvml_fabric fabric = {.version = NVML_FABRIC_V2};
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0, mode = 0, next = 0;
    unsigned v = 0;
    uint64_t used = 0;
    read_identity(r);
    read_memory(r);
    if (CALL(r, utilization, &u))
        gpu_set(c, GPU_UTILIZATION, u.gpu);
    if (CHECK(r, "retired pages", pages_pending, &pending))
        gpu_set(c, GPU_PAGES_PENDING, pending);
    if (CHECK(r, "remapped rows", remapped_rows, &corrected, &uncorrected, &pending,
              &failed)) {
        gpu_set(c, GPU_REMAP_FAILED, failed != 0);
        gpu_set(c, GPU_REMAP_PENDING, pending != 0);
    }
    if (CHECK(r, "recovery action", fields, 1, &recovery) &&
        did_check(r, "recovery action cannot be read", recovery.rc) &&
        (recovery.type == NVML_VALUE_UNSIGNED_INT ||
         recovery.type == NVML_VALUE_SIGNED_INT))
        gpu_set(c, GPU_RECOVERY, recovery.value.u);
    if (CHECK(r, "MIG mode", mig_mode, &mode, &next))
        gpu_set(c, GPU_MIG_MODE, mode);
    if (CHECK(r, "compute mode", compute_mode, &mode))
        gpu_set(c, GPU_COMPUTE_MODE, mode);
    if (CALL(r, fabric_v, &fabric) || CHECK(r, "NVLink fabric", fabric, fabric.cluster)) {
        gpu_set(c, GPU_FABRIC_STATE, fabric.state);
        gpu_set(c, GPU_FABRIC_STATUS, fabric.status);
    }
    if (CALL(r, minor, &v))
        gpu_set(c, GPU_MINOR, v);
    if (CALL(r, pcie_gen, &v))
        gpu_set(c, GPU_PCIE_GEN_MAX, v);
    if (CALL(r, pcie_width, &v))
        gpu_set(c, GPU_PCIE_WIDTH_MAX, v);
    if (CALL(r, power_limit, &v))
        gpu_set(c, GPU_POWER_LIMIT, v);
    if (CALL(r, max_clock, NVML_CLOCK_SM, &v))
        gpu_set(c, GPU_CLOCK_SM_MAX, v);
    if (CALL(r, max_clock, NVML_CLOCK_MEM, &v))
        gpu_set(c, GPU_CLOCK_MEM_MAX, v);
    if (CALL(r, temperature, NVML_TEMPERATURE_GPU, &v))
        gpu_set(c, GPU_TEMPERATURE, v);
    if (may_call(r))
        did(r, read_processes(call, device, a, c));
    if (!r->unified || !may_call(r))
        return end_card(r);
    for (size_t i = 0; i < c->n_processes; i++)
        used += c->processes[i].bytes > 0 ? (uint64_t)c->processes[i].bytes : 0;
    used = used < unified_bytes ? used : unified_bytes;
    if (unified_bytes)
        gpu_set_memory(
            c, &(struct gpu_memory){unified_bytes, unified_bytes - used, used, 0, true});
    else
        gpu_set_state(
            c, GPU_UNREADABLE,
            "its memory is that of the system, and --unified-memory does not say "
            "how much of it is the card's");
    return end_card(r);
}

/* -- the instances of a card in MIG mode -- */

/* Its health is that of the card. NVML_OK, or a code for which is_gone is true. */
static int read_instance(const struct nvml_calls *call, void *device, struct arena *a,
                         const struct gpu_card *parent, struct gpu_card *card)
{
    static const uint32_t of_parent =
        (GPU_CONSTANT & ~(1 << GPU_MEM_TOTAL | 1 << GPU_MEM_RESERVED)) |
        1 << GPU_TEMPERATURE | 1 << GPU_PAGES_PENDING | 1 << GPU_REMAP_FAILED |
        1 << GPU_REMAP_PENDING | 1 << GPU_RECOVERY | 1 << GPU_COMPUTE_MODE |
        1 << GPU_FABRIC_STATE | 1 << GPU_FABRIC_STATUS;
    static const char word[] = " MIG ";
    struct reader r = {.call = call, .device = device, .card = card};
    struct nvml_attributes at = {0};
    char profile[64] = "", model[sizeof card->model + sizeof profile];
    unsigned number = 0;
    card->known = parent->known & of_parent;
    memcpy(card->value, parent->value, sizeof card->value);
    memcpy(card->bus_id, parent->bus_id, sizeof card->bus_id);
    memcpy(card->parent_uuid, parent->uuid, sizeof card->parent_uuid);
    memcpy(card->unchecked, parent->unchecked, sizeof card->unchecked);
    card->events = parent->events;
    read_identity(&r);
    if (may_call(&r) && strncmp(card->uuid, "MIG-", 4) != 0)
        gpu_set_state(card, GPU_UNREADABLE, "it has no UUID of an instance");
    /* Drivers put the profile into the name; older ones name the card. */
    const char *named = strstr(card->model, word);
    if (named) {
        snprintf(profile, sizeof profile, "%s", named + strlen(word));
    } else if (CALL(&r, attributes, &at) && at.gpu_slices) {
        size_t n =
            at.compute_slices < at.gpu_slices
                ? (size_t)snprintf(profile, sizeof profile, "%uc.", at.compute_slices)
                : 0;
        snprintf(profile + n, sizeof profile - n, "%ug.%llugb", at.gpu_slices,
                 (at.memory_mib + 1023) / 1024);
        snprintf(model, sizeof model, "%s%s%s", card->model, word, profile);
        gpu_set_text(card->model, sizeof card->model, span_of(model));
    }
    gpu_set_text(card->profile, sizeof card->profile, span_of(profile));
    if (!*card->profile) {
        snprintf(card->profile, sizeof card->profile, "unknown");
        gpu_set_state(card, GPU_UNREADABLE, "NVML does not name its profile");
    }
    read_memory(&r);
    if (CALL(&r, gpu_instance, &number))
        gpu_set(card, GPU_INSTANCE, number);
    if (CALL(&r, compute_instance, &number))
        gpu_set(card, GPU_COMPUTE_INSTANCE, number);
    if (may_call(&r))
        did(&r, read_processes(call, device, a, card));
    return end_card(&r);
}

/* Appends the instances of the card to the sample, which has room for GPU_MAX_CARDS; its
 * reason says how many. NVML_OK, or a code for which is_gone is true. */
static int add_instances(const struct nvml_calls *call, void *device,
                         struct gpu_card *parent, struct gpu_sample *s)
{
    unsigned most = 0, n = 0;
    bool full = false;
    int rc = *parent->uuid && call->max_instances && call->instance
                 ? call->max_instances(device, &most)
                 : NVML_NOT_SUPPORTED;
    for (unsigned i = 0; rc == NVML_OK && i < most && i < GPU_INDEXES && !full; i++) {
        void *instance = NULL;
        rc = call->instance(device, i, &instance);
        if (rc == NVML_NOT_FOUND)
            rc = NVML_OK; /* none at this position */
        else if (!rc && (i >= GPU_MAX_INSTANCES || s->n_cards == GPU_MAX_CARDS))
            full = true;
        else if (!rc) {
            struct gpu_card *card = &s->cards[s->n_cards++];
            card->index = GPU_MAX_CARDS + GPU_MAX_INSTANCES * parent->index + (int32_t)i;
            n++;
            rc = read_instance(call, instance, &s->arena, parent, card);
            /* The compute instances of one GPU instance share its memory, and NVML names
             * all of it for each: only the first is a card that can be promised. */
            for (const struct gpu_card *other = s->cards; other < card; other++)
                if (!strcmp(other->parent_uuid, card->parent_uuid) &&
                    gpu_knows(other, GPU_INSTANCE) && gpu_knows(card, GPU_INSTANCE) &&
                    other->value[GPU_INSTANCE] == card->value[GPU_INSTANCE])
                    gpu_set_state(card, GPU_UNREADABLE, "it shares its memory with %s",
                                  other->uuid);
        }
    }
    if (is_gone(rc))
        return rc;
    if (rc)
        snprintf(parent->why, sizeof parent->why,
                 "the card is in MIG mode, and its instances cannot be read: %s (%d)",
                 call->error_string(rc), rc);
    else
        snprintf(parent->why, sizeof parent->why,
                 "the card is in MIG mode, with %u instance%s%s", n, n == 1 ? "" : "s",
                 full ? "; others are left out: a node has 64 cards, and a card 8 "
                        "instances at most"
                      : "");
    return NVML_OK;
}

/* -- the source -- */

/* The card at this index. */
struct slot {
    void *device;         /* handle of the last open, also of a lost card */
    bool tried;           /* to register its events */
    int unwatched;        /* why its XIDs are not among them, or NVML_OK */
    struct gpu_card last; /* when it was readable, without processes; {0}: never */
};

struct nvml {
    struct gpu base;
    char *library;
    uint64_t unified_bytes;
    void *handle; /* of dlopen; NULL: not loaded */
    struct nvml_calls call;
    void *set;                      /* the event set, or NULL: */
    int set_failed;                 /* why */
    int wait_failed, wait_failures; /* of the last wait; how many in a row */
    size_t n_watched;
    struct slot slots[GPU_MAX_CARDS];
    struct nvml_links links;
};

static struct nvml *nvml_of(struct gpu *g)
{
    return (struct nvml *)(void *)g;
}

static void drop_set(struct nvml *n)
{
    if (n->set)
        n->call.set_free(n->set);
    n->set = NULL;
    n->n_watched = 0;
    for (size_t i = 0; i < GPU_MAX_CARDS; i++)
        n->slots[i].tried = false;
}

/* Closes the library, too: a driver update replaces its file. */
static void unload_nvml(struct nvml *n)
{
    if (!n->handle)
        return;
    drop_set(n);
    n->call.shutdown(); /* fails only if the driver is gone, or without nvmlInit */
    dlclose(n->handle);
    n->handle = NULL;
    n->links.cards = 0;
    for (size_t i = 0; i < GPU_MAX_CARDS; i++)
        n->slots[i].device = NULL;
}

/* `reload`: the next sample opens the library again. */
static int fail_call(struct nvml *n, const char *what, int rc, bool reload,
                     struct err *err)
{
    const bool gone = rc == NVML_UNKNOWN || rc == NVML_VERSION_MISMATCH;
    err_set(err, gone ? ERR_GONE : ERR_UNAVAILABLE, "NVML: %s: %s (%d)", what,
            n->call.error_string(rc), rc);
    if (reload)
        unload_nvml(n);
    else
        drop_set(n);
    return -1;
}

static int load_nvml(struct nvml *n, struct err *err)
{
    if (n->handle)
        return 0;
    cleanup_free char *path = NULL;
    if (find_library(n->library, &path, err))
        return -1;
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        const char *why = dlerror();
        return err_set(err, ERR_NOT_FOUND, "NVML: %s", why ? why : path);
    }
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        void *f = dlsym(lib, table[i].names[0]);
        if (!f && table[i].names[1])
            f = dlsym(lib, table[i].names[1]);
        if (!f && table[i].needed) {
            dlclose(lib);
            return err_set(err, ERR_UNAVAILABLE, "NVML: %s lacks function %s", path,
                           table[i].names[0]);
        }
        /* POSIX allows function pointers in void *, ISO C does not. */
        memcpy((char *)&n->call + table[i].at, &f, sizeof f);
    }
    n->handle = lib;
    int rc = n->call.init();
    return rc ? fail_call(n, "initializing", rc, true, err) : 0;
}

static void create_set(struct nvml *n)
{
    const struct nvml_calls *c = &n->call;
    if (n->set)
        return;
    n->set_failed = c->set_create && c->set_free && c->set_wait && c->watch
                        ? c->set_create(&n->set)
                        : NVML_FUNCTION_NOT_FOUND;
    if (n->set_failed)
        n->set = NULL;
}

static int sample_card(struct nvml *n, struct gpu_card *card, struct arena *a)
{
    struct slot *slot = &n->slots[card->index];
    void *device = NULL;
    int rc = n->call.by_index((unsigned)card->index, &device);
    if (is_gone(rc))
        return rc;
    if (rc) {
        gpu_set_state(card, GPU_LOST, "%s (%d)", n->call.error_string(rc), rc);
        return NVML_OK;
    }
    slot->device = device;
    rc = read_card(&n->call, device, n->unified_bytes, a, card);
    if (rc)
        return rc;
    if (card->state == GPU_LOST)
        return NVML_OK;
    /* Events are registered once per event set. One unsupported event type makes NVML
     * reject all of them. (After another rejection the set may be broken, says nvml.h;
     * the wait returns an error then.) */
    if (n->set && !slot->tried) {
        unsigned long long want = NVML_EVENT_XID | NVML_EVENT_DOUBLE_BIT, has = 0;
        slot->tried = true;
        if (n->call.event_types && n->call.event_types(device, &has) == NVML_OK)
            want &= has;
        rc = want ? n->call.watch(device, want, n->set) : NVML_NOT_SUPPORTED;
        n->n_watched += rc == NVML_OK;
        slot->unwatched = rc ? rc : want & NVML_EVENT_XID ? NVML_OK : NVML_NOT_SUPPORTED;
    }
    slot->last = *card;
    slot->last.processes_known = false;
    slot->last.processes = NULL;
    slot->last.n_processes = 0;
    slot->last.unchecked[0] = '\0';
    /* The first failure of a wait is the end of a set, which the next sample replaces. */
    rc = !n->set                ? n->set_failed
         : slot->unwatched      ? slot->unwatched
         : n->wait_failures > 1 ? n->wait_failed
                                : NVML_OK;
    card->events = rc == NVML_OK;
    if (rc)
        note_unchecked(&n->call, card, "XIDs are not watched", rc);
    return NVML_OK;
}

static int sample_nvml(struct gpu *g, struct gpu_sample *s, struct err *err)
{
    struct nvml *n = nvml_of(g);
    unsigned count = 0;
    if (load_nvml(n, err))
        return -1;
    int rc = n->call.count(&count);
    if (rc)
        return fail_call(n, "counting the cards", rc, true, err);
    if (count > GPU_MAX_CARDS)
        return err_set(err, ERR_UNAVAILABLE, "NVML: %u cards, more than the limit of %d",
                       count, GPU_MAX_CARDS);
    char text[NVML_VERSION_TEXT] = {0};
    int cuda = 0;
    if (n->call.driver_version && !n->call.driver_version(text, sizeof text))
        gpu_set_text(s->driver, sizeof s->driver, text_of(text, sizeof text));
    if (n->call.cuda_version && !n->call.cuda_version(&cuda) && cuda > 0)
        /* NVML_CUDA_DRIVER_VERSION_MAJOR and _MINOR */
        snprintf(s->cuda, sizeof s->cuda, "%d.%d", cuda / 1000, cuda % 1000 / 10);
    create_set(n);
    for (size_t i = count; i < GPU_MAX_CARDS; i++)
        n->slots[i].device = NULL;
    s->cards = arena_zalloc(&s->arena, GPU_MAX_CARDS * sizeof *s->cards);
    for (s->n_cards = 0; s->n_cards < count; s->n_cards++) {
        struct gpu_card *card = &s->cards[s->n_cards];
        card->index = (int32_t)s->n_cards;
        rc = sample_card(n, card, &s->arena);
        if (rc)
            return fail_call(n, "reading a card", rc, true, err);
    }
    /* A lost card has the names and constant properties of the last card in its slot, unless
     * that one is in the sample at another index. */
    for (size_t i = 0; i < s->n_cards; i++) {
        struct gpu_card *card = &s->cards[i], *last = &n->slots[i].last;
        if (card->state != GPU_LOST)
            continue;
        for (size_t k = 0; k < s->n_cards; k++)
            if (s->cards[k].state != GPU_LOST && *last->uuid &&
                !strcmp(s->cards[k].uuid, last->uuid))
                *last = (struct gpu_card){0};
        const struct gpu_card lost = *card;
        *card = *last;
        card->index = lost.index;
        card->state = GPU_LOST;
        memcpy(card->why, lost.why, sizeof card->why);
        card->known &= GPU_CONSTANT;
    }
    void *devices[GPU_MAX_CARDS] = {0};
    for (size_t i = 0; i < count; i++)
        devices[i] = s->cards[i].state == GPU_LOST ? NULL : n->slots[i].device;
    nvml_links_set(&n->links, &n->call, devices, s, "/sys");
    for (size_t i = 0; i < count; i++) {
        if (s->cards[i].state != GPU_MIG)
            continue;
        rc = add_instances(&n->call, devices[i], &s->cards[i], s);
        if (rc)
            return fail_call(n, "reading the instances of a card", rc, true, err);
    }
    gpu_sample_settle(s);
    return 0;
}

static int wait_event(struct gpu *g, int timeout_ms, struct gpu_event *event,
                      struct err *err)
{
    struct nvml *n = nvml_of(g);
    struct nvml_event data = {0};
    if (!n->handle)
        return err_set(err, ERR_UNAVAILABLE, "NVML: not initialized");
    if (!n->n_watched)
        return err_set(err, ERR_UNAVAILABLE, "NVML: no card supports events");
    int rc = n->call.set_wait(n->set, &data, timeout_ms > 0 ? (unsigned)timeout_ms : 0);
    n->wait_failed = rc;
    n->wait_failures = rc && rc != NVML_TIMEOUT ? n->wait_failures + 1 : 0;
    if (rc == NVML_TIMEOUT)
        return 0;
    /* An event set with a lost card returns no more events. The next sample creates a set
     * with the present cards. */
    if (rc)
        return fail_call(n, "waiting for events", rc, is_gone(rc), err);
    event->kind = data.type == NVML_EVENT_XID          ? GPU_EVENT_XID
                  : data.type == NVML_EVENT_DOUBLE_BIT ? GPU_EVENT_ECC
                                                       : GPU_EVENT_NONE;
    if (event->kind == GPU_EVENT_XID)
        event->xid = data.data <= INT64_MAX ? (int64_t)data.data : 999;
    /* Finds the card by its handle. A call on a lost card would fail. */
    for (int32_t i = 0; data.device && i < GPU_MAX_CARDS; i++) {
        const struct slot *slot = &n->slots[i];
        if (slot->device != data.device)
            continue;
        event->index = i;
        memcpy(event->uuid, slot->last.uuid, sizeof event->uuid);
    }
    return 0;
}

static void *device_of(struct gpu *g, const char *uuid, const struct nvml_calls **call)
{
    struct nvml *n = nvml_of(g);
    *call = &n->call;
    for (size_t i = 0; i < GPU_MAX_CARDS && *uuid; i++)
        if (n->slots[i].device && !strcmp(n->slots[i].last.uuid, uuid))
            return n->slots[i].device;
    return NULL;
}

static void reopen_nvml(struct gpu *g)
{
    unload_nvml(nvml_of(g));
}

static void free_nvml(struct gpu *g)
{
    struct nvml *n = nvml_of(g);
    unload_nvml(n);
    free(n->library);
    free(n);
}

struct gpu *gpu_nvml_new(const char *library, int64_t unified_bytes)
{
    static const struct gpu_ops ops = {sample_nvml, wait_event, reopen_nvml, device_of,
                                       free_nvml};
    struct nvml *n = xcalloc(1, sizeof *n);
    n->base.ops = &ops;
    n->library = xstrdup(library ? library : LIBRARY);
    n->unified_bytes = (uint64_t)unified_bytes;
    return &n->base;
}
