// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
)

// reviewer answers as the API server, and keeps what it was asked. A nil answer is an internal error.
type reviewer struct {
	token  *authenticationv1.TokenReviewStatus
	access *authorizationv1.SubjectAccessReviewStatus

	tokens []string
	asked  []authorizationv1.SubjectAccessReviewSpec
}

func (r *reviewer) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(request.URL.Path, "/tokenreviews") && r.token != nil:
		var review authenticationv1.TokenReview
		_ = json.NewDecoder(request.Body).Decode(&review)
		r.tokens = append(r.tokens, review.Spec.Token)
		review.Status = *r.token
		_ = json.NewEncoder(w).Encode(review)
	case strings.HasSuffix(request.URL.Path, "/subjectaccessreviews") && r.access != nil:
		var review authorizationv1.SubjectAccessReview
		_ = json.NewDecoder(request.Body).Decode(&review)
		r.asked = append(r.asked, review.Spec)
		review.Status = *r.access
		_ = json.NewEncoder(w).Encode(review)
	default:
		w.WriteHeader(http.StatusInternalServerError)
	}
}

func TestMetricsAuthorization(t *testing.T) {
	prometheus := authenticationv1.UserInfo{
		Username: "system:serviceaccount:monitoring:prometheus", UID: "1f", Groups: []string{"system:serviceaccounts"},
		Extra: map[string]authenticationv1.ExtraValue{"node": {"node-1"}},
	}
	known := &authenticationv1.TokenReviewStatus{Authenticated: true, User: prometheus}
	// The user of a rejected token means nothing.
	rejected := &authenticationv1.TokenReviewStatus{User: prometheus, Error: "expired"}
	allowed := &authorizationv1.SubjectAccessReviewStatus{Allowed: true}
	asked := []authorizationv1.SubjectAccessReviewSpec{{
		User: prometheus.Username, UID: "1f", Groups: prometheus.Groups, Extra: map[string]authorizationv1.ExtraValue{"node": {"node-1"}},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
	}}
	for name, tc := range map[string]struct {
		header string
		api    reviewer
		want   int
		tokens []string
		asked  []authorizationv1.SubjectAccessReviewSpec
	}{
		"no token":        {"", reviewer{token: known, access: allowed}, http.StatusUnauthorized, nil, nil},
		"empty token":     {"Bearer  ", reviewer{token: known, access: allowed}, http.StatusUnauthorized, nil, nil},
		"password":        {"Basic YTpi", reviewer{token: known, access: allowed}, http.StatusUnauthorized, nil, nil},
		"rejected token":  {"Bearer x", reviewer{token: rejected, access: allowed}, http.StatusUnauthorized, []string{"x"}, nil},
		"no reply":        {"Bearer x", reviewer{access: allowed}, http.StatusInternalServerError, nil, nil},
		"allowed":         {"Bearer x", reviewer{token: known, access: allowed}, http.StatusOK, []string{"x"}, asked},
		"other case":      {"bearer  x", reviewer{token: known, access: allowed}, http.StatusOK, []string{"x"}, asked},
		"no opinion":      {"Bearer x", reviewer{token: known, access: &authorizationv1.SubjectAccessReviewStatus{}}, http.StatusForbidden, []string{"x"}, asked},
		"allowed, denied": {"Bearer x", reviewer{token: known, access: &authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true}}, http.StatusForbidden, []string{"x"}, asked},
		"no second reply": {"Bearer x", reviewer{token: known}, http.StatusInternalServerError, []string{"x"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			api := &tc.api
			server := httptest.NewServer(api)
			defer server.Close()
			filter, err := authorized(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, server.Client())
			if err != nil {
				t.Fatal(err)
			}
			handler, err := filter(logr.Discard(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("metrics")) }))
			if err != nil {
				t.Fatal(err)
			}
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
			request.Header.Set("Authorization", tc.header)
			response := httptest.NewRecorder()
			handler.ServeHTTP(response, request)
			if response.Code != tc.want || (response.Body.String() == "metrics") != (tc.want == http.StatusOK) {
				t.Errorf("got %d, %q, want %d", response.Code, response.Body, tc.want)
			}
			if diff := cmp.Diff(tc.tokens, api.tokens) + cmp.Diff(tc.asked, api.asked); diff != "" {
				t.Errorf("the API server was asked (-want +got):\n%s", diff)
			}
		})
	}
}
