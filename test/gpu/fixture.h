/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/temp.h"
#include "lib/unit.h"

#include "gpu/gpu.h"

/*
 * What the tests of sources share: a directory, a sample, and the script of the fake NVML
 * (test/gpu/fake_nvml.c), whose path is in FAKE_NVML.
 */

static char *dir;
static struct gpu *gpu;
static struct gpu_sample sample;
static struct err err;

static inline void fixture_begin(void)
{
    dir = temp_dir();
    cleanup_free char *script = temp_path(dir, "script");
    setenv("FAKE_NVML", script, 1);
    err = (struct err){0};
}

static inline void fixture_end(void)
{
    gpu_free(gpu);
    gpu = NULL;
    gpu_sample_fini(&sample);
    temp_dir_remove(dir);
    free(dir);
}

/* One of the fake libraries, new: "libnvidia-ml.so.1" or "old/libnvidia-ml.so.1". */
static inline char *fixture_library(const char *name)
{
    const char *build = getenv("GPUSHARE_BUILD");
    return xasprintf("%s/fake-nvml/%s", build ? build : "build", name);
}

static inline void fixture_script(const char *text)
{
    temp_write(dir, "script", text);
}

static inline void fixture_sample(void)
{
    ck_assert_done(gpu_sample(gpu, &sample, &err), err);
}

static inline const struct gpu_card *card(size_t i)
{
    ck_assert_uint_lt(i, sample.n_cards);
    return &sample.cards[i];
}

/* Is all of the card this? "0|UUID|MODEL|BUS|lost: WHY| metric=1 events processes 7:BYTES:SM",
 * with what is known. */
static inline void card_is(size_t i, const char *want)
{
    cleanup_buf struct buf got = {0};
    const struct gpu_card *c = card(i);
    buf_printf(&got, "%d|%s|%s|%s|%s%s%s|", c->index, c->uuid, c->model, c->bus_id,
               gpu_state_name(c->state), *c->why ? ": " : "", c->why);
    for (int m = 0; m < GPU_N_METRICS; m++)
        if (gpu_knows(c, (enum gpu_metric)m))
            buf_printf(&got, " %s=%lld", gpu_metric_name((enum gpu_metric)m),
                       (long long)c->value[m]);
    buf_adds(&got, c->events ? " events" : "");
    buf_adds(&got, c->processes_known ? " processes" : "");
    for (size_t k = 0; k < c->n_processes; k++)
        buf_printf(&got, " %lld:%lld:%d", (long long)c->processes[k].pid,
                   (long long)c->processes[k].bytes, c->processes[k].sm_percent);
    ck_assert_str_eq(got.p, want);
}

#define ck_assert_has(text, part)                                                        \
    ck_assert_msg(strstr((text), (part)) != NULL, "\"%s\" has no \"%s\"", (text), (part))
