// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// completionTimeout bounds how long a shell waits.
const completionTimeout = 3 * time.Second

// complete offers types, and after a type the names of objects.
func (o *options) complete(cmd *cobra.Command, arguments []string, typed string) ([]string, cobra.ShellCompDirective) {
	typeName, _, slash := strings.Cut(typed, "/")
	switch {
	case slash:
		of, err := parseKind(typeName)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return o.names(cmd.Context(), of, typeName+"/"), cobra.ShellCompDirectiveNoFileComp
	case len(arguments) > 0 && !strings.Contains(arguments[0], "/"):
		of, err := parseKind(arguments[0])
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return o.names(cmd.Context(), of, ""), cobra.ShellCompDirectiveNoFileComp
	}
	var offered []string
	for _, of := range kinds {
		offered = append(offered, string(of)+"/")
	}
	return offered, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// names lists the objects of the kind, or nothing if the cluster does not answer.
func (o *options) names(ctx context.Context, of kind, prefix string) []string {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	namespace, err := o.connection.CurrentNamespace()
	if err != nil {
		return nil
	}
	cluster, err := o.connection.Connect()
	if err != nil {
		return nil
	}
	list := map[kind]client.ObjectList{
		kindPod: &corev1.PodList{}, kindJob: &batchv1.JobList{}, kindCronJob: &batchv1.CronJobList{},
		kindPolicy: &v1alpha1.SidecarTerminationPolicyList{}, kindClusterPolicy: &v1alpha1.ClusterSidecarTerminationPolicyList{},
	}[of]
	if of == kindClusterPolicy {
		namespace = ""
	}
	if err := cluster.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return nil
	}
	var offered []string
	for _, object := range objects {
		if named, ok := object.(client.Object); ok {
			offered = append(offered, prefix+named.GetName())
		}
	}
	return offered
}
