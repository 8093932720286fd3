/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "base/str.h"

/* The entry point of a fuzz target, as libFuzzer calls it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reports an error that the current input has revealed, and aborts. */
void fuzz_fail(const char *why) __attribute__((noreturn));

/* Optional in a target (the Makefile links it): appends an input to `out`. driver.c makes
 * most of its inputs this way and mutates half of them. */
void fuzz_generate(struct rng *rng, struct buf *out) __attribute__((weak));
