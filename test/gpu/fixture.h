/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/temp.h"
#include "lib/unit.h"

#include "base/mem.h"
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

#define ck_assert_has(text, part)                                                        \
    ck_assert_msg(strstr((text), (part)) != NULL, "\"%s\" has no \"%s\"", (text), (part))
