/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/same.h"

#include <ctype.h>

#include "base/str.h"
#include "lib/lib.h"

struct same {
    const char *file;
    size_t step;
    const json_t *rules, *step_rules; /* at -> why */
    const char *kind;                 /* of the current object, or "" */
    struct buf path;                  /* from its root */
    size_t faults;
};

/* -- rules -- */

/* Does the path match the pattern? `below`: also paths below the pattern. */
static bool path_fits(struct span pattern, struct span path, bool below)
{
    while (pattern.n && path.n) {
        struct span a = span_cut(&pattern, '.'), b = span_cut(&path, '.');
        if (!span_eq(a, b) && !span_eq(a, span_of("*")))
            return false;
    }
    return !pattern.n && (below || !path.n);
}

static bool place_fits(const struct same *s, const char *place, bool below)
{
    struct span at = span_of(place);
    if (memchr(at.p, ':', at.n) && !span_eq(span_cut(&at, ':'), span_of(s->kind)))
        return false;
    return path_fits(at, buf_span(&s->path), below);
}

/* Is there a rule for this path? `in`: "kubernetes", "kube-sim" or "both". */
static bool allowed(const struct same *s, const char *in)
{
    json_t *rule;
    const char *place;
    json_object_foreach((json_t *)s->step_rules, place,
                        rule) if (place_fits(s, place, true)) return true;
    lib_each(rule, s->rules) {
        const char *where = lib_str(rule, "in");
        bool both = strcmp(where, "both") == 0;
        if ((both || strcmp(where, in) == 0) && place_fits(s, lib_str(rule, "at"), both))
            return true;
    }
    return false;
}

static void differ(struct same *s, const char *what, const json_t *theirs,
                   const json_t *ours)
{
    printf("%s, step %zu: %s: %s:%.*s\n    kubernetes: %.600s\n    kube-sim:   %.600s\n",
           s->file, s->step, what, s->kind, (int)s->path.n, s->path.p ? s->path.p : "",
           lib_text(theirs, ""), lib_text(ours, ""));
    fflush(stdout);
    s->faults++;
}

/* -- texts that are compared by form -- */

/* The number of characters of p that match the form ('0': a digit, 'x': a hex digit); 0: no
 * match. */
static size_t looks_like(const char *p, const char *form)
{
    size_t n = 0;
    for (; form[n]; n++) {
        unsigned char c = (unsigned char)p[n];
        if (form[n] == '0' ? !isdigit(c) : form[n] == 'x' ? !isxdigit(c) : c != form[n])
            return 0;
    }
    return n;
}

static const char *const forms[] = {
    "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx",
    "0000-00-00T00:00:00.000000Z",
    "0000-00-00T00:00:00Z",
};

/* The text with each UID, time and (`numbers`) number replaced by its form. */
static void normal(const char *text, bool numbers, struct buf *out)
{
    while (*text) {
        size_t n = 0;
        for (size_t i = 0; !n && i < ARRAY_LEN(forms); i++)
            if ((n = looks_like(text, forms[i])))
                buf_adds(out, forms[i]);
        if (!n && numbers && isdigit((unsigned char)*text)) {
            n = strspn(text, "0123456789");
            buf_adds(out, "0");
        }
        if (!n)
            buf_addc(out, *text);
        text += n ? n : 1;
    }
    buf_adds(out, "");
}

static const char *last_key(const struct same *s)
{
    const char *dot = s->path.p ? strrchr(s->path.p, '.') : NULL;
    return dot ? dot + 1 : s->path.p ? s->path.p : "";
}

static bool same_text(const struct same *s, const char *theirs, const char *ours)
{
    cleanup_buf struct buf a = {0}, b = {0};
    const char *key = last_key(s);
    bool message = strcmp(key, "message") == 0;
    if (strcmp(key, "resourceVersion") == 0)
        return strspn(theirs, "0123456789") == strlen(theirs) &&
               strspn(ours, "0123456789") == strlen(ours);
    if (strcmp(key, "continue") == 0)
        return true;
    normal(theirs, message, &a);
    normal(ours, message, &b);
    return strcmp(a.p ? a.p : "", b.p ? b.p : "") == 0;
}

/* -- trees -- */

static void compare(struct same *s, const json_t *theirs, const json_t *ours);

static void one(struct same *s, const char *key, const json_t *theirs, const json_t *ours)
{
    size_t n = s->path.n;
    buf_printf(&s->path, "%s%s", n ? "." : "", key);
    if (theirs && ours)
        compare(s, theirs, ours);
    else if (!json_is_null(theirs) && !json_is_null(ours) &&
             !allowed(s, theirs ? "kubernetes" : "kube-sim"))
        differ(s, theirs ? "only in kubernetes" : "only in kube-sim", theirs, ours);
    s->path.n = n;
    if (s->path.p)
        s->path.p[n] = '\0';
}

/* Starts a new root object here. */
static void root(struct same *s, const json_t *theirs, const json_t *ours)
{
    struct buf outer = s->path;
    const char *outer_kind = s->kind;
    const char *kind = json_string_value(json_object_get(ours, "kind"));
    s->path = (struct buf){0};
    if (kind)
        s->kind = kind;
    else if (strlen(s->kind) > 4 && outer.n) /* an item of a PodList has no kind */
        s->kind = lib_fmt("%.*s", (int)strlen(s->kind) - 4, s->kind);
    compare(s, theirs, ours);
    buf_fini(&s->path);
    s->path = outer;
    s->kind = outer_kind;
}

static bool starts_object(const struct same *s)
{
    struct span p = buf_span(&s->path);
    return span_eq(p, span_of("items.[]")) || span_eq(p, span_of("object"));
}

static void compare_objects(struct same *s, const json_t *theirs, const json_t *ours)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)theirs, key, v)
        one(s, key, v, json_object_get(ours, key));
    json_object_foreach((json_t *)ours, key, v) if (!json_object_get(theirs, key))
        one(s, key, NULL, v);
}

static void compare(struct same *s, const json_t *theirs, const json_t *ours)
{
    if (starts_object(s)) {
        root(s, theirs, ours);
    } else if (json_typeof(theirs) != json_typeof(ours)) {
        if (!allowed(s, "both"))
            differ(s, "of another type", theirs, ours);
    } else if (json_is_object(theirs)) {
        compare_objects(s, theirs, ours);
    } else if (json_is_array(theirs)) {
        size_t n = json_array_size(theirs);
        if (n != json_array_size(ours)) {
            if (!allowed(s, "both"))
                differ(s, "of another length", theirs, ours);
            return;
        }
        for (size_t i = 0; i < n; i++)
            one(s, "[]", json_array_get(theirs, i), json_array_get(ours, i));
    } else if (json_is_string(theirs)
                   ? !same_text(s, json_string_value(theirs), json_string_value(ours))
                   : !json_equal(theirs, ours)) {
        if (!allowed(s, "both"))
            differ(s, "not equal", theirs, ours);
    }
}

size_t same_check(const char *file, const json_t *theirs, const json_t *ours)
{
    size_t mark = lib_mark();
    const char *rules_text = lib_file(SAME_RULES), *text = lib_file(file);
    const json_t *rules = lib_parse(rules_text, strlen(rules_text)),
                 *steps = lib_parse(text, strlen(text));
    struct same s = {.file = file, .rules = rules, .kind = ""};
    for (; s.step < json_array_size(theirs); s.step++) {
        const json_t *a = json_array_get(theirs, s.step);
        const json_t *b = json_array_get(ours, s.step);
        s.step_rules = json_object_get(json_array_get(steps, s.step), "differs");
        if (!json_is_object(a) || !json_is_object(b))
            continue;
        const json_t *x = lib_at(a, "body"), *y = lib_at(b, "body");
        if (lib_at(a, "status") && lib_int(a, "status") != lib_int(b, "status"))
            differ(&s, "status", x, y);
        else
            root(&s, x, y);
    }
    lib_release(mark);
    return s.faults;
}
