/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "gpu/gpu_priv.h"

enum {
    FILE_MAX = 4 << 20,
    LOOK_MS = 20, /* polling interval for new events */
};

struct file {
    struct gpu base;
    char *path;
    bool seen;       /* the file was read at least once */
    int64_t last_id; /* of the newest event that was returned */
};

static struct file *of(struct gpu *g)
{
    return (struct file *)(void *)g;
}

static int load(struct file *f, struct gpu_file_data *data, struct err *err)
{
    cleanup_buf struct buf text = {0};
    if (file_read(f->path, FILE_MAX, &text, err))
        return -1;
    if (gpu_file_parse(buf_span(&text), data, err))
        return err_wrap(err, "%s", f->path);
    if (*data->error)
        return err_set(err, ERR_UNAVAILABLE, "%s: %s", f->path, data->error);
    if (!f->seen)
        f->last_id = data->n_events ? data->events[data->n_events - 1].id : -1;
    f->seen = true;
    return 0;
}

static int sample(struct gpu *g, struct gpu_sample *s, struct err *err)
{
    struct gpu_file_data data = {.sample.arena = s->arena};
    int rc = load(of(g), &data, err);
    *s = data.sample;
    return rc;
}

static bool take_event(struct file *f, const struct gpu_file_data *data,
                       struct gpu_event *event)
{
    for (size_t i = 0; i < data->n_events; i++) {
        const struct gpu_file_event *e = &data->events[i];
        if (e->id <= f->last_id)
            continue;
        f->last_id = e->id;
        event->kind = e->xid >= 0 ? GPU_EVENT_XID : GPU_EVENT_ECC;
        event->xid = e->xid >= 0 ? e->xid : 0;
        memcpy(event->uuid, e->uuid, sizeof event->uuid);
        for (size_t k = 0; *e->uuid && k < data->sample.n_cards; k++)
            if (!strcmp(data->sample.cards[k].uuid, e->uuid))
                event->index = data->sample.cards[k].index;
        return true;
    }
    return false;
}

static int wait_event(struct gpu *g, int timeout_ms, struct gpu_event *event,
                      struct err *err)
{
    struct file *f = of(g);
    const struct timespec pause = {0, LOOK_MS * 1000000L};
    int64_t end = clock_mono_ms() + timeout_ms;
    if (!f->seen)
        return err_set(err, ERR_UNAVAILABLE, "%s: not read yet", f->path);
    for (;;) {
        struct gpu_file_data data = {0};
        int rc = load(f, &data, err);
        bool found = !rc && take_event(f, &data, event);
        gpu_sample_fini(&data.sample);
        if (rc || found || clock_mono_ms() >= end)
            return rc;
        nanosleep(&pause, NULL);
    }
}

/* Only the id of the last event is kept. */
static void reopen(struct gpu *g)
{
    (void)g;
}

static void free_file(struct gpu *g)
{
    struct file *f = of(g);
    free(f->path);
    free(f);
}

struct gpu *gpu_file_new(const char *path)
{
    static const struct gpu_ops ops = {sample, wait_event, reopen, free_file};
    struct file *f = xcalloc(1, sizeof *f);
    f->base.ops = &ops;
    f->path = xstrdup(path);
    return &f->base;
}
