# SPDX-License-Identifier: Apache-2.0
# Reads the prototypes that gcc -aux-info writes, and prints a C program that prints for each one,
# and for each of its parameters, the size and kind of the type, and the size of what it points to
# (0: unknown): "NAME INDEX SIZE KIND POINTEE", index 0 the result.
#   awk -v header=FILE [-v prefix=ours_] -f prototypes.awk WANTED AUX
# WANTED has the names, one a line. The prefix is before the names of AUX.
function row(name, index_, type,    pointee) {
    gsub(/^ +| +$/, "", type)
    pointee = "0"
    if (type ~ /\*( *const)?$/ && type !~ /\(\*\)/) {
        pointee = type
        sub(/\*( *const)?$/, "", pointee)
        pointee = pointee ~ /void *$/ ? "0" : "sizeof(" pointee ")"
    }
    return sprintf("P(\"%s\", %d, %s, %s);\n", name, index_, type, pointee)
}
NR == FNR {
    wanted[$1] = 1
    next
}
/\?\?\?/ { # declared without parameters
    next
}
{
    sub(/^\/\*.*\*\/ (extern|static) /, "")
    sub(/;.*/, "")
    open = index($0, " (")
    name = substr($0, 1, open - 1)
    sub(/.*[ *]/, "", name)
    result = substr($0, 1, open - 1 - length(name))
    sub("^" prefix, "", name)
    if (!open || !(name in wanted) || name in done)
        next
    done[name] = 1
    text = text (result ~ /^void *$/ ? "" : row(name, 0, result))
    parameters = substr($0, open + 2)
    sub(/\)$/, "", parameters)
    if (parameters == "void" || parameters == "")
        next
    depth = n = 0
    one = ""
    for (i = 1; i <= length(parameters); i++) {
        c = substr(parameters, i, 1)
        depth += (c == "(") - (c == ")")
        if (c == "," && !depth) {
            text = text row(name, ++n, one)
            one = ""
        } else
            one = one c
    }
    text = text row(name, ++n, one)
}
END {
    print "#include <stddef.h>\n#include <stdio.h>\n#include \"" header "\""
    print "#define P(name, i, type, pointee) do { static __typeof__(type) v; printf(\"%s %d %zu %d %zu\\n\", name, i, sizeof v, __builtin_classify_type(v), (size_t)(pointee)); } while (0)"
    print "int main(void)\n{\n" text "return 0;\n}"
}
