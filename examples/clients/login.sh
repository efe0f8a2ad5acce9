#!/bin/sh
# Asks weir whether one more login may pass: login.sh localhost:8080
request='{"domain":"example","descriptors":[{"entries":[{"key":"path","value":"/login"}]}]}'
answer=$(curl -sS --max-time 1 -w '\n%{http_code}' "$1/json" -d "$request") || exit
number() { printf '%s' "$answer" | sed -n "s/.*\"$1\":\"\{0,1\}\([0-9]*\).*/\1/p"; }
case ${answer##*
} in
  200) remaining=$(number limitRemaining); echo "welcome, ${remaining:-0} more attempts" ;;
  429) echo "try again in $(number durationUntilReset) s" ;;
  *) printf '%s\n' "$answer" >&2; exit 1 ;;
esac
