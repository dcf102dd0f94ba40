#!/bin/sh
# build.sh FOLDER: work like a build's, for the comparison of cpu time inside and outside.
set -eu
export TMPDIR="$1"
here=$(mktemp -d "$1/build.XXXXXX")
cd "$here"
for i in 1 2 3 4 5 6 7 8; do
    cat >"f$i.c" <<END
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
int f$i(int argc, char **argv) {
    char line[256];
    for (int i = 0; i < argc; i++)
        snprintf(line, sizeof(line), "%d %s %zu", i, argv[i], strlen(argv[i]));
    return puts(line) + $i;
}
END
    gcc -O2 -c "f$i.c"
done
tar cf headers.tar -C /usr/include linux asm-generic
mkdir copy
tar xf headers.tar -C copy
find copy -name '*.h' -exec cat {} + | wc -c >size
cd /
rm -rf "$here"
