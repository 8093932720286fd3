/* SPDX-License-Identifier: Apache-2.0 */
/* The limited cards of this process, and what it holds of them. */
#include "limit/limit.h"

#include "limit/sys.h"

#include <errno.h>
#include <fcntl.h>

enum phase { NEW, READY, OFF };

/* The only variables of the library that fork copies: the address of memory that fork wipes,
 * and "there is nothing to do". */
static struct process *own;
static bool off;

/* DIR/KIND/I. DIR is the folder of this library. */
static bool file_path(char *into, const char *kind, uint32_t i)
{
    const char digits[] = {(char)('0' + i / 10), (char)('0' + i % 10), '\0'};
    if (!elf_own_path(into, PROCESS_PATH_MAX))
        return false;
    size_t n = text_len(into);
    while (n && into[n - 1] != '/')
        n--;
    into[n] = '\0';
    return text_add(into, PROCESS_PATH_MAX, kind) &&
           text_add(into, PROCESS_PATH_MAX, "/") &&
           text_add(into, PROCESS_PATH_MAX, digits + (i < 10));
}

/* Says in the state file why this process runs without a limit. */
static void mark(uint32_t card, uint32_t reason)
{
    char path[PROCESS_PATH_MAX];
    long fd = file_path(path, "state", card) ? sys_open(path, O_RDWR) : -1;
    if (fd < 0)
        return;
    struct limit_state *s = NULL;
    if (sys_file_size(fd) >= (long)sizeof *s && (s = sys_map_file(fd, sizeof *s, true))) {
        __atomic_fetch_or(&s->unlimited, reason, __ATOMIC_SEQ_CST);
        sys_unmap(s, sizeof *s);
    }
    sys_close(fd);
}

static uint32_t reason_of(enum slots_result result)
{
    return result == SLOTS_NO_LOCKS ? LIMIT_NO_LOCKS : LIMIT_NO_MEMORY;
}

/* -1: there is no such card; else 0, with the file in *f, or NULL if it is not usable. */
static int open_limit(uint32_t i, const struct limit_file **f)
{
    char path[PROCESS_PATH_MAX];
    long fd = file_path(path, "limit", i) ? sys_open(path, O_RDONLY) : -1;
    if (fd < 0)
        return -1;
    *f =
        sys_file_size(fd) < (long)sizeof **f ? NULL : sys_map_file(fd, sizeof **f, false);
    sys_close(fd);
    if (*f && ((*f)->magic != LIMIT_FILE_MAGIC || (*f)->version != LIMIT_VERSION)) {
        sys_unmap((void *)*f, sizeof **f);
        *f = NULL;
    }
    return 0;
}

static void open_card(struct process *p, uint32_t i, const struct limit_file *f)
{
    struct card *c = &p->cards[i];
    if (!f) {
        mark(i, LIMIT_BAD_LIMIT);
        return;
    }
    enum slots_result result = SLOTS_NO_FILE;
    if (file_path(c->path, "state", i))
        result = slots_claim(c->path, &c->state, &c->slot);
    if (result != SLOTS_DONE && result != SLOTS_FULL) {
        mark(i, reason_of(result));
        return;
    }
    c->full = result == SLOTS_FULL;
    c->file = f;
}

static uint32_t open_cards(struct process *p)
{
    const struct limit_file *f;
    bool any = false;
    while (p->n_cards < LIMIT_CARDS && open_limit(p->n_cards, &f) == 0) {
        open_card(p, p->n_cards, f);
        any |= p->cards[p->n_cards++].file != NULL;
    }
    return any ? READY : OFF;
}

/* The memory of the process. NULL: without it there is no limit. */
static struct process *allocate(void)
{
    struct process *p = sys_map(sizeof *p), *other = NULL;
    long rc = p ? sys_wipe_on_fork(p, sizeof *p) : -ENOMEM;
    if (rc < 0) {
        const struct limit_file *f;
        for (uint32_t i = 0; i < LIMIT_CARDS && open_limit(i, &f) == 0; i++)
            mark(i, p ? LIMIT_NO_WIPE : LIMIT_NO_MEMORY);
        __atomic_store_n(&off, true, __ATOMIC_RELEASE);
        return NULL;
    }
    if (__atomic_compare_exchange_n(&own, &other, p, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        return p;
    sys_unmap(p, sizeof *p);
    return other;
}

static struct process *begin(struct process *p)
{
    if (!p && !(p = allocate()))
        return NULL;
    sys_lock(&p->lock);
    uint32_t phase = __atomic_load_n(&p->phase, __ATOMIC_ACQUIRE);
    if (phase == NEW) {
        phase = open_cards(p);
        __atomic_store_n(&p->phase, phase, __ATOMIC_RELEASE);
    }
    sys_unlock(&p->lock);
    return phase == READY ? p : NULL;
}

struct process *process_get(void)
{
    struct process *p = __atomic_load_n(&own, __ATOMIC_ACQUIRE);
    if (p) {
        uint32_t phase = __atomic_load_n(&p->phase, __ATOMIC_ACQUIRE);
        if (phase != NEW)
            return phase == READY ? p : NULL;
    } else if (__atomic_load_n(&off, __ATOMIC_ACQUIRE)) {
        return NULL;
    }
    return begin(p);
}

uint64_t process_limit(const struct process *p, int card)
{
    return __atomic_load_n(&p->cards[card].file->limit, __ATOMIC_SEQ_CST);
}

uint64_t process_used(const struct process *p, int card)
{
    slots_reclaim(p->cards[card].path, p->cards[card].state);
    return reserve_used(p->cards[card].state);
}

bool process_reserve_locked(struct process *p, int card, uint64_t bytes)
{
    struct card *c = &p->cards[card];
    if (c->full || bytes > UINT64_MAX - c->used)
        return false;
    if (!reserve_add(c->state, c->slot, c->used, bytes, process_limit(p, card))) {
        slots_reclaim(c->path, c->state);
        if (!reserve_add(c->state, c->slot, c->used, bytes, process_limit(p, card)))
            return false;
    }
    c->used += bytes;
    return true;
}

bool process_reserve(struct process *p, int card, uint64_t bytes)
{
    sys_lock(&p->lock);
    bool done = process_reserve_locked(p, card, bytes);
    sys_unlock(&p->lock);
    return done;
}

void process_release_locked(struct process *p, int card, uint64_t bytes)
{
    struct card *c = &p->cards[card];
    c->used -= bytes < c->used ? bytes : c->used;
    if (!c->full)
        reserve_set(c->state, c->slot, c->used);
}

void process_release(struct process *p, int card, uint64_t bytes)
{
    sys_lock(&p->lock);
    process_release_locked(p, card, bytes);
    sys_unlock(&p->lock);
}

void process_force_locked(struct process *p, int card, uint64_t bytes)
{
    struct card *c = &p->cards[card];
    c->used += bytes;
    if (!c->full)
        reserve_set(c->state, c->slot, c->used);
}

void process_refused(struct process *p, int card)
{
    __atomic_fetch_add(&p->cards[card].state->refused, 1, __ATOMIC_SEQ_CST);
}

static const char *skip_prefix(const char *uuid)
{
    return text_starts(uuid, "GPU-") || text_starts(uuid, "MIG-") ? uuid + 4 : uuid;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool same_uuid(const char *a, const char *b)
{
    a = skip_prefix(a);
    b = skip_prefix(b);
    for (;; a++, b++) {
        a += *a == '-';
        b += *b == '-';
        if (lower(*a) != lower(*b))
            return false;
        if (!*a)
            return true;
    }
}

int process_card(const struct process *p, const char *uuid)
{
    for (uint32_t i = 0; i < p->n_cards; i++) {
        const struct limit_file *f = p->cards[i].file;
        if (f && f->uuid[LIMIT_UUID_MAX - 1] == '\0' &&
            (!f->uuid[0] || same_uuid(f->uuid, uuid)))
            return (int)i;
    }
    return -1;
}
