/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines in logfmt, and the queue that a thread writes to standard error. A thread that
 * logs never waits for the reader. Other processes can share the open file description, so it
 * is not set to O_NONBLOCK. */
#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

enum {
    QUEUE_BYTES = 256 * 1024,
    FLUSH_MS = 1000,
    TICK_MS = 2,
    AGAIN_MS = 1000,
    REST_MS = 10, /* lines of that time are written together */
};

static const char *const level_names[] = {"error", "warn", "info", "debug"};

/* Process-wide on purpose: every module logs, and none should pass the level on. */
static _Atomic int current_level = LOG_INFO;
/* NULL: log_write writes directly. */
static _Atomic(struct log_queue *) queue;

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&current_level, (int)level, memory_order_relaxed);
}

bool log_enabled(enum log_level level)
{
    return (int)level <= atomic_load_explicit(&current_level, memory_order_relaxed);
}

static bool is_plain(struct span s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c >= 0x7f)
            return false;
    }
    return s.n > 0;
}

static void add_value(struct buf *out, struct span s)
{
    if (is_plain(s))
        buf_add_span(out, s);
    else
        buf_add_json(out, s);
}

void log_format(struct buf *out, int64_t time_ms, enum log_level level,
                const char *module, const char *msg, const struct log_field *fields)
{
    buf_adds(out, "time=");
    clock_format_ms(out, time_ms);
    buf_printf(out, " level=%s module=%s msg=", level_names[level], module);
    add_value(out, span_of(msg));
    for (const struct log_field *f = fields; f->key; f++) {
        buf_addc(out, ' ');
        buf_adds(out, f->key);
        buf_addc(out, '=');
        if (f->is_number)
            buf_add_i64(out, f->number);
        else
            add_value(out, f->text);
    }
}

/* -- the queue -- */

struct log_queue {
    pthread_mutex_t lock; /* protects the members below */
    pthread_cond_t added;
    struct buf waiting; /* lines that the thread has not taken yet */
    uint64_t dropped;   /* since the last report */
    bool writing;       /* the thread still writes lines that it took */
};

/* False: the descriptor is closed or broken. */
static bool write_line(struct span line)
{
    while (line.n) {
        ssize_t n = write(STDERR_FILENO, line.p, line.n);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) { /* another process set O_NONBLOCK */
            struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
            poll(&p, 1, AGAIN_MS);
            continue;
        }
        if (n <= 0)
            return false;
        line.p += n;
        line.n -= (size_t)n;
    }
    return true;
}

/* Whole lines in each write, which a pipe does not split, so that the lines of several processes do
 * not interleave. A longer line is a write of its own. */
static void write_lines(struct span lines)
{
    while (lines.n) {
        size_t most = lines.n < PIPE_BUF ? lines.n : PIPE_BUF;
        const char *end = memrchr(lines.p, '\n', most) ?: memchr(lines.p, '\n', lines.n);
        size_t n = end ? (size_t)(end - lines.p) + 1 : lines.n;
        if (!write_line((struct span){lines.p, n}))
            return;
        lines.p += n;
        lines.n -= n;
    }
}

static void *log_queue_main(void *arg)
{
    struct log_queue *q = arg;
    struct buf lines = {0};
    for (;;) {
        /* Takes the lines, or a report of dropped lines. */
        pthread_mutex_lock(&q->lock);
        q->writing = false;
        while (!q->waiting.n && !q->dropped)
            pthread_cond_wait(&q->added, &q->lock);
        struct buf taken = q->waiting;
        q->waiting = lines;
        lines = taken;
        if (!lines.n && q->dropped) {
            cleanup_buf struct buf msg = {0};
            buf_printf(&msg, "%llu log lines dropped", (unsigned long long)q->dropped);
            log_format(
                &lines, clock_wall_ns() / 1000000, LOG_WARN, "log", msg.p,
                (const struct log_field[]){
                    LOG_S("reason", "the reader of standard error is too slow"), {0}});
            buf_addc(&lines, '\n');
            q->dropped = 0;
        }
        q->writing = true;
        pthread_mutex_unlock(&q->lock);
        write_lines(buf_span(&lines));
        buf_clear(&lines);
        clock_sleep_ms(REST_MS); /* nobody has to wake the thread */
    }
    return NULL;
}

void log_start(void)
{
    struct log_queue *q = xcalloc(1, sizeof *q);
    pthread_t thread;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->added, NULL);
    if (pthread_create(&thread, NULL, log_queue_main, q))
        abort();
    pthread_setname_np(thread, "log");
    pthread_detach(thread); /* a reader of standard error may block it for ever */
    atomic_store(&queue, q);
}

/* Polls, so that adding a line wakes nobody but the thread. */
void log_flush(void)
{
    struct log_queue *q = atomic_load(&queue);
    int64_t end = clock_mono_ms() + FLUSH_MS;
    for (bool done = !q; !done && clock_mono_ms() < end;) {
        pthread_mutex_lock(&q->lock);
        done = !q->waiting.n && !q->dropped && !q->writing;
        pthread_mutex_unlock(&q->lock);
        if (!done)
            clock_sleep_ms(TICK_MS);
    }
}

void log_write(enum log_level level, const char *module, const char *msg,
               const struct log_field *fields)
{
    cleanup_buf struct buf line = {0};
    log_format(&line, clock_wall_ns() / 1000000, level, module, msg, fields);
    buf_addc(&line, '\n');
    struct log_queue *q = atomic_load(&queue);
    if (q) {
        pthread_mutex_lock(&q->lock);
        if (q->waiting.n + line.n > QUEUE_BYTES)
            q->dropped++;
        else
            buf_add_span(&q->waiting, buf_span(&line));
        pthread_cond_signal(&q->added);
        pthread_mutex_unlock(&q->lock);
        return;
    }
    ssize_t n = write(STDERR_FILENO, line.p, line.n);
    (void)n; /* there is nowhere left to complain */
}
