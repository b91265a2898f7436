//go:build e2e && release

// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/sidecar-termination/operator/e2e/harness"
	"github.com/sidecar-termination/operator/hack/packaging/checkout"
	"github.com/sidecar-termination/operator/hack/packaging/dist"
)

const (
	// registryOfReleases is the registry of the images in the manifests.
	registryOfReleases = "ghcr.io/sidecar-termination/"
	commandTimeout     = 4 * time.Minute
)

// installer runs the programs of a user.
type installer struct {
	*harness.Test
	// plugin is the directory with the plugin of kubectl.
	plugin string
	// mirror is the registry of the images, with a slash at its end. If it is empty, the images are those of a release.
	mirror string
}

func (i *installer) quickExitImage(release files) string {
	registry := registryOfReleases
	if i.mirror != "" {
		registry = i.mirror
	}
	return registry + "quick-exit:" + release.version
}

// run runs a program of a user, and returns its output.
func (i *installer) run(program string, arguments ...string) string {
	i.Helper()
	output, err := i.try(program, arguments...)
	if err != nil {
		i.Fatal(err)
	}
	return output
}

func (i *installer) try(program string, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, program, arguments...)
	tools := filepath.Join(i.Repository, ".cluster", "bin")
	command.Env = append(os.Environ(), "KUBECONFIG="+i.Kubeconfig, "PATH="+strings.Join([]string{i.plugin, tools, os.Getenv("PATH")}, string(os.PathListSeparator)),
		"HELM_CACHE_HOME="+i.plugin, "HELM_CONFIG_HOME="+i.plugin, "HELM_DATA_HOME="+i.plugin)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(program), strings.Join(arguments, " "), err, &stdout, &stderr)
	}
	return stdout.String(), nil
}

func (i *installer) kubectl(arguments ...string) string {
	i.Helper()
	return i.run(filepath.Join(i.Repository, ".cluster", "bin", "kubectl"), arguments...)
}

func (i *installer) helm(arguments ...string) {
	i.Helper()
	i.run(filepath.Join(i.Repository, "bin", "helm"), arguments...)
}

// load imports the images of a release into the nodes.
func (i *installer) load(release files) {
	i.Helper()
	platform := v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	archives, err := checkout.Save(release.path("images"), i.TempDir(), checkout.References{Operator: operatorImage(release)}, platform)
	if err != nil {
		i.Fatal(err)
	}
	sockets, err := filepath.Glob(filepath.Join(i.Repository, ".cluster", "nodes", "*", "containerd", "containerd.sock"))
	if err != nil || len(sockets) == 0 {
		i.Fatalf("No containerd was found (bring up a cluster with `make cluster-up`): %v", err)
	}
	for _, socket := range sockets {
		for _, archive := range archives {
			i.run("ctr", "--address", socket, "--namespace", "k8s.io", "images", "import", archive)
		}
	}
}

// unpackPlugin unpacks the archive of this machine's command line.
func (i *installer) unpackPlugin(release files) {
	i.Helper()
	archive := dist.PluginFile(v1.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH})
	i.run("tar", "-xzf", release.path(archive), "-C", i.plugin, "--exclude", "LICENSE")
}

// requireNoOperator fails the test if something is installed, which the test would change and remove.
func (i *installer) requireNoOperator() {
	i.Helper()
	for _, object := range i.objects() {
		if strings.Contains(object, "sidecar-termination") && strings.HasPrefix(object, "deployments.apps ") {
			i.Fatalf("The operator is installed as %s: remove it, or start with `make cluster-down cluster-up`", object)
		}
	}
}

// waitFor waits until the operator of the release runs, and no other.
func (i *installer) waitFor(way way, release files) {
	i.Helper()
	i.kubectl("--namespace="+way.namespace, "rollout", "status", "deployment/"+way.deployment, "--timeout=3m")
	image := i.kubectl("--namespace="+way.namespace, "get", "deployment", way.deployment, "--output=jsonpath={.spec.template.spec.containers[0].image}")
	if !strings.HasSuffix(image, ":"+release.version) {
		i.Fatalf("The operator has the image %s, want version %s", image, release.version)
	}
}

// describe returns what a person needs to see why the operator does not run.
func (i *installer) describe(way way) string {
	kubectl := filepath.Join(i.Repository, ".cluster", "bin", "kubectl")
	var report strings.Builder
	for _, arguments := range [][]string{
		{"describe", "pods"}, {"logs", "deployment/" + way.deployment, "--all-pods", "--tail=50"},
	} {
		output, err := i.try(kubectl, append(arguments, "--namespace="+way.namespace)...)
		_, _ = fmt.Fprintln(&report, output, err)
	}
	return report.String()
}

// removeAll removes what a failed test has left, as far as possible.
func (i *installer) removeAll(way way, release files) {
	kubectl := filepath.Join(i.Repository, ".cluster", "bin", "kubectl")
	for _, arguments := range [][]string{
		{"delete", "--ignore-not-found", "--filename", release.path("crds.yaml")},
		{"delete", "--ignore-not-found", "namespace", way.namespace},
		{"delete", "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings",
			"--selector=app.kubernetes.io/name=sidecar-termination-operator"},
	} {
		if _, err := i.try(kubectl, arguments...); err != nil {
			i.Log(err)
		}
	}
}

// passing are kinds whose objects come and go by themselves, or that cannot be created. OpenKruise creates a NodeImage for each node.
var passing = []string{"events", "events.events.k8s.io", "componentstatuses", "nodeimages.apps.kruise.io"}

// testNamespaces is what the names of the tests' namespaces begin with.
const testNamespaces = "e2e-"

// objects returns all objects of the cluster without the namespaces of tests, sorted.
func (i *installer) objects() []string {
	i.Helper()
	var found []string
	i.Eventually("a list of all objects", commandTimeout, func(ctx context.Context) (err error) {
		found, err = i.listObjects(ctx)
		return err
	})
	return found
}

func (i *installer) listObjects(ctx context.Context) ([]string, error) {
	config := rest.CopyConfig(i.Config)
	config.WarningHandler = rest.NoWarnings{}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	lists, err := discovery.ServerPreferredResources(i.Clientset.Discovery())
	if err != nil {
		return nil, err
	}
	var found []string
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, resource := range list.APIResources {
			kind := version.WithResource(resource.Name)
			if !slices.Contains(resource.Verbs, "list") || slices.Contains(passing, kind.GroupResource().String()) {
				continue
			}
			objects, err := client.Resource(kind).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", kind.GroupResource(), err)
			}
			for _, object := range objects.Items {
				if !strings.HasPrefix(object.Namespace, testNamespaces) && !strings.HasPrefix(object.Name, testNamespaces) {
					found = append(found, fmt.Sprintf("%s %s/%s", kind.GroupResource(), object.Namespace, object.Name))
				}
			}
		}
	}
	slices.Sort(found)
	return found, nil
}

// requireSame waits until the cluster has the same objects as before.
func (i *installer) requireSame(before []string) {
	i.Helper()
	i.Eventually("the cluster to have the same objects as before", commandTimeout, func(ctx context.Context) error {
		after, err := i.listObjects(ctx)
		if err != nil {
			return err
		}
		var problems []error
		for _, object := range after {
			if _, found := slices.BinarySearch(before, object); !found {
				problems = append(problems, errors.New("left: "+object))
			}
		}
		for _, object := range before {
			if _, found := slices.BinarySearch(after, object); !found {
				problems = append(problems, errors.New("removed: "+object))
			}
		}
		return errors.Join(problems...)
	})
	i.Logf("%d objects before and after", len(before))
}

func containsWord(text, word string) bool { return slices.Contains(strings.Fields(text), word) }
