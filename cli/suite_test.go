// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package cli_test runs the subcommands against a real API server.
package cli_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/cli"
	"github.com/sidecar-termination/operator/cli/output"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/scheme"
)

// server is the API server, with the credentials of an administrator.
var server *rest.Config

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, "../config/crd/bases", func(config *rest.Config) {
		server = config
		server.QPS = -1
	}))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newNamespace returns a client and a new namespace.
func newNamespace(t *testing.T) (client.Client, string) {
	t.Helper()
	types, err := scheme.New()
	must(t, err)
	c, err := client.New(server, client.Options{Scheme: types})
	must(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "cli-"}}
	create(t, c, namespace)
	return c, namespace.Name
}

// create creates objects and deletes them when the test ends: some commands read the whole cluster, and must not find
// objects of other tests.
func create(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatalf("create %T %s: %v", object, object.GetName(), err)
		}
		t.Cleanup(func() {
			// With another propagation policy a Job would get a finalizer that no controller removes here.
			err := c.Delete(context.WithoutCancel(t.Context()), object, client.GracePeriodSeconds(0),
				client.PropagationPolicy(metav1.DeletePropagationBackground))
			if client.IgnoreNotFound(err) != nil {
				t.Errorf("delete %T %s: %v", object, object.GetName(), err)
			}
		})
	}
}

// apply creates the objects of a directory of config, with replaced texts. The server has the CRDs, and the namespaces of the test.
func apply(t *testing.T, c client.Client, directory string, replaced ...string) {
	t.Helper()
	for _, rendered := range testenv.Render(t, "../config/"+directory) {
		content, err := yaml.Marshal(rendered)
		must(t, err)
		object := &unstructured.Unstructured{}
		must(t, yaml.Unmarshal([]byte(strings.NewReplacer(replaced...).Replace(string(content))), &object.Object))
		if kind := object.GetKind(); kind != "CustomResourceDefinition" && (kind != "Namespace" || len(replaced) == 0) {
			create(t, c, object)
		}
	}
}

// grant permits the user what the rules say, in the namespace or in the whole cluster.
func grant(t *testing.T, c client.Client, namespace, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "cli-"}, Rules: rules}
	create(t, c, role)
	binding := bind(namespace, role.Name, user)
	if namespace != "" {
		create(t, c, binding)
	} else {
		create(t, c, &rbacv1.ClusterRoleBinding{ObjectMeta: binding.ObjectMeta, RoleRef: binding.RoleRef, Subjects: binding.Subjects})
	}
}

// bind gives the user a ClusterRole in a namespace.
func bind(namespace, role, user string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "cli-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
}

// kubeconfig writes a kubeconfig for the API server and returns its path.
func kubeconfig(t *testing.T) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: server.Host, CertificateAuthorityData: server.CAData}
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{ClientCertificateData: server.CertData, ClientKeyData: server.KeyData}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "admin"}
	config.CurrentContext = "test"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(*config, file))
	return file
}

// wantCommand runs a command line of the kubectl plugin, checks its exit code and that its output has the texts, and returns the output.
func wantCommand(t *testing.T, what, line string, wantCode int, texts ...string) string {
	t.Helper()
	out, code := runCommand(t, strings.Fields(line)...)
	wantOutput(t, what, out, code, wantCode, texts...)
	return out
}

// runCommand runs the kubectl plugin, and returns its output and exit code.
func runCommand(t *testing.T, arguments ...string) (string, int) {
	t.Helper()
	return runArguments(t, append(slices.Clone(arguments), "--kubeconfig="+kubeconfig(t), "--cache-dir="+t.TempDir())...)
}

func runArguments(t *testing.T, arguments ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	root := cli.New()
	root.SetArgs(arguments)
	root.SetOut(&out)
	root.SetErr(&out)
	before := goleak.IgnoreCurrent()
	code := output.Report(&out, root.ExecuteContext(t.Context()))
	if err := goleak.Find(append(testenv.KeptConnections(), before)...); err != nil {
		t.Errorf("%q left a goroutine behind: %v", arguments, err)
	}
	return out.String(), code
}
