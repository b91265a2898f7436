// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	"github.com/sidecar-termination/operator/hack/localcluster/progress"
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

// start starts the contender and OpenKruise's manager, whose webhook admits every ContainerRecreateRequest. SidecarTerminator is on only if
// it is the contender. The caller must call stopContender, even after an error.
func (e *environment) start(ctx context.Context, contender string) (err error) {
	free := make([]string, 5)
	for i := range free {
		if free[i], err = process.FreeAddress(); err != nil {
			return err
		}
	}
	if e.kruisePath != "" {
		if err := e.launch(ctx, "OpenKruise", e.kruisePath, free[0], process.Command{
			Arguments: []string{
				"--enable-leader-election=false", "--health-probe-addr=" + free[0], "--pprof-addr=" + free[1], "--metrics-addr=" + free[2],
				fmt.Sprintf("--feature-gates=AllAlpha=false,SidecarTerminator=%t", contender == contenderKruise),
			},
			Environment: []string{
				"HOME=" + e.directory, "POD_NAMESPACE=kruise-system", "WEBHOOK_HOST=127.0.0.1",
				"WEBHOOK_PORT=" + strings.TrimPrefix(free[3], "127.0.0.1:"), "WEBHOOK_CERT_DIR=" + filepath.Join(e.directory, "kruise-webhook"),
			},
		}); err != nil {
			return err
		}
	}
	if contender != contenderOperator {
		return nil
	}
	// Defaults, apart from what a process outside a cluster needs. The manifests limit memory as well.
	return e.launch(ctx, contenderOperator, e.operatorPath, free[4], process.Command{
		Arguments:   []string{"--leader-election-namespace=default", "--metrics-bind-address=0", "--health-probe-bind-address=" + free[4]},
		Environment: []string{"GOMEMLIMIT=700MiB"},
	})
}

// stopContender ends all processes but those of the API server.
func (e *environment) stopContender(ctx context.Context) (err error) {
	for _, one := range e.started {
		err = errors.Join(err, process.Stop(context.WithoutCancel(ctx), one.Identity, 20*time.Second))
	}
	clear(e.started)
	return err
}

// launch starts a program with an administrator's kubeconfig, and waits until it says at the address that it is ready.
func (e *environment) launch(ctx context.Context, name, path, health string, command process.Command) error {
	one := &program{log: filepath.Join(e.directory, filepath.Base(path)+".log"), begun: time.Now()}
	// All contenders have the same permissions, so that authorization costs the same.
	user, err := e.server.AddUser(envtest.User{Name: filepath.Base(path), Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return err
	}
	content, err := user.KubeConfig()
	kubeconfig := filepath.Join(e.directory, filepath.Base(path)+".kubeconfig")
	if err := errors.Join(err, os.WriteFile(kubeconfig, content, 0o600)); err != nil {
		return err
	}
	command.Path, command.Directory, command.Log = path, e.directory, one.log
	command.Environment = append(command.Environment, "KUBECONFIG="+kubeconfig, "PATH="+os.Getenv("PATH"))
	if one.Identity, err = process.Start(command); err != nil {
		return err
	}
	e.started[name] = one
	err = progress.Poll(ctx, 50*time.Millisecond, 2*time.Minute, func(context.Context) error {
		response, err := http.Get("http://" + health + "/readyz")
		if err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			err = errors.New(response.Status)
		}
		return errors.Join(err, response.Body.Close())
	})
	if err != nil {
		return fmt.Errorf("start %s: %w; %s", path, err, one.tail())
	}
	one.ready = time.Now()
	return nil
}

// tail is the end of the log.
func (p *program) tail() string { return "its log ends:\n" + process.Tail(p.log, 30) }

// readIdle reads all counters once all processes together use little CPU time between polls, so that earlier work does not count.
func (e *environment) readIdle(ctx context.Context) (figures, error) {
	const most, polls = 75.0, 3 // most is in milliseconds
	var used figures
	last, quiet := 0.0, 0
	err := wait.PollUntilContextCancel(ctx, 250*time.Millisecond, true, func(context.Context) (_ bool, err error) {
		if used, err = e.cpuTime(); err != nil {
			return false, err
		}
		now := 0.0
		for _, spent := range used {
			now += spent
		}
		if quiet++; now-last > most {
			quiet = 0
		}
		last = now
		return quiet >= polls, nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait until all processes are idle: %w", err)
	}
	counters, err := e.requestsServed(ctx)
	maps.Copy(used, counters)
	return used, err
}

// cpuTime returns the milliseconds that each process has used.
func (e *environment) cpuTime() (figures, error) {
	pids := map[string]int{"API server": e.serverPID}
	for name, one := range e.started {
		pids[name] = one.PID
	}
	used := figures{}
	for name, pid := range pids {
		one, err := procfs.NewProc(pid)
		if err != nil {
			return nil, err
		}
		stat, err := one.Stat()
		if err != nil {
			return nil, err
		}
		used["CPU ms of "+name] = stat.CPUTime() * 1000
	}
	return used, nil
}
