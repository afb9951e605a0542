# shellcheck disable=SC2154,SC3045 # scripts that begin with this have $team; its shell is of busybox
# Tenants can make what kubectl reads larger than the container's memory: it alone ends then, and other teams come next.
ulimit -d 200000
before() { date -u -d "@$(($(date +%s) - $1))" +%Y-%m-%dT%H:%M:%SZ; } # the time some seconds ago
event() { # reason, message, apiVersion, kind, name, uid
  cat >> "$HOME/events" <<END
---
apiVersion: v1
kind: Event
metadata: {generateName: "$5.", namespace: "$team"}
involvedObject: {apiVersion: "$3", kind: "$4", name: "$5", namespace: "$team"$([ "$6" = - ] || echo ", uid: \"$6\"")}
type: Warning
reason: $1
message: "$2"
source: {component: gpu-tenancy}
reportingComponent: gpu-tenancy
firstTimestamp: &now "$(date +%Y-%m-%dT%H:%M:%SZ)"
lastTimestamp: *now
count: 1
END
}
