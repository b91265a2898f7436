// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// workload is what the user asks about. Without a name it is every object of the kind.
type workload struct {
	kind kind
	name string
}

// kind is a kind of object that the command explains.
type kind string

const (
	kindPod           kind = "pod"
	kindJob           kind = "job"
	kindCronJob       kind = "cronjob"
	kindPolicy        kind = "policy"
	kindClusterPolicy kind = "clusterpolicy"
)

var kinds = []kind{kindPod, kindJob, kindCronJob, kindPolicy, kindClusterPolicy}

// namesOfKinds are alternative names of the kinds.
var namesOfKinds = map[kind][]string{
	kindPod:           {"po", "pods"},
	kindJob:           {"jobs"},
	kindCronJob:       {"cj", "cronjobs"},
	kindPolicy:        {"stp", "policies", "sidecarterminationpolicy", "sidecarterminationpolicies"},
	kindClusterPolicy: {"cstp", "clusterpolicies", "clustersidecarterminationpolicy", "clustersidecarterminationpolicies"},
}

// offeredTypes are the types for the completion of arguments.
func offeredTypes() []cobra.Completion {
	var offered []cobra.Completion
	for _, of := range kinds {
		offered = append(offered, string(of)+"/")
	}
	return offered
}

// parseSubjects reads TYPE/NAME..., TYPE NAME... and TYPE.
func parseWorkloads(arguments []string) ([]workload, error) {
	if len(arguments) == 0 {
		return nil, errors.New("specify what to explain: TYPE/NAME such as job/report, or -f FILE, or -k DIRECTORY")
	}
	if !strings.Contains(arguments[0], "/") {
		of, err := parseKind(arguments[0])
		if err != nil {
			return nil, err
		}
		if len(arguments) == 1 {
			return []workload{{kind: of}}, nil
		}
		var workloads []workload
		for _, name := range arguments[1:] {
			if strings.Contains(name, "/") {
				return nil, fmt.Errorf("%q is TYPE/NAME and cannot follow TYPE", name)
			}
			workloads = append(workloads, workload{of, name})
		}
		return workloads, nil
	}
	var workloads []workload
	for _, argument := range arguments {
		typed, name, ok := strings.Cut(argument, "/")
		if !ok || name == "" {
			return nil, fmt.Errorf("%q is not TYPE/NAME", argument)
		}
		of, err := parseKind(typed)
		if err != nil {
			return nil, err
		}
		workloads = append(workloads, workload{of, name})
	}
	return workloads, nil
}

func parseKind(text string) (kind, error) {
	name := strings.TrimSuffix(strings.ToLower(text), "."+v1alpha1.GroupName)
	name = strings.TrimSuffix(name, ".batch")
	for _, of := range kinds {
		if name == string(of) || slices.Contains(namesOfKinds[of], name) {
			return of, nil
		}
	}
	return "", fmt.Errorf("unknown type %q; TYPE is pod, job, cronjob, policy or clusterpolicy", text)
}
