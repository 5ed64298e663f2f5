# Runs on a host, read by sh from its standard input. Finds or makes a folder for copies of crossway that only this user
# may write to and in which programs may run; prints it, the kind of the processor, and the copies that are there.
umask 077
uid=$(id -u) || exit 1
tell() { echo "crossway-push: $*"; }

# Whether nobody but root and this user can replace what is at the path, which has no symbolic links: everything on the
# way belongs to one of them, and others may write to it only if it has the sticky bit.
safe() {
  at=$1
  while :; do
    [ -z "$(find "$at" -prune '(' ! -user 0 ! -user "$uid" -o -perm -20 ! -perm -1000 -o -perm -2 ! -perm -1000 ')')" ] ||
      return 1
    [ "$at" = / ] && return 0
    at=${at%/*}
    at=${at:-/}
  done
}

usable() {
  [ -n "$1" ] && mkdir -p "$1" 2>/dev/null || return 1
  [ -n "$(find "$1" -prune -type d -user "$uid")" ] && chmod 700 "$1" || return 1
  folder=$(cd "$1" && pwd -P) || return 1
  # The path is an argument of commands that pass through shells.
  case $folder in *[!A-Za-z0-9/._+-]*) return 1 ;; esac
  safe "$folder" || return 1
  trial=$folder/trial.$$
  printf '#!/bin/sh\nexit 0\n' > "$trial" && chmod 700 "$trial" && "$trial" 2>/dev/null
  runs=$?
  rm -f "$trial"
  return $runs
}

for candidate in "${XDG_CACHE_HOME:+$XDG_CACHE_HOME/crossway/agents}" "${HOME:+$HOME/.cache/crossway/agents}" \
  "${TMPDIR:-/tmp}/crossway-agents-$uid" "/var/tmp/crossway-agents-$uid" "/dev/shm/crossway-agents-$uid"; do
  usable "$candidate" || continue
  # What was interrupted, and copies of more than a month ago.
  find "$folder" -name 'part.*' -mtime +1 -exec rm -f '{}' ';'
  find "$folder" -name 'crossway-*' -mtime +30 -exec rm -f '{}' ';'
  tell machine "$(uname -m)"
  tell folder "$folder"
  for copy in "$folder"/crossway-*; do
    [ -f "$copy" ] && tell copy "$(sha256sum < "$copy")" "$copy"
  done
  exit 0
done
tell nowhere
