// Command chart renders one Helm chart with Helm's own engine. It reads a JSON object from its input, and writes the
// chart's objects as a JSON list. Definitions in the folder `crds` are not rendered, as in Helm.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"sort"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	dependencies "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

type release struct {
	Chart       string         `json:"chart"`
	Name        string         `json:"name"`
	Namespace   string         `json:"namespace"`
	Kubernetes  string         `json:"kubernetes"`
	APIVersions []string       `json:"apiVersions"`
	Values      map[string]any `json:"values"`
}

func main() {
	var wanted release
	if err := json.NewDecoder(os.Stdin).Decode(&wanted); err != nil {
		fail(err)
	}
	objects, err := render(wanted)
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(objects); err != nil {
		fail(err)
	}
}

func render(wanted release) ([]map[string]any, error) {
	chart, err := loader.Load(wanted.Chart)
	if err != nil {
		return nil, err
	}
	if err := dependencies.ProcessDependencies(chart, wanted.Values); err != nil {
		return nil, err
	}
	version, err := common.ParseKubeVersion(wanted.Kubernetes)
	if err != nil {
		return nil, err
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	capabilities.APIVersions = append(capabilities.APIVersions, wanted.APIVersions...)
	options := common.ReleaseOptions{Name: wanted.Name, Namespace: wanted.Namespace, IsInstall: true, Revision: 1}
	values, err := util.ToRenderValues(chart, wanted.Values, options, capabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, values)
	if err != nil {
		return nil, err
	}
	return objectsOf(files)
}

func objectsOf(files map[string]string) ([]map[string]any, error) {
	names := make([]string, 0, len(files))
	for name := range files {
		if !strings.HasPrefix(path.Base(name), "_") && path.Ext(name) != ".txt" {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	objects := []map[string]any{}
	for _, name := range names {
		decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(files[name]), 4096)
		for {
			var object map[string]any
			if err := decoder.Decode(&object); err != nil {
				if errors.Is(err, io.EOF) {
					break
				}
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if len(object) > 0 {
				objects = append(objects, object)
			}
		}
	}
	return objects, nil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
