// Command pulumi-resource-kubernetes is Pulumi's Kubernetes provider. Its schema is for code generators and `pulumi schema`:
// the engine does not read it, so one without resources is enough.
package main

import "github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"

// version is the release after which the state of go.mod was committed.
const version = "4.25.0"

func main() {
	provider.Serve("kubernetes", version, []byte(`{"name": "kubernetes"}`), nil)
}
