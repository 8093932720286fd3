/* SPDX-License-Identifier: Apache-2.0 */
/* The limited cards of this process, what it holds of them, and why nothing is granted. */
#include "limit/limit.h"

#include "limit/sys.h"

#include <errno.h>
#include <fcntl.h>

/* Where the plugin mounts the library and its files. */
#define FIXED_FOLDER "/usr/local/gpushare/"

enum phase { NEW, READY, OFF };
/* A driver's call that lasts longer, or that a signal handler left, keeps nothing from work. A free
 * waits for kernels that run, and is worth less of a wait. */
enum { QUIET_MS = 2000, FREE_MS = 50 };
enum { FEW_SLOTS = 16 };
/* A state file is looked at again after so many ticks, about a millisecond; its locks, for what
 * a program only wants to know, after ten. */
#if defined(__x86_64__)
enum { CHECK_TICKS = 1 << 21, RECLAIM_TICKS = 10 * CHECK_TICKS };
#else
enum { CHECK_TICKS = 1 << 15, RECLAIM_TICKS = 10 * CHECK_TICKS };
#endif

/* The only variables of the library that fork copies: the address of memory that fork wipes,
 * and the root of the process when it was loaded. */
static struct process *own;
static struct sys_file root;

static const struct limit_file no_card = {.limit = 0};

/* The root is recorded before the program can change it: in another one, a missing folder does
 * not mean that there is no limit. */
__attribute__((constructor)) static void at_load(void)
{
    sys_stat("/", &root);
}

static bool has_other_root(void)
{
    struct sys_file now = {0};
    if (!root.inode)
        at_load();
    return sys_stat("/", &now) < 0 || now.device != root.device ||
           now.inode != root.inode;
}

/* -- reasons -- */

static const struct {
    uint32_t reason;
    const char *text;
} reasons[] = {
    {LIMIT_NO_LOCKS, "no open file description locks (Linux 3.15)"},
    {LIMIT_NO_WIPE, "no MADV_WIPEONFORK (Linux 4.14)"},
    {LIMIT_NO_MEMORY, "memory cannot be mapped"},
    {LIMIT_BAD_LIMIT, "the limit file is not one of this library"},
    {LIMIT_BAD_STATE, "the state file is short or foreign, or was changed"},
    {LIMIT_NO_FILE, "a file of the limit cannot be opened"},
    {LIMIT_CHROOT, "the root was changed before the first call of CUDA"},
    {LIMIT_NO_SLOT, "too many processes of the pod use the card"},
    {LIMIT_NO_CARD, "the pod was not promised this card"},
};

static void say(const char *what, const char *why)
{
    char line[256] = "libgpushare-limit: ";
    text_add(line, sizeof line, what);
    text_add(line, sizeof line, why);
    text_add(line, sizeof line, "\n");
    sys_write(2, line, text_len(line));
}

/* -- opening -- */

/* The fixed folder, or else that of this library, in which `limit` is. In this order: a copy of the
 * library beside forged files must not be believed. */
static uint32_t find_folder(char *into, bool *exists)
{
    struct sys_file f;
    char path[PROCESS_PATH_MAX];
    *exists = true;
    for (int i = 0; i < 2; i++) {
        bool own_path = i == 1 && elf_own_path(into, PROCESS_PATH_MAX) && into[0] == '/';
        size_t n = own_path ? text_len(into) : 0;
        while (n && into[n - 1] != '/')
            n--;
        into[n] = path[0] = '\0';
        if (!own_path)
            text_add(into, PROCESS_PATH_MAX, FIXED_FOLDER);
        if (!text_add(path, sizeof path, into) || !text_add(path, sizeof path, "limit"))
            return LIMIT_NO_FILE;
        long rc = sys_stat(path, &f);
        if (rc >= 0)
            return 0;
        if (rc != -ENOENT)
            return LIMIT_NO_FILE;
    }
    *exists = false;
    return 0;
}

/* FOLDER/KIND/I */
static bool file_path(char *into, const char *folder, const char *kind, uint32_t i)
{
    const char digits[] = {(char)('0' + i / 10), (char)('0' + i % 10), '\0'};
    into[0] = '\0';
    return text_add(into, PROCESS_PATH_MAX, folder) &&
           text_add(into, PROCESS_PATH_MAX, kind) &&
           text_add(into, PROCESS_PATH_MAX, digits + (i < 10));
}

/* `*f` is NULL after the last card. */
static uint32_t open_limit(const char *folder, uint32_t i, const struct limit_file **f)
{
    char path[PROCESS_PATH_MAX];
    struct sys_file file;
    *f = NULL;
    if (!file_path(path, folder, "limit/", i))
        return LIMIT_NO_FILE;
    long fd = sys_open(path, O_RDONLY);
    if (fd < 0)
        return fd == -ENOENT ? 0 : LIMIT_NO_FILE;
    if (sys_fstat(fd, &file) >= 0 && file.size >= (int64_t)LIMIT_FILE_MIN)
        *f = sys_map_file(fd, sizeof **f, false);
    sys_close(fd);
    if (*f && (*f)->magic == LIMIT_FILE_MAGIC && (*f)->version == LIMIT_VERSION)
        return 0;
    if (*f)
        sys_unmap((void *)*f, sizeof **f);
    return LIMIT_BAD_LIMIT;
}

static uint32_t open_card(const char *folder, uint32_t i, struct card *c)
{
    uint32_t reason = open_limit(folder, i, &c->file);
    if (reason || !c->file)
        return reason;
    if (c->file->closed)
        return c->file->closed;
    if (!file_path(c->path, folder, "state/", i))
        return LIMIT_NO_FILE;
    reason = slots_claim(c->path, &c->state, &c->slot, &c->claimed);
    if (!reason)
        slots_reclaim(c->path, c->state);
    return reason;
}

static void close_cards(struct process *p)
{
    for (uint32_t i = 0; i < LIMIT_CARDS; i++) {
        struct card *c = &p->cards[i];
        if (c->file)
            sys_unmap((void *)c->file, sizeof *c->file);
        if (c->state)
            sys_unmap(c->state, sizeof *c->state);
        *c = (struct card){0};
    }
    p->n_cards = 0;
}

/* All cards, or none and the reason. */
static uint32_t open_cards(struct process *p, enum phase *phase)
{
    char folder[PROCESS_PATH_MAX];
    bool exists;
    uint32_t reason = has_other_root() ? LIMIT_CHROOT : find_folder(folder, &exists);
    p->cards[CARD_NONE] = (struct card){.file = &no_card, .refuses = LIMIT_NO_CARD};
    if (reason)
        return reason;
    *phase = exists ? READY : OFF;
    while (exists && p->n_cards < LIMIT_CARDS) {
        struct card *c = &p->cards[p->n_cards];
        reason = open_card(folder, p->n_cards, c);
        if (reason) {
            close_cards(p);
            *phase = NEW;
            return reason;
        }
        if (!c->file)
            break;
        p->n_cards++;
    }
    return 0;
}

/* Says the reason to the plugin, in the states that can be written. */
static void record(uint32_t reason)
{
    char folder[PROCESS_PATH_MAX], path[PROCESS_PATH_MAX];
    struct sys_file file;
    bool exists;
    if (find_folder(folder, &exists))
        return;
    for (uint32_t i = 0; i < LIMIT_CARDS && file_path(path, folder, "state/", i); i++) {
        long fd = sys_open(path, O_RDWR);
        struct limit_state *s = NULL;
        if (fd >= 0 && sys_fstat(fd, &file) >= 0 && file.size >= (int64_t)sizeof *s)
            s = sys_map_file(fd, sizeof *s, true);
        if (s) {
            __atomic_fetch_or(&s->reasons, reason, __ATOMIC_RELAXED);
            sys_unmap(s, sizeof *s);
        }
        if (fd < 0)
            return;
        sys_close(fd);
    }
}

bool process_is_limited(void)
{
    char folder[PROCESS_PATH_MAX];
    bool exists;
    return has_other_root() || find_folder(folder, &exists) || exists;
}

/* The memory of the process. Without it, a struct that never opens its files. */
static struct process *allocate(void)
{
    static struct process refuses = {.phase = READY};
    struct process *p = sys_map(sizeof *p), *other = NULL;
    refuses.closed = p ? LIMIT_NO_WIPE : LIMIT_NO_MEMORY;
    refuses.cards[CARD_NONE] = (struct card){.file = &no_card, .refuses = LIMIT_NO_CARD};
    if (!p || sys_wipe_on_fork(p, sizeof *p) < 0) {
        if (p)
            sys_unmap(p, sizeof *p);
        return process_is_limited() ? &refuses : NULL;
    }
    if (__atomic_compare_exchange_n(&own, &other, p, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        return p;
    sys_unmap(p, sizeof *p);
    return other;
}

static struct process *begin(struct process *p)
{
    if (!p && (!(p = allocate()) || p->phase == READY))
        return p;
    sys_lock(&p->lock);
    enum phase phase = __atomic_load_n(&p->phase, __ATOMIC_ACQUIRE);
    if (phase == NEW) {
        p->closed = open_cards(p, &phase);
        __atomic_store_n(&p->phase, phase, __ATOMIC_RELEASE);
    }
    sys_unlock(&p->lock);
    return phase == OFF ? NULL : p;
}

struct process *process_get(void)
{
    struct process *p = __atomic_load_n(&own, __ATOMIC_ACQUIRE);
    uint32_t phase = p ? __atomic_load_n(&p->phase, __ATOMIC_ACQUIRE) : NEW;
    return phase == NEW ? begin(p) : phase == READY ? p : NULL;
}

/* -- use -- */

/* The state, if its file is as long as it was. */
static struct limit_state *state_of(struct card *c)
{
    uint64_t now = sys_ticks();
    if (c->state && now - c->checked > CHECK_TICKS) {
        if (!state_is_there(c->path, &c->claimed))
            return NULL;
        c->checked = now;
    }
    return c->state;
}

struct limit_state *process_state(struct process *p, int card)
{
    return state_of(&p->cards[card]);
}

/* Why nothing can be reserved of the card, or 0. */
static uint32_t trouble_of(struct card *c)
{
    if (c->refuses)
        return c->refuses;
    struct limit_state *s = state_of(c);
    if (!s || !state_is_sound(s))
        return LIMIT_BAD_STATE;
    if (__atomic_load_n(&s->slots[c->slot].used, __ATOMIC_RELAXED) != c->used) {
        __atomic_fetch_or(&s->reasons, LIMIT_BAD_STATE, __ATOMIC_RELAXED);
        reserve_set(s, c->slot, c->used);
    }
    uint32_t said = __atomic_load_n(&s->reasons, __ATOMIC_RELAXED);
    uint32_t closed = __atomic_load_n(&c->file->closed, __ATOMIC_RELAXED);
    return closed ? closed : said & LIMIT_BAD_STATE;
}

uint64_t process_limit(const struct process *p, int card)
{
    return __atomic_load_n(&p->cards[card].file->limit, __ATOMIC_SEQ_CST);
}

static uint64_t extra_of(const struct card *c)
{
    return __atomic_load_n(&c->file->extra, __ATOMIC_RELAXED);
}

static void set_used(struct card *c, uint64_t used)
{
    struct limit_state *s = c->refuses ? NULL : state_of(c);
    c->used = used;
    if (s)
        reserve_set(s, c->slot, used);
}

static void set_exported(struct card *c, uint64_t exported)
{
    struct limit_state *s = c->refuses ? NULL : state_of(c);
    c->exported = exported;
    if (s)
        __atomic_store_n(&s->slots[c->slot].exported, exported, __ATOMIC_SEQ_CST);
}

/* Empties the slots of ended processes, and counts exported memory only as far as it can be
 * imported. Locked. */
static void reclaim(struct card *c, struct limit_state *s)
{
    slots_reclaim(c->path, s);
    c->reclaimed = sys_ticks();
    uint64_t imported = c->kept ? reserve_imported(s) : 0;
    if (c->kept > imported) {
        set_used(c, c->used - (c->kept - imported));
        set_exported(c, minus(c->exported, c->kept - imported));
        c->kept = imported;
    }
}

void process_export_locked(struct process *p, int card, uint64_t bytes)
{
    struct card *c = &p->cards[card];
    set_exported(c, plus(c->exported, bytes));
}

void process_keep_locked(struct process *p, int card, uint64_t bytes)
{
    struct card *c = &p->cards[card];
    struct limit_state *s = state_of(c);
    c->kept += bytes;
    if (s)
        reclaim(c, s);
}

void process_import_locked(struct process *p, uint64_t before, uint64_t now)
{
    p->imported += now - before;
    for (uint32_t i = 0; i < p->n_cards; i++) {
        struct card *c = &p->cards[i];
        struct limit_state *s = c->refuses ? NULL : state_of(c);
        if (s)
            __atomic_store_n(&s->slots[c->slot].imported, p->imported, __ATOMIC_SEQ_CST);
    }
}

uint64_t process_not_exported_locked(struct process *p, uint64_t bytes)
{
    uint64_t exported = 0, beyond;
    for (uint32_t i = 0; i < p->n_cards; i++) {
        struct card *c = &p->cards[i];
        struct limit_state *s = c->refuses ? NULL : state_of(c);
        exported = plus(exported, s ? reserve_exported(s) : 0);
    }
    beyond = minus(plus(p->imported % PROCESS_UNKNOWN_SIZE, bytes), exported);
    return beyond < bytes ? beyond : bytes;
}

uint64_t process_used(struct process *p, int card)
{
    struct card *c = &p->cards[card];
    struct limit_state *s = state_of(c);
    if (!s)
        return c->used;
    if (sys_ticks() - c->reclaimed > RECLAIM_TICKS || c->kept) {
        sys_lock(&p->lock);
        reclaim(c, s);
        sys_unlock(&p->lock);
    }
    return plus(reserve_used(s), extra_of(c));
}

bool process_reserve_locked(struct process *p, int card, uint64_t bytes)
{
    struct card *c = &p->cards[card];
    uint64_t limit = minus(process_limit(p, card), extra_of(c));
    if (trouble_of(c) || bytes > UINT64_MAX - c->used)
        return false;
    if (reserve_high(c->state) > c->slot + FEW_SLOTS &&
        sys_ticks() - c->reclaimed > 100ull * RECLAIM_TICKS)
        reclaim(c, c->state); /* each slot that is looked at costs a nanosecond */
    if (!reserve_add(c->state, c->slot, c->used, bytes, limit)) {
        reclaim(c, c->state);
        if (!reserve_add(c->state, c->slot, c->used, bytes, limit))
            return false;
    }
    c->used += bytes;
    return true;
}

void process_enter(struct process *p)
{
    sys_lock(&p->lock);
    for (int ms = 0; p->quiet && ms < QUIET_MS; ms++) {
        sys_unlock(&p->lock);
        sys_sleep_ms(1);
        sys_lock(&p->lock);
    }
    p->under_way++;
}

void process_quiet_begin(struct process *p)
{
    sys_lock(&p->change_lock);
    sys_lock(&p->lock);
    p->quiet++;
    for (int ms = 0; p->under_way && ms < QUIET_MS; ms++) {
        if (p->under_way == p->freeing && ms >= FREE_MS)
            break;
        sys_unlock(&p->lock);
        sys_sleep_ms(1);
        sys_lock(&p->lock);
    }
    sys_unlock(&p->lock);
}

void process_quiet_end(struct process *p)
{
    sys_lock(&p->lock);
    p->quiet--;
    sys_unlock(&p->lock);
    sys_unlock(&p->change_lock);
}

bool process_reserve(struct process *p, int card, uint64_t bytes)
{
    process_enter(p);
    bool done = process_reserve_locked(p, card, bytes);
    p->under_way -= !done;
    sys_unlock(&p->lock);
    return done;
}

void process_release_locked(struct process *p, int card, uint64_t bytes)
{
    struct card *c = &p->cards[card];
    set_used(c, minus(c->used, bytes));
}

void process_force_locked(struct process *p, int card, uint64_t bytes)
{
    set_used(&p->cards[card], p->cards[card].used + bytes);
}

void process_refused(struct process *p, int card)
{
    struct card *c = &p->cards[card];
    sys_lock(&p->lock);
    struct limit_state *s = state_of(c);
    uint32_t reason = card == CARD_NONE && p->closed ? p->closed : trouble_of(c);
    if (s)
        __atomic_fetch_add(&s->refused, 1, __ATOMIC_SEQ_CST);
    sys_unlock(&p->lock);
    if (!reason || __atomic_fetch_or(&p->said, reason, __ATOMIC_RELAXED) & reason)
        return;
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].reason & reason)
            say("GPU memory is refused: ", reasons[i].text);
    if (reason != LIMIT_NO_CARD)
        record(reason);
}

void process_uncounted(struct process *p, uint32_t reason, const char *name)
{
    if (__atomic_fetch_or(&p->said, reason, __ATOMIC_RELAXED) & reason)
        return;
    sys_lock(&p->lock);
    for (uint32_t i = 0; i < p->n_cards; i++) {
        struct limit_state *s = state_of(&p->cards[i]);
        if (s)
            __atomic_fetch_or(&s->reasons, reason, __ATOMIC_RELAXED);
    }
    sys_unlock(&p->lock);
    say(reason == LIMIT_UNKNOWN ? "memory is not counted: unknown version of "
                                : "memory is not counted: no answer of ",
        name);
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
        if (f->uuid[LIMIT_UUID_MAX - 1] == '\0' &&
            (!f->uuid[0] || same_uuid(f->uuid, uuid)))
            return (int)i;
    }
    return CARD_NONE;
}
