// SPDX-License-Identifier: Apache-2.0

package crdify_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// Directories of the repository.
const (
	definitions = "config/crd/bases"
	// released has the definitions of the last release, for checkouts without tags. It need not exist.
	released = "config/crd/released"
)

// baseline is the state that the current definitions are compared with.
type baseline struct {
	name        string
	definitions map[string][]byte
}

// findBaseline returns the definitions of a commit, or, if none is named, those of the
// last release: of the directory of released definitions, or else of the newest tag of a
// version that is in the history. It returns nil when there was no release.
func findBaseline(repository, commit string) (*baseline, error) {
	if commit != "" {
		return readCommit(repository, commit)
	}
	if _, err := os.Stat(filepath.Join(repository, released)); err == nil {
		found, err := readDirectory(repository, released)
		return &baseline{name: released, definitions: found}, err
	}
	tag, err := newestRelease(repository)
	if err != nil || tag == "" {
		return nil, err
	}
	return readCommit(repository, tag)
}

// newestRelease returns the tag of the last release, or nothing.
func newestRelease(repository string) (string, error) {
	tags, err := git(repository, "tag", "--list", "v[0-9]*", "--merged", "HEAD", "--sort=-version:refname")
	if err != nil {
		return "", err
	}
	newest, _, _ := strings.Cut(string(tags), "\n")
	return newest, nil
}

func readCommit(repository, commit string) (*baseline, error) {
	// Without --end-of-options a name could be an option.
	listed, err := git(repository, "ls-tree", "--name-only", "-z", "--end-of-options", commit, definitions+"/")
	if err != nil {
		return nil, err
	}
	found := map[string][]byte{}
	for _, file := range strings.Split(string(listed), "\x00") {
		if path.Ext(file) != ".yaml" {
			continue
		}
		if found[path.Base(file)], err = git(repository, "show", "--end-of-options", commit+":"+file); err != nil {
			return nil, err
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("read the CRDs of %s: it has none in %s", commit, definitions)
	}
	return &baseline{name: commit, definitions: found}, nil
}

func readDirectory(repository, directory string) (map[string][]byte, error) {
	files, err := filepath.Glob(filepath.Join(repository, directory, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", directory, err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("read the CRDs of %s: there are none", directory)
	}
	found := map[string][]byte{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read a CRD: %w", err)
		}
		found[filepath.Base(file)] = content
	}
	return found, nil
}

func git(repository string, arguments ...string) ([]byte, error) {
	command := exec.Command("git", append([]string{"-C", repository}, arguments...)...)
	message := &bytes.Buffer{}
	command.Stderr = message
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w: %s", strings.Join(arguments, " "), err, bytes.TrimSpace(message.Bytes()))
	}
	return output, nil
}
