set -eu
snapshots=volumesnapshots.snapshot.storage.k8s.io
kubectl create --namespace "$TEAM" --filename - <<END
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata:
  name: "$CLAIM-$(date -u +%Y%m%d-%H%M%S)"
  labels: {gpu-tenancy.dev/snapshot-of: "$CLAIM"}
spec:
  volumeSnapshotClassName: "$CLASS"
  source: {persistentVolumeClaimName: "$CLAIM"}
END
row='{.metadata.name}|{.status.readyToUse}|{.status.boundVolumeSnapshotContentName}{"\n"}'
taken=$(kubectl get "$snapshots" --namespace "$TEAM" --selector "gpu-tenancy.dev/snapshot-of=$CLAIM" \
  --output jsonpath="{range .items[*]}$row{end}")
old=$(printf '%s\n' "$taken" | sort -r | awk -F'|' -v keep="$KEEP" \
  'NF == 3 && ($2 == "true" ? ++complete : ++incomplete) > keep { print $1 "|" $3 }')
for snapshot in $old; do
  content=${snapshot#*|}
  if [ "$KEPT" = true ] && [ -n "$content" ]; then
    kubectl patch volumesnapshotcontents.snapshot.storage.k8s.io --type merge \
      --patch '{"spec":{"deletionPolicy":"Delete"}}' -- "$content"
  fi
  kubectl delete "$snapshots" "${snapshot%%|*}" --namespace "$TEAM" --wait=false
done
