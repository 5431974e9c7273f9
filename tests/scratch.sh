#!/bin/sh
# Prints the folder in which the tests make theirs: one in memory where there is much room, and
# where programs can be run; otherwise the usual one.
set -eu

memory=${PERDURE_SCRATCH:-/dev/shm}
room_kib=4000000

kib() {
    awk -v name="$1" '$1 == name { print $2 }' /proc/meminfo
}

fits() {
    [ -d "$memory" ] && [ -w "$memory" ] && [ -r /proc/meminfo ] || return 1
    [ "$(df -Pk "$memory" | awk 'NR == 2 { print $4 }')" -gt "$room_kib" ] || return 1
    # A limit of a container is below what the machine has.
    limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || printf 'max')
    [ "$limit" = max ] || [ "$((limit / 1024))" -gt "$((2 * room_kib))" ] || return 1
    [ "$(kib MemAvailable:)" -gt "$((2 * room_kib))" ]
}

runs() {
    probe=$(mktemp "$memory/perdure-XXXXXX") || return 1
    printf '#!/bin/sh\nexit 0\n' >"$probe" && chmod 700 "$probe" && "$probe" 2>/dev/null
    status=$?
    rm -f "$probe"
    return "$status"
}

if fits && runs; then
    printf '%s\n' "$memory"
else
    printf '%s\n' "${TMPDIR:-/tmp}"
fi
