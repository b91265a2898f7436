// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/localcluster/cluster"
	"github.com/sidecar-termination/operator/hack/localcluster/components"
	"github.com/sidecar-termination/operator/hack/localcluster/images"
	operatorsettings "github.com/sidecar-termination/operator/internal/settings"
)

// Completion has the figures of all Jobs on kubelets with one contender.
type Completion struct {
	Contender Contender `json:"contender"`
	// AtOnce is how many Jobs were created at once, and Jobs how many in all.
	AtOnce int `json:"atOnce"`
	Jobs   int `json:"jobs"`
	// P50 are medians of the milliseconds from the end of the main container until the benchmark sees each step, and P99 is for
	// the last one.
	P50 map[step]float64 `json:"p50Milliseconds"`
	P99 float64          `json:"p99Milliseconds"`
	// Reversals counts changes of a terminal phase, and Wrong Jobs whose outcome differs from their main container's.
	Reversals int `json:"phaseReversals"`
	Wrong     int `json:"wrongOutcomes"`
	// Problems describe the first Jobs with either.
	Problems []string `json:"problems,omitempty"`

	times map[step][]time.Duration
}

// maxProblems is how many problems are kept.
const maxProblems = 10

// add adds Jobs that have been watched.
func (c *Completion) add(records jobRecords) {
	c.Jobs += len(records)
	for name, record := range records {
		c.Reversals += record.reversals
		if record.wrong() {
			c.Wrong++
		}
		if (record.wrong() || record.reversals > 0) && len(c.Problems) < maxProblems {
			c.Problems = append(c.Problems, fmt.Sprintf("Job %s: result %q, phase %s after %d reversals, main container fails %t, ran again %t",
				name, record.result, record.phase, record.reversals, record.fails, record.again))
		}
		for seen, at := range record.at {
			if record.ended > 0 {
				c.times[seen] = append(c.times[seen], at-record.ended)
			}
		}
	}
	c.P50 = map[step]float64{}
	for seen, times := range c.times {
		slices.Sort(times)
		c.P50[seen] = milliseconds(percentile(times, 50))
	}
	if times := c.times[stepJob]; len(times) > 0 {
		c.P99 = milliseconds(percentile(times, 99))
	}
}

// failure is an error if this operator caused a phase reversal or a wrong outcome.
func (c *Completion) failure() error {
	if c.Reversals+c.Wrong == 0 || !strings.HasPrefix(string(c.Contender), string(ContenderOperator)) {
		return nil
	}
	return fmt.Errorf("%s: %d Jobs with %d phase reversals and %d wrong outcomes: %s", c.Contender, c.Jobs, c.Reversals, c.Wrong, strings.Join(c.Problems, "; "))
}

const (
	// reversalJobsAtOnce is how many Jobs of the part reversals exist at once, and busyLoops how many CPUs are kept busy.
	reversalJobsAtOnce = 30
	busyLoops          = 2
	// mainSeconds is how long main containers run, and graceSeconds when sidecars that ignore SIGTERM are killed.
	mainSeconds  = 3
	graceSeconds = 5
)

// terminations are the settings of the policies. Pods of kruise declare their sidecars by a variable, which this operator reads
// as well: a policy that lets sidecars drain for longer than the benchmark takes keeps it away.
var terminations = map[Contender]v1alpha1.TerminationSettings{
	ContenderOperator:   {},
	ContenderPodPhase:   {Mode: v1alpha1.ModePodPhase},
	ContenderCRR:        {Mode: v1alpha1.ModeCRR},
	ContenderCRRRespect: {Mode: v1alpha1.ModeCRR, ExitCodes: v1alpha1.ExitCodesRespect},
	ContenderImage:      {Mode: v1alpha1.ModeImage, Image: images.QuickExitReference},
	ContenderKruise:     {DrainSeconds: ptr.To[int32](86400)},
}

// completions measures Jobs from the end of their main containers.
func (x *session) completions(ctx context.Context, e *environment) error {
	s := x.settings
	return x.completeJobs(ctx, e, partCompletion, s.only(onKubelets), s.completionJobs, s.completionJobs*s.completionRuns)
}

// reversals looks for phase reversals and wrong outcomes while the CPUs are busy.
func (x *session) reversals(ctx context.Context, e *environment) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for range busyLoops {
		go func() {
			for ctx.Err() == nil {
			}
		}()
	}
	return x.completeJobs(ctx, e, partReversals, []Contender{ContenderOperator}, reversalJobsAtOnce, x.settings.reversalJobs)
}

// onCluster measures on the local cluster. The operator that it runs must be the one of this repository.
func (x *session) onCluster(ctx context.Context, measure func(ctx context.Context, e *environment) error) error {
	config, err := clientcmd.BuildConfigFromFlags("", x.directories.AdminKubeconfig())
	if err != nil {
		return fmt.Errorf("find the local cluster (make cluster-up cluster-deploy): %w", err)
	}
	e := &environment{}
	if err := e.connect(config); err != nil {
		return err
	}
	c, err := reporters(config)
	if err != nil {
		return err
	}
	version, err := c.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("ask the local cluster for its version: %w", err)
	}
	deployment, err := c.AppsV1().Deployments(operatorsettings.Namespace).Get(ctx, operatorsettings.DeploymentName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("find the operator (make cluster-deploy): %w", err)
	}
	manager := deployment.Spec.Template.Spec.Containers[0]
	want := images.OperatorRepository + ":" + strings.TrimPrefix(x.report.Operator, "sha256:")[:12]
	if version.GitVersion != x.report.Kubernetes || manager.Image != want || deployment.Status.ReadyReplicas == 0 {
		return fmt.Errorf("the local cluster has Kubernetes %s and %d ready replicas of %s, want %s and %s: run make cluster-up cluster-deploy",
			version.GitVersion, deployment.Status.ReadyReplicas, manager.Image, x.report.Kubernetes, want)
	}
	x.report.OperatorArguments = manager.Args
	return measure(ctx, e)
}

// completeJobs runs Jobs with each contender in turn. A phase reversal or a wrong outcome that this operator caused is an error.
func (x *session) completeJobs(ctx context.Context, e *environment, part string, cases []Contender, atOnce, total int) (err error) {
	results := &x.report.Completions
	r := &jobRunner{e: e, mixed: part == partReversals, namespaces: map[Contender]string{}, created: map[Contender]int{}}
	if r.mixed {
		results = &x.report.Reversals
	}
	*results = nil // ratios are within one run
	defer func() { err = errors.Join(err, r.stop(ctx)) }()
	if err := r.start(ctx, part, cases); err != nil {
		return err
	}
	if slices.Contains(cases, ContenderKruise) {
		before := os.Getenv(cluster.FeatureGatesVariable)
		defer func() { err = errors.Join(err, x.restartKruise(context.WithoutCancel(ctx), before)) }()
		on := strings.Replace(components.DefaultKruiseFeatureGates, "SidecarTerminator=false", "SidecarTerminator=true", 1)
		if err := x.restartKruise(ctx, on); err != nil {
			return err
		}
	}
	err = inTurn(x, part, cases, func(Contender) int { return (total + atOnce - 1) / atOnce }, func(contender Contender) error {
		entry := entryOf(x.report, results, Completion{Contender: contender, AtOnce: atOnce, times: map[step][]time.Duration{}},
			func(c *Completion) bool { return c.Contender == contender })
		if entry.Jobs == 0 { // The first Job meets a policy that has just been created.
			if _, err := r.run(ctx, contender, 1); err != nil {
				return err
			}
		}
		records, err := r.run(ctx, contender, min(atOnce, total-entry.Jobs))
		entry.add(records)
		return err
	})
	for _, completion := range *results {
		err = errors.Join(err, completion.failure())
	}
	return err
}

// restartKruise restarts OpenKruise's manager on the local cluster. Without feature gates it has those of the cluster.
func (x *session) restartKruise(ctx context.Context, gates string) error {
	if err := os.Setenv(cluster.FeatureGatesVariable, gates); err != nil {
		return fmt.Errorf("set the feature gates of OpenKruise: %w", err)
	}
	return x.cluster.ChangeComponent(ctx, components.KruiseManager, cluster.Change{Stop: true, Start: true})
}

// jobRunner runs Jobs on the local cluster. Each contender has a namespace.
type jobRunner struct {
	e          *environment
	mixed      bool // sidecars and outcomes of main containers differ
	namespaces map[Contender]string
	created    map[Contender]int // Jobs so far
}

// start creates the namespaces and policies.
func (r *jobRunner) start(ctx context.Context, part string, cases []Contender) (err error) {
	for _, contender := range cases {
		if r.namespaces[contender], err = createNamespace(ctx, r.e.client, part+"-", nil); err != nil {
			return err
		}
		if settings, ok := terminations[contender]; ok {
			if err := createPolicyWith(ctx, r.e.client, r.namespaces[contender], settings, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// stop deletes the namespaces.
func (r *jobRunner) stop(ctx context.Context) (err error) {
	for _, name := range r.namespaces {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		err = errors.Join(err, r.e.client.Delete(context.WithoutCancel(ctx), namespace))
	}
	return err
}

// run creates Jobs at once, waits until they have finished and no container runs, and removes them. The record of a Job that
// takes too long says so.
func (r *jobRunner) run(ctx context.Context, contender Contender, count int) (jobRecords, error) {
	namespace := r.namespaces[contender]
	limited, cancel := context.WithTimeout(ctx, time.Minute+time.Duration(count)*10*time.Second)
	defer cancel()
	events, err := watchJobs(limited, r.e.client, namespace)
	if err != nil {
		return nil, err
	}
	records := jobRecords{}
	for range count {
		job, fails := r.job(contender, namespace)
		records[job.Name] = &jobRecord{fails: fails, at: map[step]time.Duration{}}
		if err := r.e.client.Create(ctx, job); err != nil {
			return nil, fmt.Errorf("create a Job: %w", err)
		}
	}
	if err := errors.Join(records.await(limited, events), ctx.Err()); err != nil {
		return nil, err
	}
	return records, r.remove(ctx, namespace)
}

// remove removes all Jobs, and waits until their pods are gone.
func (r *jobRunner) remove(ctx context.Context, namespace string) error {
	background := client.PropagationPolicy(metav1.DeletePropagationBackground)
	if err := r.e.client.DeleteAllOf(ctx, &batchv1.Job{}, client.InNamespace(namespace), background); err != nil {
		return fmt.Errorf("delete the Jobs: %w", err)
	}
	err := wait.PollUntilContextTimeout(ctx, pollInterval, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		pods := &corev1.PodList{}
		err := r.e.client.List(ctx, pods, client.InNamespace(namespace))
		return len(pods.Items) == 0, err
	})
	if err != nil {
		return fmt.Errorf("wait until the pods are gone: %w", err)
	}
	return nil
}

// sidecarScripts are the sidecars of mixed Jobs. All other Jobs have the first one.
var sidecarScripts = []string{
	"trap 'exit 0' TERM; sleep 3600 & wait",
	"trap 'exit 7' TERM; sleep 3600 & wait",
	"trap '' TERM; while :; do sleep 1; done",
}

// job is the next Job with a contender, and whether its main container fails. The main container writes the machine's uptime into
// its termination message when it ends. A third of mixed Jobs has restartPolicy OnFailure, and a third has Never and fails.
func (r *jobRunner) job(contender Contender, namespace string) (job *batchv1.Job, fails bool) {
	number := r.created[contender]
	r.created[contender]++
	script, restartPolicy, exitCode := sidecarScripts[0], corev1.RestartPolicyNever, 0
	if r.mixed {
		script = sidecarScripts[number%3]
		switch number / 3 % 3 {
		case 1:
			restartPolicy = corev1.RestartPolicyOnFailure
		case 2:
			exitCode = 3
		}
	}
	container := func(name, script string) corev1.Container {
		return corev1.Container{Name: name, Image: images.BusyboxReference, Command: []string{"/bin/sh", "-c", script}}
	}
	main := fmt.Sprintf("sleep %d; read -r uptime idle </proc/uptime; echo $uptime >/dev/termination-log; exit %d", mainSeconds, exitCode)
	pod := corev1.PodSpec{
		RestartPolicy: restartPolicy, TerminationGracePeriodSeconds: ptr.To[int64](graceSeconds), AutomountServiceAccountToken: ptr.To(false),
		Containers: []corev1.Container{container("main", main)},
	}
	beside := container(sidecar, script)
	switch contender {
	case ContenderAlone:
	case ContenderNative:
		beside.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		pod.InitContainers = []corev1.Container{beside}
	case ContenderKruise:
		beside.Env = []corev1.EnvVar{{Name: v1alpha1.EnvTerminate, Value: "true"}}
		fallthrough
	default:
		pod.Containers = append(pod.Containers, beside)
	}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%05d", burstPods, number)},
		Spec: batchv1.JobSpec{BackoffLimit: ptr.To[int32](0), Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "import"}}, Spec: pod,
		}},
	}, exitCode != 0
}
