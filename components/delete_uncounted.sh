# shellcheck disable=SC2016,SC2086 # templates; names without spaces
set -uf
export TZ=UTC
failed=0
# Users write annotations of pods: quoted, they stay in their line, and they come last.
pods='{{range .items}}{{if and .spec.nodeName (not .metadata.deletionTimestamp)}}P|{{.metadata.name}}|{{.metadata.uid}}|'
pods=$pods'{{range .spec.containers}}{{with .resources.requests}}{{range $name, $amount := .}}c {{$name}} {{$amount}};{{end}}{{end}}{{end}}'
pods=$pods'{{range .spec.initContainers}}{{$kind := "i"}}{{if eq (print .restartPolicy) "Always"}}{{$kind = "s"}}{{end}}'
pods=$pods'{{with .resources.requests}}{{range $name, $amount := .}}{{$kind}} {{$name}} {{$amount}};{{end}}{{end}}{{end}}|'
pods=$pods'{{with .metadata.annotations}}{{with index . "kueue.x-k8s.io/workload-slice-name"}}{{printf "%q" .}}{{end}}|'
pods=$pods'{{with index . "kueue.x-k8s.io/workload"}}{{printf "%q" .}}{{end}}{{end}}{{"\n"}}{{end}}{{end}}'
rows='{{range .items}}{{if .status.admission}}W|{{.metadata.name}}|{{.spec.active}}|'
rows=$rows'{{range .status.conditions}}{{if eq .type "Finished"}}{{.status}}{{end}}{{end}}|'
rows=$rows'{{range .status.admission.podSetAssignments}}{{range $name, $amount := .resourceUsage}}{{$name}} {{$amount}};{{end}}{{end}}|'
rows=$rows'{{with .metadata.annotations}}{{with index . "kueue.x-k8s.io/workload-slice-name"}}{{.}}{{end}}{{end}}{{"\n"}}{{end}}{{end}}'
# All sizes of an elastic job are one; its pods keep the name of the Workload of the size that they began with.
decide='
  BEGIN { FS = "|"; split(gpus, listed, " "); for (i in listed) gpu[listed[i]] = 1 }
  { gsub(/"/, "") }
  $1 == "P" {
    key = $5 != "" ? $5 : $6
    if (key == "") next  # older than Kueue, or a gang
    gsub(/[^a-z0-9.-]/, "?", key)
    delete own; delete most; count = split($4, parts, ";")
    for (i = 1; i < count; i++) { split(parts[i], part, " "); if (part[1] == "s") own[part[2]] += part[3]
      if (part[1] == "i" && own[part[2]] + part[3] > most[part[2]]) most[part[2]] = own[part[2]] + part[3] }
    for (i = 1; i < count; i++) { split(parts[i], part, " "); if (part[1] == "c") own[part[2]] += part[3] }
    for (name in gpu) {
      amount = own[name] > most[name] ? own[name] : most[name]
      if (amount > 0) { bound[name] += amount; of[key, name] += amount; holds[$2, name] = 1 }
    }
    pod[$2] = $3; job[$2] = key }
  $1 == "W" && $3 != "false" && $4 != "True" {
    key = $6 != "" ? $6 : $2; count = split($5, parts, ";")
    for (i = 1; i < count; i++) { split(parts[i], part, " "); counted[part[1]] += part[2]; at[key, part[1]] += part[2] } }
  END { for (name in gpu) if (bound[name] > counted[name] + 0)
    for (p in pod) if ((p, name) in holds && of[job[p], name] > at[job[p], name] + 0)
      print p "|" pod[p] "|" job[p] "|Workload " job[p] " counts " at[job[p], name] + 0 " of " of[job[p], name] " " name " on nodes" }'
uncounted() { # team
  of_pods=$(kubectl get pods --namespace "$1" --field-selector status.phase!=Succeeded,status.phase!=Failed \
    --output go-template="$pods") || return 1
  of_workloads=$(kubectl get workloads.kueue.x-k8s.io --namespace "$1" --output go-template="$rows") || return 1
  printf '%s\n' "$of_pods" "$of_workloads" | sed 's/<no value>//g' | awk -v gpus="$GPUS" "$decide" | sort
}

# What keeps creating pods: the controller of a pod, and in turn its own, of the kinds that Kueue stops as a whole.
controller='{{range .metadata.ownerReferences}}{{if .controller}}{{.kind}}.{{.apiVersion}} {{.name}}{{end}}{{end}}'
root() { # pod
  found=
  set -- pods "$1"
  while next=$(kubectl get "$1" --namespace "$team" --ignore-not-found --output go-template="$controller" -- "$2" 2> "$HOME/refused"); do
    [ "$1" = pods ] || found="$1 $2"
    [ -n "$next" ] || break
    set -- $next
    version=${1##*/} group=${1%/*}
    set -- "${group%%.*}.$version.${group#*.}" "$2"
  done
  printf '%s\n' "$found"
}

delete() { kubectl delete --namespace "$team" --ignore-not-found --wait=false "$@" || failed=1; }

: > "$HOME/seen"
for team in $TEAMS; do
  found=$(uncounted "$team") || { failed=1; continue; }
  [ -z "$found" ] || printf '%s\n' "$found" | sed "s/^/$team|/" >> "$HOME/seen"
done
for fields in 1-4 1,4; do # a pod with its uid and Workload; then what else the Workload has
  [ ! -s "$HOME/seen" ] || sleep "$PAUSE" # a controller may be about to delete them, or to create them again
  cut -d '|' -f "$fields" "$HOME/seen" > "$HOME/before"
  : > "$HOME/seen"
  for team in $(cut -d '|' -f 1 "$HOME/before" | sort -u); do
    found=$(uncounted "$team") || { failed=1; continue; }
    : > "$HOME/events"
    names=
    while IFS='|' read -r name uid job why; do
      row="$team|$name|$uid|$job"
      [ "$fields" = 1-4 ] || row="$team|$job"
      grep -qxF "$row" "$HOME/before" || continue
      names="$names $name"
      printf '%s\n' "$team|$name|$uid|$job" >> "$HOME/seen"
      if [ "$fields" = 1,4 ]; then
        owner=$(root "$name")
        [ -z "$owner" ] || delete ${owner%% *} -- ${owner#* }
        why="$why; ${owner:-what owns it} created it again"
      fi
      event UncountedGPUs "deleted: $why" v1 Pod "$name" "$uid"
    done <<END
$found
END
    [ -z "$names" ] || delete pods $names
    [ ! -s "$HOME/events" ] || kubectl create --validate=false --filename "$HOME/events" > /dev/null || failed=1
  done
done
exit $failed
