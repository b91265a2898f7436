// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	manifests "github.com/sidecar-termination/operator/config"
	"github.com/sidecar-termination/operator/hack/localcluster/process"
	"github.com/sidecar-termination/operator/internal/scheme"
	"github.com/sidecar-termination/operator/internal/shipped"
)

// environment is an API server with clients for it, and the contender with the processes that it needs.
type environment struct {
	server    *envtest.Environment
	directory string // of kubeconfigs and logs
	config    *rest.Config
	client    client.WithWatch
	kubelets  *kubernetes.Clientset // writes as kubelets do, in protobuf
	serverPID int

	operatorPath string
	kruisePath   string // OpenKruise's manager; empty if nothing needs it, or if something else plays its webhook
	started      map[string]*program
}

// startServer starts an API server and etcd on the loopback interface, with the operator's kinds and one node. The caller must call stop.
func startServer(ctx context.Context, binaries, repository string) (*environment, error) {
	directory, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, err
	}
	e := &environment{directory: directory, started: map[string]*program{}, operatorPath: filepath.Join(repository, "bin", "manager"), server: &envtest.Environment{
		BinaryAssetsDirectory: binaries, CRDDirectoryPaths: []string{filepath.Join(repository, "config", "crd", "bases")}, ErrorIfCRDPathMissing: true,
		ControlPlaneStartTimeout: 3 * time.Minute, ControlPlaneStopTimeout: time.Minute,
	}}
	// The default of one worker may not delete many objects within the time limit of a request.
	e.server.ControlPlane.GetAPIServer().Configure().Set("delete-collection-workers", strconv.Itoa(writers))
	// The default quota of 2 GiB is too small for a large cluster: etcd keeps old versions of objects for minutes.
	e.server.ControlPlane.Etcd = &envtest.Etcd{}
	e.server.ControlPlane.Etcd.Configure().Set("quota-backend-bytes", strconv.Itoa(16<<30))
	config, err := e.server.Start()
	if err == nil {
		err = e.connect(config)
	}
	if err == nil {
		err = errors.Join(createNode(ctx, e.client, nodeName), e.installOutcomePolicy(ctx))
	}
	if err == nil {
		e.serverPID, err = findServer(e.server.ControlPlane.GetAPIServer().Port)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the API server: %w", err), e.stop())
	}
	return e, nil
}

// findServer returns the PID of the API server at the port: envtest does not tell it.
func findServer(port string) (int, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return 0, err
	}
	for _, one := range all {
		// A process that has just ended has no arguments.
		arguments, _ := one.CmdLine()
		if len(arguments) > 0 && filepath.Base(arguments[0]) == "kube-apiserver" && slices.Contains(arguments, "--secure-port="+port) {
			return one.PID, nil
		}
	}
	return 0, fmt.Errorf("no process runs it at port %s", port)
}

// connect makes the clients.
func (e *environment) connect(config *rest.Config) error {
	// No client-side limit may slow a load down.
	e.config = rest.CopyConfig(config)
	e.config.QPS = -1
	types, err := scheme.New()
	if err != nil {
		return err
	}
	if e.client, err = client.NewWithWatch(e.config, client.Options{Scheme: types}); err != nil {
		return err
	}
	protobuf := rest.CopyConfig(e.config)
	protobuf.ContentType = "application/vnd.kubernetes.protobuf"
	e.kubelets, err = kubernetes.NewForConfig(protobuf)
	return err
}

// installOutcomePolicy installs the admission policies that decide and keep the outcome of pods. They take effect during the warm-up. Kubernetes
// before 1.36 lacks the kind of the first one.
func (e *environment) installOutcomePolicy(ctx context.Context) error {
	objects, err := manifests.AdmissionPolicies()
	for i := range objects {
		if name := objects[i].GetName(); name != shipped.OutcomePolicy && name != shipped.PhasePolicy {
			continue
		}
		if failed := e.client.Create(ctx, &objects[i]); !meta.IsNoMatchError(failed) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

func (e *environment) stop() error { return errors.Join(e.server.Stop(), os.RemoveAll(e.directory)) }

// kubeconfig writes the kubeconfig of an administrator and returns its path. All contenders have the same permissions, so that
// authorization costs the same.
func (e *environment) kubeconfig(name string) (string, error) {
	user, err := e.server.AddUser(envtest.User{Name: name, Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return "", err
	}
	content, err := user.KubeConfig()
	file := filepath.Join(e.directory, name+".kubeconfig")
	return file, errors.Join(err, os.WriteFile(file, content, 0o600))
}

// Contenders of a burst.
const (
	// contenderBare are bare clients that report the end of a main container and make the operator's write for the pod at once.
	contenderBare = "bare"
	// contenderOperator is this operator with its default flags.
	contenderOperator = "operator"
	// contenderKruise is OpenKruise's SidecarTerminator with its default flags. It has mode CRR only: its other modes do something else.
	contenderKruise = "kruise"
)

// program is a started process.
type program struct {
	process.Identity
	log          string
	begun, ready time.Time
}

// start starts the contender and OpenKruise's manager, whose webhook admits every ContainerRecreateRequest. The caller must call
// stopContender, even after an error.
func (e *environment) start(ctx context.Context, contender string) (err error) {
	if e.kruisePath != "" {
		if err := e.startKruise(ctx, contender); err != nil {
			return err
		}
	}
	if contender != contenderOperator {
		return nil
	}
	// Defaults, apart from what a process outside a cluster needs. The manifests limit memory as well.
	e.started[contenderOperator], err = e.launch(ctx, e.operatorPath, func(kubeconfig string, free []string) process.Command {
		return process.Command{
			Arguments: []string{
				"--leader-election-namespace=default", "--metrics-bind-address=0",
				"--health-probe-bind-address=" + free[0],
			},
			Environment: []string{"KUBECONFIG=" + kubeconfig, "PATH=" + os.Getenv("PATH"), "GOMEMLIMIT=700MiB"},
		}
	})
	return err
}

// startKruise starts OpenKruise's manager. SidecarTerminator is on only if it is the contender.
func (e *environment) startKruise(ctx context.Context, contender string) (err error) {
	e.started["OpenKruise"], err = e.launch(ctx, e.kruisePath, func(kubeconfig string, free []string) process.Command {
		arguments := []string{
			"--kubeconfig=" + kubeconfig, "--enable-leader-election=false", "--health-probe-addr=" + free[0], "--pprof-addr=" + free[1],
			"--metrics-addr=" + free[2], fmt.Sprintf("--feature-gates=AllAlpha=false,SidecarTerminator=%t", contender == contenderKruise),
		}
		return process.Command{Arguments: arguments, Environment: []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + e.directory, "POD_NAMESPACE=kruise-system", "WEBHOOK_HOST=127.0.0.1",
			"WEBHOOK_PORT=" + strings.TrimPrefix(free[3], "127.0.0.1:"), "WEBHOOK_CERT_DIR=" + filepath.Join(e.directory, "kruise-webhook"),
		}}
	})
	return err
}

// stopContender ends all processes but those of the API server.
func (e *environment) stopContender(ctx context.Context) (err error) {
	for _, one := range e.started {
		if one != nil {
			err = errors.Join(err, process.Stop(context.WithoutCancel(ctx), one.Identity, 20*time.Second))
		}
	}
	clear(e.started)
	return err
}

// launch starts a program with an administrator's kubeconfig and free addresses, and waits until it says at the first one that it is ready.
func (e *environment) launch(ctx context.Context, path string, with func(kubeconfig string, free []string) process.Command) (*program, error) {
	one := &program{log: filepath.Join(e.directory, filepath.Base(path)+".log"), begun: time.Now()}
	kubeconfig, err := e.kubeconfig(filepath.Base(path))
	if err != nil {
		return nil, err
	}
	free := make([]string, 4)
	for i := range free {
		if free[i], err = process.FreeAddress(); err != nil {
			return nil, err
		}
	}
	command := with(kubeconfig, free)
	command.Path, command.Directory, command.Log = path, e.directory, one.log
	if one.Identity, err = process.Start(command); err != nil {
		return nil, err
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		response, err := http.Get("http://" + free[0] + "/readyz")
		if err != nil {
			return false, nil
		}
		return response.StatusCode == http.StatusOK, response.Body.Close()
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w; %s", path, err, one.tail()), process.Stop(context.WithoutCancel(ctx), one.Identity, 0))
	}
	one.ready = time.Now()
	return one, nil
}

// tail is the end of the log.
func (p *program) tail() string { return "its log ends:\n" + process.Tail(p.log, 30) }

// usage is what a process has used.
type usage struct {
	cpu       time.Duration
	rss, peak float64 // MiB of memory, now and at most
}

// usage returns what each process has used, by its name.
func (e *environment) usage() (map[string]usage, error) {
	pids := map[string]int{"API server": e.serverPID}
	for name, one := range e.started {
		pids[name] = one.PID
	}
	all := map[string]usage{}
	for name, pid := range pids {
		one, err := procfs.NewProc(pid)
		if err != nil {
			return nil, err
		}
		stat, err := one.Stat()
		status, failed := one.NewStatus()
		if err := errors.Join(err, failed); err != nil {
			return nil, err
		}
		all[name] = usage{time.Duration(stat.CPUTime() * float64(time.Second)), float64(status.VmRSS) / (1 << 20), float64(status.VmHWM) / (1 << 20)}
	}
	return all, nil
}

// awaitIdle waits until all processes together use little CPU time between polls, so that earlier work does not count.
func (e *environment) awaitIdle(ctx context.Context) error {
	const most, polls = 75 * time.Millisecond, 3
	last, quiet := time.Duration(0), 0
	err := wait.PollUntilContextCancel(ctx, 250*time.Millisecond, true, func(context.Context) (bool, error) {
		all, err := e.usage()
		if err != nil {
			return false, err
		}
		var now time.Duration
		for _, used := range all {
			now += used.cpu
		}
		if quiet++; now-last > most {
			quiet = 0
		}
		last = now
		return quiet >= polls, nil
	})
	if err != nil {
		return fmt.Errorf("wait until all processes are idle: %w", err)
	}
	return nil
}
