// SPDX-License-Identifier: Apache-2.0

//go:build integration

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/sidecar-termination/operator/hack/testenv"
)

// counter counts the requests of a client.
type counter struct {
	http.RoundTripper
	count atomic.Int64
}

func (c *counter) RoundTrip(request *http.Request) (*http.Response, error) {
	c.count.Add(1)
	return c.RoundTripper.RoundTrip(request)
}

func TestAPIServerIsAskedRarely(t *testing.T) {
	environment := &envtest.Environment{ControlPlaneStartTimeout: 2 * time.Minute, ControlPlaneStopTimeout: 2 * time.Minute}
	config, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	config.QPS = -1
	cluster, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	token := scraperToken(t, cluster)
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	requests := &counter{RoundTripper: httpClient.Transport}
	httpClient.Transport = requests
	port := newMetricsPort(t, config, httpClient)

	testenv.Eventually(t, "the API server knows the new binding", func(context.Context) error {
		port.pass(rememberDenied + time.Second)
		if status := port.get(t, scraper, token); status != http.StatusOK {
			return fmt.Errorf("status %d", status)
		}
		return nil
	})
	requests.count.Store(0)
	for range 100 {
		if status := port.get(t, scraper, token); status != http.StatusOK {
			t.Fatalf("got %d for a client that was allowed", status)
		}
	}
	if count := requests.count.Load(); count != 0 {
		t.Errorf("%d requests to the API server for scrapes within a minute", count)
	}

	if answers := port.flood(t, 1, 43); answers[http.StatusUnauthorized] != addressBurst || answers[http.StatusTooManyRequests] != 43-addressBurst {
		t.Errorf("answers to junk tokens by status: %v", answers)
	}
	if count := requests.count.Load(); count != addressBurst {
		t.Errorf("%d requests to the API server for junk tokens, want %d", count, addressBurst)
	}

	if err := cluster.RbacV1().ClusterRoleBindings().Delete(t.Context(), "metrics", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the client is denied", func(context.Context) error {
		port.pass(rememberAllowed)
		if status := port.get(t, scraper, token); status != http.StatusForbidden {
			return fmt.Errorf("status %d", status)
		}
		return nil
	})
}

// scraperToken returns a token of a ServiceAccount that may get metrics.
func scraperToken(t *testing.T, cluster kubernetes.Interface) string {
	t.Helper()
	named := metav1.ObjectMeta{Name: "metrics"}
	_, account := cluster.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: named}, metav1.CreateOptions{})
	_, role := cluster.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: named, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	}, metav1.CreateOptions{})
	_, binding := cluster.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: named, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "metrics"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "metrics"}},
	}, metav1.CreateOptions{})
	issued, err := cluster.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "metrics", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err := errors.Join(account, role, binding, err); err != nil {
		t.Fatal(err)
	}
	return issued.Status.Token
}
