//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/e2e/docs"
	"github.com/sidecar-termination/operator/e2e/harness"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// blockTimeout limits the commands of one block.
const blockTimeout = 3 * time.Minute

func TestDocumentCommands(t *testing.T) {
	harness.Shared(t)
	runDocuments(t, (*testing.T).Parallel, func(document docs.Document) bool { return !changesOperator(document) })
}

func TestDocumentCommandsThatInstall(t *testing.T) {
	harness.Exclusive(t)
	quick := []string{"README.md", "docs/troubleshooting.md"}
	runDocuments(t, (*testing.T).Helper, func(document docs.Document) bool {
		return changesOperator(document) && (testenv.Long() || slices.Contains(quick, document.Path))
	})
}

// changesOperator reports whether a document's commands may change the deployed operator or its admission policies.
func changesOperator(document docs.Document) bool {
	return slices.ContainsFunc(document.Blocks, func(block docs.Block) bool {
		script := block.Script()
		return block.NotRun == "" && (strings.Contains(script, "config/default") || strings.Contains(script, "config/admission") ||
			strings.Contains(script, "patch deployment"))
	})
}

// runDocuments runs the commands of the selected documents, each document in its own namespace and its own copy of the repository. It
// calls begin at the start of each.
func runDocuments(t *testing.T, begin func(*testing.T), selected func(docs.Document) bool) {
	t.Helper()
	cluster, err := harness.Connect()
	if err != nil {
		t.Fatal(err)
	}
	documents, err := docs.Read(cluster.Repository)
	if err != nil {
		t.Fatal(err)
	}
	plugin, err := buildPlugin()
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, document := range documents {
		if selected(document) && slices.ContainsFunc(document.Blocks, runsOnCluster) {
			ran++
			t.Run(strings.TrimSuffix(filepath.Base(document.Path), ".md"), func(t *testing.T) {
				begin(t)
				runDocument(t, plugin, document)
			})
		}
	}
	if ran == 0 {
		t.Error("no document has commands for a cluster")
	}
}

func runsOnCluster(block docs.Block) bool { return block.Kind == docs.Cluster && block.NotRun == "" }

func runDocument(t *testing.T, plugin string, document docs.Document) {
	t.Helper()
	test := harness.New(t)
	place, err := docs.NewPlace(test.Repository, plugin, test.TempDir())
	if err != nil {
		test.Fatal(err)
	}
	if err := os.Symlink(test.KubectlProgram(), filepath.Join(place.Programs, "kubectl")); err != nil {
		test.Fatal(err)
	}
	if changesOperator(document) {
		test.RestoreWith("reinstall")
	}
	useLocalImages(test, place)
	kubeconfig := test.WriteKubeconfig(func(config *clientcmdapi.Config) { config.Contexts[config.CurrentContext].Namespace = test.Namespace })
	place.Environment = []string{"KUBECONFIG=" + kubeconfig}
	for _, block := range document.Blocks {
		if name := block.File(); name != "" {
			if err := place.Write(name, withLocalImages(test, block)); err != nil {
				test.Fatal(err)
			}
		}
		if !runsOnCluster(block) {
			continue
		}
		script := allowFindings(block.Given + "\n" + block.Script())
		removeAtEnd(test, place, block.Commands)
		ctx, cancel := context.WithTimeout(test.Context(), blockTimeout)
		output, err := place.Run(ctx, script)
		cancel()
		if err != nil {
			test.Fatalf("%s:%d: %v\n%s\n%s", document.Path, block.Line, err, script, output)
		}
		test.Logf("%s:%d\n%s\n%s", document.Path, block.Line, block.Script(), output)
	}
}

var (
	// ofAllNamespaces matches commands for all namespaces.
	ofAllNamespaces = regexp.MustCompile(`(?m)^kubectl sidecar-termination [^#\n]*-A\b`)
	// exitsWithOne matches commands whose comment says so.
	exitsWithOne = regexp.MustCompile(`(?m)^(kubectl sidecar-termination [^#\n]*)# exits with 1.*$`)
)

// allowFindings accepts exit code 1 of commands for all namespaces, which report problems in other namespaces, and requires it of those
// that announce it.
func allowFindings(script string) string {
	script = ofAllNamespaces.ReplaceAllString(script, `$0 || test $${?} = 1 `)
	return exitsWithOne.ReplaceAllString(script, `{ code=0; $1 || code=$${?}; test $${code} = 1; }`)
}

// removeAtEnd deletes the namespaces that commands create and the testdata that they apply when the test ends. First it waits until those of
// an earlier test are gone.
func removeAtEnd(test *harness.Test, place *docs.Place, commands [][]string) {
	test.Helper()
	for _, call := range commands {
		created := ""
		switch {
		case len(call) == 4 && slices.Equal(call[:3], []string{"kubectl", "create", "namespace"}):
			created = "namespace " + call[3]
		case len(call) == 4 && slices.Equal(call[:3], []string{"kubectl", "apply", "-f"}) && strings.HasPrefix(call[3], "testdata/"):
			created = "-f " + call[3]
		default:
			continue
		}
		what := fmt.Sprintf("what the document creates to be gone (delete it with `kubectl delete %s` if it is not needed)", created)
		test.Eventually(what, blockTimeout, func(ctx context.Context) error {
			there, err := place.Run(ctx, "kubectl get --ignore-not-found -o name "+created)
			if there != "" {
				return errors.Join(err, errors.New(there))
			}
			return err
		})
		test.Cleanup(func() {
			if output, err := place.Run(context.Background(), "kubectl delete --ignore-not-found --wait=false "+created); err != nil {
				test.Errorf("%v\n%s", err, output)
			}
		})
	}
}

// localNames maps the images of the repository's manifests to the local cluster's.
var localNames = strings.NewReplacer(
	"docker.io/library/busybox:1.37", harness.BusyboxImage,
	"ghcr.io/sidecar-termination/quick-exit:v0.1.0", harness.QuickExitImage,
)

// useLocalImages changes the copy to images that the local cluster has. It replaces config/default with config/overlays/local
// and the deployed operator's image, and the other images in manifests with local ones.
func useLocalImages(test *harness.Test, place *docs.Place) {
	test.Helper()
	in := func(path string) string { return filepath.Join(place.Directory, filepath.FromSlash(path)) }
	for _, directory := range []string{"config/samples", "config/examples", "testdata/docs"} {
		rewrite(test, in(directory), localNames)
	}
	operator := harness.OperatorDeployment()
	test.Get(operator)
	repository, tag, _ := strings.Cut(operator.Spec.Template.Spec.Containers[0].Image, ":")
	if err := os.Rename(in("config/default"), in("config/shipped")); err != nil {
		test.Fatal(err)
	}
	rewrite(test, in("config/overlays/local"), strings.NewReplacer("../../default", "../../shipped"))
	if err := os.Mkdir(in("config/default"), 0o700); err != nil {
		test.Fatal(err)
	}
	kustomization := fmt.Sprintf("resources: [../overlays/local]\nimages: [{name: %s, newTag: %q}]\n", repository, tag)
	if !test.ServesOutcomePolicy() {
		kustomization += "components: [../components/no-outcome-policy]\n"
	}
	if err := place.Write("config/default/kustomization.yaml", kustomization); err != nil {
		test.Fatal(err)
	}
}

// rewrite replaces strings in the YAML files of a directory tree.
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

// withLocalImages returns a block's manifests with images of the local cluster. It replaces containers without a local image by
// busybox that runs until SIGTERM and then fails.
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
		simulateContainers(object.Object)
		content, err := yaml.Marshal(object.Object)
		if err != nil {
			test.Fatal(err)
		}
		manifests = append(manifests, string(content))
	}
	return strings.Join(manifests, "---\n")
}

// simulateContainers applies simulate to all containers of an object.
func simulateContainers(node map[string]any) {
	for key, value := range node {
		switch child := value.(type) {
		case map[string]any:
			simulateContainers(child)
		case []any:
			for _, item := range child {
				if container, ok := item.(map[string]any); ok && (key == "containers" || key == "initContainers") {
					simulate(container)
				}
			}
		}
	}
}

func simulate(container map[string]any) {
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
