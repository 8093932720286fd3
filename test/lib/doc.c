/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/doc.h"

#include <ctype.h>

#include "base/file.h"
#include "lib/lib.h"

enum { DOC_MAX = 4 << 20 };

/* Links and code of a line of prose. Code may continue on the next line: *code is where it
 * began, else NULL. */
static void read_prose(struct doc_part part, struct span line, const char **code,
                       doc_fn *each, void *ctx)
{
    const char *end = line.p + line.n;
    for (const char *p = line.p; p < end; p++) {
        if (*p == '`') {
            part.kind = DOC_CODE;
            part.text = (struct span){*code, *code ? (size_t)(p - *code) : 0};
            if (*code)
                each(&part, ctx);
            *code = *code ? NULL : p + 1;
        } else if (!*code && end - p > 2 && p[0] == ']' && p[1] == '(') {
            const char *close = memchr(p, ')', (size_t)(end - p));
            part.kind = DOC_LINK;
            part.text = (struct span){p + 2, (size_t)((close ? close : end) - p - 2)};
            each(&part, ctx);
        }
    }
}

static void read_heading(struct doc_part part, struct span text, doc_fn *each, void *ctx)
{
    cleanup_buf struct buf anchor = {0};
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (isalnum((unsigned char)c) || c == '_' || c == '-' || c == ' ')
            buf_addc(&anchor, c == ' ' ? '-' : (char)tolower((unsigned char)c));
    }
    part.kind = DOC_HEADING;
    part.text = buf_span(&anchor);
    each(&part, ctx);
}

void doc_read(const char *path, doc_fn *each, void *ctx)
{
    cleanup_buf struct buf text = {0};
    struct err err;
    ck_assert_done(file_read(path, DOC_MAX, &text, &err), err);
    struct doc_part part = {.path = path}, block = {.kind = DOC_BLOCK, .path = path};
    const char *code = NULL;
    for (struct span rest = buf_span(&text); rest.n;) {
        struct span line = span_cut(&rest, '\n'), plain = span_trim(line);
        part.line++;
        if (span_starts(plain, SPAN("```")) && !block.line) {
            block.info = span_trim((struct span){plain.p + 3, plain.n - 3});
            block.text = (struct span){rest.p, 0};
            block.line = part.line;
        } else if (block.line && span_eq(plain, SPAN("```"))) {
            block.text.n = (size_t)(line.p - block.text.p);
            each(&block, ctx);
            block.line = 0;
        } else if (!block.line) {
            code = plain.n ? code : NULL;
            if (plain.n && plain.p[0] == '#' && !code) {
                struct span title = plain;
                span_cut(&title, ' ');
                read_heading(part, title, each, ctx);
            }
            read_prose(part, line, &code, each, ctx);
        }
    }
    ck_assert_msg(!block.line, "%s:%u: block without an end", path, block.line);
}

void doc_each(doc_fn *each, void *ctx)
{
    for (const char *const *file =
             lib_glob("{,docs/,manifests/,manifests/*/,policy/,test/data/*/}*.md");
         *file; file++)
        doc_read(*file, each, ctx);
}

/* -- running -- */

struct script {
    const char *info, *objects;
    struct buf text;
    unsigned n;
};

static void add_block(const struct doc_part *part, void *ctx)
{
    struct script *s = ctx;
    bool object = s->objects && span_eq(part->info, SPAN("yaml")) &&
                  span_starts(part->text, SPAN("apiVersion:"));
    if (part->kind != DOC_BLOCK || (!object && !span_eq(part->info, span_of(s->info))))
        return;
    s->n++;
    buf_printf(&s->text, "echo '== %s:%u'\n", part->path, part->line);
    if (object)
        buf_printf(&s->text, "%s <<'EOF'\n", s->objects);
    buf_add_span(&s->text, part->text);
    buf_adds(&s->text, object ? "EOF\n" : "");
}

unsigned doc_run(const char *path, const char *info, const char *objects, const char *dir,
                 const char *const *env, int64_t limit_ms)
{
    struct script s = {info, objects, {0}, 0};
    cleanup_free char *root = realpath(".", NULL), *build = realpath(lib_built(""), NULL);
    const char *folder = lib_fmt("%s/gpushare", dir);
    buf_printf(&s.text,
               "set -E\n"
               "trap 'echo \"failed: $BASH_COMMAND\"' ERR\n"
               "trap 'rc=$?; trap - ERR; set +e; kill $(jobs -p) 2>/dev/null; wait; "
               "exit $rc' EXIT\n"
               "mkdir '%s'; cd '%s'; ln -s '%s'/* .; rm -f build; ln -s '%s' build\n"
               "PATH='%s':$PATH\n",
               folder, folder, root, build, build);
    doc_read(path, add_block, &s);
    temp_write(dir, "run", s.text.p);
    const char *argv[PROGRAM_ARGS] = {"env", "-u",        "MAKEFLAGS",
                                      "-u",  "MAKELEVEL", "NO_PROXY=127.0.0.1,localhost"};
    program_args(argv, program_args(argv, 6, env),
                 ARGV("bash", "-eu", "-o", "pipefail", lib_fmt("%s/run", dir)));
    struct program p;
    program_start(&p, dir, argv);
    lib_wait_within(limit_ms, !program_runs(&p), "%s: still running: %s", path,
                    program_output(&p));
    free(program_end(&p, 0));
    buf_fini(&s.text);
    return s.n;
}

char *doc_help(const char *program)
{
    return strcmp(program, "gpushare-install") == 0
               ? lib_output(0, ARGV("scripts/install", "--help"))
               : lib_output_of(0, program, ARGV("--help"));
}
