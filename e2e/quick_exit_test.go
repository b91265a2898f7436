//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
	clusterimages "github.com/sidecar-termination/operator/hack/localcluster/images"
	"github.com/sidecar-termination/operator/hack/ociimage"
	"github.com/sidecar-termination/operator/internal/quickexit"
)

const (
	// sidecarProgram and sidecarCommand are the paths of the program in the image of realSidecar.
	sidecarProgram   = "/opt/proxy/bin/proxy"
	sidecarDirectory = "/app"
	sidecarCommand   = sidecarDirectory + "/bin/agent"
	// sidecarUser is the user of the image, and sidecarExitCode its exit code after SIGTERM.
	sidecarUser     = "1337:1337"
	sidecarExitCode = 7
	// sharedDirectory is the mount path of a directory in which hooks create files.
	sharedDirectory = "/shared"
	// Reasons of the kubelet's events about failed hooks.
	failedPostStart = "FailedPostStartHook"
	failedPreStop   = "FailedPreStopHook"
)

var thisPlatform = v1.Platform{OS: "linux", Architecture: runtime.GOARCH}

// realSidecar returns an image like those of sidecar vendors: no shell, one program, and its own user, PATH and working
// directory.
var realSidecar = sync.OnceValues(func() (v1.Image, error) {
	cluster, err := harness.Connect()
	if err != nil {
		return nil, err
	}
	compiled, err := clusterimages.Compile(context.Background(), cluster.Repository, "./e2e/sidecar", thisPlatform)
	if err != nil {
		return nil, err
	}
	root := ociimage.Rootfs{
		Programs: map[string][]byte{sidecarProgram[1:]: compiled},
		Links:    map[string]string{sidecarCommand[1:]: sidecarProgram[1:]},
	}
	return root.Image(thisPlatform, v1.Config{
		Entrypoint: []string{sidecarProgram},
		Cmd:        []string{"--config=/etc/proxy.yaml"},
		User:       sidecarUser,
		WorkingDir: sidecarDirectory,
		Env:        []string{"PATH=" + sidecarDirectory + "/bin:/usr/bin"},
	})
})

// coveredCommands are the paths at which the quick-exit image of these tests has the program, besides the default paths.
var coveredCommands = []string{sidecarProgram, "/usr/local/bin/agent"}

// jobWithRealSidecar returns a Job whose first container is realSidecar from the registry.
func jobWithRealSidecar(test *harness.Test, registry string, restartPolicy corev1.RestartPolicy) *batchv1.Job {
	test.Helper()
	image, err := realSidecar()
	if err != nil {
		test.Fatalf("Build the sidecar's image: %v", err)
	}
	sidecar := harness.Sidecar("")
	sidecar.Image, sidecar.Command = registry+"sidecar:v1", nil
	test.Push(sidecar.Image, image)
	return harness.Job("job", restartPolicy, sidecar, harness.Main(3))
}

// policyForImage returns a policy with a quick-exit image that has coveredCommands, and without fallback.
func policyForImage(image string) *v1alpha1.SidecarTerminationPolicy {
	policy := harness.Policy(v1alpha1.ModeImage)
	policy.Spec.Image, policy.Spec.Fallback = image, v1alpha1.FallbackDisabled
	// With Ignore, the pod is done before the image has run.
	policy.Spec.ExitCodePolicy = v1alpha1.ExitCodePolicyRespect
	policy.Spec.QuickExitPaths = []v1alpha1.QuickExitPath{quickexit.Default}
	for _, path := range coveredCommands {
		policy.Spec.QuickExitPaths = append(policy.Spec.QuickExitPaths, v1alpha1.QuickExitPath(path))
	}
	return policy
}

// hook returns a hook that runs the sidecar's program, which creates the file.
func hook(file string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{sidecarProgram, "hook", path.Join(sharedDirectory, file)}}}
}

// waysToRun are ways to run a sidecar, all of which the quick-exit image must support.
var waysToRun = []struct {
	name  string
	apply func(pod *corev1.PodSpec, sidecar *corev1.Container)
	// hooks are the hooks that must have run, sorted.
	hooks []string
	// warnings are those that the kubelet may emit.
	warnings []string
}{
	{name: "no command", apply: func(_ *corev1.PodSpec, _ *corev1.Container) {}},
	{name: "arguments only", apply: func(_ *corev1.PodSpec, sidecar *corev1.Container) { sidecar.Args = []string{"--listen=:15001"} }},
	{name: "absolute command", apply: func(_ *corev1.PodSpec, sidecar *corev1.Container) {
		sidecar.Command, sidecar.Args = []string{sidecarProgram}, []string{"--listen=:15001"}
	}},
	{name: "name in image's PATH", apply: func(_ *corev1.PodSpec, sidecar *corev1.Container) { sidecar.Command = []string{"agent"} }},
	{name: "shell form", apply: func(_ *corev1.PodSpec, sidecar *corev1.Container) {
		sidecar.Image, sidecar.Command = harness.BusyboxImage, []string{"/bin/sh", "-c", harness.ExitsSevenOnTerm}
	}},
	{name: "runAsNonRoot with any user", apply: func(_ *corev1.PodSpec, sidecar *corev1.Container) {
		sidecar.SecurityContext = &corev1.SecurityContext{RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](1000670000), RunAsGroup: ptr.To[int64](0)}
	}},
	{name: "read-only root file system", apply: func(_ *corev1.PodSpec, sidecar *corev1.Container) {
		sidecar.SecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: ptr.To(true)}
		// The quick-exit image does not have this directory.
		sidecar.WorkingDir = sidecarDirectory
	}},
	{name: "restricted", apply: func(pod *corev1.PodSpec, sidecar *corev1.Container) {
		pod.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr.To[int64](2000)}
		sidecar.SecurityContext = &corev1.SecurityContext{
			RunAsNonRoot: ptr.To(true), ReadOnlyRootFilesystem: ptr.To(true), AllowPrivilegeEscalation: ptr.To(false),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
	}},
	// The hook runs in the sidecar, and not in the quick-exit image.
	{name: "preStop", hooks: []string{"preStop"}, apply: func(_ *corev1.PodSpec, sidecar *corev1.Container) {
		sidecar.Lifecycle = &corev1.Lifecycle{PreStop: hook("preStop")}
	}},
	// The kubelet runs the postStart hook again when the quick-exit image starts, and fails if the process has exited. It emits a
	// warning and stops the container, including the preStop hook.
	{
		name: "postStart and preStop", hooks: []string{"postStart", "preStop"}, warnings: []string{failedPostStart, failedPreStop},
		apply: func(_ *corev1.PodSpec, sidecar *corev1.Container) {
			sidecar.Lifecycle = &corev1.Lifecycle{PostStart: hook("postStart"), PreStop: hook("preStop")}
		},
	},
}

func TestQuickExitImageTerminatesSidecars(t *testing.T) {
	harness.Shared(t)
	registry := harness.StartRegistry(t)
	for i, way := range waysToRun {
		restartPolicy := jobRestartPolicies[i%2]
		t.Run(way.name+"/"+string(restartPolicy), func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			job := jobWithRealSidecar(test, registry, restartPolicy)
			pod := &job.Spec.Template.Spec
			way.apply(pod, &pod.Containers[0])
			shared := test.TempDir()
			if err := os.Chmod(shared, 0o777); err != nil {
				test.Fatal(err)
			}
			harness.MountHostDirectory(pod, harness.SidecarName, shared, sharedDirectory)
			image := registry + "quick-exit:" + test.Namespace
			quickExit, err := clusterimages.QuickExit(test.Context(), test.Repository, thisPlatform, coveredCommands...)
			if err != nil {
				test.Fatal(err)
			}
			test.Push(image, quickExit)
			test.Create(policyForImage(image), job)
			requireEndedByRealImage(test, image)
			requireKubeletWarnings(test, way.warnings...)
			entries, err := os.ReadDir(shared)
			var hooks []string
			for _, entry := range entries {
				hooks = append(hooks, entry.Name())
			}
			if err != nil || !slices.Equal(hooks, way.hooks) {
				test.Errorf("Hooks created %v, want %v: %v", hooks, way.hooks, err)
			}
		})
	}
}

// requireEndedByRealImage waits until the Job named job is Complete and requires that the sidecar was stopped once, and that the
// quick-exit image replaced it and exited 0.
func requireEndedByRealImage(test *harness.Test, image string) {
	test.Helper()
	record := test.RequireCompleted("job")
	test.RequireCRRs(record, 0)
	test.RequireImage(record, harness.SidecarName, image)
	requireRun(test, record, harness.SidecarName, 0, 1)
	// The kubelet may have lost the state of the stopped container.
	if last := record.Container(harness.SidecarName).LastTerminationState.Terminated; last != nil && last.ExitCode != sidecarExitCode {
		test.Errorf("The sidecar did not exit %d: %+v", sidecarExitCode, last)
	}
}

// requireKubeletWarnings requires that the kubelet emitted only warnings with the allowed reasons for the pod of the Job named job. A
// busy kubelet drops events.
func requireKubeletWarnings(test *harness.Test, allowed ...string) {
	test.Helper()
	for _, event := range test.EventsOn(test.RecordOf("job").Pod) {
		warns := event.Type != corev1.EventTypeNormal && !slices.Contains(allowed, event.Reason)
		if event.Source.Component == "kubelet" && (warns || strings.Contains(event.Message, "StartError")) {
			test.Errorf("Warning of the kubelet: %s: %s", event.Reason, event.Message)
		}
	}
}

// The shipped image does not have the sidecar's command, so the operator falls back to another mode.
func TestUncoveredCommand(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	job := jobWithRealSidecar(test, harness.StartRegistry(t), corev1.RestartPolicyNever)
	sidecar := &job.Spec.Template.Spec.Containers[0]
	sidecar.Command = []string{sidecarProgram}
	policy := harness.Policy(v1alpha1.ModeImage)
	test.Create(policy, job)
	record := test.RequireCompleted("job")
	test.RequireImage(record, harness.SidecarName, sidecar.Image)
	requireEventOfPolicy(test, test.WaitForEvent(record.Pod, v1alpha1.ReasonFallback), policy)
}
