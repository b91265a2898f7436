// SPDX-License-Identifier: Apache-2.0

package imagelist_test

import (
	"strings"
	"testing"

	"github.com/sidecar-termination/operator/internal/imagelist"
)

const digest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func parse(t *testing.T, entries ...string) imagelist.List {
	t.Helper()
	var list imagelist.List
	for _, text := range entries {
		entry, err := imagelist.ParseEntry(text)
		if err != nil {
			t.Fatal(err)
		}
		list.Entries = append(list.Entries, entry)
	}
	return list
}

func TestCheck(t *testing.T) {
	for name, tc := range map[string]struct {
		entries []string
		image   string
		want    string // part of the error; empty when the image is permitted
	}{
		"an empty list permits every image":                      {image: "anything:v1"},
		"a repository permits every tag":                         {entries: []string{"registry.example/quick-exit"}, image: "registry.example/quick-exit:v1"},
		"a repository permits every digest":                      {entries: []string{"registry.example/quick-exit"}, image: "registry.example/quick-exit@" + digest},
		"a repository permits no other repository":               {entries: []string{"registry.example/quick-exit"}, image: "registry.example/quick-exit-evil:v1", want: "not on the list"},
		"a repository permits no repository below it":            {entries: []string{"registry.example/quick-exit"}, image: "registry.example/quick-exit/evil", want: "not on the list"},
		"a host with the same prefix is another host":            {entries: []string{"registry.example/*"}, image: "registry.example.evil.test/quick-exit", want: "not on the list"},
		"a host with the same suffix is another host":            {entries: []string{"registry.example/*"}, image: "evil-registry.example/quick-exit", want: "not on the list"},
		"another port is another host":                           {entries: []string{"registry.example/*"}, image: "registry.example:5000/quick-exit", want: "not on the list"},
		"a path is not a host":                                   {entries: []string{"registry.example/*"}, image: "evil.test/registry.example/quick-exit", want: "not on the list"},
		"a host permits its repositories":                        {entries: []string{"registry.example/*"}, image: "registry.example/a/b/quick-exit:v1"},
		"a path permits repositories below it":                   {entries: []string{"registry.example/team/*"}, image: "registry.example/team/quick-exit:v1"},
		"a path permits no path with the same prefix":            {entries: []string{"registry.example/team/*"}, image: "registry.example/team-evil/quick-exit:v1", want: "not on the list"},
		"a path does not permit itself":                          {entries: []string{"registry.example/team/*"}, image: "registry.example/team:v1", want: "not on the list"},
		"a tag permits no other tag":                             {entries: []string{"registry.example/quick-exit:v1"}, image: "registry.example/quick-exit:v2", want: "not on the list"},
		"a tag permits that tag":                                 {entries: []string{"registry.example/quick-exit:v1"}, image: "registry.example/quick-exit:v1"},
		"a digest permits that digest":                           {entries: []string{"registry.example/quick-exit@" + digest}, image: "registry.example/quick-exit@" + digest},
		"a permitted digest permits any tag with it":             {entries: []string{"registry.example/quick-exit@" + digest}, image: "registry.example/quick-exit:any@" + digest},
		"a digest permits no tag":                                {entries: []string{"registry.example/quick-exit@" + digest}, image: "registry.example/quick-exit:v1", want: "not on the list"},
		"one of several entries is enough":                       {entries: []string{"a.example/x", "registry.example/quick-exit"}, image: "registry.example/quick-exit:v1"},
		"a short name is a Docker Hub image":                     {entries: []string{"docker.io/library/busybox"}, image: "busybox"},
		"Docker Hub permits its repositories":                    {entries: []string{"docker.io/*"}, image: "busybox:v1"},
		"an organization of Docker Hub permits its repositories": {entries: []string{"docker.io/myorg/*"}, image: "myorg/quick-exit:v1"},
		"an organization of Docker Hub permits no other path":    {entries: []string{"docker.io/myorg/*"}, image: "library/myorg/quick-exit:v1", want: "not on the list"},
		"a path without a registry is a Docker Hub path":         {entries: []string{"myorg/team/*"}, image: "docker.io/myorg/team/quick-exit:v1"},
		"a host with a port permits its repositories":            {entries: []string{"registry:5000/*"}, image: "registry:5000/quick-exit:v1"},
		"localhost is a host":                                    {entries: []string{"localhost/*"}, image: "localhost/quick-exit:v1"},
		"not an image reference":                                 {entries: []string{"a.example/x"}, image: "a.example/x:", want: "parse"},
	} {
		t.Run(name, func(t *testing.T) {
			list := parse(t, tc.entries...)
			err := list.Check(tc.image)
			if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestParseEntryRejectsInvalid(t *testing.T) {
	for _, text := range []string{"", "*", "/*", "*.example/x", "registry.example/te*m", "registry.example/team*", "registry.example/x y", "registry.example/*/x", "registry.example/x@sha256:1"} {
		if entry, err := imagelist.ParseEntry(text); err == nil {
			t.Errorf("%q is parsed as %#v", text, entry)
		}
	}
}

// An ambiguous entry is an error, because it could permit nothing or the wrong images.
func TestParseEntryExplainsSingleElement(t *testing.T) {
	for text, want := range map[string]string{
		"myorg/*":               "write docker.io/myorg/*",
		"registry.example":      "write registry.example/*, for a Docker Hub image docker.io/library/registry.example",
		"registry.example:5000": "write registry.example:5000/*",
		"localhost":             "write localhost/*",
		"localhost:5000":        "write localhost:5000/*",
	} {
		if _, err := imagelist.ParseEntry(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want %q", text, err, want)
		}
	}
}

// No entry permits an image of another registry or outside its repositories.
func FuzzCheck(f *testing.F) {
	f.Add("registry.example/team/*", "registry.example/team/quick-exit:v1")
	f.Add("registry.example/quick-exit", "registry.example/quick-exit@"+digest)
	f.Add("localhost:5000/x:v1", "localhost:5000/x:v1")
	f.Add("busybox", "docker.io/library/busybox")
	f.Fuzz(func(t *testing.T, text, image string) {
		entry, err := imagelist.ParseEntry(text)
		if err != nil {
			return
		}
		if (imagelist.List{Entries: []imagelist.Entry{entry}}).Check(image) != nil {
			return
		}
		// An entry and an image that both name a registry must name the same.
		host := func(s string) string { head, _, _ := strings.Cut(s, "/"); return head }
		for _, part := range []string{text, image} {
			if h := host(part); !strings.Contains(part, "/") || !strings.ContainsAny(h, ".:") && h != "localhost" || strings.HasSuffix(h, "docker.io") {
				return
			}
		}
		if host(text) != host(image) {
			t.Errorf("entry %q permits %q", text, image)
		}
	})
}
