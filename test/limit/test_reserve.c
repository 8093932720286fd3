/* SPDX-License-Identifier: Apache-2.0 */
#include "limit/limit.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "lib/lib.h"
#include "lib/temp.h"
#include "lib/unit.h"
#include "limit/pod.h"

/* The parts of libgpushare-limit.so that count, linked into the test. */

/* SHARED: one thread alone exceeds it too. */
enum { LIMIT = 1000, SHARED = 600, SLOTS = 6, ROUNDS = 1000 };

static struct limit_state *new_state(void)
{
    struct limit_state *s = aligned_alloc(64, sizeof *s);
    ck_assert_ptr_nonnull(s);
    memset(s, 0, sizeof *s);
    s->high = SLOTS;
    return s;
}

TEST(a_reservation_fits_or_changes_nothing)
{
    struct limit_state *s = new_state();
    ck_assert(reserve_add(s, 0, 0, 600, LIMIT));
    ck_assert(!reserve_add(s, 1, 0, 401, LIMIT));
    ck_assert_uint_eq(reserve_used(s), 600);
    ck_assert_uint_eq(s->slots[1].want, 0);
    ck_assert(reserve_add(s, 1, 0, 400, LIMIT));
    ck_assert(!reserve_add(s, 0, 600, 1, LIMIT));
    ck_assert(!reserve_add(s, 0, 600, UINT64_MAX, LIMIT));
    ck_assert(!reserve_add(s, 0, 600, UINT64_MAX - 600, LIMIT));
    reserve_set(s, 0, 100);
    ck_assert_uint_eq(reserve_used(s), 500);
    ck_assert(reserve_add(s, 2, 0, 500, LIMIT));
    free(s);
}

/* Values that a pod wrote into its file are added with saturation. */
TEST(foreign_values_do_not_overflow)
{
    struct limit_state *s = new_state();
    s->high = UINT32_MAX;
    s->slots[3].used = UINT64_MAX;
    s->slots[4].used = 1;
    ck_assert_uint_eq(reserve_high(s), LIMIT_SLOTS);
    ck_assert_uint_eq(reserve_used(s), UINT64_MAX);
    ck_assert(!reserve_add(s, 0, 0, 1, LIMIT));
    s->slots[3].used = 0;
    s->slots[2].want = UINT64_MAX; /* a process that was stopped while it reserved */
    ck_assert(!reserve_add(s, 5, 0, 1, LIMIT));
    ck_assert_uint_eq(s->slots[5].want, 0);
    free(s);
}

/* The sum of what the threads know that they hold. It is raised after a reservation and lowered
 * before a release, so it is never above what is reserved. */
struct party {
    struct limit_state *s;
    uint32_t slot;
    uint64_t *sum, *refused;
};

static void *reserve_and_release(void *arg)
{
    struct party *p = arg;
    uint64_t used = 0, x = p->slot + 1;
    for (int i = 0; i < ROUNDS; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        uint64_t bytes = x >> 55;
        if (used > 300) {
            __atomic_fetch_sub(p->sum, used, __ATOMIC_SEQ_CST);
            reserve_set(p->s, p->slot, used = 0);
        } else if (reserve_add(p->s, p->slot, used, bytes, SHARED)) {
            used += bytes;
            uint64_t now = __atomic_add_fetch(p->sum, bytes, __ATOMIC_SEQ_CST);
            ck_assert_uint_le(now, SHARED);
        } else {
            __atomic_fetch_add(p->refused, 1, __ATOMIC_SEQ_CST);
        }
    }
    __atomic_fetch_sub(p->sum, used, __ATOMIC_SEQ_CST);
    reserve_set(p->s, p->slot, 0);
    return NULL;
}

TEST(the_sum_of_all_slots_stays_within_the_limit)
{
    struct limit_state *s = new_state();
    pthread_t threads[SLOTS];
    struct party parties[SLOTS];
    uint64_t sum = 0, refused = 0;
    for (uint32_t i = 0; i < SLOTS; i++) {
        parties[i] = (struct party){s, i, &sum, &refused};
        ck_assert_int_eq(
            pthread_create(&threads[i], NULL, reserve_and_release, &parties[i]), 0);
    }
    for (int i = 0; i < SLOTS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(reserve_used(s), 0);
    ck_assert_uint_gt(refused, 0);
    free(s);
}

/* -- Slots -- */

static char *new_file(const char *dir)
{
    struct limit_state empty = {.magic = LIMIT_STATE_MAGIC, .version = LIMIT_VERSION};
    temp_write_bytes(dir, "state", (struct span){(const char *)&empty, sizeof empty});
    return temp_path(dir, "state");
}

/* The process takes a slot, writes into it and waits, or leaves a child that waits. */
static pid_t holder(const char *path, uint32_t *slot, bool leaves_child)
{
    int ready[2];
    ck_assert_int_eq(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct limit_state *s;
        struct sys_file f;
        uint32_t i = 0;
        if (slots_claim(path, &s, &i, &f) || !reserve_add(s, i, 0, 100, LIMIT))
            _exit(1);
        /* A program that closes what it does not know, and a child that outlives it. */
        for (int fd = 3; fd < 100; fd++)
            if (fd != ready[1])
                close(fd);
        if (leaves_child && fork() == 0)
            leaves_child = false, i = LIMIT_SLOTS;
        ssize_t n = write(ready[1], &i, sizeof i);
        close(ready[1]);
        while (n == sizeof i)
            pause();
        _exit(1);
    }
    close(ready[1]);
    for (int i = 0; i < 1 + leaves_child; i++) {
        uint32_t value;
        ck_assert_int_eq(read(ready[0], &value, sizeof value), sizeof value);
        if (value < LIMIT_SLOTS)
            *slot = value;
    }
    close(ready[0]);
    return pid;
}

static void kill_and_wait(pid_t pid)
{
    int status;
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
}

TEST(a_slot_is_free_when_its_process_ended)
{
    if (!pod_wipes_on_fork())
        return;
    char *dir = temp_dir();
    cleanup_free char *path = new_file(dir);
    struct limit_state *s;
    struct sys_file f;
    uint32_t own, first, second;
    pid_t a = holder(path, &first, false), b = holder(path, &second, true);
    ck_assert_uint_eq(slots_claim(path, &s, &own, &f), 0);
    ck_assert_uint_ne(first, second);
    ck_assert_uint_ne(own, first);
    ck_assert_uint_eq(s->slots[first].pid, a);
    ck_assert_uint_gt(s->slots[first].start_time, 0);
    ck_assert_uint_gt(s->slots[first].namespace, 0);
    slots_reclaim(path, s);
    ck_assert_uint_eq(reserve_used(s), 200);
    kill_and_wait(a);
    slots_reclaim(path, s);
    ck_assert_uint_eq(reserve_used(s), 100);
    kill_and_wait(b); /* its child lives on, and has no part of the slot */
    slots_reclaim(path, s);
    ck_assert_uint_eq(reserve_used(s), 0);
    ck_assert(reserve_add(s, own, 0, LIMIT, LIMIT));
    temp_dir_remove(dir);
    free(dir);
}

TEST(a_file_that_is_no_state_is_not_mapped)
{
    char *dir = temp_dir();
    struct limit_state *s;
    struct sys_file f;
    uint32_t slot;
    temp_write(dir, "state", "short");
    cleanup_free char *path = temp_path(dir, "state"), *none = temp_path(dir, "none");
    ck_assert_int_eq(slots_claim(path, &s, &slot, &f), LIMIT_BAD_STATE);
    ck_assert_int_eq(slots_claim(none, &s, &slot, &f), LIMIT_NO_FILE);
    temp_dir_remove(dir);
    free(dir);
}

/* -- Table: against a plain array -- */

TEST(the_table_finds_what_was_added)
{
    enum { KEYS = 2000 };
    static bool has[KEYS];
    struct table t = {0};
    uint64_t x = 1;
    size_t n = 0;
    for (int i = 0; i < 50000; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        uint64_t key = x >> 33;
        key %= KEYS;
        struct entry *e = table_find(&t, KIND_LINEAR, key << 21);
        ck_assert_int_eq(e != NULL, has[key]);
        if (e && (x >> 20 & 1)) {
            table_remove(&t, e);
            has[key] = false;
            n--;
        } else if (!e) {
            table_add(&t, KIND_LINEAR, key << 21)->bytes = key;
            has[key] = true;
            n++;
        }
    }
    size_t seen = 0;
    for (struct entry *e = NULL; (e = table_next(&t, e)); seen++)
        ck_assert_uint_eq(e->bytes, e->key >> 21);
    ck_assert_uint_eq(seen, n);
    ck_assert_uint_eq(t.n, n);
    ck_assert_ptr_null(table_find(&t, KIND_ARRAY, 1 << 21));
}

/* A program that frees what it held gets back the memory of the table, as it goes on. */
TEST(the_table_shrinks)
{
    enum { LIVE = 10000, KEPT = 10, ADDS = 10 };
    struct table t = {0};
    for (uint64_t key = 0; key < LIVE; key++)
        ck_assert_ptr_nonnull(table_add(&t, KIND_LINEAR, key << 21));
    size_t most = t.size;
    ck_assert_uint_ge(most, LIVE);
    for (uint64_t key = KEPT; key < LIVE; key++)
        table_remove(&t, table_find(&t, KIND_LINEAR, key << 21));
    for (uint64_t i = 0; i < ADDS; i++)
        table_remove(&t, table_add(&t, KIND_ARRAY, i));
    ck_assert_uint_le(t.size, most / 256);
    ck_assert_uint_eq(t.n, KEPT);
    for (uint64_t key = 0; key < LIVE; key++)
        ck_assert_int_eq(table_find(&t, KIND_LINEAR, key << 21) != NULL, key < KEPT);
}
