/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "wire/yaml_priv.h"

size_t yaml_count(const struct yaml *y)
{
    return y->n;
}

const struct yaml_node *yaml_document(const struct yaml *y, size_t i)
{
    return i < y->n ? y->documents[i] : NULL;
}

const struct yaml_node *yaml_get(const struct yaml_node *node, const char *key)
{
    if (!node || node->type != YAML_MAPPING)
        return NULL;
    for (size_t i = 0; i < node->n; i++)
        if (span_eq(node->keys[i], span_of(key)))
            return node->items[i];
    return NULL;
}

bool yaml_is_null(const struct yaml_node *node)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    if (!node)
        return true;
    if (node->type != YAML_SCALAR || !node->plain)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (span_eq(node->text, span_of(words[i])))
            return true;
    return false;
}

int yaml_text(const struct yaml_node *node, const char *key, struct span *out,
              struct err *err)
{
    *out = (struct span){NULL, 0};
    if (!yaml_is_null(node) && node->type != YAML_MAPPING)
        return err_set(err, ERR_INVALID, "%s:%u: expected a mapping with key \"%s\"",
                       node->file, node->line, key);
    const struct yaml_node *value = yaml_get(node, key);
    if (yaml_is_null(value))
        return 0;
    if (value->type != YAML_SCALAR)
        return err_set(err, ERR_INVALID, "%s:%u: \"%s\": expected a scalar", value->file,
                       value->line, key);
    *out = value->text;
    return 0;
}

int yaml_string(const struct yaml_node *node, const char *key, char **out,
                struct err *err)
{
    struct span text;
    if (yaml_text(node, key, &text, err))
        return -1;
    if (text.n && memchr(text.p, '\0', text.n)) {
        const struct yaml_node *value = yaml_get(node, key);
        return err_set(err, ERR_INVALID, "%s:%u: \"%s\" contains a NUL", value->file,
                       value->line, key);
    }
    *out = text.p ? xmemdup0(text.p, text.n) : NULL;
    return 0;
}

static int read_value(const struct yaml_node *value, struct span key, opt_pair_fn pair,
                      void *ctx, struct err *err)
{
    if (yaml_is_null(value))
        return 0;
    if (value->type != YAML_SCALAR)
        return err_set(err, ERR_INVALID,
                       "%s:%u: \"%.*s\": expected a value or a list of values",
                       value->file, value->line, SPAN_ARG(key));
    if (memchr(key.p, '\0', key.n) || memchr(value->text.p, '\0', value->text.n))
        return err_set(err, ERR_INVALID, "%s:%u: key or value contains a NUL",
                       value->file, value->line);
    /* Both are NUL-terminated by arena_copy. */
    return pair(ctx, key.p, value->text.p, value->line, err);
}

static int read_entry(const struct yaml_node *value, struct span key, opt_pair_fn pair,
                      void *ctx, struct err *err)
{
    if (value->type != YAML_SEQUENCE)
        return read_value(value, key, pair, ctx, err);
    for (size_t i = 0; i < value->n; i++)
        if (read_value(value->items[i], key, pair, ctx, err))
            return -1;
    return 0;
}

int yaml_read_options(const char *path, opt_pair_fn pair, void *ctx, struct err *err)
{
    cleanup_yaml struct yaml *y = yaml_load(path, err);
    if (!y)
        return -1;
    if (yaml_count(y) > 1)
        return err_set(err, ERR_INVALID, "%s: expected one YAML document", path);
    const struct yaml_node *root = yaml_document(y, 0);
    if (!root)
        return 0;
    if (root->type != YAML_MAPPING)
        return err_set(err, ERR_INVALID, "%s:%u: expected `name: value`", path,
                       root->line);
    for (size_t i = 0; i < root->n; i++)
        if (read_entry(root->items[i], root->keys[i], pair, ctx, err))
            return -1;
    return 0;
}
