/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "base/str.h"

/* The entry point of a fuzz target, as libFuzzer calls it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Something is wrong with the input that is being run: says why and aborts. */
void fuzz_fail(const char *why) __attribute__((noreturn));

/* A target may bring this (the Makefile links it): appends an input to `out`. driver.c
 * then makes most of its inputs this way, and changes every other one of them at random.
 */
void fuzz_generate(struct rng *rng, struct buf *out) __attribute__((weak));
