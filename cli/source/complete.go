// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/settings"
)

const (
	// shortTimeout bounds how long a user waits for a cluster that is not needed.
	shortTimeout = 3 * time.Second
	// maxCompletions bounds the names that a shell shows.
	maxCompletions = 500
)

// Type is a type of objects on the command line.
type Type struct {
	// Names are those that users type. Shells complete the first.
	Names []string
	kind  schema.GroupVersionKind
}

// The types on command lines, with the short names that the API server knows.
var (
	Pods            = Type{[]string{"pod", "pods", "po"}, corev1.SchemeGroupVersion.WithKind("Pod")}
	Jobs            = Type{[]string{"job", "jobs"}, batchv1.SchemeGroupVersion.WithKind("Job")}
	CronJobs        = Type{[]string{"cronjob", "cronjobs", "cj"}, batchv1.SchemeGroupVersion.WithKind("CronJob")}
	Policies        = Type{[]string{"policy", "policies", "stp"}, v1alpha1.GroupVersion.WithKind(string(resolve.KindNamespaced))}
	ClusterPolicies = Type{[]string{"clusterpolicy", "clusterpolicies", "cstp"}, v1alpha1.GroupVersion.WithKind(string(resolve.KindCluster))}
	namespaces      = Type{kind: corev1.SchemeGroupVersion.WithKind("Namespace")}
)

// HasName reports whether users may mean the type by the text.
func (t Type) HasName(text string) bool { return slices.Contains(t.Names, strings.ToLower(text)) }

// BindTo adds the flags to the command, and completes their values.
func (c *Connection) BindTo(command *cobra.Command) {
	c.Bind(command.Flags())
	complete := func(flag string, values func(context.Context) []string) {
		// It fails only for unknown flags, and those that are completed twice.
		_ = command.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return values(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
		})
	}
	for _, flag := range []string{"namespace", "operator-namespace"} {
		complete(flag, func(ctx context.Context) []string { return c.names(ctx, namespaces) })
	}
	config := func() api.Config {
		// Without a kubeconfig there are no names.
		config, _ := c.ToRawKubeConfigLoader().RawConfig()
		return config
	}
	complete("context", func(context.Context) []string { return slices.Sorted(maps.Keys(config().Contexts)) })
	complete("cluster", func(context.Context) []string { return slices.Sorted(maps.Keys(config().Clusters)) })
	complete("user", func(context.Context) []string { return slices.Sorted(maps.Keys(config().AuthInfos)) })
	for flag, values := range settings.Values() {
		if command.Flags().Lookup(flag) != nil {
			complete(flag, func(context.Context) []string { return values })
		}
	}
}

// Complete completes TYPE/NAME and TYPE NAME.
func (c *Connection) Complete(types ...Type) cobra.CompletionFunc {
	return func(cmd *cobra.Command, arguments []string, text string) ([]string, cobra.ShellCompDirective) {
		typed, _, separated := strings.Cut(text, "/")
		prefix := typed + "/"
		if !separated && len(arguments) > 0 && !strings.Contains(arguments[0], "/") {
			typed, prefix, separated = arguments[0], "", true
		}
		var all []string
		for _, t := range types {
			switch {
			case !separated:
				all = append(all, t.Names[0]+"/")
			case t.HasName(typed):
				for _, name := range c.names(cmd.Context(), t) {
					all = append(all, prefix+name)
				}
			}
		}
		if !separated {
			return all, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	}
}

// names returns the names of objects in the current namespace, as far as the cluster answers in time.
func (c *Connection) names(ctx context.Context, t Type) []string {
	c.LimitTime()
	timeout, err := clientcmd.ParseTimeout(*c.Timeout)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	namespace, _, err := c.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil
	}
	cluster, err := c.Connect()
	if err != nil {
		return nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(t.kind)
	// The client ignores the namespace for kinds without one.
	if cluster.List(ctx, list, client.InNamespace(namespace), client.Limit(maxCompletions)) != nil {
		return nil
	}
	names := make([]string, 0, len(list.Items))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}
