// SPDX-License-Identifier: Apache-2.0

//go:build integration

package config_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/hack/testenv"
)

func TestMetricsRequireAuthorization(t *testing.T) {
	program := build(t)
	rendered := apply(t, "default")
	address := testenv.FreeAddress(t)
	operator := start(t, program, append(arguments(t, rendered), "--metrics-bind-address="+address)...)
	defer operator.stop(t)
	if !operator.eventually(operator.isReady) {
		t.Fatal("the operator is not ready")
	}
	space := newNamespace(t)
	stranger, prometheus := newToken(t, space, "stranger"), newToken(t, space, "prometheus")
	elsewhere := newTokenFor(t, space, "prometheus", "https://elsewhere.example")
	c, _ := newClient(t)
	create(t, c, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "metrics-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sidecar-termination-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: space, Name: "prometheus"}},
	})
	for _, tc := range []struct {
		name, token string
		want        int
	}{
		{"no token", "", http.StatusUnauthorized},
		{"invalid token", "made-up", http.StatusUnauthorized},
		{"no permission", stranger, http.StatusForbidden},
		{"role bound, other audience", elsewhere, http.StatusUnauthorized},
		{"role bound", prometheus, http.StatusOK},
	} {
		t.Run(tc.name, func(t *testing.T) {
			testenv.Eventually(t, "the permissions to be effective", func(ctx context.Context) error {
				status, body, err := scrape(ctx, "https://"+address+"/metrics", tc.token)
				switch {
				case err != nil:
					return err
				case status != tc.want:
					return errors.New(http.StatusText(status))
				case strings.Contains(body, "controller_runtime_") != (tc.want == http.StatusOK):
					return errors.New("unexpected body: " + body)
				}
				return nil
			})
		})
	}
	t.Run("other paths", func(t *testing.T) {
		for _, path := range []string{"/", "/debug/pprof/", "/metrics/other"} {
			status, _, err := scrape(t.Context(), "https://"+address+path, prometheus)
			if err != nil || status < http.StatusBadRequest {
				t.Errorf("%s: status %d, error %v; want an error status", path, status, err)
			}
		}
	})
	t.Run("plain HTTP", func(t *testing.T) {
		if status, body, err := scrape(t.Context(), "http://"+address+"/metrics", prometheus); err == nil && status == http.StatusOK {
			t.Errorf("got response: %s", body)
		}
	})
}

// newToken returns a token of a new ServiceAccount.
func newToken(t *testing.T, space, name string) string {
	t.Helper()
	c, _ := newClient(t)
	create(t, c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: name}})
	return newTokenFor(t, space, name)
}

// newTokenFor returns a token of a ServiceAccount for the audiences, by default the API server.
func newTokenFor(t *testing.T, space, name string, audiences ...string) string {
	t.Helper()
	c, _ := newClient(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: name}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	if err := c.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

func scrape(ctx context.Context, url, token string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	// The operator's certificate is self-signed.
	trusting := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := trusting.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}
