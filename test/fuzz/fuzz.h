/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The entry point of a fuzz target, as libFuzzer calls it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Something is wrong with the input that is being run: says why and aborts. */
void fuzz_fail(const char *why) __attribute__((noreturn));
