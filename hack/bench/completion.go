// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
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

// Case is how the sidecars of Jobs end on a kubelet.
type Case struct {
	Contender Contender          `json:"contender"`
	Mode      v1alpha1.Mode      `json:"mode,omitempty"`
	ExitCodes v1alpha1.ExitCodes `json:"exitCodes,omitempty"`
	// Mixed is true for the part reversals: sidecars exit 0, exit 7 or ignore SIGTERM, while the CPUs are busy.
	Mixed bool `json:"mixed,omitempty"`
}

// String is the case's name in tables.
func (c Case) String() string {
	name := string(c.Contender)
	for _, setting := range []string{string(c.Mode), string(c.ExitCodes)} {
		if setting != "" {
			name += ", " + setting
		}
	}
	return name
}

// cases are the cases of the part completion. --modes chooses among the modes other than Auto.
func (s *settings) cases() []Case {
	all := []Case{
		{Contender: ContenderAlone}, {Contender: ContenderNative}, {Contender: ContenderKruise},
		{Contender: ContenderOperator, Mode: v1alpha1.ModeAuto},
		{Contender: ContenderOperator, Mode: v1alpha1.ModePodPhase},
		{Contender: ContenderOperator, Mode: v1alpha1.ModeCRR, ExitCodes: v1alpha1.ExitCodesIgnore},
		{Contender: ContenderOperator, Mode: v1alpha1.ModeCRR, ExitCodes: v1alpha1.ExitCodesRespect},
		{Contender: ContenderOperator, Mode: v1alpha1.ModeImage},
	}
	return slices.DeleteFunc(all, func(c Case) bool {
		return !slices.Contains(s.contenders, string(c.Contender)) ||
			slices.Contains(modeNames, string(c.Mode)) && !slices.Contains(s.modes, string(c.Mode))
	})
}

const (
	// reversalJobsAtOnce is how many Jobs of the part reversals exist at once, and busyLoops how many processes keep CPUs busy.
	reversalJobsAtOnce = 30
	busyLoops          = 2
	// mainSeconds is how long main containers run.
	mainSeconds = 3
	// gracePeriodSeconds is when sidecars that ignore SIGTERM are killed.
	gracePeriodSeconds = 5
	mainName           = "main"
)

// completions measures Jobs from the end of their main containers.
func (x *session) completions(ctx context.Context, e *environment) error {
	s := x.settings
	return x.completeJobs(ctx, e, partCompletion, s.cases(), s.completionJobs, s.completionJobs*s.completionRuns)
}

// reversals looks for phase reversals and wrong outcomes while the CPUs are busy.
func (x *session) reversals(ctx context.Context, e *environment) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for range busyLoops {
		words := append(endingWithCaller("sh"), "-c", "while :; do :; done")
		loop := exec.CommandContext(ctx, words[0], words[1:]...)
		if err := loop.Start(); err != nil {
			return fmt.Errorf("keep the CPUs busy: %w", err)
		}
		defer func() {
			cancel()
			_ = loop.Wait() // the signal is its error
		}()
	}
	mixed := Case{Contender: ContenderOperator, Mode: v1alpha1.ModeAuto, Mixed: true}
	return x.completeJobs(ctx, e, partReversals, []Case{mixed}, reversalJobsAtOnce, x.settings.reversalJobs)
}

// onCluster measures on the local cluster. The operator that it runs must be the one of this repository.
func (x *session) onCluster(ctx context.Context, measure func(ctx context.Context, e *environment) error) error {
	config, err := clientcmd.BuildConfigFromFlags("", x.directories.AdminKubeconfig())
	if err != nil {
		return fmt.Errorf("find the local cluster (make cluster-up deploy): %w", err)
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
		return fmt.Errorf("find the operator (make deploy): %w", err)
	}
	manager := deployment.Spec.Template.Spec.Containers[0]
	want := images.OperatorRepository + ":" + strings.TrimPrefix(x.report.Operator, "sha256:")[:12]
	if version.GitVersion != x.report.Kubernetes || manager.Image != want || deployment.Status.ReadyReplicas == 0 {
		return fmt.Errorf("the local cluster has Kubernetes %s and %d ready replicas of %s, want %s and %s: run make cluster-up deploy",
			version.GitVersion, deployment.Status.ReadyReplicas, manager.Image, x.report.Kubernetes, want)
	}
	x.report.OperatorArguments = manager.Args
	return measure(ctx, e)
}

// completeJobs runs the Jobs of all cases in turn. An operator that caused a phase reversal or a wrong outcome is an error.
func (x *session) completeJobs(ctx context.Context, e *environment, part string, cases []Case, atOnce, total int) (err error) {
	r := &jobRunner{e: e, namespaces: map[Case]string{}, created: map[Case]int{}}
	if r.boot, err = bootTime(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.stop(ctx)) }()
	for _, c := range cases {
		if err := r.prepare(ctx, part, c); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(cases, func(c Case) bool { return c.Contender.kruise() }) {
		before := os.Getenv(cluster.FeatureGatesVariable)
		defer func() { err = errors.Join(err, x.restartKruise(context.WithoutCancel(ctx), before)) }()
		on := strings.Replace(components.DefaultKruiseFeatureGates, "SidecarTerminator=false", "SidecarTerminator=true", 1)
		if err := x.restartKruise(ctx, on); err != nil {
			return err
		}
	}
	mixed := part == partReversals
	// Ratios are within one run.
	x.report.Completions = slices.DeleteFunc(x.report.Completions, func(c *Completion) bool { return c.Mixed == mixed })
	err = inTurn(x, part, cases, func(Case) int { return (total + atOnce - 1) / atOnce }, func(c Case) error {
		if r.created[c] == 0 { // The first Job meets a policy that has just been created.
			if _, err := r.run(ctx, c, 1); err != nil {
				return err
			}
		}
		records, err := r.run(ctx, c, min(atOnce, 1+total-r.created[c]))
		if err == nil {
			x.report.addCompletion(c, atOnce, records)
		}
		return err
	})
	return errors.Join(err, x.report.completionFailures(mixed))
}

// restartKruise restarts OpenKruise's manager on the local cluster. Without feature gates it has those of the cluster.
func (x *session) restartKruise(ctx context.Context, gates string) error {
	if err := os.Setenv(cluster.FeatureGatesVariable, gates); err != nil {
		return fmt.Errorf("set the feature gates of OpenKruise: %w", err)
	}
	return x.cluster.ChangeComponent(ctx, components.KruiseManager, cluster.Change{Stop: true, Start: true})
}

// jobRunner runs Jobs on the local cluster. Each case has a namespace of its own.
type jobRunner struct {
	e          *environment
	boot       time.Time
	namespaces map[Case]string
	created    map[Case]int // Jobs so far
}

// prepare creates the namespace of a case and its policy. Pods of the contender kruise declare their sidecars by a variable,
// which this operator reads as well. A policy that lets sidecars drain for longer than the benchmark takes keeps it away.
func (r *jobRunner) prepare(ctx context.Context, part string, c Case) (err error) {
	if r.namespaces[c], err = createNamespace(ctx, r.e.client, part+"-", nil); err != nil || c.Contender == ContenderAlone || c.Contender == ContenderNative {
		return err
	}
	return createPolicy(ctx, r.e.client, r.namespaces[c], c.Mode, func(spec *v1alpha1.PolicySpec) {
		spec.Fallback, spec.ExitCodes = "", c.ExitCodes
		if c.Contender.kruise() {
			spec.DrainSeconds = ptr.To[int32](86400)
		}
		if c.Mode == v1alpha1.ModeImage {
			spec.Image = images.QuickExitReference
		}
	})
}

// stop deletes the namespaces.
func (r *jobRunner) stop(ctx context.Context) error {
	var failures []error
	for _, name := range r.namespaces {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		failures = append(failures, client.IgnoreNotFound(r.e.client.Delete(context.WithoutCancel(ctx), namespace)))
	}
	return errors.Join(failures...)
}

// run creates Jobs at once, waits until they have finished and no container runs, and removes them. A Job that does not finish
// has a record that says so.
func (r *jobRunner) run(ctx context.Context, c Case, count int) ([]*jobRecord, error) {
	namespace := r.namespaces[c]
	var jobs []*batchv1.Job
	var records []*jobRecord
	for i, name := range numbered(burstPods, r.created[c], r.created[c]+count) {
		job, fails := c.job(namespace, name, r.created[c]+i)
		jobs, records = append(jobs, job), append(records, &jobRecord{name: name, fails: fails, at: map[step]time.Duration{}})
	}
	r.created[c] += count
	seen, err := watchJobs(ctx, r.e.client, namespace, r.boot, records)
	if err != nil {
		return nil, err
	}
	defer seen.stop()
	err = each(ctx, count, 0, func(ctx context.Context, i int) error { return r.e.client.Create(ctx, jobs[i]) })
	if err != nil {
		return nil, fmt.Errorf("create a Job: %w", err)
	}
	if err := seen.wait(ctx, time.Minute+time.Duration(count)*10*time.Second); err != nil {
		return nil, err
	}
	seen.stop()
	return records, r.remove(ctx, namespace)
}

// remove removes all Jobs, and waits until their pods are gone.
func (r *jobRunner) remove(ctx context.Context, namespace string) error {
	err := r.e.client.DeleteAllOf(ctx, &batchv1.Job{}, client.InNamespace(namespace), client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil {
		return fmt.Errorf("delete the Jobs: %w", err)
	}
	err = wait.PollUntilContextTimeout(ctx, pollInterval, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		pods := &corev1.PodList{}
		err := r.e.client.List(ctx, pods, client.InNamespace(namespace))
		return len(pods.Items) == 0, err
	})
	if err != nil {
		return fmt.Errorf("wait until the pods are gone: %w", err)
	}
	return nil
}

// sidecarScripts are the sidecars of mixed cases. The first one is that of all other cases.
var sidecarScripts = []string{
	"trap 'exit 0' TERM; sleep 3600 & wait",
	"trap 'exit 7' TERM; sleep 3600 & wait",
	"trap '' TERM; while :; do sleep 1; done",
}

// job is a Job of the case, and whether its main container fails. The main container writes the uptime of the machine at its
// end into its termination message. In mixed cases a third of the Jobs has restartPolicy OnFailure, and a third fails.
func (c Case) job(namespace, name string, number int) (job *batchv1.Job, fails bool) {
	script, restartPolicy, exitCode := sidecarScripts[0], corev1.RestartPolicyNever, 0
	if c.Mixed {
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
	main := container(mainName, fmt.Sprintf("sleep %d; read -r uptime idle </proc/uptime; echo $uptime >/dev/termination-log; exit %d",
		mainSeconds, exitCode))
	beside := container(sidecar, script)
	pod := corev1.PodSpec{
		RestartPolicy: restartPolicy, TerminationGracePeriodSeconds: ptr.To[int64](gracePeriodSeconds),
		AutomountServiceAccountToken: ptr.To(false), Containers: []corev1.Container{main, beside},
	}
	switch c.Contender {
	case ContenderAlone:
		pod.Containers = pod.Containers[:1]
	case ContenderNative:
		beside.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		pod.InitContainers, pod.Containers = []corev1.Container{beside}, pod.Containers[:1]
	case ContenderKruise:
		pod.Containers[1].Env = []corev1.EnvVar{{Name: v1alpha1.EnvTerminate, Value: "true"}}
	}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: batchv1.JobSpec{BackoffLimit: ptr.To[int32](0), Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "import"}}, Spec: pod,
		}},
	}, exitCode != 0
}
