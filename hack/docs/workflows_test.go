// SPDX-License-Identifier: Apache-2.0

package main

import (
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
		Steps       []step
	}
}

type step struct {
	Uses, Run string
	With      map[string]any
}

var (
	usesLine = regexp.MustCompile(`^\s*(- )?uses:`)
	pinned   = regexp.MustCompile(`^\s*(- )?uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
)

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

func TestWorkflowsAreLimitedAndRunExistingTargets(t *testing.T) {
	paths, err := filepath.Glob(root + "/.github/workflows/*")
	if err != nil {
		t.Fatal(err)
	}
	targets, run := makeTargets(t), 0
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			if line = strings.TrimRight(line, "\n"); usesLine.MatchString(line) && !pinned.MatchString(line) {
				t.Errorf("%s: pin the action by a commit, and name its version in a comment:\n%s", path, line)
			}
		}
		var parsed workflow
		if err := yaml.Unmarshal(content, &parsed); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if parsed.Permissions == nil || len(*parsed.Permissions) > 0 {
			t.Errorf("%s: write permissions: {} at the top, and grant permissions to jobs", path)
		}
		for name, job := range parsed.Jobs {
			at := path + ": job " + name
			if job.Timeout == 0 || len(job.Permissions) == 0 {
				t.Errorf("%s must have timeout-minutes and permissions of its own", at)
			}
			for _, step := range job.Steps {
				run += checkStep(t, at, step, targets)
			}
		}
	}
	if run == 0 {
		t.Error("no target was found")
	}
}

// checkStep returns the number of make targets that the step runs.
func checkStep(t *testing.T, at string, step step, targets []string) (run int) {
	t.Helper()
	if strings.HasPrefix(step.Uses, "actions/checkout@") && step.With["persist-credentials"] != false {
		t.Errorf("%s keeps the credentials of its checkout: set persist-credentials to false", at)
	}
	// An expression is part of the script when the shell reads it, so its value could contain commands.
	if strings.Contains(step.Run, "${{") {
		t.Errorf("%s has an expression in a script, which must be in env:\n%s", at, step.Run)
	}
	commands, err := calls(step.Run)
	if err != nil {
		t.Errorf("%s: %v", at, err)
	}
	for _, command := range commands {
		after := slices.Index(command, "make") + 1
		if after == 0 {
			continue
		}
		for _, word := range command[after:] {
			if strings.HasPrefix(word, "-") || strings.Contains(word, "=") {
				continue
			}
			if run++; !slices.Contains(targets, word) {
				t.Errorf("%s runs make %s, which is no target", at, word)
			}
		}
	}
	return run
}
