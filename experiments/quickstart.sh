#!/bin/sh
# What fedpriv does, in six commands and three to four minutes: `make quickstart` runs this after the installation.
# Usage: quickstart.sh [FOLDER]; the runs go into FOLDER, or into ./runs.
set -eu
runs=${1:-runs}
printed=$(mktemp)
trap 'rm -f "$printed"' EXIT

# Shows a command, runs it, shows its results, and keeps the last line, which is the folder it wrote.
fed() {
    printf '\n\033[1m$ fedpriv %s\033[0m\n' "$*"
    fedpriv "$@" > "$printed" || { cat "$printed"; exit 1; }
    cat "$printed"
    last=$(tail -n 1 "$printed")
}

say() { printf '\n%s\n' "$*"; }

say "1. Six clients with the invoices of 18 companies train a model. The server is curious: it keeps round 1."
fed run quickstart "keep=[transcript,held_out]" "keep.transcript.rounds=[1]" "runs=$runs"
federation=$last

say "2. From the updates of that round, it tells which client holds which company's invoices."
fed attack "$federation" attack=server_membership

say "3. Clients that send the gradient of one page send the page: the server solves for it."
fed run gi_dqa name=quickstart-page "keep.transcript.clients=[0]" "runs=$runs"
page=$last
fed attack "$page" attack=closed_form originals=true ocr=null

say "4. The first federation again, now under FL-PROVIDER-DP: whatever is done with it, no company's invoices matter beyond ε."
fed run quickstart strategy=fl_provider_dp rounds=3 "runs=$runs"
private=$last

say "5. All of it on one page."
fed report "$federation" "$private" "$page" -o "$runs/quickstart.html"

cat <<END

Open $(cd "$(dirname "$last")" && pwd)/$(basename "$last") in a browser. What to type next:
  fedpriv list                                       experiments, and what can be swapped in them
  fedpriv run quickstart strategy=fl_provider_dp privacy.epsilon=4 masking=on
  fedpriv attack $page attack=gi_dqa_tuned
  fedpriv run quickstart --settings                  every setting, with its meaning
END
