// SPDX-License-Identifier: Apache-2.0

package ociimage

import (
	"net/http"
	"testing"
)

// answering is a transport that answers everything.
type answering struct{}

func (answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{Body: http.NoBody}, nil
}

func TestNothingIsSentInTheClear(t *testing.T) {
	client := http.Client{Transport: encrypted{answering{}}}
	for url, allowed := range map[string]bool{
		"https://registry.example/v2/":  true,
		"http://localhost:5000/v2/":     true,
		"http://127.0.0.1:5000/v2/":     true,
		"http://[::1]:5000/v2/":         true,
		"http://registry.example/v2/":   false,
		"http://10.1.2.3:5000/v2/":      false,
		"http://registry.local/v2/":     false,
		"http://localhost.example/v2/":  false,
		"http://127.0.0.1.example/v2/":  false,
		"http://192.168.0.1:443/v2/":    false,
		"http://user@127.0.0.1:50/v2/x": true,
	} {
		if _, err := client.Get(url); (err == nil) != allowed { //nolint:bodyclose,noctx // Nothing is sent.
			t.Errorf("%s: %v", url, err)
		}
	}
}
