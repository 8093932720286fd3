/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/scv_decode.h"

static void pass(struct scv_decode *f, struct publisher_input in)
{
    in.run = f->run;
    in.retry_after_ms = f->in.retry_after_ms;
    f->input(f->ctx, &in);
}

static void on_object(void *ctx, struct jread *j, bool gone)
{
    struct scv_decode *f = ctx;
    struct api_object object;
    struct span raw;
    struct err err;
    if (!jread_raw(j, &raw))
        return; /* truncated: the next watch sends it again */
    if (api_object_read(raw, &f->in.arena, &object, &err))
        listwatch_fail(&f->in, &err);
    else
        pass(f, (struct publisher_input){
                    .type = PUBLISHER_OBJECT, .gone = gone, .object = &object});
}

static void on_bookmark(void *ctx, struct span version)
{
    pass(ctx,
         (struct publisher_input){.type = PUBLISHER_WATCH_ALIVE, .version = version});
}

static void on_fault(void *ctx, const struct err *err)
{
    struct scv_decode *f = ctx;
    listwatch_fail(&f->in, err);
}

static const struct listwatch_handler reader = {on_object, on_bookmark, on_fault};

void scv_decode_init(struct scv_decode *f,
                     void (*input)(void *ctx, const struct publisher_input *in),
                     void *ctx)
{
    *f = (struct scv_decode){.input = input, .ctx = ctx};
    listwatch_init(&f->in, &reader, f);
}

void scv_decode_fini(struct scv_decode *f)
{
    listwatch_fini(&f->in);
}

void scv_decode_start(struct scv_decode *f, uint64_t run)
{
    f->run = run;
    listwatch_start(&f->in, true);
}

bool scv_decode_begin(struct scv_decode *f, unsigned status, int64_t retry_after_s)
{
    listwatch_begin(&f->in, status, retry_after_s);
    if (status == 200)
        pass(f, (struct publisher_input){.type = PUBLISHER_WATCH_ALIVE});
    return true;
}

bool scv_decode_data(struct scv_decode *f, const char *p, size_t n)
{
    return listwatch_data(&f->in, p, n);
}

void scv_decode_end(struct scv_decode *f, const struct err *why)
{
    listwatch_end(&f->in, why);
    pass(f, (struct publisher_input){.type = PUBLISHER_WATCH_ENDED, .err = &f->in.err});
}
