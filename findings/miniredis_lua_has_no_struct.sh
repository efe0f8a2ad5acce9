#!/usr/bin/env bash
# Behavior: the Lua of miniredis and fakeredis has `cjson`, but not `struct`, `cmsgpack` or `bit`, which Redis has had in
#   all scripts since 2.6 to 2.8. miniredis answers that the script accesses a global variable that does not exist, with
#   the words of Redis for a typing error; in fakeredis the name is nil, so `struct and struct.pack(…) or …` takes the
#   other branch without any error.
# Version: miniredis 2.40.0 (Go module github.com/alicebob/miniredis/v2), fakeredis 2.32.1 with lupa 2.6 (PyPI).
# Source: lua.go of miniredis, where the globals of a script are set; fakeredis/commands_mixins/scripting_mixin.py.
# Why a guess goes wrong: both answer EVAL, EVALSHA and SCRIPT LOAD and run scripts of counters. INFO and COMMAND do not
#   show what is missing; a script that only asks for `cjson` passes. Only calling `struct` tells.
set -euo pipefail
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
export GOFLAGS=-modcacherw GOMODCACHE=$work/modules
cd "$work"
go mod init example >/dev/null 2>&1
cat >main.go <<'G'
package main

import (
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/proto"
)

func main() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client, err := proto.Dial(server.Addr())
	if err != nil {
		panic(err)
	}
	for _, library := range []string{"cjson", "struct", "cmsgpack", "bit"} {
		answer, err := client.Do("EVAL", "return type("+library+")", "0")
		if err != nil {
			panic(err)
		}
		fmt.Printf("miniredis type(%s): %q\n", library, answer)
	}
}
G
go get github.com/alicebob/miniredis/v2@v2.40.0 >/dev/null 2>go.log || { cat go.log; exit 1; }
go run . | tee mini.out
python3 -m venv venv
venv/bin/pip -q install fakeredis==2.32.1 lupa==2.6
venv/bin/python -W ignore - <<'P' | tee fake.out
import fakeredis
server = fakeredis.FakeRedis()
for library in ["cjson", "struct", "cmsgpack", "bit"]:
    try:
        print(f"fakeredis type({library}):", server.eval(f"return type({library})", 0))
    except Exception as error:
        print(f"fakeredis type({library}):", str(error)[:150])
P

grep -q '^miniredis type(cjson): .*table' mini.out && grep -q '^fakeredis type(cjson): .*table' fake.out &&
  [[ $(grep -c "nonexistent global variable '\(struct\|cmsgpack\|bit\)'" mini.out) == 3 ]] &&
  [[ $(grep -c "type(\(struct\|cmsgpack\|bit\)): b'nil'" fake.out) == 3 ]] || { echo "the behavior has changed"; exit 1; }
