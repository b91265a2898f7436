// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
)

// mostPods is the highest number of pods of one Job with a full report.
const mostPods = 5

// live explains objects of a cluster.
type live struct {
	*source.Live
	source    *source.Source
	namespace string // empty for all namespaces
}

func (o *options) runLive(cmd *cobra.Command, workloads []workload) error {
	namespace, err := o.connection.CurrentNamespace()
	if err != nil {
		return err
	}
	if o.allNamespaces {
		if workloads[0].name != "" {
			return errors.New("--all-namespaces requires a TYPE without a name")
		}
		namespace = ""
	}
	cluster, err := o.connection.Connect()
	if err != nil {
		return err
	}
	first, err := cluster.Source(cmd.Context(), o.program, cmd.Flags())
	if err != nil {
		return err
	}
	l := &live{Live: cluster, source: first, namespace: namespace}
	r, err := l.gather(cmd.Context(), workloads)
	if err != nil {
		return err
	}
	if err := r.write(cmd.OutOrStdout(), o.format); err != nil {
		return err
	}
	return o.failOn.Judge(r.worst())
}

// gather explains the workloads.
func (l *live) gather(ctx context.Context, workloads []workload) (*result, error) {
	r := newResult()
	for _, of := range workloads {
		var err error
		switch {
		case of.name == "":
			r.brief = true
			err = l.all(ctx, r, of.kind)
		case of.kind == kindPod:
			err = l.pod(ctx, r, of.name)
		case of.kind == kindJob:
			err = l.job(ctx, r, of.name)
		case of.kind == kindCronJob:
			err = l.cronJob(ctx, r, of.name)
		default:
			err = l.policy(ctx, r, of)
		}
		if err != nil {
			return nil, err
		}
	}
	r.Notes = append(r.Notes, l.source.Notes()...)
	return r, nil
}

func (l *live) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: l.namespace, Name: name}
}

func (l *live) pod(ctx context.Context, r *result, name string) error {
	pod, err := l.GetPod(ctx, l.source, l.key(name))
	if err != nil {
		return err
	}
	return l.add(ctx, r, pod)
}

// add explains the pod. The brief output does not say why policies do not select it.
func (l *live) add(ctx context.Context, r *result, pod explain.Pod) error {
	if !r.brief {
		if err := l.source.AddNotSelecting(ctx, &pod); err != nil {
			return err
		}
	}
	r.Pods = append(r.Pods, l.source.Explain(pod))
	return nil
}

func (l *live) addTemplate(ctx context.Context, r *result, template source.Template) error {
	pod, err := l.source.Template(ctx, template)
	if err != nil {
		return err
	}
	return l.add(ctx, r, pod)
}

func (l *live) job(ctx context.Context, r *result, name string) error {
	job := &batchv1.Job{}
	if err := l.Client.Get(ctx, l.key(name), job); err != nil {
		return fmt.Errorf("get Job: %w", err)
	}
	return l.addJob(ctx, r, job)
}

// addJob explains the Job's unfinished pods. Without one it explains the newest finished pod, and without any pod the template.
func (l *live) addJob(ctx context.Context, r *result, job *batchv1.Job) error {
	r.Jobs = append(r.Jobs, newJobReport(job))
	pods, err := l.PodsOf(ctx, job)
	if err != nil {
		return err
	}
	if len(pods) == 0 {
		return l.addTemplate(ctx, r, source.OfJob(job))
	}
	for i := range pods {
		switch {
		case i > 0 && r.brief && plan.HasTerminalPhase(&pods[i]):
			return nil
		case i > 0 && !r.brief && (plan.HasTerminalPhase(&pods[i]) || i >= mostPods):
			r.Notes = append(r.Notes, fmt.Sprintf("%d more pods of Job %s are not shown: explain them by name", len(pods)-i, job.Name))
			return nil
		}
		pod, err := l.podOf(ctx, &pods[i], job, r.brief)
		if err != nil {
			return err
		}
		if err := l.add(ctx, r, pod); err != nil {
			return err
		}
	}
	return nil
}

// podOf reads the input for a pod of the Job. The brief output shows no events.
func (l *live) podOf(ctx context.Context, pod *corev1.Pod, job *batchv1.Job, brief bool) (explain.Pod, error) {
	if brief {
		return l.source.Pod(ctx, pod, job)
	}
	return l.PodWithEvents(ctx, l.source, pod, job)
}

func (l *live) cronJob(ctx context.Context, r *result, name string) error {
	cron := &batchv1.CronJob{}
	if err := l.Client.Get(ctx, l.key(name), cron); err != nil {
		return fmt.Errorf("get CronJob: %w", err)
	}
	if err := l.addTemplate(ctx, r, source.OfCronJob(cron)); err != nil {
		return err
	}
	for _, active := range cron.Status.Active {
		if err := l.job(ctx, r, active.Name); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// all explains every unfinished object of the kind.
func (l *live) all(ctx context.Context, r *result, of kind) error {
	switch of {
	case kindPod:
		return l.allPods(ctx, r)
	case kindJob:
		var jobs batchv1.JobList
		if err := l.Client.List(ctx, &jobs, client.InNamespace(l.namespace)); err != nil {
			return fmt.Errorf("list Jobs: %w", err)
		}
		for i := range jobs.Items {
			if source.FinalCondition(&jobs.Items[i]) != nil {
				continue
			}
			if err := l.addJob(ctx, r, &jobs.Items[i]); err != nil {
				return err
			}
		}
		return nil
	case kindCronJob:
		var crons batchv1.CronJobList
		if err := l.Client.List(ctx, &crons, client.InNamespace(l.namespace)); err != nil {
			return fmt.Errorf("list CronJobs: %w", err)
		}
		for i := range crons.Items {
			if err := l.addTemplate(ctx, r, source.OfCronJob(&crons.Items[i])); err != nil {
				return err
			}
		}
		return nil
	}
	return l.listPolicies(ctx, r, of)
}

func (l *live) allPods(ctx context.Context, r *result) error {
	pods, err := l.UnfinishedPods(ctx, l.namespace)
	if err != nil {
		return err
	}
	for i := range pods {
		pod, err := l.source.Pod(ctx, &pods[i], nil)
		if err != nil {
			return err
		}
		if err := l.add(ctx, r, pod); err != nil {
			return err
		}
	}
	return nil
}
