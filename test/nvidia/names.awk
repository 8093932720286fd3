# SPDX-License-Identifier: Apache-2.0
# Prints the enumerators, and the members as TYPE.member, that a header of ours declares:
#   awk -f test/nvidia/names.awk HEADER
# The type of a member is the name that follows its braces or stands before them. Members of a
# union without a name belong to the struct around it. NVML_SPARE is room behind a struct.
{
    sub(/\/\/.*/, "")
    text = text $0 "\n"
}
function last_name(s) {
    sub(/\[.*/, "", s)
    return match(s, /[A-Za-z_][A-Za-z_0-9]*[ \n]*$/) ? substr(s, RSTART, RLENGTH) : ""
}
function print_name(name) {
    gsub(/[ \n]/, "", name)
    if (name != "")
        print name
}
END {
    gsub(/\\\n/, " ", text)
    while ((at = index(text, "/*")) > 0) {
        rest = substr(text, at + 2)
        text = substr(text, 1, at - 1) substr(rest, index(rest, "*/") + 2)
    }
    gsub(/(^|\n)[ \t]*#[^\n]*/, "\n", text)
    while (match(text, /enum( [a-z_0-9]+)? *\{[^{}]*\}/)) {
        body = substr(text, RSTART, RLENGTH)
        text = substr(text, 1, RSTART - 1) "int" substr(text, RSTART + RLENGTH)
        sub(/^[^{]*\{/, "", body)
        sub(/\}$/, "", body)
        gsub(/\([^()]*\)/, "", body)
        n = split(body, entry, ",")
        for (i = 1; i <= n; i++) {
            sub(/=.*/, "", entry[i])
            print_name(entry[i])
        }
    }
    while (match(text, /(struct|union)( [a-z_0-9]+)? *\{[^{}]*\}[^;]*;/)) {
        whole = substr(text, RSTART, RLENGTH)
        before = substr(text, 1, RSTART - 1)
        after = substr(text, RSTART + RLENGTH)
        body = whole
        sub(/^[^{]*\{/, "", body)
        sub(/\}[^}]*$/, "", body)
        head = whole
        sub(/ *\{.*/, "", head)
        name = whole
        sub(/^.*\}/, "", name)
        sub(/;.*/, "", name)
        gsub(/[ \n]/, "", name)
        is_union = head == "union"
        if (is_union && name == "") { # without a name: its members are those of the struct
            text = before body after
            continue
        }
        inner = depth(before)
        if (inner) { # a member that is itself a struct or union
            text = before "int " name ";" after
            continue
        }
        if (name == "") {
            name = head
        }
        text = before after
        n = split(body, entry, ";")
        for (i = 1; i <= n; i++) {
            gsub(/\([^()]*\)/, "", entry[i]) # arguments, which commas divide too
            m = split(entry[i], part, ",")
            for (k = 1; k <= m; k++) {
                member = last_name(part[k])
                gsub(/[ \n]/, "", member)
                if (member != "" && member != "NVML_SPARE")
                    print name "." member
            }
        }
    }
}
# How many braces are open behind the text.
function depth(s,    open, close_) {
    open = gsub(/\{/, "{", s)
    close_ = gsub(/\}/, "}", s)
    return open - close_
}
