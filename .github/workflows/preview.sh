#!/usr/bin/env bash
# The offline preview of each stack named on the standard input, one a line, against a ref. Leaves for
# each a folder OUT/<stack>: report.md, report.html, errors.txt, exit-code; and OUT/comment.md of all of them.
# Usage: preview.sh REF OUT [REAL], where REAL/real-<stack>/preview.json is what `pulumi preview --json` said.
# Ends with the gravest exit code: 3 a mistake in the program, 1 a stack is wrong, 2 a mandatory rule is broken.
set -euo pipefail
ref=$1
out=$2
real=${3:-}
mkdir -p "$out"

# A word to GitHub's runner; elsewhere it would only be noise.
tell() {
  if [[ ${GITHUB_ACTIONS:-} == true ]]; then
    echo "::$1"
  fi
}

while IFS= read -r stack; do
  folder=$out/$stack
  mkdir -p "$folder"
  options=(--base "$ref" --policy workloads --policy clouds --out "$folder")
  said=$real/real-$stack/preview.json
  if [[ -n $real && -s $said ]]; then
    options+=(--pulumi-preview "$said")
  fi
  code=0
  tell "group::$stack"
  .venv/bin/tenancy preview "$stack" "${options[@]}" 2> "$folder/errors.txt" || code=$?
  cat "$folder/errors.txt"
  tell "endgroup::"
  echo "$code" > "$folder/exit-code"
done
code=0
# Some room is left for what whoever posts it adds.
.venv/bin/tenancy comment "$out" --out "$out/comment.md" --limit 64000 || code=$?
case $code in
  0) ;;
  1) tell "error title=A stack is wrong::The comment names file, line and mend." ;;
  2) tell "error title=A mandatory rule is broken::The comment names rule, resource and mend." ;;
  3) tell "error title=A mistake in the program::Nothing was judged; the log has its trace of calls." ;;
  *) tell "error title=The preview ended with $code::The log says why." ;;
esac
exit "$code"
