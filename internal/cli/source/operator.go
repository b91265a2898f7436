// SPDX-License-Identifier: Apache-2.0

package source

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/explain"
)

// Operator knows the flags of the operator, and how it is called.
type Operator struct {
	// Bind adds those flags that bear on decisions.
	Bind func(flags *pflag.FlagSet)
	// Parse makes settings of the operator's arguments. Arguments that bear on nothing else are passed over.
	Parse func(arguments []string) (explain.OperatorSettings, error)
	// Now tells the time.
	Now func() time.Time
	// Program is how users call the program whose subcommand looks. Messages have them run others of its subcommands.
	Program string
}

// OperatorNamespace is where the operator's manifests install it.
const OperatorNamespace = "sidecar-termination-system"

// OperatorLabels are those of the operator's Deployment and of its pods.
var OperatorLabels = client.MatchingLabels{"app.kubernetes.io/name": "sidecar-termination-operator"}

// operatorContainer is the name of the operator's container.
const operatorContainer = "manager"

// OperatorArguments returns the arguments that the operator runs with, its variables put in as Kubernetes does, and false
// where the Deployment is not one of the operator.
func OperatorArguments(deployment *appsv1.Deployment) ([]string, bool) {
	containers := deployment.Spec.Template.Spec.Containers
	i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == operatorContainer })
	if i < 0 {
		return nil, false
	}
	values := map[string]string{}
	for _, variable := range containers[i].Env {
		if variable.ValueFrom == nil {
			values[variable.Name] = expand(variable.Value, values)
		}
	}
	var arguments []string
	for _, argument := range slices.Concat(containers[i].Command[min(len(containers[i].Command), 1):], containers[i].Args) {
		arguments = append(arguments, expand(argument, values))
	}
	return arguments, true
}

var reference = regexp.MustCompile(`\$\$|\$\(([^()]*)\)`)

// expand puts values in for $(NAME); an unknown name stays as it is, and $$ is a dollar sign.
func expand(text string, values map[string]string) string {
	return reference.ReplaceAllStringFunc(text, func(found string) string {
		if found == "$$" {
			return "$"
		}
		if value, ok := values[found[2:len(found)-1]]; ok {
			return value
		}
		return found
	})
}

// given returns the flags that were given on the command line, as arguments of the operator.
func (o Operator) given(flags *pflag.FlagSet) []string {
	own := pflag.NewFlagSet("operator", pflag.ContinueOnError)
	o.Bind(own)
	var arguments []string
	flags.Visit(func(flag *pflag.Flag) {
		if own.Lookup(flag.Name) == nil {
			return
		}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			for _, value := range list.GetSlice() {
				arguments = append(arguments, fmt.Sprintf("--%s=%s", flag.Name, value))
			}
			return
		}
		arguments = append(arguments, fmt.Sprintf("--%s=%s", flag.Name, flag.Value))
	})
	return arguments
}
