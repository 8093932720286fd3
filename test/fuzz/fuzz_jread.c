/* SPDX-License-Identifier: Apache-2.0 */

/*
 * base/jread against jansson: both must agree on which input is valid, and on every
 * string, key, integer and other number in it. The permitted differences:
 *   - jansson rejects a number that is too large for a double; jread checks only its
 *     syntax.
 *   - The depth limits differ (2048 and 256).
 *   - jansson cannot represent a NUL (\u0000) in a key.
 *   - jansson accepts a NUL byte directly after a number or a word, which is not JSON.
 * Also against itself: input in two parts, or as a list of the API, gives the same result.
 */

#include "fuzz/fuzz.h"

#include "base/jread.h"
#include "kube/list_watch.h"

/* The next value, as jansson would read it: of equal keys the last one counts. `reals`: with
 * JSON_DECODE_INT_AS_REAL. New. */
static json_t *build(struct jread *j, bool reals, struct arena *a)
{
    struct jread_str key;
    struct span text;
    int64_t integer = 0;
    bool truth = false;
    json_t *all;
    switch (jread_peek(j)) {
    case JREAD_OBJECT:
        all = json_object();
        jread_object(j, "object");
        while (jread_member(j, &key)) {
            text = jread_span(key, a);
            json_object_setn_new(all, text.p, text.n, build(j, reals, a));
        }
        return all;
    case JREAD_ARRAY:
        all = json_array();
        jread_array(j, "array");
        while (jread_item(j))
            json_array_append_new(all, build(j, reals, a));
        return all;
    case JREAD_STRING:
        fuzz_fail_if(!jread_text(j, "string", a, &text), "not a string");
        return json_stringn(text.p, text.n);
    case JREAD_BOOL:
        fuzz_fail_if(!jread_bool(j, "bool", &truth), "not a boolean");
        return json_boolean(truth);
    case JREAD_NUMBER:;
        struct jread before = *j;
        fuzz_fail_if(!jread_raw(j, &text), "not a number");
        text = arena_copy(a, text);
        if (reals || strpbrk(text.p, ".eE"))
            return json_real(strtod(text.p, NULL));
        *j = before;
        fuzz_fail_if(!jread_i64(j, "integer", &integer), "not an integer");
        return json_integer(integer);
    default:
        fuzz_fail_if(!jread_skip(j), "not null");
        return json_null();
    }
}

/* The first part of valid input must not be rejected. */
static void check_cut(const char *p, size_t n, size_t at)
{
    struct jread j, before;
    jread_init(&j, p, at);
    jread_continue(&j, p, at, false);
    before = j;
    jread_skip(&j);
    fuzz_fail_if(j.state == JREAD_BAD, "the first part of a valid value is rejected");
    if (j.state == JREAD_TRUNCATED)
        j = before;
    bool again = j.pos == 0;
    jread_continue(&j, p, n, true);
    if (again)
        jread_skip(&j);
    fuzz_fail_if(jread_finish(&j, NULL), "valid as a whole, rejected in two parts");
}

static void count_item(void *ctx, struct jread *j, bool deleted)
{
    (void)deleted;
    size_t *n = ctx;
    jread_skip(j);
    *n += jread_check(j, NULL) == 0;
}

/* {"items": [...]} as a list of the API, in three pieces, against the same read as a whole. */
static void check_list(const char *p, size_t n, bool valid, json_t *want)
{
    static const struct list_watch_handler handler = {.object = count_item};
    struct list_watch l;
    size_t items = 0, a = n / 3, b = n - n / 4;
    list_watch_init(&l, &handler, &items);
    list_watch_start(&l, false);
    list_watch_begin(&l, 200, -1);
    bool go_on = list_watch_data(&l, p, a) && list_watch_data(&l, p + a, b - a) &&
                 list_watch_data(&l, p + b, n - b);
    int rc = list_watch_end(&l, NULL);
    list_watch_fini(&l);
    json_t *list = json_object_get(want, "items");
    bool is_list = json_is_object(want) && (!list || json_is_array(list));
    fuzz_fail_if(!valid && !rc, "an invalid list is accepted");
    fuzz_fail_if(is_list && !rc && (!go_on || items < json_array_size(list)),
                 "items are missing from a list");
}

enum verdict { VALID, TOO_DEEP, INVALID };

static enum verdict read_it(const char *p, size_t n)
{
    struct jread j;
    jread_init(&j, p, n);
    jread_skip(&j);
    if (jread_finish(&j, NULL) == 0)
        return VALID;
    return j.why && !strcmp(j.why, "nested too deeply") ? TOO_DEEP : INVALID;
}

/* The same, without the NUL bytes that jansson accepts. */
static enum verdict read_without_nuls(const char *p, size_t n)
{
    cleanup_buf struct buf b = {0};
    bool in_string = false;
    buf_reserve(&b, n);
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '"')
            in_string = !in_string;
        bool behind = i && ((p[i - 1] >= '0' && p[i - 1] <= '9') ||
                            (p[i - 1] >= 'a' && p[i - 1] <= 'z'));
        if (in_string && p[i] == '\\' && i + 1 < n)
            buf_addc(&b, p[i++]);
        else if (p[i] == '\0' && behind && !in_string)
            continue;
        buf_addc(&b, p[i]);
    }
    return read_it(b.p, b.n);
}

/* Returns the value that jansson reads, or NULL if it rejects the input. *reals: with all
 * numbers as reals. *unsupported: it rejects the input only because it cannot represent a
 * number or a key. */
static json_t *load(struct span in, bool *reals, bool *unsupported)
{
    const size_t flags = JSON_DECODE_ANY | JSON_ALLOW_NUL;
    json_error_t error;
    json_t *value = json_loadb(in.p, in.n, flags, &error);
    *reals = !value && json_error_code(&error) == json_error_numeric_overflow;
    if (*reals)
        value = json_loadb(in.p, in.n, flags | JSON_DECODE_INT_AS_REAL, &error);
    *unsupported = !value && fuzz_is_unsupported(&error);
    return value;
}

/* -- inputs that mutations of a corpus rarely reach --
 *
 * Small documents by the grammar, and strings and numbers from parts of which each may be
 * slightly invalid. A run takes microseconds, so 10^8 runs take minutes.
 */

/* Alternatives are separated by '|' and equally likely; once in `one_in` times it is an odd
 * one. A name in <> is an alternative of that rule. Deep inside, a value is a string. */
static const struct rule {
    const char *name, *usual;
    uint64_t one_in; /* 0: there is no odd one */
    const char *odd;
} rules[] = {
    {"value", "<string>|<number>|<string>|<word>|<object>|<object>|<array>|<array>", 8,
     "<space><value><space>"},
    {"word", "null|true|false", 40, "nul|True|NaN|nulls"},
    {"object", "{}|{<member>}|{<member>,<member>}|{<member>,<member>,<member>}", 100,
     "{<member>|{<member>,}|{<member>]|{<member><member>}"},
    {"member", "<key>:<value>", 100, "<key><space>:<value>|<key><value>|<value>:<value>"},
    {"key", "\"a\"|\"b\"|\"items\"|\"\\u0061\"|\"\"|\"i\\u0074ems\"|<string>|<string>", 0,
     NULL},
    {"array", "[]|[<value>]|[<value>,<value>]|[<value>,<value>,<value>]", 100,
     "[<value>|[<value>,]|[<value>}|[<value><value>]"},
    {"space", " |\t|\r|\n", 50, "\v|\f|\x85|\xa0|/|#|\xef|<byte>"},

    {"number", "<sign><whole><fraction><exponent>", 24,
     "<number>e|<number>.|<number>-|<number>x|<number>+1|<number>_|<number>f|0x1"},
    {"sign", "|-", 32, "+|--"},
    {"whole", "0|1|<digits>|<digits>|<digits>", 12,
     "00||.|9223372036854775807|9223372036854775808|1e308"},
    {"fraction", "||.<digits>", 24, "..<digits>|,<digits>|.-<digits>|."},
    {"exponent", "|||||||||e<digits>|E<digits>|e+<digits>|E-<digits>", 24,
     "ee<digits>|e+-<digits>|e.<digits>|e"},
    {"digits", "<digit>|<digit><digit>|<digit><digit><digit>", 8,
     "|<digits><digits><digits><digits><digits><digits><digits><digits><digits><digits>"},
    {"digit", "0|1|2|3|4|5|6|7|8|9", 0, NULL},

    /* Also beyond the eight bytes that jread reads at a time. */
    {"string", "\"\"|\"<part>\"|\"<part><part>\"|\"<part><part><part>\"", 40, "\"<part>"},
    {"part", "<plain>|<plain>|<plain>|<escape>|<escape>|<high>|<high>", 60, "<byte>"},
    {"plain", "n|name|of.a/node|node with text|name-of.a/node with text that goes on", 0,
     NULL},
    {"escape", "\\\"|\\\\|\\/|\\b|\\f|\\n|\\r|\\t|<unit>|<unit>|<unit>|<unit>|<unit>", 16,
     "\\a|\\U|\\0|\\x41|\\v|\\'|\\|\\\n"},
    /* The limits of UTF-8 lengths, of surrogates and of Unicode, and any character. */
    {"unit",
     "\\u0000|\\u001f|\\u0022|\\u005c|\\u007f|\\u0080|\\u07ff|\\u0800|\\ud7ff|\\ue000|"
     "\\ufffd|\\ufffe|\\uffff|\\u2028|\\ufeff|\\ud800\\udc00|\\udbff\\udfff|"
     "\\u<hex><hex><hex><hex>|\\u<hex><hex><hex><hex>|\\u0<hex><hex><hex>|"
     "\\ud8<hex><hex>\\udc<hex><hex>|\\uda<hex><hex>\\ude<hex><hex>",
     8,
     "\\ud<hex><hex><hex>|\\ud<hex><hex><hex>\\ud<hex><hex><hex>|\\u|\\u<hex>|"
     "\\u<hex><hex><hex>|\\u00g0|\\uG000|\\u 000|\\u/000|\\u:000|\\u@000|\\u`000|u0000"},
    {"hex", "0|1|2|3|4|5|6|7|8|9|a|b|c|d|e|f|A|B|C|D|E|F", 0, NULL},
    /* Characters of several bytes, some overlong, truncated or invalid. */
    {"high",
     "\xc2\x80|\xdf\xbf|\xe0\xa0\x80|\xed\x9f\xbf|\xee\x80\x80|\xef\xbf\xbd|\xef\xbf\xbe|"
     "\xef\xbf\xbf|\xe2\x80\xa8|\xef\xbb\xbf|\xf0\x90\x80\x80|\xf4\x8f\xbf\xbf|"
     "\xd7<tail>|\xe1<tail><tail>|\xec<tail><tail>|\xf1<tail><tail><tail>|"
     "\xf3<tail><tail><tail>",
     6,
     "\xc0\x80|\xc1\xbf|\xe0\x9f\xbf|\xed\xa0\x80|\xed\xbf\xbf|\xf0\x8f\xbf\xbf|"
     "\xf4\x90\x80\x80|\xf5\x80\x80\x80|\xf8\x88\x80\x80\x80|\x80|\xbf\xbf|\xff\xfe|\xdf|"
     "\xe2\x80|\xf0\x90\x80|\xe1<byte>\x80|<byte><tail>"},
    {"tail", "\x80|\x85|\x8f|\x90|\x9f|\xa0|\xa8|\xad|\xb5|\xbd|\xbe|\xbf", 0, NULL},
};
enum { DEPTH = 3 };

static void add(struct rng *rng, struct span name, int depth, struct buf *b)
{
    const struct rule *rule = rules;
    if (span_eq(name, SPAN("byte"))) {
        buf_addc(b, (char)rng_below(rng, 256));
        return;
    }
    while (!span_eq(name, span_of(rule->name)))
        rule++;
    bool value = span_eq(name, SPAN("value")), deep = value && depth > DEPTH;
    bool odd = !deep && rule->one_in && rng_below(rng, rule->one_in) == 0;
    struct span rest = span_of(odd ? rule->odd : rule->usual), one = rest;
    for (uint64_t n = 1; rest.p; n++) {
        struct span next = span_cut(&rest, '|');
        if (n == 1 || (!deep && rng_below(rng, n) == 0))
            one = next;
    }
    while (one.n) {
        struct span literal = span_cut(&one, '<');
        buf_add_span(b, literal);
        if (one.p)
            add(rng, span_cut(&one, '>'), depth + value, b);
    }
}

void fuzz_generate(struct rng *rng, struct buf *out)
{
    static const char *const starts[] = {"value", "value", "string", "number"};
    add(rng, span_of(starts[rng_below(rng, ARRAY_LEN(starts))]), 0, out);
}

void fuzz_input(struct span in)
{
    struct jread j;
    bool reals, unsupported;
    cleanup_arena struct arena a = {0};
    enum verdict verdict = read_it(in.p, in.n);
    bool valid = verdict == VALID;
    json_t *want = load(in, &reals, &unsupported);
    fuzz_fail_if(valid && !want && !unsupported, "only jread accepts the input");
    fuzz_fail_if(verdict == INVALID && want && read_without_nuls(in.p, in.n) == INVALID,
                 "only jansson accepts the input");
    if (valid && want) {
        jread_init(&j, in.p, in.n);
        json_t *have = build(&j, reals, &a);
        fuzz_fail_if(!json_equal(have, want), "jread and jansson read different values");
        json_decref(have);
        check_cut(in.p, in.n, in.n / 2);
        check_cut(in.p, in.n, in.n > 3 ? in.n - 3 : 0);
    }
    if (verdict != TOO_DEEP && (valid || !want))
        check_list(in.p, in.n, valid, want);
    json_decref(want);
}
