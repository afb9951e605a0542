"""Objects of one tenancy that agree with one another; cases take what they need of them."""

from typing import Final

from policy_builders import manifest

SERVER: Final = manifest("""
apiVersion: apps/v1
kind: Deployment
metadata:
  name: chat
  namespace: ml-serving
  labels: {app: chat, kueue.x-k8s.io/queue-name: serving, kueue.x-k8s.io/priority-class: ml-critical}
spec:
  selector: {matchLabels: {app: chat}}
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}
  template:
    metadata: {labels: {app: chat}}
    spec:
      priorityClassName: ml-critical
      containers:
      - name: server
        image: registry.example.com/ml/chat:1.4.2
        readinessProbe: {httpGet: {path: /ready, port: 8080}}
        livenessProbe: {httpGet: {path: /health, port: 8080}}
        resources: {requests: {nvidia.com/gpu: 2}, limits: {nvidia.com/gpu: 2}}
      - {name: metrics, image: "registry.example.com/ml/metrics:1.0.0"}
""")
SECOND: Final = manifest("""
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: rank, namespace: ml-serving, labels: {app: rank}}
spec:
  replicas: 2
  selector: {matchLabels: {app: rank}}
  template:
    metadata: {labels: {app: rank}}
    spec:
      priorityClassName: ml-critical
      containers:
      - name: server
        image: registry.example.com/ml/rank:1.4.2
        readinessProbe: {tcpSocket: {port: 8080}}
        livenessProbe: {tcpSocket: {port: 8080}}
        resources: {limits: {nvidia.com/gpu: 1}}
""")
AUTOSCALER: Final = manifest("""
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: chat, namespace: ml-serving}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: chat}
  minReplicas: 2
  maxReplicas: 5
""")
SCALED: Final = manifest("""
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: chat, namespace: ml-serving}
spec:
  scaleTargetRef: {name: chat}
  minReplicaCount: 2
  maxReplicaCount: 5
""")
BUDGET: Final = manifest("""
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: chat, namespace: ml-serving}
spec:
  maxUnavailable: 1
  selector: {matchLabels: {app: chat}}
""")
SECOND_BUDGET: Final = manifest("""
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: rank, namespace: ml-serving}
spec:
  maxUnavailable: 1
  selector: {matchLabels: {app: rank}}
""")
QUOTA: Final = manifest("""
apiVersion: v1
kind: ResourceQuota
metadata: {name: budget, namespace: ml-serving}
spec:
  hard: {requests.nvidia.com/gpu: 12, requests.cpu: 200, limits.memory: 1Ti}
""")
SCOPED: Final = manifest("""
apiVersion: v1
kind: ResourceQuota
metadata: {name: critical, namespace: ml-serving}
spec:
  hard: {pods: 20, cpu: 200, requests.nvidia.com/gpu: 12}
  scopeSelector:
    matchExpressions: [{scopeName: PriorityClass, operator: In, values: [ml-critical]}]
""")
LIMITS: Final = manifest("""
apiVersion: v1
kind: LimitRange
metadata: {name: containers, namespace: ml-serving}
spec:
  limits:
  - type: Container
    default: {cpu: 2, memory: 8Gi, nvidia.com/gpu: "0"}
    defaultRequest: {cpu: 1, memory: 4Gi, nvidia.com/gpu: "0"}
    max: {cpu: 32, nvidia.com/gpu: 8}
""")
CRITICAL: Final = manifest("""
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: ml-critical}
value: 1000000
""")
LOW: Final = manifest("""
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: ml-low}
value: 1000
globalDefault: true
""")
QUEUE_CLASS: Final = manifest("""
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: ml-critical}
value: 1000000
""")
TRAINING: Final = manifest("""
apiVersion: batch/v1
kind: Job
metadata: {name: nightly, namespace: ml-research}
spec:
  template:
    spec:
      priorityClassName: ml-low
      containers:
      - {name: train, image: "registry.example.com/ml/train:3.0.1", resources: {limits: {nvidia.com/gpu: 8}}}
""")
FLAVOR: Final = manifest("""
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: l4}
spec: {nodeLabels: {nvidia.com/gpu.product: NVIDIA-L4}}
""")
CLUSTER_QUEUE: Final = manifest("""
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: serving}
spec:
  cohortName: groups
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ml-serving}}
  preemption: {reclaimWithinCohort: Any, withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu, nvidia.com/gpu]
    flavors:
    - name: l4
      resources:
      - {name: cpu, nominalQuota: 100}
      - {name: nvidia.com/gpu, nominalQuota: 8, borrowingLimit: 4}
""")
LOCAL_QUEUE: Final = manifest("""
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: serving, namespace: ml-serving}
spec: {clusterQueue: serving}
""")
GROUPS: Final = manifest("""
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: groups}
spec:
  parentName: org
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: l4, resources: [{name: nvidia.com/gpu, nominalQuota: 0, borrowingLimit: 8}]}]
""")
ORG: Final = manifest("""
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: org}
spec: {}
""")
