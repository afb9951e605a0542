#!/usr/bin/env bash
# Previews each stack that is named on standard input, one per line, against a git ref. Writes a folder OUT/<stack>
# for each: report.md, report.html, report.txt, errors.txt, exit-code; and OUT/comment.md and OUT/comment.txt for all.
# Usage: preview.sh REF OUT [REAL], where REAL/real-<stack>/preview.json is the output of `pulumi preview --json`.
# Exits with the most severe exit code: 3 internal error, 1 invalid stack, 2 mandatory policy violation.
set -euo pipefail
ref=$1
out=$2
real=${3:-}
mkdir -p "$out"
: > "$out/comment.txt"

# A workflow command for GitHub's runner; other runners do not need it.
tell() {
  if [[ ${GITHUB_ACTIONS:-} == true ]]; then
    echo "::$1"
  fi
}

while IFS= read -r stack; do
  folder=$out/$stack
  mkdir -p "$folder"
  options=(--base "$ref" --policy workloads --policy clouds --out "$folder")
  real_preview=$real/real-$stack/preview.json
  if [[ -n $real && -s $real_preview ]]; then
    options+=(--pulumi-preview "$real_preview")
  fi
  code=0
  tell "group::$stack"
  .venv/bin/tenancy preview "$stack" "${options[@]}" > "$folder/report.txt" 2> "$folder/errors.txt" || code=$?
  printf '%s\n\n' "Stack $stack, exit code $code" >> "$out/comment.txt"
  cat "$folder/report.txt" "$folder/errors.txt" | tee -a "$out/comment.txt"
  tell "endgroup::"
  echo "$code" > "$folder/exit-code"
done
code=0
# Below the limit of GitHub, because comment.yaml adds some text.
.venv/bin/tenancy stack comment "$out" --out "$out/comment.md" --limit 64000 || code=$?
case $code in
  0) ;;
  1) tell "error title=Invalid stack::The comment has the file, the line and the fix." ;;
  2) tell "error title=Mandatory policy violation::The comment has the rule, the resource and the fix." ;;
  3) tell "error title=Internal error::Policies were not evaluated; see the traceback in the log." ;;
  *) tell "error title=Preview exited with code $code::See the log." ;;
esac
exit "$code"
