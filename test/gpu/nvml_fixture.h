/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
#include "gpu/fixture.h"

/* What the tests of NVML share: two cards, and the fake library that has them. */

#define T4                                                                               \
    "card uuid=GPU-t4;name=Tesla T4;bus=3b;minor=1;total=16106127360;free=15569256448;"  \
    "used=3145728;reserved=533725184;maxclock1=1590;maxclock2=5001;gen=3;"               \
    "width=16;powerlimit=70000;util=7;utilmem=1;temp=31;pages=0;events=11;"              \
    "processes=812:1048576,7:2097152\n"
#define H200                                                                             \
    "card uuid=GPU-h200;name=NVIDIA H200;bus=5d;minor=0;total=150754820096;"             \
    "free=150198026240;used=0;reserved=556793856;maxclock1=1980;maxclock2=3201;gen=5;"   \
    "width=16;powerlimit=700000;util=0;utilmem=0;temp=27;remap=0;recovery=0;mig=0;"      \
    "events=11;processes=\n"

static inline void open_library(const char *name)
{
    cleanup_free char *library = fixture_library(name);
    gpu_free(gpu);
    gpu = gpu_nvml_new(library, 0);
}

/* The cards of the script, with the library that is open. */
static inline void reads(const char *script)
{
    fixture_script(script);
    fixture_sample();
}

static inline void opens(const char *script)
{
    open_library("libnvidia-ml.so.1");
    reads(script);
}

static inline void refused(enum err_code code, const char *words)
{
    err = (struct err){0};
    ck_assert_int_eq(gpu_sample(gpu, &sample, &err), -1);
    ck_assert_int_eq(err.code, code);
    ck_assert_has(err.msg, words);
    ck_assert_uint_eq(sample.n_cards, 0);
}

/* The state and, unless it is ok, a part of the reason. */
static inline void state_is(size_t i, enum gpu_state state, const char *why)
{
    ck_assert_msg(card(i)->state == state, "card %zu is %s (%s)", i,
                  gpu_state_name(card(i)->state), card(i)->why);
    if (why)
        ck_assert_has(card(i)->why, why);
    else
        ck_assert_str_eq(card(i)->why, "");
}

/* The next event within 5 s: "xid 79 of 1 GPU-h200"; index -1: of no card. */
static inline void event_is(const char *want)
{
    static const char *const kinds[] = {
        [GPU_EVENT_NONE] = "none", [GPU_EVENT_XID] = "xid", [GPU_EVENT_ECC] = "ecc"};
    struct gpu_event e;
    ck_assert_done(gpu_wait(gpu, strcmp(want, "none") ? 5000 : 10, &e, &err), err);
    cleanup_free char *got = e.kind == GPU_EVENT_NONE
                                 ? xstrdup("none")
                                 : xasprintf("%s %lld of %d %s", kinds[e.kind],
                                             (long long)e.xid, e.index, e.uuid);
    ck_assert_str_eq(got, want);
}

static inline void no_events(const char *words)
{
    struct gpu_event e;
    ck_assert_int_eq(gpu_wait(gpu, 5000, &e, &err), -1);
    ck_assert(err.code == ERR_UNAVAILABLE || err.code == ERR_GONE);
    ck_assert_has(err.msg, words);
}
