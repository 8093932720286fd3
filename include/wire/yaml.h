/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/opt.h"
#include "base/str.h"

/*
 * YAML as a tree, on libyaml. For what people write: kubeconfig, option files, manifests.
 * Bounded against hostile files: depth 64, 10 MiB, a million nodes, no anchors and
 * aliases (they can make a small file huge), no merge keys, no duplicate keys, no tags
 * but those of the core schema. Keys are scalars. Errors name file and line.
 */

enum yaml_type { YAML_SCALAR, YAML_SEQUENCE, YAML_MAPPING };

struct yaml_node {
    enum yaml_type type;
    unsigned line, column;    /* where it begins, both from 1; of a block sequence or
                                 mapping, where its first item or key does */
    unsigned last_line;       /* where its text ends; of an empty one, its own line */
    bool flow;                /* sequence, mapping: in brackets */
    const char *file;         /* the name given to the parser, for messages */
    struct span text;         /* scalar; UTF-8, may hold NUL */
    bool plain;               /* scalar without quotes: may mean null, a number, a bool */
    struct yaml_node **items; /* sequence: the items; mapping: the values */
    struct span *keys;        /* mapping: in the order of the file */
    size_t n;
};

struct yaml; /* all documents of a file; owns its nodes */

/* `name` stands for the file in messages. New. */
struct yaml *yaml_parse(const char *name, const char *p, size_t n, struct err *err);
struct yaml *yaml_load(const char *path, struct err *err);
void yaml_close(struct yaml *y); /* not yaml_free: libyaml exports that name itself, and
                                    would call ours */
size_t yaml_count(const struct yaml *y);
const struct yaml_node *yaml_document(const struct yaml *y, size_t i); /* NULL: empty */

/* The value of a key; NULL when node is NULL, no mapping, or has no such key. */
const struct yaml_node *yaml_get(const struct yaml_node *node, const char *key);
/* The scalar under a key; {NULL, 0} when absent or null. Not a scalar: -1. */
int yaml_text(const struct yaml_node *node, const char *key, struct span *out,
              struct err *err);
/* The same as a new C string, NULL when absent or null; a NUL inside is an error. *out is
 * only written to on success. */
int yaml_string(const struct yaml_node *node, const char *key, char **out,
                struct err *err);
/* Is it a plain null: empty, ~, null? Also true when node is NULL. */
bool yaml_is_null(const struct yaml_node *node);
/* Appends the node as JSON. Plain scalars become null, true, false or numbers where they
 * look like one (core schema, and 0644 is octal as to Kubernetes), else strings. */
void yaml_json(const struct yaml_node *node, struct buf *out);

/* The option file reader for opt_load: one document, a mapping from names to scalars or
 * to sequences of scalars, for which `pair` is called once per item. Null is skipped. */
int yaml_read_options(const char *path, opt_pair_fn pair, void *ctx, struct err *err);

void yaml_cleanup(struct yaml **y);
#define cleanup_yaml __attribute__((cleanup(yaml_cleanup)))
