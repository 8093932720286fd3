/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

/*
 * helm and kubeconform, as scripts/e2e-programs builds them, and what they are given.
 * Whatever goes wrong fails the test.
 */

#define CHART "manifests/chart"

/* Runs one of them (cluster_program) as admin of the suite's cluster; the arguments end
 * with NULL. Fails unless that is its exit status. Returns what it said, new. */
char *tools_run(const char *program, int status, const char *const *args);

/* `helm template` of the chart with the values of test/e2e/chart/SET.yaml, or with none
 * for NULL: a file, new name. */
char *tools_render(const char *set);

/* The objects of a YAML file, as an array: new. */
json_t *tools_objects(const char *path);

/* Both are arrays of objects, each to be found by kind, namespace and name. Are they the
 * same, in whatever order? Fails the test with all that differs. With `others`, `all` may
 * have more. */
void tools_assert_same(const json_t *wanted, const json_t *all, bool others);
