/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log_queue_priv.h"

enum { QUEUE_BYTES = 256 * 1024, STOP_MS = 1000 };

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

static bool plain(struct span s)
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
    if (plain(s))
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

void log_write(enum log_level level, const char *module, const char *msg,
               const struct log_field *fields)
{
    cleanup_buf struct buf line = {0};
    log_format(&line, clock_wall_ns() / 1000000, level, module, msg, fields);
    buf_addc(&line, '\n');
    struct log_queue *q = atomic_load(&queue);
    if (q) {
        log_queue_add(q, buf_span(&line));
        return;
    }
    ssize_t n = write(STDERR_FILENO, line.p, line.n);
    (void)n; /* there is nowhere left to complain */
}

static void report_dropped(struct buf *out, uint64_t dropped)
{
    cleanup_buf struct buf msg = {0};
    buf_printf(&msg, "%llu log lines dropped", (unsigned long long)dropped);
    log_format(out, clock_wall_ns() / 1000000, LOG_WARN, "log", msg.p,
               (const struct log_field[]){
                   LOG_S("reason", "the reader of standard error is too slow"), {0}});
    buf_addc(out, '\n');
}

void log_start(void)
{
    atomic_store(&queue, log_queue_start(STDERR_FILENO, QUEUE_BYTES, report_dropped));
}

void log_flush(void)
{
    struct log_queue *q = atomic_load(&queue);
    if (q)
        log_queue_flush(q, STOP_MS);
}

void log_stop(void)
{
    struct log_queue *q = atomic_exchange(&queue, NULL);
    if (q)
        log_queue_stop(q, STOP_MS);
}
