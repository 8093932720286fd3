/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
#include "gpu/fixture.h"

/* What the tests of NVML share: two cards, and the fake library that has them. */

#define T4                                                                               \
    "card uuid=GPU-t4;name=Tesla T4;bus=3b;minor=1;total=16106127360;free=15569256448;"  \
    "used=3145728;reserved=533725184;maxclock1=1590;maxclock2=5001;gen=3;"           \
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
    gpu = gpu_nvml_new(library);
}

static inline void open_fake(const char *script)
{
    fixture_script(script);
    open_library("libnvidia-ml.so.1");
}

static inline void refused(enum err_code code, const char *words)
{
    err = (struct err){0};
    ck_assert_int_eq(gpu_sample(gpu, &sample, &err), -1);
    ck_assert_int_eq(err.code, code);
    ck_assert_has(err.msg, words);
    ck_assert_uint_eq(sample.n_cards, 0);
}

static inline const struct gpu_card *card(size_t i)
{
    ck_assert_uint_lt(i, sample.n_cards);
    return &sample.cards[i];
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
