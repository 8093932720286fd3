/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log_queue_priv.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

enum { TICK_NS = 2000000, AGAIN_MS = 1000 };

struct log_queue {
    int fd;
    size_t cap;
    log_queue_report_fn *report;
    pthread_t thread;
    pthread_mutex_t lock; /* protects the members below */
    pthread_cond_t added;
    struct buf waiting; /* lines that the thread has not taken yet */
    uint64_t dropped;   /* since the last report */
    bool writing;       /* the thread still writes lines that it took */
    bool stop, stopped;
};

/* False: the descriptor is closed or broken. */
static bool write_line(int fd, struct span line)
{
    while (line.n) {
        ssize_t n = write(fd, line.p, line.n);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) { /* another process set O_NONBLOCK */
            struct pollfd p = {.fd = fd, .events = POLLOUT};
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

/* One write per line, so that the lines of several processes do not interleave. */
static void write_lines(int fd, struct span lines)
{
    while (lines.n) {
        const char *end = memchr(lines.p, '\n', lines.n);
        size_t n = end ? (size_t)(end - lines.p) + 1 : lines.n;
        if (!write_line(fd, (struct span){lines.p, n}))
            return;
        lines.p += n;
        lines.n -= n;
    }
}

/* Waits for lines or for a report of dropped lines, and takes them. False: stop. */
static bool take(struct log_queue *q, struct buf *lines)
{
    pthread_mutex_lock(&q->lock);
    q->writing = false;
    while (!q->waiting.n && !q->dropped && !q->stop)
        pthread_cond_wait(&q->added, &q->lock);
    struct buf taken = q->waiting;
    q->waiting = *lines;
    *lines = taken;
    if (!lines->n && q->dropped) {
        q->report(lines, q->dropped);
        q->dropped = 0;
    }
    q->writing = lines->n > 0;
    q->stopped = !q->writing;
    pthread_mutex_unlock(&q->lock);
    return lines->n > 0;
}

static void *run(void *arg)
{
    struct log_queue *q = arg;
    cleanup_buf struct buf lines = {0};
    while (take(q, &lines)) {
        write_lines(q->fd, buf_span(&lines));
        buf_clear(&lines);
    }
    return NULL;
}

struct log_queue *log_queue_start(int fd, size_t bytes, log_queue_report_fn *report)
{
    struct log_queue *q = xcalloc(1, sizeof *q);
    q->fd = fd;
    q->cap = bytes;
    q->report = report;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->added, NULL);
    if (pthread_create(&q->thread, NULL, run, q))
        abort();
    pthread_setname_np(q->thread, "log");
    return q;
}

void log_queue_add(struct log_queue *q, struct span line)
{
    pthread_mutex_lock(&q->lock);
    if (q->waiting.n + line.n > q->cap)
        q->dropped++;
    else
        buf_add_span(&q->waiting, line);
    pthread_cond_signal(&q->added);
    pthread_mutex_unlock(&q->lock);
}

static bool is_done(struct log_queue *q, bool stopped)
{
    pthread_mutex_lock(&q->lock);
    bool done = stopped ? q->stopped : !q->waiting.n && !q->dropped && !q->writing;
    pthread_mutex_unlock(&q->lock);
    return done;
}

/* Polls, so that adding a line wakes nobody but the thread. */
static bool wait_for(struct log_queue *q, bool stopped, int64_t wait_ms)
{
    const struct timespec tick = {.tv_nsec = TICK_NS};
    int64_t end = clock_mono_ms() + wait_ms;
    bool done;
    while (!(done = is_done(q, stopped)) && clock_mono_ms() < end)
        nanosleep(&tick, NULL);
    return done;
}

bool log_queue_flush(struct log_queue *q, int64_t wait_ms)
{
    return wait_for(q, false, wait_ms);
}

void log_queue_stop(struct log_queue *q, int64_t wait_ms)
{
    pthread_mutex_lock(&q->lock);
    q->stop = true;
    pthread_cond_signal(&q->added);
    pthread_mutex_unlock(&q->lock);
    if (!wait_for(q, true, wait_ms)) {
        pthread_detach(q->thread);
        return;
    }
    pthread_join(q->thread, NULL);
    buf_fini(&q->waiting);
    pthread_mutex_destroy(&q->lock);
    pthread_cond_destroy(&q->added);
    free(q);
}
