// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // the authentication plugins of kubectl
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/optionalkind"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/scheme"
	"github.com/sidecar-termination/operator/internal/settings"
	"github.com/sidecar-termination/operator/internal/terminator/crr"
)

// Connection has the flags of kubectl and the namespace of the operator.
type Connection struct {
	*genericclioptions.ConfigFlags
	OperatorNamespace string
}

// NewConnection returns a connection with default flags.
func NewConnection() *Connection {
	return &Connection{ConfigFlags: genericclioptions.NewConfigFlags(true)}
}

// Bind adds the flags.
func (c *Connection) Bind(flags *pflag.FlagSet) {
	c.AddFlags(flags)
	flags.StringVar(&c.OperatorNamespace, "operator-namespace", "", "namespace of the operator, whose flags are read from its Deployment; default "+
		settings.Namespace+", and for check and version any other in which there is one")
}

// LimitTime limits the time of requests, unless the user does.
func (c *Connection) LimitTime() {
	if *c.Timeout == "0" {
		c.Timeout = new(shortTimeout.String())
	}
}

// Connect returns a client without a cache.
func (c *Connection) Connect() (client.Client, error) {
	config, err := c.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("find a cluster: %w", err)
	}
	if raw, err := c.ToRawKubeConfigLoader().RawConfig(); err == nil && len(raw.Clusters) == 0 && strings.HasSuffix(config.Host, "localhost:8080") {
		return nil, errors.New("find a cluster: there is no kubeconfig; set --kubeconfig, KUBECONFIG or --server")
	}
	// Commands are short and read many objects at once.
	config.QPS, config.Burst = 100, 300
	config.WarningHandler = rest.NoWarnings{}
	known, err := scheme.New()
	if err != nil {
		return nil, err
	}
	direct, err := client.New(config, client.Options{Scheme: known})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	return direct, nil
}

// Open connects, and reads the operator's flags, OpenKruise and the nodes. Flags on the command line override the operator's flags. The
// namespace is the current one, or empty for all.
func (c *Connection) Open(ctx context.Context, now time.Time, flags *pflag.FlagSet, allNamespaces bool) (s *Source, namespace string, err error) {
	if namespace, _, err = c.ToRawKubeConfigLoader().Namespace(); err != nil {
		return nil, "", fmt.Errorf("read the kubeconfig: %w", err)
	}
	if allNamespaces {
		namespace = ""
	}
	s = &Source{now: now, KnownJobs: map[types.UID]*batchv1.Job{}}
	if s.Client, err = c.Connect(); err != nil {
		return nil, "", err
	}
	s.Reader = &tolerantReader{Reader: s.Client, note: s.note, known: map[string]answer{}}
	arguments, err := s.operatorArguments(ctx, cmp.Or(c.OperatorNamespace, settings.Namespace))
	if err != nil {
		return nil, "", err
	}
	if s.Settings, err = settings.ParseWith(arguments, flags); err != nil {
		return nil, "", fmt.Errorf("read the flags of the operator: %w", err)
	}
	if !s.Settings.Capabilities.NamespacesOnly { // such an operator does not use OpenKruise
		kruise, err := KruiseServes(ctx, s.Client)
		if err != nil {
			return nil, "", err
		}
		s.Cluster.Kruise = &kruise.Usable
		if kruise.Note != "" {
			s.note("%s", kruise.Note)
		}
	}
	return s, namespace, s.readNodes(ctx)
}

// FoundOperator is the operator's Deployment, or nil, and where it was searched for.
type FoundOperator struct {
	Deployment *appsv1.Deployment
	Where      string
	// Others are the namespaces of further operators.
	Others []string
}

// FindOperator finds the operator in its namespace. Unless the user has named that, it may be any: anybody can create a Deployment that
// looks like an operator, so commands that write must not use it. Who may list the Deployments of the usual namespace only finds that one.
func (c *Connection) FindOperator(ctx context.Context, reader client.Reader) (FoundOperator, error) {
	usual := cmp.Or(c.OperatorNamespace, settings.Namespace)
	found := FoundOperator{Where: "namespace " + usual}
	all, err := operators(ctx, reader, c.OperatorNamespace)
	if apierrors.IsForbidden(err) && c.OperatorNamespace == "" {
		all, err = operators(ctx, reader, usual)
	} else if c.OperatorNamespace == "" {
		found.Where = "any namespace"
	}
	if err != nil || len(all) == 0 {
		return found, err
	}
	i := max(0, slices.IndexFunc(all, func(d appsv1.Deployment) bool { return d.Namespace == usual }))
	found.Deployment = &all[i]
	for _, other := range slices.Delete(slices.Clone(all), i, i+1) {
		found.Others = append(found.Others, other.Namespace)
	}
	return found, nil
}

// operators lists the operator's Deployments in a namespace, or in all.
func operators(ctx context.Context, reader client.Reader, namespace string) ([]appsv1.Deployment, error) {
	var deployments appsv1.DeploymentList
	if err := reader.List(ctx, &deployments, client.InNamespace(namespace), OperatorLabels); err != nil {
		return nil, fmt.Errorf("list Deployments: %w", err)
	}
	return slices.DeleteFunc(deployments.Items, func(d appsv1.Deployment) bool {
		_, ok := OperatorArguments(&d)
		return !ok
	}), nil
}

func (s *Source) operatorArguments(ctx context.Context, namespace string) ([]string, error) {
	found, err := operators(ctx, s.Client, namespace)
	switch {
	case apierrors.IsForbidden(err):
		s.note("you may not read Deployments in namespace %s: the operator's default flags are assumed", namespace)
		return nil, nil
	case err != nil:
		return nil, err
	case len(found) == 0:
		s.note("no operator found in namespace %s (--operator-namespace): its default flags are assumed", namespace)
		return nil, nil
	}
	arguments, _ := OperatorArguments(&found[0])
	return arguments, nil
}

// readNodes finds out whether the cluster has virtual and daemonless nodes. Missing permission is not an error.
func (s *Source) readNodes(ctx context.Context) error {
	if s.Settings.NodeKindRules.All != "" {
		return nil
	}
	var nodes corev1.NodeList
	switch err := s.Client.List(ctx, &nodes); {
	case apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return fmt.Errorf("list nodes: %w", err)
	}
	has := func(kind plan.NodeKind) *bool {
		return new(slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return s.Settings.NodeKindRules.Classify(&n) == kind }))
	}
	s.Cluster.VirtualNodes, s.Cluster.DaemonlessNodes = has(plan.NodeVirtual), has(plan.NodeDaemonless)
	return nil
}

// Kruise is the state of OpenKruise.
type Kruise struct {
	// Defined is true if CRRs are served, and Guarded if they pass the webhook. Usable means both.
	Defined, Guarded, Usable bool
	// Note is an assumption about what could not be read, or empty.
	Note string
}

// KruiseServes reports whether OpenKruise is usable, by the rules of the operator.
func KruiseServes(ctx context.Context, reader client.Client) (Kruise, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	err := reader.Get(ctx, client.ObjectKey{Name: crr.DefinitionName}, definition)
	var k Kruise
	switch {
	case apierrors.IsForbidden(err):
		k.Defined = crr.IsServed(reader.RESTMapper())
	case client.IgnoreNotFound(err) != nil:
		return k, fmt.Errorf("get OpenKruise: %w", err)
	default:
		k.Defined = err == nil && optionalkind.IsEstablished(*definition)
	}
	configuration := &admissionv1.MutatingWebhookConfiguration{}
	err = reader.Get(ctx, client.ObjectKey{Name: crr.WebhookConfigurationName}, configuration)
	switch {
	case apierrors.IsForbidden(err):
		k.Guarded, k.Note = true, "you may not read webhook configurations: OpenKruise's webhook is assumed to be installed"
	case client.IgnoreNotFound(err) != nil:
		return k, fmt.Errorf("get OpenKruise: %w", err)
	default:
		k.Guarded = err == nil && crr.GuardsCRRs(*configuration)
	}
	if k.Usable = k.Defined && k.Guarded; !k.Defined {
		k.Note = ""
	}
	return k, nil
}
