#!/bin/sh
# What fedpriv does, in seven commands and two minutes: `make quickstart` runs this after the installation.
# Usage: quickstart.sh [FOLDER]; the runs go into FOLDER, or into ./runs.
set -eu
runs=${1:-runs}
work=$(mktemp -d)
others=
trap '[ -z "$others" ] || kill "$others" 2> /dev/null || true; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# Shows a command, runs it, shows its results, and keeps the last line, which is the folder it wrote.
fed() {
    printf '\n\033[1m$ fedpriv %s\033[0m\n' "$*"
    fedpriv "$@" > "$work/printed" || { cat "$work/printed"; exit 1; }
    cat "$work/printed"
    last=$(tail -n 1 "$work/printed")
}

# Runs a command whose turn comes later, and keeps what it prints under a name.
ahead() {
    name=$1; shift
    echo "$*" > "$work/$name.command"
    fedpriv "$@" > "$work/$name" 2>&1 & run=$!
    wait "$run" && ended=0 || ended=$?
    echo "$ended" > "$work/$name.ended"
}

# Shows such a command, when it has ended.
show() {
    printf '\n\033[1m$ fedpriv %s\033[0m\n' "$(cat "$work/$1.command")"
    until [ -s "$work/$1.ended" ]; do sleep 0.2; done
    cat "$work/$1"
    [ "$(cat "$work/$1.ended")" = 0 ] || exit 1
    last=$(tail -n 1 "$work/$1")
}

say() { printf '\n%s\n' "$*"; }

# A client computes on one core. So the runs of the third and fourth part are trained on a second one meanwhile.
{
    trap 'kill "$run"; exit' TERM
    ahead page run gi_dqa name=quickstart-page "keep.transcript.clients=[0]" "runs=$runs"
    ahead private run quickstart strategy=fl_provider_dp rounds=3 "keep=[transcript,held_out]" \
        keep.transcript.batches=false federation.evaluate_every=3 "runs=$runs"
} &
others=$!

say "1. Six clients with the invoices of 18 companies train a model. The server is curious: it keeps round 1."
fed run quickstart "keep=[transcript,held_out]" "keep.transcript.rounds=[1]" keep.transcript.batches=false \
    federation.evaluate_every=5 "runs=$runs"
federation=$last

say "2. From the updates of that round, it tells which client holds which company's invoices."
fed attack "$federation" attack=server_membership

say "3. Clients that send the gradient of one page send the page: the server solves for it."
show page
page=$last
fed attack "$page" attack=closed_form originals=true ocr=null

say "4. The same clients train three rounds under FL-PROVIDER-DP: ε bounds what anybody learns about one company."
show private
private=$last
fed attack "$private" attack=server_membership

say "5. All of it on one page."
fed compare "$federation" "$private" "$page" -o "$runs/quickstart.html"

cat <<END

Open $(cd "$(dirname "$last")" && pwd)/$(basename "$last") in a browser. What to type next:
  fedpriv list                                       experiments, and what can be swapped in them
  fedpriv run quickstart strategy=fl_provider_dp privacy.epsilon=4 masking=on
  fedpriv attack $page attack=gi_dqa_tuned
  fedpriv run quickstart --settings                  every setting, with its meaning
END
