/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/shwords.h"

#include <ctype.h>
#include <stdlib.h>

#include "base/mem.h"
#include "lib/unit.h"

void shwords_init(struct shwords *s, const char *text)
{
    *s = (struct shwords){.rest = span_of(text)};
}

void shwords_fini(struct shwords *s)
{
    free(s->until);
    *s = (struct shwords){0};
}

void shcommand_fini(struct shcommand *c)
{
    for (size_t i = 0; i < c->n; i++)
        free(c->words[i]);
    *c = (struct shcommand){0};
}

static int peek(const struct shwords *s, size_t i)
{
    return i < s->rest.n ? (unsigned char)s->rest.p[i] : 0;
}

static int take(struct shwords *s)
{
    int c = peek(s, 0);
    if (c) {
        s->rest.p++;
        s->rest.n--;
        s->line += c == '\n';
    }
    return c;
}

/* Skips the here-document that the finished line started. */
static void skip_here(struct shwords *s)
{
    while (s->until && s->rest.n) {
        struct span line = span_cut(&s->rest, '\n');
        s->line++;
        if (span_eq(span_trim(line), span_of(s->until))) {
            free(s->until);
            s->until = NULL;
        }
    }
}

/* Blanks, continued lines and comments. */
static void skip_blanks(struct shwords *s)
{
    for (;;) {
        if (peek(s, 0) == ' ' || peek(s, 0) == '\t') {
            take(s);
        } else if (peek(s, 0) == '\\' && peek(s, 1) == '\n') {
            take(s);
            take(s);
        } else if (peek(s, 0) == '#') {
            while (peek(s, 0) && peek(s, 0) != '\n')
                take(s);
        } else {
            return;
        }
    }
}

static void take_quoted(struct shwords *s, struct buf *word)
{
    int quote = take(s), c;
    while ((c = take(s)) && c != quote) {
        if (quote == '"' && c == '\\' && peek(s, 0))
            c = take(s);
        buf_addc(word, (char)c);
    }
}

/* Skips "${name}". */
static void take_variable(struct shwords *s, struct buf *word)
{
    int c;
    while ((c = take(s))) {
        buf_addc(word, (char)c);
        if (c == '}')
            return;
    }
}

/* Reads a word; empty: no word starts here. `quoted`: it has quotes. */
static char *take_word(struct shwords *s, bool *quoted)
{
    struct buf word = {0};
    buf_adds(&word, "");
    *quoted = false;
    for (int c; (c = peek(s, 0)) && !strchr(" \t\n;&|()<>", c);) {
        if (c == '\'' || c == '"') {
            *quoted = true;
            take_quoted(s, &word);
        } else if (c == '$' && peek(s, 1) == '(') {
            break; /* a new command starts here */
        } else if (c == '$' && peek(s, 1) == '{') {
            take_variable(s, &word);
        } else {
            take(s);
            if (c == '\\') {
                c = take(s);
                if (c == '\n')
                    continue;
            }
            buf_addc(&word, (char)c);
        }
    }
    return buf_take(&word);
}

/* Skips a redirection and its word. */
static void skip_redirection(struct shwords *s)
{
    bool quoted, here = peek(s, 0) == '<' && peek(s, 1) == '<' && peek(s, 2) != '<';
    while (peek(s, 0) && strchr("<>&-", peek(s, 0)))
        take(s);
    skip_blanks(s);
    char *target = take_word(s, &quoted);
    if (here) {
        free(s->until);
        s->until = target;
    } else {
        free(target);
    }
}

/* Is it a word that precedes a program? */
static bool is_before(const char *word)
{
    static const char *const words[] = {"if",   "then",  "elif",  "else", "fi",     "do",
                                        "done", "while", "until", "!",    "{",      "}",
                                        "time", "sudo",  "env",   "exec", "command"};
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strcmp(word, words[i]) == 0)
            return true;
    size_t n = 0;
    while (isalnum((unsigned char)word[n]) || word[n] == '_')
        n++;
    return n && word[n] == '=';
}

static bool is_number(const char *word)
{
    return *word && !word[strspn(word, "0123456789")];
}

static void add(struct shwords *s, struct shcommand *c, char *word, bool quoted)
{
    bool first = c->n == 0;
    if (first && strcmp(word, "for") == 0)
        s->list = true;
    bool number = is_number(word) && peek(s, 0) && strchr("<>", peek(s, 0));
    if (s->list || number || (!*word && !quoted) || (first && is_before(word))) {
        free(word);
        return;
    }
    ck_assert_uint_lt(c->n, SHWORDS_MAX);
    if (first)
        c->line = s->line;
    c->words[c->n++] = word;
}

bool shwords_next(struct shwords *s, struct shcommand *c)
{
    *c = (struct shcommand){0};
    for (;;) {
        bool quoted;
        skip_blanks(s);
        int ch = peek(s, 0);
        if (ch == '<' || ch == '>') {
            skip_redirection(s);
        } else if (!ch || strchr("\n;&|()", ch) || (ch == '$' && peek(s, 1) == '(')) {
            s->list = false;
            if (c->n || !ch)
                return c->n > 0; /* the next call skips the separator */
            take(s);
            if (ch == '\n')
                skip_here(s);
        } else {
            char *word = take_word(s, &quoted);
            add(s, c, word, quoted);
        }
    }
}
