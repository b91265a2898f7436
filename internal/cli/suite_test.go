// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package cli_test runs the subcommands against a real API server.
package cli_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/cli/check"
	"github.com/sidecar-termination/operator/internal/cli/exit"
	explaincommand "github.com/sidecar-termination/operator/internal/cli/explain"
	"github.com/sidecar-termination/operator/internal/cli/lint"
	"github.com/sidecar-termination/operator/internal/cli/source"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/testenv"
)

// leaseName is the name of the operator's lease.
const leaseName = "sidecar-termination-operator.sidecartermination.dev"

// server is how tests reach the API server as its administrator.
var server *rest.Config

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, "../../config/crd/bases", func(config *rest.Config) {
		server = config
		server.QPS = -1
	}))
}

func newClient(t *testing.T) client.Client {
	t.Helper()
	scheme, err := source.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(server, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newNamespace returns a client and a namespace of the test's own.
func newNamespace(t *testing.T) (client.Client, string) {
	t.Helper()
	c := newClient(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "cli-"}}
	create(t, c, namespace)
	return c, namespace.Name
}

// create makes objects that are deleted when the test ends: some commands look at the whole cluster, and must not find what
// another test has left.
func create(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatalf("create %T %s: %v", object, object.GetName(), err)
		}
		t.Cleanup(func() {
			// Nobody is there to take off the finalizer that a Job would get without a policy.
			err := c.Delete(context.WithoutCancel(t.Context()), object, client.GracePeriodSeconds(0),
				client.PropagationPolicy(metav1.DeletePropagationBackground))
			if client.IgnoreNotFound(err) != nil {
				t.Errorf("delete %T %s: %v", object, object.GetName(), err)
			}
		})
	}
}

// kubeconfig writes a file by which a user would reach the API server.
func kubeconfig(t *testing.T) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: server.Host, CertificateAuthorityData: server.CAData}
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{ClientCertificateData: server.CertData, ClientKeyData: server.KeyData}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "admin"}
	config.CurrentContext = "test"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// runCommand runs a subcommand as a user would, and returns what it writes and its exit code.
func runCommand(t *testing.T, arguments ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	code := runCommandInto(t, &out, arguments...)
	return out.String(), code
}

// runCommandInto is runCommand for a test that looks at the output while the command runs.
func runCommandInto(t *testing.T, out io.Writer, arguments ...string) int {
	t.Helper()
	operator := source.Operator{
		Bind: func(flags *pflag.FlagSet) { flags.String("quick-exit-image", "", "the default image") },
		Parse: func(arguments []string) (explain.OperatorSettings, error) {
			flags := pflag.NewFlagSet("operator", pflag.ContinueOnError)
			flags.ParseErrorsAllowlist.UnknownFlags = true
			image := flags.String("quick-exit-image", "", "the default image")
			leaderElect := flags.Bool("leader-elect", true, "have one copy act")
			err := flags.Parse(arguments)
			settings := explain.OperatorSettings{
				Resolve: resolve.Options{Image: *image}, NodeMarks: plan.DefaultNodeMarks(), Capabilities: plan.Capabilities{PodPhase: plan.PodPhaseEnabled},
				Metrics: explain.MetricsSettings{Address: ":8443", Authenticated: true},
			}
			if *leaderElect {
				settings.Lease.Name = leaseName
			}
			return settings, err
		},
		Now: time.Now,
	}
	root := &cobra.Command{Use: "test", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(explaincommand.New("test", operator), lint.New("test", operator), check.New("test", operator))
	// After the name of the subcommand: what is to be completed goes last.
	reach := []string{"--kubeconfig=" + kubeconfig(t), "--cache-dir=" + t.TempDir()}
	at := slices.IndexFunc(arguments, func(argument string) bool { return argument != cobra.ShellCompRequestCmd }) + 1
	root.SetArgs(slices.Insert(slices.Clone(arguments), at, reach...))
	root.SetOut(out)
	root.SetErr(out)
	before := goleak.IgnoreCurrent()
	code := exit.Report(out, root.ExecuteContext(t.Context()))
	if err := goleak.Find(append(testenv.KeptConnections(), before)...); err != nil {
		t.Errorf("%q left a goroutine behind: %v", arguments, err)
	}
	return code
}

// transcript takes a command's output and closes seen when it holds the awaited words.
type transcript struct {
	text    bytes.Buffer
	awaited string
	seen    chan struct{}
	once    sync.Once
}

func (w *transcript) Write(data []byte) (int, error) {
	n, err := w.text.Write(data)
	if strings.Contains(w.text.String(), w.awaited) {
		w.once.Do(func() { close(w.seen) })
	}
	return n, err
}

func (w *transcript) String() string { return w.text.String() }
