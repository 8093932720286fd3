# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Finds the libraries of programs, and their Debian packages, without running the programs, so
# that those of another architecture are treated as those of this machine. For bash with
# -eu -o pipefail, to be sourced:
#
#   debian_begin ARCH ROOT       uses the Debian system in the folder ROOT; "": this machine
#   debian_find NAME             prints the path in ROOT of a library, such as
#                                /lib/x86_64-linux-gnu/libm.so.6
#   debian_real PATH             prints the path in ROOT of the file behind the links
#   debian_loader PROGRAM        prints the path of the loader, such as /lib64/ld-linux-x86-64.so.2
#   debian_libraries PROGRAM...  prints the paths in ROOT of the loader and of all libraries that
#                                it loads for the programs. The status is 1 if one is not found
#   debian_packages PATH...      prints the packages of files in ROOT. The status is 1, with a
#                                message, if a file belongs to none
#   debian_describe PACKAGE      prints its fields, as in dpkg's database, with those of its source
#   debian_license PACKAGE DIR   copies the license of a package to DIR/PACKAGE/copyright
#   debian_licenses DIR TO       copies the licenses to which copyright files below DIR refer to TO
#   debian_strip FILE            removes the symbols that nothing needs at run time

debian_begin() {
    debian_root=$2
    debian_query=(dpkg-query "--admindir=$debian_root/var/lib/dpkg")
    command -v dpkg-query >/dev/null || {
        echo "dpkg-query not found: this is no Debian system; build the Containerfile instead" >&2
        return 1
    }
    case $1 in
    amd64) debian_triplet=x86_64-linux-gnu ;;
    arm64) debian_triplet=aarch64-linux-gnu ;;
    *) debian_triplet=$(gcc -dumpmachine) ;;
    esac
}

debian_find() {
    local dir
    for dir in "/lib/$debian_triplet" "/usr/lib/$debian_triplet"; do
        if [ -e "$debian_root$dir/$1" ]; then
            echo "$dir/$1"
            return
        fi
    done
    return 1
}

debian_real() {
    local real
    real=$(realpath "$debian_root$1")
    [ -z "$debian_root" ] || real=${real#"$(realpath "$debian_root")"}
    echo "$real"
}

debian_loader() {
    readelf -lW "$1" | sed -n 's/.*\[Requesting program interpreter: \(.*\)\]/\1/p'
}

debian_needs() { # FILE...: the names of the libraries that the files were linked with
    readelf -dW "$@" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u
}

debian_libraries() {
    local -A seen=()
    local name path loader status=0 queue=("$@")
    loader=$(debian_loader "$1")
    echo "$loader"
    while [ ${#queue[@]} -gt 0 ]; do
        for name in $(debian_needs "${queue[@]}"); do
            [ "$name" != "${loader##*/}" ] || continue
            seen[$name]=${seen[$name]-new}
        done
        queue=()
        for name in "${!seen[@]}"; do
            [ "${seen[$name]}" = new ] || continue
            seen[$name]=found
            if path=$(debian_find "$name"); then
                echo "$path"
                queue+=("$debian_root$path")
            else
                echo "$name not found in $debian_root/lib/$debian_triplet" >&2
                status=1
            fi
        done
    done
    return $status
}

# dpkg lists some files under /lib, from before /lib became a link to /usr/lib.
debian_packages() {
    local found file
    found=$("${debian_query[@]}" -S "$@" "${@#/usr}" 2>/dev/null || true)
    for file; do
        [[ $found$'\n' == *": $file"$'\n'* || $found$'\n' == *": ${file#/usr}"$'\n'* ]] || {
            echo "$file belongs to no Debian package" >&2
            return 1
        }
    done
    sed 's/: .*//; s/, .*//' <<<"$found" | sort -u
}

debian_describe() {
    # shellcheck disable=SC2016 # variables of dpkg-query
    "${debian_query[@]}" -W -f 'Package: ${Package}\nStatus: install ok installed\nArchitecture: ${Architecture}\nSource: ${source:Package} (${source:Version})\nVersion: ${Version}\nMaintainer: ${Maintainer}\nDescription: ${binary:Summary}\n' "$1"
}

debian_license() {
    local text=$debian_root/usr/share/doc/${1%:*}/copyright
    [ -r "$text" ] || {
        echo "$text not found; the license requires it beside ${1%:*}" >&2
        return 1
    }
    install -D -m 644 "$text" "$2/${1%:*}/copyright"
}

debian_licenses() {
    local name
    mkdir -p "$2"
    grep -rhoE '/usr/share/common-licenses/[A-Za-z]+(-[0-9.]*[0-9])?' "$1" | sort -u |
        while read -r name; do
            [ ! -r "$debian_root$name" ] || install -m 644 "$debian_root$name" "$2"
        done
}

debian_strip() {
    local strip=$debian_triplet-strip
    command -v "$strip" >/dev/null || strip="strip"
    "$strip" --strip-unneeded "$1"
}
