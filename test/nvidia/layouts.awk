# SPDX-License-Identifier: Apache-2.0
# Reads what names.awk prints of our header, the header, and then `layouts` for one pair of headers,
# -v ours=FILE -v theirs=FILE. A line of what our header does not declare (any more) is passed over.
#   awk -v ours= -v theirs= -v what= [-v theirs_file=FILE] -f test/nvidia/layouts.awk NAMES HEADER test/nvidia/layouts
# Prints by -v what=
#   names   what of our header is in a line, in the form of names.awk
#   ours    a C program that prints the size, offset or value of each line, by our names
#   theirs  the same by NVIDIA's names
function size(label, type) {
    if (what != "names")
        printf "P(\"%s\", sizeof(%s), 0);\n", label, type
}
function member(label, type, name) {
    if (what != "names")
        printf "P(\"%s\", sizeof(((%s *)0)->%s), offsetof(%s, %s));\n", label, type, name, type, name
}
# Has the header of theirs this word? Without a header: yes.
function has_word(word,    line, found) {
    found = word == "" || theirs_file == ""
    while (!found && (getline line <theirs_file) > 0)
        found = line ~ ("(^|[^A-Za-z_0-9])" word "([^A-Za-z_0-9]|$)")
    close(theirs_file)
    return found
}
BEGIN {
    if (what != "names")
        print "#include <stddef.h>\n#include <stdio.h>\n#include HEADER\n" \
            "#define P(label, a, b) printf(\"%s %llu %llu\\n\", label, (unsigned long long)(a), (unsigned long long)(b))\n" \
            "int main(void)\n{"
}
FNR == 1 {
    file++
}
file == 1 {
    declared[$0]
    next
}
file == 2 {
    n = split($0, word, /[^A-Za-z_0-9]+/)
    for (i = 1; i <= n; i++)
        words[word[i]]
    next
}
{
    sub(/ *#.*/, "")
}
/^header / {
    in_pair = $2 == ours && $3 == theirs && has_word($4)
}
!in_pair || /^header / || !NF {
    next
}
/^own / {
    sub(/^own /, "")
    if (what == "names")
        print
    next
}
{
    at = index($0, " = ")
}
/^type / {
    our_type = substr($0, 6, at - 6)
    their_type = substr($0, at + 3)
    our_word = our_type
    sub(/.* /, "", our_word)
    has_type = our_word in words
    if (!has_type)
        next
    size(our_type, what == "ours" ? our_type : their_type)
    next
}
/^value / {
    our = substr($0, 7, at - 7)
    if (our ~ /^[A-Za-z_0-9]+$/ && !(our in words))
        next
    if (what == "names")
        print our
    else
        printf "P(\"%s\", %s, 0);\n", our, what == "ours" ? our : substr($0, at + 3)
    next
}
/^    / {
    name = $1
    sub(/[.[].*/, "", name)
    if (!has_type || !((our_type "." name) in declared))
        next
    if (what == "names")
        print our_type "." name
    else
        member(our_type "." $1, what == "ours" ? our_type : their_type, what == "ours" ? $1 : $2)
    next
}
{
    print "layouts:" FNR ": " $0 >"/dev/stderr"
    exit 1
}
END {
    if (what != "names")
        print "return 0;\n}"
}
