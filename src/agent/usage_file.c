/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/usage_file.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/worker.h"

/* The last text. A text that waits for the worker is one that is being written. */
enum saving { SAVED, WRITING, FAILED };

struct usage_file {
    char *path, *node;
    struct worker *worker;
    int64_t due_ms;
    struct buf last; /* what was read or handed to the worker last */
    _Atomic(enum saving) saving;
    bool logged; /* the failure; of the worker, and of the owner after its end */
};

/* A text to write. It is stored after the struct. */
struct job {
    size_t n;
};

static void save(struct usage_file *f, struct span text)
{
    struct err err = {0};
    int rc = file_write(f->path, text, &err);
    if (rc && !f->logged)
        log_warn("usage", "cannot save what workloads use; retrying every 10m",
                 LOG_S("file", f->path), LOG_ERR(&err));
    f->logged = rc != 0;
    f->saving = rc ? FAILED : SAVED;
}

static void perform(void *ctx, void *work)
{
    const struct job *job = work;
    save(ctx, (struct span){(const char *)(job + 1), job->n});
}

static void load(struct usage_file *f, struct usage_history *history)
{
    struct err err = {0};
    int rc = file_read(f->path, USAGE_HISTORY_FILE_MAX, &f->last, &err);
    if (rc && err.code == ERR_NOT_FOUND)
        return;
    if (rc == 0)
        rc = usage_history_read(history, buf_span(&f->last), span_of(f->node),
                                clock_mono_ms(), clock_wall_ns() / 1000000, &err);
    if (rc)
        log_warn("usage", "cannot read what workloads used; the history begins again",
                 LOG_S("file", f->path), LOG_ERR(&err));
    else
        log_info("usage", "read what workloads used",
                 LOG_I("workloads", usage_history_count(history)));
}

struct usage_file *usage_file_open(const char *path, const char *node,
                                   struct usage_history *history)
{
    struct usage_file *f = xcalloc(1, sizeof *f);
    f->path = xstrdup(path);
    f->node = xstrdup(node);
    f->due_ms = clock_mono_ms() + USAGE_FILE_MS;
    load(f, history);
    f->worker = worker_start("usage-file", perform, f);
    return f;
}

/* The text of the history; false: it is that of the last call. */
static bool is_new(struct usage_file *f, const struct usage_history *history)
{
    struct buf text = {0};
    usage_history_write(history, span_of(f->node), clock_mono_ms(),
                        clock_wall_ns() / 1000000, &text);
    bool same = span_eq(buf_span(&text), buf_span(&f->last));
    buf_fini(&f->last);
    f->last = text;
    return !same;
}

void usage_file_take(struct usage_file *f, int64_t now_ms,
                     const struct usage_history *history)
{
    if (!f || now_ms < f->due_ms)
        return;
    f->due_ms = now_ms + USAGE_FILE_MS;
    if (f->saving == WRITING) /* the disk hangs: texts would pile up */
        return;
    if (!is_new(f, history) && f->saving == SAVED)
        return;
    f->saving = WRITING;
    struct job *job = xmalloc(sizeof *job + f->last.n);
    job->n = f->last.n;
    memcpy(job + 1, f->last.p, f->last.n);
    worker_add(f->worker, job);
}

bool usage_file_stop(struct usage_file *f, int64_t until_ms)
{
    return !f || worker_stop_until(f->worker, until_ms);
}

void usage_file_close(struct usage_file *f, const struct usage_history *history)
{
    if (!f)
        return;
    worker_free(f->worker);
    /* What was queued at the stop was not written. */
    bool must_save = is_new(f, history) || f->saving != SAVED;
    if (usage_history_count(history) && must_save)
        save(f, buf_span(&f->last));
    buf_fini(&f->last);
    free(f->path);
    free(f->node);
    free(f);
}
