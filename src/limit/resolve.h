/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "limit/calls.h"
#include "limit/cuda.h"

#include <stdbool.h>

/*
 * The way from a symbol to a function, in both directions: the driver's functions, which the
 * library calls, and the library's, which a program gets whichever way it asks:
 *
 *     direct link        the library is preloaded, so its symbols come first
 *     dlsym, dlvsym      the library exports both. They call those of the C library, and
 *                        replace an address of the driver by the library's function. What the
 *                        program asks for with RTLD_NEXT depends on the caller; the C library
 *                        sees the program as the caller, because these functions jump to it.
 *     cuGetProcAddress   the answer of the driver is replaced
 *
 * Only functions of libcuda.so.1 and libnvidia-ml.so.1 are replaced: a program's own function
 * named cuMemAlloc stays.
 */

#define LIMIT_EXPORT __attribute__((visibility("default")))

#define HOOK(symbol, name, since, per_thread) CALL_##symbol,
#define NVML(symbol)                          CALL_##symbol,
#define REAL(symbol)                          CALL_##symbol,
enum call { LIMIT_CALLS CALLS };
#undef HOOK
#undef NVML
#undef REAL

/* The driver's function, or NULL if the driver is not loaded or lacks it. */
void *resolve_real(enum call call);
/* The same with the type of the function. */
#define DRIVER(symbol) ((__typeof__(&symbol))resolve_real(CALL_##symbol))

/* Is this thread inside a function of the driver that the library called? Then what the driver
 * calls itself is not counted again. */
bool resolve_nested(void);
void resolve_enter(void);
void resolve_leave(void);
