#!/bin/bash
# What README.md tells a new user to type, typed: the install, two processes on a terminal of 80 x 24, real links, every command it names.
#
# The lines are taken out of README.md, so one that is no longer true fails here. A new user is a home directory that is empty, no variables
# but the toolchain's, and a PATH of the install's directory and the tools that the README asks for (Rust, a C compiler) beside coreutils. It
# is not a container: /usr is the machine's. As root everything but the install runs in network and mount namespaces of its own.

have_packages script=bsdutils ip=iproute2 || true
command -v script >/dev/null || skip "there is no 'script' (Debian: bsdutils), which makes a terminal"

user=$(mktemp -d "$CI_TARGET/readme.XXXXXX")
started=()
# Only what was started here is ended.
end_all() {
    local pid
    for pid in ${started[@]+"${started[@]}"}; do kill -INT "$pid" 2>/dev/null || true; done
    wait
    rm -rf "$user"
}
trap end_all EXIT
mkdir -p "$user/home" "$user/bin" "$user/scratch"

fail() {
    echo "README.md: $*" >&2
    exit 1
}

# line_of TEXT: the one line in a block of commands that begins so, without its comment.
line_of() {
    local found
    found=$(awk '/^```sh$/ { inside = 1; next } /^```/ { inside = 0 } inside' README.md | grep -F -- "$1" | sed 's/  *#.*//') ||
        fail "no line of a command has '$1' any more: this step is to follow"
    [ "$(wc -l <<<"$found")" = 1 ] || fail "several lines have '$1'"
    [[ $found == "$1"* ]] || fail "'$found' does not begin with '$1'"
    printf '%s\n' "$found"
}

# The lines of more than 80 characters; fails if there are none. Debian's awk counts bytes, and a bar of a plot has three.
wide_lines() { LC_ALL=C.UTF-8 grep -E '^.{81}'; }
wide_lines <<<"$(printf '▇%.0s' {1..81})" >/dev/null || fail "81 characters are not seen to be wide"
if wide_lines <<<"$(printf '▇%.0s' {1..80})"; then fail "80 characters are said to be wide"; fi

tools="bash sh cat chmod cp cut date dirname echo env grep head kill ln ls mkdir mv rm sed sleep sort stty tail timeout tr true uname wc"
for tool in $tools cc gcc ld as ar ranlib; do
    if at=$(command -v "$tool") && [[ $at == /* ]]; then ln -s "$at" "$user/bin/$tool"; fi
done
for tool in cargo rustc; do ln -s "$(command -v "$tool")" "$user/bin/$tool"; done
# The new user's environment. What cargo has fetched and built is the machine's, so that nothing is built twice; how it reaches its
# registry may stand in variables.
mapfile -t toolchain < <(env | grep -E '^(CARGO_(HTTP|NET|REGISTRIES|REGISTRY|SOURCE)_?[A-Z_]*|RUSTUP_[A-Z_]+|SSL_CERT_[A-Z]+)=')
as_user=(env -i "${toolchain[@]}" HOME="$user/home" PATH="$user/home/.cargo/bin:$user/bin" TERM=xterm LANG=C.UTF-8
    CARGO_HOME="${CARGO_HOME:-$HOME/.cargo}" RUSTUP_HOME="${RUSTUP_HOME:-$HOME/.rustup}"
    CARGO_INSTALL_ROOT="$user/home/.cargo" CARGO_TARGET_DIR="$CI_TARGET" CARGO_NET_OFFLINE=true CARGO_TERM_COLOR=never)

echo "== install"
install=$(line_of "cargo install ")
# What the machine's cargo needs to reach its registry is none of the new user's, so it is fetched before.
cargo fetch --locked --quiet --target "$(rustc -vV | sed -n 's/^host: //p')"
"${as_user[@]}" bash -euc "$install" >"$user/install" 2>&1 || { tail -20 "$user/install"; fail "'$install' failed"; }
[ -x "$user/home/.cargo/bin/flowlane" ] || fail "'$install' left no ~/.cargo/bin/flowlane"
version=$("${as_user[@]}" flowlane --version) || fail "the installed command does not run"
echo "$version: $(wc -c <"$user/home/.cargo/bin/flowlane") bytes"

echo "== completions and manual pages"
completions=$(line_of "source <(flowlane completions bash)")
"${as_user[@]}" bash -euc "$completions; complete -p flowlane" >"$user/complete" 2>&1 && grep -q ' flowlane$' "$user/complete" ||
    { cat "$user/complete"; fail "'$completions' completes nothing"; }
manual=$(line_of "flowlane man ")
"${as_user[@]}" bash -euc "$manual" >"$user/man" 2>&1 || { cat "$user/man"; fail "'$manual' failed"; }
for page in flowlane flowlane-serve flowlane-load-http; do
    grep -q '^\.SH' "$user/home/.local/share/man/man1/$page.1" || fail "'$manual' made no page '$page'"
done

echo "== every command that is named"
# In README.md and docs/index.md, in backticks, up to the first word that is an argument: `flowlane rss hash`, `rss plan`. Words behind the first of a row belong to it.
named=$(grep -o '`\(sudo \)\?flowlane [a-z][^`]*`' README.md docs/index.md | sed 's/^[^:]*://' | tr -d '`' | sed 's/^sudo //; s/^flowlane //' | sort -u)
while read -r words; do
    command=()
    for word in $words; do
        [[ $word =~ ^[a-z][a-z-]*$ ]] || break
        command+=("$word")
    done
    "${as_user[@]}" flowlane "${command[@]}" --help >"$user/help" 2>&1 || { cat "$user/help"; fail "'flowlane ${command[*]}' is no command"; }
    if wide_lines <"$user/help"; then fail "flowlane ${command[*]} --help is wider than 80 columns"; fi
done <<<"$named"
echo "$(wc -l <<<"$named") are commands"

# In namespaces of its own the ports are free and the network is nobody else's.
alone=()
if is_root && unshare --net --mount true 2>/dev/null; then
    alone=(unshare --net --mount)
    up="$(command -v ip) link set lo up;"
else
    up=
    note "readme: not root, so the two processes used the machine's own port 8080, and real links were not tried"
    if (exec 3<>/dev/tcp/127.0.0.1/8080) 2>/dev/null; then skip "another program has port 8080"; fi
fi

echo "== two processes on a terminal of 80 x 24"
serve=$(line_of "flowlane serve http ")
load=$(line_of "flowlane load http ")
cat >"$user/two" <<END
stty cols 80 rows 24
$serve
echo "-- typed --"
code=0
$load || code=\$?
kill -INT %1
wait %1 || exit 98
exit \$code
END
code=0
(cd "$user/scratch" && timeout 120 "${alone[@]}" bash -c "$up exec \"\$@\"" - "${as_user[@]}" "$(command -v script)" -qec "bash $user/two" "$user/record") \
    </dev/null >/dev/null 2>&1 || code=$?
# A machine with other work may keep neither the rate nor the threshold of latency: then the run is said to have missed it.
plain=$(sed 's/\x1b\[[0-9;?]*[A-Za-z]//g' "$user/record" | tr '\r' '\n' | grep -v '^Script ')
case $code in
0) ;;
1 | 3) grep -q '^FAILED: ' <<<"$plain" || { echo "$plain"; fail "'$load' ended with exit code $code and names nothing that was missed"; } ;;
*) echo "$plain" | tail -40; fail "'$serve' and '$load' ended with exit code $code" ;;
esac
# What was missed is said in one line, which programs read, too, and the terminal folds.
if grep -v '^flowlane: ' <<<"$plain" | wide_lines; then fail "lines wider than the terminal"; fi
promised() { grep -Eq -- "$2" <<<"$plain" || { echo "$plain" | tail -60; fail "$1 is not on the terminal"; }; }
promised "that the server serves" '^flowlane: http on .* port 8080, '
promised "the live line" '^ *[0-9.]+ of 10(\.0)? s '
promised "what was asked for" '^load http http://localhost:8080/size/600 .*'
promised "what was answered" '^answered +[1-9]'
promised "quantiles of the latency" 'p50 +p90 +p99 '
promised "the latency" '^latency '
promised "the threshold" '(passed|FAILED): p99 > 20'
promised "the server's summary" '^http: reads '
grep -qi '<svg' "$user/scratch/run.html" || fail "run.html has no plot"
live=$(grep -cE '^ *[0-9.]+ of 10(\.0)? s ' <<<"$plain")
# One that is wider than the terminal, or not written over, scrolls: then a line feed stands between two of them.
scrolled=$(sed 's/\x1b\[[0-9;?]*[A-Za-z]//g' "$user/record" | tr -d '\r' | grep -cE '^ *[0-9.]+ of 10(\.0)? s ' || true)
[ "$scrolled" -le 2 ] || fail "the live line leaves $scrolled lines behind"
echo "$(wc -l <<<"$plain") lines, none wider than 80 columns; the live line was shown $live times in one place"
grep -E '^(answered|latency) |: p99 ' <<<"$plain"

if [ ${#alone[@]} = 0 ]; then exit 0; fi

echo "== real links"
xdp=$(line_of "flowlane serve udp-echo --link af-xdp:eth0 ")
udp=$(line_of "flowlane load udp ")
stat=$(line_of "flowlane stat ")
cat >"$user/links" <<END
$(command -v ip) link set lo up
$(command -v ip) link add eth0 numrxqueues 1 numtxqueues 1 type veth peer name eth1 numrxqueues 1 numtxqueues 1
$(command -v ip) link set eth0 up
$(command -v ip) link set eth1 up
mkfifo $user/said
$xdp 2> >(tee $user/serve-said >$user/said) & served=\$!
trap 'kill \$served 2>/dev/null || true' EXIT
# Other lines may come before the one that says that it serves.
while read -r line && [[ \$line != *" port "* ]]; do :; done <$user/said
$stat >$user/stat
code=0
$udp || code=\$?
kill -INT \$served
wait \$served || exit 98
exit \$code
END
ln -sf "$(command -v mkfifo)" "$user/bin/mkfifo"
ln -sf "$(command -v tee)" "$user/bin/tee"
if timeout 120 "${alone[@]}" "${as_user[@]}" XDG_RUNTIME_DIR="$user/scratch" bash -eu "$user/links" >"$user/out" 2>&1; then code=0; else code=$?; fi
if grep -q 'not permitted\|this kernel has no' "$user/out" "$user/serve-said"; then
    note "readme: real links were not tried: $(grep -h 'not permitted\|this kernel has no' "$user/out" "$user/serve-said" | head -1)"
    exit 0
fi
# As above: a rate that a busy machine does not keep is no fault of the line.
if [[ $code =~ ^[13]$ ]] && grep -q '^FAILED: ' "$user/out"; then code=0; fi
[ "$code" = 0 ] || { cat "$user/serve-said" "$user/out"; fail "the lines for real links ended with exit code $code"; }
grep -q 'af-xdp:eth0' "$user/serve-said" || fail "the server does not say which link it has"
[ -s "$user/stat" ] || fail "'$stat' says nothing"
grep -E '^answered +[1-9]' "$user/out" || { cat "$user/out"; fail "the server answered nothing"; }
