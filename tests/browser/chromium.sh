#!/bin/sh
# Prints the path of a Chromium that starts, and installs one where that can be done unasked.
set -eu

names="chromium chromium-browser google-chrome google-chrome-stable"

found() {
    for name in $names; do
        path=$(command -v "$name") || continue
        # Some systems have a stand-in of that name, which only says how to install one.
        if "$path" --version >/dev/null 2>&1; then
            printf '%s\n' "$path"
            return 0
        fi
    done
    return 1
}

installed() {
    command -v apt-get >/dev/null || return 1
    if [ "$(id -u)" = 0 ]; then
        as_root=
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        as_root="sudo -n"
    else
        return 1
    fi
    export DEBIAN_FRONTEND=noninteractive
    install="$as_root apt-get install --yes --quiet --no-install-recommends chromium"
    printf 'installing chromium, which the tests of the page drive\n' >&2
    $install >&2 || { $as_root apt-get update --quiet >&2 && $install >&2; }
}

if found; then
    exit 0
fi
if installed && found; then
    exit 0
fi
printf '%s\n' "The tests of the page drive a real Chromium, and there is none on this machine." \
    "Install one that the PATH leads to, under one of these names: $names" \
    "(apt-get install chromium, dnf install chromium, brew install --cask google-chrome)." >&2
exit 1
