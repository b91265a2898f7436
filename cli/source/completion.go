// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// completionTimeout bounds how long a shell waits.
const completionTimeout = 3 * time.Second

// complete registers completions for the flags from the kubeconfig and the cluster. Without them there are no completions.
func (c *Connection) complete(flags *pflag.FlagSet) {
	// Cobra keeps completions by flag, so any command with these flags will do.
	command := &cobra.Command{}
	command.Flags().AddFlagSet(flags)
	for flag, offered := range map[string]func(context.Context) []string{
		"namespace":          c.namespaces,
		"operator-namespace": c.namespaces,
		"context":            func(context.Context) []string { return slices.Sorted(maps.Keys(c.kubeconfig().Contexts)) },
		"cluster":            func(context.Context) []string { return slices.Sorted(maps.Keys(c.kubeconfig().Clusters)) },
		"user":               func(context.Context) []string { return slices.Sorted(maps.Keys(c.kubeconfig().AuthInfos)) },
	} {
		_ = command.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return offered(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
		})
	}
}

func (c *Connection) kubeconfig() clientcmdapi.Config {
	config, err := c.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return clientcmdapi.Config{}
	}
	return config
}

// UnfinishedPods returns the unfinished pods of the current namespace as pod/NAME, or nothing if the cluster does not answer.
func (c *Connection) UnfinishedPods(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	namespace, err := c.CurrentNamespace()
	if err != nil {
		return nil
	}
	cluster, err := c.Connect()
	if err != nil {
		return nil
	}
	pods, err := cluster.UnfinishedPods(ctx, namespace)
	if err != nil {
		return nil
	}
	var names []string
	for i := range pods {
		names = append(names, "pod/"+pods[i].Name)
	}
	return names
}

func (c *Connection) namespaces(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	cluster, err := c.Connect()
	if err != nil {
		return nil
	}
	var list corev1.NamespaceList
	if err := cluster.Client.List(ctx, &list); err != nil {
		return nil
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}
