/* SPDX-License-Identifier: Apache-2.0 */
/* State files: who owns a slot, and reservations of memory between processes. */
#include <errno.h>
#include <fcntl.h>

#include "limit/limit.h"
#include "limit/sys.h"

/* -- reservations -- */

enum { TRIES = 2000, SPINS = 50 };

static uint64_t load(const uint64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}

/* After what the thread wrote before. Only `want` must be seen by others before the thread reads
 * on (sequential consistency, a fence): a fall of `used` may be seen later. */
static void store(uint64_t *p, uint64_t value)
{
    __atomic_store_n(p, value, __ATOMIC_RELEASE);
}

uint32_t reserve_high(const struct limit_state *s)
{
    uint32_t high = __atomic_load_n(&s->high, __ATOMIC_SEQ_CST);
    return high < LIMIT_SLOTS ? high : LIMIT_SLOTS;
}

/* What the processes of other slots hold and want, the lower slots apart. */
struct others {
    uint64_t used, lower, higher;
};

static struct others read_others(const struct limit_state *s, uint32_t slot)
{
    struct others o = {0};
    for (uint32_t i = 0, n = reserve_high(s); i < n; i++) {
        if (i == slot)
            continue;
        uint64_t want = load(&s->slots[i].want);
        if (i < slot)
            o.lower = plus(o.lower, want);
        else
            o.higher = plus(o.higher, want);
        o.used = plus(o.used, load(&s->slots[i].used));
    }
    return o;
}

bool reserve_add(struct limit_state *s, uint32_t slot, uint64_t used, uint64_t bytes,
                 uint64_t limit)
{
    struct limit_slot *own = &s->slots[slot];
    uint64_t mine = plus(used, bytes);
    for (int tries = 0; tries < TRIES; tries++) {
        __atomic_store_n(&own->want, bytes, __ATOMIC_SEQ_CST);
        struct others o = read_others(s, slot);
        uint64_t held = plus(o.used, mine);
        if (held > limit)
            break;
        if (plus(plus(held, o.lower), o.higher) <= limit) {
            store(&own->used, mine);
            store(&own->want, 0);
            return true;
        }
        if (plus(held, o.lower) > limit)
            store(&own->want, 0);
        if (tries > SPINS)
            sys_yield();
    }
    store(&own->want, 0);
    return false;
}

void reserve_set(struct limit_state *s, uint32_t slot, uint64_t used)
{
    store(&s->slots[slot].used, used);
}

/* The sum of a field of all slots. */
static uint64_t sum_of(const struct limit_state *s, size_t field)
{
    uint64_t sum = 0;
    for (uint32_t i = 0, n = reserve_high(s); i < n; i++)
        sum = plus(sum, load((const uint64_t *)((const char *)&s->slots[i] + field)));
    return sum;
}

uint64_t reserve_used(const struct limit_state *s)
{
    return sum_of(s, offsetof(struct limit_slot, used));
}

uint64_t reserve_imported(const struct limit_state *s)
{
    return sum_of(s, offsetof(struct limit_slot, imported));
}

uint64_t reserve_exported(const struct limit_state *s)
{
    return sum_of(s, offsetof(struct limit_slot, exported));
}

/* -- slots -- */

static void store_now(uint64_t *p, uint64_t value)
{
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);
}

/* The process holds the lock of the slot. `used` first: a reader that sees the new `want` of
 * a later owner must not add the old `used`. */
static void empty_slot(struct limit_slot *slot)
{
    store_now(&slot->used, 0);
    store_now(&slot->want, 0);
    store_now(&slot->start_time, 0);
    store_now(&slot->context, 0);
    store_now(&slot->imported, 0);
    store_now(&slot->exported, 0);
    __atomic_store_n(&slot->pid, 0, __ATOMIC_SEQ_CST);
}

/* Field 22 of /proc/self/stat. The name, field 2, can hold anything, and ends at the last ')'. */
static uint64_t start_time(void)
{
    char text[1024];
    long fd = sys_open("/proc/self/stat", O_RDONLY);
    long n = fd < 0 ? -1 : sys_read(fd, text, sizeof text - 1);
    if (fd >= 0)
        sys_close(fd);
    long at = n - 1;
    while (at > 0 && text[at] != ')')
        at--;
    int field = 2;
    uint64_t value = 0;
    for (; at > 0 && at < n && field <= 22; at++)
        if (text[at] == ' ')
            field++;
        else if (field == 22 && text[at] >= '0' && text[at] <= '9')
            value = value * 10 + (uint64_t)(text[at] - '0');
    return value;
}

static uint32_t take_slot(long fd, struct limit_state *s, uint32_t *slot)
{
    for (uint32_t i = 0; i < LIMIT_SLOTS; i++) {
        long rc = sys_lock_byte(fd, i);
        if (rc == -EAGAIN || rc == -EACCES)
            continue;
        if (rc < 0)
            return LIMIT_NO_LOCKS;
        struct limit_slot *own = &s->slots[i];
        struct sys_file ns = {0};
        sys_stat("/proc/self/ns/pid", &ns);
        empty_slot(own);
        store_now(&own->start_time, start_time());
        store_now(&own->namespace, ns.inode);
        __atomic_store_n(&own->version, LIMIT_VERSION, __ATOMIC_SEQ_CST);
        __atomic_store_n(&own->pid, (uint32_t)sys_pid(), __ATOMIC_SEQ_CST);
        uint32_t high = __atomic_load_n(&s->high, __ATOMIC_SEQ_CST);
        while (high < i + 1 &&
               !__atomic_compare_exchange_n(&s->high, &high, i + 1, false,
                                            __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            ;
        *slot = i;
        return 0;
    }
    return LIMIT_NO_SLOT;
}

bool state_is_sound(const struct limit_state *s)
{
    return __atomic_load_n(&s->magic, __ATOMIC_RELAXED) == LIMIT_STATE_MAGIC &&
           __atomic_load_n(&s->version, __ATOMIC_RELAXED) == LIMIT_VERSION &&
           __atomic_load_n(&s->high, __ATOMIC_RELAXED) <= LIMIT_SLOTS;
}

bool state_is_there(const char *path, const struct sys_file *claimed)
{
    struct sys_file now;
    return sys_stat(path, &now) < 0 ||
           (now.device == claimed->device && now.inode == claimed->inode &&
            now.size >= (int64_t)sizeof(struct limit_state));
}

uint32_t slots_claim(const char *path, struct limit_state **s, uint32_t *slot,
                     struct sys_file *file)
{
    *s = NULL;
    long fd = sys_open(path, O_RDWR);
    if (fd < 0)
        return LIMIT_NO_FILE;
    uint32_t reason = LIMIT_BAD_STATE;
    if (sys_fstat(fd, file) >= 0 && file->size >= (int64_t)sizeof **s) {
        *s = sys_map_file(fd, sizeof **s, true);
        reason = !*s || sys_dont_fork(*s, sizeof **s) < 0 ? LIMIT_NO_MEMORY
                 : state_is_sound(*s)                     ? take_slot(fd, *s, slot)
                                                          : LIMIT_BAD_STATE;
    }
    if (reason == LIMIT_NO_SLOT) { /* another process holds the locks for a moment */
        sys_sleep_ms(1);
        reason = take_slot(fd, *s, slot);
    }
    if (reason && *s) {
        sys_unmap(*s, sizeof **s);
        *s = NULL;
    }
    /* The mapping keeps the open file description, and so the lock. */
    sys_close(fd);
    return reason;
}

void slots_reclaim(const char *path, struct limit_state *s)
{
    long fd = sys_open(path, O_RDWR);
    if (fd < 0)
        return;
    for (uint32_t i = 0, n = reserve_high(s); i < n; i++) {
        struct limit_slot *slot = &s->slots[i];
        if (__atomic_load_n(&slot->pid, __ATOMIC_SEQ_CST) == 0 &&
            !__atomic_load_n(&slot->used, __ATOMIC_SEQ_CST) &&
            !__atomic_load_n(&slot->want, __ATOMIC_SEQ_CST))
            continue;
        if (sys_lock_byte(fd, i) >= 0)
            empty_slot(slot);
    }
    /* While this process holds the locks of the last slots, nobody uses them. A process that takes
     * one of them raises `high` afterwards. */
    uint32_t high = __atomic_load_n(&s->high, __ATOMIC_SEQ_CST), now = high;
    while (high <= LIMIT_SLOTS && now && sys_lock_byte(fd, now - 1) >= 0)
        now--;
    if (now < high)
        __atomic_compare_exchange_n(&s->high, &high, now, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST);
    sys_close(fd); /* with the locks taken here */
}
