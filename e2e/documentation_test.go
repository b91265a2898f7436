//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/e2e/harness"
	"github.com/sidecar-termination/operator/internal/docs"
)

// blockTimeout is how long the commands of one block may take.
const blockTimeout = 3 * time.Minute

// Documents that leave the operator as it is disturb nobody.
func TestCommandsOfTheGuides(t *testing.T) {
	harness.Shared(t)
	runDocuments(t, func(document docs.Document) bool { return inGuides(document) && !touchesTheOperator(document) })
}

// The other documents install, change and remove the operator, or have namespaces of the same name.
func TestCommandsOfTheDocuments(t *testing.T) {
	harness.Exclusive(t)
	runDocuments(t, func(document docs.Document) bool { return !inGuides(document) || touchesTheOperator(document) })
}

func inGuides(document docs.Document) bool { return strings.HasPrefix(document.Path, "docs/guides/") }

// touchesTheOperator reports whether a document's commands may leave the operator other than it was deployed.
func touchesTheOperator(document docs.Document) bool {
	return slices.ContainsFunc(document.Blocks, func(block docs.Block) bool {
		script := block.Script()
		return block.NotRun == "" && (strings.Contains(script, "config/default") ||
			strings.Contains(script, "patch deployment") || strings.Contains(script, "delete clusterrole"))
	})
}

// runDocuments runs the commands of documents in their order, each document in a namespace of its own.
func runDocuments(t *testing.T, chosen func(docs.Document) bool) {
	t.Helper()
	cluster, err := harness.Connect()
	if err != nil {
		t.Fatal(err)
	}
	documents, err := docs.Read(cluster.Repository)
	if err != nil {
		t.Fatal(err)
	}
	program, err := buildOperator()
	if err != nil {
		t.Fatal(err)
	}
	place, err := docs.NewPlace(cluster.Repository, program, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(kubectlProgram(cluster.Repository), filepath.Join(place.Programs, "kubectl")); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, document := range documents {
		if chosen(document) && needsCluster(t, document) {
			ran++
			t.Run(strings.TrimSuffix(filepath.Base(document.Path), ".md"), func(t *testing.T) { runDocument(t, place, document) })
		}
	}
	if ran == 0 {
		t.Error("no document has commands for a cluster")
	}
}

func needsCluster(t *testing.T, document docs.Document) bool {
	t.Helper()
	return slices.ContainsFunc(document.Blocks, func(block docs.Block) bool { return kindOf(t, block) == docs.Cluster })
}

// kindOf returns what the commands of the block need, if they are to be run at all.
func kindOf(t *testing.T, block docs.Block) docs.Kind {
	t.Helper()
	if block.NotRun != "" {
		return docs.NoCommands
	}
	kind, err := block.Kind()
	if err != nil {
		t.Fatal(err)
	}
	return kind
}

func runDocument(t *testing.T, place *docs.Place, document docs.Document) {
	t.Helper()
	test := harness.New(t)
	if touchesTheOperator(document) {
		test.RestoreWith("deploy")
	}
	useLocalImages(test, place)
	place.Environment = []string{
		"KUBECONFIG=" + kubeconfigFor(test), "NODE=" + virtualNode, "IMAGE=" + harness.QuickExitImage, "BUSYBOX=" + harness.BusyboxImage,
	}
	for _, block := range document.Blocks {
		if name := block.File(); name != "" {
			if err := place.Write(name, withLocalImages(test, block)); err != nil {
				test.Fatal(err)
			}
		}
		if kindOf(t, block) != docs.Cluster {
			continue
		}
		script := besideOthers(block.Given + "\n" + block.Script())
		removeAtEnd(test, place, script)
		ctx, cancel := context.WithTimeout(test.Context(), blockTimeout)
		output, err := place.Run(ctx, script)
		cancel()
		if err != nil {
			test.Fatalf("%s:%d: %v\n%s\n%s", document.Path, block.Line, err, script, output)
		}
		test.Logf("%s:%d\n%s\n%s", document.Path, block.Line, block.Script(), output)
	}
}

// ofAllNamespaces finds commands that look at all namespaces.
var ofAllNamespaces = regexp.MustCompile(`(?m)^kubectl sidecar-termination [^#\n]*-A\b`)

// besideOthers lets commands find a problem in the namespaces of others, which ends them with exit code 1.
func besideOthers(script string) string {
	return ofAllNamespaces.ReplaceAllString(script, `$0 || test $${?} = 1 `)
}

// removeAtEnd removes the namespaces that a script creates, and what it applies to the cluster from testdata. What is there
// already is somebody else's, and must neither be changed nor be removed.
func removeAtEnd(test *harness.Test, place *docs.Place, script string) {
	test.Helper()
	calls, err := docs.Calls(script)
	if err != nil {
		test.Fatal(err)
	}
	for _, call := range calls {
		made := ""
		switch {
		case len(call) == 4 && slices.Equal(call[:3], []string{"kubectl", "create", "namespace"}):
			made = "namespace " + call[3]
		case len(call) == 4 && slices.Equal(call[:3], []string{"kubectl", "apply", "-f"}) && strings.HasPrefix(call[3], "testdata/"):
			made = "-f " + call[3]
		default:
			continue
		}
		there, err := place.Run(test.Context(), "kubectl get --ignore-not-found -o name "+made)
		if err != nil {
			test.Fatalf("%v\n%s", err, there)
		}
		if there != "" {
			test.Fatalf("In the way is %s, which the document creates and the test removes: if nobody needs it, delete it with `kubectl delete %s`",
				strings.Join(strings.Fields(there), ", "), made)
		}
		test.Cleanup(func() {
			if output, err := place.Run(context.Background(), "kubectl delete --ignore-not-found "+made); err != nil {
				test.Errorf("%v\n%s", err, output)
			}
		})
	}
}

// kubeconfigFor writes a kubeconfig for the cluster in which the test's namespace is the current one.
func kubeconfigFor(test *harness.Test) string {
	test.Helper()
	path := os.Getenv("KUBECONFIG")
	if path == "" {
		path = filepath.Join(test.Repository, ".cluster", "kubeconfig")
	}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		test.Fatal(err)
	}
	config.Contexts[config.CurrentContext].Namespace = test.Namespace
	own := filepath.Join(test.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, own); err != nil {
		test.Fatal(err)
	}
	return own
}

// localNames are the images of the repository's manifests as the local cluster has them.
var localNames = strings.NewReplacer(
	"docker.io/library/busybox:1.37", harness.BusyboxImage,
	"ghcr.io/sidecar-termination/quick-exit:v0.1.0", harness.QuickExitImage,
)

// useLocalImages lets config/default of the copy mean config/overlays/local with the operator that is deployed, and the
// manifests that documents name use images that the local cluster has.
func useLocalImages(test *harness.Test, place *docs.Place) {
	test.Helper()
	in := func(path string) string { return filepath.Join(place.Directory, filepath.FromSlash(path)) }
	for _, directory := range []string{"config/samples", "config/examples", "testdata/docs"} {
		rewrite(test, in(directory), localNames)
	}
	if _, err := os.Stat(in("config/shipped")); err == nil {
		return
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: harness.OperatorNamespace, Name: "sidecar-termination-controller-manager",
	}}
	test.Get(deployment)
	repository, tag, _ := strings.Cut(deployment.Spec.Template.Spec.Containers[0].Image, ":")
	if err := os.Rename(in("config/default"), in("config/shipped")); err != nil {
		test.Fatal(err)
	}
	rewrite(test, in("config/overlays/local"), strings.NewReplacer("../../default", "../../shipped"))
	if err := os.Mkdir(in("config/default"), 0o700); err != nil {
		test.Fatal(err)
	}
	kustomization := fmt.Sprintf("resources: [../overlays/local]\nimages: [{name: %s, newTag: %q}]\n", repository, tag)
	if err := place.Write("config/default/kustomization.yaml", kustomization); err != nil {
		test.Fatal(err)
	}
}

// rewrite replaces strings in the YAML files below a directory.
func rewrite(test *harness.Test, directory string, replacer *strings.Replacer) {
	test.Helper()
	err := filepath.WalkDir(directory, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, []byte(replacer.Replace(string(content))), 0o600)
	})
	if err != nil {
		test.Fatal(err)
	}
}

// withLocalImages returns the manifests of a block with images that the local cluster has. A container with an image of
// busybox stays as it is; any other one is played by a program that runs until it is told to stop and then fails, which is
// the worst that a sidecar does.
func withLocalImages(test *harness.Test, block docs.Block) string {
	test.Helper()
	objects, err := block.Manifests()
	if err != nil {
		test.Fatal(err)
	}
	if len(objects) == 0 {
		return block.Text
	}
	var manifests []string
	for _, object := range objects {
		play(object.Object)
		content, err := yaml.Marshal(object.Object)
		if err != nil {
			test.Fatal(err)
		}
		manifests = append(manifests, string(content))
	}
	return strings.Join(manifests, "---\n")
}

// play goes through everything in an object that may hold containers.
func play(node map[string]any) {
	for key, value := range node {
		switch child := value.(type) {
		case map[string]any:
			play(child)
		case []any:
			for _, item := range child {
				if container, ok := item.(map[string]any); ok && (key == "containers" || key == "initContainers") {
					playContainer(container)
				}
			}
		}
	}
}

func playContainer(container map[string]any) {
	if image, _ := container["image"].(string); localNames.Replace(image) != image {
		container["image"] = localNames.Replace(image)
		return
	}
	container["image"] = harness.BusyboxImage
	container["command"] = []any{"/bin/sh", "-c", harness.ExitsSevenOnTerm}
	for _, field := range []string{"args", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe", "securityContext"} {
		delete(container, field)
	}
}
