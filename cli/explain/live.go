// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/podcache"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/scheme"
)

const (
	// mostPods is the highest number of pods of one Job with a full report.
	mostPods = 5
	// chunk is the number of objects that a list requests at once, as in kubectl.
	chunk = 500
)

// The resources of the policies, for which users have names that the API server does not know.
const (
	policies        = "sidecarterminationpolicies." + v1alpha1.GroupName
	clusterPolicies = "clustersidecarterminationpolicies." + v1alpha1.GroupName
)

// live explains objects of a cluster.
type live struct {
	*source.Source
	*result
	policies []explain.Policy // not explained yet
}

// live explains the objects that the arguments name, or every unfinished object of a type.
func (o *options) live(cmd *cobra.Command, arguments []string) (*result, error) {
	ctx := cmd.Context()
	s, namespace, err := o.connection.Open(ctx, o.now(), cmd.Flags(), o.allNamespaces)
	if err != nil {
		return nil, err
	}
	l := &live{Source: s, result: newResult()}
	l.brief = len(arguments) == 1 && !strings.Contains(arguments[0], "/")
	infos, err := o.read(arguments, namespace, l.brief)
	switch {
	case apierrors.IsNotFound(err) && !strings.HasPrefix(err.Error(), clusterPolicies):
		return nil, fmt.Errorf("%w in namespace %s", err, namespace)
	case err != nil:
		return nil, err
	}
	l.nothing = o.nothing(arguments[0], namespace)
	for _, info := range infos {
		if err := l.object(ctx, info); err != nil {
			return nil, err
		}
	}
	if err := l.explainPolicies(ctx, namespace); err != nil {
		return nil, err
	}
	l.result.Notes = append(l.result.Notes, s.Notes()...)
	return l.result, nil
}

// nothing says what was looked for in vain.
func (o *options) nothing(typed, namespace string) string {
	what, where := typed, " in namespace "+namespace
	switch {
	case source.Pods.HasName(typed):
		what = "unfinished pods"
	case source.Jobs.HasName(typed):
		what = "unfinished Jobs"
	case source.CronJobs.HasName(typed):
		what = "CronJobs"
	case source.Policies.HasName(typed):
		what = string(resolve.KindNamespaced)
	case source.ClusterPolicies.HasName(typed):
		what, where = string(resolve.KindCluster), ""
	}
	if o.allNamespaces && where != "" {
		where = " in any namespace"
	}
	if o.selector != "" {
		where = " with labels " + o.selector + where
	}
	return fmt.Sprintf("No %s found%s", what, where)
}

// read reads objects as kubectl get does.
func (o *options) read(arguments []string, namespace string, all bool) ([]*resource.Info, error) {
	types, err := scheme.New()
	if err != nil {
		return nil, err
	}
	named := slices.Clone(arguments)
	for i, argument := range named {
		typed, name, ok := strings.Cut(argument, "/")
		switch {
		case !ok && i > 0:
			continue
		case source.Policies.HasName(typed):
			typed = policies
		case source.ClusterPolicies.HasName(typed):
			typed = clusterPolicies
		}
		if named[i] = typed; ok {
			named[i] += "/" + name
		}
	}
	builder := resource.NewBuilder(o.connection).WithScheme(types, types.PrioritizedVersionsAllGroups()...).
		NamespaceParam(namespace).DefaultNamespace().AllNamespaces(o.allNamespaces).LabelSelectorParam(o.selector).
		ResourceTypeOrNameArgs(true, named...).RequestChunksOf(chunk).Flatten()
	if all && source.Pods.HasName(arguments[0]) {
		builder = builder.FieldSelectorParam(podcache.UnfinishedPods().String())
	}
	return builder.Do().Infos()
}

// object explains the object, unless it is finished and only one of all objects of its type.
func (l *live) object(ctx context.Context, info *resource.Info) error {
	switch object := info.Object.(type) {
	case *corev1.Pod:
		return l.add(l.podOf(ctx, object))
	case *batchv1.Job:
		if l.brief && source.FinalCondition(object) != nil {
			return nil
		}
		return l.job(ctx, object)
	case *batchv1.CronJob:
		return l.cronJob(ctx, object)
	case client.Object:
		if policy, ok := source.PolicyOf(object); ok {
			l.policies = append(l.policies, policy)
			return nil
		}
	}
	return fmt.Errorf("%s is not a type to explain; TYPE is pod, job, cronjob, policy or clusterpolicy", info.Mapping.GroupVersionKind.Kind)
}

// add explains the pod.
func (l *live) add(pod explain.Pod, err error) error {
	if err == nil {
		l.Pods = append(l.Pods, l.Explain(pod))
	}
	return err
}

// podOf reads the input for a pod. The brief output shows no events.
func (l *live) podOf(ctx context.Context, pod *corev1.Pod) (explain.Pod, error) {
	if l.brief {
		return l.Pod(ctx, pod)
	}
	return l.PodWithEvents(ctx, pod)
}

// job explains the Job's unfinished pods. Without one it explains the newest finished pod, and without any pod the template.
func (l *live) job(ctx context.Context, job *batchv1.Job) error {
	l.Jobs = append(l.Jobs, newJobReport(job))
	l.KnownJobs[job.UID] = job
	pods, err := l.PodsOf(ctx, job)
	if err != nil {
		return err
	}
	if len(pods) == 0 {
		return l.add(l.WithPolicies(ctx, source.OfJob(job)))
	}
	for i := range pods {
		switch {
		case i > 0 && l.brief && plan.HasTerminalPhase(&pods[i]):
			return nil
		case i > 0 && !l.brief && (plan.HasTerminalPhase(&pods[i]) || i >= mostPods):
			l.Jobs[len(l.Jobs)-1].NotShown = len(pods) - i
			return nil
		}
		if err := l.add(l.podOf(ctx, &pods[i])); err != nil {
			return err
		}
	}
	return nil
}

// cronJob explains the template, and the active Jobs if the CronJob was named.
func (l *live) cronJob(ctx context.Context, cron *batchv1.CronJob) error {
	if err := l.add(l.WithPolicies(ctx, source.OfCronJob(cron))); err != nil || l.brief {
		return err
	}
	for _, active := range cron.Status.Active {
		job := &batchv1.Job{}
		switch err := l.Client.Get(ctx, client.ObjectKey{Namespace: cron.Namespace, Name: active.Name}, job); {
		case client.IgnoreNotFound(err) != nil:
			return fmt.Errorf("get Job: %w", err)
		case err != nil:
			continue
		}
		if err := l.job(ctx, job); err != nil {
			return err
		}
	}
	return nil
}

// explainPolicies explains the policies and the unfinished pods that they select. It reads each pod of the namespace once.
func (l *live) explainPolicies(ctx context.Context, namespace string) error {
	if len(l.policies) == 0 {
		return nil
	}
	if slices.ContainsFunc(l.policies, func(p explain.Policy) bool { return p.Ref.Kind == resolve.KindCluster }) {
		namespace = ""
	}
	pods, err := l.UnfinishedPods(ctx, namespace)
	if err != nil {
		return err
	}
	var reports []explain.Report
	for i := range pods {
		pod, err := l.Pod(ctx, &pods[i])
		if err != nil {
			return err
		}
		reports = append(reports, l.Explain(pod))
	}
	for _, policy := range l.policies {
		l.Policies = append(l.Policies, explain.DescribePolicy(policy, reports, l.Settings.Decisions, l.Cluster))
	}
	return nil
}
