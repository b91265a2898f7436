// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// reviewTimeout limits the time in which the API server says who a client is and what it may do.
const reviewTimeout = 10 * time.Second

const (
	// maxTokenBytes is more than the tokens of API servers have. Longer ones are rejected without a review.
	maxTokenBytes = 16 << 10

	// A client reads metrics for at most rememberAllowed after its token or permission was revoked, and for rememberDenied not yet
	// after it was granted.
	rememberAllowed, rememberDenied = time.Minute, 10 * time.Second
	// knowAllowed is for how long the limits do not apply to a client that was allowed, so that others cannot stop its scrapes.
	knowAllowed = time.Hour
	// maxAnswers is more than the limits permit in rememberAllowed, so that reviews of others do not evict a client that scrapes.
	maxAnswers = 2048

	// Of other clients, each address has its own limit, so that one address alone cannot use up the limit of all.
	reviewsPerSecond, reviewBurst = 10, 50
	addressInterval, addressBurst = 5 * time.Second, 5
	maxAddresses                  = 1024
)

var (
	errUnauthenticated = errors.New("the client is not authenticated")
	errDenied          = errors.New("the client has no permission")
	errLimited         = errors.New("the client has to wait until the API server is asked again")
)

// authorized provides a filter for requests of clients with a token that the API server accepts, and with permission for the verb
// and path. The filter of controller-runtime brings the libraries of the API server, which are a third of the operator's size.
func authorized(now clock.PassiveClock) func(*rest.Config, *http.Client) (metricsserver.Filter, error) {
	return func(config *rest.Config, httpClient *http.Client) (metricsserver.Filter, error) {
		authentication, err := authenticationclient.NewForConfigAndClient(config, httpClient)
		if err != nil {
			return nil, fmt.Errorf("make a client for token reviews: %w", err)
		}
		authorization, err := authorizationclient.NewForConfigAndClient(config, httpClient)
		if err != nil {
			return nil, fmt.Errorf("make a client for access reviews: %w", err)
		}
		return (&authorizer{
			tokens: authentication.TokenReviews(), access: authorization.SubjectAccessReviews(), clock: now,
			answers: cache.NewLRUExpireCacheWithClock(maxAnswers, now),
			limits:  newReviewLimits(now),
		}).filter, nil
	}
}

// authorizer asks the API server about clients, and remembers its answers for a short time.
type authorizer struct {
	tokens  authenticationclient.TokenReviewInterface
	access  authorizationclient.SubjectAccessReviewInterface
	clock   clock.PassiveClock
	answers *cache.LRUExpireCache // by requestKey
	limits  *reviewLimits
}

// requestKey identifies a token, a verb and a path. It is a digest, so that no token is kept and all keys have the same size.
type requestKey [sha256.Size]byte

// answer is what the API server said at a time: nil, errUnauthenticated or errDenied.
type answer struct {
	err error
	at  time.Time
}

func (a *authorizer) filter(log logr.Logger, served http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		status := http.StatusInternalServerError
		switch err := a.authorize(request); {
		case err == nil:
			served.ServeHTTP(w, request)
			return
		case errors.Is(err, errUnauthenticated):
			status = http.StatusUnauthorized
		case errors.Is(err, errDenied):
			status = http.StatusForbidden
		case errors.Is(err, errLimited):
			status = http.StatusTooManyRequests
		default:
			log.Error(err, "Cannot authorize a request for metrics")
		}
		http.Error(w, http.StatusText(status), status)
	}), nil
}

// authorize returns nil for a request that may be served. It asks the API server if no recent answer is known.
func (a *authorizer) authorize(request *http.Request) error {
	token := bearerToken(request)
	if token == "" || len(token) > maxTokenBytes {
		return errUnauthenticated
	}
	key, now := keyOf(token, request), a.clock.Now()
	found, known := a.answers.Get(key)
	if known {
		// Denials are forgotten when they are no longer recent, so what is old was allowed.
		if last := found.(answer); last.err != nil || now.Sub(last.at) < rememberAllowed {
			return last.err
		}
	} else if !a.limits.allow(addressOf(request), now) {
		return errLimited
	}
	err := a.review(token, request)
	switch {
	case err == nil:
		a.answers.Add(key, answer{at: now}, knowAllowed)
	case errors.Is(err, errUnauthenticated), errors.Is(err, errDenied):
		a.answers.Add(key, answer{err, now}, rememberDenied)
	}
	return err
}

// bearerToken returns the token of the request, or nothing.
func bearerToken(request *http.Request) string {
	scheme, token, _ := strings.Cut(strings.TrimSpace(request.Header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// keyOf returns the key of the request. Verbs and tokens have no zero bytes, because headers have none.
func keyOf(token string, request *http.Request) requestKey {
	return sha256.Sum256([]byte(verbOf(request) + "\x00" + token + "\x00" + request.URL.Path))
}

func verbOf(request *http.Request) string { return strings.ToLower(request.Method) }

func addressOf(request *http.Request) string {
	address, _, _ := net.SplitHostPort(request.RemoteAddr)
	return address
}

// review asks the API server whether the client with the token may do the request.
func (a *authorizer) review(token string, request *http.Request) error {
	ctx, cancel := context.WithTimeout(request.Context(), reviewTimeout)
	defer cancel()
	user, err := a.authenticate(ctx, token)
	if err != nil {
		return err
	}
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: map[string]authorizationv1.ExtraValue{},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: request.URL.Path, Verb: verbOf(request)},
	}
	for key, values := range user.Extra {
		spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	review, err := a.access.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("review the access of %s: %w", user.Username, err)
	case !review.Status.Allowed || review.Status.Denied:
		return errDenied
	}
	return nil
}

// authenticate asks the API server for the user of the token.
func (a *authorizer) authenticate(ctx context.Context, token string) (authenticationv1.UserInfo, error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	review, err := a.tokens.Create(ctx, review, metav1.CreateOptions{})
	switch {
	case err != nil:
		return authenticationv1.UserInfo{}, fmt.Errorf("review the token: %w", err)
	case !review.Status.Authenticated:
		return authenticationv1.UserInfo{}, errUnauthenticated
	}
	return review.Status.User, nil
}

// reviewLimits limits the reviews of each address and of all together.
type reviewLimits struct {
	mutex     sync.Mutex
	addresses *cache.LRUExpireCache // of *rate.Limiter
	all       *rate.Limiter
}

func newReviewLimits(now clock.PassiveClock) *reviewLimits {
	return &reviewLimits{addresses: cache.NewLRUExpireCacheWithClock(maxAddresses, now), all: rate.NewLimiter(reviewsPerSecond, reviewBurst)}
}

// allow reports whether a client at the address may cause a review now.
func (l *reviewLimits) allow(address string, now time.Time) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	limiter := rate.NewLimiter(rate.Every(addressInterval), addressBurst)
	if found, ok := l.addresses.Get(address); ok {
		limiter = found.(*rate.Limiter)
	}
	// After this time without a request, the limiter is as good as new.
	l.addresses.Add(address, limiter, addressBurst*addressInterval)
	return limiter.AllowN(now, 1) && l.all.AllowN(now, 1)
}
