# shellcheck disable=SC2013,SC2016,SC2086 # templates; names without spaces
set -uf
export TZ=UTC
failed=0 admitted='' found=''
line='
'
# Users write annotations and labels of pods: quoted, they stay in their line, and they come last.
pods='{{range .items}}{{if .spec.nodeName}}{{if .metadata.deletionTimestamp}}D{{else}}P{{end}}|{{.metadata.name}}|{{.metadata.uid}}|'
pods=$pods'{{range .spec.containers}}{{with .resources.requests}}{{range $name, $amount := .}}c {{$name}} {{$amount}};{{end}}{{end}}{{end}}'
pods=$pods'{{range .spec.initContainers}}{{$kind := "i"}}{{if eq (print .restartPolicy) "Always"}}{{$kind = "s"}}{{end}}'
pods=$pods'{{with .resources.requests}}{{range $name, $amount := .}}{{$kind}} {{$name}} {{$amount}};{{end}}{{end}}{{end}}|'
for key in workload prebuilt-workload-name workload-slice-name role-hash; do
  pods=$pods'{{with .metadata.annotations}}{{with index . "kueue.x-k8s.io/'$key'"}}{{printf "%q" .}}{{end}}{{end}}|'
done
pods=$pods'{{with .metadata.labels}}{{with index . "kueue.x-k8s.io/pod-group-name"}}{{printf "%q" .}}{{end}}{{end}}{{"\n"}}{{end}}{{end}}'
rows='{{range .items}}{{$row := "W"}}{{$evicted := "Evicted"}}{{if .status.clusterName}}{{$evicted = "-"}}{{end}}'
rows=$rows'{{with .metadata.labels}}{{if index . "kueue.x-k8s.io/multikueue-origin"}}{{$evicted = "-"}}{{end}}{{end}}'
rows=$rows'{{range .status.conditions}}{{if and (eq .type "QuotaReserved") (eq .status "True")}}{{$row = "A"}}{{end}}{{end}}'
rows=$rows'{{$row}}|{{.metadata.name}}|{{.spec.active}}|'
rows=$rows'{{range .status.conditions}}{{if eq .status "True"}}{{if eq .type "Finished" $evicted}}{{.type}} {{.lastTransitionTime}};{{end}}{{end}}{{end}}|'
rows=$rows'{{with .status.admission}}{{range .podSetAssignments}}{{range $name, $amount := .resourceUsage}}{{$name}} {{$amount}};{{end}}{{end}}{{end}}|'
rows=$rows'{{with .metadata.annotations}}{{with index . "kueue.x-k8s.io/workload-slice-name"}}{{printf "%q" .}}{{end}}{{end}}|'
rows=$rows'{{range .metadata.ownerReferences}}{{.kind}} {{.apiVersion}} {{.name}} {{.uid}};{{end}}|'
rows=$rows'{{with .metadata.deletionTimestamp}}{{.}}{{end}}{{"\n"}}{{end}}'
# Of Workloads that count fewer GPUs than their pods have: the pods and, once, the owner. A job that was evicted before
# `since` counts none: Kueue keeps its quota as long as its operator says that it is active. Workloads of MultiKueue never
# count as evicted, since a worker may not answer. Rows D are pods whose grace period has begun. The sizes of an elastic
# job are one; its pods keep the name of the Workload of the size that they began with. What a Workload counts, and what a
# pod holds: `Workload.counts` and `requests` in gpu_tenancy/cluster, whose results `tenancy usage` shows.
decide='
  function number(text) { return text ~ /k$/ ? text * 1000 : text + 0 }
  function job_of(name) { sub(/-[^-]*$/, "", name); return name }
  BEGIN { FS = "|"; split(gpus, listed, " "); for (i in listed) gpu[listed[i]] = 1 }
  { gsub(/"/, "") }
  $1 == "P" || $1 == "D" {
    name = $5 != "" ? $5 : $6 != "" ? $6 : $9
    if (name == "" && $8 == "") next  # older than Kueue, or a gang
    gsub(/[^a-z0-9.-]/, "?", name); workload[$2] = name; size[$2] = $7; uid[$2] = $3
    delete own; delete most; count = split($4, parts, ";")
    for (i = 1; i < count; i++) { split(parts[i], part, " "); amount = number(part[3]); if (part[1] == "s") own[part[2]] += amount
      if (part[1] == "i" && own[part[2]] + amount > most[part[2]]) most[part[2]] = own[part[2]] + amount }
    for (i = 1; i < count; i++) { split(parts[i], part, " "); if (part[1] == "c") own[part[2]] += number(part[3]) }
    for (g in gpu) { amount = own[g] > most[g] ? own[g] : most[g] + 0
      if (amount > 0 || $1 == "D") holding[$2] = 1
      if ($1 == "P") { has[$2, g] = amount; bound[g] += amount } } }
  $1 == "A" || $1 == "W" {
    job[$2] = $6 != "" ? $6 : $2; known[job[$2]] = 1; owner[$2] = $7 ~ /^[^;]*;$/ ? substr($7, 1, length($7) - 1) : ""
    if ($4 ~ /Finished/) next
    if ($4 ~ /^Evicted/ && substr($4, 9) < since) { stuck[job[$2]] = ", of a job that was evicted"
      if ($1 == "A" && $3 != "false") kept[$2] = job[$2]
      if ($8 != "" && $8 < since) deleted[$2] = owner[$2]
      next }
    live[job[$2]] = 1
    if ($3 == "false" || $1 == "W") next
    admitted[job[$2]] = 1
    count = split($5, parts, ";")
    for (i = 1; i < count; i++) { split(parts[i], part, " "); counted[part[1]] += number(part[2])
      at[job[$2], part[1]] += number(part[2]) } }
  END {
    for (j in admitted) delete stuck[j]
    for (p in workload) {
      of[p] = workload[p] in job ? job[workload[p]] : workload[p]
      if (!(workload[p] in job) && size[p] in known && job_of(size[p]) == job_of(workload[p])) of[p] = size[p]
      for (g in gpu) total[of[p], g] += has[p, g]
      if (p in holding) held[of[p]] = 1; else runs[of[p]] = 1 }
    for (g in gpu) for (p in workload)
      if (has[p, g] > 0 && total[of[p], g] > at[of[p], g] + 0 && (bound[g] > counted[g] + 0 || of[p] in stuck || !(of[p] in live)))
        print of[p] "|" p "|" uid[p] "|" owner[workload[p]] "|Workload " of[p] " counts " at[of[p], g] + 0 " of " total[of[p], g] " " g " on nodes" stuck[of[p]]
    for (w in kept) if (!(kept[w] in held)) print w "|||" (kept[w] in runs ? owner[w] : deleted[w]) "|Workload " w " keeps quota without GPUs" stuck[kept[w]] }'
uncounted() { # team: sets `found`, and `admitted` if Kueue has admitted a Workload of it
  of_pods=$(kubectl get pods --namespace "$1" --field-selector status.phase!=Succeeded,status.phase!=Failed \
    --output go-template="$pods") || return 1
  of_workloads=$(kubectl get workloads.kueue.x-k8s.io --namespace "$1" --output go-template="$rows") || return 1
  case $of_workloads in A* | *"$line"A*) admitted=1 ;; esac
  found=$(printf '%s\n' "$of_pods" "$of_workloads" | sed 's/<no value>//g' | awk -v gpus="$GPUS" -v since="$since" "$decide" | sort)
}
delete() { kubectl delete --namespace "$team" --ignore-not-found --wait=false "$@" || failed=1; }

since=$(before "$STOPS")
: > "$HOME/before"
for team in $TEAMS; do
  uncounted "$team" || { failed=1; continue; }
  [ -z "$found" ] || printf '%s\n' "$found" | sed "s/^/|$team|/" >> "$HOME/before"
done
[ -s "$HOME/before" ] || exit $failed
[ -n "$admitted" ] || { echo "no Workload is admitted, as after a restore; no pod is deleted" >&2; exit 1; }
sleep "$PAUSE" # a controller may be about to delete them
for team in $(cut -d '|' -f 2 "$HOME/before" | sort -u); do
  uncounted "$team" || { failed=1; continue; }
  : > "$HOME/events"
  names='' last=''
  while IFS='|' read -r job name uid owner why; do
    grep -qF "|$team|$job|" "$HOME/before" || continue
    if [ -n "$name" ]; then
      names="$names $name"
      event UncountedGPUs "deleted: $why" v1 Pod "$name" "$uid"
    else # Kueue makes it again, and it waits; with an owner, Kueue does not let go of it, or its other pods run
      delete workloads.kueue.x-k8s.io "$job"
      event UncountedGPUs "deleted: $why" kueue.x-k8s.io/v1beta2 Workload "$job" -
    fi
    [ -n "$owner" ] && [ "$owner" != "$last" ] || continue
    last=$owner
    set -- $owner # kind, API version, name, uid
    type="$1.${2%/*}"
    case " $KINDS " in *" $type "*) ;; *) continue ;; esac
    [ "$(kubectl get "$type" "$3" --namespace "$team" --ignore-not-found --output jsonpath='{.metadata.uid}')" = "$4" ] || continue
    delete "$type" "$3"
    event UncountedGPUs "deleted: $why" "$2" "$1" "$3" "$4"
  done <<END
$found
END
  [ -z "$names" ] || delete pods $names
  [ ! -s "$HOME/events" ] || kubectl create --validate=false --filename "$HOME/events" > /dev/null || failed=1
done
exit $failed
