/* SPDX-License-Identifier: Apache-2.0 */
#include "limit/reserve.h"

#include "limit/sys.h"

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

static uint64_t add(uint64_t a, uint64_t b)
{
    return a + b < a ? UINT64_MAX : a + b;
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
            o.lower = add(o.lower, want);
        else
            o.higher = add(o.higher, want);
        o.used = add(o.used, load(&s->slots[i].used));
    }
    return o;
}

bool reserve_add(struct limit_state *s, uint32_t slot, uint64_t used, uint64_t bytes,
                 uint64_t limit)
{
    struct limit_slot *own = &s->slots[slot];
    uint64_t mine = add(used, bytes);
    for (int tries = 0; tries < TRIES; tries++) {
        __atomic_store_n(&own->want, bytes, __ATOMIC_SEQ_CST);
        struct others o = read_others(s, slot);
        uint64_t held = add(o.used, mine);
        if (held > limit)
            break;
        if (add(add(held, o.lower), o.higher) <= limit) {
            store(&own->used, mine);
            store(&own->want, 0);
            return true;
        }
        if (add(held, o.lower) > limit)
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

uint64_t reserve_used(const struct limit_state *s)
{
    uint64_t used = 0;
    for (uint32_t i = 0, n = reserve_high(s); i < n; i++)
        used = add(used, load(&s->slots[i].used));
    return used;
}
