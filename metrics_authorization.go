// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// reviewTimeout limits the time in which the API server says who a client is and what it may do.
const reviewTimeout = 10 * time.Second

var (
	errUnauthenticated = errors.New("the client is not authenticated")
	errDenied          = errors.New("the client has no permission")
)

// authorized returns a filter for requests of clients with a token that the API server accepts, and with permission for the verb
// and path. The filter of controller-runtime brings the libraries of the API server, which are a third of the operator's size.
func authorized(config *rest.Config, httpClient *http.Client) (metricsserver.Filter, error) {
	authentication, err := authenticationclient.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("make a client for token reviews: %w", err)
	}
	authorization, err := authorizationclient.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("make a client for access reviews: %w", err)
	}
	return func(log logr.Logger, served http.Handler) (http.Handler, error) {
		return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			user, err := authenticate(authentication.TokenReviews(), request)
			if err == nil {
				err = authorize(authorization.SubjectAccessReviews(), user, request)
			}
			status := http.StatusInternalServerError
			switch {
			case err == nil:
				served.ServeHTTP(w, request)
				return
			case errors.Is(err, errUnauthenticated):
				status = http.StatusUnauthorized
			case errors.Is(err, errDenied):
				status = http.StatusForbidden
			default:
				log.Error(err, "Cannot authorize a request for metrics")
			}
			http.Error(w, http.StatusText(status), status)
		}), nil
	}, nil
}

func authenticate(reviews authenticationclient.TokenReviewInterface, request *http.Request) (authenticationv1.UserInfo, error) {
	scheme, token, _ := strings.Cut(strings.TrimSpace(request.Header.Get("Authorization")), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return authenticationv1.UserInfo{}, errUnauthenticated
	}
	ctx, cancel := context.WithTimeout(request.Context(), reviewTimeout)
	defer cancel()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	review, err := reviews.Create(ctx, review, metav1.CreateOptions{})
	switch {
	case err != nil:
		return authenticationv1.UserInfo{}, fmt.Errorf("review the token: %w", err)
	case !review.Status.Authenticated:
		return authenticationv1.UserInfo{}, errUnauthenticated
	}
	return review.Status.User, nil
}

func authorize(reviews authorizationclient.SubjectAccessReviewInterface, user authenticationv1.UserInfo, request *http.Request) error {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: map[string]authorizationv1.ExtraValue{},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: request.URL.Path, Verb: strings.ToLower(request.Method)},
	}
	for key, values := range user.Extra {
		spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	ctx, cancel := context.WithTimeout(request.Context(), reviewTimeout)
	defer cancel()
	review, err := reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("review the access of %s: %w", user.Username, err)
	case !review.Status.Allowed || review.Status.Denied:
		return errDenied
	}
	return nil
}
