set -u
failed=0
first='.status.containerStatuses[0]'
row="{.metadata.ownerReferences[0].name}|{.status.startTime}|{$first.ready}|{$first.state.running.startedAt}"'{"\n"}'
for entry in $TEAMS; do
  team=${entry%%=*}
  pods=$(kubectl get pods --namespace "$team" --selector gpu-tenancy.dev/notebook \
    --output jsonpath="{range .items[*]}$row{end}") || { failed=1; continue; }
  stopped=$(printf '%s\n' "$pods" | awk -F'|' -v longest="$(before "${entry#*=}")" -v settled="$(before 600)" \
    '$2 != "" && $2 < longest || $3 == "false" && $4 != "" && $4 < settled { print $1 }')
  for notebook in $stopped; do
    case $notebook in
      -* | *[!a-z0-9.-]*) ;; # a pod of a user, whose owner nobody has checked
      *) kubectl scale statefulset "$notebook" --namespace "$team" --replicas=0 || failed=1 ;;
    esac
  done
done
exit $failed
