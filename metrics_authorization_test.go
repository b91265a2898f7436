// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
)

// reviewer answers as the API server, and keeps what it was asked.
type reviewer struct {
	mutex sync.Mutex
	// users are the answers by token. A nil answer is an internal error. Other tokens are rejected.
	users  map[string]*authenticationv1.TokenReviewStatus
	access *authorizationv1.SubjectAccessReviewStatus

	tokens []string
	asked  []authorizationv1.SubjectAccessReviewSpec
}

func (r *reviewer) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if strings.HasSuffix(request.URL.Path, "/tokenreviews") {
		var review authenticationv1.TokenReview
		_ = json.NewDecoder(request.Body).Decode(&review)
		status, known := r.users[review.Spec.Token]
		if known && status == nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		r.tokens = append(r.tokens, review.Spec.Token)
		review.Status = ptr.Deref(status, authenticationv1.TokenReviewStatus{})
		_ = json.NewEncoder(w).Encode(review)
		return
	}
	if r.access == nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	var review authorizationv1.SubjectAccessReview
	_ = json.NewDecoder(request.Body).Decode(&review)
	r.asked = append(r.asked, review.Spec)
	review.Status = *r.access
	_ = json.NewEncoder(w).Encode(review)
}

// metricsPort serves metrics to those whom an API server permits, and has a clock that tests move.
type metricsPort struct {
	http.Handler
	clock *clocktesting.FakePassiveClock
}

func newMetricsPort(t *testing.T, config *rest.Config, httpClient *http.Client) *metricsPort {
	t.Helper()
	now := clocktesting.NewFakePassiveClock(time.Now())
	filter, err := authorized(now)(config, httpClient)
	if err != nil {
		t.Fatal(err)
	}
	handler, err := filter(logr.Discard(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("metrics")) }))
	if err != nil {
		t.Fatal(err)
	}
	return &metricsPort{handler, now}
}

// serve starts the reviewer and a metrics port that asks it.
func (r *reviewer) serve(t *testing.T) *metricsPort {
	t.Helper()
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	return newMetricsPort(t, &rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, server.Client())
}

// reviews returns how many tokens were reviewed since the last call.
func (r *reviewer) reviews() int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	count := len(r.tokens)
	r.tokens = nil
	return count
}

func (p *metricsPort) pass(d time.Duration) { p.clock.SetTime(p.clock.Now().Add(d)) }

// request returns the status of the answer to a request. It fails the test if the answer has metrics and another status than 200.
func (p *metricsPort) request(t *testing.T, method, address, authorization string) int {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), method, "/metrics", nil)
	request.RemoteAddr = address + ":40000"
	request.Header.Set("Authorization", authorization)
	response := httptest.NewRecorder()
	p.ServeHTTP(response, request)
	if (response.Body.String() == "metrics") != (response.Code == http.StatusOK) {
		t.Errorf("got %d with body %q", response.Code, response.Body)
	}
	return response.Code
}

// get is a request to read metrics with a token.
func (p *metricsPort) get(t *testing.T, address, token string) int {
	t.Helper()
	return p.request(t, http.MethodGet, address, "Bearer "+token)
}

// flood sends requests with different tokens that nobody issued, from each address as many, and counts the answers by status.
func (p *metricsPort) flood(t *testing.T, addresses, each int) map[int]int {
	t.Helper()
	answers, mutex := map[int]int{}, sync.Mutex{}
	var group errgroup.Group
	for address := range addresses {
		group.Go(func() error {
			for range each {
				status := p.get(t, fmt.Sprintf("10.0.%d.%d", address/256, address%256), rand.Text())
				mutex.Lock()
				answers[status]++
				mutex.Unlock()
			}
			return nil
		})
	}
	_ = group.Wait()
	return answers
}

const (
	scraper = "192.0.2.1"
	granted = "granted"
)

// permits returns an API server that permits only the granted token to read metrics.
func permits() *reviewer {
	return &reviewer{
		users:  map[string]*authenticationv1.TokenReviewStatus{granted: {Authenticated: true, User: authenticationv1.UserInfo{Username: "prometheus"}}},
		access: &authorizationv1.SubjectAccessReviewStatus{Allowed: true},
	}
}

func TestJunkTokensCauseFewReviews(t *testing.T) {
	for name, tc := range map[string]struct {
		addresses, each int
		reviews         int
	}{
		"one address":    {1, 1000, addressBurst},
		"many addresses": {1000, 2, reviewBurst},
	} {
		t.Run(name, func(t *testing.T) {
			api := permits()
			port := api.serve(t)
			want := map[int]int{http.StatusUnauthorized: tc.reviews, http.StatusTooManyRequests: tc.addresses*tc.each - tc.reviews}
			for range 2 {
				if diff := cmp.Diff(want, port.flood(t, tc.addresses, tc.each)); diff != "" {
					t.Errorf("answers (-want +got):\n%s", diff)
				}
				if reviews := api.reviews(); reviews != tc.reviews {
					t.Errorf("%d reviews, want %d", reviews, tc.reviews)
				}
				port.pass(time.Minute)
			}
		})
	}
}

func TestOneTokenIsReviewedOnceInAWhile(t *testing.T) {
	for name, tc := range map[string]struct {
		token      string
		access     bool
		status     int
		remembered time.Duration
	}{
		"allowed":  {granted, true, http.StatusOK, rememberAllowed},
		"denied":   {granted, false, http.StatusForbidden, rememberDenied},
		"rejected": {"junk", true, http.StatusUnauthorized, rememberDenied},
	} {
		t.Run(name, func(t *testing.T) {
			api := permits()
			api.access.Allowed = tc.access
			port := api.serve(t)
			for _, step := range []struct {
				after   time.Duration
				reviews int
			}{{0, 1}, {0, 0}, {tc.remembered - time.Second, 0}, {2 * time.Second, 1}, {tc.remembered - time.Second, 0}} {
				port.pass(step.after)
				if status, reviews := port.get(t, scraper, tc.token), api.reviews(); status != tc.status || reviews != step.reviews {
					t.Errorf("got %d after %s and %d reviews, want %d and %d", status, step.after, reviews, tc.status, step.reviews)
				}
			}
		})
	}
}

func TestRevokedTokenIsRejectedWithinAMinute(t *testing.T) {
	api := permits()
	port := api.serve(t)
	before := port.get(t, scraper, granted)
	api.users = nil
	within := port.get(t, scraper, granted)
	port.pass(rememberAllowed)
	after := port.get(t, scraper, granted)
	api.users = permits().users
	port.pass(rememberDenied + time.Second)
	again := port.get(t, scraper, granted)
	want := []int{http.StatusOK, http.StatusOK, http.StatusUnauthorized, http.StatusOK}
	if diff := cmp.Diff(want, []int{before, within, after, again}); diff != "" {
		t.Errorf("before, within and after a minute, and when it is valid again (-want +got):\n%s", diff)
	}
}

func TestFailedReviewIsNotRemembered(t *testing.T) {
	api := permits()
	users := api.users
	api.users = map[string]*authenticationv1.TokenReviewStatus{granted: nil}
	port := api.serve(t)
	failed := port.get(t, scraper, granted)
	api.users = users
	if succeeded := port.get(t, scraper, granted); failed != http.StatusInternalServerError || succeeded != http.StatusOK {
		t.Errorf("got %d and then %d", failed, succeeded)
	}
}

func TestAnswersHoldForOneVerb(t *testing.T) {
	api := permits()
	port := api.serve(t)
	get := port.get(t, scraper, granted)
	api.access.Allowed = false
	if post := port.request(t, http.MethodPost, scraper, "Bearer "+granted); get != http.StatusOK || post != http.StatusForbidden {
		t.Errorf("GET got %d, and POST %d", get, post)
	}
}

func TestScrapesSucceedDuringAFlood(t *testing.T) {
	t.Run("first scrape while one address floods", func(t *testing.T) {
		port := permits().serve(t)
		port.flood(t, 1, 1000)
		if status := port.get(t, scraper, granted); status != http.StatusOK {
			t.Errorf("got %d", status)
		}
	})
	t.Run("known client while many addresses flood", func(t *testing.T) {
		api := permits()
		port := api.serve(t)
		first := port.get(t, scraper, granted)
		for range 10 {
			port.pass(rememberAllowed)
			port.flood(t, 200, 2)
			api.reviews()
			if status, reviews := port.get(t, scraper, granted), api.reviews(); first != http.StatusOK || status != http.StatusOK || reviews != 1 {
				t.Fatalf("got %d, then %d and %d reviews", first, status, reviews)
			}
		}
		if status := port.get(t, scraper, "other"); status != http.StatusTooManyRequests {
			t.Errorf("the limit of all is not used up: got %d for another token", status)
		}
	})
}

func TestMetricsAuthorization(t *testing.T) {
	longest := strings.Repeat("x", maxTokenBytes)
	prometheus := authenticationv1.UserInfo{
		Username: "system:serviceaccount:monitoring:prometheus", UID: "1f", Groups: []string{"system:serviceaccounts"},
		Extra: map[string]authenticationv1.ExtraValue{"node": {"node-1"}},
	}
	users := func(status *authenticationv1.TokenReviewStatus) map[string]*authenticationv1.TokenReviewStatus {
		return map[string]*authenticationv1.TokenReviewStatus{"x": status, longest: status}
	}
	known := users(&authenticationv1.TokenReviewStatus{Authenticated: true, User: prometheus})
	// The user of a rejected token means nothing.
	rejected := users(&authenticationv1.TokenReviewStatus{User: prometheus, Error: "expired"})
	allowed := &authorizationv1.SubjectAccessReviewStatus{Allowed: true}
	asked := []authorizationv1.SubjectAccessReviewSpec{{
		User: prometheus.Username, UID: "1f", Groups: prometheus.Groups, Extra: map[string]authorizationv1.ExtraValue{"node": {"node-1"}},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
	}}
	for name, tc := range map[string]struct {
		header string
		api    *reviewer
		want   int
		tokens []string
		asked  []authorizationv1.SubjectAccessReviewSpec
	}{
		"no token":        {"", &reviewer{users: known, access: allowed}, http.StatusUnauthorized, nil, nil},
		"empty token":     {"Bearer  ", &reviewer{users: known, access: allowed}, http.StatusUnauthorized, nil, nil},
		"password":        {"Basic YTpi", &reviewer{users: known, access: allowed}, http.StatusUnauthorized, nil, nil},
		"rejected token":  {"Bearer x", &reviewer{users: rejected, access: allowed}, http.StatusUnauthorized, []string{"x"}, nil},
		"no reply":        {"Bearer x", &reviewer{users: users(nil), access: allowed}, http.StatusInternalServerError, nil, nil},
		"allowed":         {"Bearer x", &reviewer{users: known, access: allowed}, http.StatusOK, []string{"x"}, asked},
		"other case":      {"bearer  x", &reviewer{users: known, access: allowed}, http.StatusOK, []string{"x"}, asked},
		"no opinion":      {"Bearer x", &reviewer{users: known, access: &authorizationv1.SubjectAccessReviewStatus{}}, http.StatusForbidden, []string{"x"}, asked},
		"allowed, denied": {"Bearer x", &reviewer{users: known, access: &authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true}}, http.StatusForbidden, []string{"x"}, asked},
		"longest token":   {"Bearer " + longest, &reviewer{users: known, access: allowed}, http.StatusOK, []string{longest}, asked},
		"oversized token": {"Bearer " + longest + "x", &reviewer{users: known, access: allowed}, http.StatusUnauthorized, nil, nil},
		"no second reply": {"Bearer x", &reviewer{users: known}, http.StatusInternalServerError, []string{"x"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if status := tc.api.serve(t).request(t, http.MethodGet, scraper, tc.header); status != tc.want {
				t.Errorf("got %d, want %d", status, tc.want)
			}
			if diff := cmp.Diff(tc.tokens, tc.api.tokens) + cmp.Diff(tc.asked, tc.api.asked); diff != "" {
				t.Errorf("the API server was asked (-want +got):\n%s", diff)
			}
		})
	}
}
