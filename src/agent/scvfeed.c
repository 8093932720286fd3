/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/scvfeed.h"

static void hand_on(struct scvfeed *f, struct machine_input in)
{
    in.run = f->run;
    in.retry_after_ms = f->in.retry_after_ms;
    f->input(f->ctx, &in);
}

static void on_object(void *ctx, struct jread *j, bool gone)
{
    struct scvfeed *f = ctx;
    struct agent_object object;
    struct span raw;
    struct err err;
    if (!jread_raw(j, &raw))
        return; /* cut off: it comes again */
    if (agent_object_read(raw, &f->in.arena, &object, &err))
        listwatch_fail(&f->in, &err);
    else
        hand_on(f, (struct machine_input){
                       .type = MACHINE_OBJECT, .gone = gone, .object = &object});
}

static void on_bookmark(void *ctx, struct span version)
{
    hand_on(ctx, (struct machine_input){.type = MACHINE_WATCH_ALIVE, .version = version});
}

static void on_fault(void *ctx, const struct err *err)
{
    struct scvfeed *f = ctx;
    listwatch_fail(&f->in, err);
}

static const struct listwatch_handler reader = {on_object, on_bookmark, on_fault};

void scvfeed_init(struct scvfeed *f,
                  void (*input)(void *ctx, const struct machine_input *in), void *ctx)
{
    *f = (struct scvfeed){.input = input, .ctx = ctx};
    listwatch_init(&f->in, &reader, f);
}

void scvfeed_fini(struct scvfeed *f)
{
    listwatch_fini(&f->in);
}

void scvfeed_start(struct scvfeed *f, uint64_t run)
{
    f->run = run;
    listwatch_start(&f->in, true);
}

bool scvfeed_begin(struct scvfeed *f, unsigned status, int64_t retry_after_s)
{
    listwatch_begin(&f->in, status, retry_after_s);
    if (status == 200)
        hand_on(f, (struct machine_input){.type = MACHINE_WATCH_ALIVE});
    return true;
}

bool scvfeed_data(struct scvfeed *f, const char *p, size_t n)
{
    return listwatch_data(&f->in, p, n);
}

void scvfeed_end(struct scvfeed *f, const struct err *why)
{
    listwatch_end(&f->in, why);
    hand_on(f, (struct machine_input){.type = MACHINE_WATCH_ENDED, .err = &f->in.err});
}
