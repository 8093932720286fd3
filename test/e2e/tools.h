/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

/*
 * helm and kubeconform, as scripts/e2e-programs builds them, and their input. Every
 * error fails the test.
 */

#define CHART "manifests/chart"

/* Runs one of them (cluster_program) as admin of the cluster; the arguments end with
 * NULL. Fails unless the exit status matches. Returns the output, new. */
char *tools_run(const char *program, int status, const char *const *args);

/* `helm template` of the chart with the values of test/e2e/chart/SET.yaml, or without
 * for NULL: a file, new name. */
char *tools_render(const char *set);

/* The objects of a YAML file, as an array: new. */
json_t *tools_objects(const char *path);

/* Compares two arrays of objects, by kind, namespace and name, in any order. Fails the
 * test with every difference. With `others`, `all` may contain more. */
void tools_assert_same(const json_t *wanted, const json_t *all, bool others);
