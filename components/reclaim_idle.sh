# shellcheck disable=SC2016,SC2086 # templates; names without spaces
set -u
export TZ=UTC
failed=0
now=$(date +%s)
kind=workloads.kueue.x-k8s.io
fail() { echo "$1" >&2; failed=1; }
patched() { # team, Workload, annotation, active
  kubectl patch "$kind" "$2" --namespace "$1" --type merge \
    --patch "{\"metadata\":{\"annotations\":{\"$ANNOTATION\":\"$3\"}},\"spec\":{\"active\":$4}}"
}
# Workloads that an earlier run or this one stopped to requeue them: queued again once their pods have ended.
resume() {
  left=0
  mark='{{range .items}}{{$w := .}}{{with .metadata.annotations}}{{with index . "'$ANNOTATION'"}}{{$w.metadata.name}}|{{$w.spec.active}}|'
  mark=$mark'{{with $w.status.admission}}held{{end}}|{{.}}{{"\n"}}{{end}}{{end}}{{end}}'
  marked=$(kubectl get "$kind" --namespace "$1" --output go-template="$mark") || { failed=1; return; }
  while IFS='|' read -r name active held text; do
    case "$active|$text" in
      'false|requeue: '*)
        if [ -n "$held" ]; then left=$((left + 1)); else
          patched "$1" "$name" "requeued, ${text#requeue: }" true || failed=1
        fi ;;
    esac
  done <<END
$marked
END
}

answer=$(kubectl get --kubeconfig=/dev/null --server="$SERVER" --request-timeout=60s --raw "$QUERY") || answer=''
case $answer in
  '{"status":"success"'*) ;;
  *) fail "$SERVER: no answer from Prometheus; no job is stopped"; answer='' ;;
esac
metrics=$(printf '%s\n' "$answer" | awk '
  function text(part, key) {
    if (!match(part, "\"" key "\":\"[^\"]*\"")) return ""
    return substr(part, RSTART + length(key) + 4, RLENGTH - length(key) - 5)
  }
  { count = split($0, parts, /[{]"metric":/)
    for (i = 2; i <= count; i++) if (match(parts[i], /"value":\[[0-9.]+,"[0-9.]+"/)) {
      split(substr(parts[i], RSTART + 9, RLENGTH - 10), value, /,"/)
      print "M|" text(parts[i], "namespace") "|" text(parts[i], "pod") "|" value[1] "|" value[2]
    } }')

# Users write annotations and owners of pods: quoted, they stay in their line, and they come last.
pods='{{range .items}}P|{{.metadata.name}}|{{.status.startTime}}|'
pods=$pods'{{range .spec.containers}}{{with .resources.limits}}{{range $name, $amount := .}}{{$name}} {{end}}{{end}}{{end}}|'
pods=$pods'{{with .metadata.annotations}}{{with index . "kueue.x-k8s.io/workload"}}{{printf "%q" .}}{{end}}{{end}}|'
pods=$pods'{{range .metadata.ownerReferences}}{{if .controller}}{{printf "%q" .kind}}{{end}}{{end}}{{"\n"}}{{end}}'
rows='{{range .items}}{{if .status.admission}}W|{{.metadata.name}}|{{.spec.active}}|'
rows=$rows'{{range .status.conditions}}{{if eq .type "Admitted"}}{{.status}}{{end}}{{end}}|'
rows=$rows'{{with .metadata.annotations}}{{with index . "'$ANNOTATION'"}}{{.}}{{end}}{{end}}|'
rows=$rows'{{with .spec.priorityClassRef}}{{.name}}{{end}}|'
rows=$rows'{{range .status.admission.podSetAssignments}}{{range $name, $amount := .resourceUsage}}{{$name}}={{$amount}} {{end}}{{end}}|'
rows=$rows'{{range .metadata.ownerReferences}}{{.apiVersion}} {{.kind}} {{.name}} {{.uid}};{{end}}{{"\n"}}{{end}}{{end}}'
decide='
  function at(time) { return strftime("%Y-%m-%dT%H:%M:%SZ", time) }
  function seconds(text) { gsub(/[-T:Z]/, " ", text); return mktime(text) }
  BEGIN { FS = "|"; split(servers, listed, " "); for (i in listed) server[listed[i]] = 1
          split(spare, listed, " "); for (i in listed) spared[listed[i]] = 1 }
  $1 == "M" { series++; if ($4 - now > 300 || now - $4 > 300) wrong = 1
              if ($2 == team && (!($3 in busy) || $5 > busy[$3])) busy[$3] = $5 }
  $1 == "P" && $4 ~ /nvidia\.com\/(gpu|mig)/ {
    start = seconds($3); if (now - start > 900) old++
    workload = $5; gsub(/"/, "", workload); gsub(/"/, "", $6)
    if ($6 in server) never[workload] = 1
    if (!($2 in busy)) { never[workload] = 1; next }
    last = busy[$2] > start ? busy[$2] : start  # an earlier pod had this name
    if (!(workload in since) || last > since[workload]) since[workload] = last }
  $1 == "W" && !wrong {
    split($8, owners, ";"); split(owners[1], owner, " "); alone = owners[2] == ""
    wanted = ""; name = $2; known = name in since; idle = now - since[name]
    if ($3 != "false" && $4 == "True" && known && !(name in never) && !(owner[2] in server) &&
        !(owner[2] in spared) && !(owner[3] in spared) && !($6 != "" && $6 in spared) &&
        idle >= (policy == "notify" ? after : after / 2))
      wanted = "since " at(since[name]) ", " policy " at " at(since[name] + after)
    if ($3 == "false" || wanted == "" && ($5 == "" || $5 ~ /^requeued/ && !known)) next
    gpus = 0; count = split($7, used, " ")
    for (i = 1; i <= count; i++) if (used[i] ~ /^nvidia\.com\//) { sub(/.*=/, "", used[i]); gpus += used[i] }
    figures = gpus " GPUs below " below " % since " at(since[name]) " (" int(idle / 60) " min)"
    object = alone ? owner[1] " " owner[2] " " owner[3] " " owner[4] : "kueue.x-k8s.io/v1beta2 Workload " name " -"
    if (wanted == "") clear = clear " " name
    else if (wanted != $5) {
      told[wanted] = told[wanted] " " name
      rest = policy == "notify" ? "the job is not stopped" : policy " at " at(since[name] + after) " if they stay idle"
      print "event|IdleGPUs|" figures "; " rest "|" object }
    else if (policy != "notify" && idle >= after)
      print "stop|" name "|stopped at " at(now) ", idle since " at(since[name]) "|" figures "|" object }
  END { for (text in told) print "told|" text "|" told[text]
        if (clear != "") print "clear|" clear
        if (wrong) print "fail|the clock of Prometheus differs by more than 5 minutes"
        else if (!series && old) print "fail|Prometheus has no metrics of " old " pods with GPUs" }'

requeued=
while read -r team policy after below spare; do
  resume "$team"
  [ -n "$answer" ] || continue
  of_pods=$(kubectl get pods --namespace "$team" --field-selector status.phase=Running --output go-template="$pods") || { failed=1; continue; }
  of_workloads=$(kubectl get "$kind" --namespace "$team" --output go-template="$rows") || { failed=1; continue; }
  decisions=$(printf '%s\n' "$metrics" "$of_pods" "$of_workloads" | sed 's/<no value>//g' | awk \
    -v team="$team" -v policy="$policy" -v after="$after" -v below="$below" -v spare="$spare" -v servers="$SERVERS" -v now="$now" \
    "$decide") || failed=1
  : > "$HOME/events"
  while IFS='|' read -r action first second third fourth; do
    case $action in
      fail) fail "$team: $first; no job is stopped" ;;
      told) kubectl annotate "$kind" $second --namespace "$team" --overwrite "$ANNOTATION=$first" || failed=1 ;;
      clear) kubectl annotate "$kind" $first --namespace "$team" "$ANNOTATION-" || failed=1 ;;
      event) event "$first" "$second" $third ;;
      stop)
        if patched "$team" "$first" "$policy: $second" false; then
          [ "$policy" = cancel ] || requeued="$requeued $team"
          event "IdleGPUsStopped" "$third: $policy" $fourth
        else failed=1; fi ;;
    esac
  done <<END
$decisions
END
  [ ! -s "$HOME/events" ] || kubectl create --validate=false --filename "$HOME/events" > /dev/null || failed=1
done <<END
$TEAMS
END
for team in $(printf '%s\n' $requeued | sort -u); do
  tries=0
  resume "$team"
  while [ "$left" -gt 0 ] && [ "$tries" -lt 12 ]; do # else the next run does it
    sleep 5
    tries=$((tries + 1))
    resume "$team"
  done
done
exit $failed
