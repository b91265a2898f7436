// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

type workflow struct {
	Permissions *map[string]string
	Jobs        map[string]struct {
		Timeout     int `json:"timeout-minutes"`
		Permissions map[string]string
		Steps       []struct {
			Uses, Run string
			With      map[string]any
		}
	}
}

// workflows returns the content of every workflow by its path.
func workflows(t *testing.T) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob(root + "/.github/workflows/*")
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Fatal("no workflow was found")
	}
	contents := map[string][]byte{}
	for _, path := range paths {
		if contents[path], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	return contents
}

func parseWorkflow(t *testing.T, path string, content []byte) workflow {
	t.Helper()
	var parsed workflow
	if err := yaml.Unmarshal(content, &parsed); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if len(parsed.Jobs) == 0 {
		t.Errorf("%s has no jobs", path)
	}
	return parsed
}

var (
	usesLine = regexp.MustCompile(`^\s*(- )?uses:`)
	pinned   = regexp.MustCompile(`^\s*(- )?uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
)

func TestActionsArePinnedByCommit(t *testing.T) {
	versions := map[string]string{}
	for path, content := range workflows(t) {
		for line := range strings.Lines(string(content)) {
			line = strings.TrimRight(line, "\n")
			if !usesLine.MatchString(line) {
				continue
			}
			if !pinned.MatchString(line) {
				t.Errorf("%s: pin the action by a commit, and name its version in a comment:\n%s", path, line)
				continue
			}
			_, action, _ := strings.Cut(line, "uses: ")
			repository, version, _ := strings.Cut(action, "@")
			if owner, rest, _ := strings.Cut(repository, "/"); strings.Contains(rest, "/") {
				name, _, _ := strings.Cut(rest, "/")
				repository = owner + "/" + name
			}
			if other, found := versions[repository]; found && other != version {
				t.Errorf("%s: %s is used as %s and as %s", path, repository, other, version)
			}
			versions[repository] = version
		}
	}
	if len(versions) == 0 {
		t.Error("no action was found")
	}
}

func TestJobsHaveTimeoutAndLeastPermissions(t *testing.T) {
	for path, content := range workflows(t) {
		parsed := parseWorkflow(t, path, content)
		if parsed.Permissions == nil || len(*parsed.Permissions) > 0 {
			t.Errorf("%s: write permissions: {} at the top, and grant permissions to jobs", path)
		}
		for name, job := range parsed.Jobs {
			if job.Timeout == 0 {
				t.Errorf("%s: job %s has no timeout-minutes", path, name)
			}
			if len(job.Permissions) == 0 {
				t.Errorf("%s: job %s has no permissions of its own", path, name)
			}
			for _, step := range job.Steps {
				if strings.HasPrefix(step.Uses, "actions/checkout@") && step.With["persist-credentials"] != false {
					t.Errorf("%s: job %s keeps the credentials of its checkout: set persist-credentials to false", path, name)
				}
			}
		}
	}
}

// An expression is part of the script when the shell reads it, so its value could contain commands.
func TestScriptsContainNoExpressions(t *testing.T) {
	for path, content := range workflows(t) {
		for name, job := range parseWorkflow(t, path, content).Jobs {
			for _, step := range job.Steps {
				if strings.Contains(step.Run, "${{") {
					t.Errorf("%s: job %s has an expression in a script, which must be in env:\n%s", path, name, step.Run)
				}
			}
		}
	}
}

var target = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)

// makeTargets returns the targets of the Makefile and of the files that it includes.
func makeTargets(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(root + "/hack/*/*.mk")
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, file := range append(files, root+"/Makefile") {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range target.FindAllStringSubmatch(string(content), -1) {
			targets = append(targets, match[1])
		}
	}
	return targets
}

func TestWorkflowsRunExistingTargets(t *testing.T) {
	targets := makeTargets(t)
	found := 0
	for path, content := range workflows(t) {
		for name, job := range parseWorkflow(t, path, content).Jobs {
			for _, step := range job.Steps {
				commands, err := calls(step.Run)
				if err != nil {
					t.Errorf("%s: job %s: %v", path, name, err)
				}
				for _, command := range commands {
					at := slices.Index(command, "make")
					if at < 0 {
						continue
					}
					for _, word := range command[at+1:] {
						if strings.HasPrefix(word, "-") || strings.Contains(word, "=") {
							continue
						}
						if found++; !slices.Contains(targets, word) {
							t.Errorf("%s: job %s runs make %s, which is no target", path, name, word)
						}
					}
				}
			}
		}
	}
	if found == 0 {
		t.Error("no target was found")
	}
}

// versioned are modules that build the components of the local cluster in the version of their name.
var versioned = regexp.MustCompile(`^/hack/tools/[^/]*-v[0-9][^/]*$`)

func TestDependabotListsModules(t *testing.T) {
	content, err := os.ReadFile(root + "/.github/dependabot.yml")
	if err != nil {
		t.Fatal(err)
	}
	var dependabot struct {
		Updates []struct {
			Ecosystem   string `json:"package-ecosystem"`
			Directories []string
		}
	}
	if err := yaml.Unmarshal(content, &dependabot); err != nil {
		t.Fatal(err)
	}
	var listed, modules []string
	for _, update := range dependabot.Updates {
		if update.Ecosystem == "gomod" {
			listed = append(listed, update.Directories...)
		}
	}
	err = fs.WalkDir(os.DirFS(root), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != "." && (strings.HasPrefix(entry.Name(), ".") || slices.Contains([]string{"bin", "dist", "testdata"}, entry.Name())):
			return fs.SkipDir
		case entry.Name() == "go.mod":
			if directory := strings.TrimSuffix("/"+filepath.ToSlash(filepath.Dir(path)), "."); !versioned.MatchString(directory) {
				modules = append(modules, directory)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(modules)
	slices.Sort(listed)
	if !slices.Equal(listed, modules) {
		t.Errorf(".github/dependabot.yml lists the modules %q, and the repository has %q", listed, modules)
	}
}
