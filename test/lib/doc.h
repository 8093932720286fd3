/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/str.h"

/*
 * A document as tests read it: its blocks of commands and samples, its links, and what
 * can be linked to. Markdown, or the source of a manual page (its name ends with ".in"),
 * whose blocks stand between .EX and .EE, below a comment with the info string.
 *
 * The info string of a block says what becomes of it:
 *
 *     sh                  commands that test/e2e/test_docs runs, on a real control plane
 *     sh sim              ... that test/integration/test_docs runs, beside kube-sim
 *     sh seen-in=PATH     ... that cannot run there; the file (or several: A,B) runs them
 *     yaml                objects, which the API server has to take; without apiVersion,
 * the configuration of a program (Prometheus) yaml seen-in=PATH   a part of that file,
 * line for line json                JSON text                anything that is no command:
 * output, a drawing
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

/* Reads a document. What is wrong with it is added to `faults`, as lines "PATH:LINE:
 * what": a block that says nothing of its use, one without an end, an indented one. */
void doc_parse(struct doc *d, const char *path, struct span text, struct buf *faults);
void doc_load(struct doc *d, const char *path, struct buf *faults); /* of a file */
void doc_fini(struct doc *d);
void doc_fault(struct buf *faults, const struct doc *d, unsigned line, const char *fmt,
               ...) __attribute__((format(printf, 4, 5)));
#define cleanup_doc __attribute__((cleanup(doc_fini)))

/* All documents for people: README.md, CONTRIBUTING.md, those of docs/, manifests/ and
 * policy/, and the manual pages. Calls `each` once per document; paths are those from the
 * root of the repository, which must be the working directory. */
void doc_each(void (*each)(const struct doc *d, void *ctx), void *ctx,
              struct buf *faults);
