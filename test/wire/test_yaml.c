/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/yaml.h"

#include "lib/temp.h"
#include "lib/unit.h"

static struct yaml *parse(const char *text)
{
    struct err err = {0};
    struct yaml *y = yaml_parse("f.yaml", text, strlen(text), &err);
    ck_assert_msg(y != NULL, "%s", err.msg);
    return y;
}

static struct span text_of(const struct yaml_node *node, const char *key)
{
    struct span s;
    struct err err = {0};
    ck_assert_done(yaml_text(node, key, &s, &err), err);
    return s;
}

static void expect_json(const struct yaml_node *node, const char *want)
{
    cleanup_buf struct buf out = {0};
    yaml_json(node, &out);
    ck_assert_str_eq(out.p, want);
}

TEST(a_tree_is_read_by_key)
{
    static const char *const texts[] = {
        "a: 1\nb:\n- x\n- y: z\nc:\n  d: {}\n",
        "{a: 1, b: [x, {y: z}], c: {d: {}}}",
    };
    array_items(text, texts) {
        cleanup_yaml struct yaml *y = parse(*text);
        ck_assert_uint_eq(yaml_count(y), 1);
        const struct yaml_node *root = yaml_document(y, 0);
        expect_json(root, "{\"a\":1,\"b\":[\"x\",{\"y\":\"z\"}],\"c\":{\"d\":{}}}");
        ck_assert_span_eq(root->items[1]->key, "b");
        ck_assert_span_eq(text_of(root, "a"), "1");
        ck_assert_ptr_null(yaml_get(root, "d"));
        ck_assert_ptr_null(yaml_get(yaml_get(root, "b"), "x"));
        ck_assert_ptr_null(yaml_get(NULL, "x"));
    }
}

/* Places to insert text. */
TEST(nodes_have_their_first_and_last_line)
{
    static const char text[] = "a: 1\n"
                               "list:\n"
                               "  - x\n"
                               "  -   'y\n"
                               "    z'\n"
                               "\n"
                               "flow: [p,\n"
                               "   q\n"
                               "  ]\n"
                               "text: |\n"
                               "  one\n"
                               "  two\n"
                               "map:\n"
                               "  k: v\n"
                               "  n:\n"
                               "# the end\n";
    cleanup_yaml struct yaml *y = parse(text);
    static const struct {
        const char *key;
        unsigned line, column, last;
        bool flow;
    } want[] = {{"a", 1, 4, 1, false},
                {"list", 3, 3, 5, false},
                {"flow", 7, 7, 9, true},
                {"text", 10, 7, 12, false},
                {"map", 14, 3, 15, false}};
    array_items(c, want) {
        const struct yaml_node *node = yaml_get(yaml_document(y, 0), c->key);
        ck_assert_msg(node->line == c->line && node->column == c->column &&
                          node->last_line == c->last && node->flow == c->flow,
                      "%s: %u:%u to %u%s", c->key, node->line, node->column,
                      node->last_line, node->flow ? ", flow" : "");
    }
    const struct yaml_node *list = yaml_get(yaml_document(y, 0), "list");
    ck_assert_uint_eq(list->items[1]->line, 4);
    ck_assert_uint_eq(list->items[1]->column, 7);
    ck_assert_uint_eq(yaml_document(y, 0)->last_line, 15);
}

TEST(a_file_may_hold_several_documents_or_none)
{
    cleanup_yaml struct yaml *y = parse("a: 1\n---\n---\nb: 2\n--- ~\n"),
                             *empty = parse("# nothing\n"), *none = parse("");
    ck_assert_uint_eq(yaml_count(y), 4);
    expect_json(yaml_document(y, 0), "{\"a\":1}");
    ck_assert_ptr_null(yaml_document(y, 1));
    expect_json(yaml_document(y, 2), "{\"b\":2}");
    ck_assert_ptr_null(yaml_document(y, 3));
    ck_assert_ptr_null(yaml_document(y, 4));
    ck_assert_uint_eq(yaml_count(empty) + yaml_count(none), 0);
}

TEST(scalars_are_read_as_text_or_string)
{
    static const struct {
        const char *key, *text, *error; /* text NULL: null */
    } cases[] = {{"a", NULL, NULL},
                 {"b", NULL, NULL},
                 {"c", NULL, NULL},
                 {"x", NULL, NULL},
                 {"d", "", NULL},
                 {"e", "null", NULL},
                 {"f", "xy", NULL},
                 {"g", NULL, "f.yaml:7: \"g\": expected a scalar"},
                 {"h", NULL, "f.yaml:8: \"h\" contains a NUL"}};
    cleanup_yaml struct yaml *y =
        parse("a:\nb: ~\nc: null\nd: ''\ne: 'null'\nf: xy\ng: [1]\nh: \"x\\0y\"\n");
    const struct yaml_node *root = yaml_document(y, 0);
    struct span text;
    struct err err = {0};
    array_items(c, cases) {
        int rc = yaml_text(root, c->key, &text, &err);
        ck_assert_str_eq(rc ? err.msg : "", c->error ? c->error : "");
        ck_assert((text.p == NULL) == (c->text == NULL));
        ck_assert(!text.p || span_eq(text, span_of(c->text)));
        ck_assert(yaml_is_null(yaml_get(root, c->key)) == (!text.p && !rc));
    }
    ck_assert_uint_eq(yaml_get(root, "h")->text.n, 3);
    ck_assert_int_eq(yaml_text(yaml_get(root, "g"), "h", &text, &err), -1);
    ck_assert_str_eq(err.msg, "f.yaml:7: expected a mapping with key \"h\"");
    ck_assert_done(yaml_text(NULL, "h", &text, &err), err);
    ck_assert_ptr_null(text.p);
}

TEST(an_error_names_file_and_line)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"a: 1\nb: [1, 2\nc: 3\n", "f.yaml:3: while parsing a flow sequence: "},
        {"a: 1\nb: \"x\n", "f.yaml:3: while scanning a quoted scalar: "},
        {"a: 1\n b: 2\n", "f.yaml:2: "},
        {"a:\n\t- 1\n", "f.yaml:2: "},
        {"a: 1\nb: &x 2\n", "f.yaml:2: anchors are not allowed"},
        {"a: &x [1]\n", "f.yaml:1: anchors are not allowed"},
        {"&x a: 1\n", "f.yaml:1: anchors are not allowed"},
        {"a: &x {}\n", "f.yaml:1: anchors are not allowed"},
        {"a:\nb: *x\n", "f.yaml:2: aliases are not allowed"},
        {"<<: {a: 1}\n", "f.yaml:1: merge keys are not allowed"},
        {"a: 1\nb: 2\na: 3\n", "f.yaml:3: duplicate key \"a\""},
        {"a: 1\n'a': 3\n", "f.yaml:2: duplicate key \"a\""},
        {"? [a]\n: 1\n", "f.yaml:1: key: expected a scalar"},
        {"{a: 1, {b: c}: 2}", "f.yaml:1: key: expected a scalar"},
        {"{? : 1}\n", "f.yaml:1: empty key"},
        {"a: !!str aaaa\n", "f.yaml:1: tags are not allowed"},
        {"a: ! aaaa\n", "f.yaml:1: tags are not allowed"},
        {"a: !!seq [1]\n", "f.yaml:1: tags are not allowed"},
        {"a: !mine {}\n", "f.yaml:1: tags are not allowed"},
        {"!!str a: 1\n", "f.yaml:1: tags are not allowed"},
        {"a: \xff\n", "f.yaml: byte 3: "},
        {"a: \x01\n", "f.yaml: byte "},
        {"%YAML 9.9\n---\na", "f.yaml:1: "},
    };
    array_items(c, cases) {
        struct err err = {0};
        ck_assert_msg(!yaml_parse("f.yaml", c->text, strlen(c->text), &err), "%s",
                      c->text);
        ck_assert_int_eq(err.code, ERR_INVALID);
        ck_assert_msg(strstr(err.msg, c->want) == err.msg, "%s: %s", c->text, err.msg);
    }
}

TEST(depth_is_bounded)
{
    static const size_t depths[] = {1, 64, 65, 100000, 5000000};
    for (size_t i = 0; i < ARRAY_LEN(depths) * 2; i++) {
        size_t depth = depths[i / 2];
        bool flow = i % 2;
        struct err err = {0};
        cleanup_buf struct buf b = {0};
        for (size_t n = 0; n < depth; n++)
            buf_adds(&b, flow ? "[" : "- ");
        buf_addc(&b, 'x');
        for (size_t n = 0; flow && n < depth; n++)
            buf_addc(&b, ']');
        cleanup_yaml struct yaml *y = yaml_parse("f", b.p, b.n, &err);
        ck_assert_msg((y != NULL) == (depth <= 64), "%zu", depth);
        ck_assert_int_eq(err.code, y ? ERR_NONE : ERR_INVALID);
    }
}

TEST(size_and_number_of_values_are_bounded)
{
    cleanup_buf struct buf b = {0};
    struct err err = {0};
    buf_adds(&b, "a: ");
    while (b.n < (10 << 20))
        buf_addc(&b, 'x');
    cleanup_yaml struct yaml *whole = yaml_parse("f", b.p, b.n, &err);
    ck_assert_msg(whole != NULL, "%s", err.msg);
    buf_addc(&b, 'x');
    ck_assert_ptr_null(yaml_parse("f", b.p, b.n, &err));
    ck_assert_int_eq(err.code, ERR_TOO_LARGE);

    buf_clear(&b);
    buf_addc(&b, '[');
    for (int i = 0; i < 1 << 20; i++)
        buf_adds(&b, "1,");
    buf_adds(&b, "1]");
    ck_assert_ptr_null(yaml_parse("f", b.p, b.n, &err));
    ck_assert_str_eq(err.msg, "f:1: too many values");
}

TEST(a_tree_becomes_json)
{
    static const struct {
        const char *yaml, *json;
    } cases[] = {
        {"a: [1, -2, +3, 0, 1.5, .5, 5., -1e3, 1E+2]",
         "{\"a\":[1,-2,3,0,1.5,0.5,5,-1000,100]}"},
        {"[0644, 0x1F, 0o17, -010, 08, 1.2.3, 1_000, 0x, 0xfffffffffffffffff]",
         "[420,31,15,-8,8,\"1.2.3\",\"1_000\",\"0x\",\"0xfffffffffffffffff\"]"},
        {"[12345678901234567890123, '1', \"true\", -, +, ., .inf, e5, 1e, 1e+]",
         "[1.2345678901234568e+22,\"1\",\"true\",\"-\",\"+\",\".\",\".inf\",\"e5\","
         "\"1e\","
         "\"1e+\"]"},
        {"[true, False, TRUE, yes, ~, null, Null, x]",
         "[true,false,true,\"yes\",null,null,null,\"x\"]"},
        {"{a: {b: [], c: {}}, \"d\\\"e\": f\\g}",
         "{\"a\":{\"b\":[],\"c\":{}},\"d\\\"e\":\"f\\\\g\"}"},
        {"", "null"},
    };
    array_items(c, cases) {
        cleanup_yaml struct yaml *y = parse(c->yaml);
        expect_json(yaml_document(y, 0), c->json);
    }
}

struct pairs {
    struct buf said;
    const char *refuse;
};

static int on_pair(void *ctx, const char *key, const char *value, unsigned line,
                   struct err *err)
{
    struct pairs *pairs = ctx;
    if (pairs->refuse && !strcmp(key, pairs->refuse))
        return err_set(err, ERR_INVALID, "no %s", key);
    buf_printf(&pairs->said, "%u %s=%s;", line, key, value);
    return 0;
}

TEST(options_are_read_pair_by_pair)
{
    static const struct {
        const char *text, *said, *error; /* the error after the path */
    } cases[] = {
        {"port: 80\nname: \"a b\"\nload:\n- x\n- y\nnone:\n",
         "1 port=80;2 name=a b;4 load=x;5 load=y;", NULL},
        {"", "", NULL},
        {"--- ~\n", "", NULL},
        {"port: {a: 1}\n", "", ":1: \"port\": expected a value or a list of values"},
        {"port: [[1]]\n", "", ":1: \"port\": expected a value or a list of values"},
        {"- a\n", "", ":1: expected `name: value`"},
        {"a: 1\n---\nb: 2\n", "", ": expected one YAML document"},
        {"a: \"\\0\"\n", "", ":1: key or value contains a NUL"},
        {"\"\\0\": a\n", "", ":1: key or value contains a NUL"},
        {"a: 1\nbad: 2\nc: 3\n", "1 a=1;", ""},
    };
    cleanup_free char *dir = temp_dir(), *path = temp_path(dir, "o.yaml");
    array_items(c, cases) {
        struct pairs pairs = {.refuse = "bad"};
        struct err err = {0};
        buf_adds(&pairs.said, "");
        temp_write(dir, "o.yaml", c->text);
        int rc = yaml_read_options(path, on_pair, &pairs, &err);
        ck_assert_msg((rc != 0) == (c->error != NULL), "%s: %s", c->text, err.msg);
        ck_assert_str_eq(pairs.said.p, c->said);
        if (c->error && *c->error) {
            cleanup_free char *want = xasprintf("%s%s", path, c->error);
            ck_assert_str_eq(err.msg, want);
        }
        buf_fini(&pairs.said);
    }
    struct err err = {0};
    cleanup_free char *missing = temp_path(dir, "missing");
    ck_assert_int_eq(yaml_read_options(missing, on_pair, NULL, &err), -1);
    ck_assert_int_eq(err.code, ERR_NOT_FOUND);
    ck_assert_ptr_null(yaml_load(dir, &err));
    temp_dir_remove(dir);
}
