/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

/*
 * Runs helm, which scripts/e2e-programs builds, and compares objects. An
 * error fails the test.
 */

#define CHART "manifests/chart"

/* Runs a program (cluster_program) as admin of the suite's cluster; the arguments end
 * with NULL. Fails unless it exits with `status`. Returns its output, new. */
char *tools_run(const char *program, int status, const char *const *args);

/* Renders the chart with `helm template` and the values of test/e2e/chart/SET.yaml, or the
 * defaults, without its tests, for NULL. Returns the path of the file, new. */
char *tools_render(const char *set);

/* The objects of a YAML file as an array. New. */
json_t *tools_objects(const char *path);

/* Fails the test with all differences unless both arrays contain the same objects in any
 * order (by kind, namespace and name). With `others`, `all` may contain more. */
void tools_assert_same(const json_t *wanted, const json_t *all, bool others);
