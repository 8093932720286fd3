/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/str.h"

/*
 * Reads a document: its blocks of commands and samples, its links and its anchors. The
 * document is Markdown, or the source of a manual page (its name ends with ".in"), whose
 * blocks are between .EX and .EE, below a comment with the info string.
 *
 * The info string of a block selects its test:
 *
 *     sh                  commands that test/e2e/test_docs runs on a real control plane
 *     sh sim              commands that test/integration/test_docs runs with kube-sim
 *     sh seen-in=PATH     commands that neither can run; the file PATH (or A,B) runs them
 *     yaml                objects that the API server must accept; without apiVersion, the
 *                         configuration of another program (Prometheus)
 *     yaml seen-in=PATH   an excerpt of that file, line by line
 *     json                JSON
 *     text                anything else: output, a drawing
 */

enum doc_use {
    DOC_SH,
    DOC_SIM,
    DOC_SEEN,
    DOC_YAML,
    DOC_CONFIG,
    DOC_PART,
    DOC_JSON,
    DOC_TEXT
};

struct doc_block {
    enum doc_use use;
    unsigned line; /* of the fence */
    char *seen_in; /* or NULL */
    char *text;    /* without the indentation of the fence */
};

/* A link's target, a piece of inline code, or the anchor of a heading. */
struct doc_word {
    unsigned line;
    char *text;
};

struct doc_words {
    struct doc_word *items;
    size_t n, cap;
};

struct doc {
    char *path;
    struct doc_block *blocks;
    size_t n, cap;
    struct doc_words links, code, anchors;
};

/* Parses a document. Adds errors to `faults` as lines "PATH:LINE: error": a block without
 * info string, without an end, or an indented one. */
void doc_parse(struct doc *d, const char *path, struct span text, struct buf *faults);
void doc_load(struct doc *d, const char *path, struct buf *faults); /* reads a file */
void doc_fini(struct doc *d);
void doc_fault(struct buf *faults, const struct doc *d, unsigned line, const char *fmt,
               ...) __attribute__((format(printf, 4, 5)));
#define cleanup_doc __attribute__((cleanup(doc_fini)))

/* Calls `each` for every document: README.md, CONTRIBUTING.md, docs/, manifests/, policy/
 * and the manual pages. Paths are relative to the root of the repository, which must be
 * the working directory. */
void doc_each(void (*each)(const struct doc *d, void *ctx), void *ctx,
              struct buf *faults);
