/* SPDX-License-Identifier: Apache-2.0 */
/* System calls, locks and strings without a C library. */
#include "limit/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#if defined(__x86_64__)
static long call6(long number, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
static long call6(long number, long a, long b, long c, long d, long e, long f)
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc #0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}
#else
#error "libgpushare-limit.so is written for x86-64 and AArch64"
#endif

uint64_t sys_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#endif
}

static long call3(long number, long a, long b, long c)
{
    return call6(number, a, b, c, 0, 0, 0);
}

static bool is_error(long result)
{
    return result < 0 && result > -4096;
}

long sys_open(const char *path, int flags)
{
    return call6(SYS_openat, AT_FDCWD, (long)path, flags | O_CLOEXEC, 0, 0, 0);
}

long sys_close(long fd)
{
    return call3(SYS_close, fd, 0, 0);
}

long sys_read(long fd, void *into, size_t n)
{
    return call3(SYS_read, fd, (long)into, (long)n);
}

long sys_write(long fd, const char *text, size_t n)
{
    return call3(SYS_write, fd, (long)text, (long)n);
}

static long fill(long result, const struct stat *st, struct sys_file *f)
{
    if (result >= 0)
        *f = (struct sys_file){st->st_dev, st->st_ino, st->st_size};
    return result;
}

long sys_fstat(long fd, struct sys_file *f)
{
    struct stat st;
    return fill(call3(SYS_fstat, fd, (long)&st, 0), &st, f);
}

long sys_stat(const char *path, struct sys_file *f)
{
    struct stat st;
    return fill(call6(SYS_newfstatat, AT_FDCWD, (long)path, (long)&st, 0, 0, 0), &st, f);
}

void *sys_map_file(long fd, size_t n, bool write)
{
    long p = call6(SYS_mmap, 0, (long)n, PROT_READ | (write ? PROT_WRITE : 0), MAP_SHARED,
                   fd, 0);
    return is_error(p) ? NULL : (void *)p;
}

void *sys_map(size_t n)
{
    long p = call6(SYS_mmap, 0, (long)n, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return is_error(p) ? NULL : (void *)p;
}

void sys_unmap(void *p, size_t n)
{
    call3(SYS_munmap, (long)p, (long)n, 0);
}

long sys_dont_fork(void *p, size_t n)
{
    return call3(SYS_madvise, (long)p, (long)n, MADV_DONTFORK);
}

long sys_wipe_on_fork(void *p, size_t n)
{
    return call3(SYS_madvise, (long)p, (long)n, MADV_WIPEONFORK);
}

long sys_lock_byte(long fd, uint64_t byte)
{
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1};
    return call3(SYS_fcntl, fd, F_OFD_SETLK, (long)&lock);
}

long sys_pid(void)
{
    return call3(SYS_getpid, 0, 0, 0);
}

void sys_yield(void)
{
    call3(SYS_sched_yield, 0, 0, 0);
}

void sys_sleep_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    call3(SYS_nanosleep, (long)&t, 0, 0);
}

/* 0 free, 1 taken, 2 taken with waiters: "Futexes Are Tricky", Drepper, mutex 2. */
void sys_lock(uint32_t *lock)
{
    uint32_t seen = 0;
    if (__atomic_compare_exchange_n(lock, &seen, 1, false, __ATOMIC_ACQUIRE,
                                    __ATOMIC_RELAXED))
        return;
    while (__atomic_exchange_n(lock, 2, __ATOMIC_ACQUIRE) != 0)
        call6(SYS_futex, (long)lock, FUTEX_WAIT_PRIVATE, 2, 0, 0, 0);
}

void sys_unlock(uint32_t *lock)
{
    if (__atomic_exchange_n(lock, 0, __ATOMIC_RELEASE) == 2)
        call6(SYS_futex, (long)lock, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
}

size_t text_len(const char *s)
{
    size_t n = 0;
    while (s[n])
        n++;
    return n;
}

bool text_eq(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

bool text_starts(const char *s, const char *start)
{
    while (*start && *s == *start)
        s++, start++;
    return !*start;
}

bool text_add(char *into, size_t max, const char *text)
{
    size_t have = text_len(into), n = text_len(text);
    if (n >= max - have)
        return false;
    for (size_t i = 0; i <= n; i++)
        into[have + i] = text[i];
    return true;
}
