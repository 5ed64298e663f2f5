#!/bin/sh
# The linker of the published program, which scripts/dist.sh has rustc call: removes the tables by which functions are
# unwound, then calls $CROSSWAY_LINKER. Nothing unwinds through a program that aborts on panic; the tables are a tenth of it.
#
# The C library and the compiler's keep theirs: without them, asking for a backtrace would end the program, and with
# RUST_BACKTRACE=1 every error asks for one. `-C force-unwind-tables=no` has no effect: the standard library has line
# tables, and so the compiler makes these tables for all that is optimised together with it.
set -eu
for file; do
  case $file in
    *.rcgu.o) "$CROSSWAY_OBJCOPY" --remove-section=.eh_frame --remove-section='.rela.eh_frame' "$file" ;;
  esac
done
exec "$CROSSWAY_LINKER" "$@"
