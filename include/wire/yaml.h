/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/opt.h"
#include "base/str.h"

/*
 * YAML as a tree, on libyaml, for files that people write: kubeconfig, option files,
 * manifests. Limits against hostile files: depth 64, 10 MiB, 2^20 nodes, no anchors and
 * aliases (a small file could expand to a huge one), no merge keys, no duplicate keys, no
 * tags. Keys are scalars. Errors name file and line.
 */

enum yaml_type { YAML_SCALAR, YAML_SEQUENCE, YAML_MAPPING };

struct yaml_node {
    enum yaml_type type;
    unsigned line, column; /* of its start, from 1; for a block sequence or mapping, of
                              its first item or key */
    unsigned last_line;    /* of its text; for an empty node, `line` */
    bool flow;             /* sequence, mapping: flow style, in brackets */
    const char *file;      /* the name given to the parser, for messages */
    struct span key;       /* of an item of a mapping */
    struct span text;      /* scalar; UTF-8, may hold NUL */
    bool plain;            /* scalar without quotes: may be null, a number, a boolean */
    struct yaml_node **items; /* sequence: the items; mapping: the values, in the order of
                                 the file */
    size_t n;
};

struct yaml; /* all documents of a file; owns its nodes */

/* New. `name` is the file name in error messages. yaml_parse: ERR_TOO_LARGE or
 * ERR_INVALID; yaml_load: also the errors of file_read. */
struct yaml *yaml_parse(const char *name, const char *p, size_t n, struct err *err);
struct yaml *yaml_load(const char *path, struct err *err);
void yaml_close(
    struct yaml *y); /* not yaml_free, which libyaml exports and calls itself */
size_t yaml_count(const struct yaml *y);
const struct yaml_node *yaml_document(const struct yaml *y, size_t i); /* NULL: empty */

/* The value of a key; NULL if node is NULL, not a mapping, or has no such key. */
const struct yaml_node *yaml_get(const struct yaml_node *node, const char *key);
/* The scalar of a key; {NULL, 0} if absent or null. -1 if the value is not a scalar, or
 * contains a NUL. */
int yaml_text(const struct yaml_node *node, const char *key, struct span *out,
              struct err *err);
/* Whether node is NULL or a plain null: empty, ~ or null. */
bool yaml_is_null(const struct yaml_node *node);
/* Appends the node as JSON. Plain scalars become null, booleans or numbers by the rules
 * of the core schema (and 0644 is octal, as for Kubernetes), else strings. */
void yaml_json(const struct yaml_node *node, struct buf *out);

/* Reads an option file, for opt_load: one document, a mapping from names to scalars or
 * sequences of scalars. Calls `pair` once per scalar; skips null. */
int yaml_read_options(const char *path, opt_pair_fn pair, void *ctx, struct err *err);

void yaml_cleanup(struct yaml **y);
#define cleanup_yaml __attribute__((cleanup(yaml_cleanup)))
