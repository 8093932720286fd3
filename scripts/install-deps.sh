#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what the build and the tests need, and nothing when it is all there.
# Debian and its relatives: with apt, through sudo when not root. Elsewhere it prints the names.
#
#   scripts/install-deps.sh          all that `make demo` and `make test` need
#   scripts/install-deps.sh --fuzz   and what `make fuzz` needs: clang with libFuzzer
#   scripts/install-deps.sh --e2e    and what `make e2e` needs: etcd, Go
#   scripts/install-deps.sh --e2e-node   and `make e2e-node`: containerd, runc, CNI plugins
#   scripts/install-deps.sh --peers  and what `make peers` needs: node, npm
#   scripts/install-deps.sh --web    and what `make web-test` needs: these and Chromium
set -eu

packages="gcc make pkg-config libc6-dev libmicrohttpd-dev libgnutls28-dev
libjansson-dev libcurl4-openssl-dev libnghttp2-dev libprotobuf-c-dev protobuf-c-compiler libyaml-dev
zlib1g-dev check curl ca-certificates openssl patch groff-base"
fuzz='' e2e='' node='' peers='' web=''
cd "$(dirname "$0")/.."
case ${1-} in
"") ;;
--fuzz) # libclang-rt-dev has libFuzzer and the sanitizers, llvm the names in their reports
    fuzz=yes
    packages="$packages clang libclang-rt-dev llvm" ;;
--e2e | --e2e-node) # any Go will do: one that is too old fetches a newer one
    e2e=yes
    [ "$1" = --e2e ] || { # libseccomp2 is for runc, iptables for kube-proxy
        node=yes
        packages="$packages iproute2 iptables libseccomp2"
    }
    scripts/go-toolchain --fetch >/dev/null 2>&1 || packages="$packages golang-go" ;;
--peers | --web) # any node will do, Debian's or another
    peers=yes
    [ "$1" = --peers ] || { # with a font, or there are boxes for letters
        web=yes
        packages="$packages chromium fonts-dejavu-core"
    }
    { command -v node && command -v npm; } >/dev/null 2>&1 || packages="$packages nodejs npm" ;;
*)
    echo "install-deps: --fuzz, --e2e, --e2e-node, --peers, --web or nothing is wanted, not \"$1\"" >&2
    exit 1 ;;
esac

# FOLDER PACKAGE...: what is in Debian's packages, not installed but unpacked in the cache.
unpack() {
    into=${XDG_CACHE_HOME:-$HOME/.cache}/gpushare/$1
    shift
    echo "install-deps: unpacking" "$@" "into $into"
    mkdir -p "$into/new"
    for p; do
        (cd "$into/new" && apt-get download "$p" >/dev/null 2>&1) || {
            $sudo apt-get update
            (cd "$into/new" && apt-get download "$p")
        }
        dpkg-deb -x "$into/new/$p"_*.deb "$into"
    done
    rm -rf "$into/new"
}

# etcd and etcdctl. Not installed: etcd-server would start an etcd now and at every boot.
etcd_programs() {
    packages=
    PATH=$PATH:${XDG_CACHE_HOME:-$HOME/.cache}/gpushare/etcd/usr/bin
    command -v etcd >/dev/null 2>&1 || packages="etcd-server"
    command -v etcdctl >/dev/null 2>&1 || packages="$packages etcd-client"
    # shellcheck disable=SC2086
    [ -z "$packages" ] || unpack etcd $packages
}

# Not installed either: containerd would be started. test/e2e-node uses these and no others.
node_programs() {
    dir=${XDG_CACHE_HOME:-$HOME/.cache}/gpushare/node/usr
    [ -x "$dir/bin/containerd" ] && [ -x "$dir/sbin/runc" ] && [ -x "$dir/lib/cni/bridge" ] ||
        unpack node containerd runc containernetworking-plugins
}

# promtool, which checks /metrics and the alert rules. The package would start a Prometheus.
promtool_program() {
    scripts/promtool --where >/dev/null 2>&1 || unpack prometheus prometheus
}

finish() {
    ! command -v apt-get >/dev/null 2>&1 || promtool_program
    if [ -n "$e2e" ]; then
        scripts/go-toolchain --fetch >/dev/null
        etcd_programs
    fi
    [ -z "$node" ] || ! command -v apt-get >/dev/null 2>&1 || node_programs
    exit 0
}

sudo=''
if [ "$(id -u)" != 0 ]; then
    sudo=sudo
fi
missing=''
if command -v dpkg-query >/dev/null 2>&1; then
    for p in $packages; do
        status=$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null || true)
        [ "$status" = installed ] || missing="$missing $p"
    done
    [ -n "$missing" ] || finish
fi

if ! command -v apt-get >/dev/null 2>&1; then
    # Not Debian: see whether the build would work, and say what is wanted if not.
    if command -v gcc >/dev/null 2>&1 && command -v pkg-config >/dev/null 2>&1 &&
        command -v protoc-c >/dev/null 2>&1 && pkg-config --exists libmicrohttpd gnutls jansson \
            libcurl libnghttp2 libprotobuf-c yaml-0.1 zlib check &&
        scripts/promtool --where >/dev/null 2>&1 && command -v groff >/dev/null 2>&1 &&
        { [ -z "$fuzz" ] || command -v clang >/dev/null 2>&1; } &&
        { [ -z "$peers" ] || { command -v node && command -v npm; } >/dev/null; } &&
        { [ -z "$web" ] || command -v chromium >/dev/null 2>&1; } &&
        { [ -z "$e2e" ] || { command -v etcd && command -v etcdctl && scripts/go-toolchain --fetch; } >/dev/null; }; then
        exit 0
    fi
    echo "install-deps: this is not a Debian system. Please install, with headers:" >&2
    echo "  gcc, GNU make, pkg-config, curl, openssl, libmicrohttpd >= 0.9.75 with TLS," >&2
    echo "  gnutls >= 3.6.13, jansson >= 2.13," >&2
    echo "  libcurl >= 7.85 (OpenSSL flavour), nghttp2 >= 1.52, protobuf-c >= 1.4 with protoc-c, libyaml," >&2
    echo "  zlib, Check (the unit test framework), promtool (of Prometheus), groff" >&2
    [ -z "$fuzz" ] || echo "  clang with compiler-rt (libFuzzer, AddressSanitizer)" >&2
    [ -z "$peers" ] || echo "  node >= 18 with npm" >&2
    [ -z "$web" ] || echo "  chromium" >&2
    [ -z "$e2e" ] || echo "  etcd and etcdctl >= 3.4, Go >= 1.21" >&2
    echo "Fedora: dnf install gcc make pkgconf libmicrohttpd-devel gnutls-devel jansson-devel libcurl-devel libnghttp2-devel protobuf-c-devel protobuf-c-compiler libyaml-devel zlib-devel check-devel openssl golang-github-prometheus groff-base" >&2
    echo "Alpine: apk add build-base pkgconf libmicrohttpd-dev gnutls-dev jansson-dev curl-dev nghttp2-dev protobuf-c-dev protobuf-c-compiler yaml-dev zlib-dev check-dev openssl curl prometheus groff" >&2
    exit 1
fi

if [ -n "$sudo" ] && ! command -v sudo >/dev/null 2>&1; then
    echo "install-deps: not root and no sudo. Please install as root:$missing" >&2
    exit 1
fi
echo "install-deps: installing$missing"
# shellcheck disable=SC2086
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing >/dev/null 2>&1 || {
    $sudo apt-get update
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
}
finish
