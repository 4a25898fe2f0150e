#!/bin/sh
# What fedpriv does, in three commands and some minutes: `make quickstart` runs this after the installation.
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

say "1. A client that sends the gradient of one page sends the page: the server solves for it."
fed run gi_dqa name=quickstart-page "keep.transcript.clients=[0]" "runs=$runs"
page=$last
fed attack "$page" attack=closed_form originals=true ocr=null

say "2. Ten organisations train a model on the slips of about 290 suppliers, undefended and with FL-PROVIDER-DP at ε = 8."
say "   What does a curious server learn from their updates, what stops that, and what does it cost?"
fed assess assessed_quick --brief "runs=$runs"

cat <<END

Open $(cd "$last" && pwd)/assessment.html in a browser, brief.html beside it, and $page/report.html. What to type next:
  fedpriv list                                       experiments, and what can be swapped in them
  fedpriv run quickstart strategy=fl_provider_dp privacy.epsilon=4 masking=on
  fedpriv data check ./your_documents                what is understood of them, and what it is enough for
  fedpriv attack $page attack=gi_dqa_tuned
  fedpriv run quickstart --settings                  every setting, with its meaning
END
